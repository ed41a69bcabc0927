"""Leader's side of a partition: checks batches and proposes them. Lives one leadership.

    Partition --append, open_producer--> Leadership --entry--> Group --apply--> PartitionMachine
                                             |                                       |
                      callers    <-----------+------------------ Answer -------------'

The leader checks each batch before it proposes it, against the applied state plus its batches in
flight. So it refuses early, joins a duplicate to its original, and lets a producer pipeline. Apply
still decides. The leader refuses only after an entry of this term committed, so a deposed leader
cannot refuse. The applied state must refuse as well, as batches in flight may have been refused
meanwhile.

A producer without an id has no sequences: a repeat is a second copy. So the answer to its batch
outlives the leadership: the log decides, or the caller's time ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cluster.consensus.group import Group
from cluster.consensus.proposals import Abandoned, Done, Outcome
from cluster.dedup.in_flight import InFlight
from cluster.dedup.sequences import placed
from cluster.dedup.verdict import BatchMeta, Formats, Kind, OffsetRule, Verdict, fenced
from cluster.entries import (
    HELD,
    BatchEntry,
    OpenProducerEntry,
    ReleaseEntry,
    pack_batch,
    pack_log_start,
    pack_open_producer,
    pack_release,
    unpack_carried,
)
from cluster.features import KAFKA, TRANSACTIONS
from cluster.partition.leases import held_flag, lease_verdict, released
from cluster.partition.machine import PartitionMachine
from cluster.partition.producers import NAMES_BEHIND
from cluster.partition.retention import freed_below, freed_by
from cluster.partition.staging import Staging
from cluster.partition.types import (
    Answer,
    AnswerTo,
    AppendRequest,
    Cleanup,
    Counters,
    NodeView,
    Policy,
)
from cluster.transactions.types import Marker

MAX_IN_FLIGHT_BYTES = 128 * 1024 * 1024

_APPENDED = Kind.APPENDED
CLOCK_DISAGREES = Answer(
    Verdict(Kind.NOT_READY, message="the leader's wall clock is not the one a majority agrees on")
)
# A producer with sequences is told NOT_LEADER: its repeat is no copy, and finds the leader at once.
IN_DOUBT = Answer(
    Verdict(Kind.TIMEOUT, message="the leader was deposed, and the batch may be stored")
)
# These need no confirmation: a stored batch stays stored; the others are no final refusal.
_CERTAIN = (Kind.DUPLICATE, Kind.THROTTLED, Kind.INVALID_BATCH, Kind.BATCH_TOO_LARGE)


class _Proposal:
    """Proposed batch, with its sender and the senders of its repeats."""

    __slots__ = ("answer_to", "is_plain", "joined", "leadership", "size")

    def __init__(
        self, leadership: Leadership, size: int, answer_to: AnswerTo, *, is_plain: bool
    ) -> None:
        """is_plain: without a producer's id."""
        self.leadership = leadership
        self.size = size
        self.answer_to = answer_to
        self.is_plain = is_plain
        self.joined: list[AnswerTo] = []

    def done(self, outcome: Outcome) -> None:
        answer = again = self.leadership.ended(self, self.size, outcome)
        if self.is_plain and isinstance(outcome, Abandoned) and not outcome.lost:
            answer = IN_DOUBT
        self.leadership.answer(self.answer_to, answer)
        if not self.joined:
            return
        if answer.verdict.kind is _APPENDED:
            again = Answer(answer.verdict._replace(kind=Kind.DUPLICATE), answer.append_time_ms)
        for waiter in self.joined:
            self.leadership.answer(waiter, again)


class Leadership:
    """The leader's part of a replica that leads and has applied an entry of its term.

    policy: the topic's settings; replaced when they change.
    """

    def __init__(
        self,
        group: Group,
        machine: PartitionMachine,
        policy: Policy,
        node: NodeView,
        counters: Counters,
    ) -> None:
        self.policy = policy
        self._group = group
        self._machine = machine
        self._node = node
        self._counters = counters
        self._stored = machine.stored
        self._producers = machine.producers
        self._in_flight = InFlight(self._producers.last_seen, next_offset=self._stored.next_offset)
        self._in_flight_bytes = 0
        self._is_closed = False
        self._carrying = 0  # carried batches without an outcome, or without written rows
        self._retention_is_due = False  # it waits for them, and the next ones wait for it
        self.staging = Staging(machine, self._in_flight, self.propose)

    def close(self) -> None:
        """Ends the leadership; the group has answered all callers, but those of plain batches."""
        self._is_closed = True
        self.staging.close()

    def answer(self, answer_to: AnswerTo, answer: Answer) -> None:
        """Counts an answer to a batch and sends it."""
        self._counters.count(answer.verdict.kind)
        answer_to(answer)

    # -- batches ----------------------------------------------------------------------

    def append(self, request: AppendRequest, answer_to: AnswerTo) -> None:
        """Appends a batch that passed `validate`. `answer_to` is called once, always."""
        if not self._node.clock_agreed():
            self.answer(answer_to, CLOCK_DISAGREES)
            return
        if self._node.storage_full():
            full = Verdict(Kind.STORAGE_FULL, message="the leader's disk is full")
            self.answer(answer_to, Answer(full))
            return
        meta = request.meta
        if self.policy.expected_offsets == OffsetRule.IGNORED:
            meta = meta._replace(expected_offset=-1)
        if meta.kafka:
            if self.policy.formats == Formats.COLUMNAR or not self._node.features.is_on(KAFKA):
                text = "formats: the topic takes columnar batches only"
                self.answer(answer_to, Answer(Verdict(Kind.UNSUPPORTED_FORMAT, message=text)))
                return
            chain = self.staging if request.transaction_id else self._in_flight
            following = chain.next_sequence(meta.producer_id, meta.epoch)
            meta = placed(meta, following)
        expired_below = self.policy.expired_below()
        if request.transaction_id:
            self._stage(request._replace(meta=meta), expired_below, answer_to)
            return
        verdict = self._check(meta, expired_below)
        kind = verdict.kind
        if kind is _APPENDED:
            self._propose_batch(meta, request, expired_below, answer_to)
        elif kind is Kind.JOINED:
            self._counters.rebuilt += bool(verdict.message)
            verdict.token.joined.append(answer_to)
        elif kind in _CERTAIN:
            self._counters.rebuilt += kind is Kind.DUPLICATE and bool(verdict.message)
            self.answer(answer_to, Answer(verdict))
        else:
            self._refuse_batch(meta, request, verdict, answer_to)

    def _check(self, meta: BatchMeta, expired_below: int) -> Verdict:
        """Returns the verdict with everything in flight counted, and of the leases."""
        if self._in_flight_bytes > MAX_IN_FLIGHT_BYTES:
            return Verdict(Kind.THROTTLED, message="too many bytes in flight in this partition")
        verdict = self._in_flight.check(meta, next_offset_applied=self._stored.next_offset)
        if self._machine.runs.by_producer:
            verdict = self._machine.runs.check_plain(meta, verdict)
        if (
            self.staging.proposed
            and verdict.kind is _APPENDED
            and self.staging.has(meta.producer_id)
        ):
            return Verdict(
                Kind.NOT_READY, message="staged batches of the producer are on their way"
            )
        if verdict.kind in (Kind.DUPLICATE, Kind.JOINED, Kind.FENCED):
            return verdict  # a stored batch stays stored
        required = self.policy.expected_offsets == OffsetRule.REQUIRED
        if required and meta.expected_offset < 0:
            text = "expected_offset: missing, and the topic requires it"
            return Verdict(Kind.INVALID_BATCH, message=text)
        refusal = self._lease_verdict(meta.producer_id, meta.epoch, expired_below)
        if refusal is None and verdict.kind is Kind.THROTTLED:
            self._counters.producers_throttled += 1
        return refusal or verdict

    def _lease_verdict(self, producer_id: int, epoch: int, expired_below: int) -> Verdict | None:
        names, last_seen = self.policy.names, self._producers.last_seen
        return lease_verdict(names, expired_below, last_seen, producer_id, epoch)

    def _propose_batch(
        self, meta: BatchMeta, request: AppendRequest, expired_below: int, answer_to: AnswerTo
    ) -> None:
        size = len(request.payload)
        entry = self._entry(meta, request, expired_below)
        is_plain = not meta.producer_id
        proposal = _Proposal(self, size, answer_to, is_plain=is_plain)
        self._in_flight.add(meta, proposal)
        self._in_flight_bytes += size
        self.propose(pack_batch(entry, request.payload), proposal.done, outlives_term=is_plain)

    def _entry(self, meta: BatchMeta, request: AppendRequest, expired_below: int) -> BatchEntry:
        policy = self.policy
        return BatchEntry(
            request.codec,
            meta.count,
            meta.producer_id,
            meta.epoch,
            meta.crc,
            meta.first,
            meta.last,
            meta.prev,
            meta.expected_offset,
            request.transaction_id,
            request.max_timestamp_us,
            self._stamp_ms(),
            policy.lease_lifetime_ms,
            expired_below,
            held_flag(policy.names, meta.producer_id),
        )

    def ended(self, token: object, size: int, outcome: Outcome) -> Answer:
        """Returns the answer to a proposal."""
        self._in_flight_bytes -= size
        if isinstance(outcome, Abandoned):
            return _not_leader(outcome)
        assert isinstance(outcome.result, Answer)
        if not self._is_closed:
            self._in_flight.applied(token, outcome.result.verdict.kind is _APPENDED)
        return outcome.result

    def _refuse_batch(
        self, meta: BatchMeta, request: AppendRequest, verdict: Verdict, answer_to: AnswerTo
    ) -> None:
        """Refuses once it is sure that this node still leads and that the reason still holds."""

        def confirmed(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                self.answer(answer_to, _not_leader(outcome))
                return
            last_seen = self._producers.last_seen
            applied = last_seen.check(meta, next_offset=self._stored.next_offset)
            applied = self._machine.runs.check_plain(meta, applied)
            if applied.kind not in (Kind.DUPLICATE, Kind.FENCED):
                below = self.policy.expired_below()
                refusal = self._lease_verdict(meta.producer_id, meta.epoch, below)
                applied = refusal or applied
            if applied.kind is _APPENDED:
                self.append(request, answer_to)
            else:
                self.answer(answer_to, Answer(applied))

        self._confirm(confirmed)

    # -- batches of transactions ------------------------------------------------------

    def _stage(self, request: AppendRequest, expired_below: int, answer_to: AnswerTo) -> None:
        verdict = self._check_staged(request, expired_below)
        kind = verdict.kind
        if kind is Kind.STAGED:
            entry = self._entry(request.meta, request, expired_below)
            data = pack_batch(entry, request.payload)
            self.staging.append(request, data, lambda answer: self.answer(answer_to, answer))
        elif kind is Kind.UNREGISTERED:
            answer_to(Answer(verdict))  # not the sender's answer yet
        elif kind is Kind.JOINED:
            self.staging.join(verdict, lambda answer: self.answer(answer_to, answer))
        elif kind in _CERTAIN or kind is Kind.STAGED_DUPLICATE:
            self.answer(answer_to, Answer(verdict))
        else:
            self._refuse_staged(request, verdict, answer_to)

    def _check_staged(self, request: AppendRequest, expired_below: int) -> Verdict:
        meta, runs = request.meta, self._machine.runs
        if not self._node.features.is_on(TRANSACTIONS):
            return Verdict(Kind.INVALID_BATCH, message="transaction_id: not supported yet, use 0")
        if self._in_flight_bytes + self.staging.bytes > MAX_IN_FLIGHT_BYTES:
            return Verdict(Kind.THROTTLED, message="too many bytes in flight in this partition")
        if self.policy.expected_offsets == OffsetRule.REQUIRED:
            text = "expected_offset: the topic requires it, and a transaction cannot have one"
            return Verdict(Kind.INVALID_BATCH, message=text)
        verdict = self.staging.check(request, new_in_flight=self._in_flight.new_producers)
        if verdict.kind is not Kind.STAGED or runs.run_of(meta.producer_id) is not None:
            return verdict
        return self._lease_verdict(meta.producer_id, meta.epoch, expired_below) or verdict

    def _refuse_staged(self, request: AppendRequest, verdict: Verdict, answer_to: AnswerTo) -> None:
        """Refuses as `_refuse_batch`: the obstacle may have been in flight only."""

        def confirmed(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                self.answer(answer_to, _not_leader(outcome))
                return
            applied = self.staging.applied(request)
            if applied.kind is Kind.STAGED:
                meta = request.meta
                below = self.policy.expired_below()
                refusal = self._lease_verdict(meta.producer_id, meta.epoch, below)
                retry = Verdict(Kind.NOT_READY, message=verdict.message)
                applied = refusal or retry
            self.answer(answer_to, Answer(applied))

        self._confirm(confirmed)

    # -- opens ------------------------------------------------------------------------

    def open_producer(self, producer_id: int, epoch: int, answer_to: AnswerTo) -> None:
        """Raises the producer's epoch here; see `Partition.open_producer`."""
        unable = self.unable()
        if unable is not None:
            answer_to(unable)
            return
        held = self.policy.names.holder(producer_id)
        verdict = self._in_flight.check_open(producer_id, epoch, pin=held is not None)
        certain = verdict.kind in _CERTAIN
        self._counters.producers_throttled += verdict.kind is Kind.THROTTLED
        if verdict.kind is _APPENDED:
            # An open makes the id known, so only these two reasons refuse it.
            refusal = None
            if held is None:
                refusal = self._lease_verdict(producer_id, epoch, self.policy.expired_below())
            elif epoch < held.fence_epoch:
                refusal = fenced(epoch, held.epoch)
            verdict, certain = refusal or verdict, refusal is not None
        if verdict.kind is _APPENDED:
            self._propose_open(producer_id, epoch, held is not None, answer_to)
        elif certain:
            answer_to(Answer(verdict))
        else:
            self._refuse_open(producer_id, epoch, held is not None, answer_to)

    def unable(self) -> Answer | None:
        """Returns why this leader cannot stamp a proposal on behalf of a name now."""
        if not self._node.clock_agreed():
            return CLOCK_DISAGREES
        if self._node.storage_full():
            return Answer(Verdict(Kind.STORAGE_FULL, message="the leader's disk is full"))
        if self.policy.names.applied_index < self._producers.names_index:
            return Answer(NAMES_BEHIND)
        return None

    def _propose_open(self, producer_id: int, epoch: int, pin: bool, answer_to: AnswerTo) -> None:
        token = object()

        def done(outcome: Outcome) -> None:
            answer = self.ended(token, 0, outcome)
            if answer.verdict.kind is _APPENDED and self._machine.runs.by_producer:
                self.staging.answer_open(producer_id, epoch, answer_to)
            else:
                answer_to(answer)

        entry = OpenProducerEntry(
            HELD if pin else 0,
            epoch,
            producer_id,
            self._stamp_ms(),
            self.policy.lease_lifetime_ms,
            self.policy.expired_below(),
            self.policy.names.applied_index,
        )
        self._in_flight.add_open(producer_id, epoch, token, pin=pin)
        self.propose(pack_open_producer(entry), done)

    def _refuse_open(self, producer_id: int, epoch: int, pin: bool, answer_to: AnswerTo) -> None:
        """Refuses once this node is sure that it still leads and that the applied state refuses."""

        def confirmed(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                answer_to(_not_leader(outcome))
                return
            verdict = self._producers.last_seen.check_open(producer_id, epoch, pin=pin)
            if verdict.kind is _APPENDED:
                self.open_producer(producer_id, epoch, answer_to)
            else:
                answer_to(Answer(verdict))

        self._confirm(confirmed)

    def mark(self, marker: Marker, done: Done) -> None:
        """Ends a transaction here; see Staging.mark. Not refused when the disk is full."""
        self.staging.mark(marker, self._stamp_ms(), done)

    # -- time, names, retention -------------------------------------------------------

    def maintain_producers(self) -> None:
        """Releases ids that names gave up, and advances the time of idle partitions."""
        if self.unable() is not None:
            return
        last_seen = self._producers.last_seen
        gone = released(self.policy.names, last_seen)
        overdue = len(last_seen) and self.policy.expired_below() > last_seen.expired_below
        if gone or overdue:
            self.advance_clock(lambda outcome: None, gone)

    def advance_clock(self, done: Done, gone: tuple[int, ...] = ()) -> None:
        """Proposes an entry that brings log time and watermark to now, and releases ids."""
        policy = self.policy
        entry = ReleaseEntry(
            self._stamp_ms(),
            policy.lease_lifetime_ms,
            policy.expired_below(),
            policy.names.applied_index if gone else 0,
            gone,
        )
        self.propose(pack_release(entry), done)

    def carry(self, data: bytes, done: Done) -> Answer | None:
        """Proposes a carried batch. The log's start waits for its row, which has its bytes.

        It may hold all of a published run with one row, or nothing of it: the row names its batches
        by their place in the run. All replicas have that row, so only this one looks.
        """
        entry, stored = unpack_carried(data, with_tombstones=False), self._stored
        begin, end = entry.base_offset, entry.base_offset + entry.record_count
        if stored.index.cuts_run(begin if begin > stored.log_start else 0, end):
            text = "a carried batch holds all of a transaction's batches or none of them"
            return Answer(Verdict(Kind.INVALID_BATCH, message=text))
        if self._retention_is_due:
            return Answer(Verdict(Kind.NOT_READY, message="the log's start is to move first"))

        def written(outcome: Outcome) -> None:
            self._carrying -= 1
            if self._retention_is_due and not isinstance(outcome, Abandoned):
                self.retain()

        def ended(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                written(outcome)
            else:
                self._confirm(written)  # rows are written before later entries are committed
            done(outcome)

        self._carrying += 1
        self.propose(data, ended)
        return None

    def cleaning_time_ms(self) -> int | None:
        """Returns the time for a cleaning's entries; None: it could not stamp them now."""
        return self._stamp_ms() if self.unable() is None else None

    def _rows_wait(self) -> bool:
        """Whether the row of a carried batch may not be written yet, or its entry not applied."""
        return bool(self._carrying or (self._stored.carried and self._node.storage_full()))

    def retain(self) -> None:
        """Proposes a new log start, if retention asks for one."""
        is_kept = self.policy.cleanup == Cleanup.COMPACT
        self._retention_is_due = self._carrying > 0 and not is_kept
        if is_kept or self._rows_wait() or not self._node.clock_agreed():
            return
        entry = freed_by(self.policy, self._stored, self._node.now_ms(), self._stamp_ms())
        if entry is not None:
            self.propose(pack_log_start(entry), lambda outcome: None)

    def delete_below(self, offset: int, done: Done) -> bool:
        """Proposes to drop some batches that end below the offset; returns False if none do."""
        if self._rows_wait():

            def carried(outcome: Outcome) -> None:
                if isinstance(outcome, Abandoned):
                    done(replace(outcome, lost=True))  # nothing was proposed
                elif not self.delete_below(offset, done):
                    done(outcome)

            self._confirm(carried)
            return True
        entry = freed_below(self._stored, offset, self._stamp_ms())
        if entry is not None:
            self.propose(pack_log_start(entry), done)
        return entry is not None

    # -- parts ------------------------------------------------------------------------

    def propose(self, data: bytes, done: Done, *, outlives_term: bool = False) -> None:
        assert self._node.features.may_write(data[0]), "the writer asks the gate first"
        self._group.propose(data, done, outlives_term=outlives_term)
        self._node.touch()

    def _confirm(self, done: Callable[[Outcome], None]) -> None:
        self._group.confirm(done)
        self._node.touch()

    def _stamp_ms(self) -> int:
        """Returns the time for an entry: the agreed one, but never behind log time."""
        return max(self._node.now_ms(), self._machine.clock_ms)


def _not_leader(outcome: Abandoned) -> Answer:
    return Answer(Verdict(Kind.NOT_LEADER), leader_id=outcome.leader_id)
