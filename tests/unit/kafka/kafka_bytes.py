"""Bytes of a record batch, built from Kafka's description: nothing of the code under test."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c

HEAD = struct.Struct(">qiibI")
BODY = struct.Struct(">hiqqqhii")


def record(number: int, value: bytes = b"v", later: int = 0) -> bytes:
    """A record without key and headers; numbers, lengths and ms after the batch's time below 64."""
    body = bytes([0, 2 * later, 2 * number, 1, 2 * len(value)]) + value + b"\0"
    return bytes([2 * len(body)]) + body


def batch(count: int = 1, *, pid: int = -1, epoch: int = -1, sequence: int = -1,
          value: bytes = b"v", **other: Any) -> bytes:  # fmt: skip
    """A sound batch, with some fields replaced.

    other: attributes, last_delta, base_time, max_time, records (bytes), offset, magic, length, crc,
    record_count.
    """
    records = other.get("records")
    if records is None:
        records = b"".join(record(number, value) for number in range(count))
    body = BODY.pack(
        other.get("attributes", 0), other.get("last_delta", count - 1), other.get("base_time", 7),
        other.get("max_time", 7), pid, epoch, sequence, other.get("record_count", count),
    )  # fmt: skip
    payload = body + records
    head = HEAD.pack(
        other.get("offset", 0), other.get("length", len(payload) + 9), -1, other.get("magic", 2),
        other.get("crc", crc32c(payload)),
    )  # fmt: skip
    return head + payload
