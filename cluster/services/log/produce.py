"""Produce: takes batches into partitions, and returns their answers.

    LogService.Produce ------> Appender.all_of --.
    LogService.ProduceStream -> ProduceCall -----+--> Appender.append --> admission.refusal
                                                                    '--> Partition.append

One `ProduceCall` has one reader task (batches into partitions, in order) and one writer
(results as they come, all available ones in one message). Batches that wait for an answer, and
answers that wait for the client, are bounded for each stream and for the node (`budget`): a
stream beyond its share is not read on, and gRPC's flow control carries that to the client.
Requests are processed in slices, clients in turn (`turns`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial

from cluster.access.memory import NO_MEMORY
from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.partition.replica import Answer, AnswerTo, AppendRequest, Partition
from cluster.security.caller import CALLER
from cluster.services.context import NodeContext
from cluster.services.fair_turns import Turn
from cluster.services.log.added_partitions import AddedPartitions
from cluster.services.log.batch_checks import begins_chain, refusal
from cluster.services.log.lease_checks import Leases
from cluster.services.log.quota_checks import new_producer, staging
from cluster.services.log.refused_heads import RefusedHeads
from cluster.services.log.resolve import Resolver
from cluster.services.log.verdict_events import note_verdict
from cluster.services.outcomes import one_answer
from cluster.services.partition_events import Listening
from cluster.services.requests import MAX_TIMEOUT_MS, count_in_range, decoded, in_range
from cluster.services.routing import locate
from cluster.transactions.types import TransactionState
from oncelog.v1 import batch_pb2 as bpb
from oncelog.v1 import log_pb2 as pb

MAX_BATCHES = 20_000  # in one request
MAX_RESULTS = 1000  # in one message of a stream
MAX_WAITING_BYTES = 64 * 1024 * 1024  # a stream's batches whose answer was not taken
BATCH_BYTES = 4096  # of memory that a batch in progress takes beside its payload
RESULT_BYTES = 1024  # of memory that an answer takes until the client takes it
PREDECESSOR_WAIT = 1.0  # seconds that a unary batch waits for the one before it
MARKER_WAIT = 1.0  # seconds that a batch waits for its producer's last transaction to end
SWEEP = 1.0  # seconds between looks for batches past their deadline

# Senders know it under another number.
_PUBLIC = {Kind.STAGED_DUPLICATE: Kind.STAGED}
_NOT_IN_TIME = Verdict(Kind.TIMEOUT, message="not committed in time")
_NO_MEMORY = Answer(Verdict(Kind.THROTTLED, message=NO_MEMORY))


def meta_of(header: bpb.BatchHeader) -> BatchMeta:
    base, count = header.base_sequence, header.record_count
    return BatchMeta(
        header.producer_id,
        header.epoch,
        base,
        header.last_sequence if header.HasField("last_sequence") else base + count - 1,
        header.prev_sequence if header.HasField("prev_sequence") else base - 1,
        count,
        header.crc32c,
        header.expected_offset if header.HasField("expected_offset") else -1,
    )


class UnderWay:
    """Batches of one call that wait for their answer.

    They count until it comes, even after the call's end: a proposed batch stays in
    memory until then.
    """

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._ended = False
        self.memory = node.memory.open(self)
        self.batches = node.batches_under_way.open(self)

    def add(self, size: int) -> None:
        self.memory.take(size + BATCH_BYTES)
        self.batches.take(1)

    def answered(self, size: int) -> None:
        self.memory.release(size + BATCH_BYTES)
        self.batches.release(1)
        if self._ended:
            self.close()

    def close(self) -> None:
        """Take no more batches."""
        self._ended = True
        if not self.batches.held:
            self._node.memory.close(self)
            self._node.batches_under_way.close(self)


class Appender:
    """Takes batches for the partitions of one node."""

    def __init__(self, node: NodeContext, resolver: Resolver) -> None:
        self.node = node
        self._resolver = resolver
        self._leases = Leases(node)
        self._added = AddedPartitions(node)

    async def append(
        self,
        batch: bpb.Batch,
        payload: bytes,
        answer_to: AnswerTo,
        heads: RefusedHeads | None = None,
    ) -> None:
        """Hand a batch to its partition, or refuse it. `answer_to` is called once.

        heads: of the batch's stream. Waits only if a proven producer id is newer than this
        node's metadata.
        """
        node, header = self.node, batch.header
        meta, topic, number = meta_of(header), header.topic, header.partition
        # Read now: the head may have come again by the time of the answer.
        reason = heads.reason(topic, number, meta) if heads else None
        if node.memory.full:
            refused = _NO_MEMORY
            if heads is not None:
                refused = heads.answered(topic, number, meta, refused, reason)
            answer_to(refused)
            return
        located = locate(node, topic, number)
        replica = None if located is None else located.replica
        verdict = refusal(
            header,
            meta,
            payload,
            known=located is not None,
            leads=located is not None and located.leads,
            policy=None if replica is None else replica.policy,
        )
        if verdict is None and begins_chain(meta):
            verdict = await self._leases.check(batch.lease_token, meta.producer_id, meta.epoch)
            if verdict is None and replica is not None:
                verdict = new_producer(replica, meta.producer_id)
        elif verdict is None and meta.producer_id:
            verdict = self._leases.owned(batch.lease_token, meta.producer_id, meta.epoch)
        if verdict is not None:
            leader_id = 0
            if located is not None and verdict.kind is Kind.NOT_LEADER:
                leader_id = located.leader_id
            refused = Answer(verdict, leader_id=leader_id)
            if heads is not None:
                refused = heads.answered(topic, number, meta, refused, reason)
            answer_to(refused)
            return
        assert replica is not None, "refusal lets only partitions led here through"
        request = AppendRequest(
            meta, header.codec, header.transaction_id, header.max_timestamp_us, payload
        )
        await self.take(replica, request, answer_to, heads, reason)

    async def take(
        self,
        replica: Partition,
        request: AppendRequest,
        answer_to: AnswerTo,
        heads: RefusedHeads | None = None,
        reason: Answer | None = None,
    ) -> None:
        """Append or stage a batch whose form and producer are proven. `answer_to` is called once.

        heads: of the batch's connection; reason: theirs at the batch's arrival.
        """
        answer_to = self._watched(answer_to, replica, request.meta, heads, reason)
        if request.meta.producer_id:
            answer_to = self._resolver.with_offset(replica, request.meta, answer_to)
        if request.transaction_id:
            await self._stage(replica, request, answer_to)
        else:
            replica.append(request, answer_to)

    async def _stage(self, replica: Partition, request: AppendRequest, answer_to: AnswerTo) -> None:
        """Stage a transaction's batch; the first one registers its partition first."""
        await self._marked(replica, request)
        unregistered: list[Answer] = []
        usage = CALLER.get().usage
        exceeded = staging(usage)
        if exceeded is not None:
            answer_to(Answer(exceeded))
            return

        def answer(found: Answer) -> None:
            if found.verdict.kind is Kind.UNREGISTERED:
                unregistered.append(found)
            else:
                if usage is not None and found.verdict.kind is Kind.STAGED:
                    usage.staged(request.transaction_id, len(request.payload))
                answer_to(found)

        replica.append(request, answer)
        if not unregistered:
            return
        verdict = await self._added.register(
            replica.group.config.group,
            request.transaction_id,
            request.meta.producer_id,
            request.meta.epoch,
        )
        if verdict is None:
            replica.registered(request.transaction_id)
            unregistered.clear()
            replica.append(request, answer)
            if unregistered:  # deposed meanwhile, and leading again
                verdict = Verdict(Kind.NOT_READY)
        if verdict is not None:
            answer_to(Answer(verdict))

    async def _marked(self, replica: Partition, request: AppendRequest) -> None:
        """Return when the producer's last transaction is over here, if it is decided.

        Its marker is on the way: without the wait the batch would be refused and sent again.
        """
        pid, number = request.meta.producer_id, request.transaction_id
        if not self._awaits_marker(replica, pid, number):
            return
        until = asyncio.get_running_loop().time() + MARKER_WAIT
        with Listening((replica,)) as listening:
            seen = listening.count
            while self._awaits_marker(replica, pid, number) and await listening.wait(seen, until):
                seen = listening.count

    def _awaits_marker(self, replica: Partition, producer_id: int, transaction_id: int) -> bool:
        run = replica.machine.runs.run_of(producer_id)
        if run is None or run.transaction_id >= transaction_id:
            return False
        row = self.node.metadata.coordinator.get(run.transaction_id)
        return row is None or row.state is not TransactionState.OPEN

    def _watched(
        self,
        answer_to: AnswerTo,
        replica: Partition,
        meta: BatchMeta,
        heads: RefusedHeads | None,
        reason: Answer | None,
    ) -> AnswerTo:
        """Wrap `answer_to`: measure the append, tell the stream's heads if it is not stored now."""
        started = time.monotonic()

        def answer(answer: Answer) -> None:
            kind = answer.verdict.kind
            if kind is Kind.APPENDED:
                self.node.metrics.commit_latency.observe(time.monotonic() - started)
            elif heads is not None and kind is not Kind.STAGED:
                answer = heads.answered(replica.topic, replica.index, meta, answer, reason)
            answer_to(answer)

        return answer

    def result(self, batch_id: int, answer: Answer) -> pb.BatchResult:
        verdict = answer.verdict
        result = pb.BatchResult(
            id=batch_id,
            verdict=_PUBLIC.get(verdict.kind, verdict.kind),  # type: ignore[arg-type]  # numbers
            base_offset=verdict.base_offset,
            append_time_ms=answer.append_time_ms,
        )
        if verdict.kind not in (Kind.APPENDED, Kind.DUPLICATE):
            result.current_epoch = verdict.current_epoch
            result.last_sequence = verdict.last_sequence
            result.next_offset = verdict.next_offset
            result.message = verdict.message
            if verdict.kind is Kind.NOT_LEADER and answer.leader_id:
                result.leader_id = answer.leader_id
                result.leader_address = self.node.metadata.nodes.get(answer.leader_id, "")
        return result

    def commit_timeout(self, request: pb.ProduceRequest) -> float:
        """Return the seconds that the request's batches may wait for their commit.

        Raises InvalidRequestError for a request that is beyond the limits.
        """
        count_in_range("batches", len(request.batches), 0, MAX_BATCHES)
        longest = self.node.config.request_timeout_ms
        asked = in_range("timeout_ms", request.timeout_ms, 0, MAX_TIMEOUT_MS)
        return min(asked or longest, longest) / 1000

    # -- Produce ------------------------------------------------------------------------

    async def all_of(self, request: pb.ProduceRequest) -> list[pb.BatchResult]:
        """Return the results of all batches of a unary request, in their order."""
        deadline = asyncio.get_running_loop().time() + self.commit_timeout(request)
        node, tasks = self.node, list[asyncio.Task[Answer]]()
        client = CALLER.get().client
        await node.turns.take(client)
        under_way = UnderWay(node)
        with Listening(()) as listening, closing(under_way):
            async with asyncio.TaskGroup() as group:
                for batch in request.batches:
                    located = locate(node, batch.header.topic, batch.header.partition)
                    if located is not None and located.replica is not None:
                        listening.add(located.replica)
                    one = self._one(batch, deadline, listening, under_way)
                    tasks.append(group.create_task(one))
                    if node.turns.spend(len(batch.payload)):
                        await node.turns.take(client)
                        await under_way.batches.room()
        turn, results = Turn(), list[pb.BatchResult]()
        for batch, task in zip(request.batches, tasks, strict=True):
            answer, header = task.result(), batch.header
            results.append(self.result(batch.id, answer))
            if answer.verdict.kind not in (Kind.APPENDED, Kind.STAGED):
                where = header.topic, header.partition
                note_verdict(node.metrics.events, CALLER.get(), *where, meta_of(header), answer)
            if turn.spend(0):
                await asyncio.sleep(0)
        return results

    async def _one(
        self, batch: bpb.Batch, deadline: float, listening: Listening, under_way: UnderWay
    ) -> Answer:
        """Append one batch. Unary calls overtake each other, so a gap gets a while to close."""
        loop = asyncio.get_running_loop()
        gap_until = min(deadline, loop.time() + PREDECESSOR_WAIT)
        payload = batch.payload
        prev = meta_of(batch.header).prev
        while True:
            # Read before asking: the predecessor may come while the refusal is confirmed.
            seen = listening.count
            future: asyncio.Future[Answer]
            future, done = one_answer()

            def answer_to(answer: Answer, done: AnswerTo = done) -> None:
                under_way.answered(len(payload))
                done(answer)

            under_way.add(len(payload))
            await self.append(batch, payload, answer_to)
            try:
                async with asyncio.timeout_at(deadline):
                    answer = await future
            except TimeoutError:
                return Answer(_NOT_IN_TIME)
            verdict = answer.verdict
            # Only a gap can close; an overlap or another cut stays.
            gap = verdict.kind is Kind.OUT_OF_ORDER and verdict.last_sequence < prev
            if not gap or loop.time() >= gap_until:
                return answer
            if not await listening.wait(seen, gap_until):
                return answer


class ProduceCall:
    """One stream's batches that wait for their answer, and the answers to send."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._client = CALLER.get().client
        node = appender.node
        self._turns = node.turns
        self._memory = node.memory.of_call()
        self._under_way = UnderWay(node)
        self._loop = asyncio.get_running_loop()
        self._results: list[tuple[int, Answer]] = []
        # position in the stream -> (batch id, payload bytes, deadline)
        self._waiting: dict[int, tuple[int, int, float]] = {}
        self._waiting_bytes = 0
        self._position = 0
        self._heads = RefusedHeads(partial(note_verdict, node.metrics.events, CALLER.get()))
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = self._closed = False
        # Runs while batches wait: an idle stream costs no timer.
        self._sweeping: asyncio.TimerHandle | None = None

    async def read(self, requests: AsyncIterator[pb.ProduceRequest]) -> None:
        """Append all that comes. Raises InvalidRequestError; earlier batches are answered."""
        memory, under_way = self._memory, self._under_way
        try:
            memory.receiving = True
            async for request in requests:
                memory.receiving = False
                timeout = self._appender.commit_timeout(decoded(request))
                size = request.ByteSize()
                memory.take(size)
                if self._turns.must_wait:
                    await self._turns.take(self._client)
                for batch in request.batches:
                    if self._turns.spend(await self._append(batch, timeout)):
                        await self._turns.take(self._client)
                        await under_way.batches.room()
                memory.release(size)
                for account in (under_way.memory, memory):
                    if account.must_wait:
                        await account.room()
                memory.receiving = True
        finally:
            memory.receiving = False
            self._ended = True
            self._news.set()

    async def _append(self, batch: bpb.Batch, timeout: float) -> int:
        """Append a batch; returns its payload's size."""
        while self._waiting_bytes > MAX_WAITING_BYTES:
            self._room.clear()
            await self._room.wait()
        self._position += 1
        payload = batch.payload
        position, size = self._position, len(payload)
        self._waiting[position] = (batch.id, size, self._loop.time() + timeout)
        self._waiting_bytes += size + BATCH_BYTES
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP, self._sweep)
        self._under_way.add(size)
        await self._appender.append(
            batch, payload, lambda answer: self._decided(position, size, answer), self._heads
        )
        return size

    def _decided(self, position: int, size: int, answer: Answer) -> None:
        self._under_way.answered(size)
        self._answer(position, answer)

    def _answer(self, position: int, answer: Answer) -> None:
        waiting = self._waiting.pop(position, None)
        if waiting is None or self._closed:
            return  # past its deadline
        batch_id, size, _ = waiting
        self._waiting_bytes -= size
        self._memory.take(RESULT_BYTES)
        self._results.append((batch_id, answer))
        self._news.set()
        self._room.set()

    async def next_results(self) -> list[tuple[int, Answer]]:
        """Return the available results, 1 to MAX_RESULTS; empty at the stream's end."""
        while not self._results:
            if self._ended and not self._waiting:
                return []
            await self._news.wait()
            self._news.clear()
        results, self._results = self._results[:MAX_RESULTS], self._results[MAX_RESULTS:]
        return results

    def taken(self, results: int) -> None:
        """Release answers of `next_results` that have left for the client."""
        self._waiting_bytes -= results * BATCH_BYTES
        self._memory.release(results * RESULT_BYTES)
        self._room.set()

    def close(self) -> None:
        """Drop the waiting answers."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._under_way.close()

    def _sweep(self) -> None:
        """Answer TIMEOUT for batches past their deadline; they may commit later."""
        now = self._loop.time()
        for position, (_, _, deadline) in list(self._waiting.items()):
            if deadline <= now:
                self._answer(position, Answer(_NOT_IN_TIME))
        waits = self._waiting and not self._closed
        self._sweeping = self._loop.call_later(SWEEP, self._sweep) if waits else None
