"""When one leader's group may rest, that is leave its heartbeats to its node's.

    heartbeat with nothing to say, twice --> everybody reachable answered --> wanted
    heartbeats.py: begin, end

The answers matter: a follower that acknowledged such a heartbeat has all entries and
knows that they are committed, and no late answer will wake the group at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.consensus.port import Clock, Core

QUIET_HEARTBEATS = 2  # with nothing to say, before the group rests


class Rest:
    """The rest of one leader's group. Made anew with each term that it leads."""

    def __init__(self, core: Core, clock: Clock) -> None:
        self._core, self._clock = core, clock
        self._quiet = 0
        self._said_at = 0.0
        self.begun = False

    def heartbeat(self, *, nothing_to_say: bool) -> None:
        """The group itself is about to send a heartbeat."""
        assert not self.begun
        self._quiet = self._quiet + 1 if nothing_to_say else 0
        self._said_at = self._clock()

    def wanted(self, reachable: Iterable[int]) -> bool:
        if self._quiet < QUIET_HEARTBEATS or self.begun:
            return False
        return all(self._core.heard_at(peer) >= self._said_at for peer in reachable)

    def begin(self, reachable: Iterable[int]) -> dict[int, float]:
        """No more ticks and heartbeats; returns when each follower was heard."""
        assert not self.begun
        self.begun = True
        return {peer: self._core.heard_at(peer) for peer in reachable}

    def end(self, heard: Mapping[int, float]) -> None:
        """The group goes on by itself, with a heartbeat first. heard: see `begin`."""
        self.begun, self._quiet = False, 0
        self._core.heartbeat_due = self._clock()
        for peer, at in heard.items():
            self._core.note_heard(peer, at)
