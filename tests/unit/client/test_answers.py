"""Incomplete answers of a node: the client reports them and does not hang."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from oncelog import Consumer, CorruptLogError, InternalError, TopicPartition
from oncelog.v1 import cluster_pb2, cluster_pb2_grpc, log_pb2, log_pb2_grpc
from oncelog.wire.verdicts import partition_error_name


class Node(cluster_pb2_grpc.ClusterServiceServicer, log_pb2_grpc.LogServiceServicer):
    """Leader of the only partition of topic `t`; the test gives its answers."""

    def __init__(self) -> None:
        self.parts: list[log_pb2.PartitionRecords] = []
        self.server = grpc.server(ThreadPoolExecutor(4))
        cluster_pb2_grpc.add_ClusterServiceServicer_to_server(self, self.server)
        log_pb2_grpc.add_LogServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def DescribeTopics(self, request: Any, context: Any) -> cluster_pb2.DescribeTopicsResponse:
        info = cluster_pb2.PartitionInfo(partition=0, leader_id=1, term=1, replicas=[1])
        return cluster_pb2.DescribeTopicsResponse(
            topics=[cluster_pb2.TopicInfo(name="t", topic_id=1, partitions=[info])],
            nodes=[cluster_pb2.NodeInfo(node_id=1, address=self.address, alive=True)],
        )

    def Fetch(self, request: Any, context: Any) -> log_pb2.FetchResponse:
        return log_pb2.FetchResponse(partitions=self.parts)

    def ListOffsets(self, request: Any, context: Any) -> log_pb2.ListOffsetsResponse:
        return log_pb2.ListOffsetsResponse()


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.server.stop(None)


@pytest.fixture
def consumer(node: Node) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=node.address) as made:
        made.assign([TopicPartition("t", 0)])
        yield made


def test_a_fetch_without_the_partition(consumer: Consumer) -> None:
    consumer.seek(TopicPartition("t", 0), 0)
    with pytest.raises(InternalError, match="0 answers to 1 questions"):
        consumer.getmany(timeout_ms=60_000)


def test_a_fetch_with_an_error_from_the_future(node: Node, consumer: Consumer) -> None:
    node.parts = [log_pb2.PartitionRecords(topic="t", error=77)]  # type: ignore[arg-type]
    consumer.seek(TopicPartition("t", 0), 0)
    with pytest.raises(CorruptLogError, match="partition error 77"):
        consumer.getmany(timeout_ms=60_000)


def test_offsets_without_the_partition(consumer: Consumer) -> None:
    with pytest.raises(InternalError, match="0 answers to 1 questions"):
        consumer.end_offsets([TopicPartition("t", 0)])


def test_numbers_that_this_client_knows_have_names() -> None:
    assert partition_error_name(0) == "PARTITION_ERROR_NONE"
