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
    """Figures in bytes, except for counts.

    disk_bytes: everything in the store's directory. replay_bytes: about the part of the commit log
    that a restart would replay. memtable_bytes, cache_bytes: memory. free_disk_bytes,
    disk_size_bytes: left on the file system, and its size. log_bytes, log_garbage_bytes: the commit
    log, and its garbage at the last reclaim. stalled: RocksDB takes no writes. flushes_pending:
    families with rows that are being written out. compaction_pending_bytes: RocksDB's estimate of
    its backlog. background_errors: count since the store was opened.
    """

    disk_bytes: int
    replay_bytes: int
    free_disk_bytes: int
    disk_size_bytes: int
    memtable_bytes: int
    cache_bytes: int
    log_bytes: int
    log_garbage_bytes: int
    flushes_pending: int
    compaction_pending_bytes: int
    stalled: bool
    background_errors: int


def measure(
    path: Path, families: Mapping[Family, Rdict], db: Rdict, *, replay_bytes: int, garbage: int
) -> EngineStats:
    """Measures a store. replay_bytes, garbage: of the commit log, given by its owner."""
    sizes = _file_sizes(path)
    status = os.statvfs(path)

    def total(name: str) -> int:
        return sum(number(each, name) for each in families.values())

    return EngineStats(
        disk_bytes=sum(size for _, size in sizes),
        replay_bytes=replay_bytes,
        free_disk_bytes=status.f_bavail * status.f_frsize,
        disk_size_bytes=status.f_blocks * status.f_frsize,
        memtable_bytes=total("rocksdb.cur-size-all-mem-tables"),
        cache_bytes=number(families[Family.ENTRIES], "rocksdb.block-cache-usage"),
        log_bytes=sum(size for folder, size in sizes if os.path.basename(folder) == "log"),
        log_garbage_bytes=garbage,
        flushes_pending=sum(
            number(each, "rocksdb.num-immutable-mem-table") > 0 for each in families.values()
        ),
        compaction_pending_bytes=total("rocksdb.estimate-pending-compaction-bytes"),
        stalled=number(db, "rocksdb.is-write-stopped") > 0,
        background_errors=number(db, "rocksdb.background-errors"),
    )


def number(db: Rdict, name: str) -> int:
    return db.property_int_value(name) or 0


def _file_sizes(path: Path) -> list[tuple[str, int]]:
    """Returns (folder, bytes on disk) of all files below; the set may change meanwhile."""
    sizes = []
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.stat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            sizes.append((folder, status.st_blocks * 512))
    return sizes
