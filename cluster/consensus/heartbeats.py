"""Coalesced heartbeats: one message to each peer for all groups at rest.

    leader's group, nothing to say --rest--> Heartbeats --Beat--> follower's groups
    leader's group <---wake--- Heartbeats <---BeatReply--- those that see it otherwise

A node may lead a thousand partitions, most of them idle. Each would tell the same
peers the same ten times a second, at the cost of a tick, two messages and two
replies. A group at rest is not ticked: it is a row (group, term, commit index) in
the one message that goes to each peer, and a follower that agrees with its row has
heard its leader. (CockroachDB calls these coalesced heartbeats.)

A row promises nothing and teaches nothing but that the leader lives. A follower of
another term or leader, or one that does not know the commit index, names the group
in its reply; the group is woken and speaks for itself. So is every group of a peer
that has been silent for too long: the core then counts whom it still hears, and
steps down if those are too few. Nobody rests in silence, so failover takes what it
takes without rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.consensus.group import Group
from cluster.consensus.message import Beat, BeatReply
from cluster.consensus.port import Clock

SILENCE = 0.5  # of the election timeout: a peer that did not answer for so long


class Heartbeats:
    """The groups at rest of one node, and what it last heard of their followers.

    groups: all groups of the node.
    touch:  tells the driver that a group has work.
    """

    def __init__(
        self, clock: Clock, groups: Mapping[int, Group], touch: Callable[[int], None]
    ) -> None:
        self._clock, self._groups, self._touch = clock, groups, touch
        self._resting: dict[int, Group] = {}
        # peer -> groups at rest that have a follower there
        self._followed: dict[int, dict[int, Group]] = {}
        self._beats: dict[int, Beat] = {}
        self._heard: dict[int, float] = {}
        self._due = float("inf")

    @property
    def due(self) -> float:
        """When `send` must be called at the latest."""
        return self._due

    def __contains__(self, gid: int) -> bool:
        return gid in self._resting

    # -- leader -------------------------------------------------------------------------

    def rest(self, group: Group) -> None:
        """From now on the group is heard through this node's one message only."""
        gid, now = group.config.group, self._clock()
        assert gid not in self._resting
        assert group.wants_rest
        self._resting[gid] = group
        for peer, heard in group.lie_down().items():
            self._due = min(self._due, now + group.config.heartbeat)
            self._followed.setdefault(peer, {})[gid] = group
            self._heard[peer] = max(heard, self._heard.get(peer, heard))
            self._beats.pop(peer, None)

    def wake(self, gid: int) -> None:
        """The group goes on by itself, and knows when its followers were last heard."""
        group = self._resting.pop(gid, None)
        if group is None:
            return
        heard = {}
        for peer, followed in self._followed.items():
            if followed.pop(gid, None) is not None:
                heard[peer] = self._heard[peer]
                self._beats.pop(peer, None)
        group.get_up(heard)

    def send(self) -> list[tuple[int, Beat]]:
        """What is due now; wakes the groups of peers that do not answer."""
        now = self._clock()
        if now < self._due:
            return []
        self._due = float("inf")
        out: list[tuple[int, Beat]] = []
        for peer, followed in self._followed.items():
            if not followed:
                continue
            config = next(iter(followed.values())).config
            self._due = min(self._due, now + config.heartbeat)
            if now - self._heard[peer] > SILENCE * config.election_timeout:
                for gid in followed:
                    self._touch(gid)
                continue
            beat = self._beats.get(peer)
            if beat is None:
                beat = self._beats[peer] = _beat(followed)
            out.append((peer, beat))
        return out

    def on_reply(self, sender: int, reply: BeatReply) -> None:
        self._heard[sender] = self._clock()
        for gid in reply.disagree:
            if gid in self._followed.get(sender, ()):
                self._touch(gid)

    # -- follower -----------------------------------------------------------------------

    def on_beat(self, sender: int, beat: Beat) -> BeatReply:
        now, groups = self._clock(), self._groups
        disagree = []
        for gid, term, commit in zip(beat.groups, beat.terms, beat.commits, strict=True):
            group = groups.get(gid)
            if group is None or not group.heard_at_rest(now, sender, term, commit):
                disagree.append(gid)
        return BeatReply(tuple(disagree))


def _beat(followed: Mapping[int, Group]) -> Beat:
    rows = [(gid, group.term, group.core.commit_index) for gid, group in followed.items()]
    assert all(group.is_leader for group in followed.values()), "only leaders rest"
    gids, terms, commits = zip(*rows, strict=True)
    return Beat(gids, terms, commits)
