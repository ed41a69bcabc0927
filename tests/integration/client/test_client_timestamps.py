"""Time comes from the log: timestamps that clients write into their records age nothing."""

from __future__ import annotations

import time

from harness.api import CALL_TIMEOUT, batch, verdict
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog.v1 import batch_pb2, cluster_pb2
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

DAY_MS = 86_400_000
SETTINGS = {**STEADY, "retention_check_ms": 100}


def stamped(topic: str, pid: int, sequence: int, days: int) -> batch_pb2.Batch:
    """A batch whose records are `days` old by the client's clock; negative: of the future."""
    one = batch(topic, 0, pid, sequence, b"%d" % sequence)
    one.header.max_timestamp_us = (time.time_ns() // 1_000_000 - days * DAY_MS) * 1000
    return one


def start_of(cluster: LocalCluster, topic: str, partition: int) -> int:
    api = cluster.api(cluster.leader(topic, partition))
    return api.offset(topic, partition, "earliest")


def starts(cluster: LocalCluster, topic: str) -> set[int]:
    """Start offsets of the replicas' logs."""
    return {
        cluster.api(node).offset(topic, 0, "earliest", any_replica=True) for node in cluster.nodes
    }


def reaper_has_run(cluster: LocalCluster, topic: str) -> None:
    """Waits until retention has looked at all replicas of every node once more."""
    control = f"{topic}-control"
    cluster.api(1).create_topic(control, 3, 3, retention_ms=1)
    assert {cluster.leader(control, number) for number in range(3)} == set(cluster.nodes)
    for number in range(3):
        assert verdict(cluster.produce(batch(control, number, 0, 0, b"x"))) == "APPENDED"
    eventually(
        lambda: all(start_of(cluster, control, number) == 1 for number in range(3)),
        "what is due is deleted",
    )


def test_records_two_days_old_and_a_retry_after_the_reaper(
    make_cluster: MakeCluster, topic: str
) -> None:
    """Retention of a day, leases of a day; records that say to be older, and of next century."""
    cluster = make_cluster(settings={**SETTINGS, "lease_lifetime_ms": DAY_MS})
    api = cluster.api(1)
    api.create_topic(topic, 1, 3, retention_ms=DAY_MS)
    pid = api.lease().producer_id
    days = [2, 2, -36_500, 2, 2]
    sent = [stamped(topic, pid, sequence, age) for sequence, age in enumerate(days)]
    for offset, one in enumerate(sent):
        result = cluster.produce(one)
        assert (verdict(result), result.base_offset) == ("APPENDED", offset)
    reaper_has_run(cluster, topic)
    assert start_of(cluster, topic, 0) == 0, "by log time they are seconds old"
    for offset, one in enumerate(sent):
        result = cluster.produce(one)
        assert (verdict(result), result.base_offset) == ("DUPLICATE", offset)
    result = cluster.produce(stamped(topic, pid, 5, 2))
    assert (verdict(result), result.base_offset) == ("APPENDED", 5)

    # Now by log time: all go, also those of the future. A retry is still a duplicate.
    config = cluster_pb2.TopicConfig(retention_ms=1)
    request = cluster_pb2.AlterTopicRequest(name=topic, config=config)
    api.cluster.AlterTopic(request, timeout=CALL_TIMEOUT)
    eventually(lambda: start_of(cluster, topic, 0) == 6, "all is deleted")
    cluster.kill(cluster.nodes)
    cluster.start()
    for one in sent:
        assert verdict(cluster.produce(one)) == "DUPLICATE"
    assert verdict(cluster.produce(stamped(topic, pid, 6, 2))) == "APPENDED"
    apis = {n: cluster.api(n) for n in cluster.nodes}
    eventually(lambda: starts(cluster, topic) == {7}, "the last one is deleted too, everywhere")
    eventually(lambda: compare(apis, topic, [0]) == [], "all replicas are alike")
