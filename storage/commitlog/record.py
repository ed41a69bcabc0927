"""Record of the commit log: a batch of the store as bytes. Pure.

    head   salt u64 | crc32c u32 | body bytes u32 | values bytes u32 | number u64 | synced u64
    body   for each operation, big endian
             put           kind u8 | family u8 | key bytes u16 | value bytes u32 | crc32c u32 | key
             delete        kind u8 | family u8 | key bytes u16 | key
             delete range  kind u8 | family u8 | begin bytes u16 | end bytes u16 | begin | end
    values of all puts, one after the other

The head's checksum covers the rest of the head and the body, and so the checksums of the values; a
value can be read and checked alone. Numbers rise by one from record to record.

`synced` is a claim: all records up to that number were durable when this one was written. So a
whole record proves that a damaged record before it was not just torn. The salt is the segment's,
drawn at random: clients cannot write values that look like a record. The search for records behind
a damaged one looks for the salt.

In segments of format 3 a head is: crc32c u32 | body bytes u32 | values bytes u32 | number u64.
Their salt is 0 here, and they claim nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from storage.errors import CorruptionError
from storage.kv import Family

_HEAD = struct.Struct(">QIIIQQ")
_COVERED = struct.Struct(">IIQQ")
_OLD_HEAD = struct.Struct(">IIIQ")
_OLD_COVERED = struct.Struct(">IIQ")
HEAD_BYTES = _HEAD.size
SALT = struct.Struct(">Q")

_PUT = struct.Struct(">BBHII")
_DELETE = struct.Struct(">BBH")
_RANGE = struct.Struct(">BBHH")
_KIND_PUT, _KIND_DELETE, _KIND_RANGE = 1, 2, 3

_NUMBER_OF = {Family.ENTRIES: 0, Family.STATE: 1, Family.OFFSETS: 2, Family.CHECKPOINTS: 3}
_FAMILY_OF = {number: family for family, number in _NUMBER_OF.items()}

MAX_PART_BYTES = 2**32 - 1
_NONE_KNOWN: Mapping[int, int] = {}

#: family, key or begin, value or end or None, is it a range: as in `Batch.operations`
Change = tuple[Family, bytes, bytes | None, bool]


class RecordHead(NamedTuple):
    """Sizes claimed by a record, not checked yet. salt: 0 in format 3."""

    salt: int
    crc: int
    body_bytes: int
    values_bytes: int
    number: int
    synced: int

    @property
    def head_bytes(self) -> int:
        return head_bytes(self.salt)

    @property
    def record_bytes(self) -> int:
        return self.head_bytes + self.body_bytes + self.values_bytes


class Operation(NamedTuple):
    """Operation of a record that was read.

    value_at, value_bytes, value_crc: place of a put's value, counted from the record's first byte,
    its size and CRC-32C; value_at is 0 for deletes. end: of a deleted range.
    """

    family: Family
    key: bytes
    end: bytes | None
    value_at: int
    value_bytes: int
    value_crc: int


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """Record ready to be written, except for its head.

    values: of all puts, referenced, not copied. places: for each of them (distance from the
    record's first byte, size, CRC-32C).
    """

    body: bytes
    values: list[bytes]
    places: list[tuple[int, int, int]]
    record_bytes: int

    def head(self, salt: int, number: int, synced: int) -> bytes:
        """Returns the record's head; salt: of its segment. synced: number known to be durable."""
        body_bytes = len(self.body)
        values_bytes = self.record_bytes - HEAD_BYTES - body_bytes
        covered = _COVERED.pack(body_bytes, values_bytes, number, synced)
        crc = crc32c(self.body, crc32c(covered))
        return _HEAD.pack(salt, crc, body_bytes, values_bytes, number, synced)


def encode(changes: Sequence[Change], checksums: Mapping[int, int] = _NONE_KNOWN) -> EncodedRecord:
    """Encodes the record of these changes. Raises ValueError when it is larger than 4 GiB.

    checksums: CRC-32C of values by the number of their change, if made before. They are stored
    unchanged: a value that was damaged since then is found when it is read.
    """
    assert changes, "an empty batch is not written"
    parts: list[bytes] = []
    values: list[bytes] = []
    crcs: list[int] = []
    for at, (family, key, value, is_range) in enumerate(changes):
        if value is None:
            parts.append(_DELETE.pack(_KIND_DELETE, _NUMBER_OF[family], len(key)))
        elif is_range:
            parts.append(_RANGE.pack(_KIND_RANGE, _NUMBER_OF[family], len(key), len(value)))
            key += value
        else:
            known = checksums.get(at)
            crc = crc32c(value) if known is None else known
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
    return EncodedRecord(body, values, places, at)


def head_bytes(salt: int) -> int:
    """Returns the size of each record's head in a segment with this salt."""
    return HEAD_BYTES if salt else _OLD_HEAD.size


def parse_head(content: bytes, salt: int) -> RecordHead | None:
    """Parses the first `head_bytes(salt)` bytes of a record in a segment with this salt.

    None: it does not begin with the salt.
    """
    if salt:
        head = RecordHead(*_HEAD.unpack(content))
        return head if head.salt == salt else None
    crc, body_bytes, values_bytes, number = _OLD_HEAD.unpack(content)
    return RecordHead(0, crc, body_bytes, values_bytes, number, 0)


def is_whole(head: RecordHead, body: bytes) -> bool:
    """Whether this head was written with this body."""
    if head.salt:
        covered = _COVERED.pack(head.body_bytes, head.values_bytes, head.number, head.synced)
    else:
        covered = _OLD_COVERED.pack(head.body_bytes, head.values_bytes, head.number)
    return len(body) == head.body_bytes and crc32c(body, crc32c(covered)) == head.crc


def decode(head: RecordHead, body: bytes) -> Iterator[Operation]:
    """Decodes a body that `is_whole`. Raises CorruptionError if it is malformed."""
    at, value_at = 0, head.head_bytes + len(body)
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
