"""Quiescence of one leader's group: decides if its node may send its heartbeats.

    heartbeat with nothing to say, twice --> everybody reachable answered --> may_begin
    heartbeats.py: begin, end

A follower with a busy loop may answer a heartbeat after the next one is due. So an answer counts
from the first heartbeat with nothing to say: if only answers to the newest counted, groups would
keep their loops busy forever. Late answers that repeat known facts do not end the quiescence
(`Group.is_repeated`), and a follower that does not know the commit index says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.consensus.port import Clock, Core

QUIET_HEARTBEATS = 2  # with nothing to say, before the group is quiescent


class Quiescence:
    """The quiescence of one leader's group, in one term."""

    def __init__(self, core: Core, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._quiet_heartbeats = 0
        self._quiet_since = 0.0
        self.begun = self.is_quiet = False

    def heartbeat(self, *, nothing_to_say: bool) -> None:
        """Notes that the group itself is about to send a heartbeat."""
        assert not self.begun
        self._quiet_heartbeats = self._quiet_heartbeats + 1 if nothing_to_say else 0
        self.is_quiet = self._quiet_heartbeats >= QUIET_HEARTBEATS
        if self._quiet_heartbeats <= 1:
            self._quiet_since = self._clock()

    def may_begin(self, replied_at: Iterable[float]) -> bool:
        """replied_at: of each reachable follower, its last reply."""
        if not self.is_quiet or self.begun:
            return False
        return all(at >= self._quiet_since for at in replied_at)

    def begin(self) -> None:
        """Ends ticks and heartbeats."""
        assert not self.begun
        self.begun = True

    def end(self) -> None:
        """Resumes ticks, with a heartbeat first."""
        self.begun = self.is_quiet = False
        self._quiet_heartbeats = 0
        self._core.heartbeat_due = self._clock()
