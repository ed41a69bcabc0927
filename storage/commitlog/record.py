"""One record of the commit log: a batch of the store as bytes. Pure.

    head   crc32c u32 | body bytes u32 | values bytes u32 | number u64
    body   for each operation, big endian
             put           kind u8 | family u8 | key bytes u16 | value bytes u32 | crc32c u32 | key
             delete        kind u8 | family u8 | key bytes u16 | key
             delete range  kind u8 | family u8 | begin bytes u16 | end bytes u16 | begin | end
    values of all puts, one after the other

The head's checksum covers the rest of the head and the body, and so the checksums of the
values; a value can be read and checked alone. Numbers rise by one from record to record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from storage.errors import CorruptionError
from storage.kv import Family

_CRC = struct.Struct(">I")
_SIZES = struct.Struct(">IIQ")
HEAD_BYTES = _CRC.size + _SIZES.size

_PUT = struct.Struct(">BBHII")
_DELETE = struct.Struct(">BBH")
_RANGE = struct.Struct(">BBHH")
_KIND_PUT, _KIND_DELETE, _KIND_RANGE = 1, 2, 3

_NUMBER_OF = {Family.ENTRIES: 0, Family.STATE: 1, Family.OFFSETS: 2, Family.CHECKPOINTS: 3}
_FAMILY_OF = {number: family for family, number in _NUMBER_OF.items()}

MAX_PART_BYTES = 2**32 - 1

#: family, key or begin, value or end or None, is it a range: as in `Batch.operations`
Change = tuple[Family, bytes, bytes | None, bool]


class Head(NamedTuple):
    """The sizes that a record says it has, not checked yet."""

    crc: int
    body_bytes: int
    values_bytes: int
    number: int

    @property
    def record_bytes(self) -> int:
        return HEAD_BYTES + self.body_bytes + self.values_bytes


class Operation(NamedTuple):
    """One operation of a record that was read.

    value_at, value_bytes, value_crc: where a put's value begins, counted from the record's
    first byte, its size and CRC-32C; value_at is 0 for deletes. end: of a deleted range.
    """

    family: Family
    key: bytes
    end: bytes | None
    value_at: int
    value_bytes: int
    value_crc: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record ready to be written.

    head: head and body. values: of all puts, referenced, not copied. places: for each of
    them (distance from the record's first byte, size, CRC-32C).
    """

    head: bytes
    values: list[bytes]
    places: list[tuple[int, int, int]]
    record_bytes: int


def encode(changes: Sequence[Change], number: int) -> Encoded:
    """The record of these changes. Raises ValueError when it is larger than 4 GiB."""
    assert changes, "an empty batch is not written"
    parts: list[bytes] = []
    values: list[bytes] = []
    crcs: list[int] = []
    for family, key, value, is_range in changes:
        if value is None:
            parts.append(_DELETE.pack(_KIND_DELETE, _NUMBER_OF[family], len(key)))
        elif is_range:
            parts.append(_RANGE.pack(_KIND_RANGE, _NUMBER_OF[family], len(key), len(value)))
            key += value
        else:
            crc = crc32c(value)
            values.append(value)
            crcs.append(crc)
            parts.append(_PUT.pack(_KIND_PUT, _NUMBER_OF[family], len(key), len(value), crc))
        parts.append(key)
    body = b"".join(parts)
    at = HEAD_BYTES + len(body)
    places = []
    for value, crc in zip(values, crcs, strict=True):
        places.append((at, len(value), crc))
        at += len(value)
    values_bytes = at - HEAD_BYTES - len(body)
    if max(len(body), values_bytes) > MAX_PART_BYTES:
        raise ValueError(f"a batch of {at} bytes, at most {MAX_PART_BYTES} are allowed")
    sizes = _SIZES.pack(len(body), values_bytes, number)
    head = _CRC.pack(crc32c(body, crc32c(sizes))) + sizes + body
    return Encoded(head, values, places, at)


def parse_head(content: bytes) -> Head:
    """Of the first HEAD_BYTES of a record."""
    assert len(content) == HEAD_BYTES, len(content)
    return Head(*_CRC.unpack_from(content), *_SIZES.unpack_from(content, _CRC.size))


def is_whole(head: Head, body: bytes) -> bool:
    """Is this head the one that was written with this body?"""
    sizes = _SIZES.pack(head.body_bytes, head.values_bytes, head.number)
    return len(body) == head.body_bytes and crc32c(body, crc32c(sizes)) == head.crc


def decode(head: Head, body: bytes) -> Iterator[Operation]:
    """The operations of a body that `is_whole`. Raises CorruptionError for one it cannot be."""
    at, value_at = 0, HEAD_BYTES + len(body)
    try:
        while at < len(body):
            kind, family = body[at], _FAMILY_OF[body[at + 1]]
            if kind == _KIND_PUT:
                _, _, key_bytes, size, crc = _PUT.unpack_from(body, at)
                at += _PUT.size + key_bytes
                yield Operation(family, body[at - key_bytes : at], None, value_at, size, crc)
                value_at += size
            elif kind == _KIND_DELETE:
                key_bytes = _DELETE.unpack_from(body, at)[2]
                at += _DELETE.size + key_bytes
                yield Operation(family, body[at - key_bytes : at], None, 0, 0, 0)
            elif kind == _KIND_RANGE:
                _, _, key_bytes, end_bytes = _RANGE.unpack_from(body, at)
                at += _RANGE.size + key_bytes + end_bytes
                begin = body[at - end_bytes - key_bytes : at - end_bytes]
                yield Operation(family, begin, body[at - end_bytes : at], 0, 0, 0)
            else:
                raise CorruptionError(f"operation of kind {kind} in record {head.number}")
    except (struct.error, LookupError) as error:
        raise CorruptionError(f"record {head.number} is not one of ours: {error!r}") from error
    if value_at != head.record_bytes:
        raise CorruptionError(f"record {head.number}: its values have another size than it says")
