"""Lag in time from nodes that tell it, and from those of an older release."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from oncelog import Admin, TopicPartition
from oncelog.lag import GroupLag, PartitionLag
from oncelog.types import GroupDescription
from oncelog.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    group_pb2,
    group_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
)

COMMITTED, END, TIME = 3, 9, 1234


class LagNode(
    cluster_pb2_grpc.ClusterServiceServicer,
    group_pb2_grpc.GroupServiceServicer,
    log_pb2_grpc.LogServiceServicer,
):
    """Leader of the only partition of topic `t`, and coordinator of its groups."""

    def __init__(self, is_older: bool) -> None:
        self._is_older = is_older
        self.server = grpc.server(ThreadPoolExecutor(4))
        cluster_pb2_grpc.add_ClusterServiceServicer_to_server(self, self.server)
        group_pb2_grpc.add_GroupServiceServicer_to_server(self, self.server)
        log_pb2_grpc.add_LogServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def DescribeTopics(self, request: Any, context: Any) -> cluster_pb2.DescribeTopicsResponse:
        info = cluster_pb2.PartitionInfo(partition=0, leader_id=1, term=1, replicas=[1])
        return cluster_pb2.DescribeTopicsResponse(
            topics=[cluster_pb2.TopicInfo(name="t", topic_id=1, partitions=[info])],
            nodes=[cluster_pb2.NodeInfo(node_id=1, address=self.address, alive=True)],
        )

    def DescribeGroup(self, request: Any, context: Any) -> group_pb2.DescribeGroupResponse:
        at = group_pb2.CommittedOffset(topic="t", partition=0, offset=COMMITTED, commit_ms=1)
        return group_pb2.DescribeGroupResponse(group="g", exists=True, offsets=[at])

    def ListOffsets(self, request: Any, context: Any) -> log_pb2.ListOffsetsResponse:
        answer = log_pb2.ListOffsetsResponse()
        for query in request.queries:
            # To an older node the new kind of query has no position: it answers with the start.
            result = answer.results.add(topic="t", offset=END if query.latest else 0)
            if query.WhichOneof("position") == "behind" and not self._is_older:
                assert query.behind == COMMITTED
                result.behind_ms = TIME
        return answer


@pytest.mark.parametrize(("is_older", "known"), [(True, None), (False, TIME)])
def test_an_older_node_tells_the_lag_in_records_only(is_older: bool, known: int | None) -> None:
    node = LagNode(is_older)
    with Admin(bootstrap_servers=node.address) as admin:
        lag = admin.group_lag("g")
    node.server.stop(None)
    one = lag.partitions[TopicPartition("t", 0)]
    assert (one.lag, one.error) == (END - COMMITTED, None)
    assert (one.lag_ms, lag.lag_ms) == (known, known)


@pytest.mark.parametrize(
    ("lags", "largest"),
    [
        ([(0, 0), (7, None)], None),  # an older node leads the second one
        ([(0, 0), (7, None), (2, 30)], 30),
        ([(0, 0), (1, 0)], 0),
        ([(0, 0), (None, None)], 0),  # nothing is committed there
    ],
)
def test_a_group_is_not_at_its_end_if_a_late_partition_is_silent(
    lags: list[tuple[int | None, int | None]], largest: int | None
) -> None:
    partitions = {
        TopicPartition("t", number): PartitionLag(None, lag=lag, lag_ms=lag_ms)
        for number, (lag, lag_ms) in enumerate(lags)
    }
    group = GroupDescription("g", True, 0, 1, {})
    assert GroupLag(group, partitions).lag_ms == largest
