"""Leader's term of a replica: state made when it wins the term, dropped when that ends.

    propose, confirm, transfer --> LeaderTerm --advance--> journal, messages to followers

Nothing in here outlives the term, so nothing of an earlier term can be counted in a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cluster.consensus.configuration import (
    ChangeRefusedError,
    ChangeStep,
    Configuration,
    ConfigurationChange,
    changed,
    pack_configuration,
)
from cluster.consensus.environment import Environment, GroupConfig
from cluster.consensus.message import (
    Append,
    AppendReply,
    CheckpointAt,
    GroupMessage,
    TimeoutNow,
    addressed,
)
from cluster.consensus.proposals import Done, Proposals
from cluster.consensus.quiescence import Quiescence
from cluster.consensus.raft import Raft
from cluster.consensus.replication import Replicator

TRANSFER_TIMEOUT = 2.0  # seconds that proposals wait for a transfer
WITHIN_ENTRIES = 1000  # a replica that a change makes, or leaves, a voter may lack so many


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
        env: Environment,
        up: Iterable[int],
    ) -> None:
        self.term = raft.core.term
        self.ready = False
        self.proposals = Proposals()
        self.quiescence = Quiescence(raft.core, env.clock)
        self.replicator = Replicator(
            config.group, self.term, raft.journal, raft.members, up, env.windows, env.reads
        )
        self._config = config
        self._clock = env.clock
        self._core = raft.core
        self._journal = raft.journal
        self._check = raft.check
        self._members = raft.members
        self._change_queued = False
        self.transfer_target = 0
        self._transfer_until = float("inf")
        self.is_leaving = False

    # -- queries ----------------------------------------------------------------------

    @property
    def next_due(self) -> float:
        """Returns when the next heartbeat is due or a transfer is given up."""
        return min(self._core.heartbeat_due, self._transfer_until)

    @property
    def can_quiesce(self) -> bool:
        if not self.quiescence.is_quiet or self.is_leaving:
            return False
        # A link may have broken since the quiet heartbeat: the linked peers must be enough.
        may_begin = self.quiescence.may_begin(map(self._replied_at, self.replicator.reachable()))
        return self.ready and may_begin and self.replicator.level()

    def quiesce(self) -> dict[int, float]:
        """Begins quiescence; returns the time of each reachable follower's last reply."""
        self.quiescence.begin()
        return {peer: self._replied_at(peer) for peer in self.replicator.reachable()}

    def unquiesce(self, replied_at: Mapping[int, float]) -> None:
        """Ends quiescence. replied_at: see `quiesce`."""
        self.quiescence.end()
        for peer, at in replied_at.items():
            progress = self.replicator.peers[peer]
            progress.replied_at = max(progress.replied_at, at)
            if peer in self._members.voters:
                self._core.note_reply(peer, at)

    def _replied_at(self, peer: int) -> float:
        """Returns when it last replied. The core counts the voters that do."""
        if peer in self._members.voters:
            return self._core.last_reply_at(peer)
        return self.replicator.peers[peer].replied_at

    def is_repeated(self, peer: int, message: GroupMessage) -> bool:
        """Whether the message only repeats the follower's acknowledgement of this term."""
        known = self.replicator.peers.get(peer)
        return (
            known is not None
            and isinstance(message, AppendReply)
            and (message.term, message.success) == (self.term, True)
            and message.next_index <= known.match + 1
            and message.version == known.version
            and message.to_instance == self._members.instance
            and self._members.is_member(peer, message.from_instance)
        )

    def follower_lag(self) -> dict[int, int]:
        """Returns how many entries each follower has not acknowledged."""
        last = self._journal.last_index
        return {peer: last - progress.match for peer, progress in self.replicator.peers.items()}

    def best_successor(self, up: Collection[int]) -> int:
        """Returns the voter with the longest matching log among those reachable; 0 if none."""
        peers = self.replicator.peers
        fit = [peer for peer in sorted(up) if self._knows_configuration(peer)]
        return max(fit, key=lambda peer: peers[peer].match, default=0)

    def _knows_configuration(self, peer: int) -> bool:
        """Whether it is a voter and has this leader's configuration in force.

        Otherwise it would have to wait for that before it may stand.
        """
        if peer not in self._members.voters:
            return False
        return self.replicator.peers[peer].version >= self._members.version

    # -- changes of the configuration -----------------------------------------------------

    def change(self, change: ConfigurationChange, done: Done) -> None:
        """Proposes the configuration after one step. Raises ChangeRefusedError.

        Only a leader that knows all commits proposes a change, one at a time. Two changes in
        progress may have majorities without a common replica.
        """
        now, journal = self._members.configuration, self._journal
        if not self.ready:
            raise ChangeRefusedError("the leader is not ready", now)
        if self.is_leaving:
            raise ChangeRefusedError("the leader has no vote, and hands over", now)
        if self._change_queued or journal.configurations[-1].index > journal.applied_index:
            raise ChangeRefusedError("another change is in progress", now)
        after = changed(now, change)
        if change.step is ChangeStep.PROMOTE:
            why_not = self.why_no_vote(change.node)
            if why_not:
                raise ChangeRefusedError(why_not, now)
        elif after.voters != now.voters:
            self._check_left(after)
        self.proposals.propose(pack_configuration(after), done)
        self._change_queued = True

    def why_no_vote(self, node: int) -> str:
        """Returns why a learner gets no vote now; empty: it may.

        It must be near the log's end and hold an entry of this term on its disk.
        """
        progress, now = self.replicator.peers.get(node), self._members.configuration
        assert progress is not None, "a learner has progress"
        if progress.unreadable:
            return f"node {node} cannot be filled, take the change back: {progress.unreadable}"
        if not self.is_responsive(node):
            return f"node {node} does not answer"
        behind = self._journal.last_index - progress.match
        own_term = (
            progress.match >= self._journal.base_index
            and self._journal.term_at(progress.match) == self.term
        )
        is_behind = not own_term or behind > WITHIN_ENTRIES or progress.version < now.version
        return f"node {node} is {behind} entries behind" if is_behind else ""

    def _check_left(self, after: Configuration) -> None:
        """Checks that a majority of the remaining voters answers and holds all committed entries.

        Otherwise nothing commits from then on, not even the change that would repair it: of {1, 2,
        3} with 2 dead, {1, 2} waits for 2 forever (etcd's strict reconfiguration check).
        """
        unfit = [one.node for one in after.voters if not self._is_fit(one.node)]
        if 2 * len(unfit) >= len(after.voters):
            text = f"of the voters that would be left, {unfit} do not answer or are behind"
            raise ChangeRefusedError(text, self._members.configuration)

    def _is_fit(self, node: int) -> bool:
        if node == self._members.node:
            return True
        if not self.is_responsive(node):
            return False  # or it is the lost one of two, and no peer any more
        return self._core.commit_index - self.replicator.peers[node].match <= WITHIN_ENTRIES

    def configuration_changed(self) -> None:
        """Takes the new configuration: sends to its replicas; its voters may lead next."""
        self.replicator.configuration_changed()
        if self.transfer_target and self.transfer_target not in self._members.voters:
            self._end_transfer()

    def leave(self) -> None:
        """Leads on without a vote of its own, until a successor can; takes nothing new."""
        self._end_transfer()
        self.is_leaving = True
        self._transfer_until = self._clock() + TRANSFER_TIMEOUT

    @property
    def has_left(self) -> bool:
        """Whether nobody took over in time, so that this replica must stop leading."""
        return self.is_leaving and self._clock() >= self._transfer_until

    def _end_transfer(self) -> int:
        self.transfer_target = 0
        self._transfer_until = float("inf")
        return 0

    @property
    def is_transferring(self) -> bool:
        """Whether leadership is being handed over; proposals wait meanwhile."""
        return self.is_leaving or self.transfer_target != 0

    def bare_heartbeats(self, up: Collection[int]) -> list[tuple[int, GroupMessage]]:
        alive = Append(self._config.group, self.term, 0, 0, 0)
        return [(peer, self._to(peer, alive)) for peer in self._members.peers if peer in up]

    def ask_successor(self, up: Collection[int]) -> list[tuple[int, GroupMessage]]:
        peer, ask = self.best_successor(up), TimeoutNow(self._config.group, self.term)
        return [(peer, self._to(peer, ask))] if peer else []

    def _to(self, peer: int, message: GroupMessage) -> GroupMessage:
        return addressed(message, self._members.instance, self._members.instance_of(peer))

    def is_responsive(self, peer: int) -> bool:
        """Whether it is linked and replied within an election timeout; true if quiescent."""
        if peer not in self.replicator.reachable():
            return False
        silent = self._clock() - self._replied_at(peer)
        return self.quiescence.begun or silent < self._config.election_timeout

    def transfer(self, target: int) -> None:
        """Hands leadership over once `target` has all entries; gives up after a while."""
        assert target, "node ids begin at 1"
        if not self.is_transferring and target in self._members.voters:
            self.transfer_target = target
            self._transfer_until = self._clock() + TRANSFER_TIMEOUT

    # -- one step ---------------------------------------------------------------------

    def advance(self) -> list[tuple[int, GroupMessage]]:
        """Appends the waiting proposals and returns the messages to send now."""
        out: list[tuple[int, GroupMessage]] = []
        target = self.transfer_target
        if self.is_leaving:
            target = self.best_successor(self.replicator.reachable())
        elif target and self._clock() >= self._transfer_until:
            target = self._end_transfer()
        if target:
            if self._may_take_over(target):
                out.append((target, TimeoutNow(self._config.group, self.term)))
        elif self.proposals.queued and not self.is_leaving:
            if self._check.is_due:
                out += self._plan_check()
            self._append_proposals()
        self.replicator.commit_index = min(self._core.commit_index, self._journal.durable_index)
        if self._core.send_due:
            self._core.send_due = False
            self.quiescence.heartbeat(nothing_to_say=self._nothing_to_say())
            out += self.replicator.heartbeats()
        elif self._config.notify_commits:
            out += self.replicator.pending_and_commits()
        else:
            out += self.replicator.pending()
        return out

    def _plan_check(self) -> list[tuple[int, GroupMessage]]:
        """Plans a comparison of all replicas' states at the entry that is appended next."""
        index = self._journal.last_index + 1
        self._check.plan(index)
        message = CheckpointAt(self._config.group, self.term, index)
        return [(peer, message) for peer in self.replicator.reachable()]

    def _may_take_over(self, target: int) -> bool:
        """Whether it has all entries and has applied the configuration: it may stand at once."""
        up_to_date = self._core.match_index(target) == self._journal.last_index
        return up_to_date and self._knows_configuration(target)

    def _append_proposals(self) -> None:
        journal, taken = self._journal, iter(self.proposals.take())
        try:
            for data, done, outlives_term in taken:
                index = journal.last_index + 1
                self.proposals.appending(index, done, outlives_term=outlives_term)
                journal.append(data, index, self.term)
        except BaseException:
            self.proposals.put_back(taken)  # the replica stops, and they are answered
            raise
        # A change may wait behind what is more than this slice.
        if self._change_queued and journal.configurations[-1].index > journal.applied_index:
            self._change_queued = False
            # After a restart the configuration before this one must be in force.
            journal.save_commit(self._core.commit_index)

    def _nothing_to_say(self) -> bool:
        last = self._journal.last_index
        return (
            self._journal.applied_index == self._core.commit_index == last
            and not self.transfer_target
            and not self.proposals.queued
            and self.replicator.level()
        )
