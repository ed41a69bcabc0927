"""Mutations of consensus and storage: bugs that Raft and a disk must not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import cluster.consensus.driver as driver_module
import cluster.consensus.group as group_module
import cluster.consensus.message as message_module
from cluster.consensus.applying import Applying
from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.driver import Driver
from cluster.consensus.election import Election
from cluster.consensus.group import Group
from cluster.consensus.guard import Guard
from cluster.consensus.journal import Journal
from cluster.consensus.leader_term import LeaderTerm
from cluster.consensus.message import AppendReply, Snapshot, VoteReply
from cluster.consensus.port import Core
from cluster.consensus.proposals import Abandoned, Applied, Undecided
from cluster.consensus.replication import Replicator
from cluster.consensus.snapshots import Checked, is_held
from cluster.consensus.state_check import StateCheck
from cluster.node.health.sync_watch import SyncWatch
from cluster.node.leadership.preferred_leader import PreferredLeader
from cluster.partition.replica import Partition
from cluster.transport import frames
from cluster.transport.frames import size_of
from cluster.transport.send_queue import SendQueue
from storage.errors import StorageError, StorageFullError
from storage.kv import Family
from tests.sim.mutations import mutation

# -- callers that outlive a term --------------------------------------------------------------


@mutation("what a deposed leader appended is told as lost before the log decides")
def lost_with_the_term() -> Any:
    def add(self: Undecided, index: int, term: int, done: Any, until: float) -> None:
        done(Abandoned(0, "no longer the leader", lost=True))

    return [(Undecided, "add", add)]


@mutation("another leader's entry at the same index answers for the own one")
def any_term_decides() -> Any:
    def applied(self: Undecided, index: int, term: int, result: object) -> None:
        for _, done in self._waiting.pop(index, ()):
            done(Applied(index, result))

    return [(Undecided, "applied", applied)]


@mutation("those who wait for the log are forgotten with the term")
def forgotten_with_the_term() -> Any:
    return [(Undecided, "add", lambda self, index, term, done, until: None)]


# -- followers' appends ---------------------------------------------------------------------


@mutation("a follower truncates behind the previous entry without a conflict")
def truncate_without_conflict() -> Any:
    def matching_prefix(self: Guard, message: Any) -> int:
        journal = self._journal
        keep = max(journal.applied_index, self._core.commit_index) - message.prev_index
        return int(min(max(0, keep), len(message.terms)))

    return [(Guard, "_matching_prefix", matching_prefix)]


@mutation("a heartbeat raises the commit index without a log match")
def commit_without_match() -> Any:
    def heartbeat(self: Guard, sender: int, message: Any, *, verified: int) -> None:
        commit = max(self._core.commit_index, message.commit)
        self._core.deliver(
            sender, {"type": "append_entries", "term": message.term, "commit_index": commit}
        )

    return [(Guard, "_heartbeat", heartbeat), _commit_in_every_heartbeat()]


def _commit_in_every_heartbeat() -> tuple[Any, str, Any]:
    """Makes the core's leaders tell the commit index always."""
    empty = Replicator._empty

    def with_commit(self: Replicator, progress: Any) -> Any:
        return empty(self, progress)._replace(commit=self.commit_index)

    return (Replicator, "_empty", with_commit)


@mutation("the commit index is capped at the own last entry, not at the last one proven")
def commit_beyond_the_new_entries() -> Any:
    append = Guard.append

    def with_all(self: Guard, sender: int, message: Any) -> Any:
        reply = append(self, sender, message)
        if reply.success and message.commit > self._core.commit_index and message.prev_index:
            self._heartbeat(sender, message, verified=self._journal.last_index)
        return reply

    return [(Guard, "append", with_all)]


@mutation("appends of an older term are taken")
def stale_appends() -> Any:
    append = Guard.append

    def with_stale(self: Guard, sender: int, message: Any) -> Any:
        if message.term < self._core.term and not self._core.is_leader:
            message = message._replace(term=self._core.term)
        return append(self, sender, message)

    return [(Guard, "append", with_stale)]


@mutation("the previous entry's term is not compared")
def no_log_matching() -> Any:
    def mismatch(self: Guard, message: Any) -> int:
        last = self._journal.last_index
        return int(last + 1 if message.prev_index > last else 0)

    return [(Guard, "_mismatch", mismatch)]


@mutation("what peers send is taken without a look at its checksums")
def frames_not_compared() -> Any:
    return [(frames, "_is_intact", lambda data, checksum: True)]


@mutation("replicas do not compare their states")
def states_not_compared() -> Any:
    return [(StateCheck, "note", lambda self, node, index, checksum: None)]


@mutation("a replica whose state is wrong keeps its checkpoints of it")
def wrong_checkpoints_kept() -> Any:
    return [(Checkpoints, "drop_from", lambda self, index: None)]


# -- acknowledgements and votes ----------------------------------------------------------------


@mutation("acknowledgements of an earlier term are counted")
def acks_without_term() -> Any:
    append_reply = Guard.append_reply

    def without_term(self: Guard, sender: int, message: Any) -> bool:
        if message.term < self._core.term:
            last = self._journal.last_index + 1
            message = message._replace(
                term=self._core.term, next_index=min(message.next_index, last)
            )
        return append_reply(self, sender, message)

    return [(Guard, "append_reply", without_term)]


@mutation("votes of an earlier term are counted")
def votes_without_term() -> Any:
    vote_reply = Guard.vote_reply

    def without_term(self: Guard, sender: int, message: Any) -> None:
        vote_reply(self, sender, replace(message, term=self._core.term))

    return [(Guard, "vote_reply", without_term)]


@mutation("a vote that arrives twice counts twice")
def votes_without_voter() -> Any:
    vote_reply = Guard.vote_reply

    def without_voter(self: Guard, sender: int, message: Any) -> None:
        self._voters.discard(sender)
        vote_reply(self, sender, message)

    return [(Guard, "vote_reply", without_voter)]


@mutation("a replica votes for candidates whose log is behind its own")
def votes_for_short_logs() -> Any:
    vote, on_pre_vote = Guard.vote, Election.on_pre_vote

    def longest(message: Any) -> Any:
        return replace(message, last_index=1 << 40, last_term=1 << 40)

    def for_all(self: Guard, sender: int, message: Any) -> None:
        vote(self, sender, longest(message))

    def poll(self: Election, now: float, sender: int, message: Any) -> Any:
        return on_pre_vote(self, now, sender, longest(message))

    return [(Guard, "vote", for_all), (Election, "on_pre_vote", poll)]


@mutation("a restarted replica does not know whom it voted for")
def vote_forgotten() -> Any:
    def set_hard_state(self: Journal, term: int, voted_for: int) -> None:
        self.term, self.voted_for = term, voted_for
        self._store.put_hard_state(self._batch(), term, 0)
        self.dirty = True

    return [(Journal, "set_hard_state", set_hard_state)]


@mutation("term and vote are not stored at all")
def hard_state_not_stored() -> Any:
    def set_hard_state(self: Journal, term: int, voted_for: int) -> None:
        self.term, self.voted_for = term, voted_for

    return [(Journal, "set_hard_state", set_hard_state)]


@mutation("entries of earlier terms are committed by counting (figure 8 of the Raft paper)")
def old_terms_by_counting() -> Any:
    tick = Core.tick

    def counting(self: Core) -> None:
        tick(self)
        if self.is_leader:
            held = sorted(self.match_index(peer) for peer in self._nodes)
            everywhere = held[len(held) // 2]
            if everywhere > self.commit_index:
                self._SyncObj__raftCommitIndex = everywhere

    return [(Core, "tick", counting)]


# -- stable storage ------------------------------------------------------------------------------


@mutation("nothing is ever synced")
def no_fsync() -> Any:
    return [(Driver, "sync", lambda self: None)]


@mutation("a leader counts its own entries before its fsync")
def commit_before_own_fsync() -> Any:
    counted = property(lambda self: self.core.commit_index)
    return [(Core, "_commit_durable", lambda self, known: None), (Group, "commit_index", counted)]


@mutation("an entry of its term that a leader has not synced commits those of earlier terms")
def old_terms_by_unsynced() -> Any:
    return [(Core, "_commit_durable", lambda self, known: None)]


@mutation("followers acknowledge before their fsync")
def acks_before_fsync() -> Any:
    durable = tuple(kind for kind in message_module.DURABLE if kind is not AppendReply)
    return [(driver_module, "DURABLE", durable)]


@mutation("votes leave before term and vote are on disk")
def votes_before_fsync() -> Any:
    durable = tuple(kind for kind in message_module.DURABLE if kind is not VoteReply)
    return [(driver_module, "DURABLE", durable)]


@mutation("a failed fsync is logged and forgotten")
def fsync_error_ignored() -> Any:
    sync = Driver.sync

    def tolerant(self: Driver) -> None:
        try:
            sync(self)
        except StorageError:
            return

    return [(Driver, "sync", tolerant)]


@mutation("a write that found the disk full is dropped")
def full_disk_ignored() -> Any:
    def write(self: Driver) -> bool:
        try:
            self._kv.write(self.batch)
        except StorageFullError:
            pass
        self.batch = self._kv.batch()
        return True

    return [(Driver, "_write", write)]


@mutation("the journal is trimmed by clearing and rewriting it")
def trim_by_rewrite() -> Any:
    trim_to = Journal.trim_to

    def rewrite(self: Journal, index: int) -> None:
        kept = self.entries(index + 1, self.last_index) if index < self.last_index else []
        kv, clear = self._store._kv, self._store._kv.batch()
        prefix = self._store._prefix
        clear.delete_range(Family.ENTRIES, prefix, prefix + b"\xff" * 9)
        kv.write(clear)
        trim_to(self, index)
        for position, data in enumerate(kept):
            self._store.put_entry(self._batch(), index + 1 + position, data)

    return [(Journal, "trim_to", rewrite)]


@mutation("a restarted replica trusts all of its log to be committed")
def commit_trusted_after_restart() -> Any:
    return [(Journal, "getRaftCommitIndex", lambda self: self.last_index)]


@mutation("the log is trimmed beyond the newest checkpoint")
def trim_beyond_checkpoint() -> Any:
    def compact(self: Checkpoints, limit: int) -> None:
        limit = min(limit, self._journal.applied_index)
        if limit > self._journal.base_index:
            self._journal.trim_to(limit)

    return [(Checkpoints, "compact", compact)]


@mutation("the log is trimmed up to a checkpoint that nobody has loaded")
def trim_unchecked() -> Any:
    def compact(self: Checkpoints, limit: int) -> None:
        self._trim([index for index in self.indexes if index <= limit])

    return [(Checkpoints, "compact", compact)]


@mutation("a checkpoint is saved under the index before its own")
def checkpoint_off_by_one() -> Any:
    def save(self: Checkpoints) -> None:
        index = self._journal.applied_index - 1
        if index <= self._journal.base_index or (self.indexes and self.indexes[-1] >= index):
            return
        term, state = self._journal.term_at(index), b"".join(self._pieces())
        self.saved = index, self._store.put(self._batch(), index, term, state)
        self.indexes.append(index)
        self._saved_bytes, self._entries = self.applied_bytes, 0
        self.due = False

    return [(Checkpoints, "save", save)]


@mutation("an older snapshot replaces a newer log")
def stale_snapshot_installed() -> Any:
    def install(self: Group, sender: int, checked: Checked) -> bool:
        snapshot = checked.snapshot
        if snapshot.term < self.core.term:
            return False
        self._raft.checkpoints.replace(snapshot.index, snapshot.index_term, snapshot.state)
        self.machine.discard(self._env.batch())
        self.journal.reset(snapshot.index, snapshot.index_term, self.config.founding)
        return True

    return [(Group, "install", install)]


@mutation("a snapshot is installed as it came, sound or not")
def snapshot_not_checked() -> Any:
    def believed(config: Any, raft: Any, checked: Checked) -> bool:
        return bool(checked.snapshot.index <= raft.journal.applied_index)

    return [(group_module, "is_held", believed), _loaded_by_the_reopening()]


def _loaded_by_the_reopening() -> Any:
    reopen = Group.reopen

    def from_the_store(self: Group, checked: Checked) -> None:
        reopen(self, replace(checked, snapshot=replace(checked.snapshot, state=b"")))

    return (Group, "reopen", from_the_store)


@mutation("a snapshot's checksum is believed to be enough")
def snapshot_not_loaded_first() -> Any:
    def believed(config: Any, raft: Any, checked: Checked) -> bool:
        return is_held(config, raft, replace(checked, loaded=None))

    return [(group_module, "is_held", believed), _loaded_by_the_reopening()]


@mutation("a snapshot is compared with the log as it was when the snapshot came")
def snapshot_judged_as_it_came() -> Any:
    check = Driver.check
    held: dict[int, bool] = {}

    def at_once(self: Driver, snapshot: Snapshot, done: Any) -> None:
        held[id(snapshot)] = snapshot.index <= self.groups[snapshot.group].applied_index
        check(self, snapshot, done)

    def believed(config: Any, raft: Any, checked: Checked) -> bool:
        return held.pop(id(checked.snapshot))

    return [(Driver, "check", at_once), (group_module, "is_held", believed)]


@mutation("a leader at rest that begins anew from a snapshot still rests")
def rest_outlives_a_snapshot() -> Any:
    install = Driver.install

    def sleepy(self: Driver, sender: int, checked: Checked) -> bool:
        with mock.patch.object(self._heartbeats, "unquiesce"):
            return install(self, sender, checked)

    return [(Driver, "install", sleepy)]


@mutation("a slice takes for durable what the slice before wrote")
def slice_not_synced() -> Any:
    def is_safe(self: Driver, group: Group) -> bool:
        journal = group.journal
        return not journal.dirty and journal.durable_index >= journal.last_index

    return [(Driver, "_is_safe", is_safe)]


@mutation("what a slice was to acknowledge is said though a later one replaced it")
def slice_acknowledged_after_all() -> Any:
    return [(Driver, "_stands", lambda self, message: True)]


@mutation("a leader that can reach nobody rests")
def rest_without_majority() -> Any:
    def can_quiesce(self: LeaderTerm) -> bool:
        return self.ready and self.quiescence.may_begin(self.replicator.reachable())

    return [(LeaderTerm, "can_quiesce", property(can_quiesce))]


@mutation("a node speaks for a replica that stopped while it rested")
def rest_outlives_a_failure() -> Any:
    return [(Driver, "on_stopped", lambda self, gid: None)]


@mutation("leadership is handed back to a node however often it loses it")
def no_back_off() -> Any:
    return [(PreferredLeader, "may_return", lambda self, now: True)]


@mutation("heartbeats and votes wait behind entries")
def one_lane() -> Any:
    def put(self: SendQueue, messages: Any) -> None:
        for message in messages:
            self._small.append(message)
            self.small_bytes += size_of(message)

    return [(SendQueue, "put", put)]


@mutation("a node is silent while it waits for its disk")
def silent_in_fsync() -> Any:
    return [(SyncWatch, "look", lambda self, driver: None)]


@mutation("a node whose disk hangs goes on leading")
def leads_without_disk() -> Any:
    return [(SyncWatch, "look", lambda self, driver: driver.send_heartbeats())]


@mutation("a partition whose index is not written yet is trimmed as an empty one")
def unwritten_index_is_empty() -> Any:
    def compact(self: Partition) -> None:
        group, first = self.group, self.machine.stored.index.at(0)
        limit = group.applied_index if first is None else first.raft_index - 1
        if limit > group.journal.base_index:
            group.checkpoints.save()
            group.checkpoints.compact(min(limit, group.applied_index))

    return [(Partition, "compact", compact)]


# -- work that takes long -----------------------------------------------------------------------


@mutation("entries that are in memory no more are read on the node's loop")
def loop_reads_entries() -> Any:
    def at_once(self: BackgroundReads, group: int, read: Any, done: Any, *wanted: Any) -> None:
        done(read())

    return [(BackgroundReads, "ask", at_once)]


@mutation("a large state is saved in one go")
def saved_in_one_go() -> Any:
    made = Checkpoints.save

    def save(self: Checkpoints) -> None:
        made(self)
        self.save_rest()

    return [(Checkpoints, "save", save)]


@mutation("a state moves on while it is saved")
def state_moves_while_saved() -> Any:
    made = Applying.step

    def step(self: Applying, commit_index: int) -> Any:
        checkpoints = self._raft.checkpoints
        under_way, checkpoints._under_way = checkpoints._under_way, None
        checkpoints.is_saving = False
        yield from made(self, commit_index)
        if under_way is not None:
            index = self._raft.journal.applied_index
            checkpoints._under_way = replace(under_way, index=index)
            checkpoints.is_saving = True
            checkpoints.save_on()

    return [(Applying, "step", step)]
