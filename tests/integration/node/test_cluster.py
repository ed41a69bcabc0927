"""A cluster forms; any node answers for nodes and topics; metrics, health and reflection."""

from __future__ import annotations

import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from harness.api import CALL_TIMEOUT, Api, as_call, batch, reason
from harness.local_cluster import LocalCluster
from oncelog.v1 import cluster_pb2
from tests.integration.waiting import eventually

TIMEOUT = 10.0


def topics(api: Api) -> set[str]:
    answer = api.cluster.DescribeTopics(cluster_pb2.DescribeTopicsRequest(), timeout=CALL_TIMEOUT)
    return {topic.name for topic in answer.topics}


def alive(api: Api) -> dict[int, str]:
    return {node.node_id: node.address for node in api.describe().nodes if node.alive}


def test_all_nodes_know_all_nodes(cluster: LocalCluster) -> None:
    for node in cluster.nodes:
        eventually(
            lambda node=node: alive(cluster.api(node)) == cluster.addresses,  # type: ignore[misc]
            f"node {node} sees all nodes alive",
        )
        answer = cluster.api(node).describe()
        assert answer.cluster_id == "oncelog"
        assert answer.answering_node_id == node
        assert answer.controller_id in cluster.nodes


def test_the_nodes_agree_on_the_controller(cluster: LocalCluster) -> None:
    assert len({cluster.api(node).describe().controller_id for node in cluster.nodes}) == 1


@pytest.mark.parametrize("creator", [1, 2, 3])
def test_topic_made_and_deleted_through_any_node(
    cluster: LocalCluster, topic: str, creator: int
) -> None:
    info = cluster.api(creator).create_topic(topic, 6, 3, retention_bytes=10_000_000)
    assert [part.partition for part in info.partitions] == list(range(6))
    assert all(sorted(part.replicas) == [1, 2, 3] for part in info.partitions)
    assert all(part.leader_id for part in info.partitions)
    preferred = [part.replicas[0] for part in info.partitions]
    assert {preferred.count(node) for node in cluster.nodes} == {2}, "preferred leaders are spread"
    for node in cluster.nodes:
        eventually(lambda node=node: topic in topics(cluster.api(node)), f"node {node} has it")  # type: ignore[misc]
        seen = cluster.api(node).topic(topic)
        assert (seen.topic_id, seen.config) == (info.topic_id, info.config)
        assert seen.config.retention_bytes == 10_000_000
    other = creator % 3 + 1
    cluster.api(other).cluster.DeleteTopic(
        cluster_pb2.DeleteTopicRequest(name=topic), timeout=CALL_TIMEOUT
    )
    for node in cluster.nodes:
        eventually(lambda node=node: topic not in topics(cluster.api(node)), f"node {node} lost it")  # type: ignore[misc]
        with pytest.raises(grpc.RpcError) as caught:
            cluster.api(node).topic(topic)
        assert reason(caught.value) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_topic_made_again_is_empty(cluster: LocalCluster, topic: str) -> None:
    api = cluster.api(1)
    first = api.create_topic(topic, 1, 3)
    cluster.produce(batch(topic, 0, 0, 0, b"of the first one", count=3))
    api.cluster.DeleteTopic(cluster_pb2.DeleteTopicRequest(name=topic), timeout=CALL_TIMEOUT)
    second = api.create_topic(topic, 1, 3)
    assert second.topic_id > first.topic_id
    assert cluster.produce(batch(topic, 0, 0, 0, b"of the second")).base_offset == 0
    cluster.wait_level(topic)
    for node in cluster.nodes:
        assert [b.payload for b in cluster.api(node).stored(topic, 0)] == [b"of the second"]


@pytest.mark.parametrize(
    ("request_", "word", "wanted"),
    [
        (cluster_pb2.CreateTopicRequest(name=""), "name", "INVALID_REQUEST"),
        (cluster_pb2.CreateTopicRequest(name="no/slash"), "name", "INVALID_REQUEST"),
        (cluster_pb2.CreateTopicRequest(name="x" * 250), "249", "INVALID_REQUEST"),
        (cluster_pb2.CreateTopicRequest(name="t", partitions=-1), "partitions", "INVALID_REQUEST"),
        (
            cluster_pb2.CreateTopicRequest(name="t", partitions=10**6),
            "partitions",
            "INVALID_REQUEST",
        ),
        (cluster_pb2.CreateTopicRequest(name="t", replicas=4), "replicas", "INVALID_REQUEST"),
        (cluster_pb2.CreateTopicRequest(name="t", replicas=-1), "replicas", "INVALID_REQUEST"),
        (
            cluster_pb2.CreateTopicRequest(
                name="t", config=cluster_pb2.TopicConfig(max_batch_bytes=65 << 20)
            ),
            "max_batch_bytes",
            "INVALID_REQUEST",
        ),
        (
            cluster_pb2.CreateTopicRequest(
                name="t", config=cluster_pb2.TopicConfig(retention_ms=-2)
            ),
            "retention_ms",
            "INVALID_REQUEST",
        ),
        (cluster_pb2.CreateTopicRequest(name="t", timeout_ms=-1), "timeout_ms", "INVALID_REQUEST"),
        (cluster_pb2.CreateTopicRequest(name="taken"), "taken", "TOPIC_ALREADY_EXISTS"),
    ],
    ids=lambda value: str(value)[:30].replace("\n", " ") if isinstance(value, str) else "",
)
def test_bad_topics_are_refused(
    cluster: LocalCluster, request_: cluster_pb2.CreateTopicRequest, word: str, wanted: str
) -> None:
    if "taken" not in topics(cluster.api(2)):
        cluster.api(2).create_topic("taken", 1, 1)
    before = topics(cluster.api(2))
    with pytest.raises(grpc.RpcError) as caught:
        cluster.api(2).cluster.CreateTopic(request_, timeout=CALL_TIMEOUT)
    assert reason(caught.value) == wanted
    assert word in (as_call(caught.value).details() or "")
    assert topics(cluster.api(2)) == before


@pytest.mark.parametrize("node", [1, 2, 3])
def test_leadership_can_be_moved(cluster: LocalCluster, topic: str, node: int) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    leader = cluster.leader(topic, 0)
    answer = cluster.api(leader).cluster.TransferLeadership(
        cluster_pb2.TransferLeadershipRequest(topic=topic, partition=0, target_node_id=node),
        timeout=CALL_TIMEOUT,
    )
    assert answer.leader_id == node
    assert cluster.leader(topic, 0) == node
    others = [other for other in cluster.nodes if other != node]
    with pytest.raises(grpc.RpcError) as caught:
        cluster.api(others[0]).cluster.TransferLeadership(
            cluster_pb2.TransferLeadershipRequest(topic=topic, partition=0), timeout=CALL_TIMEOUT
        )
    assert reason(caught.value) == "NOT_LEADER"


def test_health_and_reflection_answer(cluster: LocalCluster) -> None:
    for node in cluster.nodes:
        api = cluster.api(node)
        answer = api.health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_TIMEOUT)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        for version in ("v1", "v1alpha"):
            names = listed_services(api.channel, version)
            ours = ("Log", "Cluster", "Producer", "Group", "Transaction", "Sink", "Security")
            assert {f"oncelog.v1.{name}Service" for name in ours} <= names
            assert "grpc.health.v1.Health" in names
            assert not any(name.startswith("cluster.v1") for name in names), "peers are not public"


def listed_services(channel: grpc.Channel, version: str) -> set[str]:
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (listed,) = call(iter([asked]), timeout=CALL_TIMEOUT)
    return {service.name for service in listed.list_services_response.service}


def metrics(cluster: LocalCluster, node: int) -> dict[str, float]:
    url = f"http://{cluster.metrics_addresses[node]}/metrics"
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        assert answer.status == 200
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_metrics_count_what_happened(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    leader = cluster.leader(topic, 0)
    pid = cluster.api(leader).lease().producer_id
    for payload, sequence in ((b"a", 0), (b"b", 3), (b"b", 3), (b"other", 3), (b"c", 99)):
        cluster.produce(batch(topic, 0, pid, sequence, payload, count=3), stream=True)
    figures = metrics(cluster, leader)
    where = f'topic="{topic}",partition="0"'
    counts = {"batches": 2, "records": 6}
    every = {node: metrics(cluster, node) for node in cluster.nodes}
    for name, count in counts.items():
        row = f"oncelog_appended_{name}_total{{{where}}}"
        assert {node: page[row] for node, page in every.items()} == {
            node: count * (node == leader) for node in cluster.nodes
        }, "each is counted once"
    assert figures[f"oncelog_duplicates_answered_total{{{where}}}"] == 1
    verdicts = {
        name: figures.get(f'oncelog_verdicts_total{{{where},verdict="{name}"}}')
        for name in ("APPENDED", "DUPLICATE", "SEQUENCE_CONFLICT", "OUT_OF_ORDER")
    }
    assert verdicts == {
        "APPENDED": 2,
        "DUPLICATE": 1,
        "SEQUENCE_CONFLICT": 1,
        "OUT_OF_ORDER": 1,
    }
    assert figures[f"oncelog_partition_leader{{{where}}}"] == 1
    assert figures[f"oncelog_partition_high_watermark{{{where}}}"] == 6
    assert figures["oncelog_elections_total"] >= 1
    assert figures["oncelog_producer_leases_total"] >= 1
    assert figures["oncelog_commit_latency_seconds_count"] >= 2
    assert figures["oncelog_fsync_latency_seconds_count"] >= 1
    assert figures["oncelog_storage_disk_bytes"] > 0
    for node in cluster.nodes:
        lag = f'oncelog_follower_lag_entries{{{where},node="{node}"}}'
        assert (lag in figures) == (node != leader)
