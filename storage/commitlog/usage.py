"""Usage of a segment by groups: tells when it may be deleted. Pure.

A segment is kept while any group still has an entry that may be in it. The usage has for each group
(the first eight bytes of a key) the first and last key and the number of bytes. Since a log is
dropped from its head, the group's present first key tells how much of that is left.

    stored: for each group, first and last key bytes u16, u16 | first | last | bytes u64
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from storage.errors import CorruptionError
from storage.keys import MAX_GROUP

_GROUP_BYTES = 8
_KEY_BYTES = struct.Struct(">HH")
_SIZE = struct.Struct(">Q")


@dataclass(slots=True)
class Span:
    """A group's entries in one segment: lowest and highest key, bytes of the values."""

    first: bytes
    last: bytes
    size: int

    def left(self, begin: bytes | None) -> int:
        """Returns about how many bytes are needed if the group's entries now begin at `begin`.

        0 only if no entry is: an empty value is needed too.
        """
        if begin is None or begin > self.last:
            return 0
        if begin <= self.first:
            return max(1, self.size)
        low, start, high = (
            int.from_bytes(key[_GROUP_BYTES:16]) for key in (self.first, begin, self.last)
        )
        return max(1, self.size * (high - start + 1) // max(1, high - low + 1))


class SegmentUsage:
    """Groups with entries in one segment."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: dict[bytes, Span] = {}

    def note(self, key: bytes, size: int) -> None:
        """Notes an entry appended to the segment."""
        span = self.spans.get(key[:_GROUP_BYTES])
        if span is None:
            self.spans[key[:_GROUP_BYTES]] = Span(key, key, size)
            return
        span.size += size
        if key > span.last:
            span.last = key
        elif key < span.first:
            span.first = key

    @property
    def size(self) -> int:
        return sum(span.size for span in self.spans.values())

    def pack(self) -> bytes:
        parts = []
        for span in self.spans.values():
            parts.append(_KEY_BYTES.pack(len(span.first), len(span.last)))
            parts += [span.first, span.last, _SIZE.pack(span.size)]
        return b"".join(parts)

    @classmethod
    def unpack(cls, content: bytes) -> SegmentUsage:
        """Unpacks a usage. Raises CorruptionError."""
        usage = cls()
        for span in _spans(content):
            usage.spans[span.first[:_GROUP_BYTES]] = span
        return usage


def _spans(content: bytes) -> Iterator[Span]:
    at = 0
    while at < len(content):
        try:
            first_bytes, last_bytes = _KEY_BYTES.unpack_from(content, at)
            at += _KEY_BYTES.size
            first, at = content[at : at + first_bytes], at + first_bytes
            last, at = content[at : at + last_bytes], at + last_bytes
            (size,) = _SIZE.unpack_from(content, at)
        except struct.error as error:
            raise CorruptionError(f"usage of a segment: {error}") from error
        at += _SIZE.size
        if int.from_bytes(first[:_GROUP_BYTES]) > MAX_GROUP:
            raise CorruptionError(f"usage of a segment: {first.hex()} is of no group")
        yield Span(first, last, size)
