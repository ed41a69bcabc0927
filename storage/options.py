"""Options of RocksDB: the node's settings and their translation.

Each setting has its reason beside it. Rows are small: RocksDB holds only the places of entries,
which are in the commit log.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DBCompressionType,
    Options,
)

from storage.kv import Family

KIB = 1024
MIB = 1024 * KIB
_NEVER_FULL = 4096 * MIB

_BOUNDS: dict[str, tuple[int, int]] = {
    "segment_bytes": (4 * KIB, 1024 * MIB),
    "max_replay_bytes": (64 * KIB, 4096 * MIB),
    "memtable_bytes": (64 * KIB, 256 * MIB),
    "block_cache_bytes": (64 * KIB, 16 * 1024 * MIB),
    "max_open_segments": (1, 1_000_000),
    "page_cache_bytes": (0, 1 << 50),
    "max_open_files": (32, 1_000_000),
    "min_free_bytes": (0, 1 << 50),
    "background_jobs": (1, 64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Settings of one node's store. Raises ValueError naming the field and its limits.

    segment_bytes: from this size on the commit log goes on in a new file.
    max_replay_bytes: of the commit log, which a restart replays, about; beyond it RocksDB is told
        to write its tables.
    memtable_bytes: the same for rows in memory; four times as much is the most they take.
    block_cache_bytes: one cache for all families.
    max_open_segments: file descriptors kept for reading the commit log.
    page_cache_bytes: about the bytes of the commit log that stay in the system's page cache; the
        least recently used go first. 0: the system decides.
    max_open_files: file descriptors that RocksDB keeps.
    min_free_bytes: below this much free disk, writes are refused before the disk is really full, so
        that flushes and trims still have room.
    background_jobs: threads for flushes and compactions.
    """

    segment_bytes: int = 64 * MIB
    max_replay_bytes: int = 128 * MIB
    memtable_bytes: int = 16 * MIB
    block_cache_bytes: int = 8 * MIB
    max_open_segments: int = 256
    page_cache_bytes: int = 1024 * MIB
    max_open_files: int = 256
    min_free_bytes: int = 256 * MIB
    background_jobs: int = 2

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, allowed are {low} to {high}")


def database_options(options: EngineOptions, *, new: bool) -> Options:
    """Makes the options of the whole database. new: there may be no database yet."""
    db = Options(raw_mode=True)
    # A MANIFEST that lost its end does not know the families. Creating them would make them empty,
    # silently.
    db.create_if_missing(new)
    db.create_missing_column_families(new)
    db.set_paranoid_checks(True)
    db.set_max_open_files(options.max_open_files)
    db.set_max_background_jobs(options.background_jobs)
    # Write-back in small steps: else a sync waits behind a burst of a flush.
    db.set_bytes_per_sync(1 * MIB)
    # RocksDB's own info log and history.
    db.set_keep_log_file_num(3)
    db.set_max_log_file_size(4 * MIB)
    db.set_max_manifest_file_size(16 * MIB)
    db.set_stats_dump_period_sec(0)
    db.set_stats_persist_period_sec(0)
    # Reading every table's properties would make the start of a large store slow.
    db.set_skip_stats_update_on_db_open(True)
    _family(db, Cache(64 * KIB))
    return db


def family_options(options: EngineOptions) -> dict[Family, Options]:
    """Makes the options of each family; all share one block cache."""
    cache = Cache(options.block_cache_bytes)
    families = {family: Options(raw_mode=True) for family in Family}
    for each in families.values():
        _family(each, cache)
    _checkpoints(families[Family.CHECKPOINTS])
    return families


def _family(each: Options, cache: Cache) -> None:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(4 * KIB)
    table.set_checksum_type(ChecksumType.xxh3())
    table.set_format_version(5)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    each.set_block_based_table_factory(table)
    # Never reached: only `database` decides when a memtable is written out.
    each.set_write_buffer_size(_NEVER_FULL)
    each.set_max_write_buffer_number(4)
    each.set_compression_type(DBCompressionType.lz4())
    each.set_target_file_size_base(8 * MIB)
    each.set_max_bytes_for_level_base(32 * MIB)
    # A write holds the interpreter's lock, so RocksDB must not make it wait for a compaction.
    # Tables are small here, so reading a few more of them is cheap.
    each.set_level_zero_file_num_compaction_trigger(4)
    each.set_level_zero_slowdown_writes_trigger(64)
    each.set_level_zero_stop_writes_trigger(128)
    each.set_soft_pending_compaction_bytes_limit(0)
    each.set_hard_pending_compaction_bytes_limit(0)


def _checkpoints(each: Options) -> None:
    # Chunks are replaced as a whole and never updated: compaction need not move them.
    each.set_enable_blob_files(True)
    each.set_min_blob_size(64 * KIB)
    each.set_blob_file_size(64 * MIB)
    each.set_blob_compression_type(DBCompressionType.lz4())
