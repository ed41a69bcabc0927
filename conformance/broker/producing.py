"""Produce and ProduceStream of one node: batches in, results out, with lies about both.

LogService --> Batches.take --honest--> Cluster.append --> result --> the stream
                    '-------lie--> held, repeated, late, lost, another verdict
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from cluster.dedup.verdict import Kind, Verdict
from cluster.partition.types import Answer
from cluster.services.log.produce import meta_of
from cluster.services.log.refused_heads import RefusedHeads
from conformance.broker.lies import Lie
from conformance.broker.stage import Stage
from conformance.vectors import name_of
from oncelog.errors import OncelogError
from oncelog.v1 import batch_pb2
from oncelog.v1 import log_pb2 as pb

STRAY = 1 << 40  # added to an id: the client never sent the sum
MAX_RESULTS = 1000  # in one message
STORED = (Kind.APPENDED, Kind.DUPLICATE, Kind.STAGED, Kind.STAGED_DUPLICATE)
PUBLIC = {Kind.STAGED_DUPLICATE: Kind.STAGED}

Key = tuple[str, int, int, int, int]
Give = Callable[[pb.BatchResult], None]


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


class Stream:
    """One ProduceStream. Results leave in the order in which they were added."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.heads = RefusedHeads()
        self.broken = False
        self.refusal: OncelogError | None = None  # the status of a broken one
        self.open_answers = 0
        self._results: list[pb.BatchResult] = []
        self._ended = False
        self._news = asyncio.Event()

    def give(self, result: pb.BatchResult) -> None:
        self._results.append(result)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def results(self) -> list[pb.BatchResult]:
        """Takes all waiting results; empty at the end."""
        while not self._results and not self.broken:
            if self._ended and self.open_answers == 0:
                return []
            self._news.clear()
            await self._news.wait()
        taken, self._results = self._results[:MAX_RESULTS], self._results[MAX_RESULTS:]
        return taken


class Batches:
    """Intake of batches for one node."""

    def __init__(self, stage: Stage, held: Held) -> None:
        self._stage = stage
        self._held = held
        self._streams = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def new_stream(self) -> Stream:
        self._streams += 1
        return Stream(self._streams)

    async def read(self, requests: AsyncIterator[pb.ProduceRequest], stream: Stream) -> None:
        try:
            async for request in requests:
                for batch in request.batches:
                    if stream.broken:
                        return
                    await self.take(batch, request.timeout_ms, stream)
        finally:
            stream.end()

    async def take(self, batch: batch_pb2.Batch, timeout_ms: int, stream: Stream) -> None:
        facts = self._facts(batch, timeout_ms, stream)
        lie = self._stage.find("produce", self._stage.note("produce", facts, batch))
        stream.open_answers += 1
        if lie is None:
            self._give(batch, stream, self._honest(batch, stream))
        else:
            await self._lied(lie, batch, stream)

    def _facts(self, batch: batch_pb2.Batch, timeout_ms: int, stream: Stream) -> dict[str, Any]:
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
            "vector": self._vector(batch),
            "expected_offset": found.expected_offset,
            "token": bool(batch.lease_token),
            "transaction": header.transaction_id,
            "attempt": attempts[key],  # at any node
            "timeout_ms": timeout_ms,
            "stream": stream.number,
        }

    @staticmethod
    def _vector(batch: batch_pb2.Batch) -> str:
        try:
            return name_of(batch.header.codec, batch.payload)
        except (ValueError, RuntimeError) as error:
            return f"unreadable: {error}"

    def _honest(self, batch: batch_pb2.Batch, stream: Stream) -> Answer:
        header = batch.header
        topic, number, found = header.topic, header.partition, meta_of(header)
        reason = stream.heads.reason(topic, number, found)
        answer = self._stage.cluster.append(self._stage.node_id, batch)
        if answer.verdict.kind in STORED:
            return answer
        return stream.heads.answered(topic, number, found, answer, reason)

    async def _lied(self, lie: Lie, batch: batch_pb2.Batch, stream: Stream) -> None:
        answer: Answer | None = None
        if lie.late:
            copy = batch_pb2.Batch.FromString(batch.SerializeToString())
            arrived = self._held.copies.setdefault(lie.late, [])
            arrived.append(lambda: self._arrived(copy))
        elif lie.store or (lie.answer in ("", "none") and not lie.status):
            if lie.answer != "none" or lie.store:
                answer = self._honest(batch, stream)
        if lie.answer not in ("", "none"):
            answer = self._told(lie, batch, stream)
        await self._stage.happen(lie)
        if lie.break_stream or lie.status:
            stream.refusal = self._stage.error(lie) if lie.status else None
            stream.broken = True
            stream.wake()
        elif answer is None or lie.answer == "none":
            stream.open_answers -= 1
        elif lie.hold:
            held = self._held.answers.setdefault(lie.hold, [])
            given = answer
            held.append(lambda: self._give(batch, stream, given, lie))
        elif lie.delay_ms:
            self._later(lie.delay_ms / 1000, batch, stream, answer, lie)
        else:
            self._give(batch, stream, answer, lie)

    def _told(self, lie: Lie, batch: batch_pb2.Batch, stream: Stream) -> Answer:
        header = batch.header
        found = meta_of(header)
        given = Verdict(Kind[lie.answer], message="by the script")
        answer = Answer(given, leader_id=lie.leader)
        stream.heads.reason(header.topic, header.partition, found)
        return stream.heads.answered(header.topic, header.partition, found, answer, None)

    def _arrived(self, batch: batch_pb2.Batch) -> None:
        header = batch.header
        partition = self._stage.cluster.partitions[header.topic, header.partition]
        answer = self._stage.cluster.append(partition.leader_id, batch)
        self._stage.note("arrived", {"verdict": answer.verdict.kind.name}, batch)

    def _later(
        self, seconds: float, batch: batch_pb2.Batch, stream: Stream, answer: Answer, lie: Lie
    ) -> None:
        async def give() -> None:
            await asyncio.sleep(seconds)
            self._give(batch, stream, answer, lie)

        task = asyncio.create_task(give())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(
        self, batch: batch_pb2.Batch, stream: Stream, answer: Answer, lie: Lie | None = None
    ) -> None:
        result = self.result(batch.id, answer)
        if lie is not None:
            for name, value in lie.set.items():
                setattr(result, name, value)
            if lie.stray:
                stray = pb.BatchResult(
                    id=batch.id + STRAY, verdict=pb.VERDICT_APPENDED, base_offset=0
                )
                stream.give(stray)
        facts = {
            "id": batch.id,
            "verdict": answer.verdict.kind.name,
            "topic": batch.header.topic,
            "partition": batch.header.partition,
        }
        self._stage.note("result", facts, result)
        stream.open_answers -= 1
        for _ in range(1 if lie is None else lie.repeat):
            stream.give(result)

    def result(self, batch_id: int, answer: Answer) -> pb.BatchResult:
        verdict = answer.verdict
        result = pb.BatchResult(
            id=batch_id,
            verdict=PUBLIC.get(verdict.kind, verdict.kind),  # type: ignore[arg-type]
            base_offset=verdict.base_offset,
            append_time_ms=answer.append_time_ms,
            message=verdict.message,
        )
        if verdict.kind not in STORED:
            result.current_epoch = verdict.current_epoch
            result.last_sequence = verdict.last_sequence
            result.next_offset = verdict.next_offset
        if verdict.kind is Kind.NOT_LEADER and answer.leader_id:
            result.leader_id = answer.leader_id
            result.leader_address = self._stage.cluster.addresses[answer.leader_id]
        return result
