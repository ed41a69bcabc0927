"""What a replica has only while it leads: made when it wins a term, dropped when that ends.

    propose, confirm, transfer --> LeaderTerm --advance--> journal, messages to followers

Nothing in here outlives the term, so nothing of an earlier one can be counted in a later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cluster.consensus.environment import GroupConfig
from cluster.consensus.message import CheckpointAt, Message, TimeoutNow
from cluster.consensus.peer_window import PeerWindow
from cluster.consensus.port import Clock
from cluster.consensus.proposals import Proposals
from cluster.consensus.quiescence import Quiescence
from cluster.consensus.raft import Raft
from cluster.consensus.replication import Replicator

TRANSFER_TIMEOUT = 2.0  # seconds that proposals wait for a transfer


class LeaderTerm:
    """One term of one group's leader.

    ready:  the replica has applied an entry of its own term: knows all that is committed.
    up:     peers that can be reached.
    transfer_target: the follower that leadership is handed to; 0: none.
    """

    def __init__(
        self,
        config: GroupConfig,
        raft: Raft,
        clock: Clock,
        up: Iterable[int],
        windows: Mapping[int, PeerWindow],
    ) -> None:
        self.term, self.ready = raft.core.term, False
        self.proposals = Proposals()
        self.quiescence = Quiescence(raft.core, clock)
        self.replicator = Replicator(
            config.group, self.term, raft.journal, config.peers, up, windows
        )
        self._config, self._clock = config, clock
        self._core, self._journal, self._check = raft.core, raft.journal, raft.check
        self.transfer_target, self._transfer_until = 0, float("inf")

    # -- what the group asks ----------------------------------------------------------

    @property
    def next_due(self) -> float:
        """When the next heartbeat is due, or a transfer is given up."""
        return min(self._core.heartbeat_due, self._transfer_until)

    @property
    def can_quiesce(self) -> bool:
        return self.ready and self.quiescence.may_begin(self.replicator.reachable())

    def follower_lag(self) -> dict[int, int]:
        """Entries that each follower has not acknowledged."""
        last = self._journal.last_index
        return {peer: last - progress.match for peer, progress in self.replicator.peers.items()}

    def best_successor(self, up: Collection[int]) -> int:
        """The follower with the longest matching log among those reachable; 0 if none."""
        peers = self.replicator.peers
        return max(sorted(up), key=lambda peer: peers[peer].match, default=0)

    def transfer(self, target: int) -> None:
        """Hands leadership over once `target` has all entries; gives up after a while."""
        assert target, "node ids begin at 1"
        if not self.transfer_target:
            self.transfer_target, self._transfer_until = target, self._clock() + TRANSFER_TIMEOUT

    # -- one step ---------------------------------------------------------------------

    def advance(self) -> list[tuple[int, Message]]:
        """Appends what was proposed, and returns what is to be sent now."""
        out: list[tuple[int, Message]] = []
        if self.transfer_target and self._clock() >= self._transfer_until:
            self.transfer_target, self._transfer_until = 0, float("inf")
        target = self.transfer_target
        if not target:
            if self.proposals.queued:
                if self._check.is_due:
                    out += self._plan_check()
                self._append_proposals()
        elif self._core.match_index(target) == self._journal.last_index:
            out.append((target, TimeoutNow(self._config.group, self.term)))
        self.replicator.commit_index = min(self._core.commit_index, self._journal.durable_index)
        if self._core.send_due:
            self._core.send_due = False
            self.quiescence.heartbeat(nothing_to_say=self._nothing_to_say())
            out += self.replicator.heartbeats()
        else:
            out += self.replicator.pending()
            if self._config.notify_commits:
                out += self.replicator.commit_notices()
        return out

    def _plan_check(self) -> list[tuple[int, Message]]:
        """All will compare their states at the entry that is appended next."""
        index = self._journal.last_index + 1
        self._check.plan(index)
        message = CheckpointAt(self._config.group, self.term, index)
        return [(peer, message) for peer in self.replicator.reachable()]

    def _append_proposals(self) -> None:
        journal = self._journal
        for data, done in self.proposals.take():
            index = journal.last_index + 1
            journal.append(data, index, self.term)
            self.proposals.appended(index, done)

    def _nothing_to_say(self) -> bool:
        last = self._journal.last_index
        return (
            self._journal.applied_index == self._core.commit_index == last
            and not self.transfer_target
            and not self.proposals.queued
            and self.replicator.level()
        )
