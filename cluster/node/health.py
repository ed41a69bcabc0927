"""Whether this node's disk and event loop keep up, so that leading here makes sense.

    each fsync, each look at the loop --seconds--> NodeHealth --sick--> what peers are told
                                                                       (ClockReply, each look)

A follower with a sick disk or a late loop acknowledges well enough and leads badly: all that
its groups do waits for both. So leadership is not handed to it while it says so itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

RECOVERED = 10.0  # seconds without a delay


class Sync(Protocol):
    """The fsync under way. `SyncWatch` is one."""

    @property
    def under_way(self) -> float: ...


class Led(Protocol):
    """A group that this node leads. `Group` is one."""

    def best_successor(self, wrong: Collection[int]) -> int: ...


class NodeHealth:
    """limit: seconds; an fsync or a standstill of the loop that takes longer is a delay."""

    def __init__(self, clock: Callable[[], float], limit: float, sync: Sync) -> None:
        self._clock, self._limit, self._sync = clock, limit, sync
        self._delayed_at = float("-inf")
        self.is_leaving = False  # the node hands over what it leads, and stops

    def observe(self, seconds: float) -> None:
        """How long an fsync took, or how late the loop came to what was due."""
        if seconds > self._limit:
            self._delayed_at = self._clock()

    def watching(self, observe: Callable[[float], None]) -> Callable[[float], None]:
        """`observe`, with each of its delays seen here as well."""

        def seen(seconds: float) -> None:
            self.observe(seconds)
            observe(seconds)

        return seen

    @property
    def sick(self) -> bool:
        recent = self._clock() - self._delayed_at < RECOVERED
        return recent or self.is_leaving or self._sync.under_way > self._limit


def successor(group: Led, wrong: Collection[int], sick: Collection[int]) -> int:
    """Who should lead the group in this node's place; 0: nobody can.

    wrong: nodes that may not lead, as their clocks are. sick: nodes that lead badly, so any
    other comes before them.
    """
    return group.best_successor({*wrong, *sick}) or group.best_successor(wrong)
