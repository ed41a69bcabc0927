"""A store for tests of the engine: no reserve of disk, and small writes to it."""

from __future__ import annotations

from storage.engine import Engine
from storage.kv import Family
from storage.options import EngineOptions

OPTIONS = EngineOptions(min_free_bytes=0)


def put(engine: Engine, *keys: bytes, value: bytes = b"v") -> None:
    batch = engine.batch()
    for key in keys:
        batch.put(Family.STATE, key, value)
    engine.write(batch)
