"""Records with keys, and a partition's model that knows which of them a cleaning may take.

It keeps all records that were ever stored. A record may become a blank only if a newer one of its
key is stored, or if it is a tombstone whose time, since it was carried first, is over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from cluster.entries import payload_of
from oncelog.wire.batch import decode_payload, encode_payload
from oncelog.wire.compression import decompress
from tests.sim.model import CARRIED, HEADER_BYTES, TOMBSTONE_BYTES, Model, Violation

KEYS, EVERY_TOMBSTONE = 12, 5
DELETE_RETENTION_MS = 3000
_HEADER = struct.Struct("<BBBBIqiIqqqqqqqqq")
_MARK = struct.Struct("<qq")


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    time: int


BLANK = Row(None, None, 0)


def payload(stream: int, first: int, count: int, filler: int) -> bytes:
    """Builds a payload of records first..first+count-1 of a stream; their times name them."""
    numbers = [first + i for i in range(count)]
    keys = [b"%d" % ((7 * number + stream) % KEYS) for number in numbers]
    values = [
        None if number % EVERY_TOMBSTONE == 4 else b"%d/%d" % (stream, number) + b"." * filler
        for number in numbers
    ]
    return encode_payload(values, [stream << 32 | number for number in numbers], keys)


def rows_of(data: bytes) -> list[Row]:
    """Returns the records of an entry."""
    header = _HEADER.unpack_from(data)
    decoded = decode_payload(decompress(header[2], payload_of(data)), header[4])
    columns = (decoded.keys(), decoded.values(), decoded.timestamps_us())
    return list(map(Row._make, zip(*columns, strict=True)))


def blanks_behind(rows: Sequence[Row]) -> int:
    """Counts the blanks behind the last record."""
    return len(list(takewhile(BLANK.__eq__, reversed(rows))))


def marks_of(data: bytes) -> Iterator[tuple[int, int]]:
    count = _HEADER.unpack_from(data)[6]
    for at in range(len(data) - count * TOMBSTONE_BYTES, len(data), TOMBSTONE_BYTES):
        offset, drop_after_ms = _MARK.unpack_from(data, at)
        yield offset, drop_after_ms


class KeyedModel(Model):
    """A compacted partition, naively."""

    def __init__(self, name: str, **facts: Any) -> None:
        super().__init__(name, **facts)
        self.rows: list[Row] = []  # as they are shown, by offset
        self.newest: dict[bytes, int] = {}
        self.marks: dict[int, int] = {}  # offset of a tombstone -> when it may go
        self.blanks = self.dropped = 0  # tombstones: dropped

    @property
    def hole(self) -> int:
        return blanks_behind(self.rows[: self.log_start])

    def _store(self, index: int, base: int, data: bytes) -> None:
        super()._store(index, base, data)
        if data[0] != CARRIED:
            for row in rows_of(data):
                if row.key is not None:
                    self.newest[row.key] = len(self.rows)
                self.rows.append(row)

    def _count_records(self, where: str, data: bytes) -> None:
        times = [row.time for row in rows_of(data)]
        stream, first = times[0] >> 32, times[0] & 0xFFFFFFFF
        newest = self.newest_record.get(stream, -1)
        if first <= newest:
            raise Violation(f"{where}: record {first} of stream {stream} after {newest}: twice")
        self.newest_record[stream] = first + len(times) - 1

    def _check_carried(self, where: str, data: bytes, replaced: list[bytes]) -> None:
        header = _HEADER.unpack_from(data)
        base, stamp_ms = header[8], header[14]
        if header[10] != sum(map(len, replaced)):
            raise Violation(f"{where} frees {header[10]} bytes of {sum(map(len, replaced))}")
        for offset, row in enumerate(rows_of(data), base):
            before = self.rows[offset]
            if row == before:
                continue
            if row != BLANK:
                raise Violation(f"{where} shows {row} at {offset}, where {before} is")
            if before.key is None:
                raise Violation(f"{where} takes a record without a key, {offset}")
            is_over = before.value is None and self.marks.get(offset, stamp_ms) < stamp_ms
            if self.newest[before.key] == offset and not is_over:
                raise Violation(f"{where} takes {before}, the newest record of its key")
            self.dropped += self.newest[before.key] == offset
            self.blanks += 1
            self.rows[offset] = BLANK
        for offset, drop_after_ms in marks_of(data):
            self._check_mark(f"{where}: tombstone {offset}", offset, drop_after_ms, stamp_ms)

    def _check_mark(self, where: str, offset: int, drop_after_ms: int, stamp_ms: int) -> None:
        row = self.rows[offset]
        if row.key is None or row.value is not None:
            raise Violation(f"{where} is {row}")
        wanted = self.marks.setdefault(offset, stamp_ms + DELETE_RETENTION_MS)
        if drop_after_ms != wanted:
            raise Violation(f"{where} goes after {drop_after_ms}, not {wanted}")
        older = [at for at in range(self.log_start, offset) if self.rows[at].key == row.key]
        if older:
            raise Violation(f"{where} has a time, and older records of its key are at {older}")


assert _HEADER.size == HEADER_BYTES
