"""Reads of a node: Fetch, Subscribe, ListOffsets."""

from __future__ import annotations

import asyncio

import crc32c

from conformance.broker.cluster import Partition
from conformance.broker.lies import Lie
from conformance.broker.payloads import corrupted, overlong
from conformance.broker.stage import Stage
from oncelog import errors
from oncelog.v1 import batch_pb2
from oncelog.v1 import log_pb2 as pb

MAX_BATCHES = 1000
DEFAULT_BYTES = 16 * 1024 * 1024


class Reader:
    """Reader of one node."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def fetch(self, request: pb.FetchRequest, lie: Lie | None) -> pb.FetchResponse:
        """Waits for `min_bytes`, an error, or the request's time limit."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.max_wait_ms / 1000
        while True:
            news = self._stage.cluster.news
            answer = pb.FetchResponse()
            size = 0
            for wanted in request.partitions:
                records, found = self.look(
                    wanted, request.max_bytes - size, request.any_replica, lie
                )
                size += found
                answer.partitions.append(records)
            failed = any(records.error for records in answer.partitions)
            if size >= max(1, request.min_bytes) or failed or loop.time() >= deadline:
                return answer
            try:
                async with asyncio.timeout_at(deadline):
                    await news.wait()
            except TimeoutError:
                pass  # the next look is the answer

    def look(
        self, wanted: pb.PartitionFetch, budget: int, any_replica: bool, lie: Lie | None
    ) -> tuple[pb.PartitionRecords, int]:
        """Records of one partition now, and their payload bytes."""
        into = pb.PartitionRecords(topic=wanted.topic, partition=wanted.partition)
        if lie is not None and lie.error:
            self._lied(lie, into)
            return into, 0
        topic = self._stage.cluster.metadata.topic(wanted.topic)
        into.topic_id = 0 if topic is None else topic.topic_id
        partition = self._readable(wanted.topic, wanted.partition, any_replica, into)
        if partition is None:
            return into, 0
        into.log_start_offset = partition.log_start
        into.high_watermark = partition.high_watermark(self._stage.node_id)
        if not partition.log_start <= wanted.offset <= into.high_watermark:
            into.error = pb.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
            into.message = f"offset {wanted.offset} is out of range"
            return into, 0
        size = self._fill(into, partition, wanted, budget)
        if lie is not None and lie.corrupt and into.batches:
            _damage(into.batches[-1 if lie.corrupt == "last" else 0], lie.corrupt)
        return into, size

    def _fill(
        self,
        into: pb.PartitionRecords,
        partition: Partition,
        wanted: pb.PartitionFetch,
        budget: int,
    ) -> int:
        limit = min(budget if budget > 0 else DEFAULT_BYTES, wanted.max_bytes or DEFAULT_BYTES)
        size = 0
        for stored in partition.log:
            end = stored.base_offset + stored.header.record_count
            if end <= wanted.offset or end > into.high_watermark:
                continue
            if into.batches and size + len(stored.payload) > limit:
                break
            into.batches.append(stored)
            size += len(stored.payload)
            if len(into.batches) == MAX_BATCHES:
                break
        return size

    def _lied(self, lie: Lie, into: pb.PartitionRecords | pb.OffsetResult) -> None:
        into.error = getattr(pb, "PARTITION_ERROR_" + lie.error)
        into.message = "by the script"
        if isinstance(into, pb.PartitionRecords):
            for name, value in lie.set.items():
                setattr(into, name, value)
        if lie.leader:
            into.leader_id = lie.leader
            into.leader_address = self._stage.cluster.addresses[lie.leader]

    def _readable(
        self,
        topic: str,
        number: int,
        any_replica: bool,
        into: pb.PartitionRecords | pb.OffsetResult,
    ) -> Partition | None:
        """Finds the partition; None with the reason in `into`."""
        cluster, node_id = self._stage.cluster, self._stage.node_id
        try:
            partition = cluster.partitions.get((topic, number))
            if any_replica and partition is not None and node_id in partition.replicas:
                return partition
            return cluster.leading(node_id, topic, number)
        except errors.NotLeaderError as error:
            into.error = pb.PARTITION_ERROR_NOT_LEADER
            into.leader_id, into.leader_address = error.leader_id, error.leader_address
        except errors.UnknownTopicOrPartitionError as error:
            into.error = pb.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION
            into.message = error.message
        return None

    def list_offset(
        self, query: pb.OffsetQuery, any_replica: bool, lie: Lie | None
    ) -> pb.OffsetResult:
        into = pb.OffsetResult(topic=query.topic, partition=query.partition, offset=-1)
        if lie is not None and lie.error:
            self._lied(lie, into)
            return into
        partition = self._readable(query.topic, query.partition, any_replica, into)
        if partition is None:
            return into
        match query.WhichOneof("position"):
            case "timestamp_us":
                later = (
                    stored.base_offset
                    for stored in partition.log
                    if stored.header.max_timestamp_us >= query.timestamp_us
                )
                into.offset = next(later, -1)
            case "latest":
                into.offset = partition.high_watermark(self._stage.node_id)
            case _:
                into.offset = partition.log_start
        return into


def _damage(stored: batch_pb2.StoredBatch, how: str) -> None:
    if how in ("bit", "last"):
        stored.payload = corrupted(stored.payload)
        return
    assert how == "length", f"corrupt: {how!r} is not bit, last or length"
    stored.payload = overlong(stored.payload)
    stored.header.crc32c = crc32c.crc32c(stored.payload)
