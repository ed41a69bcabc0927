"""Reachability of the cluster: one warning when no node answers, one when a node answers again.

Place in the flow: `cluster` reports how each call to a node ended. Clients that share channels
share this, too, so that a program with many producers logs one line. Runs on the engine's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("oncelog.client")

_MOST_PATIENCE_S = 5.0


class Reachability:
    """`outages`: how often no node answered for longer than `patience_s`."""

    def __init__(self, request_timeout_s: float, clock: Callable[[], float]) -> None:
        self.patience_s = min(_MOST_PATIENCE_S, request_timeout_s)
        # An idle client calls seldom: failures so far apart are not one outage.
        self._gap_s = 2 * max(_MOST_PATIENCE_S, request_timeout_s)
        self._clock = clock
        self.outages = 0
        self._since: float | None = None  # time of the first failure after the last answer
        self._last = 0.0
        self._warned = False

    def answered(self, address: str) -> None:
        if self._since is None:
            return
        if self._warned:
            log.warning("%s answers again, after %.0f s", address, self._clock() - self._since)
        self._since = None
        self._warned = False

    def failed(self, reason: str) -> None:
        """Note that a node did not answer; the reason names it."""
        now = self._clock()
        if self._since is None or now - self._last > self._gap_s:
            self._since = now
            self._warned = False
        self._last = now
        if not self._warned and now - self._since >= self.patience_s:
            self._warned = True
            self.outages += 1
            log.warning(
                "no node has answered for %.0f s, the client keeps trying: %s",
                now - self._since, reason,
            )  # fmt: skip

    def metrics(self) -> dict[str, int | float]:
        down = self._since if self._warned else None
        outage_s = 0.0 if down is None else self._clock() - down
        return {"outages": self.outages, "outage_s": outage_s}
