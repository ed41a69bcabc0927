"""Index from offsets to Raft entries: one row for each stored batch of a partition.

    OFFSETS  group | last offset -> raft index, base offset, record count,
                                    payload bytes, max timestamp, append time,
                                    checksum of the batch's header

The key holds the batch's last offset, so the first row at or after an offset
is the batch that contains it.

Staged batches of a transaction have rows of the same form under keys of their own, with offsets
that count from their run's first record. A published run of any length gets one row among the
offsets, and its staged rows stay as they are:

    OFFSETS  group | last offset -> base offset, record count, transaction, producer,
                                    append time

Readers of rows see batches only: a run's row is expanded to its batches. It is listed once more
(transaction 0), so that a run's rows are dropped when the log's start has passed it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from storage import keys
from storage.errors import CorruptionError
from storage.kv import Family, KeyValue, WriteBatch

_ROW = struct.Struct(">QQIIqqI")
_RUN = struct.Struct(">QQQQq")
assert _RUN.size != _ROW.size, "the length tells which one it is"


class IndexEntry(NamedTuple):
    """Place of a batch, with the facts that a reader needs before reading it.

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


class RunRow(NamedTuple):
    """A published run: its staged batches, from `base_offset` on."""

    base_offset: int
    record_count: int
    transaction_id: int
    producer_id: int
    append_time_ms: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.record_count - 1


class OffsetIndex:
    """Index of one group. Writes go into the caller's batch."""

    def __init__(self, kv: KeyValue, group: int) -> None:
        self._kv = kv
        self._group = group
        self._end = keys.group_range(group)[1]

    def put(self, batch: WriteBatch, entry: IndexEntry) -> None:
        assert entry.record_count > 0, entry
        key = keys.numbered(self._group, entry.last_offset)
        batch.put(Family.OFFSETS, key, _ROW.pack(*entry))

    def find(self, offset: int) -> IndexEntry | None:
        """Returns the batch that holds `offset`, or the first one above it after a trim."""
        return next(self._rows(offset, limit=1), None)

    def scan(self, offset: int, limit: int) -> list[IndexEntry]:
        """Returns up to `limit` batches, from `find(offset)` on."""
        return list(self._rows(offset, limit=limit))

    def scan_back(self, offset: int, limit: int) -> list[IndexEntry]:
        """Returns up to `limit` batches that begin below `offset`, the last one first."""
        found: list[IndexEntry] = []
        holder = next(self._read(max(0, offset), limit=1), None)
        if isinstance(holder, IndexEntry) and holder.base_offset < offset:
            found.append(holder)
        elif isinstance(holder, RunRow) and holder.base_offset < offset:
            found += islice(self._batches_of(holder, 0, offset, reverse=True), limit)
        for row in self._read(0, offset, reverse=True):
            if len(found) >= limit:
                break
            if isinstance(row, RunRow):
                found += islice(self._batches_of(row, reverse=True), limit - len(found))
            else:
                found.append(row)
        return found

    def end(self) -> int:
        """Returns the offset after the last row."""
        row = next(self._read(0, limit=1, reverse=True), None)
        return 0 if row is None else row.last_offset + 1

    def last(self) -> IndexEntry | None:
        return next(self._rows(0, limit=1, reverse=True), None)

    # -- runs -------------------------------------------------------------------------

    def put_staged(
        self, batch: WriteBatch, transaction_id: int, producer_id: int, entry: IndexEntry
    ) -> None:
        """Puts a staged batch; its offsets count from the run's first record."""
        assert entry.record_count > 0, entry
        key = keys.staged(self._group, transaction_id, producer_id, entry.last_offset)
        batch.put(Family.OFFSETS, key, _ROW.pack(*entry))

    def put_run(self, batch: WriteBatch, run: RunRow) -> None:
        """Publishes a run with its staged rows as they are."""
        assert run.record_count > 0, run
        row = _RUN.pack(*run)
        batch.put(Family.OFFSETS, keys.numbered(self._group, run.last_offset), row)
        batch.put(Family.OFFSETS, keys.staged(self._group, number=run.last_offset), row)

    def staged(self, transaction_id: int, producer_id: int) -> list[IndexEntry]:
        """Returns all batches of a run, which is short."""
        begin = keys.staged(self._group, transaction_id, producer_id)
        end = keys.staged(self._group, transaction_id, producer_id, keys.MAX_NUMBER + 1)
        return [self._decode(*row) for row in self._kv.scan(Family.OFFSETS, begin, end)]

    def delete_staged(
        self, batch: WriteBatch, transaction_id: int, producer_id: int, entries: list[IndexEntry]
    ) -> None:
        """Drops some batches of a run, one by one."""
        for entry in entries:
            key = keys.staged(self._group, transaction_id, producer_id, entry.last_offset)
            batch.delete(Family.OFFSETS, key)

    def drop_staged(
        self, batch: WriteBatch, transaction_id: int, producer_id: int, offset: int = 0
    ) -> None:
        """Drops the batches of a run that end at or above `offset` in it."""
        begin = keys.staged(self._group, transaction_id, producer_id, offset)
        end = keys.staged(self._group, transaction_id, producer_id, keys.MAX_NUMBER + 1)
        batch.delete_range(Family.OFFSETS, begin, end)

    def _batches_of(
        self, run: RunRow, begin: int = 0, end: int | None = None, *, reverse: bool = False
    ) -> Iterator[IndexEntry]:
        """Yields its batches from the one that holds `begin`, up to end offset `end`."""
        base, where = run.base_offset, (run.transaction_id, run.producer_id)
        after = run.last_offset + 1 if end is None else min(end, run.last_offset + 1)
        low = keys.staged(self._group, *where, max(0, begin - base))
        high = keys.staged(self._group, *where, after - base)
        for key, value in self._kv.scan(Family.OFFSETS, low, high, reverse=reverse):
            entry = self._decode(key, value)
            yield entry._replace(
                base_offset=base + entry.base_offset, append_time_ms=run.append_time_ms
            )

    # -- dropping ---------------------------------------------------------------------

    def trim_below(self, batch: WriteBatch, offset: int) -> None:
        """Drops the batches that end below `offset`."""
        self._drop_runs(batch, 0, offset)
        self._delete(batch, 0, offset)

    def _drop_runs(self, batch: WriteBatch, begin_offset: int, end_offset: int) -> None:
        """Drops the staged rows of published runs that end between these offsets."""
        begin = keys.staged(self._group, number=begin_offset)
        end = keys.staged(self._group, number=end_offset)
        for _, value in list(self._kv.scan(Family.OFFSETS, begin, end)):
            run = RunRow(*_RUN.unpack(value))
            self.drop_staged(batch, run.transaction_id, run.producer_id)
        batch.delete_range(Family.OFFSETS, begin, end)

    def cuts_run(self, begin: int, end: int) -> bool:
        """Tells whether a run with one row has batches both in begin..end (exclusive) and not."""
        runs = self.long_runs(begin, end)
        return any(run.base_offset < begin or run.last_offset >= end for run in runs)

    def long_runs(self, begin: int, end: int) -> list[RunRow]:
        """Returns the runs with one row that have records in begin..end (exclusive)."""
        low = keys.staged(self._group, number=begin)
        high = keys.staged(self._group, number=keys.MAX_NUMBER + 1)
        rows = self._kv.scan(Family.OFFSETS, low, high)
        runs = (RunRow(*_RUN.unpack(value)) for _, value in rows)
        return list(takewhile(lambda run: run.base_offset < end, runs))

    def replace(self, batch: WriteBatch, entry: IndexEntry) -> None:
        """Puts a batch in place of all batches and runs that lie where it lies."""
        self._drop_runs(batch, entry.base_offset, entry.last_offset + 1)
        self._delete(batch, entry.base_offset, entry.last_offset + 1)
        self.put(batch, entry)

    def truncate(self, batch: WriteBatch, offset: int) -> None:
        """Drops the batches that end at or above `offset`."""
        self._delete(batch, offset, keys.MAX_NUMBER + 1)

    def clear(self, batch: WriteBatch) -> None:
        batch.delete_range(Family.OFFSETS, *keys.group_range(self._group))
        batch.delete_range(Family.OFFSETS, *keys.staged_range(self._group))

    def _delete(self, batch: WriteBatch, begin: int, end: int) -> None:
        batch.delete_range(
            Family.OFFSETS, keys.numbered(self._group, begin), keys.numbered(self._group, end)
        )

    # -- rows -------------------------------------------------------------------------

    def _rows(self, offset: int, *, limit: int, reverse: bool = False) -> Iterator[IndexEntry]:
        """Yields batches from the one that holds `offset` on, or from the last one backwards."""
        return islice(self._all_batches(max(0, offset), limit, reverse), limit)

    def _all_batches(self, offset: int, limit: int, reverse: bool) -> Iterator[IndexEntry]:
        after = offset
        while True:
            count = 0
            for row in self._read(offset, limit=None if reverse else limit, reverse=reverse):
                if isinstance(row, RunRow):
                    yield from self._batches_of(row, offset, reverse=reverse)
                else:
                    yield row
                after, count = row.last_offset + 1, count + 1
            if reverse or count < limit:
                return
            # Runs without batches: they begin below the state this replica has.
            offset = after

    def _read(
        self,
        offset: int,
        end: int | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[IndexEntry | RunRow]:
        low = keys.numbered(self._group, offset)
        high = self._end if end is None else keys.numbered(self._group, max(0, end))
        try:
            for key, value in self._kv.scan(
                Family.OFFSETS, low, high, limit=limit, reverse=reverse
            ):
                if len(value) == _RUN.size:
                    yield self._decode_run(key, value)
                else:
                    yield self._decode(key, value)
        except CorruptionError as error:
            if error.group is not None:
                raise
            raise CorruptionError(f"offset index: {error}", group=self._group) from error

    def _decode_run(self, key: bytes, value: bytes) -> RunRow:
        run = RunRow(*_RUN.unpack(value))
        if run.last_offset != keys.number_of(key):
            text = f"offset index row {keys.number_of(key)} of a run ends at {run.last_offset}"
            raise CorruptionError(text, group=self._group)
        return run

    def _decode(self, key: bytes, value: bytes) -> IndexEntry:
        if len(value) != _ROW.size or len(key) not in (keys.NUMBERED_BYTES, keys.STAGED_BYTES):
            raise CorruptionError(
                f"offset index row of {len(value)} bytes, expected {_ROW.size}, "
                f"under a key of {len(key)}",
                group=self._group,
            )
        entry = IndexEntry(*_ROW.unpack(value))
        number = keys.number_of(key)
        if entry.last_offset != number:
            raise CorruptionError(
                f"offset index row {number} ends at {entry.last_offset}",
                group=self._group,
                index=entry.raft_index,
            )
        return entry
