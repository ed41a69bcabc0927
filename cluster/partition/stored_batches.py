"""Stored batches of a replica: their offsets, index rows, and the log's start. Applied.

    PartitionMachine --append, publish, carry, move_start--> StoredBatches <--read-- Partition

Offsets are not stored with the batches: a small row for each accepted batch says at which Raft
index it lies. A refused batch takes no offset and has no row.
"""

from __future__ import annotations

from cluster.entries import BatchEntry, CarriedEntry, LogStartEntry
from cluster.partition.batch_index import BatchIndex, carried_place_of, place_of
from cluster.partition.carried import CarriedRange, CarriedRanges
from cluster.transactions.run import Run
from cluster.transactions.types import Expected
from storage.kv import WriteBatch
from storage.offset_index import IndexEntry, OffsetIndex, RunRow


class StoredBatches:
    """Kept batches, `log_start` to `next_offset` (exclusive); `stored_bytes` of entries.

    appended: batches, records and bytes since this replica was opened, for metrics. `led` counts
    those that were applied while it led, so that a sum over replicas counts each once.
    """

    def __init__(self, offsets: OffsetIndex) -> None:
        self.index = BatchIndex(offsets)
        self.next_offset = self.log_start = self.stored_bytes = 0
        self.carried = CarriedRanges()
        self.appended_batches = self.appended_records = self.appended_bytes = 0
        self._led = (0, 0, 0)
        self._led_from: tuple[int, int, int] | None = None  # while it leads

    @property
    def _appended(self) -> tuple[int, int, int]:
        return self.appended_batches, self.appended_records, self.appended_bytes

    @property
    def led(self) -> tuple[int, int, int]:
        """Returns batches, records and bytes that were applied while this replica led."""
        begun, now = self._led_from, self._appended
        if begun is None:
            return self._led
        batches, records, size = self._led
        return batches + now[0] - begun[0], records + now[1] - begun[1], size + now[2] - begun[2]

    def lead(self, leads: bool) -> None:
        """Notes that this replica leads from now on, or no more."""
        if leads != (self._led_from is not None):
            self._led = self.led
            self._led_from = self._appended if leads else None

    def restore(
        self, next_offset: int, log_start: int, stored_bytes: int, carried: CarriedRanges
    ) -> None:
        """Restores a saved state; the stored rows may be ahead of it."""
        assert 0 <= log_start <= next_offset
        self.index.forget_recent(has_carried=len(carried) > 0)
        self.next_offset = next_offset
        self.log_start = log_start
        self.stored_bytes = stored_bytes
        self.carried = carried

    def append(self, index: int, entry: BatchEntry, data: bytes, batch: WriteBatch) -> int:
        """Gives the batch in Raft entry `index` its offsets; returns the first."""
        base, size = self.next_offset, len(data)
        self.index.add(batch, place_of(index, base, entry, data))
        self.next_offset = base + entry.record_count
        self.stored_bytes += size
        self.appended_batches += 1
        self.appended_records += entry.record_count
        self.appended_bytes += size
        return base

    def stage(
        self, index: int, relative: int, entry: BatchEntry, data: bytes, batch: WriteBatch
    ) -> None:
        """Indexes a staged batch; it has no offset, only a position in its run."""
        place = place_of(index, relative, entry, data)
        self.index.stage(batch, entry.transaction_id, entry.producer_id, place)

    def publish(self, run: Run, expected: Expected, stamp_ms: int, batch: WriteBatch) -> None:
        """Gives a run its offsets; their age counts from now."""
        row = RunRow(
            self.next_offset, expected.records, run.transaction_id, run.producer_id, stamp_ms
        )
        self.index.publish(batch, row, run.batches)
        self.next_offset += expected.records
        self.stored_bytes += expected.size
        self.appended_batches += run.batches
        self.appended_records += expected.records
        self.appended_bytes += expected.size

    def carry(self, index: int, entry: CarriedEntry, data: bytes, batch: WriteBatch) -> bool:
        """Replaces stored batches by a carried one, unless they changed since they were read."""
        if not 0 <= entry.freed_bytes <= self.stored_bytes:
            return False
        if not 0 <= entry.blanks_behind <= entry.record_count:
            return False
        if not self.carried.judge(entry, self.log_start, self.next_offset):
            return False
        count, blanks = entry.record_count, entry.blanks_behind
        self.carried.put(CarriedRange(entry.base_offset, count, index, blanks))
        self.stored_bytes += len(data) - entry.freed_bytes
        self.index.carry(batch, carried_place_of(index, entry, data))
        return True

    def first_plain(self, applied_index: int) -> tuple[int, IndexEntry | None]:
        """Returns the first offset whose batch was not carried, and that batch's row.

        None: there is no such batch, or its row is not written yet.
        """
        offset = self.log_start
        while (offset := self.carried.end_from(offset)) < self.next_offset:
            place = self.index.at(offset)
            if place is None:
                return offset, None
            # Rows may be ahead of the state after a restart, or be missing in a given one until
            # their replacement is applied. Then this is the row of a carried batch.
            is_carried = self.carried.end_from(place.base_offset) > place.base_offset
            if not is_carried and place.raft_index <= applied_index:
                return offset, place
            offset = place.last_offset + 1
        return offset, None

    def move_start(self, entry: LogStartEntry, batch: WriteBatch) -> None:
        """Drops the batches that retention freed, unless another entry moved the start before."""
        start = entry.log_start_offset
        if entry.from_offset != self.log_start or not self.log_start < start <= self.next_offset:
            return
        if self.carried.is_cut_at(start):
            return
        self.stored_bytes -= entry.freed_bytes
        self.carried.trim_below(start, self.log_start)
        self.log_start = start
        self.index.trim_below(batch, start)
