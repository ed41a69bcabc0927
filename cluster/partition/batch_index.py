"""Index of a partition's batches: the stored index with its newest rows in memory.

    apply --add, stage, publish, trim_below--> BatchIndex <--recent, stored-- read, lookup
                                                    |
                                            storage.OffsetIndex

A row holds the checksum of its batch's header, and that header holds the payload's. So `is_intact`
can tell whether bytes from the disk are the batch that was stored there, and a reader needs no
other checksum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice

import crc32c

from cluster import entries
from cluster.consensus.applying import MAX_APPLY_PER_ADVANCE
from cluster.entries import HEADER_BYTES, BatchEntry, CarriedEntry
from storage.kv import WriteBatch
from storage.offset_index import IndexEntry, OffsetIndex, RunRow

RECENT_ENTRIES = 4096  # rows in memory
# When a short run is published, its batches get rows of their own; a longer run gets one row. So a
# commit costs the same for any number of batches.
COPIED_BATCHES = 16
PAGE_ROWS = 256


def place_of(index: int, base_offset: int, entry: BatchEntry, data: bytes) -> IndexEntry:
    """Returns the row of the batch in Raft entry `index`."""
    return IndexEntry(
        index,
        base_offset,
        entry.record_count,
        len(data),
        entry.max_timestamp_us,
        entry.stamp_ms,
        crc32c.crc32c(data[:HEADER_BYTES]),
    )


def carried_place_of(index: int, entry: CarriedEntry, data: bytes) -> IndexEntry:
    """Returns the row of the carried batch in Raft entry `index`."""
    return IndexEntry(
        index,
        entry.base_offset,
        entry.record_count,
        len(data),
        entry.max_timestamp_us,
        entry.append_time_ms,
        crc32c.crc32c(data[:HEADER_BYTES]),
    )


def is_intact(place: IndexEntry, data: bytes) -> bool:
    """Whether the bytes are the batch that the row was made from."""
    if len(data) != place.payload_bytes or len(data) < HEADER_BYTES:
        return False
    if crc32c.crc32c(data[:HEADER_BYTES]) != place.header_crc:
        return False
    return entries.is_intact(data)


class BatchIndex:
    """Index of one partition. Changes go into the caller's write batch."""

    def __init__(self, stored: OffsetIndex) -> None:
        self._stored = stored
        # A run was published of which some rows are gone, or may be: an entry that is still to be
        # applied, after a restart once more, deletes or replaces its batches.
        self.may_lack_rows = False
        # The newest of them: their rows may not be written yet.
        self._runs: deque[RunRow] = deque(maxlen=MAX_APPLY_PER_ADVANCE)
        # Where batches had been carried: end of the rows that were there with the restored state.
        self._rows_end = 0
        self._recent: deque[IndexEntry] = deque(maxlen=RECENT_ENTRIES)
        # (transaction, producer) -> the first rows of its run that were staged since the start
        self._staged: dict[tuple[int, int], list[IndexEntry]] = {}

    def forget_recent(self, *, has_carried: bool) -> None:
        """Clears the rows in memory: the state was replaced and may not have them.

        has_carried: some of its batches were carried, so stored rows may be of later ones.
        """
        self._recent.clear()
        self._staged.clear()
        self._runs.clear()
        self._rows_end = self._stored.end() if has_carried else 0

    def add(self, batch: WriteBatch, place: IndexEntry) -> None:
        if place.base_offset < self._rows_end and self._is_replaced(place):
            self._recent.clear()  # it has no gaps
            return
        self._stored.put(batch, place)
        self._recent.append(place)

    def carry(self, batch: WriteBatch, place: IndexEntry) -> None:
        """Puts a carried batch in place of the rows that lie where it lies."""
        if self._is_replaced(place):
            self._recent.clear()
            return
        self._stored.replace(batch, place)
        self._drop_runs(batch, place.base_offset, place.last_offset)
        recent = list(self._recent)
        if recent and place.last_offset >= recent[0].base_offset:
            below = [one for one in recent if one.last_offset < place.base_offset]
            above = [one for one in recent if one.base_offset > place.last_offset]
            self._recent.clear()
            self._recent.extend((*below, place, *above))

    def cuts_run(self, begin: int, end: int) -> bool:
        """See OffsetIndex.cuts_run."""
        return self._stored.cuts_run(begin, end)

    def long_runs(self, begin: int, end: int) -> list[RunRow]:
        """See OffsetIndex.long_runs."""
        return self._stored.long_runs(begin, end)

    def _is_replaced(self, place: IndexEntry) -> bool:
        """Whether a later entry has replaced the batch: an entry may be applied once more."""
        row = self._stored.find(place.last_offset)
        if row is None or row.base_offset > place.base_offset:
            return False
        return row.raft_index > place.raft_index

    def stage(
        self, batch: WriteBatch, transaction_id: int, producer_id: int, place: IndexEntry
    ) -> None:
        """Adds a staged batch; its offsets count from the run's first record."""
        self._stored.put_staged(batch, transaction_id, producer_id, place)
        staged = self._staged.setdefault((transaction_id, producer_id), [])
        if len(staged) < COPIED_BATCHES:
            staged.append(place)

    def publish(self, batch: WriteBatch, run: RunRow, batches: int) -> None:
        """Gives a run's records their offsets; drops batches staged after them.

        `batches`: the number of staged batches. It decides which rows a run gets, so a replica that
        applies the marker again finds the rows that it wrote before.
        """
        where = (run.transaction_id, run.producer_id)
        staged = self._staged.pop(where, [])
        if batches > COPIED_BATCHES:
            row = self._stored.find(run.last_offset) if run.base_offset < self._rows_end else None
            carried = row is not None and row.base_offset <= run.base_offset
            self._stored.drop_staged(batch, *where, 0 if carried else run.record_count)
            if not carried:
                self._stored.put_run(batch, run)
                self._runs.append(run)
            self._recent.clear()  # it has no gaps
            self.may_lack_rows = True
            return
        if len(staged) < batches:
            # Some were staged before this replica was opened. A missing one either has its row
            # already, or lies below the state this replica was given.
            stored = self._stored.staged(*where)
            staged = sorted({place.last_offset: place for place in (*stored, *staged)}.values())
        self._stored.delete_staged(batch, *where, staged)
        if len(staged) < batches:
            self._recent.clear()
            self.may_lack_rows = True
        for place in staged:
            if place.last_offset < run.record_count:
                base = run.base_offset + place.base_offset
                place = place._replace(base_offset=base, append_time_ms=run.append_time_ms)
                if base < self._rows_end and self._is_replaced(place):
                    self._recent.clear()
                    continue
                self._stored.put(batch, place)
                if len(staged) == batches:
                    self._recent.append(place)

    def drop(self, batch: WriteBatch, transaction_id: int, producer_id: int) -> None:
        """Drops a run that is not published."""
        self._staged.pop((transaction_id, producer_id), None)
        self._stored.drop_staged(batch, transaction_id, producer_id)

    def trim_below(self, batch: WriteBatch, offset: int) -> None:
        """Drops the batches that end below `offset`."""
        self._stored.trim_below(batch, offset)
        self._drop_runs(batch, 0, offset - 1)
        while self._recent and self._recent[0].last_offset < offset:
            self._recent.popleft()

    def _drop_runs(self, batch: WriteBatch, first_offset: int, last_offset: int) -> None:
        """Drops the staged rows of the newest runs that end between these offsets."""
        for run in [run for run in self._runs if first_offset <= run.last_offset <= last_offset]:
            self._stored.drop_staged(batch, run.transaction_id, run.producer_id)
            self._runs.remove(run)

    def clear(self, batch: WriteBatch) -> None:
        self._stored.clear(batch)

    def at(self, offset: int) -> IndexEntry | None:
        """Returns the stored row of the batch that holds `offset`, or of the first one above."""
        return self._stored.find(offset)

    def recent(self, offset: int) -> list[IndexEntry]:
        """Returns rows of the batch with `offset` and of some after it, if they are in memory."""
        recent = self._recent
        if not recent or offset < recent[0].base_offset:
            return []
        first = bisect_left(recent, offset, key=lambda place: place.last_offset)
        return [recent[i] for i in range(first, min(first + PAGE_ROWS, len(recent)))]

    def stored(self, offset: int) -> list[IndexEntry]:
        """Returns the same rows from the disk, in any thread. The newest may not be there yet."""
        return self._stored.scan(offset, limit=PAGE_ROWS)

    def recent_below(self, offset: int, limit: int) -> list[IndexEntry]:
        """Returns rows of up to `limit` batches that begin below `offset`, newest first.

        They come from memory.
        """
        recent = self._recent
        if not recent or offset <= recent[0].base_offset:
            return []
        newest = (place for place in reversed(recent) if place.base_offset < offset)
        return list(islice(newest, limit))

    def stored_below(self, offset: int, limit: int) -> list[IndexEntry]:
        """Returns the same rows from the disk, in any thread."""
        return self._stored.scan_back(offset, limit)

    def all_from(self, offset: int) -> Iterator[IndexEntry]:
        """Yields every stored row from `offset` on, with a bounded number in memory at a time."""
        while places := self._stored.scan(offset, limit=PAGE_ROWS):
            yield from places
            offset = places[-1].last_offset + 1
