"""Replica of one Raft group: the interface of consensus to the rest of the node.

                         propose / confirm / transfer
                                     |
    driver --receive, tick--> Group: guard, core, election, replicator
                                |            |
                          out: messages      +--> StateMachine.apply, in log order

`advance` is the only place where a replica moves on. Its order is the argument for safety: first
the core learns from the peers' messages, then entries that are committed *and* durable here are
applied, then new entries are appended, then they are sent. Messages that promise something durable
stay in `out` until the driver's sync.

A broken invariant or damaged storage stops this replica (`failed` says why);
the node and its other groups go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any

from cluster.consensus.applying import Applying
from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.configuration import (
    ChangeRefusedError,
    Configuration,
    ConfigurationChange,
    Members,
)
from cluster.consensus.environment import Environment, GroupConfig, StateMachine
from cluster.consensus.journal import Journal
from cluster.consensus.leader_term import LeaderTerm
from cluster.consensus.message import GroupMessage, Message, Snapshot, StateChecksum
from cluster.consensus.outbox import Outbox
from cluster.consensus.port import LEADER, NO_OP, Core
from cluster.consensus.proposals import Abandoned, Done, Undecided
from cluster.consensus.raft import open_raft
from cluster.consensus.receiving import Receiver
from cluster.consensus.replication import FollowerProgress
from cluster.consensus.snapshots import Checked, base_reading, is_held, replace_by
from cluster.consensus.state_check import StateDivergedError
from cluster.consensus.survivor import is_survivor, who_else_decides
from cluster.consensus.tombstone import Tombstone, tombstone_of
from storage.checkpoints import CheckpointStore
from storage.errors import CorruptionError
from storage.raft_log import RaftLogStore

log = logging.getLogger(__name__)

# Seconds that callers wait for what the log decides once a term has ended; no request lasts longer
# by default. Without a majority their batches would count as memory in use for ever.
UNDECIDED = 60.0


def _alias(name: str) -> Any:
    return property(attrgetter(name))


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
        self.config = config
        self.machine = machine
        self.failed: BaseException | None = None
        self._outbox = Outbox()
        self.snapshots_due: list[int] = []
        self.scheduled_at = float("inf")  # the driver's: when it will look at us
        self.removed: Tombstone | None = None
        self._stores = (store, checkpoints)
        self._env = env
        self._up: set[int] = set()
        self._raft = open_raft(config, store, checkpoints, machine, env)
        self._receiver = Receiver(self._raft, self._env.clock, self._may_lead)
        self._applying = self._made_applying()
        if self.members.is_removed:
            self.removed = tombstone_of(self.members, self.core.term)
        self._leading: LeaderTerm | None = None
        self._undecided = Undecided()
        self._seen_term = self.core.term
        self._known_leader: tuple[object, int] = (None, 0)  # and its term

    # -- queries ------------------------------------------------------------------

    # Read in each round: a property over an attrgetter takes no call in Python.
    members: Members = _alias("_raft.members")
    journal: Journal = _alias("_raft.journal")
    core: Core = _alias("_raft.core")
    term: int = _alias("_raft.core.term")
    applied_index: int = _alias("_raft.journal.applied_index")
    checkpoints: Checkpoints = _alias("_raft.checkpoints")
    out: list[tuple[int, Message]] = _alias("_outbox.messages")

    @property
    def is_leader(self) -> bool:
        return self._leading is not None

    @property
    def is_ready(self) -> bool:
        """Whether it leads and has applied an entry of its own term: it knows all commits."""
        return self._leading is not None and self._leading.ready

    @property
    def leader_id(self) -> int:
        return 0 if self.failed else self._raft.core.leader_id

    @property
    def commit_index(self) -> int:
        """Returns the commit index, as far as it is also durable here."""
        raft = self._raft
        return min(raft.core.commit_index, raft.journal.durable_index)

    @property
    def entries_behind(self) -> int:
        """Returns how many entries that its leader knows to be committed are not applied here."""
        raft = self._raft
        return max(0, max(raft.guard.leader_commit, self.commit_index) - self.applied_index)

    @property
    def progress(self) -> Mapping[int, FollowerProgress]:
        """Returns each follower's progress, as this leader knows it; empty if not leading."""
        return {} if self._leading is None else self._leading.replicator.peers

    @property
    def is_transferring(self) -> bool:
        """Whether it leads and is about to hand the leadership over."""
        return self._leading is not None and self._leading.is_transferring

    def follower_lag(self) -> dict[int, int]:
        """Returns how many entries each follower has not acknowledged; empty if not leading."""
        return {} if self._leading is None else self._leading.follower_lag()

    def best_successor(self, wrong: Collection[int] = ()) -> int:
        """Returns the reachable follower with the longest log, except `wrong`; 0: none."""
        return 0 if self._leading is None else self._leading.best_successor(self._up - set(wrong))

    def bare_heartbeats(self) -> list[tuple[int, GroupMessage]]:
        """Returns heartbeats without entries; for a quiescent group its node sends them."""
        if self._leading is None or self.is_quiescent:
            return []
        return self._leading.bare_heartbeats(self._up)

    def give_leadership_away(self) -> list[tuple[int, GroupMessage]]:
        """Returns a request to a follower to stand for election, if this replica leads."""
        return [] if self._leading is None else self._leading.ask_successor(self._up)

    def is_responsive(self, peer: int) -> bool:
        """Whether it leads, and the peer is linked and replied within an election timeout."""
        return self._leading is not None and self._leading.is_responsive(peer)

    def why_no_vote(self, learner: int) -> str:
        """Returns why the leader gives the learner no vote now; empty: it may."""
        return "not the leader" if self._leading is None else self._leading.why_no_vote(learner)

    @property
    def is_stopped(self) -> bool:
        """Whether it takes no part any more: it failed, or was removed."""
        return self.failed is not None or self.removed is not None

    def next_due(self) -> float:
        """Returns the latest time for the next `tick`, by this node's clock."""
        if self.is_stopped or self.is_quiescent:
            return float("inf")
        core, leading = self._raft.core, self._leading
        if core.state != LEADER:
            return core.election_deadline
        return leading.next_due if leading and leading.is_transferring else core.heartbeat_due

    @property
    def has_work(self) -> bool:
        """Whether `advance` would move something on without a message or a timeout."""
        leading, core, journal = self._leading, self._raft.core, self._raft.journal
        alone = core.state == LEADER and self.members.is_alone
        return not self.is_stopped and (
            (leading is not None and leading.proposals.queued and not leading.is_transferring)
            or self._applying.has_work(self.commit_index)
            or core.commits_more
            # A lone leader's entries are committed by its next tick.
            or (alone and core.commit_index < journal.durable_index)
        )

    # -- requests -------------------------------------------------------------------

    def propose(self, data: bytes, done: Done, *, outlives_term: bool = False) -> None:
        """Appends an entry in the next advance. `done` is called once, always.

        outlives_term: if this node ceases to lead, the caller waits until the log decides.
        """
        if self._leading is not None:
            self._leading.proposals.propose(data, done, outlives_term=outlives_term)
        else:
            done(self._abandoned("not the leader", lost=True))

    def confirm(self, done: Done) -> None:
        """Calls `done` with Applied once an entry of this term committed after now."""
        if self._leading is not None:
            self._leading.proposals.confirm(done)
        else:
            done(self._abandoned("not the leader"))

    def feed(self, learner: int = 0) -> None:
        """Sends the learner, or 0: each, what is committed, in the next advance."""
        if self._leading is not None:
            self._leading.replicator.feed(learner)

    def campaign(self) -> None:
        """Calls an election at once, and soon again: the others may not be open yet."""
        if self._leading is None:
            self._raft.election.campaign(self._env.clock())

    def transfer(self, target: int) -> None:
        """Hands leadership over once `target` has all entries; gives up after a while."""
        if self._leading is not None:
            self._leading.transfer(target)

    def change(self, change: ConfigurationChange, done: Done) -> None:
        """Proposes one step of a change of the members; `done` gets the Configuration.

        Raises ChangeRefusedError, and nothing is changed.
        """
        if self._leading is None or not self._env.may_change():
            why = (
                "not the leader" if self._env.may_change() else "not all nodes support changes yet"
            )
            raise ChangeRefusedError(why, self.members.configuration)
        self._leading.change(change, done)

    def exclude_lost(self, gone: Collection[tuple[int, int]]) -> str:
        """Goes on without the other of two voters, if `gone` has its (node, instance).

        Returns why it waits; an empty reason: it goes on alone, or need not (survivor.py).
        """
        if self.is_stopped or self.is_quiescent or not is_survivor(self.members, gone):
            return ""
        waits_for = who_else_decides(self.members, self.journal.configurations)
        if not waits_for:
            log.warning("goes on alone partition=%s, of %s", self.name, self.members.configuration)
            self._raft.exclude_other()
            if self._leading is not None:
                self._leading.configuration_changed()
            self.campaign()
        return waits_for

    def checkpoint_early(self) -> None:
        """Saves before it is due: the node would replay too much at a start."""
        try:
            self.checkpoints.save()
        except Exception as error:  # noqa: BLE001 - any fault stops this replica only
            self.fail(error)

    # -- quiescence (see heartbeats.py) -------------------------------------------------

    @property
    def can_quiesce(self) -> bool:
        """Whether it leads, has nothing to say, and every reachable peer answered since."""
        can = self._leading is not None and self._leading.can_quiesce
        return can and not self.checkpoints.is_saving

    @property
    def is_quiescent(self) -> bool:
        return self._leading is not None and self._leading.quiescence.begun

    def quiesce(self) -> dict[int, float]:
        """Begins quiescence; returns the followers of its rows, each with its last reply."""
        assert self._leading is not None
        return self._leading.quiesce()

    def unquiesce(self, replied_at: Mapping[int, float]) -> None:
        """Ends quiescence, unless it failed meanwhile. See `quiesce`."""
        assert self.is_quiescent or self.failed is not None, "deposed before it was unquiesced"
        if self._leading is not None:
            self._leading.unquiesce(replied_at)

    def is_repeated(self, sender: int, message: GroupMessage) -> bool:
        """Whether a follower only repeats its acknowledgement of this term."""
        return self._leading is not None and self._leading.is_repeated(sender, message)

    def on_coalesced_heartbeat(self, now: float, sender: int, term: int, commit: int) -> bool:
        """Takes its row of a node's message. False: the sender must speak to this group itself."""
        if self.is_stopped or not self.core.follows(sender, term, commit):
            return False
        self._raft.election.on_coalesced_heartbeat(now)
        return True

    # -- calls by the driver ----------------------------------------------------------

    def set_link(self, peer: int, up: bool) -> None:
        """Notes that the stream to and from a peer came up or broke."""
        if up:
            self._up.add(peer)
        else:
            self._up.discard(peer)
        if self._leading is not None:
            self._leading.replicator.set_link(peer, up)
        elif not up and peer == self.core.leader_id and self.failed is None:
            self._raft.election.leader_lost(self._env.clock())

    def receive(self, sender: int, message: GroupMessage) -> None:
        """Takes one message; `advance` must follow."""
        if self.failed is not None or not self._env.takes_part():
            return
        try:
            self._receive(sender, message)
        except Exception as error:  # noqa: BLE001 - any fault stops this replica only
            self.fail(error)

    def advance(self) -> None:
        """Moves this replica on as far as it goes without waiting for disk or network."""
        assert not self.is_quiescent, "the driver unquiesces a group before it moves on"
        if self.is_stopped:
            return
        try:
            self._campaign_if_due()
            self._raft.core.tick()
            self._note_role()
            self._apply()
            if self._undecided:
                reason = self._abandoned("the log has not decided")
                self._undecided.end_waits(self._env.clock(), reason)
            self._lead()
        except Exception as error:  # noqa: BLE001 - any fault stops this replica only
            self.fail(error)

    def close(self, reason: str) -> None:
        """Answers all waiting callers. The group is not used afterwards."""
        self._end_leading(reason)

    # -- parts ------------------------------------------------------------------------

    def _receive(self, sender: int, message: GroupMessage) -> None:
        if self.removed is not None:
            answer: GroupMessage | None = self.removed.answer(message)
        elif message.to_instance != self.config.instance:
            return  # the message is for an older or a later replica
        else:
            answer = self._receiver.receive(sender, message, self._leading)
        self._outbox.answer(self._raft, sender, message, answer)
        self._note_role()

    def _campaign_if_due(self) -> None:
        now, core = self._env.clock(), self._raft.core
        if core.state == LEADER or now < core.election_deadline:
            return
        if not self._may_lead():
            self._raft.election.postpone(now)
            return
        polls = self._raft.election.on_deadline(now)
        self._send([(peer, poll) for poll in polls for peer in self.members.voters])

    def _send(self, messages: list[tuple[int, GroupMessage]]) -> None:
        self._outbox.send(self._raft, messages)

    def _made_applying(self) -> Applying:
        configure = self._apply_configuration
        return Applying(self.config.group, self._raft, self.machine, self._env, configure)

    def _may_lead(self) -> bool:
        may_lead = self._env.may_lead() and self._env.takes_part()
        return self.members.is_voter and self._raft.is_configured and may_lead

    def _note_role(self) -> None:
        """Collects the core's messages and notices that it began or ceased to lead."""
        core = self._raft.core
        if core.sent:
            self._outbox.take_sent(self._raft)
        known = (core.leader, core.term)
        if self._known_leader != known:
            self._known_leader = known
            self._env.leader_changed()
        led, leads, term = self._leading is not None, self._raft.leads, core.term
        if term == self._seen_term and leads == led:
            return
        self._seen_term = term
        if led:
            log.info("steps down partition=%s term=%d", self.name, term)
            self._end_leading("no longer the leader", goes_on=not self.members.is_removed)
            if self.members.is_removed:
                self._retire()
        if leads:
            self._leading = LeaderTerm(self.config, self._raft, self._env, self._up)
            log.info("leads partition=%s term=%d index=%d", self.name, term, self.applied_index)
        if led or leads:
            self.machine.on_role(leader=leads, ready=False, term=term)

    @property
    def name(self) -> str:
        return self.config.name or f"group-{self.config.group}"

    def _end_leading(self, reason: str, *, goes_on: bool = False) -> None:
        """Drops the state of the leader's term and answers all waiting callers.

        goes_on: this replica applies what others commit, so those that outlive the term wait.
        """
        ended, self._leading = self._leading, None
        self.snapshots_due.clear()
        abandoned = self._abandoned(reason)
        if ended is not None:
            ended.replicator.close()
            for index, done in ended.proposals.abandon(abandoned.leader_id, reason):
                self._undecided.add(index, ended.term, done, self._env.clock() + UNDECIDED)
        if not goes_on:
            self._undecided.abandon(abandoned)

    def _abandoned(self, reason: str, *, lost: bool = False) -> Abandoned:
        leader = self.leader_id
        return Abandoned(0 if leader == self.config.node_id else leader, reason, lost)

    def _apply(self) -> None:
        """Applies entries that are committed and durable, and answers their callers."""
        commit_index = self.commit_index
        if not self._applying.has_work(commit_index):
            return
        for index, data, result in self._applying.step(commit_index):
            if self._undecided:
                self._undecided.applied(index, self.journal.term_at(index), result)
            leading = self._leading
            if leading is None:
                continue
            if data == NO_OP and not leading.ready:
                self._note_ready(leading, index)
            leading.proposals.applied(index, result)
        said = self._raft.check.report(self.term)
        if said is not None:
            self._send([(peer, said) for peer in self.members.peers])

    def _note_ready(self, leading: LeaderTerm, index: int) -> None:
        """Notes an applied no-op: of its own term, or of an earlier one."""
        if self.journal.term_at(index) == leading.term:
            leading.ready = True
            self.machine.on_role(leader=True, ready=True, term=leading.term)

    def _apply_configuration(self, index: int) -> Configuration:
        """Puts a new configuration into force; log, term, votes and links stay (ADR 0029)."""
        raft = self._raft
        placed, members = raft.journal.configuration_at(index), raft.members
        assert placed.index == index
        raft.journal.save_commit(index)
        if index <= members.placed.index:
            return members.configuration  # it was in force before a restart
        assert placed.configuration.version == members.version + 1
        raft.configure(placed)
        log.info("configuration partition=%s index=%d %s", self.name, index, placed.configuration)
        if self._leading is not None:
            self._leading.configuration_changed()
            if not members.is_voter:
                self._leading.leave()
        elif members.is_removed:
            self._retire()
        return members.configuration

    def _retire(self) -> None:
        """Retires this removed replica: its tombstone answers from now on."""
        members, core = self.members, self._raft.core
        self.removed = tombstone_of(members, core.term)
        self._undecided.abandon(self._abandoned("this replica is removed"))
        core.follow()
        self._env.leader_changed()
        log.info("removed partition=%s index=%d", self.name, members.placed.index)
        notice = self.removed.removed(self.config.group)
        self._send([(peer, notice) for peer in members.voters])  # waiting peers need not ask

    def _step_back(self) -> None:
        """Stops leading, as this replica has no vote: it goes, or follows as a learner."""
        if self.members.is_removed:
            self._retire()
        else:
            self.core.follow()
            self._env.leader_changed()

    def _lead(self) -> None:
        if self._leading is not None and self._leading.has_left:
            goes_on = not self.members.is_removed
            self._end_leading("this replica votes no more", goes_on=goes_on)
            self.machine.on_role(leader=False, ready=False, term=self.term)
            self._step_back()
        if self._leading is not None:
            self._send(self._leading.advance())
            self.snapshots_due += self._leading.replicator.needs_snapshot()

    def fail(self, error: BaseException) -> None:
        """Stops this replica for good, at any time; the other replicas elect a leader."""
        if self.failed is not None:
            return
        text = "replica stopped partition=%s term=%d index=%d: %s"
        log.critical(text, self.name, self.term, self.applied_index, error, exc_info=error)
        self.failed = error
        if isinstance(error, StateDivergedError):
            self._raft.checkpoints.drop_from(error.index)
        # The other replicas also need this replica's checksum for their verdict.
        self._outbox.messages = [one for one in self.out if isinstance(one[1], StateChecksum)]
        self._end_leading("this replica has stopped")
        self._env.stopped(self.config.group)
        self.machine.on_role(leader=False, ready=False, term=self.core.term)

    # -- snapshots ----------------------------------------------------------------------

    def base_reading(self, peer: int) -> Callable[[], Snapshot]:
        """Reads the state exactly at the log's base, for `peer`, which is behind it."""
        return base_reading(self.config.group, self._raft, peer)

    def snapshot_sent(self, peer: int, index: int, installed: bool) -> None:
        if self._leading is not None:
            self._leading.replicator.on_snapshot_sent(peer, index, installed)

    def install(self, sender: int, checked: Checked) -> bool:
        """Replaces the log by a leader's snapshot; the driver reopens. False: it is stale.

        A log that holds its last entry stays: it may have acknowledged more. Raises SnapshotError
        if the snapshot is not sound; nothing is changed then.
        """
        snapshot = checked.snapshot
        if self.is_stopped or snapshot.term < self.core.term:
            return False
        held = is_held(self.config, self._raft, checked)
        if snapshot.term > self.core.term:
            self.core.see_term(snapshot.term, sender)
        self._note_role()
        if not held:
            replace_by(self._raft, snapshot, self.config.founding)
            self.machine.discard(self._env.batch())
            log.info("snapshot installed partition=%s term=%d index=%d", self.name,
                     snapshot.index_term, snapshot.index)  # fmt: skip
        return True

    def reopen(self, installed: Checked) -> None:
        """Reopens from the store, after an installed snapshot was written.

        An unreadable store stops this replica only.
        """
        self._end_leading("restarted from a snapshot")
        self.out.clear()
        try:
            known = (installed.snapshot.state, installed.loaded)
            self._raft = open_raft(self.config, *self._stores, self.machine, self._env, known)
        except CorruptionError as error:
            self.fail(error)
            return
        self._receiver = Receiver(self._raft, self._env.clock, self._may_lead)
        self._applying.close()
        self._applying = self._made_applying()
        if self.members.is_removed:
            self._retire()
        self._seen_term = self.core.term
