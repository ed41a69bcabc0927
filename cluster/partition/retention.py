"""Retention of a partition: moves the log's start by whole batches, the oldest first. Pure.

Leadership.retain --------> freed_by ----LOG_START entry--> StoredBatches.move_start
Leadership.delete_below --> freed_below ------'
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from cluster.entries import LogStartEntry
from cluster.partition.stored_batches import StoredBatches
from cluster.partition.types import Policy
from storage.offset_index import IndexEntry

MAX_DELETED = 10_000  # batches of one entry that a client asks for: their rows are read in a turn


def freed_by(
    policy: Policy, stored: StoredBatches, now_ms: int, stamp_ms: int
) -> LogStartEntry | None:
    """Returns an entry that drops batches too old at `now_ms` or too many; None: there are none."""

    def is_dropped(place: IndexEntry, freed: int) -> bool:
        old = policy.retention_ms >= 0 and now_ms - place.append_time_ms > policy.retention_ms
        return old or 0 <= policy.retention_bytes < stored.stored_bytes - freed

    return _freed(stored, is_dropped, None, stamp_ms)


def freed_below(stored: StoredBatches, offset: int, stamp_ms: int) -> LogStartEntry | None:
    """Returns an entry that drops batches that end below the offset; None: there are none.

    It drops MAX_DELETED at most: ask again when it is applied.
    """
    return _freed(stored, lambda place, _: place.last_offset < offset, MAX_DELETED, stamp_ms)


def _freed(
    stored: StoredBatches,
    is_dropped: Callable[[IndexEntry, int], bool],
    most: int | None,
    stamp_ms: int,
) -> LogStartEntry | None:
    """is_dropped: of a batch, behind so many bytes that go. most: batches to look at."""
    start, freed = stored.log_start, 0
    for place in islice(stored.index.all_from(start), most):
        if place.base_offset < start or place.base_offset >= stored.next_offset:
            continue
        if not is_dropped(place, freed):
            break
        freed += place.payload_bytes
        start = place.last_offset + 1
    if start == stored.log_start:
        return None
    return LogStartEntry(stored.log_start, start, freed, stamp_ms)
