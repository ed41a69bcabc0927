"""Bytes that Kafka's consumers exchange through their group: subscriptions and assignments. Pure.

A classic group's bytes are its members' own affair. Consumers (protocol type "consumer") all use
one layout, which tells a node the topics that a member wants, and the partitions that it has.
Bytes of another layout give None.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

CONSUMER = "consumer"  # the protocol type
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a member's metadata."""
    try:
        at, found = _INT16.size, set[str]()  # the version
        count, at = _number(metadata, at)
        for _ in range(count):
            name, at = _text(metadata, at)
            found.add(name)
    except (ValueError, struct.error):
        return None
    return frozenset(found)


def assigned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """Return the partitions of a member's assignment, by topic; none for an empty one."""
    if not assignment:
        return {}
    try:
        at, found = _INT16.size, dict[str, list[int]]()
        count, at = _number(assignment, at)
        for _ in range(count):
            name, at = _text(assignment, at)
            size, at = _number(assignment, at)
            if size * _INT32.size > len(assignment) - at:
                return None
            found.setdefault(name, []).extend(struct.unpack_from(f">{size}i", assignment, at))
            at += size * _INT32.size
    except (ValueError, struct.error):
        return None
    return found


def assignment_of(partitions: Mapping[str, list[int]]) -> bytes:
    """Return an assignment, in the oldest form, which all consumers read."""
    out = bytearray(_INT16.pack(0) + _INT32.pack(len(partitions)))
    for topic, numbers in sorted(partitions.items()):
        name = topic.encode()
        out += (
            _INT16.pack(len(name))
            + name
            + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        )
    return bytes(out + _INT32.pack(-1))


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of an array, and the place behind it."""
    (count,) = _INT32.unpack_from(data, at)
    if not 0 <= count <= len(data):
        raise ValueError(count)
    return count, at + _INT32.size


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, at)
    end = at + _INT16.size + size
    if size < 0 or end > len(data):
        raise ValueError(size)
    return data[at + _INT16.size : end].decode(), end
