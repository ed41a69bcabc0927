"""Coalesced heartbeats: one message to each peer for all quiescent groups.

    leader's group, nothing to say --quiesce--> Heartbeats --Heartbeat--> follower's groups
    leader's group <--unquiesce-- Heartbeats <--HeartbeatReply-- those that see it otherwise

A node may lead a thousand partitions, most of them idle. Each would send the same peers the same
ten times a second, at the cost of a tick, two messages and two replies. A quiescent group is not
ticked: it is a row (group, term, commit index) in the single message to each peer, and for a
follower that agrees with its row that is its leader's heartbeat. (CockroachDB calls these coalesced
heartbeats.)

A row promises nothing and says only that the leader lives. A follower of another term or leader, or
one that does not know the commit index, names the group in its reply; the group is unquiesced and
sends its own messages. Every group of a peer that has been silent for too long is unquiesced as
well: the core then counts the replying peers, and steps down if there are too few. No group is
quiescent towards a silent peer, so failover takes as long as without quiescence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.consensus.group import Group
from cluster.consensus.message import Heartbeat, HeartbeatReply
from cluster.consensus.port import Clock

SILENCE = 0.5  # of the election timeout: a peer that did not reply for so long


class Heartbeats:
    """Quiescent groups of one node, and their followers' last replies.

    due: the latest time for the next `send`.
    groups: all groups of the node.
    touch: tells the driver that a group has work.
    """

    def __init__(
        self, clock: Clock, groups: Mapping[int, Group], touch: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._touch = touch
        self.quiescent: dict[int, Group] = {}
        # peer -> quiescent groups that have a follower there
        self._followed: dict[int, dict[int, Group]] = {}
        self._prepared: dict[int, Heartbeat] = {}
        self._replied_at: dict[int, float] = {}
        self.due = float("inf")

    # -- leader -------------------------------------------------------------------------

    def quiesce(self, group: Group) -> None:
        """Makes the group's heartbeats rows of this node's messages."""
        gid, now = group.config.group, self._clock()
        assert gid not in self.quiescent
        assert group.can_quiesce
        self.quiescent[gid] = group
        for peer, replied_at in group.quiesce().items():
            self.due = min(self.due, now + group.config.heartbeat)
            self._followed.setdefault(peer, {})[gid] = group
            self._replied_at[peer] = max(replied_at, self._replied_at.get(peer, replied_at))
            self._prepared.pop(peer, None)

    def unquiesce(self, gid: int) -> None:
        """Removes the group's rows, and tells it when its followers last replied."""
        group = self.quiescent.pop(gid, None)
        if group is None:
            return
        replied_at = {}
        for peer, followed in self._followed.items():
            if followed.pop(gid, None) is not None:
                replied_at[peer] = self._replied_at[peer]
                self._prepared.pop(peer, None)
        group.unquiesce(replied_at)

    def send(self) -> list[tuple[int, Heartbeat]]:
        """Returns the messages due now; unquiesces the groups of peers that do not reply."""
        now = self._clock()
        if now < self.due:
            return []
        self.due = float("inf")
        out: list[tuple[int, Heartbeat]] = []
        for peer, followed in self._followed.items():
            if not followed:
                continue
            config = next(iter(followed.values())).config
            self.due = min(self.due, now + config.heartbeat)
            if now - self._replied_at[peer] > SILENCE * config.election_timeout:
                for gid in followed:
                    self._touch(gid)
                continue
            heartbeat = self._prepared.get(peer)
            if heartbeat is None:
                heartbeat = self._prepared[peer] = _heartbeat(followed)
            out.append((peer, heartbeat))
        return out

    def again(self) -> list[tuple[int, Heartbeat]]:
        """Returns the last messages of `send`, or new ones, while replies cannot be read."""
        out = []
        for peer, followed in self._followed.items():
            if followed:
                if peer not in self._prepared:
                    self._prepared[peer] = _heartbeat(followed)
                out.append((peer, self._prepared[peer]))
        return out

    def on_repeated(self, sender: int) -> None:
        """Notes a follower's late answer to a group's own heartbeat, sent before quiescence."""
        self._replied_at[sender] = self._clock()

    def on_reply(self, sender: int, reply: HeartbeatReply) -> None:
        self._replied_at[sender] = self._clock()
        for gid in reply.disagree:
            if gid in self._followed.get(sender, ()):
                self._touch(gid)

    # -- follower -----------------------------------------------------------------------

    def on_heartbeat(self, sender: int, heartbeat: Heartbeat) -> HeartbeatReply:
        now, groups = self._clock(), self._groups
        disagree = []
        for gid, term, commit in zip(
            heartbeat.groups, heartbeat.terms, heartbeat.commits, strict=True
        ):
            group = groups.get(gid)
            if group is None or not group.on_coalesced_heartbeat(now, sender, term, commit):
                disagree.append(gid)
        return HeartbeatReply(tuple(disagree))


def _heartbeat(followed: Mapping[int, Group]) -> Heartbeat:
    rows = [(gid, group.term, group.core.commit_index) for gid, group in followed.items()]
    assert all(group.is_leader for group in followed.values()), "only leaders are quiescent"
    gids, terms, commits = zip(*rows, strict=True)
    return Heartbeat(gids, terms, commits)
