"""A replica of one partition: append, read, high watermark. The narrow waist.

    services --Append--> Partition.append --entry--> Group (Raft) --apply--> Partition.apply
    services <--batches-- Partition.read <--- journal (memory tail or disk) + offset index

`apply` decides (DESIGN section 4, rule 1): the verdict and the offset are a
function of the entry and the state before it. What `append` checks first, with
the batches in flight counted, only refuses early, joins duplicates and lets a
producer pipeline. An answer that says no is given only after an entry of this
term committed, so a deposed leader cannot say it (rule 8).

Offsets are not stored with the batches: a small index entry for each accepted
batch says at which Raft index it lies. Entries that apply refused take no
offset and no index entry.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from cluster.consensus.group import Group
from cluster.consensus.proposals import Abandoned, Outcome
from cluster.dedup.in_flight import BatchMeta, InFlight, Kind, LastSeen, Verdict
from cluster.entries import (
    BATCH,
    HELD,
    LOG_START,
    OFFSETS,
    BatchEntry,
    LogStartEntry,
    pack_batch,
    pack_log_start,
    unpack_batch,
    unpack_log_start,
)
from cluster.partition.batch_index import BatchIndex, is_intact, place_of
from cluster.partition.group_offsets import OffsetsTable
from cluster.partition.producer_contract import ProducerContract
from cluster.partition.types import (
    IGNORED,
    REQUIRED,
    Answer,
    AnswerTo,
    AppendRequest,
    Policy,
)
from storage.errors import CorruptionError, StorageError
from storage.kv import WriteBatch
from storage.offset_index import IndexEntry, OffsetIndex

__all__ = [
    "Answer",
    "AnswerTo",
    "AppendRequest",
    "OffsetOutOfRangeError",
    "Partition",
    "Policy",
    "ReadBatch",
]

MAX_IN_FLIGHT_BYTES = 128 * 1024 * 1024

_STATE = struct.Struct("<4sHxxqqqQQQ")
_MAGIC, _VERSION = b"OLPS", 2


class ReadBatch(NamedTuple):
    """A stored batch: its Raft entry with the offset that it got."""

    base_offset: int
    data: bytes


class OffsetOutOfRangeError(Exception):
    """The offset is below the log's start or above its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of {start}..{end}")
        self.offset, self.start, self.end = offset, start, end


class Partition(ProducerContract):
    """State machine of one partition's group, and the leader's door to it.

    now_ms: the wall clock, milliseconds since the Unix epoch.
    touch:  tells the driver that the group has work.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        offsets: OffsetIndex,
        policy: Policy,
        *,
        now_ms: Callable[[], int],
        touch: Callable[[], None],
        capacity: int = 1_000_000,
        group_offsets: bool = False,
    ) -> None:
        """`capacity`: producers that a leader lets in. `group_offsets`: holds those of groups."""
        self.topic, self.index, self.policy = topic, index, policy
        self._index = BatchIndex(offsets)
        self._now_ms, self._touch = now_ms, touch
        self._capacity = capacity
        self.offsets = OffsetsTable() if group_offsets else None
        self.producers_throttled = 0
        self.group: Group | None = None  # set once, right after construction
        self.listeners: set[Callable[[], None]] = set()
        self.role_listener: Callable[[], None] = lambda: None
        self.storage_full: Callable[[], bool] = lambda: False
        self.verdicts: dict[int, int] = {}
        self.batches = self.records = self.bytes = 0
        self._in_flight: InFlight | None = None
        self._in_flight_bytes = 0
        self._next_token = 0
        self._joined: dict[int, list[AnswerTo]] = {}
        self.restore(None, 0)

    # -- state machine ------------------------------------------------------------

    def restore(self, state: bytes | None, index: int) -> None:
        self.last_seen = LastSeen(capacity=self._capacity)
        self.next_offset = self.log_start = self.clock_ms = self.stored_bytes = 0
        self.names_index = 0
        if self.offsets is not None:
            self.offsets = OffsetsTable()
        self._index.forget_recent()
        if state is not None:
            magic, version, *numbers, map_bytes = _STATE.unpack_from(state)
            assert magic == _MAGIC and version == _VERSION, "a partition's state"
            self.next_offset, self.log_start, self.clock_ms, *numbers = numbers
            self.stored_bytes, self.names_index = numbers
            at = _STATE.size + map_bytes
            self.last_seen = LastSeen.load(state[_STATE.size : at], capacity=self._capacity)
            if self.offsets is not None:
                self.offsets = OffsetsTable.load(state[at:])
        self._in_flight = None

    def dump(self) -> bytes:
        last_seen = self.last_seen.dump()
        header = _STATE.pack(
            _MAGIC,
            _VERSION,
            self.next_offset,
            self.log_start,
            self.clock_ms,
            self.stored_bytes,
            self.names_index,
            len(last_seen),
        )
        offsets = b"" if self.offsets is None else self.offsets.dump()
        return b"".join((header, last_seen, offsets))

    def discard(self, batch: WriteBatch) -> None:
        """The log is about to be replaced by a snapshot's."""
        self._index.clear(batch)

    def apply(self, index: int, term: int, data: bytes, batch: WriteBatch) -> object:
        kind = data[0]
        if kind == BATCH:
            return self._apply_batch(index, data, batch)
        if kind == LOG_START:
            self._apply_log_start(unpack_log_start(data), batch)
            return None
        if kind == OFFSETS:
            assert self.offsets is not None, f"entry {index} is of {self.topic}?"
            return self.offsets.apply(data[1:])
        return self.apply_producers(kind, data)

    def on_role(self, *, leader: bool, ready: bool, term: int) -> None:
        if leader and ready:
            self._in_flight = InFlight(self.last_seen, next_offset=self.next_offset)
        else:
            self._in_flight = None
            assert not self._joined, "waiters are answered before the overlay goes"
        self._in_flight_bytes = 0
        self.role_listener()
        self.notify()

    def _apply_batch(self, index: int, data: bytes, batch: WriteBatch) -> Answer:
        entry = unpack_batch(data)
        self.clock_ms = max(self.clock_ms, entry.stamp_ms)
        self.last_seen.advance(
            self.clock_ms, lifetime_ms=entry.lifetime_ms, expired_below=entry.expired_below
        )
        meta = _meta(entry)
        verdict = self.last_seen.check(meta, next_offset=self.next_offset)
        if verdict.kind is Kind.APPENDED:
            base = self.next_offset
            self.last_seen.record(meta, base, self.clock_ms, pin=bool(entry.flags & HELD))
            self._index.add(batch, place_of(index, base, entry, data))
            self.next_offset += entry.record_count
            self.stored_bytes += len(data)
            self.batches += 1
            self.records += entry.record_count
            self.bytes += len(data)
            verdict = Verdict(Kind.APPENDED, base_offset=base)
            self.notify()
        return Answer(verdict, entry.stamp_ms)

    def _apply_log_start(self, entry: LogStartEntry, batch: WriteBatch) -> None:
        self.clock_ms = max(self.clock_ms, entry.stamp_ms)
        start = entry.log_start_offset
        # Another one came first: the freed bytes were counted from an older start.
        if entry.from_offset != self.log_start or not self.log_start < start <= self.next_offset:
            return
        self.stored_bytes -= entry.freed_bytes
        self.log_start = start
        self._index.trim_below(batch, start)

    # -- writing (leader) -----------------------------------------------------------

    def append(self, request: AppendRequest, answer_to: AnswerTo) -> None:
        """Appends a batch that passed `validate`. `answer_to` is called once, always."""

        def counted(answer: Answer) -> None:
            kind = answer.verdict.kind
            self.verdicts[kind] = self.verdicts.get(kind, 0) + 1
            answer_to(answer)

        self._append(request, counted)

    def _append(self, request: AppendRequest, answer_to: AnswerTo) -> None:
        group = self._own_group()
        in_flight = self._in_flight
        if not group.is_leader:
            answer_to(self._not_leader())
            return
        if in_flight is None:
            answer_to(Answer(Verdict(Kind.NOT_READY)))
            return
        if self.storage_full():
            answer_to(Answer(Verdict(Kind.STORAGE_FULL, message="the leader's disk is full")))
            return
        verdict = self._precheck(in_flight, request)
        if verdict.kind is Kind.APPENDED:
            self._propose(group, in_flight, request, answer_to)
        elif verdict.kind is Kind.JOINED:
            assert verdict.token is not None
            self._joined[verdict.token].append(answer_to)
        elif verdict.kind in (Kind.DUPLICATE, Kind.THROTTLED):
            answer_to(Answer(verdict))
        else:
            self._refuse(group, request, verdict, answer_to)

    def _precheck(self, in_flight: InFlight, request: AppendRequest) -> Verdict:
        meta = request.meta
        if self.policy.expected_offsets == REQUIRED and meta.expected_offset < 0:
            return Verdict(Kind.INVALID_BATCH, message="expected_offset is required by this topic")
        if self._in_flight_bytes > MAX_IN_FLIGHT_BYTES:
            return Verdict(Kind.THROTTLED, message="too many bytes in flight in this partition")
        verdict = in_flight.check(self._counted_meta(request), next_offset_applied=self.next_offset)
        if verdict.kind in (Kind.DUPLICATE, Kind.JOINED, Kind.FENCED):
            return verdict  # stored is stored
        veto = self.veto(meta.producer_id, meta.epoch)
        if veto is None and verdict.kind is Kind.THROTTLED:
            self.producers_throttled += 1
        return veto or verdict

    def _counted_meta(self, request: AppendRequest) -> BatchMeta:
        """The batch as this topic's rule for expected offsets sees it."""
        if self.policy.expected_offsets == IGNORED:
            return request.meta._replace(expected_offset=-1)
        return request.meta

    def _propose(
        self, group: Group, in_flight: InFlight, request: AppendRequest, answer_to: AnswerTo
    ) -> None:
        meta, size = request.meta, len(request.payload)
        expected = -1 if self.policy.expected_offsets == IGNORED else meta.expected_offset
        entry = BatchEntry(
            request.codec,
            meta.count,
            meta.producer_id,
            meta.epoch,
            meta.crc,
            meta.first,
            meta.last,
            meta.prev,
            expected,
            request.transaction_id,
            request.max_timestamp_us,
            max(self._now_ms(), self.clock_ms),
            self.policy.lease_lifetime_ms,
            self.policy.expired_below(),
            self.held_flag(meta.producer_id),
        )
        token = self._next_token = self._next_token + 1
        in_flight.add(meta, token)
        self._in_flight_bytes += size
        self._joined[token] = []

        def done(outcome: Outcome) -> None:
            self._in_flight_bytes = max(0, self._in_flight_bytes - size)
            joined = self._joined.pop(token)
            if isinstance(outcome, Abandoned):
                answer = Answer(Verdict(Kind.NOT_LEADER), leader_id=outcome.leader_id)
                answer_to(answer)
            else:
                assert isinstance(outcome.result, Answer)
                answer = outcome.result
                if self._in_flight is in_flight:
                    in_flight.applied(token, answer.verdict.kind is Kind.APPENDED)
                answer_to(answer)
                if answer.verdict.kind is Kind.APPENDED:
                    duplicate = answer.verdict._replace(kind=Kind.DUPLICATE)
                    answer = Answer(duplicate, answer.append_time_ms)
            for waiter in joined:
                waiter(answer)

        group.propose(pack_batch(entry, request.payload), done)
        self._touch()

    def _refuse(
        self, group: Group, request: AppendRequest, verdict: Verdict, answer_to: AnswerTo
    ) -> None:
        """Says no once it is sure that this node still leads, and that the reason still holds.

        The verdict counted batches in flight. Apply may have refused those (their
        producer expired), so it is the applied state that has to say no.
        """
        if verdict.kind in (Kind.INVALID_BATCH, Kind.BATCH_TOO_LARGE):
            answer_to(Answer(verdict))
            return

        def confirmed(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                answer_to(Answer(Verdict(Kind.NOT_LEADER), leader_id=outcome.leader_id))
                return
            meta = self._counted_meta(request)
            applied = self.last_seen.check(meta, next_offset=self.next_offset)
            if applied.kind not in (Kind.DUPLICATE, Kind.FENCED):
                applied = self.veto(meta.producer_id, meta.epoch) or applied
            if applied.kind is Kind.APPENDED:
                self._append(request, answer_to)
            else:
                answer_to(Answer(applied))

        group.confirm(confirmed)
        self._touch()

    def _not_leader(self) -> Answer:
        return Answer(Verdict(Kind.NOT_LEADER), leader_id=self._own_group().leader_id)

    def _own_group(self) -> Group:
        assert self.group is not None
        return self.group

    # -- reading ----------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """First offset that is not known here to be committed."""
        return self.next_offset

    @property
    def log_start_offset(self) -> int:
        return self.log_start

    def read(self, offset: int, max_bytes: int, max_batches: int = sys.maxsize) -> list[ReadBatch]:
        """Stored batches from the one that holds `offset` on; at least one if there is one.

        Raises OffsetOutOfRangeError, storage.CorruptionError.
        """
        if not self.log_start <= offset <= self.next_offset:
            raise OffsetOutOfRangeError(offset, self.log_start, self.next_offset)
        journal = self._own_group().journal
        out: list[ReadBatch] = []
        size = 0
        while offset < self.next_offset:
            places = self._index.covering(offset)
            assert places, f"no index entry for offset {offset} below the high watermark"
            for place in places:
                # After a restart the index is ahead of what has been applied again.
                if place.base_offset >= self.next_offset:
                    return out
                if place.raft_index <= journal.base_index:
                    raise OffsetOutOfRangeError(offset, place.last_offset + 1, self.next_offset)
                if out and (size + place.payload_bytes > max_bytes or len(out) >= max_batches):
                    return out
                data = journal.entry(place.raft_index, partial(is_intact, place))
                out.append(ReadBatch(place.base_offset, data))
                size += place.payload_bytes
                offset = place.last_offset + 1
        return out

    def places_below(self, offset: int, limit: int) -> list[IndexEntry]:
        """Index entries of at most `limit` kept batches that begin below `offset`, newest first."""
        places = self._index.below(offset, limit)
        return [place for place in places if place.last_offset >= self.log_start]

    def offset_at(self, timestamp_us: int) -> Iterator[int | None]:
        """First offset of the first batch with a timestamp at or after; -1 if there is none.

        A search in steps: each gives None, but the last gives the offset.
        """
        for place in self._index.find_timestamp(timestamp_us):
            if place is None:
                yield None
            elif place.base_offset < self.next_offset:
                yield max(place.base_offset, self.log_start)
                return
        yield -1

    def unreadable(self, error: StorageError) -> None:
        """A committed entry could not be read. If it is damaged, a sound replica must lead.

        A lone replica goes on: what is not damaged can be had nowhere else.
        """
        group = self.group  # None: deleted meanwhile
        if group is not None and isinstance(error, CorruptionError) and group.config.peers:
            group.fail(error)
            self._touch()  # a group at rest is spoken for by its node until it is woken

    def closed(self) -> None:
        """The replica is gone."""
        self.group = None
        self.notify()

    def notify(self) -> None:
        """Whoever listens must look again."""
        for listener in list(self.listeners):
            listener()

    # -- retention (leader proposes, every replica applies) -----------------------------

    def retain(self) -> None:
        """Proposes the log start that retention asks for now: whole batches only."""
        policy, now = self.policy, self._now_ms()
        target, freed = self.log_start, 0
        for place in self._index.all_from(self.log_start):
            if place.base_offset < target or place.base_offset >= self.next_offset:
                continue
            old = policy.retention_ms >= 0 and now - place.append_time_ms > policy.retention_ms
            big = 0 <= policy.retention_bytes < self.stored_bytes - freed
            if not (old or big):
                break
            freed += place.payload_bytes
            target = place.last_offset + 1
        if target > self.log_start:
            stamp = max(now, self.clock_ms)
            entry = LogStartEntry(self.log_start, target, freed, stamp)
            self._own_group().propose(pack_log_start(entry), lambda outcome: None)
            self._touch()

    def compact(self) -> None:
        """Lets the group drop the Raft log below what readers may still ask for."""
        group = self._own_group()
        first = self._index.first()
        if first is None and self.log_start < self.next_offset:
            return  # where the first batch is, waits to be written: the disk is full
        limit = group.applied_index if first is None else first.raft_index - 1
        if limit > group.journal.base_index:
            if first is None:
                group.checkpoint()
            group.compact(min(limit, group.applied_index))


def _meta(entry: BatchEntry) -> BatchMeta:
    return BatchMeta(
        entry.producer_id,
        entry.epoch,
        entry.first,
        entry.last,
        entry.prev,
        entry.record_count,
        entry.crc,
        entry.expected_offset,
    )
