"""Partitioners: choose the partition of a record.

Place in the flow: called by `Producer.send` when the user names no partition. With a key: Kafka's
murmur2, so that a key goes to the same partition as from a Java producer. Without: the rule of
`stickiness`, one partition for a while.
"""

from __future__ import annotations

import sys

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_CACHE_LIMIT = 65_536
_LITTLE = sys.byteorder == "little"


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), as an unsigned number."""
    length = len(data)
    h = 0x9747B28C ^ length
    aligned = length & ~3
    for k in memoryview(data)[:aligned].cast("I") if _LITTLE else _words(data, aligned):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    rest = length & 3
    if rest:
        h = (h ^ int.from_bytes(data[aligned:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def _words(data: bytes, end: int) -> list[int]:
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, end, 4)]


class KeyPartitioner:
    """murmur2 with a bounded memory of keys: hashing in Python costs microseconds."""

    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}

    def partition(self, key: bytes, partitions: int) -> int:
        positive = self._hashes.get(key)
        if positive is None:
            if len(self._hashes) >= _CACHE_LIMIT:
                self._hashes.clear()
            positive = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return positive % partitions
