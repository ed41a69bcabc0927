"""Services of one node: each call is noted, then answered by the truth or by a lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from cluster.dedup.verdict import Kind
from cluster.partition.types import Answer
from cluster.rpc.errors import abort
from conformance.broker.lies import Lie
from conformance.broker.producing import Batches, Stream
from conformance.broker.reading import Reader
from conformance.broker.stage import Stage
from oncelog.v1 import log_pb2 as pb
from oncelog.v1 import (
    log_pb2_grpc,
    producer_pb2,
    producer_pb2_grpc,
)

RECHECK = 60.0  # seconds until a subscription looks again without news


class LogService(log_pb2_grpc.LogServiceServicer):
    """Service of produce and fetch calls."""

    def __init__(self, stage: Stage, batches: Batches) -> None:
        self._stage = stage
        self._batches = batches
        self._reader = Reader(stage)

    async def ProduceStream(
        self, requests: AsyncIterator[pb.ProduceRequest], context: Any
    ) -> AsyncIterator[pb.ProduceResponse]:
        stream = self._batches.new_stream()
        reading = asyncio.create_task(self._batches.read(requests, stream))
        try:
            while results := await stream.results():
                yield pb.ProduceResponse(results=results)
            if stream.broken:
                await _break(stream, context)
        finally:
            reading.cancel()

    async def Produce(self, request: pb.ProduceRequest, context: Any) -> pb.ProduceResponse:
        stream = self._batches.new_stream()
        for batch in request.batches:
            await self._batches.take(batch, request.timeout_ms, stream)
        if stream.broken:
            await _break(stream, context)
        answer = pb.ProduceResponse()
        while len(answer.results) < len(request.batches):
            answer.results.extend(await stream.results())
        return answer

    async def Fetch(self, request: pb.FetchRequest, context: Any) -> pb.FetchResponse:
        async def truth(lie: Lie | None) -> pb.FetchResponse:
            return await self._reader.fetch(request, lie)

        return await self._stage.answer("fetch", _reading(request), request, context, truth)

    async def Subscribe(
        self, request: pb.SubscribeRequest, context: Any
    ) -> AsyncIterator[pb.FetchResponse]:
        wanted = list(request.partitions)
        while True:
            news = self._stage.cluster.news
            facts = _reading(request)
            answer = pb.FetchResponse()
            for fetch in wanted:
                records, _ = self._reader.look(fetch, request.max_bytes, request.any_replica, None)
                if records.batches:
                    last = records.batches[-1]
                    fetch.offset = last.base_offset + last.header.record_count
                if records.batches or records.error:
                    answer.partitions.append(records)
            if not answer.partitions:
                try:
                    async with asyncio.timeout(RECHECK):
                        await news.wait()
                except TimeoutError:
                    pass  # look again
                continue
            self._stage.note("subscribe", facts, answer)
            yield answer
            if any(records.error for records in answer.partitions):
                return

    async def ListOffsets(
        self, request: pb.ListOffsetsRequest, context: Any
    ) -> pb.ListOffsetsResponse:
        async def truth(lie: Lie | None) -> pb.ListOffsetsResponse:
            found = [self._reader.list_offset(q, request.any_replica, lie) for q in request.queries]
            return pb.ListOffsetsResponse(results=found)

        facts = {"any_replica": request.any_replica}
        return await self._stage.answer("list_offsets", facts, request, context, truth)

    async def ResolveSequence(
        self, request: pb.ResolveSequenceRequest, context: Any
    ) -> pb.ResolveSequenceResponse:
        async def truth(_: Lie | None) -> pb.ResolveSequenceResponse:
            return self._stage.cluster.resolve(self._stage.node_id, request)

        facts = {"sequence": request.sequence, "epoch": request.epoch}
        return await self._stage.answer("resolve", facts, request, context, truth)


async def _break(stream: Stream, context: Any) -> None:
    if stream.refusal is not None:
        await abort(context, stream.refusal)
    await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the script")


def _reading(request: pb.FetchRequest | pb.SubscribeRequest) -> dict[str, Any]:
    """Facts of a read. `offset`: of its first partition."""
    return {
        "offset": request.partitions[0].offset if request.partitions else -1,
        "partitions": len(request.partitions),
        "any_replica": request.any_replica,
    }


class ProducerService(producer_pb2_grpc.ProducerServiceServicer):
    """Service of producers in partitions; `honest` adds the calls about ids and names."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def OpenProducer(
        self, request: producer_pb2.OpenProducerRequest, context: Any
    ) -> producer_pb2.OpenProducerResponse:
        async def truth(lie: Lie | None) -> producer_pb2.OpenProducerResponse:
            lease = (request.producer_id, request.epoch, request.lease_token)
            opened = [self._open(p.topic, p.partition, lease, lie) for p in request.partitions]
            return producer_pb2.OpenProducerResponse(partitions=opened)

        facts = {"epoch": request.epoch, "token": bool(request.lease_token)}
        return await self._stage.answer("open", facts, request, context, truth)

    def _open(
        self, topic: str, number: int, lease: tuple[int, int, bytes], lie: Lie | None
    ) -> producer_pb2.OpenedPartition:
        cluster = self._stage.cluster
        if lie is not None and lie.error:
            answer = Answer(_verdict(lie.error), leader_id=lie.leader)
        else:
            answer = cluster.open_producer(self._stage.node_id, topic, number, lease)
        verdict = answer.verdict
        opened = producer_pb2.OpenedPartition(
            topic=topic,
            partition=number,
            last_sequence=verdict.last_sequence,
            last_offset=verdict.base_offset,
            current_epoch=verdict.current_epoch,
            message=verdict.message,
        )
        if verdict.kind is not Kind.APPENDED:
            opened.error = verdict.kind.name
        if verdict.kind is Kind.NOT_LEADER and answer.leader_id:
            opened.leader_id = answer.leader_id
            opened.leader_address = cluster.addresses[answer.leader_id]
        return opened

    async def DescribeProducers(
        self, request: producer_pb2.DescribeProducersRequest, context: Any
    ) -> producer_pb2.DescribeProducersResponse:
        async def truth(_: Lie | None) -> producer_pb2.DescribeProducersResponse:
            cluster, node = self._stage.cluster, self._stage.node_id
            last_seen = cluster.leading(node, request.topic, request.partition).last_seen
            known = last_seen.describe(request.producer_id)
            answer = producer_pb2.DescribeProducersResponse()
            if known is not None:
                answer.producers.add(
                    producer_id=known.producer_id,
                    epoch=known.epoch,
                    last_sequence=known.last_sequence,
                )
            return answer

        return await self._stage.answer("describe_producers", {}, request, context, truth)


def _verdict(name: str) -> Any:
    from cluster.dedup.verdict import Verdict

    return Verdict(Kind[name], message="by the script")
