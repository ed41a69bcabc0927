"""Health of this node's disk and event loop: shows whether it should lead.

    each fsync, each look at the loop --seconds--> NodeHealth --sick--> ClockReply, each look

A follower with a sick disk or a late loop acknowledges well enough and leads badly: all work
of its groups waits for both. So no leadership is handed to a node that reports itself sick.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

RECOVERED = 10.0  # seconds without a delay


class Sync(Protocol):
    """The running fsync. `SyncWatch` is one."""

    @property
    def under_way(self) -> float: ...
    @property
    def hangs(self) -> bool: ...


class Led(Protocol):
    """A group that this node leads. `Group` is one."""

    def best_successor(self, wrong: Collection[int]) -> int: ...


class NodeHealth:
    """limit: seconds; an fsync or a standstill of the loop that takes longer is a delay."""

    def __init__(self, clock: Callable[[], float], limit: float, sync: Sync) -> None:
        self._clock = clock
        self._limit = limit
        self.sync = sync
        self._delayed_at = float("-inf")
        self.is_leaving = False  # the node hands its leaderships over, and stops

    def observe(self, seconds: float) -> None:
        """Note the seconds of an fsync, or how late the loop came to a due task."""
        if seconds > self._limit:
            self._delayed_at = self._clock()

    def watching(self, observe: Callable[[float], None]) -> Callable[[float], None]:
        """Wrap `observe` so that its delays count here, too."""

        def seen(seconds: float) -> None:
            self.observe(seconds)
            observe(seconds)

        return seen

    @property
    def sick(self) -> bool:
        recent = self._clock() - self._delayed_at < RECOVERED
        return recent or self.is_leaving or self.sync.under_way > self._limit


def successor(group: Led, wrong: Collection[int], sick: Collection[int]) -> int:
    """Return the node that should lead the group in this node's place; 0: none can.

    wrong: nodes that may not lead, as their clocks are. sick: nodes that lead badly, so any
    other comes before them.
    """
    return group.best_successor({*wrong, *sick}) or group.best_successor(wrong)
