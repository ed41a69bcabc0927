"""Reads for a cleaner: batches as its worker takes them, with transactions left whole.

Cleaner --ask--> BackgroundReads --run, in a thread--> CleaningRead --> CleaningChunk
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.cleaning.passes import SourceBatch
from cluster.partition.replica import OffsetOutOfRangeError, Partition
from storage.offset_index import IndexEntry, RunRow

# Of one read: more bytes than a group, and few enough batches for a short read.
CHUNK_BYTES = 4 << 20
CHUNK_BATCHES = 4096


class CleaningChunk(NamedTuple):
    """Adjoining batches, and the end of what was read.

    is_left: the batches up to `end` stay as they are: a transaction is too large to be carried.
    """

    batches: list[SourceBatch]
    end: int
    is_left: bool = False

    @property
    def size(self) -> int:
        return sum(len(batch.data) for batch in self.batches)


class CleaningRead:
    """Reads the batches from `offset` on that end at or below `end`."""

    def __init__(self, partition: Partition, offset: int, end: int) -> None:
        """Begins a read. Raises OffsetOutOfRangeError."""
        self._index = partition.machine.stored.index
        self._reading = partition.reading(offset, CHUNK_BYTES, CHUNK_BATCHES)
        self._reading.places = self._places = list[IndexEntry]()
        self._offset = offset
        self._end = end

    @property
    def is_outdated(self) -> bool:
        return self._reading.is_outdated

    def run(self) -> CleaningChunk | None:
        """Returns at least one batch; None: they are others by now. Raises StorageError."""
        try:
            read = self._reading.run()
        except OffsetOutOfRangeError:
            return None
        if not read or read[0].base_offset != self._offset:
            return None
        runs = self._index.long_runs(self._offset, self._places[-1].last_offset + 1)
        batches = list[SourceBatch]()
        for place, (base, data) in zip(self._places, read, strict=True):
            end = base + place.record_count
            if end > self._end:
                break
            joined = any(run.base_offset <= base and end <= run.last_offset for run in runs)
            times = (place.raft_index, place.append_time_ms)
            batches.append(SourceBatch(base, end, *times, joined, data))
        return _whole(batches, runs)


def _whole(batches: list[SourceBatch], runs: list[RunRow]) -> CleaningChunk | None:
    """Returns the batches without the begin of a transaction that goes on behind them."""
    if not batches:
        return None
    first, last = batches[0], batches[-1]
    if not last.joined:
        return CleaningChunk(batches, last.end)
    (run,) = (run for run in runs if run.base_offset <= last.base_offset <= run.last_offset)
    if run.base_offset <= first.base_offset:
        return CleaningChunk([], run.last_offset + 1, is_left=True)
    before = [batch for batch in batches if batch.end <= run.base_offset]
    return CleaningChunk(before, before[-1].end)
