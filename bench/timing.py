"""Time limits for code in the main thread, one inside the other.

The alarm is set for the nearest end. When it rings, the main thread's wait ends with a
BenchError.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from bench.processes import BenchError

_AT_ONCE_S = 0.01
_ends: list[tuple[float, float]] = []  # (end on the monotonic clock, its seconds)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises BenchError in the body when the time is over."""
    _ends.append((time.monotonic() + seconds, seconds))
    _arm()
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:  # also if it rang in the line above
        _ends.pop()
        _arm()


def _arm() -> None:
    if not _ends:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return
    signal.signal(signal.SIGALRM, _expired)
    nearest = min(end for end, _ in _ends)
    signal.setitimer(signal.ITIMER_REAL, max(_AT_ONCE_S, nearest - time.monotonic()))


def _expired(number: int, frame: FrameType | None) -> None:
    _, seconds = min(_ends)
    raise BenchError(f"not done after {seconds:g} s")
