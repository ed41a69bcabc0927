"""A store for tests of the engine: no reserve of disk, small writes to it, and a copy of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from storage.engine import Engine
from storage.kv import Family
from storage.options import EngineOptions

OPTIONS = EngineOptions(min_free_bytes=0)


def put(engine: Engine, *keys: bytes, value: bytes = b"v") -> None:
    batch = engine.batch()
    for key in keys:
        batch.put(Family.STATE, key, value)
    engine.write(batch)


def copy_at_rest(store: Path, image: Path) -> None:
    """Copies an open store as it is at one moment, in which RocksDB's threads do nothing.

    They write tables and the manifest when they like: files of different moments do not open.
    """
    while True:
        try:
            before = _listed(store)
            shutil.copytree(store, image)
            if _listed(store) == before:
                return
        except (shutil.Error, FileNotFoundError):
            pass
        shutil.rmtree(image, ignore_errors=True)


def _listed(store: Path) -> list[tuple[str, int]]:
    return sorted((e.name, e.stat().st_size) for e in os.scandir(store / "rocksdb"))
