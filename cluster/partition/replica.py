"""Replica of one partition: the narrow interface between services and consensus.

    services --append, open, propose--> Partition --> Leadership (while ready to lead) --> Group
    services <---reading, offset_at---- Partition --> ReplicaReader <-- PartitionMachine <--apply-'

The machine has the state of all replicas, and the Leadership the state of one leadership. This
module passes each call to one of them, and notifies the listeners.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from cluster.consensus.environment import StateMachine
from cluster.consensus.group import Group
from cluster.consensus.proposals import Abandoned, Done
from cluster.consensus.replay_budget import WORTH
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import Kind, Verdict
from cluster.features import COMPACTION
from cluster.partition.group_offsets import OffsetsTable
from cluster.partition.leader import Leadership
from cluster.partition.leases import lease_verdict
from cluster.partition.machine import Loaded, PartitionMachine
from cluster.partition.reader import (
    BackwardRead,
    OffsetOutOfRangeError,
    Read,
    ReadBatch,
    ReplicaReader,
)
from cluster.partition.staging import UNREGISTERED
from cluster.partition.types import (
    Answer,
    AnswerTo,
    AppendRequest,
    Cleanup,
    Counters,
    NodeView,
    Policy,
)
from cluster.transactions.types import Expected, Marker
from storage.errors import CorruptionError, StorageError
from storage.kv import WriteBatch
from storage.offset_index import OffsetIndex

__all__ = [
    "Answer",
    "AnswerTo",
    "AppendRequest",
    "OffsetOutOfRangeError",
    "Partition",
    "Policy",
    "Read",
    "ReadBatch",
]

# Of log, that make a save of a compacted partition worth its while; see `Partition.compact`.
MIN_SAVED_BYTES = 4 << 20


class Partition:
    """One replica, and the state machine of its group.

    open_group: makes the group, with this replica as its state machine.
    on_role: called when the replica began or ceased to lead.
    capacity: producers that a leader lets in.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        offsets: OffsetIndex,
        policy: Policy,
        node: NodeView,
        open_group: Callable[[StateMachine], Group],
        *,
        on_role: Callable[[], None] = lambda: None,
        capacity: int = 1_000_000,
    ) -> None:
        self.topic = topic
        self.index = index
        self.closed = False
        self.listeners: set[Callable[[], None]] = set()
        self.counters = Counters()
        self._policy = policy
        self._node = node
        self._on_role = on_role
        self._leadership: Leadership | None = None
        self.machine = PartitionMachine(offsets, capacity=capacity, listeners=self.listeners)
        self.group = open_group(self)
        self._reader = ReplicaReader(self.machine.stored, self.group)

    # -- the group's state machine ------------------------------------------------------

    def apply(self, index: int, term: int, data: bytes, batch: WriteBatch) -> object:
        return self.machine.apply(index, data, batch)

    def pieces(self) -> Iterator[bytes]:
        return self.machine.pieces()

    def dump(self) -> bytes:
        """Returns the whole state at once, for tools and tests."""
        return b"".join(self.pieces())

    def load(self, state: bytes) -> Loaded:
        """Loads a state for `restore`. Raises storage.CorruptionError."""
        return self.machine.load(state)

    def restore(self, loaded: Loaded | None, index: int) -> None:
        """Replaces the state; the group has answered all waiting callers."""
        self._end_leadership()
        self.machine.restore(loaded)

    def discard(self, batch: WriteBatch) -> None:
        """Drops the rows: a snapshot is about to replace the log."""
        self.machine.stored.index.clear(batch)

    def on_role(self, *, leader: bool, ready: bool, term: int) -> None:
        self._end_leadership()
        self.machine.stored.lead(leader)
        if leader and ready:
            self._leadership = Leadership(
                self.group, self.machine, self._policy, self._node, self.counters
            )
        self._on_role()
        self.notify()

    def _end_leadership(self) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            leadership.close()

    # -- writing (leader) ---------------------------------------------------------------

    def append(self, request: AppendRequest, answer_to: AnswerTo) -> None:
        """Appends a batch that passed `validate`. `answer_to` is called once, always."""
        leadership = self._leadership
        if leadership is not None and self.group.is_leader:
            leadership.append(request, answer_to)
            return
        answer = self._not_leading()
        self.counters.count(answer.verdict.kind)
        answer_to(answer)

    def open_producer(self, producer_id: int, epoch: int, answer_to: AnswerTo) -> None:
        """Raises the producer's epoch here. `answer_to` is called once, always.

        APPENDED: done and applied; `last_sequence` and `base_offset` are those of the
        producer's last record (-1: none). Else FENCED, PRODUCER_EXPIRED, THROTTLED,
        INVALID_BATCH, NOT_LEADER, NOT_READY or STORAGE_FULL.
        """
        leadership = self._leadership
        if leadership is not None and self.group.is_leader:
            leadership.open_producer(producer_id, epoch, answer_to)
        else:
            answer_to(self._not_leading())

    def propose(self, data: bytes, done: Done) -> Answer | None:
        """Proposes an entry; if this node cannot, says why and `done` is not called."""
        leadership = self._leadership
        if leadership is None or not self.group.is_leader:
            return self._not_leading()
        unable = leadership.unable()
        if unable is None:
            leadership.propose(data, done)
        return unable

    def carry(self, data: bytes, done: Done) -> Answer | None:
        """Proposes a carried batch, as `propose` does; its result is whether it replaced anything.

        Raises FeatureOffError.
        """
        self._node.features.require(COMPACTION)
        leadership = self._leadership
        if leadership is None or not self.group.is_leader:
            return self._not_leading()
        unable = leadership.unable()
        return unable or leadership.carry(data, done)

    def cleaning_time_ms(self) -> int | None:
        """Returns log time for a cleaning that begins now; None: this node cannot carry batches."""
        leads = self._leadership is not None and self.group.is_leader
        if self._leadership is None or not leads or not self._node.features.is_on(COMPACTION):
            return None
        return self._leadership.cleaning_time_ms()

    def stage_offsets(self, transaction_id: int, data: bytes, done: Done) -> Answer | None:
        """Proposes as `propose`; UNREGISTERED if the coordinator must learn of it first."""
        leadership = self._leadership
        if leadership is not None and not leadership.staging.knows(transaction_id):
            return Answer(UNREGISTERED)
        return self.propose(data, done)

    def registered(self, transaction_id: int) -> None:
        """Notes that the coordinator knows of the transaction's staged batches here."""
        if self._leadership is not None:
            self._leadership.staging.registered(transaction_id)

    def confirm_runs(
        self,
        transaction_id: int,
        asked: dict[int, tuple[int, int]],
        *,
        offsets: dict[str, tuple[int, int]] | None = None,
        only_winners: bool,
    ) -> dict[int, Expected] | str | None:
        """Checks that the transaction has exactly these runs; None: this node does not lead.

        See RunTable.confirm and, for `offsets`, OffsetsTable.confirm. The applied runs stay here
        under any later leader.
        """
        if self._leadership is None or not self.group.is_leader:
            return None
        differs = self.machine.group_offsets.confirm(transaction_id, offsets or {})
        found = self.machine.runs.confirm(transaction_id, asked, only_winners=only_winners)
        return differs or found

    def all_runs(self, transaction_id: int) -> list[Expected] | None:
        """Returns all that the transaction has staged here; None: this node does not lead.

        The caller has confirmed the leadership, so that nothing acknowledged is missing.
        """
        if self._leadership is None or not self.group.is_leader:
            return None
        offsets = self.machine.group_offsets.staged.of(transaction_id)
        return self.machine.runs.everything(transaction_id) + [
            Expected(0, 0, count, last, consumer_group=group)
            for group, (count, last) in offsets.items()
        ]

    def mark(self, marker: Marker, done: Done) -> None:
        """Ends a transaction here, also when the disk is full; the result is a Marked.

        `marker` comes without a time. A repeat changes nothing and has the same result.
        """
        if self._leadership is not None and self.group.is_leader and self._node.clock_agreed():
            self._leadership.mark(marker, done)
        else:
            done(Abandoned(self.group.leader_id, "not ready to lead", lost=True))

    def advance_clock(self, done: Done) -> None:
        """Proposes an entry that brings log time and expiry watermark to now."""
        if self._leadership is not None and self._node.clock_agreed():
            self._leadership.advance_clock(done)
        else:
            done(Abandoned(self.group.leader_id, "not ready to lead", lost=True))

    def confirm(self, done: Done) -> None:
        """Calls `done` once an entry of this term committed after all proposed before, or not."""
        self.group.confirm(done)
        self._node.touch()

    def lease_verdict(self, producer_id: int, epoch: int) -> Verdict | None:
        """Returns why the metadata forbids a producer to append; None: it does not."""
        policy = self._policy
        return lease_verdict(
            policy.names, policy.expired_below(), self.last_seen, producer_id, epoch
        )

    def _not_leading(self) -> Answer:
        if self.group.is_leader:
            return Answer(Verdict(Kind.NOT_READY))
        return Answer(Verdict(Kind.NOT_LEADER), leader_id=self.group.leader_id)

    # -- reading ------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The first offset that is not known here to be committed."""
        return self.machine.stored.next_offset

    @property
    def log_start_offset(self) -> int:
        return self.machine.stored.log_start

    @property
    def blanks_below_start(self) -> int:
        """So many offsets directly below the log's start had no record when they were deleted."""
        return self.machine.stored.carried.hole

    @property
    def cleaned_offset(self) -> int | None:
        """The end of the batches that were cleaned, from the log's start on; None: none may be."""
        stored = self.machine.stored
        if self._policy.cleanup == Cleanup.DELETE:
            return None
        return stored.carried.end_from(stored.log_start)

    @property
    def last_seen(self) -> LastSeen:
        return self.machine.producers.last_seen

    @property
    def group_offsets(self) -> OffsetsTable:
        return self.machine.group_offsets

    @property
    def names_index(self) -> int:
        """The newest index of the metadata log by which producer ids were released here."""
        return self.machine.producers.names_index

    def reading(self, offset: int, max_bytes: int, max_batches: int = sys.maxsize) -> Read:
        """See `Read`. Raises OffsetOutOfRangeError."""
        return self._reader.reading(offset, max_bytes, max_batches)

    def reading_back(self, offset: int, max_bytes: int, max_batches: int) -> BackwardRead:
        """See `BackwardRead`."""
        return self._reader.reading_back(offset, max_bytes, max_batches)

    def offset_at(self, timestamp_us: int, start: int = 0) -> Iterator[int | None]:
        """See ReplicaReader.offset_at."""
        return self._reader.offset_at(timestamp_us, start)

    def latest(self) -> Iterator[list[tuple[int, int]] | None]:
        """See ReplicaReader.latest."""
        return self._reader.latest()

    def unreadable(self, error: StorageError) -> None:
        """Stops a replica with a damaged committed entry, so that a sound one leads.

        A lone replica goes on: no other node has the undamaged entries.
        """
        group = self.group
        if not self.closed and isinstance(error, CorruptionError) and group.members.voters:
            group.fail(error)

    # -- settings, listeners, end -------------------------------------------------------

    @property
    def policy(self) -> Policy:
        return self._policy

    def alter(self, policy: Policy) -> None:
        """Takes changed settings of the topic or the cluster."""
        self._policy = policy
        if self._leadership is not None:
            self._leadership.policy = policy

    def notify(self) -> None:
        """Wakes all listeners."""
        for listener in list(self.listeners):
            listener()

    def close(self) -> None:
        """Closes the replica; its group has answered all waiting callers."""
        self._end_leadership()
        self.closed = True
        self.notify()

    # -- maintenance --------------------------------------------------------------------

    def retain(self) -> None:
        """Proposes, as the leader, the steps that retention and the producers' leases need now."""
        if self._leadership is not None and self.group.is_leader:
            self._leadership.retain()
            self._leadership.maintain_producers()

    def delete_below(self, offset: int, done: Done) -> None:
        """Drops, as the leader, some batches that end below the offset; without one, confirms."""
        if self._leadership is None or not self._leadership.delete_below(offset, done):
            self.confirm(done)

    def compact(self) -> None:
        """Lets the group drop the Raft log below the entries that readers may still need.

        It drops entries only up to a checkpoint, and carried batches lie behind those that they
        replace. So a compacted partition saves its state before a cleaning, not as rarely as
        others. A closed replica has no data any more, and the state of one that failed may be
        wrong: of these nothing is saved or dropped.
        """
        group, stored = self.group, self.machine.stored
        if self.closed or group.failed is not None:
            return
        checkpoints = group.checkpoints
        if self._policy.cleanup != Cleanup.DELETE:
            least = max(MIN_SAVED_BYTES, stored.stored_bytes // 2, WORTH * checkpoints.state_bytes)
            if checkpoints.grown_bytes > least:
                checkpoints.save()
                self._node.touch()
        offset, first = stored.first_plain(group.applied_index)
        if first is None and offset < stored.next_offset:
            return  # the first batch's row is not written yet: the disk is full
        limit = group.applied_index
        if first is not None or len(self.machine.runs):
            index = limit + 1 if first is None else first.raft_index
            limit = self.machine.runs.oldest_needed(index, stored.log_start) - 1
        limit = min(limit, stored.carried.oldest_index(limit + 1) - 1)
        if limit > group.journal.base_index:
            if first is None and not stored.carried:
                checkpoints.save()
                self._node.touch()
            checkpoints.compact(min(limit, group.applied_index))
