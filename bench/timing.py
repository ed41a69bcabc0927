"""Time limits on what runs in the main thread, one inside the other.

The alarm of the nearest end is set; when it rings, whatever the main thread waits for is
left with a BenchError.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from bench.processes import BenchError

_AT_ONCE_S = 0.01
_ends: list[tuple[float, float]] = []  # (when on the monotonic clock, after how many s)


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
