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


def pack(values: Sequence[bytes], timestamp_us: int) -> bytes:
    """Packs a payload of values alone: no nulls, keys or headers."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    body = b"".join(values)
    return b"".join(
        (
            PREAMBLE.pack(b"OLB1", 0, len(values), 0, len(body), 0, 0, 0),
            _padded(struct.pack(f"<{len(offsets)}i", *offsets)),
            _padded(body),
            struct.pack(f"<{len(values)}q", *[timestamp_us] * len(values)),
        )
    )


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
