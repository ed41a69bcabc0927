"""From offsets to Raft entries: one row for each stored batch of a partition.

    OFFSETS  group | last offset -> raft index, base offset, record count,
                                    payload bytes, max timestamp, append time,
                                    checksum of the batch's header

The key holds the batch's last offset, so the first row at or after an offset
is the batch that contains it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from storage import keys
from storage.errors import CorruptionError
from storage.kv import Family, KeyValue, WriteBatch

SEARCH_ROWS = 512  # looked at in one step of a search
_ROW = struct.Struct(">QQIIqqI")


class IndexEntry(NamedTuple):
    """Where a batch is and what a reader needs to know before reading it.

    raft_index: its Raft entry. base_offset .. last_offset: its records.
    payload_bytes: size of the stored entry. max_timestamp_us: highest client
    timestamp, microseconds since 1970. append_time_ms: the leader's stamp,
    milliseconds since 1970. header_crc: CRC-32C of the entry's header.
    """

    raft_index: int
    base_offset: int
    record_count: int
    payload_bytes: int
    max_timestamp_us: int
    append_time_ms: int
    header_crc: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.record_count - 1


class OffsetIndex:
    """The index of one group. Writes go into the caller's batch."""

    def __init__(self, kv: KeyValue, group: int) -> None:
        self._kv = kv
        self._group = group
        self._end = keys.group_range(group)[1]

    def put(self, batch: WriteBatch, entry: IndexEntry) -> None:
        assert entry.record_count > 0, entry
        key = keys.numbered(self._group, entry.last_offset)
        batch.put(Family.OFFSETS, key, _ROW.pack(*entry))

    def find(self, offset: int) -> IndexEntry | None:
        """The batch that holds `offset`; the first one above where offsets were trimmed."""
        return next(self._rows(offset, limit=1), None)

    def scan(self, offset: int, limit: int) -> list[IndexEntry]:
        """Up to `limit` batches, from the one that `find(offset)` gives."""
        return list(self._rows(offset, limit=limit))

    def scan_back(self, offset: int, limit: int) -> list[IndexEntry]:
        """Up to `limit` batches that end below `offset`, the last one first."""
        begin, end = keys.numbered(self._group, 0), keys.numbered(self._group, max(0, offset))
        return list(self._range(begin, end, limit=limit, reverse=True))

    def first(self) -> IndexEntry | None:
        return next(self._rows(0, limit=1), None)

    def last(self) -> IndexEntry | None:
        return next(self._rows(0, limit=1, reverse=True), None)

    def find_timestamp(self, timestamp_us: int) -> Iterator[IndexEntry | None]:
        """Looks for the first batch whose highest timestamp is at or after `timestamp_us`.

        Client timestamps need not rise, so this reads rows from the start: 60 bytes for
        each batch, with bounded memory. It goes in steps, so that the caller can do
        something else in between: None for each SEARCH_ROWS that were looked at in vain,
        then the batch, if there is one.
        """
        for number, row in enumerate(self._rows(0, limit=None), 1):
            if row.max_timestamp_us >= timestamp_us:
                yield row
                return
            if number % SEARCH_ROWS == 0:
                yield None

    def trim_below(self, batch: WriteBatch, offset: int) -> None:
        """Drops the batches that end below `offset`."""
        self._delete(batch, 0, offset)

    def truncate(self, batch: WriteBatch, offset: int) -> None:
        """Drops the batches that end at or above `offset`."""
        self._delete(batch, offset, keys.MAX_NUMBER + 1)

    def clear(self, batch: WriteBatch) -> None:
        batch.delete_range(Family.OFFSETS, *keys.group_range(self._group))

    def _delete(self, batch: WriteBatch, begin: int, end: int) -> None:
        batch.delete_range(
            Family.OFFSETS, keys.numbered(self._group, begin), keys.numbered(self._group, end)
        )

    def _rows(
        self, offset: int, *, limit: int | None, reverse: bool = False
    ) -> Iterator[IndexEntry]:
        begin = keys.numbered(self._group, max(0, offset))
        return self._range(begin, self._end, limit=limit, reverse=reverse)

    def _range(
        self, begin: bytes, end: bytes, *, limit: int | None, reverse: bool
    ) -> Iterator[IndexEntry]:
        try:
            for key, value in self._kv.scan(
                Family.OFFSETS, begin, end, limit=limit, reverse=reverse
            ):
                yield self._decode(key, value)
        except CorruptionError as error:
            if error.group is not None:
                raise
            raise CorruptionError(f"offset index: {error}", group=self._group) from error

    def _decode(self, key: bytes, value: bytes) -> IndexEntry:
        if (len(key), len(value)) != (keys.NUMBERED_BYTES, _ROW.size):
            raise CorruptionError(
                f"offset index row of {len(value)} bytes, expected {_ROW.size}, "
                f"under a key of {len(key)}",
                group=self._group,
            )
        entry = IndexEntry(*_ROW.unpack(value))
        if entry.last_offset != keys.number_of(key):
            raise CorruptionError(
                f"offset index row {keys.number_of(key)} ends at {entry.last_offset}",
                group=self._group,
                index=entry.raft_index,
            )
        return entry
