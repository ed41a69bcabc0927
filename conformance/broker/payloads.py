"""Payloads made by the kit, and readers of a client's payloads.

Written from docs/protocol.md: a checker shares no code with the clients it checks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c

from harness.payload import values_and_keys
from oncelog.v1.batch_pb2 import Batch, BatchHeader, StoredBatch

PREAMBLE = struct.Struct("<4s7I")
OTHERS_US = 1_700_000_000_000_000  # timestamp of other clients' records


def pack(
    values: Sequence[bytes | None], timestamp_us: int, keys: Sequence[bytes | None] = ()
) -> bytes:
    """Packs a payload of values, and of keys if one is not null. Without headers."""
    has_nulls, body = _column(values)
    flags, size, key_size = int(has_nulls), _size(values), 0
    if any(key is not None for key in keys):
        has_nulls, column = _column(keys)
        flags |= 2 | 4 * has_nulls
        key_size = _size(keys)
        body += column
    return b"".join(
        (
            PREAMBLE.pack(b"OLB1", flags, len(values), 0, size, key_size, 0, 0),
            body,
            struct.pack(f"<{len(values)}q", *[timestamp_us] * len(values)),
        )
    )


def _size(column: Sequence[bytes | None]) -> int:
    return sum(len(item or b"") for item in column)


def _column(column: Sequence[bytes | None]) -> tuple[bool, bytes]:
    """Returns whether the column has nulls, and [validity,] offsets and data."""
    has_nulls = None in column
    bits = sum(1 << n for n, item in enumerate(column) if item is not None)
    validity = bits.to_bytes((len(column) + 7) // 8, "little") if has_nulls else b""
    offsets = [0]
    for item in column:
        offsets.append(offsets[-1] + len(item or b""))
    data = b"".join(item or b"" for item in column)
    parts = (validity, struct.pack(f"<{len(offsets)}i", *offsets), data)
    return has_nulls, b"".join(map(_padded, parts))


def batch(topic: str, partition: int, payload: bytes, *, timestamp_us: int, codec: int) -> Batch:
    """Makes a batch without idempotence, as another client would send it.

    The record count is read from the payload, or 1 if a codec hides it.
    """
    count = PREAMBLE.unpack_from(payload)[2] if codec == 0 else 1
    header = BatchHeader(
        topic=topic,
        partition=partition,
        record_count=count,
        codec=codec,  # type: ignore[arg-type]
        crc32c=crc32c.crc32c(payload),
        max_timestamp_us=timestamp_us,
    )
    return Batch(header=header, payload=payload)


def corrupted(payload: bytes) -> bytes:
    """Flips one bit of the payload's last byte; the checksum must stay the old one."""
    return payload[:-1] + bytes((payload[-1] ^ 1,))


def overlong(payload: bytes) -> bytes:
    """Payload that claims two gigabytes of values. Compute its checksum afresh."""
    fields = list(PREAMBLE.unpack_from(payload))
    fields[4] = 0x7FFFFFFF
    return PREAMBLE.pack(*fields) + payload[PREAMBLE.size :]


def damage(stored: StoredBatch, how: str) -> None:
    match how:
        case "bit" | "last":
            stored.payload = corrupted(stored.payload)
        case "length":
            stored.payload = overlong(stored.payload)
            stored.header.crc32c = crc32c.crc32c(stored.payload)
        case "hole":
            stored.base_offset += 1
        case "passed":
            stored.base_offset -= stored.header.record_count
        case _:
            raise AssertionError(f"corrupt: {how!r} is not bit, last, length, hole or passed")


def cut_anew(log: Sequence[StoredBatch], count: int, offset: int) -> list[StoredBatch]:
    """Cuts the whole log into batches of `count` records; returns those that end behind `offset`.

    The records have values alone, and one timestamp, as `append_others` makes them.
    """
    values = [value or b"" for one in log for value in values_and_keys(one.payload)[0]]
    start = log[0].base_offset if log else 0
    cuts: list[StoredBatch] = []
    for at in range(0, len(values), count):
        some = values[at : at + count]
        made = batch("", 0, pack(some, OTHERS_US), timestamp_us=OTHERS_US, codec=0)
        if start + at + len(some) > offset:
            place = start + at
            cuts.append(StoredBatch(header=made.header, payload=made.payload, base_offset=place))
    return cuts


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
