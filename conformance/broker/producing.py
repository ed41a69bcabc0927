"""LogService's streams of one node: the nodes' own code, with lies about batches and answers.

ProduceStream --> ProduceCall (cluster.services) --> LyingAppender --> Appender --> Partition
                      answers <--held, late, lost, another verdict--'
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc

from cluster.dedup.verdict import Kind, Verdict
from cluster.partition.types import Answer, AnswerTo
from cluster.rpc.errors import abort
from cluster.services.context import NodeContext
from cluster.services.log.produce import Appender, ProduceCall, meta_of
from cluster.services.log.refused_heads import RefusedHeads
from cluster.services.log.resolve import Resolver
from cluster.services.log.service import LogService
from cluster.services.outcomes import one_answer
from conformance.broker.lies import Lie
from conformance.broker.stage import Stage
from conformance.vectors import name_of
from oncelog.errors import OncelogError
from oncelog.v1 import batch_pb2, log_pb2_grpc
from oncelog.v1 import log_pb2 as pb

STRAY = 1 << 40  # added to an id: the client never sent the sum
FOR_EVER = 3600.0  # seconds: no honest answer takes long, and a lie decides when its own is late

Key = tuple[str, int, int, int, int]


class Held:
    """State shared by all nodes: attempts of each batch; held answers and late copies, by name."""

    def __init__(self) -> None:
        self.attempts: dict[Key, int] = {}
        self.answers: dict[str, list[Callable[[], None]]] = {}
        self.copies: dict[str, list[Callable[[], None]]] = {}

    def release(self, name: str) -> None:
        """Sends the held answers, the last one first."""
        for give in reversed(self.answers.pop(name)):
            give()

    def arrive(self, name: str) -> None:
        """Stores the late copies; their answers are dropped."""
        for store in self.copies.pop(name):
            store()


class Broken(Exception):
    """A lie ends the stream. `status`: by this error; None: without one."""

    def __init__(self, status: OncelogError | None) -> None:
        super().__init__(status)
        self.status = status


class LyingAppender(Appender):
    """Appender of one stream: each batch meets its lie on the way to the partition and back."""

    def __init__(
        self, node: NodeContext, resolver: Resolver, stage: Stage, held: Held, stream: int
    ) -> None:
        super().__init__(node, resolver)
        self._shared = stage
        self._held = held
        self._stream = stream
        self._timeout_ms = 0
        # Id -> batches without an answer, each with its lie. A faulty client uses an id twice.
        self._batches: dict[int, list[tuple[batch_pb2.Batch, Lie | None]]] = {}

    def commit_timeout(self, request: pb.ProduceRequest) -> float:
        self._timeout_ms = request.timeout_ms
        return FOR_EVER

    async def append(
        self,
        batch: batch_pb2.Batch,
        payload: bytes,
        answer_to: AnswerTo,
        heads: RefusedHeads | None = None,
    ) -> None:
        lie = self._shared.find("produce", self._shared.note("produce", self._facts(batch), batch))
        self._batches.setdefault(batch.id, []).append((batch, lie))
        if lie is None:
            await super().append(batch, payload, answer_to, heads)
            return
        answer = await self._effect(lie, batch, heads)
        await self._shared.happen(lie)
        if lie.break_stream or lie.status:
            raise Broken(self._shared.error(lie) if lie.status else None)
        if answer is None or lie.answer == "none":
            return
        if lie.hold:
            given = answer
            self._held.answers.setdefault(lie.hold, []).append(lambda: answer_to(given))
        elif lie.delay_ms:
            asyncio.get_running_loop().call_later(lie.delay_ms / 1000, answer_to, answer)
        else:
            answer_to(answer)

    async def _effect(
        self, lie: Lie, batch: batch_pb2.Batch, heads: RefusedHeads | None
    ) -> Answer | None:
        """Stores the batch, or keeps it for later, or drops it; returns the answer."""
        answer: Answer | None = None
        if lie.late:
            copy = batch_pb2.Batch.FromString(batch.SerializeToString())
            self._held.copies.setdefault(lie.late, []).append(lambda: self._arrived(copy))
        elif lie.store or (not lie.answer and not lie.status):
            future: asyncio.Future[Answer]
            future, done = one_answer()
            await super().append(batch, batch.payload, done, heads)
            answer = await future
        if lie.answer in ("", "none"):
            return answer
        given = Verdict(Kind[lie.answer], message="by the script")
        told, header = Answer(given, leader_id=lie.leader), batch.header
        if heads is not None:
            where = header.topic, header.partition, meta_of(header)
            heads.reason(*where)
            told = heads.answered(*where, told, None)
        return told

    def _arrived(self, batch: batch_pb2.Batch) -> None:
        log = self._shared.cluster.partitions[batch.header.topic, batch.header.partition]
        self._shared.note("arrived", {"verdict": log.append(batch).verdict.kind.name}, batch)

    def _facts(self, batch: batch_pb2.Batch) -> dict[str, Any]:
        header, found = batch.header, meta_of(batch.header)
        key = (header.topic, header.partition, found.producer_id, found.epoch, found.first)
        attempts = self._held.attempts
        attempts[key] = attempts.get(key, 0) + 1
        return {
            "topic": header.topic,
            "partition": header.partition,
            "producer_id": found.producer_id,
            "epoch": found.epoch,
            "first": found.first,
            "last": found.last,
            "prev": found.prev,
            "count": found.count,
            "codec": batch_pb2.Codec.Name(header.codec).removeprefix("CODEC_").lower(),
            "vector": _vector(batch),
            "expected_offset": found.expected_offset,
            "token": bool(batch.lease_token),
            "transaction": header.transaction_id,
            "attempt": attempts[key],  # at any node
            "timeout_ms": self._timeout_ms,
            "stream": self._stream,
        }

    def results(self, batch_id: int, answer: Answer) -> Iterator[pb.BatchResult]:
        """Results of one batch: one, unless a lie wants others."""
        batch, lie = self._batches[batch_id].pop(0)
        result = self.result(batch_id, answer)
        for name, value in lie.set.items() if lie is not None else ():
            setattr(result, name, value)
        facts = {
            "id": batch_id,
            "verdict": answer.verdict.kind.name,
            "topic": batch.header.topic,
            "partition": batch.header.partition,
        }
        self._shared.note("result", facts, result)
        if lie is not None and lie.stray:
            yield pb.BatchResult(id=batch_id + STRAY, verdict=pb.VERDICT_APPENDED, base_offset=0)
        yield from [result] * (1 if lie is None else lie.repeat)


def _vector(batch: batch_pb2.Batch) -> str:
    try:
        return name_of(batch.header.codec, batch.payload)
    except (ValueError, RuntimeError) as error:
        return f"unreadable: {error}"


class LogStreams(log_pb2_grpc.LogServiceServicer):
    """Streams of the LogService; `honest` adds the other calls."""

    def __init__(self, stage: Stage, service: LogService, held: Held) -> None:
        self._stage = stage
        self._service = service
        self._held = held
        self._resolver = Resolver(service.node)
        self._streams = 0

    async def ProduceStream(
        self, requests: AsyncIterator[pb.ProduceRequest], context: Any
    ) -> AsyncIterator[pb.ProduceResponse]:
        async for results in self._answered(requests, context):
            yield pb.ProduceResponse(results=results)

    async def Produce(self, request: pb.ProduceRequest, context: Any) -> pb.ProduceResponse:
        async def alone() -> AsyncIterator[pb.ProduceRequest]:
            yield request

        answer = pb.ProduceResponse()
        async for results in self._answered(alone(), context):
            answer.results.extend(results)
        return answer

    async def _answered(
        self, requests: AsyncIterator[pb.ProduceRequest], context: Any
    ) -> AsyncIterator[list[pb.BatchResult]]:
        self._streams += 1
        appender = LyingAppender(
            self._service.node, self._resolver, self._stage, self._held, self._streams
        )
        call = ProduceCall(appender)
        reading = asyncio.create_task(call.read(requests))
        try:
            while answers := await _unless_broken(call.next_results, reading):
                yield [one for answer in answers for one in appender.results(*answer)]
                call.taken(len(answers))
            await reading
        except Broken as broken:
            if broken.status is not None:
                await abort(context, broken.status)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the script")
        finally:
            reading.cancel()
            call.close()

    async def Subscribe(self, request: pb.SubscribeRequest, context: Any) -> None:
        async def write(message: bytes) -> None:
            answer = pb.FetchResponse.FromString(message)
            facts = {"any_replica": request.any_replica, "near": request.near}
            self._stage.note("subscribe", facts, answer)
            await context.write(answer)

        await self._service.Subscribe(request, write)


async def _unless_broken(
    next_results: Callable[[], Awaitable[list[tuple[int, Answer]]]], reading: asyncio.Task[None]
) -> list[tuple[int, Answer]]:
    """Next results; none once a lie has broken the stream, and those before it have left."""
    more = asyncio.ensure_future(next_results())
    try:
        await asyncio.wait((more, reading), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)  # results that came before the break are taken at once
        broken = reading.done() and not reading.cancelled() and reading.exception() is not None
        return [] if broken and not more.done() else await more
    finally:
        more.cancel()
