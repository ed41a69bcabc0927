"""Virtual time: one heap of events, and clocks that nodes read from it.

Nothing in a simulated run reads the machine's clock. Events at the same time
run in the order in which they were planned, so a run is a function of its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

NEVER = float("inf")
EPOCH_MS = 1_700_000_000_000  # the wall clock when a run begins


class Scheduler:
    """Runs calls at virtual times (seconds). `now` is the time of the running event."""

    __slots__ = ("_heap", "_planned", "events", "now")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._planned = 0
        self.now = 0.0
        self.events = 0

    def at(self, time: float, call: Callable[..., object], *args: Any) -> None:
        """Plans `call(*args)`; a time in the past means now."""
        self._planned += 1
        heappush(self._heap, (time if time > self.now else self.now, self._planned, call, args))

    def after(self, delay: float, call: Callable[..., object], *args: Any) -> None:
        self._planned += 1
        heappush(self._heap, (self.now + delay, self._planned, call, args))

    def run_until(self, end: float) -> None:
        """Runs all events before `end`; then it is `end`."""
        heap = self._heap
        events = 0
        while heap and heap[0][0] < end:
            self.now, _, call, args = heappop(heap)
            events += 1
            call(*args)
        self.events += events
        self.now = end
