"""Produce: one connection's batches into partitions, in the order that they came.

    session --a request--> Producing --read_batch--> Partition.append --Answer--'
                               '-- waits: the node's turns, a full partition --> is not read on

A batch is handed over at once. If a partition or the node has no room, the connection's batches
wait, and with them all behind: an error there would let a client without sequences send the
next batch first. Each request has a deadline, its own timeout or the node's; a batch without an
answer is then in doubt (REQUEST_TIMED_OUT), and a client sends the same batch again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from typing import NamedTuple

from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.kafka import ids
from cluster.kafka.append import append, meta_of
from cluster.kafka.codec import Source
from cluster.kafka.errors import MAX_TEXT_CHARS, Error, of_error, of_verdict, text_of
from cluster.kafka.frames import Exchange
from cluster.kafka.messages import PRODUCE
from cluster.kafka.needs import Required, Rights
from cluster.kafka.produce_wire import (
    PartitionData,
    ProduceRequest,
    Result,
    produce_answer,
    read_produce,
)
from cluster.kafka.records import InvalidKafkaBatch, KafkaBatch, read_batch
from cluster.kafka.staged import StagedBatch, Wait, staged_offset
from cluster.kafka.times import highest
from cluster.kafka.versions import Head
from cluster.metadata.topics import is_internal
from cluster.partition.disk_reads import in_thread
from cluster.partition.replica import Answer, Partition
from cluster.security.quotas import PRODUCERS
from cluster.services.context import NodeContext
from cluster.services.log.lease_checks import Leases
from cluster.services.log.produce import UnderWay
from cluster.services.log.quota_checks import new_producer, staging
from cluster.services.log.refused_heads import RefusedHeads
from cluster.services.log.verdict_events import note_verdict
from cluster.services.partition_events import Listening
from cluster.services.routing import locate

log = logging.getLogger(__name__)

ACKS = (-1, 0, 1)  # 1 is answered as -1
LOOK_AGAIN = 0.1  # seconds until a batch that waits for the node's memory looks again
MAX_UNKNOWN = 100  # batches of unknown producers until the connection is closed
SWEEP = 1.0  # seconds between looks for requests past their deadline

_NOT_IN_TIME = Result(of_verdict(Kind.TIMEOUT), message="not committed in time")
_NO_ROOM = Answer(Verdict(Kind.THROTTLED, message="no room in time"))
_STORED = (Kind.APPENDED, Kind.DUPLICATE, Kind.STAGED, Kind.STAGED_DUPLICATE)
_WRITE_NAME = Required("write", "producer")


class _Ready(NamedTuple):
    """A sound batch. reason: for its refusal if there is a gap before it (RefusedHeads).

    staged: of a transaction.
    """

    batch: KafkaBatch
    meta: BatchMeta
    reason: Answer | None
    staged: StagedBatch | None


class _Request:
    """A request in work. next: its first batch that is not handed over; ready: that batch."""

    __slots__ = ("asked", "deadline", "exchange", "head", "left", "next", "ready", "results")

    def __init__(
        self, head: Head, exchange: Exchange, asked: ProduceRequest, deadline: float
    ) -> None:
        self.head = head
        self.exchange = exchange
        self.asked = asked
        self.deadline = deadline
        self.results: list[Result | None] = [None] * len(asked.partitions)
        self.left = len(asked.partitions)
        self.next = 0
        self.ready: _Ready | None = None

    @property
    def is_handed_over(self) -> bool:
        return self.next == len(self.asked.partitions)

    def make_way(self) -> None:
        """Let the answers behind go first: acks=0 sends nothing."""
        if not self.asked.acks and self.exchange.parts is None:
            self.exchange.answer(())

    def answer(self) -> None:
        """Answer, when all results are there. Nothing is sent for acks=0.

        Its client learns of an error by the end of the connection, as from Kafka, and looks for the
        leader anew. Else it would send to a former leader until its metadata is too old.
        """
        if not self.asked.acks:
            self.make_way()
            if any(one is not None and one.error for one in self.results):
                self.exchange.close()
            return
        results = (one for one in self.results if one is not None)
        pairs = zip(self.asked.partitions, results, strict=True)
        self.exchange.answer((produce_answer(self.head, pairs, self.exchange.wait_ms(0)),))


class Producing:
    """Produce requests of one connection. leases: the node's, shared."""

    def __init__(self, node: NodeContext, rights: Rights, leases: Leases) -> None:
        self._node = node
        self._rights = rights
        self._leases = leases
        self._loop = asyncio.get_running_loop()
        self._under_way = UnderWay(node)
        self._note = partial(note_verdict, node.metrics.events, rights.caller)
        self._heads = RefusedHeads(self._note)
        self._unknown = 0  # batches under an id that was not issued to this client, or forgotten
        self._queue: deque[_Request] = deque()
        self._draining: asyncio.Task[None] | None = None
        self._waiting: dict[_Request, None] = {}  # requests without their answer
        # Runs while requests wait: an idle connection costs no timer.
        self._sweeping: asyncio.TimerHandle | None = None

    def begin(self, head: Head, source: Source, exchange: Exchange) -> None:
        """Take a request's batches. Raises CodecError."""
        asked = read_produce(source, head.version, flexible=head.flexible)
        longest = self._node.config.request_timeout_ms
        timeout = min(asked.timeout_ms, longest) if asked.timeout_ms > 0 else longest
        request = _Request(head, exchange, asked, self._loop.time() + timeout / 1000)
        if not asked.partitions:
            request.answer()
            return
        self._waiting[request] = None
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP, self._sweep)
        self._queue.append(request)
        if self._draining is None:
            wait = self._advance()
            if wait is not None:
                self._draining = self._loop.create_task(self._drain(wait))

    def close(self) -> None:
        """Drop the batches that were not handed over; proposed batches go on."""
        self._queue.clear()
        self._waiting.clear()
        if self._draining is not None:
            self._draining.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._under_way.close()

    # -- order --------------------------------------------------------------------------

    def _advance(self, *, has_turn: bool = False) -> Wait | None:
        """Hand batches over while there is room; returns the wait for more; None: all are.

        has_turn: a slice of work is this connection's now, however many others wait.
        """
        turns = self._node.turns
        while self._queue:
            request = self._queue[0]
            while not request.is_handed_over:
                if turns.must_wait and not has_turn:
                    return self._take_turn
                wait = self._append(request, request.next)
                if wait is not None:
                    return wait
                if turns.spend(len(request.asked.partitions[request.next].records)):
                    has_turn = False
                request.next, request.ready = request.next + 1, None
            self._queue.popleft()
        return None

    async def _drain(self, wait: Wait | None) -> None:
        try:
            while wait is not None:
                await wait()
                wait = self._advance(has_turn=wait == self._take_turn)
            self._draining = None
        except Exception:  # the last stop: no batch may go before those that wait
            log.exception("Kafka batches failed client=%s", self._rights.caller.client)
            if self._queue:
                self._queue[0].exchange.close()

    async def _take_turn(self) -> None:
        await self._node.turns.take(self._rights.caller.client)

    async def _room(self, replica: Partition | None) -> None:
        """Wait for news of the partition, which may have room now, or a moment."""
        with Listening(() if replica is None else (replica,)) as listening:
            await listening.wait(listening.count, self._loop.time() + LOOK_AGAIN)

    # -- one batch ----------------------------------------------------------------------

    def _append(self, request: _Request, number: int) -> Wait | None:
        """Hand one batch over, or refuse it; returns the wait before a new try."""
        node, data = self._node, request.asked.partitions[number]
        if request.asked.acks not in ACKS:
            text = f"acks: {request.asked.acks} is not one of -1, 0, 1"
            self._done(request, number, Result(Error.INVALID_REQUIRED_ACKS, message=text))
            return None
        refused = self._rights.refusal(PRODUCE, data.topic)
        if refused is not None:
            self._done(request, number, Result(of_error(refused), message=text_of(refused)))
            return None
        located = None if is_internal(data.topic) else locate(node, data.topic, data.partition)
        if located is None:
            text = f"there is no partition {data.topic}-{data.partition}"
            self._done(request, number, Result(Error.UNKNOWN_TOPIC_OR_PARTITION, message=text))
            return None
        try:
            ready = request.ready = request.ready or self._read(data)
        except InvalidKafkaBatch as error:
            self._done(request, number, Result(error.code, message=str(error)[:MAX_TEXT_CHARS]))
            return None
        if ready.batch.lacks_highest:
            return partial(self._find_highest, request, ready)
        replica = located.replica
        if replica is None or not located.leads:
            answer = Answer(Verdict(Kind.NOT_LEADER), leader_id=located.leader_id)
            self._answered(request, number, ready, answer)
            return None
        exceeded = self._over_quota(ready, replica)
        if exceeded is not None:
            self._answered(request, number, ready, Answer(exceeded))
            return None
        if ready.staged is not None:
            found = self._look(ready.staged, replica)
            if isinstance(found, Result):
                self._done(request, number, found)
                return None
            if isinstance(found, Verdict):
                self._answered(request, number, ready, Answer(found))
                return None
            if found is not None:
                return found
        if not self._is_full(request) and self._hand_over(request, number, ready, replica):
            return None
        if self._loop.time() >= request.deadline:
            self._answered(request, number, ready, _NO_ROOM)
            return None
        return partial(self._room, replica)

    def _is_full(self, request: _Request) -> bool:
        """Whether the node has no memory, or none beyond its share for a client with acks=0.

        Such a client is not limited by the answers that it waits for.
        """
        is_beyond = not request.asked.acks and self._under_way.memory.must_wait
        return is_beyond or self._node.memory.full

    def _over_quota(self, ready: _Ready, replica: Partition) -> Verdict | None:
        """Return why the caller may stage nothing, or no more producer ids in the partition.

        Only idempotent producers have ids, so a retriable error keeps their order.
        """
        usage, pid = self._rights.caller.usage, ready.meta.producer_id
        if ready.staged is not None:
            return staging(usage)
        if usage is None or not pid or ready.meta.first or PRODUCERS not in usage.limits():
            return None
        if not ids.proves(self._node.metadata.lease_secret, pid, usage.principal):
            return None  # it is refused for that
        return new_producer(replica, pid)

    def _read(self, data: PartitionData) -> _Ready:
        """Check a batch, once. Raises InvalidKafkaBatch."""
        batch = read_batch(data.records)
        meta = meta_of(batch)
        reason = self._heads.reason(data.topic, data.partition, meta)
        staged = None
        if batch.is_transactional:
            staged = StagedBatch(self._node.metadata, self._leases, meta)
        return _Ready(batch, meta, reason, staged)

    async def _find_highest(self, request: _Request, ready: _Ready) -> None:
        """Find the highest time of the records, which searches by time need."""
        found = await in_thread(highest, ready.batch)
        request.ready = ready._replace(batch=ready.batch._replace(max_timestamp=found))

    def _look(self, staged: StagedBatch, replica: Partition) -> Wait | Verdict | Result | None:
        """Return the batch's next wait, or why it is refused; None: append it now."""
        name = staged.name
        if name is not None:
            refused = self._rights.refusal(PRODUCE, name.name, _WRITE_NAME)
            if refused is not None:
                return Result(of_error(refused), message=text_of(refused))
        return staged.look(replica)

    def _hand_over(self, request: _Request, place: int, ready: _Ready, replica: Partition) -> bool:
        """Append a batch; False: the partition has no room for it yet."""
        started, size = time.monotonic(), len(ready.batch.payload)
        is_handing, is_throttled = True, False

        def answer_to(answer: Answer) -> None:
            nonlocal is_throttled
            self._under_way.answered(size)
            if is_handing and answer.verdict.kind is Kind.THROTTLED:
                is_throttled = True
                return
            if answer.verdict.kind is Kind.STAGED and usage is not None:
                usage.staged(number, size)
            if answer.verdict.kind is Kind.APPENDED:
                self._node.metrics.commit_latency.observe(time.monotonic() - started)
            self._answered(request, place, ready, answer, replica.log_start_offset)

        self._under_way.add(size)
        secret, principal = self._node.metadata.lease_secret, self._rights.caller.principal
        usage = self._rights.caller.usage
        number = 0 if ready.staged is None else ready.staged.transaction_id
        append(
            replica, ready.batch, ready.meta, answer_to,
            secret=secret, principal=principal, transaction_id=number,
        )  # fmt: skip
        is_handing = False
        return not is_throttled

    # -- answers ------------------------------------------------------------------------

    def _answered(
        self, request: _Request, number: int, ready: _Ready, answer: Answer, log_start: int = -1
    ) -> None:
        kind, data = answer.verdict.kind, request.asked.partitions[number]
        if kind in (Kind.DUPLICATE, Kind.STAGED_DUPLICATE):
            self._note(data.topic, data.partition, ready.meta, answer)
        if kind in _STORED:
            offset = answer.verdict.base_offset
            if kind is not Kind.DUPLICATE and ready.staged is not None:
                offset = staged_offset(request.exchange.software, ready.meta.first)
            old = kind is Kind.DUPLICATE and offset < 0
            error = Error.DUPLICATE_SEQUENCE_NUMBER if old else Error.NONE
            self._done(request, number, Result(error, offset, log_start))
            return
        if kind is Kind.UNKNOWN_PRODUCER:
            self._unknown += 1
            if self._unknown > MAX_UNKNOWN:  # it may be guessing at another client's id
                request.exchange.close()
        verdict = self._heads.answered(
            data.topic, data.partition, ready.meta, answer, ready.reason
        ).verdict
        text = verdict.message[:MAX_TEXT_CHARS]
        self._done(request, number, Result(of_verdict(verdict.kind), -1, log_start, text))

    def _done(self, request: _Request, number: int, result: Result) -> None:
        if request.results[number] is not None:
            return  # past its deadline
        request.results[number] = result
        request.left -= 1
        if not request.left and request in self._waiting:
            del self._waiting[request]
            request.answer()

    def _sweep(self) -> None:
        """Answer REQUEST_TIMED_OUT for requests past their deadline; they may commit later.

        Those of acks=0 make way now, not at once: their places limit what a client has in work.
        """
        now = self._loop.time()
        # One that is not handed over is refused when its turn comes.
        for request in [one for one in self._waiting if one.is_handed_over]:
            request.make_way()
            if request.deadline <= now:
                for number in range(len(request.results)):
                    self._done(request, number, _NOT_IN_TIME)
        again = bool(self._waiting)
        self._sweeping = self._loop.call_later(SWEEP, self._sweep) if again else None
