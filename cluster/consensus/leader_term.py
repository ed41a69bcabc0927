"""What a replica has only while it leads: made when it wins a term, dropped when that ends.

    propose, confirm, transfer --> LeaderTerm --advance--> journal, messages to followers

Nothing in here outlives the term, so nothing of an earlier one can be counted in a later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from cluster.consensus.environment import GroupConfig
from cluster.consensus.message import Message, TimeoutNow
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
    commit: returns the index that followers may take as committed.
    """

    def __init__(
        self,
        config: GroupConfig,
        raft: Raft,
        clock: Clock,
        up: Iterable[int],
        commit: Callable[[], int],
    ) -> None:
        self.term, self.ready = raft.core.term, False
        self.proposals = Proposals()
        self.quiescence = Quiescence(raft.core, clock)
        self.replicator = Replicator(
            config.group, self.term, raft.journal, config.peers, up, commit
        )
        self._config, self._clock = config, clock
        self._core, self._journal = raft.core, raft.journal
        self._transfer: tuple[int, float] | None = None

    # -- what the group asks ----------------------------------------------------------

    @property
    def next_due(self) -> float:
        """When the next heartbeat is due, or a transfer is given up."""
        until = float("inf") if self._transfer is None else self._transfer[1]
        return min(self._core.heartbeat_due, until)

    @property
    def is_transferring(self) -> bool:
        return self._transfer is not None

    @property
    def has_work(self) -> bool:
        """While leadership is handed over proposals wait: for a message or a timeout."""
        return self.proposals.queued and self._transfer is None

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
        if self._transfer is None:
            self._transfer = (target, self._clock() + TRANSFER_TIMEOUT)

    # -- one step ---------------------------------------------------------------------

    def advance(self) -> list[tuple[int, Message]]:
        """Appends what was proposed, and returns what is to be sent now."""
        out: list[tuple[int, Message]] = []
        target = self._transfer_target()
        if not target:
            self._append_proposals()
        elif self._core.match_index(target) == self._journal.last_index:
            out.append((target, TimeoutNow(self._config.group, self.term)))
        if self._core.send_due:
            self._core.send_due = False
            self.quiescence.heartbeat(nothing_to_say=self._nothing_to_say())
            out += self.replicator.heartbeats()
        else:
            out += self.replicator.pending()
            if self._config.notify_commits:
                out += self.replicator.commit_notices()
        return out

    def _append_proposals(self) -> None:
        journal = self._journal
        for data, done in self.proposals.take():
            index = journal.last_index + 1
            journal.append(data, index, self.term)
            self.proposals.appended(index, done)

    def _transfer_target(self) -> int:
        """Who is to lead next; 0: nobody, or it took too long."""
        if self._transfer is None:
            return 0
        target, until = self._transfer
        if self._clock() >= until:
            self._transfer = None
            return 0
        return target

    def _nothing_to_say(self) -> bool:
        last = self._journal.last_index
        return (
            self._journal.applied_index == self._core.commit_index == last
            and self._transfer is None
            and not self.proposals.queued
            and self.replicator.level()
        )
