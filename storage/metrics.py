"""Figures of an open store, for metrics and for deciding when to reclaim space."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocksdict import Rdict

from storage.kv import Family


@dataclass(frozen=True, slots=True)
class EngineStats:
    """All in bytes, but for counts that say so.

    disk_bytes: everything in the store's directory. wal_bytes: the part that a
    restart would replay. memtable_bytes, cache_bytes: memory. free_disk_bytes:
    left on the file system. blob_bytes, blob_garbage_bytes: entries' blob files
    and what compaction has found dropped in them. stalled: RocksDB takes no
    writes. flushes_pending: families with a full memtable that is not written out
    yet. compaction_pending_bytes: RocksDB's estimate of what it is behind with.
    background_errors: count since the store was opened.
    """

    disk_bytes: int
    wal_bytes: int
    free_disk_bytes: int
    memtable_bytes: int
    cache_bytes: int
    blob_bytes: int
    blob_garbage_bytes: int
    flushes_pending: int
    compaction_pending_bytes: int
    stalled: bool
    background_errors: int


def measure(path: Path, db: Rdict, families: Mapping[Family, Rdict]) -> EngineStats:
    sizes = _file_sizes(path)
    status = os.statvfs(path)
    entries = families[Family.ENTRIES]
    return EngineStats(
        disk_bytes=sum(size for _, size in sizes),
        wal_bytes=sum(size for name, size in sizes if name.endswith(".log")),
        free_disk_bytes=status.f_bavail * status.f_frsize,
        memtable_bytes=sum(
            number(each, "rocksdb.cur-size-all-mem-tables") for each in families.values()
        ),
        cache_bytes=number(entries, "rocksdb.block-cache-usage"),
        blob_bytes=number(entries, "rocksdb.live-blob-file-size"),
        blob_garbage_bytes=number(entries, "rocksdb.live-blob-file-garbage-size"),
        flushes_pending=sum(
            number(each, "rocksdb.num-immutable-mem-table") > 0 for each in families.values()
        ),
        compaction_pending_bytes=sum(
            number(each, "rocksdb.estimate-pending-compaction-bytes") for each in families.values()
        ),
        stalled=number(db, "rocksdb.is-write-stopped") > 0,
        background_errors=number(db, "rocksdb.background-errors"),
    )


def number(db: Rdict, name: str) -> int:
    return db.property_int_value(name) or 0


def _file_sizes(path: Path) -> list[tuple[str, int]]:
    """(name, bytes on disk) of all files below; files come and go meanwhile."""
    sizes = []
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.stat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            sizes.append((name, status.st_blocks * 512))
    return sizes
