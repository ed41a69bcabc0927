"""Where a partition's batches are: the stored index with its newest rows in memory.

    apply --add, trim_below--> BatchIndex <--covering, below-- read, retention, lookup
                                    |
                              storage.OffsetIndex

A row holds the checksum of its batch's header, and that header the payload's. So
`is_intact` can tell whether bytes from the disk are the batch that was stored there,
and a reader needs no other checksum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice

import crc32c

from cluster.entries import HEADER_BYTES, BatchEntry, payload_of, unpack_batch
from storage.kv import WriteBatch
from storage.offset_index import IndexEntry, OffsetIndex

RECENT_ENTRIES = 4096  # rows in memory
PAGE_ROWS = 256


def place_of(index: int, base_offset: int, entry: BatchEntry, data: bytes) -> IndexEntry:
    """The row of the batch that Raft entry `index` holds."""
    return IndexEntry(
        index,
        base_offset,
        entry.record_count,
        len(data),
        entry.max_timestamp_us,
        entry.stamp_ms,
        crc32c.crc32c(data[:HEADER_BYTES]),
    )


def is_intact(place: IndexEntry, data: bytes) -> bool:
    """Whether the bytes are those of the batch that the row was made of."""
    if len(data) != place.payload_bytes or len(data) < HEADER_BYTES:
        return False
    if crc32c.crc32c(data[:HEADER_BYTES]) != place.header_crc:
        return False
    return crc32c.crc32c(payload_of(data)) == unpack_batch(data).crc


class BatchIndex:
    """The index of one partition. Changes go into the caller's write batch."""

    def __init__(self, stored: OffsetIndex) -> None:
        self._stored = stored
        self._recent: deque[IndexEntry] = deque(maxlen=RECENT_ENTRIES)

    def forget_recent(self) -> None:
        """The state begins anew: what is in memory may not be part of it."""
        self._recent.clear()

    def add(self, batch: WriteBatch, place: IndexEntry) -> None:
        self._stored.put(batch, place)
        self._recent.append(place)

    def trim_below(self, batch: WriteBatch, offset: int) -> None:
        """Drops the batches that end below `offset`."""
        self._stored.trim_below(batch, offset)
        while self._recent and self._recent[0].last_offset < offset:
            self._recent.popleft()

    def clear(self, batch: WriteBatch) -> None:
        self._stored.clear(batch)

    def first(self) -> IndexEntry | None:
        return self._stored.first()

    def covering(self, offset: int) -> list[IndexEntry]:
        """Rows of the batch that holds `offset` and of some that follow."""
        recent = self._recent
        if not recent or offset < recent[0].base_offset:
            return self._stored.scan(offset, limit=PAGE_ROWS)
        first = bisect_left(recent, offset, key=lambda place: place.last_offset)
        return [recent[i] for i in range(first, min(first + PAGE_ROWS, len(recent)))]

    def below(self, offset: int, limit: int) -> list[IndexEntry]:
        """Rows of at most `limit` batches that begin below `offset`, newest first."""
        recent = self._recent
        if recent and offset > recent[0].base_offset:
            newest = (place for place in reversed(recent) if place.base_offset < offset)
            return list(islice(newest, limit))
        return self._stored.scan_back(offset, limit)

    def all_from(self, offset: int) -> Iterator[IndexEntry]:
        """Every stored row from `offset` on, a bounded number in memory at a time."""
        while places := self._stored.scan(offset, limit=PAGE_ROWS):
            yield from places
            offset = places[-1].last_offset + 1

    def find_timestamp(self, timestamp_us: int) -> Iterator[IndexEntry | None]:
        """See OffsetIndex.find_timestamp."""
        return self._stored.find_timestamp(timestamp_us)
