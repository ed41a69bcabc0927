"""Giving the disk back what trims have dropped.

A trim is one range mark. A compaction that meets it drops the rows under it,
and a blob file goes once all of its entries are dropped. Under load that
happens by itself; this is for nodes that are idle, and for blob files that one
slow group keeps alive.
"""

from __future__ import annotations

from rocksdict import BottommostLevelCompaction, CompactOptions, Rdict

from storage.metrics import number

# Above this share of garbage the live rest of the oldest files is worth copying.
WORTH_MOVING = 0.5
# How much of the blob files one call moves at most, oldest first.
MOVED_SHARE = 0.25


def reclaim(entries: Rdict, free_bytes: int) -> None:
    """Compacts the entries' tables, which are small; moves blobs only if it pays and fits."""
    entries.flush(True)
    entries.compact_range(None, None, CompactOptions())
    total = number(entries, "rocksdb.live-blob-file-size")
    garbage = number(entries, "rocksdb.live-blob-file-garbage-size")
    files = number(entries, "rocksdb.num-blob-files")
    if garbage <= WORTH_MOVING * total:
        return
    # At least one file: the cut-off is rounded down.
    share = min(1.0, max(MOVED_SHARE, 1.5 / files))
    if total * share <= free_bytes:
        _move_oldest(entries, share)


def _move_oldest(entries: Rdict, share: float) -> None:
    entries.set_options(
        {
            "enable_blob_garbage_collection": "true",
            "blob_garbage_collection_age_cutoff": f"{share:.6f}",
        }
    )
    try:
        forced = CompactOptions()
        forced.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        entries.compact_range(None, None, forced)
    finally:
        entries.set_options({"enable_blob_garbage_collection": "false"})
