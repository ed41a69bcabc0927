"""Timestamps of a batch's records, as runs of equal ones.

Place in the flow: a batch that fills adds to it, `sealing` encodes it, a record's metadata is read
from it. Records sent in the same millisecond share the timestamp of the first of them: the clock is
read for each record, but a number is kept and encoded for each millisecond only.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right


class Timestamps:
    """Microseconds since the Unix epoch, of record 0, 1, ..."""

    __slots__ = ("_starts", "_values")

    def __init__(self) -> None:
        self._starts: list[int] = []  # index of the first record of each run
        self._values: list[int] = []

    def add(self, index: int, timestamp_us: int) -> None:
        """Give the records from `index` on this timestamp, until the next call."""
        values = self._values
        if not values or values[-1] != timestamp_us:
            self._starts.append(index)
            values.append(timestamp_us)

    def cut(self, count: int) -> None:
        """Forget all but the first `count` records."""
        runs = bisect_left(self._starts, count)
        del self._starts[runs:]
        del self._values[runs:]

    def __getitem__(self, index: int) -> int:
        return self._values[bisect_right(self._starts, index) - 1]

    @property
    def highest(self) -> int:
        return max(self._values)

    def encode(self, count: int) -> bytes:
        """Return the column of `count` records as in the payload: int64, little-endian."""
        ends = [*self._starts[1:], count]
        runs = zip(self._starts, ends, self._values, strict=True)
        return b"".join([struct.pack("<q", value) * (end - start) for start, end, value in runs])
