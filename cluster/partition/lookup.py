"""Search for a producer's batch in the log, if the last-seen map no longer has it.

    ResolveSequence, old duplicates --> find_batch --> offset index --> journal

The map keeps five batches of each producer with their offsets. Older batches are in the log,
without an index by producer. So the log is read backwards, from the oldest batch in the map. It is
read in small slices, between which other tasks run, and in a thread if it is not in memory. Only
headers are read. The search ends early: a producer's epochs and sequences only rise, so once either
is older, the batch is not further down. It ends as well at a carried batch, which no longer tells
whose batches it replaced.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum

from cluster.dedup.verdict import KAFKA_IDS, ResolutionKind, Resolved
from cluster.entries import CARRIED, BatchEntry, unpack_batch
from cluster.partition.disk_reads import without_waiting
from cluster.partition.replica import Partition
from storage.errors import StorageError

ANY_EPOCH = -1
SLICE_BATCHES = 64
SLICE_BYTES = 4 * 1024 * 1024


class Miss(Enum):
    """Reasons for a batch that was not found."""

    ABSENT = "the log shows that no batch holds the sequence"
    UNKNOWN = "it may have been deleted or carried, or lies further back than was looked"


@dataclass(frozen=True, slots=True)
class Found:
    """The stored batch that holds the sequence."""

    base_offset: int
    entry: BatchEntry

    def offset_of(self, sequence: int) -> int:
        """Returns the record's offset; -1 if gaps in the sequences hide it."""
        entry = self.entry
        if entry.record_count == entry.last - entry.first + 1 or sequence == entry.first:
            return self.base_offset + sequence - entry.first
        return self.base_offset + entry.record_count - 1 if sequence == entry.last else -1


async def find_batch(
    partition: Partition,
    producer_id: int,
    epoch: int,
    sequence: int,
    *,
    below: int,
    max_batches: int | None = None,
) -> Found | Miss:
    """Finds the producer's batch with that sequence among those that begin below offset `below`.

    epoch: of the batch; ANY_EPOCH: the newest batch that has the sequence.
    Raises storage.StorageError.
    """
    any_epoch = epoch == ANY_EPOCH
    looked_at = 0
    while max_batches is None or looked_at < max_batches:
        group = partition.group
        if partition.closed or group.failed is not None:
            return Miss.UNKNOWN
        reading = partition.reading_back(below, SLICE_BYTES, SLICE_BATCHES)
        try:
            read = await without_waiting(reading)
        except StorageError:
            if reading.is_outdated:
                return Miss.UNKNOWN
            raise
        if read is None:
            return Miss.UNKNOWN
        if not read:
            return Miss.UNKNOWN if partition.log_start_offset else Miss.ABSENT
        for place, data in read:
            if data[0] == CARRIED:
                return Miss.UNKNOWN
            entry = unpack_batch(data)
            if entry.producer_id == producer_id and (any_epoch or entry.epoch <= epoch):
                if entry.first <= sequence <= entry.last and (any_epoch or entry.epoch == epoch):
                    return Found(place.base_offset, entry)
                # Below the last sequence of the epoch, or in a gap that the producer declared.
                passed = entry.last < sequence or entry.prev < sequence < entry.first
                if entry.epoch < epoch or (passed and (not any_epoch or not entry.epoch)):
                    return Miss.ABSENT
            below = place.base_offset
            looked_at += 1
        await asyncio.sleep(0)
    return Miss.UNKNOWN


def search_from(partition: Partition, producer_id: int) -> int:
    """Returns the offset below which the map no longer knows the producer's batches."""
    entry = partition.last_seen.describe(producer_id)
    if entry is None or not entry.recent:
        return partition.high_watermark
    return entry.recent[0].base_offset


async def settled(
    partition: Partition, producer_id: int, epoch: int, sequence: int, found: Resolved
) -> Resolved:
    """Completes the map's answer from the log.

    UNSPECIFIED is left only where retention or compaction has removed the evidence. An id of
    Kafka's clients may come again after the map forgot it, so only the log shows what it stored.
    Raises storage.StorageError.
    """
    known = partition.last_seen.describe(producer_id)
    forgotten = known is None and producer_id >= KAFKA_IDS
    if found.resolution is ResolutionKind.COMMITTED:
        in_window = known is not None and known.recent and sequence >= known.recent[0].first
        if found.offset >= 0 or in_window:
            return found
    elif found.resolution is not ResolutionKind.UNSPECIFIED and not forgotten:
        return found
    elif known is not None and known.pinned and known.opened and known.last_offset < 0:
        # A name's id is remembered from its first batch on: there was no batch.
        return found._replace(resolution=ResolutionKind.NEVER)
    below = search_from(partition, producer_id)
    place = await find_batch(partition, producer_id, epoch, sequence, below=below)
    if isinstance(place, Found):
        return found._replace(resolution=ResolutionKind.COMMITTED, offset=place.offset_of(sequence))
    if place is Miss.UNKNOWN and forgotten:
        return found._replace(resolution=ResolutionKind.UNSPECIFIED)
    if place is Miss.ABSENT and found.resolution is not ResolutionKind.NOT_YET:
        return found._replace(resolution=ResolutionKind.NEVER, offset=-1)
    return found
