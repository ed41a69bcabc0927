"""One Raft group's replica: what the rest of the node sees of consensus.

                         propose / confirm / transfer
                                     |
    driver --receive, tick--> Group: guard, core, election, replicator
                                |            |
                          out: messages      +--> StateMachine.apply, in log order

`advance` is the one place where a replica moves on. Its order is the argument
for safety: first the core learns what peers said, then what is committed *and*
durable here is applied, then new entries are appended, then they are sent.
Messages that promise something durable stay in `out` until the driver's sync.

A broken invariant or damaged storage stops this replica (`failed` says why);
the node and its other groups go on.
"""

from __future__ import annotations

import logging

from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.election import Election
from cluster.consensus.environment import Environment, GroupConfig, StateMachine
from cluster.consensus.guard import Guard
from cluster.consensus.journal import Journal
from cluster.consensus.message import (
    Append,
    AppendReply,
    Message,
    PreVote,
    PreVoteReply,
    Snapshot,
    TimeoutNow,
    Vote,
    VoteReply,
)
from cluster.consensus.port import NO_OP, Core
from cluster.consensus.proposals import Abandoned, Done, Proposals
from cluster.consensus.quiescence import Rest
from cluster.consensus.replication import Replicator
from storage.checkpoints import CheckpointStore
from storage.raft_log import RaftLogStore

log = logging.getLogger(__name__)

MAX_APPLY_PER_ADVANCE = 512
TRANSFER_PATIENCE = 2.0  # seconds that proposals wait for a transfer


class Group:
    """One replica of one group. Not thread-safe: the driver's thread owns it."""

    def __init__(
        self,
        config: GroupConfig,
        store: RaftLogStore,
        checkpoints: CheckpointStore,
        machine: StateMachine,
        env: Environment,
    ) -> None:
        self.config, self.machine = config, machine
        self.failed: BaseException | None = None
        self.out: list[tuple[int, Message]] = []
        self.snapshots_due: list[int] = []
        self.scheduled_at = float("inf")  # the driver's: when it will look at us
        self._store, self._checkpoint_store, self._env = store, checkpoints, env
        self._up: set[int] = set()
        self._proposals = Proposals()
        self._transfer: tuple[int, float] | None = None
        self._known_leader = (0, 0)  # and its term
        self._open()

    def _open(self) -> None:
        """Builds journal, core and the parts around it from what is stored."""
        config, env = self.config, self._env
        self.journal = Journal(self._store, env.batch, tail_bytes=env.tail_bytes)
        self._checkpoints = Checkpoints(
            self._checkpoint_store,
            self.journal,
            env.batch,
            self.machine.dump,
            env.replay,
            group=config.group,
            every_bytes=config.checkpoint_bytes,
            every_entries=config.checkpoint_entries,
        )
        newest = self._checkpoints.newest()
        if newest is not None:
            self.journal.applied_index = newest[0]
        assert self.journal.base_index <= self.journal.applied_index <= self.journal.last_index
        self.machine.restore(newest[1] if newest else None, self.journal.applied_index)
        low = config.election_timeout
        self.core = Core(
            config.node_id,
            config.peers,
            self.journal,
            applied=self.journal.applied_index,
            clock=env.clock,
            rng=env.rng,
            election_timeout=(low, 2 * low),
            heartbeat=config.heartbeat,
        )
        self._guard = Guard(config.group, self.core, self.journal, config.peers)
        self._election = Election(
            config.group,
            self.core,
            self.journal,
            config.peers,
            timeout=low,
            rng=env.rng,
        )
        self._replicator: Replicator | None = None
        self._role, self._ready = (False, self.core.term), False
        self._rest = Rest(self.core, env.clock)

    # -- what others ask ----------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader and self.failed is None

    @property
    def is_ready(self) -> bool:
        """Leads, and has applied an entry of its own term: knows all that is committed."""
        return self._ready and self.is_leader

    @property
    def leader_id(self) -> int:
        return 0 if self.failed else self.core.leader_id

    @property
    def term(self) -> int:
        return self.core.term

    @property
    def commit_index(self) -> int:
        """Committed, as far as it is also durable here."""
        return min(self.core.commit_index, self.journal.durable_index)

    @property
    def applied_index(self) -> int:
        return self.journal.applied_index

    def follower_lag(self) -> dict[int, int]:
        """Entries that each follower has not acknowledged; empty if not leading."""
        if self._replicator is None:
            return {}
        last = self.journal.last_index
        return {peer: last - progress.match for peer, progress in self._replicator.peers.items()}

    def next_due(self) -> float:
        """When `tick` must be called at the latest, by this node's clock."""
        if self.failed is not None or self.at_rest:
            return float("inf")
        if not self.core.is_leader:
            return self.core.election_deadline
        until = float("inf") if self._transfer is None else self._transfer[1]
        return min(self.core.heartbeat_due, until)

    @property
    def has_work(self) -> bool:
        """Whether `advance` would move something on without a message or a timeout."""
        return self.failed is None and (
            # While leadership is handed over proposals wait: for a message or a timeout.
            (self._proposals.queued and self._transfer is None)
            or self.journal.applied_index < self.commit_index
            # A lone node's entries are committed by its next tick.
            or (not self.config.peers and self.core.commit_index < self.journal.durable_index)
        )

    # -- what others want -----------------------------------------------------------

    def propose(self, data: bytes, done: Done) -> None:
        """Appends an entry in the next advance. `done` is called once, always."""
        if not self.is_leader:
            done(self._abandoned("not the leader"))
        else:
            self._proposals.propose(data, done)

    def confirm(self, done: Done) -> None:
        """Calls `done` with Applied once an entry of this term committed after now."""
        if not self.is_leader:
            done(self._abandoned("not the leader"))
        else:
            self._proposals.confirm(done)

    def campaign(self) -> None:
        """Stands for election at once, and soon again: the others may not be open yet."""
        if not self.core.is_leader:
            self._election.stand_now(self._env.clock())

    def transfer(self, target: int) -> None:
        """Hands leadership over once `target` has all entries; gives up after a while."""
        assert target in self.config.peers
        if self.is_leader and self._transfer is None:
            self._transfer = (target, self._env.clock() + TRANSFER_PATIENCE)

    def best_successor(self) -> int:
        """The follower with the longest matching log among those reachable; 0 if none."""
        if self._replicator is None or not self._up:
            return 0
        peers = self._replicator.peers
        return max(sorted(self._up), key=lambda peer: peers[peer].match)

    def hears(self, peer: int) -> bool:
        """Whether the follower answered within an election timeout; else nobody is at rest."""
        now, timeout = self._env.clock(), self.config.election_timeout
        return self.at_rest or now - self.core.heard_at(peer) < timeout

    def compact(self, limit: int) -> None:
        """Drops the log's head up to the newest checkpoint at or below `limit`."""
        self._checkpoints.compact(limit)

    def checkpoint(self) -> None:
        """Saves the state at the applied index, so that a restart replays less."""
        self._checkpoints.save()

    def relieve(self) -> None:
        """The node has too much to apply again at a start: saves before it is due."""
        try:
            self.checkpoint()
        except Exception as error:  # noqa: BLE001 - any fault stops this replica only
            self.fail(error)

    # -- rest (see heartbeats.py) -------------------------------------------------------

    @property
    def wants_rest(self) -> bool:
        """Leads, has nothing to say, and everybody reachable has answered to that."""
        replicator = self._replicator
        return (
            replicator is not None and self.is_ready and self._rest.wanted(replicator.reachable())
        )

    @property
    def at_rest(self) -> bool:
        return self._rest.begun

    def lie_down(self) -> dict[int, float]:
        """Returns the followers that hear of it through others, and when each was heard."""
        assert self._replicator is not None
        return self._rest.begin(self._replicator.reachable())

    def get_up(self, heard: dict[int, float]) -> None:
        """Goes on by itself. heard: when followers answered."""
        self._rest.end(heard)

    def heard_at_rest(self, now: float, sender: int, term: int, commit: int) -> bool:
        """Its leader's word through a coalesced heartbeat. False: we see it otherwise."""
        if self.failed is not None or not self.core.follows(sender, term, commit):
            return False
        self._election.heard_at_rest(now)
        return True

    # -- what the driver calls --------------------------------------------------------

    def set_link(self, peer: int, up: bool) -> None:
        """The stream to and from a peer came up or broke."""
        if up:
            self._up.add(peer)
        else:
            self._up.discard(peer)
        if self._replicator is not None:
            self._replicator.set_link(peer, up)
        elif not up and peer == self.core.leader_id and self.failed is None:
            self._election.leader_lost(self._env.clock())

    def receive(self, sender: int, message: Message) -> None:
        """Takes one message; `advance` must follow."""
        if self.failed is not None:
            return
        try:
            self._receive(sender, message)
        except Exception as error:  # noqa: BLE001 - any fault stops this replica only
            self.fail(error)

    def advance(self) -> None:
        """Moves this replica on as far as it goes without waiting for disk or network."""
        assert not self.at_rest, "the driver wakes a group before it moves on"
        if self.failed is not None:
            return
        try:
            self._stand_for_election()
            self.core.tick()
            self._note_role()
            self._apply()
            self._append_proposals()
            self._replicate()
        except Exception as error:  # noqa: BLE001 - any fault stops this replica only
            self.fail(error)

    def close(self, reason: str) -> None:
        """Answers everybody who waits. The group is not used afterwards."""
        self._abandon(reason)

    # -- parts ------------------------------------------------------------------------

    def _receive(self, sender: int, message: Message) -> None:
        now = self._env.clock()
        match message:
            case Append():
                if message.term >= self.core.term:
                    self._election.heard_from_leader(now)
                self.out.append((sender, self._guard.append(sender, message)))
            case AppendReply():
                if self._guard.append_reply(sender, message) and self._replicator is not None:
                    self._replicator.on_reply(sender, message)
            case Vote():
                self._guard.vote(sender, message)
            case VoteReply():
                self._guard.vote_reply(sender, message)
            case PreVote():
                reply = self._election.on_pre_vote(now, sender, message)
                if reply is not None:
                    self.out.append((sender, reply))
            case PreVoteReply():
                if self._election.on_pre_vote_reply(sender, message):
                    self._election.begin(now)
            case TimeoutNow():
                if message.term == self.core.term and sender == self.core.leader_id:
                    self._election.begin(now)
            case _:
                raise AssertionError(f"not a message for a group: {message!r}")
        self._note_role()

    def _stand_for_election(self) -> None:
        now = self._env.clock()
        if self.core.is_leader or now < self.core.election_deadline:
            return
        polls = self._election.on_deadline(now)
        self.out += [(peer, poll) for poll in polls for peer in self.config.peers]

    def _note_role(self) -> None:
        """Collects what the core sent and notices that it began or ceased to lead."""
        for peer, raw in self.core.take_sent():
            message = self._guard.outbound(raw)
            if message is not None:
                self.out.append((peer, message))
        if self._known_leader != (self.leader_id, self.term):
            self._known_leader = (self.leader_id, self.term)
            self._env.leader_changed()
        role = (self.core.is_leader, self.core.term)
        if role == self._role:
            return
        led, (leads, term) = self._role[0], role
        self._role, config = role, self.config
        # What was to be acknowledged in an older term may be replaced before it is synced.
        self.out = [one for one in self.out if not _is_ack_before(term, one[1])]
        if led:
            self._step_down()
        if leads:
            self._rest = Rest(self.core, self._env.clock)
            self._replicator = Replicator(
                config.group, term, self.journal, config.peers, self._up, lambda: self.commit_index
            )
            log.info("leads partition=%s term=%d index=%d", self.name, term, self.applied_index)
        if led or leads:
            self.machine.on_role(leader=leads, ready=False, term=term)

    @property
    def name(self) -> str:
        return self.config.name or f"group-{self.config.group}"

    def _step_down(self) -> None:
        log.info("steps down partition=%s term=%d", self.name, self.core.term)
        self._replicator = None
        self._ready = False
        self._transfer = None
        self._abandon("no longer the leader")

    def _abandon(self, reason: str) -> None:
        self._proposals.abandon(self._abandoned(reason))

    def _abandoned(self, reason: str) -> Abandoned:
        leader = self.leader_id
        return Abandoned(0 if leader == self.config.node_id else leader, reason)

    def _apply(self) -> None:
        """Runs what is committed and durable through the state machine, in order."""
        journal = self.journal
        stop = min(self.commit_index, journal.applied_index + MAX_APPLY_PER_ADVANCE)
        while journal.applied_index < stop:
            index = journal.applied_index + 1
            data, term = journal.entry(index), journal.term_at(index)
            result: object = None
            if data != NO_OP:
                result = self.machine.apply(index, term, data, self._env.batch())
            journal.applied_index = index
            self._checkpoints.applied(len(data))
            if data == NO_OP and not self._ready and self.core.is_leader and term == self.core.term:
                self._ready = True
                self.machine.on_role(leader=True, ready=True, term=term)
            self._proposals.applied(index, result)
        self._checkpoints.save_if_due()

    def _append_proposals(self) -> None:
        if not self.core.is_leader or self._is_transferring():
            return
        journal, term = self.journal, self.core.term
        for data, done in self._proposals.take():
            index = journal.last_index + 1
            journal.append(data, index, term)
            self._proposals.appended(index, done)

    def _is_transferring(self) -> bool:
        if self._transfer is None:
            return False
        target, until = self._transfer
        if self._env.clock() >= until:
            self._transfer = None
            return False
        if self.core.match_index(target) == self.journal.last_index:
            self.out.append((target, TimeoutNow(self.config.group, self.core.term)))
        return True

    def _replicate(self) -> None:
        replicator = self._replicator
        if replicator is None:
            return
        if self.core.send_due:
            self.core.send_due = False
            self._rest.heartbeat(nothing_to_say=self._nothing_to_say(replicator))
            self.out += replicator.heartbeats()
        else:
            self.out += replicator.pending()
            if self.config.tell_commits:
                self.out += replicator.commit_news()
        self.snapshots_due += replicator.needs_snapshot()

    def _nothing_to_say(self, replicator: Replicator) -> bool:
        last = self.journal.last_index
        return (
            self.journal.applied_index == self.core.commit_index == last
            and self._transfer is None
            and not self._proposals.queued
            and replicator.level()
        )

    def fail(self, error: BaseException) -> None:
        """Stops this replica for good; the others elect a leader among themselves."""
        if self.failed is not None:
            return
        text = "replica stopped partition=%s term=%d index=%d: %s"
        log.critical(text, self.name, self.term, self.applied_index, error, exc_info=error)
        self.failed = error
        self._env.replay.leave(self.config.group)
        self.out.clear()
        self._replicator = None
        self._ready = False
        self._abandon("this replica has stopped")
        self.machine.on_role(leader=False, ready=False, term=self.core.term)

    # -- snapshots ----------------------------------------------------------------------

    def base_snapshot(self) -> Snapshot:
        """The state exactly at the log's base, for a follower that is behind it.

        Raises storage.CorruptionError, or StorageError while it is not written yet.
        """
        return Snapshot(self.config.group, self.term, *self._checkpoints.base())

    def snapshot_sent(self, peer: int, index: int, installed: bool) -> None:
        if self._replicator is not None and peer in self._replicator.peers:
            self._replicator.on_snapshot_sent(peer, index, installed)

    def install(self, sender: int, snapshot: Snapshot) -> bool:
        """Replaces log and state by a leader's snapshot; the driver syncs. False: it is stale.

        A log that holds its last entry keeps all it has: it may have acknowledged more.
        """
        if self.failed is not None or snapshot.term < self.core.term:
            return False
        if snapshot.term > self.core.term:
            self.core.see_term(snapshot.term, sender)
        self._note_role()
        journal, index, term = self.journal, snapshot.index, snapshot.index_term
        if index <= journal.applied_index:
            return True
        if index <= journal.last_index and journal.term_at(index) == term:
            return True
        self._checkpoints.replace(index, term, snapshot.state)
        self.machine.discard(self._env.batch())
        journal.reset(index, term)
        log.info("snapshot installed partition=%s term=%d index=%d", self.name, term, index)
        return True

    def reopen(self) -> None:
        """Begins anew from the store, after an installed snapshot was written."""
        self._abandon("restarted from a snapshot")
        self.out.clear()
        self.failed = None
        self._open()


def _is_ack_before(term: int, message: Message) -> bool:
    return isinstance(message, AppendReply) and message.term < term
