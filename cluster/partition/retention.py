"""Retention of a partition: moves the log's start by whole batches, the oldest first. Pure.

Leadership.retain --> freed_by --LOG_START entry--> StoredBatches.move_start
"""

from __future__ import annotations

from cluster.entries import LogStartEntry
from cluster.partition.stored_batches import StoredBatches
from cluster.partition.types import Policy


def freed_by(
    policy: Policy, stored: StoredBatches, now_ms: int, stamp_ms: int
) -> LogStartEntry | None:
    """Returns an entry that drops batches too old at `now_ms` or too many; None: there are none."""
    start, freed = stored.log_start, 0
    for place in stored.index.all_from(stored.log_start):
        if place.base_offset < start or place.base_offset >= stored.next_offset:
            continue
        old = policy.retention_ms >= 0 and now_ms - place.append_time_ms > policy.retention_ms
        big = 0 <= policy.retention_bytes < stored.stored_bytes - freed
        if not (old or big):
            break
        freed += place.payload_bytes
        start = place.last_offset + 1
    if start == stored.log_start:
        return None
    return LogStartEntry(stored.log_start, start, freed, stamp_ms)
