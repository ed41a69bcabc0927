"""Append times of offsets, from the index: no batch is read. For the lag of readers in time."""

from __future__ import annotations

from cluster.partition.disk_reads import in_thread
from cluster.partition.replica import Partition
from storage.errors import StorageError


async def append_time_ms(partition: Partition, offset: int) -> int:
    """Return when the batch with the offset was appended; 0: not known, or not there yet."""
    stored = partition.machine.stored
    offset = max(offset, stored.log_start)
    if offset >= stored.next_offset:
        return 0
    places = stored.index.recent(offset)
    if not places:
        try:
            places = await in_thread(stored.index.stored, offset)
        except StorageError:
            return 0
    return places[0].append_time_ms if places else 0


async def behind_ms(partition: Partition, offset: int) -> int | None:
    """Return the time from the offset's batch to the newest readable one; None: not known."""
    end = partition.high_watermark
    if offset >= end:
        return 0
    newest, there = [await append_time_ms(partition, one) for one in (end - 1, offset)]
    return max(0, newest - there) if newest and there else None
