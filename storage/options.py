"""How RocksDB is set up for a log: the node's settings and their translation.

The reasons, setting by setting, stand beside each. Two families of reasons:
entries are written once, read in order and dropped from the head; everything
else is small.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    ReadOptions,
)

from storage.kv import Family

KIB = 1024
MIB = 1024 * KIB

_BOUNDS: dict[str, tuple[int, int]] = {
    "entries_memtable_bytes": (64 * KIB, 1024 * MIB),
    "entries_memtables": (2, 16),
    "small_memtable_bytes": (64 * KIB, 256 * MIB),
    "block_cache_bytes": (64 * KIB, 16 * 1024 * MIB),
    "max_wal_bytes": (1 * MIB, 4096 * MIB),
    "max_open_files": (32, 1_000_000),
    "min_blob_bytes": (0, 1024 * MIB),
    "min_free_bytes": (0, 1 << 50),
    "background_jobs": (1, 64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Settings of one node's store. Raises ValueError naming the field and its limits.

    entries_memtable_bytes, entries_memtables: memory for entries not yet in
        files; their product is the most it takes.
    small_memtable_bytes: the same for each other family (at most two of each).
    block_cache_bytes: one cache for all families.
    max_wal_bytes: what a restart replays at most; beyond it the families that
        hold the oldest WAL are flushed.
    max_open_files: file descriptors RocksDB keeps.
    min_blob_bytes: entries from this size are kept out of compaction, in blob files.
    min_free_bytes: below this much free disk, writes are refused before
        RocksDB runs into the end, so that flushes and trims still have room.
    background_jobs: threads for flushes and compactions.
    """

    entries_memtable_bytes: int = 16 * MIB
    entries_memtables: int = 4
    small_memtable_bytes: int = 4 * MIB
    block_cache_bytes: int = 8 * MIB
    max_wal_bytes: int = 128 * MIB
    max_open_files: int = 512
    min_blob_bytes: int = 1 * KIB
    min_free_bytes: int = 256 * MIB
    background_jobs: int = 2

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, allowed are {low} to {high}")


def database_options(options: EngineOptions, *, new: bool) -> Options:
    """What holds for the whole database and its WAL. new: there may be no database yet."""
    db = Options(raw_mode=True)
    # A MANIFEST that lost its end does not know the families. Made anew they would be
    # empty, and the WAL's writes to the old ones be counted, and skipped, in silence.
    db.create_if_missing(new)
    db.create_missing_column_families(new)
    db.set_paranoid_checks(True)
    # Replay stops at the first record that is not whole, in whichever WAL it is,
    # so what survives is a prefix of what was written. tolerate_corrupted_tail
    # would go on with the next WAL after a torn end of the one before and so
    # bring back a log with a hole. That the prefix holds all that was synced is
    # what `watermark` checks.
    db.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    db.set_max_total_wal_size(options.max_wal_bytes)
    db.set_max_open_files(options.max_open_files)
    db.set_max_background_jobs(options.background_jobs)
    # Write-back in small steps: else a sync waits behind a burst of a flush.
    db.set_bytes_per_sync(1 * MIB)
    db.set_wal_bytes_per_sync(1 * MIB)
    # RocksDB's own info log and history.
    db.set_keep_log_file_num(3)
    db.set_max_log_file_size(4 * MIB)
    db.set_max_manifest_file_size(16 * MIB)
    db.set_stats_dump_period_sec(0)
    db.set_stats_persist_period_sec(0)
    # Reading every table's properties at start is what makes large stores slow to open.
    db.set_skip_stats_update_on_db_open(True)
    _small_family(db, options, Cache(64 * KIB))
    return db


def family_options(options: EngineOptions) -> dict[Family, Options]:
    """One set for each family; all share one block cache."""
    cache = Cache(options.block_cache_bytes)
    families = {family: Options(raw_mode=True) for family in Family}
    for family, each in families.items():
        if family is not Family.ENTRIES:
            _small_family(each, options, cache)
    _entries(families[Family.ENTRIES], options, cache)
    _checkpoints(families[Family.CHECKPOINTS])
    return families


def unchecked_reads() -> ReadOptions:
    """For values that the reader checks itself."""
    reads = ReadOptions()
    reads.set_verify_checksums(False)
    return reads


def _tables(each: Options, cache: Cache, block_bytes: int) -> None:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(block_bytes)
    table.set_checksum_type(ChecksumType.xxh3())
    table.set_format_version(5)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    each.set_block_based_table_factory(table)


def _small_family(each: Options, options: EngineOptions, cache: Cache) -> None:
    _tables(each, cache, 4 * KIB)
    each.set_write_buffer_size(options.small_memtable_bytes)
    each.set_max_write_buffer_number(2)
    each.set_compression_type(DBCompressionType.lz4())
    each.set_target_file_size_base(8 * MIB)
    each.set_max_bytes_for_level_base(32 * MIB)
    _never_stall(each)


def _entries(each: Options, options: EngineOptions, cache: Cache) -> None:
    _tables(each, cache, 16 * KIB)
    each.set_write_buffer_size(options.entries_memtable_bytes)
    each.set_max_write_buffer_number(options.entries_memtables)
    # Clients compress payloads; a second time only costs.
    each.set_compression_type(DBCompressionType.none())
    each.set_enable_blob_files(True)
    each.set_min_blob_size(options.min_blob_bytes)
    each.set_blob_file_size(256 * MIB)
    each.set_blob_compression_type(DBCompressionType.none())
    # Files of blobs that are all dropped go by themselves. Relocation of the
    # live rest is off here: it goes by a file's age, not by its garbage, so each
    # compaction would copy the oldest part of a log that nobody has trimmed.
    # `Engine.reclaim` turns it on for a while when garbage is really there.
    each.set_enable_blob_gc(False)
    each.set_target_file_size_base(32 * MIB)
    each.set_max_bytes_for_level_base(128 * MIB)
    _never_stall(each)


def _checkpoints(each: Options) -> None:
    # Chunks are replaced as a whole and never updated: compaction need not move them.
    each.set_enable_blob_files(True)
    each.set_min_blob_size(64 * KIB)
    each.set_blob_file_size(64 * MIB)
    each.set_blob_compression_type(DBCompressionType.lz4())


def _never_stall(each: Options) -> None:
    # A write holds the interpreter's lock, so RocksDB must not make it wait for a
    # compaction. Tables are small here (values are in blob files), reading a few
    # more of them is cheap.
    each.set_level_zero_file_num_compaction_trigger(4)
    each.set_level_zero_slowdown_writes_trigger(64)
    each.set_level_zero_stop_writes_trigger(128)
    each.set_soft_pending_compaction_bytes_limit(0)
    each.set_hard_pending_compaction_bytes_limit(0)
