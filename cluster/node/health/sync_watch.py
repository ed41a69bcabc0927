"""Watch of a running fsync: the node leads on meanwhile, or gives leadership up.

    DriverLoop: begin .. sync in a thread ............................ finish
                          | look, each heartbeat's period
                          v
                    SyncWatch --> Driver.send_heartbeats, give_leadership_away

No round of the driver may begin before the fsync has ended. Heartbeats need none: they promise
nothing that is durable. So a slow disk costs its own partitions' time and not their leaders.
A disk that hangs for longer than a failover takes is sick: then others shall lead
(docs/adr/0021).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

HANG_TIMEOUTS = 3  # election timeouts; an fsync that takes longer hangs

log = logging.getLogger(__name__)


class Leading(Protocol):
    """`Driver` is one."""

    def send_heartbeats(self) -> None: ...
    def give_leadership_away(self) -> None: ...


class SyncWatch:
    """Watches one fsync after the other.

    period: seconds between two calls of `look`.
    limit:  seconds; a longer fsync is a fault of the disk.
    """

    def __init__(self, clock: Callable[[], float], period: float, limit: float) -> None:
        self._clock = clock
        self.period = period
        self._limit = limit
        self._started: float | None = None
        self._hangs = False
        self.hung = 0  # syncs that took longer than the limit

    @property
    def under_way(self) -> float:
        """Return the seconds that the running fsync has lasted; 0 if there is none."""
        started = self._started  # a thread of the metrics page asks, too
        return 0.0 if started is None else self._clock() - started

    @property
    def hangs(self) -> bool:
        return self.under_way > self._limit

    def begin(self) -> None:
        assert self._started is None
        self._started = self._clock()
        self._hangs = False

    def look(self, driver: Leading) -> None:
        """Check the fsync, periodically between `begin` and `end`."""
        if self._hangs:
            return
        if not self.hangs:
            driver.send_heartbeats()
            return
        self._hangs = True
        self.hung += 1
        log.error("an fsync hangs, others shall lead: seconds=%.1f", self.under_way)
        driver.give_leadership_away()

    def end(self) -> float:
        """Note that the fsync returned or failed; returns how long it took."""
        seconds, self._started = self.under_way, None
        if self._hangs:
            log.warning("the fsync that hung has returned: seconds=%.1f", seconds)
        return seconds
