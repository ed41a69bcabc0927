"""Bytes in flight to one peer, unacknowledged, over all groups together.

    Replicator of each group --sent, freed--> PeerWindow of a peer --> may more be sent?

A group has a window of its own, but a thousand groups to one slow peer are a thousand
windows: in the leader's queue, and in the follower's memory while it waits for its disk.
"""

from __future__ import annotations

from collections import defaultdict

from cluster.consensus.learner_rate import LearnerRate, unlimited

MAX_PEER_BYTES = 64 * 1024 * 1024
# Above the limit a group may still have one message in flight, so that one group's many entries do
# not keep all others waiting. This allowance has a limit as well.
MAX_PEER_BYTES_IN_ALL = 2 * MAX_PEER_BYTES


class PeerWindow:
    """Window of one peer."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def is_open(self, *, waits_for_some: bool) -> bool:
        """Whether a group may send; waits_for_some: it has unacknowledged messages."""
        return self.bytes < (MAX_PEER_BYTES if waits_for_some else MAX_PEER_BYTES_IN_ALL)

    @property
    def free(self) -> int:
        """Returns the bytes left up to the shared limit."""
        return MAX_PEER_BYTES - self.bytes


class PeerWindows(defaultdict[int, PeerWindow]):
    """Peer -> its window: one for all groups of a node. learners: how fast those are filled."""

    def __init__(self, learners: LearnerRate | None = None) -> None:
        super().__init__(PeerWindow)
        self.learners = learners or unlimited()
