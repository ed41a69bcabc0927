"""Acknowledgement times of records, and how long each took.

Two numbers for each record: the garbage collector walks through all kept objects, and could
stop the measuring process for as long as the silences it looks for.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise


class Answers:
    """Log of acknowledgements. Times are `time.monotonic` seconds. One thread adds."""

    def __init__(self) -> None:
        self._at = array("d")
        self._waits = array("d")

    def add(self, sent: float) -> None:
        """Notes that a record sent at this time is acknowledged now."""
        now = time.monotonic()
        self._waits.append(now - sent)
        self._at.append(now)

    def waits(self, begin: float, end: float) -> array[float]:
        """Seconds from send to acknowledgement, of records acknowledged in this span."""
        return self._waits[bisect_left(self._at, begin) : bisect_left(self._at, end)]

    def silence(self, begin: float, end: float) -> tuple[float, float]:
        """Longest time without an acknowledgement, and its beginning; in seconds."""
        between = self._at[bisect_right(self._at, begin) : bisect_left(self._at, end)]
        return max((after - before, before) for before, after in pairwise([begin, *between, end]))


__all__ = ["Answers"]
