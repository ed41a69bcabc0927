"""Payload of a batch: records as columns, laid out as in Arrow.

Place in the flow: a producer's closed batch -> `encode_payload` -> compression -> the wire; a
stored batch -> decompression -> `decode_payload` -> records, or, through `wire/arrow.py`, an Arrow
batch without a copy. Nodes never call either: to them a payload is opaque. docs/protocol.md
describes the layout for authors of other clients, and tests/vectors holds payloads that each of
them must reproduce. Needs only the standard library.

All integers little-endian. A preamble of 32 bytes:

    0  "OLB1"                  16  u32 length of values
    4  u32 flags               20  u32 length of keys
    8  u32 record count n > 0  24  u32 length of header keys
    12 u32 header count h      28  u32 length of header values

then these buffers, each padded with zeros to a multiple of 8 bytes:

    [value validity]  value offsets i32[n+1]  values
    if keys:    [key validity]  key offsets i32[n+1]  keys
    timestamps i64[n], microseconds since the Unix epoch
    if headers: header offsets i32[n+1]  header-key offsets i32[h+1]  header keys (UTF-8)
                [header-value validity]  header-value offsets i32[h+1]  header values

A validity buffer is one bit for each row, least significant first, 1 = present; it exists only if
its flag is set. Without the flag for keys all keys are null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, repeat
from typing import Final

from oncelog.errors import InvalidBatchError
from oncelog.types import Header, Record

MAGIC: Final = b"OLB1"
PREAMBLE: Final = struct.Struct("<4s7I")
VALUE_VALIDITY: Final = 1
KEYS: Final = 2
KEY_VALIDITY: Final = 4
HEADERS: Final = 8
HEADER_VALUE_VALIDITY: Final = 16
_ALL_FLAGS: Final = 31

# Uncompressed. Also the limit of decompression.
MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
# Bytes of one record in a payload beside its own, at most, headers left out: 4 + 4 of offsets, 8 of
# timestamp, validity bits, and 4 of header offsets.
RECORD_OVERHEAD: Final = 21
HEADER_OVERHEAD: Final = 9
# Preamble, one more offset in each of five offset buffers, and all padding.
BATCH_OVERHEAD: Final = 32 + 5 * 4 + 11 * 7

_PAD: Final = (b"", bytes(7), bytes(6), bytes(5), bytes(4), bytes(3), bytes(2), bytes(1))


def padded(size: int) -> int:
    return (size + 7) & ~7


@dataclass(frozen=True, slots=True)
class Section:
    """Place of a buffer in the payload."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of all buffers. They follow from the preamble alone."""

    flags: int
    record_count: int
    header_count: int
    value_validity: Section | None
    value_offsets: Section
    values: Section
    key_validity: Section | None
    key_offsets: Section | None
    keys: Section | None
    timestamps: Section
    header_offsets: Section | None
    header_key_offsets: Section | None
    header_keys: Section | None
    header_value_validity: Section | None
    header_value_offsets: Section | None
    header_values: Section | None
    total: int


def read_layout(payload: bytes | memoryview) -> Layout:
    """Check the preamble and that the buffers it names are exactly the payload."""
    size = len(payload)
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidBatchError(f"payload of {size} bytes is over the limit {MAX_PAYLOAD_BYTES}")
    if size < PREAMBLE.size:
        raise InvalidBatchError(f"payload of {size} bytes is shorter than its preamble of 32")
    magic, flags, n, h, values, keys, header_keys, header_values = PREAMBLE.unpack_from(payload)
    if magic != MAGIC:
        raise InvalidBatchError(f"payload begins with {magic!r}, not {MAGIC!r}")
    if flags & ~_ALL_FLAGS:
        raise InvalidBatchError(f"unknown flags {flags:#x}")
    if n == 0:
        raise InvalidBatchError("payload holds no records")
    if not flags & KEYS and (keys or flags & KEY_VALIDITY):
        raise InvalidBatchError("keys without the flag for keys")
    if not flags & HEADERS and (h or header_keys or header_values or flags & 16):
        raise InvalidBatchError("headers without the flag for headers")

    position = PREAMBLE.size

    def take(length: int) -> Section:
        nonlocal position
        section = Section(position, length)
        position += padded(length)
        return section

    bits = (n + 7) // 8
    value_validity = take(bits) if flags & VALUE_VALIDITY else None
    value_offsets, value_data = take(4 * (n + 1)), take(values)
    key_validity = take(bits) if flags & KEY_VALIDITY else None
    key_offsets = take(4 * (n + 1)) if flags & KEYS else None
    key_data = take(keys) if flags & KEYS else None
    timestamps = take(8 * n)
    header_offsets = header_key_offsets = header_key_data = None
    header_value_validity = header_value_offsets = header_value_data = None
    if flags & HEADERS:
        header_offsets, header_key_offsets = take(4 * (n + 1)), take(4 * (h + 1))
        header_key_data = take(header_keys)
        if flags & HEADER_VALUE_VALIDITY:
            header_value_validity = take((h + 7) // 8)
        header_value_offsets, header_value_data = take(4 * (h + 1)), take(header_values)
    if position != size:
        raise InvalidBatchError(f"payload has {size} bytes, its preamble asks for {position}")
    return Layout(
        flags, n, h,
        value_validity, value_offsets, value_data,
        key_validity, key_offsets, key_data,
        timestamps,
        header_offsets, header_key_offsets, header_key_data,
        header_value_validity, header_value_offsets, header_value_data,
        position,
    )  # fmt: skip


# --- encoding ------------------------------------------------------------------------


def encode_payload(
    values: Sequence[bytes | None],
    timestamps_us: Sequence[int] | bytes,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[Header]] | None = None,
) -> bytes:
    """Return the payload of these records; all columns must have the same length.

    `timestamps_us` may be the column's own bytes: int64, little-endian. Raises
    InvalidBatchError if there is no record, or the payload would be too large.
    """
    n = len(values)
    if n == 0:
        raise InvalidBatchError("a batch needs at least one record")
    stamps = timestamps_us if isinstance(timestamps_us, bytes) else _int64(timestamps_us)
    columns = (("timestamps_us", len(stamps) // 8), ("keys", keys), ("headers", headers))
    for name, column in columns:
        count = column if isinstance(column, int) else n if column is None else len(column)
        if count != n:
            raise InvalidBatchError(f"{count} {name} for {n} values")
    flags = h = key_size = header_key_size = header_value_size = 0
    parts: list[bytes] = [b""]  # the preamble, once the lengths are known
    nulls, value_size = _put_binary(parts, values)
    flags |= VALUE_VALIDITY if nulls else 0
    if keys is not None and keys.count(None) != n:
        nulls, key_size = _put_binary(parts, keys)
        flags |= KEYS | (KEY_VALIDITY if nulls else 0)
    _put(parts, stamps)
    if headers is not None and any(headers):
        flags |= HEADERS
        _put(parts, _offset_bytes(n, map(len, headers)))
        pairs = list(chain.from_iterable(headers))
        h = len(pairs)
        _, header_key_size = _put_binary(parts, [key.encode() for key, _ in pairs])
        nulls, header_value_size = _put_binary(parts, [value for _, value in pairs])
        flags |= HEADER_VALUE_VALIDITY if nulls else 0
    parts[0] = PREAMBLE.pack(
        MAGIC, flags, n, h, value_size, key_size, header_key_size, header_value_size
    )
    # The one copy of the records' bytes.
    payload = b"".join(parts)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidBatchError(
            f"payload of {len(payload)} bytes is over the limit {MAX_PAYLOAD_BYTES}"
        )
    return payload


def _int64(numbers: Sequence[int]) -> bytes:
    try:
        return struct.pack(f"<{len(numbers)}q", *numbers)
    except struct.error as error:
        raise InvalidBatchError("a timestamp does not fit into int64") from error


def _put(parts: list[bytes], data: bytes) -> None:
    parts.append(data)
    parts.append(_PAD[len(data) & 7])


def _put_binary(parts: list[bytes], column: Sequence[bytes | None]) -> tuple[bool, int]:
    """Append [validity,] offsets and data; return (has nulls, length of the data)."""
    nulls = False
    try:
        # Without nulls, the common case, no Python code here runs per record.
        offsets = _offset_bytes(len(column), map(len, column))  # type: ignore[arg-type]
    except TypeError:
        nulls = True
        bits = "".join("0" if item is None else "1" for item in reversed(column))
        _put(parts, int(bits, 2).to_bytes((len(column) + 7) // 8, "little"))
        column = [b"" if item is None else item for item in column]
        offsets = _offset_bytes(len(column), map(len, column))  # type: ignore[arg-type]
    size = int.from_bytes(offsets[-4:], "little")
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidBatchError(f"{size} bytes are over the limit {MAX_PAYLOAD_BYTES}")
    _put(parts, offsets)
    parts.extend(column)  # type: ignore[arg-type]
    parts.append(_PAD[size & 7])
    return nulls, size


def _offset_bytes(count: int, lengths: Iterable[int]) -> bytes:
    try:
        return struct.pack(f"<{count + 1}i", *accumulate(lengths, initial=0))
    except struct.error as error:
        raise InvalidBatchError(f"2 GiB or more, the limit is {MAX_PAYLOAD_BYTES}") from error


# --- decoding ------------------------------------------------------------------------


class DecodedPayload:
    """Records of one payload, column by column, each decoded and checked when used.

    Every accessor raises InvalidBatchError if its data is damaged, so nothing unchecked is ever
    returned; `check()` looks at all columns at once.
    """

    __slots__ = ("_view", "carried", "layout")

    def __init__(self, payload: bytes | memoryview, carried: bool = False) -> None:
        """`carried`: compaction made the batch, so records without key and value are blanks."""
        self.layout = read_layout(payload)
        self.carried = carried
        self._view = memoryview(payload)

    def __len__(self) -> int:
        return self.layout.record_count

    @property
    def buffer(self) -> memoryview:
        return self._view

    def values(self) -> list[bytes | None]:
        lay = self.layout
        return self._binary(
            "value", lay.record_count, lay.value_validity, lay.value_offsets, lay.values
        )

    def keys(self) -> list[bytes | None]:
        lay = self.layout
        if lay.key_offsets is None or lay.keys is None:
            return [None] * lay.record_count
        return self._binary("key", lay.record_count, lay.key_validity, lay.key_offsets, lay.keys)

    def live(self) -> Sequence[int]:
        """Return the numbers of the records that compaction has not removed."""
        if not self.carried:
            return range(self.layout.record_count)
        pairs = enumerate(zip(self.keys(), self.values(), strict=True))
        return [n for n, (key, value) in pairs if key is not None or value is not None]

    def timestamps_us(self) -> list[int]:
        return list(self._ints("q", self.layout.record_count, self.layout.timestamps))

    def headers(self) -> list[tuple[Header, ...]]:
        lay = self.layout
        n, h = lay.record_count, lay.header_count
        if lay.header_offsets is None:
            return [()] * n
        assert lay.header_key_offsets is not None
        assert lay.header_keys is not None
        assert lay.header_value_offsets is not None
        assert lay.header_values is not None
        offsets = self._offsets("header", n, lay.header_offsets, h)
        raw = self._binary("header key", h, None, lay.header_key_offsets, lay.header_keys)
        try:
            names = [(name or b"").decode() for name in raw]
        except UnicodeDecodeError as error:
            raise InvalidBatchError("a header key is not UTF-8") from error
        values = self._binary(
            "header value",
            h,
            lay.header_value_validity,
            lay.header_value_offsets,
            lay.header_values,
        )
        pairs = list(zip(names, values, strict=True))
        return [tuple(pairs[a:b]) for a, b in pairwise(offsets)]

    def records(
        self, topic: str = "", partition: int = -1, base_offset: int = -1, skip: int = 0
    ) -> list[Record]:
        """Return the records after the first `skip`, with their offsets if a base is given.

        Without blanks.
        """
        n = self.layout.record_count
        offsets = repeat(-1, n) if base_offset < 0 else range(base_offset, base_offset + n)
        rows = zip(
            self.values(), self.keys(), self.headers(), self.timestamps_us(),
            repeat(topic), repeat(partition), offsets,
        )  # fmt: skip
        # tuple.__new__ through map: no Python frame for each record.
        records: list[Record] = list(map(tuple.__new__, repeat(Record), rows))
        if skip:
            records = records[skip:]
        if self.carried:
            records = [one for one in records if one.key is not None or one.value is not None]
        return records

    def check(self) -> DecodedPayload:
        """Look at every column; return self."""
        self.values(), self.keys(), self.headers()
        return self

    def _ints(self, typecode: str, count: int, section: Section) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}{typecode}", self._view, section.start)

    def _offsets(self, name: str, count: int, section: Section, end: int) -> tuple[int, ...]:
        offsets = self._ints("i", count + 1, section)
        # Comparing with the sorted copy is faster than any loop over the pairs.
        if offsets[0] != 0 or offsets[-1] != end or offsets != tuple(sorted(offsets)):
            raise InvalidBatchError(f"{name} offsets do not rise from 0 to {end}")
        return offsets

    def _binary(
        self, name: str, count: int, validity: Section | None, where: Section, data: Section
    ) -> list[bytes | None]:
        offsets = self._offsets(name, count, where, data.size)
        blob = bytes(self._view[data.start : data.start + data.size])
        items: list[bytes | None] = [blob[a:b] for a, b in pairwise(offsets)]
        if validity is not None:
            bitmap = bytes(self._view[validity.start : validity.start + validity.size])
            bits = int.from_bytes(bitmap, "little")
            items = [item if bits >> i & 1 else None for i, item in enumerate(items)]
        return items


def decode_payload(
    payload: bytes | memoryview, record_count: int | None = None, carried: bool = False
) -> DecodedPayload:
    """Return the payload's columns. `record_count`: the batch header's, to be compared. `carried`:
    see StoredBatch.

    Raises InvalidBatchError, with the reason, for an invalid payload. Its cost does not depend on
    the payload's size: columns are decoded on use.
    """
    decoded = DecodedPayload(payload, carried)
    if record_count is not None and record_count != len(decoded):
        raise InvalidBatchError(
            f"payload holds {len(decoded)} records, its header says {record_count}"
        )
    return decoded
