"""Nodes that are killed come back with everything, from their log or from a snapshot."""

from __future__ import annotations

import pytest

from harness.api import CALL_TIMEOUT, Batch, batch, verdict
from harness.local_cluster import QUICK, LocalCluster
from harness.replicas import compare
from oncelog.v1 import cluster_pb2, log_pb2
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

KIB = 1024
# The log's head goes as soon as it may.
SHORT_LOG = {
    **QUICK,
    "checkpoint_entries": 20,
    "checkpoint_bytes": 64 * KIB,
    "retention_check_ms": 100,
}


def fill(
    cluster: LocalCluster,
    topic: str,
    partitions: int,
    pid: int,
    start: int,
    end: int,
    size: int = 100,
) -> list[Batch]:
    """Sends batches of 2 records with rising sequences to each partition; those acknowledged."""
    sent = [
        batch(topic, part, pid, 2 * n, b"%06d" % n + b"x" * size, count=2)
        for part in range(partitions)
        for n in range(start, end)
    ]
    for one in sent:
        result = cluster.produce(one)  # repeats a batch whose answer is lost with its leader
        assert verdict(result) in ("APPENDED", "DUPLICATE"), result
        assert result.base_offset == one.header.base_sequence
    return sent


def assert_holds(cluster: LocalCluster, topic: str, sent: list[Batch]) -> None:
    """Every replica holds exactly the sent records, in order; and all are alike."""
    partitions = sorted({one.header.partition for one in sent})
    cluster.wait_level(topic)
    for node in cluster.running:
        for part in partitions:
            wanted = [one.payload for one in sent if one.header.partition == part]
            stored = [one.payload for one in cluster.api(node).stored(topic, part)]
            assert stored == wanted, f"node {node}, partition {part}"
    apis = {node: cluster.api(node) for node in cluster.running}
    assert compare(apis, topic, partitions) == []


def test_all_nodes_killed_at_once_lose_nothing(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()
    cluster.api(1).create_topic(topic, 3, 3)
    pid = cluster.api(1).lease().producer_id
    sent = fill(cluster, topic, 3, pid, 0, 20)
    for round_ in range(1, 4):
        cluster.kill(cluster.nodes)
        cluster.start_nodes(cluster.nodes)
        for one in sent:  # every acknowledged batch is remembered as well as stored
            result = cluster.produce(one)
            assert verdict(result) == "DUPLICATE", result
            assert result.base_offset in (-1, one.header.base_sequence)
        sent += fill(cluster, topic, 3, pid, 20 * round_, 20 * round_ + 20)
    sent.sort(key=lambda one: (one.header.partition, one.header.base_sequence))
    assert_holds(cluster, topic, sent)


def test_each_node_catches_up_from_the_log(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()
    cluster.api(1).create_topic(topic, 2, 3)
    pid = cluster.api(1).lease().producer_id
    sent: list[Batch] = []
    for step, node in enumerate(cluster.nodes):
        cluster.kill([node])
        sent += fill(cluster, topic, 2, pid, 30 * step, 30 * step + 30)
        cluster.start_nodes([node])
        cluster.wait_level(topic)
        assert "snapshot" not in cluster.nodes[node].log_text()
    assert_holds(cluster, topic, sent)


def test_a_node_catches_up_from_a_snapshot(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(settings=SHORT_LOG)
    cluster.api(1).create_topic(topic, 1, 3, retention_bytes=16 * KIB)
    pid = cluster.api(1).lease().producer_id
    fill(cluster, topic, 1, pid, 0, 5)
    victim = next(node for node in cluster.nodes if node != cluster.leader(topic, 0))
    cluster.wait_level(topic)
    cluster.kill([victim])
    fill(cluster, topic, 1, pid, 5, 300, size=500)
    wait_for_start(cluster, topic, 200)
    cluster.start_nodes([victim])
    cluster.wait_level(topic)
    wait_for_text(cluster, victim, "snapshot installed")
    wait_alike(cluster, topic)
    back = cluster.api(victim)
    assert back.offset(topic, 0, "earliest", any_replica=True) >= 200
    # The snapshot is enough to lead: the map refuses records that were dropped long ago.
    for node in set(cluster.nodes) - {victim}:
        cluster.kill([node])
        cluster.start_nodes([node])
    transfer(cluster, topic, victim)
    old = batch(topic, 0, pid, 0, b"%06d" % 0 + b"x" * 100, count=2)
    assert verdict(cluster.produce(old)) == "DUPLICATE"
    result = cluster.produce(batch(topic, 0, pid, 600, b"next", count=2))
    assert (verdict(result), result.base_offset) == ("APPENDED", 600)
    assert cluster.leader(topic, 0) == victim


def test_retention_and_restart_keep_the_map(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(settings=SHORT_LOG)
    cluster.api(1).create_topic(topic, 1, 3, retention_bytes=8 * KIB)
    pid = cluster.api(1).lease().producer_id
    sent = fill(cluster, topic, 1, pid, 0, 150, size=500)
    wait_for_start(cluster, topic, 200)
    cluster.kill(cluster.nodes)
    cluster.start_nodes(cluster.nodes)
    for one in (sent[0], sent[75], sent[-1]):
        assert verdict(cluster.produce(one)) == "DUPLICATE"
    conflict = batch(topic, 0, pid, 298, b"other", count=2)
    assert verdict(cluster.produce(conflict)) == "SEQUENCE_CONFLICT"
    assert cluster.produce(batch(topic, 0, pid, 300, b"next")).base_offset == 300
    cluster.wait_level(topic)
    wait_alike(cluster, topic)


def test_one_node_alone_is_a_cluster(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(1)
    info = cluster.api(1).create_topic(topic, 3)
    assert all(list(part.replicas) == [1] for part in info.partitions)
    pid = cluster.api(1).lease().producer_id
    sent = fill(cluster, topic, 3, pid, 0, 30)
    for _ in range(3):
        cluster.restart(1)
        assert verdict(cluster.produce(sent[-1])) == "DUPLICATE"
        assert_holds(cluster, topic, sent)
    assert cluster.nodes[1].terminate() == 0
    cluster.start_nodes([1])
    assert_holds(cluster, topic, sent)
    assert cluster.api(1).lease().producer_id > pid


@pytest.mark.parametrize("survivors", [2, 1])
def test_writes_need_a_majority(make_cluster: MakeCluster, topic: str, survivors: int) -> None:
    cluster = make_cluster(settings=STEADY)
    cluster.api(1).create_topic(topic, 1, 3)
    pid = cluster.api(1).lease().producer_id
    sent = fill(cluster, topic, 1, pid, 0, 5)
    cluster.wait_level(topic)
    leader = cluster.leader(topic, 0)
    others = [node for node in cluster.nodes if node != leader]
    cluster.kill(others[: 3 - survivors])
    one = batch(topic, 0, pid, 10, b"%06d" % 5 + b"x" * 100, count=2)
    if survivors == 2:
        assert verdict(cluster.produce(one)) in ("APPENDED", "DUPLICATE")
    else:
        (result,) = cluster.api(leader).produce(one, timeout_ms=1500)
        assert verdict(result) in ("TIMEOUT", "NOT_LEADER", "NOT_READY"), result
        assert cluster.api(leader).offset(topic, 0, "latest", any_replica=True) == 10
    cluster.start_nodes(others[: 3 - survivors])
    assert verdict(cluster.produce(one)) in ("DUPLICATE", "APPENDED")
    assert_holds(cluster, topic, [*sent, one])


def test_a_stream_waits_no_longer_than_it_was_asked_to(
    make_cluster: MakeCluster, topic: str
) -> None:
    """The leader leads on, but nobody confirms; the node's own timeout is far longer."""
    slow_to_elect = {"election_timeout_ms": 5000, "request_timeout_ms": 600_000}
    cluster = make_cluster(settings={**STEADY, **slow_to_elect})
    cluster.api(1).create_topic(topic, 1, 3)
    pid = cluster.api(1).lease().producer_id
    fill(cluster, topic, 1, pid, 0, 2)
    leader = cluster.leader(topic, 0)
    others = [node for node in cluster.nodes if node != leader]
    one = batch(topic, 0, pid, 4, b"late")
    for node in others:
        cluster.pause(node)
    request = log_pb2.ProduceRequest(batches=[one], timeout_ms=200)
    answers = cluster.api(leader).log.ProduceStream(iter([request]), timeout=CALL_TIMEOUT)
    assert verdict(next(answers).results[0]) == "TIMEOUT"
    for node in others:
        cluster.resume(node)
    # A deposed leader's entry may be gone.
    assert verdict(cluster.produce(one)) in ("DUPLICATE", "APPENDED")


# -- waiting ------------------------------------------------------------------------------------


def wait_for_start(cluster: LocalCluster, topic: str, offset: int) -> None:
    """Waits until retention has moved the leader's log start to `offset` or beyond."""
    leader = cluster.api(cluster.leader(topic, 0))
    eventually(lambda: leader.offset(topic, 0, "earliest") >= offset, f"log start is {offset}")


def wait_alike(cluster: LocalCluster, topic: str) -> None:
    """Waits until all replicas are alike. Each drops its head by itself, perhaps while it is
    read.
    """
    apis = {node: cluster.api(node) for node in cluster.nodes}

    def alike() -> bool:
        try:
            return compare(apis, topic, [0]) == []
        except AssertionError:  # the next record is gone by now
            return False

    eventually(alike, "all replicas are alike")


def wait_for_text(cluster: LocalCluster, node: int, text: str) -> None:
    eventually(lambda: text in cluster.nodes[node].log_text(), f"node {node} logs {text!r}")


def transfer(cluster: LocalCluster, topic: str, node: int) -> None:
    leader = cluster.leader(topic, 0)
    if leader != node:
        cluster.api(leader).cluster.TransferLeadership(
            cluster_pb2.TransferLeadershipRequest(topic=topic, partition=0, target_node_id=node),
            timeout=20,
        )
