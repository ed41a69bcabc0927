"""Payloads made by the kit, and readers of a client's payloads.

Written from docs/protocol.md: a checker shares no code with the clients it checks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c

from oncelog.v1.batch_pb2 import Batch, BatchHeader, StoredBatch

PREAMBLE = struct.Struct("<4s7I")


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
    if how in ("bit", "last"):
        stored.payload = corrupted(stored.payload)
        return
    assert how == "length", f"corrupt: {how!r} is not bit, last or length"
    stored.payload = overlong(stored.payload)
    stored.header.crc32c = crc32c.crc32c(stored.payload)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
