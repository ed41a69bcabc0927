"""When records were acknowledged, and how long that took.

Two numbers for each record: the garbage collector walks through all objects that are kept, and
holds up the measuring process as long as the silences that it looks for.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise


class Answers:
    """Times are those of `time.monotonic`, in seconds. One thread adds."""

    def __init__(self) -> None:
        self._at, self._waits = array("d"), array("d")

    def add(self, sent: float) -> None:
        """A record that was sent at that time is acknowledged now."""
        now = time.monotonic()
        self._waits.append(now - sent)
        self._at.append(now)

    def waits(self, begin: float, end: float) -> array[float]:
        """Of the records that were acknowledged meanwhile: seconds since they were sent."""
        return self._waits[bisect_left(self._at, begin) : bisect_left(self._at, end)]

    def silence(self, begin: float, end: float) -> tuple[float, float]:
        """The longest time without an acknowledgement, and when it began; in seconds."""
        between = self._at[bisect_right(self._at, begin) : bisect_left(self._at, end)]
        return max((after - before, before) for before, after in pairwise([begin, *between, end]))


__all__ = ["Answers"]
