"""Clients that ask a node which is behind: it lacks a topic, or names a leader long gone.

A node is cut off from the others, but not from clients, so it answers with its old knowledge. The
client is made to ask that node first. Records that could be sent a moment later must not fail, and
the producer must go on with its id and its sequences.
"""

from __future__ import annotations

import grpc
import pytest

from harness.api import Api, reason
from harness.local_cluster import LocalCluster
from oncelog import Consumer, Producer, TopicPartition
from oncelog._engine.net.cluster import Cluster
from oncelog.v1 import cluster_pb2
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

TIMEOUT = 60.0


def move_leader_out_of_sight(cluster: LocalCluster, topic: str, leader: int, target: int) -> None:
    """Hands the partition to `target`; clients can no longer reach `leader`."""
    assert cluster.proxy is not None
    cluster.proxy.ask("cut", f"client-{leader}")
    request = cluster_pb2.TransferLeadershipRequest(topic=topic, partition=0, target_node_id=target)
    with Api(cluster.nodes[leader].spec.listen) as direct:  # around the proxy
        direct.cluster.TransferLeadership(request, timeout=20)
    eventually(lambda: cluster.high_watermark(target, topic, 0) is not None, "the target leads")


def leaders_named(cluster: LocalCluster, topic: str) -> set[int]:
    return {cluster.api(node).topic(topic).partitions[0].leader_id for node in cluster.nodes}


def ask_first(client: Cluster, address: str) -> None:
    client._preferred = address


@pytest.mark.parametrize("behind", ["topic vanishes", "old leader"])
def test_topic_metadata_vanishing_for_a_moment(
    make_cluster: MakeCluster, topic: str, behind: str
) -> None:
    cluster = make_cluster(settings=STEADY, proxied=True)
    eventually(lambda: cluster.api(1).describe().controller_id != 0, "a controller")
    # Not the controller: cut off, a controller learns that it is deposed, and denies nothing.
    lagging = next(node for node in (3, 2) if node != cluster.api(1).describe().controller_id)
    if behind == "topic vanishes":
        cluster.isolate(lagging)
    cluster.api(1).create_topic(topic, 1, 3)
    leader = cluster.leader(topic, 0, not_in=[lagging])
    target = next(node for node in (1, 2, 3) if node not in (lagging, leader))
    with (
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, producer_name="named") as named,
        Consumer(
            topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer,
    ):
        reading = iter(consumer)
        for number in range(5):
            producer.send(topic, b"%d" % number).result(TIMEOUT)
            assert next(reading).offset == number
        if behind == "old leader":
            cluster.isolate(lagging)
        move_leader_out_of_sight(cluster, topic, leader, target)
        if behind == "topic vanishes":
            with pytest.raises(grpc.RpcError) as caught:
                cluster.api(lagging).topic(topic)
            assert reason(caught.value) == "UNKNOWN_TOPIC_OR_PARTITION"
        else:
            named_there = cluster.api(lagging).topic(topic).partitions[0].leader_id
            assert named_there in (leader, 0), "0: it has noticed that it cannot reach it"
        for client in (producer._cluster, named._cluster, consumer._cluster):
            ask_first(client, cluster.addresses[lagging])

        sent = [producer.send(topic, b"%d" % number) for number in range(5, 15)]
        found = [future.result(TIMEOUT) for future in sent]
        assert [f.sequence for f in found] == list(range(5, 15)), "the same chain goes on"
        assert {f.producer_id for f in found} == {producer.producer_id}
        metrics = producer.metrics()
        assert (metrics["resets"], metrics["records_failed"]) == (0, 0)
        assert named.send(topic, b"15").result(TIMEOUT).offset == 15
        assert [next(reading).value for _ in range(11)] == [b"%d" % n for n in range(5, 16)]


def test_the_node_asked_first_is_the_leader_that_was_cut_off(
    make_cluster: MakeCluster, topic: str
) -> None:
    """It refuses at once, so nothing stalls, and tells every caller that it led last."""
    cluster = make_cluster(settings=STEADY, proxied=True)
    cluster.api(1).create_topic(topic, 1, 3)
    with (
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, producer_name="early") as early,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, producer_name="late") as late,
    ):
        for client in (producer, early):
            client.send(topic, b"before").result(TIMEOUT)
        old = cluster.leader(topic, 0)
        eventually(lambda: leaders_named(cluster, topic) == {old}, "all know who leads")
        assert late.partitions_for(topic) == 1  # it knows the leader, and has written nothing
        cluster.isolate(old)
        try:
            cluster.leader(topic, 0, not_in=[old])
            eventually(lambda: cluster.high_watermark(old, topic, 0) is None, "it refuses")
            assert cluster.api(old).topic(topic).partitions[0].leader_id in (0, old)
            for client in (producer, early, late):
                ask_first(client._cluster, cluster.addresses[old])
                assert client.send(topic, b"after").result(TIMEOUT).offset >= 2
                metrics = client.metrics()
                assert (metrics["resets"], metrics["records_failed"]) == (0, 0)
        finally:
            cluster.isolate(old, "heal")


def test_a_name_at_a_leader_that_hangs(make_cluster: MakeCluster, topic: str) -> None:
    """The old leader is asked to fence the predecessor and never answers; the new leader does."""
    cluster = make_cluster(settings=STEADY, proxied=True)
    assert cluster.proxy is not None
    cluster.api(1).create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=cluster.bootstrap,
        linger_ms=0,
        producer_name="named",
        request_timeout_ms=600_000,  # nothing may wait for this timeout
        delivery_timeout_ms=600_000,
    ) as producer:
        old = cluster.leader(topic, 0)
        eventually(lambda: leaders_named(cluster, topic) == {old}, "all know who leads")
        assert producer.partitions_for(topic) == 1
        assert producer._cluster.leaders.address(TopicPartition(topic, 0)) == cluster.addresses[old]
        cluster.isolate(old)
        cluster.proxy.ask("freeze", f"client-{old}")
        try:
            cluster.leader(topic, 0, not_in=[old])
            assert producer.send(topic, b"after").result(TIMEOUT).offset == 0
        finally:
            cluster.proxy.ask("reset", f"client-{old}")
            cluster.proxy.ask("heal", f"client-{old}")
            cluster.isolate(old, "heal")
