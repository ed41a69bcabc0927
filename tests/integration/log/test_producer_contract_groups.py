"""Committed offsets of groups through the raw API: kept, checked, fenced, moved with leaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from cluster.partition.group_offsets import OFFSETS_PARTITIONS, partition_of
from harness.api import CALL_TIMEOUT, batch, reason, verdict
from harness.local_cluster import LocalCluster
from oncelog.v1 import batch_pb2, cluster_pb2, group_pb2, group_pb2_grpc

MakeCluster = Callable[..., LocalCluster]
OFFSETS = "__offsets"


def stub(cluster: LocalCluster, node: int) -> Any:
    return group_pb2_grpc.GroupServiceStub(cluster.api(node).channel)


def ask(cluster: LocalCluster, method: str, request: Any) -> Any:
    """Asks any node, then the leader that it names."""
    node = cluster.running[0]
    while True:
        try:
            return getattr(stub(cluster, node), method)(request, timeout=CALL_TIMEOUT)
        except grpc.RpcError as error:
            if reason(error) not in ("NOT_LEADER", "NOT_READY"):
                raise
        number = partition_of(request.group, OFFSETS_PARTITIONS)
        node = cluster.leader(OFFSETS, number)


def commit(cluster: LocalCluster, group: str, topic: str, *offsets: int, **more: Any) -> list[Any]:
    """Commits offsets of partitions 0, 1, ...; the results."""
    request = group_pb2.CommitOffsetsRequest(
        group=group,
        offsets=[
            group_pb2.OffsetCommit(topic=topic, partition=number, offset=offset, **more)
            for number, offset in enumerate(offsets)
        ],
    )
    return list(ask(cluster, "CommitOffsets", request).results)


def fetch(cluster: LocalCluster, group: str, topic: str = "", partitions: int = 0) -> list[int]:
    request = group_pb2.FetchOffsetsRequest(
        group=group,
        partitions=[
            batch_pb2.TopicPartition(topic=topic, partition=number) for number in range(partitions)
        ],
    )
    return [one.offset for one in ask(cluster, "FetchOffsets", request).offsets]


def test_offsets_are_kept_and_replaced(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 3, 3)
    assert fetch(cluster, topic, topic, 3) == [-1, -1, -1]
    results = commit(cluster, topic, topic, 5, 7, metadata="who")
    assert [(one.error, one.offset, one.last_sequence) for one in results] == [
        ("", 5, -1),
        ("", 7, -1),
    ]
    assert fetch(cluster, topic, topic, 3) == [5, 7, -1]
    assert fetch(cluster, topic) == [5, 7]
    commit(cluster, topic, topic, 2)
    assert fetch(cluster, topic) == [2, 7], "a seek backwards is a commit"
    described = ask(cluster, "DescribeGroup", group_pb2.DescribeGroupRequest(group=topic))
    assert described.exists and described.last_commit_ms > 0
    assert [(one.partition, one.offset, one.metadata) for one in described.offsets] == [
        (0, 2, ""),
        (1, 7, "who"),
    ]
    assert described.coordinator_id == cluster.leader(OFFSETS, described.offsets_partition)
    deleted = ask(cluster, "DeleteGroup", group_pb2.DeleteGroupRequest(group=topic))
    assert deleted.existed
    assert not ask(cluster, "DeleteGroup", group_pb2.DeleteGroupRequest(group=topic)).existed
    assert fetch(cluster, topic, topic, 1) == [-1]


def test_a_producers_commits_are_fenced_and_never_go_back(
    cluster: LocalCluster, topic: str
) -> None:
    cluster.api(1).create_topic(topic, 1, 3)

    def one(offset: int, sequence: int, epoch: int = 1, pid: int = 9) -> tuple[str, bool, int]:
        (result,) = commit(
            cluster, topic, topic, offset, producer_id=pid, epoch=epoch, sequence=sequence
        )
        assert (result.producer_id, result.current_epoch) >= (pid, epoch) or not result.error
        return result.error, result.duplicate, result.offset

    rows = [
        (one(10, 3), ("", False, 10)),
        (one(10, 3), ("", True, 10)),
        (one(11, 3), ("SEQUENCE_CONFLICT", False, 10)),
        (one(9, 2), ("OUT_OF_ORDER", False, 10)),
        (one(20, 7), ("", False, 20)),
        (one(99, 99, epoch=0), ("FENCED", False, 20)),
        (one(99, 99, pid=8, epoch=5), ("FENCED", False, 20)),
        (one(21, 0, epoch=2), ("", False, 21)),
        (one(22, 8, epoch=1), ("FENCED", False, 21)),
        (one(23, 0, pid=10, epoch=0), ("", False, 23)),
        (one(24, 1, pid=9, epoch=2), ("FENCED", False, 23)),
    ]
    for number, (got, expected) in enumerate(rows):
        assert got == expected, number
    # A seek by hand does not let a zombie in.
    assert commit(cluster, topic, topic, 4)[0].error == ""
    assert one(24, 1, pid=9, epoch=2) == ("FENCED", False, 4)
    assert one(24, 1, pid=10, epoch=0) == ("", False, 24)


def test_every_node_answers_or_names_the_leader(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    commit(cluster, topic, topic, 1)
    request = group_pb2.FetchOffsetsRequest(group=topic)
    leader = cluster.leader(OFFSETS, partition_of(topic, OFFSETS_PARTITIONS))
    assert stub(cluster, leader).FetchOffsets(request, timeout=CALL_TIMEOUT).offsets
    for node in set(cluster.nodes) - {leader}:
        with pytest.raises(grpc.RpcError) as caught:
            stub(cluster, node).FetchOffsets(request, timeout=CALL_TIMEOUT)
        assert reason(caught.value) == "NOT_LEADER"
        assert cluster.addresses[leader] in str(caught.value.trailing_metadata())
    groups, partitions = set(), []
    for node in cluster.nodes:
        listed = stub(cluster, node).ListGroups(group_pb2.ListGroupsRequest(limit=10_000))
        assert listed.partition_count == OFFSETS_PARTITIONS
        partitions += listed.partitions
        groups |= {one.group for one in listed.groups}
    assert sorted(partitions) == list(range(OFFSETS_PARTITIONS))
    assert topic in groups


def test_bad_commits_and_the_internal_topic(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    commit(cluster, topic, topic, 1)
    for group, fields, field in (
        ("", {}, "group"),
        ("g" * 256, {}, "group"),
        ("a\nb", {}, "group"),
        (topic, {"offset": -1}, "offsets.offset"),
        (topic, {"partition": -1}, "offsets.partition"),
        (topic, {"metadata": "x" * 4097}, "offsets.metadata"),
        (topic, {"epoch": 1}, "offsets.producer_id"),
    ):
        request = group_pb2.CommitOffsetsRequest(
            group=group, offsets=[group_pb2.OffsetCommit(topic=topic, **fields)]
        )
        with pytest.raises(grpc.RpcError) as caught:
            ask(cluster, "CommitOffsets", request)
        assert reason(caught.value) == "INVALID_REQUEST"
        assert field in str(caught.value)
    request = group_pb2.CommitOffsetsRequest(
        group=topic,
        offsets=[
            group_pb2.OffsetCommit(topic=name, partition=number, offset=3)
            for name, number in (("nope", 0), (topic, 0), (topic, 1), (OFFSETS, 0))
        ],
    )
    results = ask(cluster, "CommitOffsets", request).results
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert [one.error for one in results] == [unknown, "", unknown, unknown]
    # Only nodes may use the topic itself.
    api = cluster.api(cluster.leader(OFFSETS, 0))
    (result,) = api.produce(batch(OFFSETS, 0, 0, 0, b"x"))
    assert verdict(result) == "INVALID_BATCH"
    for call in (
        lambda: api.create_topic("__mine"),
        lambda: api.cluster.DeleteTopic(cluster_pb2.DeleteTopicRequest(name=OFFSETS)),
        lambda: api.cluster.AlterTopic(cluster_pb2.AlterTopicRequest(name=OFFSETS)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert reason(caught.value) == "INVALID_REQUEST"
    listed = api.cluster.DescribeTopics(cluster_pb2.DescribeTopicsRequest()).topics
    assert OFFSETS not in {one.name for one in listed}


def test_offsets_of_a_deleted_topic_are_not_those_of_its_successor(
    cluster: LocalCluster, topic: str
) -> None:
    api = cluster.api(1)
    api.create_topic(topic, 1, 3)
    commit(cluster, "g" + topic, topic, 77, producer_id=50, epoch=3, sequence=4)
    api.cluster.DeleteTopic(cluster_pb2.DeleteTopicRequest(name=topic), timeout=CALL_TIMEOUT)
    successor = api.create_topic(topic, 1, 3).topic_id
    node = cluster.leader(OFFSETS, partition_of("g" + topic, OFFSETS_PARTITIONS))
    names = cluster_pb2.DescribeTopicsRequest()
    while successor not in {
        one.topic_id for one in cluster.api(node).cluster.DescribeTopics(names).topics
    }:
        cluster.leader(topic, 0)
    assert fetch(cluster, "g" + topic, topic, 1) == [-1]
    (result,) = commit(cluster, "g" + topic, topic, 1, producer_id=2, epoch=0, sequence=0)
    assert (result.error, result.offset) == ("", 1), "its producers are not known either"


def test_offsets_survive_a_leader_kill_and_a_restart_of_all_nodes(
    make_cluster: MakeCluster,
) -> None:
    settings = {
        "election_timeout_ms": 500,
        "heartbeat_ms": 50,
        "retention_check_ms": 100,
        "checkpoint_entries": 10,
    }
    cluster = make_cluster(settings=settings)
    cluster.api(1).create_topic("t", 2, 3)
    groups = [f"group-{number}" for number in range(40)]
    fields = {"producer_id": 3, "epoch": 1}
    for number, group in enumerate(groups):
        commit(cluster, group, "t", number, number + 1, sequence=number, **fields)
    cluster.kill([cluster.leader(OFFSETS, 0)])
    for number, group in enumerate(groups):
        assert fetch(cluster, group) == [number, number + 1]
        results = commit(cluster, group, "t", number, number + 1, sequence=number, **fields)
        assert all(one.duplicate and not one.error for one in results)
        commit(cluster, group, "t", number + 5, sequence=number + 1, **fields)
    cluster.start()
    cluster.kill(cluster.nodes)
    cluster.start()
    for number, group in enumerate(groups):
        assert fetch(cluster, group) == [number + 5, number + 1]
        (result,) = commit(cluster, group, "t", 0, sequence=number, **fields)
        assert (result.error, result.last_sequence) == ("OUT_OF_ORDER", number + 1)
