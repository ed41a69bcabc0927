"""Services of one node: each call is noted, then answered by the truth or by a lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from cluster.dedup.verdict import Kind
from cluster.metadata.topics import check_more_partitions
from cluster.partition.types import Answer
from cluster.rpc.errors import abort
from cluster.v1 import metadata_pb2 as meta
from conformance.broker.honest import Honest
from conformance.broker.lies import Lie
from conformance.broker.producing import Batches, Stream
from conformance.broker.reading import Reader
from conformance.broker.stage import Stage
from oncelog import errors
from oncelog.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    log_pb2_grpc,
    producer_pb2,
    producer_pb2_grpc,
)
from oncelog.v1 import log_pb2 as pb

MESSAGE_BYTES = 64 * 1024 * 1024
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
    """Service of producer ids and names."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def LeaseProducer(
        self, request: producer_pb2.LeaseProducerRequest, context: Any
    ) -> producer_pb2.LeaseProducerResponse:
        async def truth(_: Lie | None) -> producer_pb2.LeaseProducerResponse:
            return self._lease(request)

        facts = {
            "name": request.producer_name,
            "nonce": request.nonce,
            "held_epoch": request.held_epoch,
            "held": bool(request.held_producer_id),
        }
        return await self._stage.answer("lease", facts, request, context, truth)

    def _lease(
        self, request: producer_pb2.LeaseProducerRequest
    ) -> producer_pb2.LeaseProducerResponse:
        cluster = self._stage.cluster
        if request.producer_name:
            change = meta.LeaseName(
                name=request.producer_name,
                nonce=request.nonce,
                held_producer_id=request.held_producer_id,
                held_epoch=request.held_epoch,
            )
            producer_id, epoch, end = cluster.lease_name(change)
        else:
            if request.nonce or request.held_producer_id or request.held_epoch:
                raise errors.InvalidRequestError("nonce: without a name", field="nonce")
            producer_id, epoch, end = cluster.lease()
        return producer_pb2.LeaseProducerResponse(
            producer_id=producer_id,
            epoch=epoch,
            expire_ms=end,
            lifetime_ms=end - cluster.now_ms,
            lease_token=cluster.token(producer_id, epoch, end),
        )

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

    async def FenceProducer(
        self, request: producer_pb2.FenceProducerRequest, context: Any
    ) -> producer_pb2.FenceProducerResponse:
        async def truth(_: Lie | None) -> producer_pb2.FenceProducerResponse:
            change = meta.LeaseName(
                name=request.producer_name, fence_only=True, nonce=request.nonce
            )
            producer_id, epoch, _end = self._stage.cluster.lease_name(change)
            return producer_pb2.FenceProducerResponse(producer_id=producer_id, epoch=epoch)

        facts = {"name": request.producer_name, "nonce": request.nonce}
        return await self._stage.answer("fence", facts, request, context, truth)

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


class ClusterService(cluster_pb2_grpc.ClusterServiceServicer):
    """Service of nodes and topics."""

    def __init__(self, stage: Stage, honest: Honest) -> None:
        self._stage = stage
        self._honest, self._node = honest, honest.cluster

    async def DescribeCluster(
        self, request: cluster_pb2.DescribeClusterRequest, context: Any
    ) -> cluster_pb2.DescribeClusterResponse:
        async def truth(_: Lie | None) -> cluster_pb2.DescribeClusterResponse:
            cluster = self._stage.cluster
            limits = cluster_pb2.RequestLimits(
                produce_batches=20_000,
                fetch_partitions=1000,
                fetch_wait_ms=60_000,
                producer_partitions=20_000,
                produce_timeout_ms=30_000,
                stream_waiting_bytes=MESSAGE_BYTES,
                fetch_bytes=MESSAGE_BYTES,
                message_bytes=MESSAGE_BYTES,
            )
            return cluster_pb2.DescribeClusterResponse(
                cluster_id="conformance",
                answering_node_id=self._stage.node_id,
                controller_id=1,
                nodes=self._nodes(),
                topics=len(cluster.metadata.topics()),
                partitions=cluster.metadata.partition_count,
                max_message_bytes=MESSAGE_BYTES,
                limits=limits,
            )

        return await self._stage.answer("describe_cluster", {}, request, context, truth)

    def _nodes(self) -> list[cluster_pb2.NodeInfo]:
        cluster = self._stage.cluster
        return [
            cluster_pb2.NodeInfo(node_id=n, address=address, alive=n not in cluster.stopped)
            for n, address in cluster.addresses.items()
        ]

    async def DescribeTopics(
        self, request: cluster_pb2.DescribeTopicsRequest, context: Any
    ) -> cluster_pb2.DescribeTopicsResponse:
        async def truth(lie: Lie | None) -> cluster_pb2.DescribeTopicsResponse:
            names = request.names or [t.name for t in self._stage.cluster.metadata.topics()]
            answer = cluster_pb2.DescribeTopicsResponse(
                topics=[self._topic(name) for name in names], nodes=self._nodes()
            )
            for topic, number, leader, term in lie.says if lie is not None else ():
                for info in answer.topics:
                    if info.name == topic:
                        info.partitions[number].leader_id = leader
                        info.partitions[number].term = term
            behind = 0 if lie is None else lie.partitions
            for info in answer.topics if behind else ():
                del info.partitions[behind:]
            return answer

        count = self._stage.cluster.metadata.partition_count
        cluster = self._stage.cluster
        nobody = (0, *cluster.stopped)
        leaderless = sum(one.leader_id in nobody for one in cluster.partitions.values())
        facts = {"names": list(request.names), "partitions": count, "leaderless": leaderless}
        return await self._stage.answer("describe_topics", facts, request, context, truth)

    def _topic(self, name: str) -> cluster_pb2.TopicInfo:
        cluster = self._stage.cluster
        topic = cluster.topic(name)
        info = cluster_pb2.TopicInfo(
            name=name,
            topic_id=topic.topic_id,
            config=topic.config,
            created_ms=topic.created_ms,
        )
        for number, state in enumerate(topic.partitions):
            partition = cluster.partitions[name, number]
            info.partitions.add(
                partition=number,
                group_id=state.group_id,
                # A node, too, names no leader that it knows to be away.
                leader_id=0 if partition.leader_id in cluster.stopped else partition.leader_id,
                term=partition.term,
                replicas=partition.replicas,
                target=state.target,
                added_ms=state.added_ms,
                log_start_offset=partition.log_start,
                high_watermark=partition.high_watermark(self._stage.node_id),
            )
        return info

    async def CreateTopic(
        self, request: cluster_pb2.CreateTopicRequest, context: Any
    ) -> cluster_pb2.CreateTopicResponse:
        async def truth(_: Lie | None) -> cluster_pb2.CreateTopicResponse:
            cluster = self._stage.cluster
            if cluster.metadata.topic(request.name) is not None:
                text = f"topic {request.name!r} already exists"
                raise errors.TopicAlreadyExistsError(text, topic=request.name)
            cluster.create_topic(request.name, request.partitions or 1, request.config)
            return cluster_pb2.CreateTopicResponse(topic=self._topic(request.name))

        facts = {"topic": request.name}
        return await self._stage.answer("create_topic", facts, request, context, truth)

    async def ResizeTopic(
        self, request: cluster_pb2.ResizeTopicRequest, context: Any
    ) -> cluster_pb2.ResizeTopicResponse:
        async def truth(_: Lie | None) -> cluster_pb2.ResizeTopicResponse:
            cluster = self._stage.cluster
            known = len(cluster.topic(request.name).partitions)
            check_more_partitions(known, request.partitions)
            if not request.dry_run:
                cluster.grow_topic(request.name, request.partitions)
            moves = [
                cluster_pb2.PartitionMove(
                    topic=request.name, partition=number, target=cluster.place(number)
                )
                for number in range(known, request.partitions)
            ]
            topic = self._topic(request.name)
            return cluster_pb2.ResizeTopicResponse(topic=topic, moves=moves, count=len(moves))

        facts = {"topic": request.name}
        return await self._stage.answer("resize_topic", facts, request, context, truth)

    async def DeleteTopic(
        self, request: cluster_pb2.DeleteTopicRequest, context: Any
    ) -> cluster_pb2.DeleteTopicResponse:
        async def truth(_: Lie | None) -> cluster_pb2.DeleteTopicResponse:
            self._stage.cluster.topic(request.name)
            self._stage.cluster.delete_topic(request.name)
            return cluster_pb2.DeleteTopicResponse()

        facts = {"topic": request.name}
        return await self._stage.answer("delete_topic", facts, request, context, truth)

    async def ReassignPartition(self, request: Any, context: Any) -> Any:
        method = self._node.ReassignPartition
        return await self._honest.answer("reassign_partition", method, request, context)

    async def ChangeNode(self, request: Any, context: Any) -> Any:
        return await self._honest.answer("change_node", self._node.ChangeNode, request, context)

    async def ListNodes(self, request: Any, context: Any) -> Any:
        return await self._honest.answer("list_nodes", self._node.ListNodes, request, context)

    async def BalanceCluster(self, request: Any, context: Any) -> Any:
        return await self._honest.answer("balance", self._node.BalanceCluster, request, context)
