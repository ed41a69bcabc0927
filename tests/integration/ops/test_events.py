"""Events of a real cluster: all that the checker of a producer would ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from oncelog import Admin, EventFilter, NodeEvent, Producer


@pytest.fixture
def seen(admin: Admin, topic: str) -> Callable[..., list[NodeEvent]]:
    def of(*kinds: str, name: str = topic) -> list[NodeEvent]:
        found = admin.list_events(EventFilter(kinds, name=name))
        assert not found.problems
        return list(found.events)

    return of


def test_verdicts_but_no_accepted_batch(
    cluster: LocalCluster, admin: Admin, topic: str, seen: Callable[..., list[NodeEvent]]
) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    old, new = admin.lease_producer(topic), admin.lease_producer(topic)
    pid = old.producer_id
    batches = [batch(topic, 0, pid, n, b"%d" % n, epoch=new.epoch) for n in range(3)]
    batches[0].lease_token = new.lease_token  # the leader may not have heard of the lease yet
    assert [verdict(cluster.produce(one)) for one in batches] == ["APPENDED"] * 3
    assert seen("verdict") == []
    for one in (batches[1], batches[0], batches[2]):
        assert verdict(cluster.produce(one)) == "DUPLICATE"
    zombie = batch(topic, 0, pid, 3, b"late", epoch=old.epoch)
    assert verdict(cluster.produce(zombie)) == "FENCED"
    duplicate, fenced = seen("verdict")
    assert (duplicate.verdict, duplicate.count, duplicate.epoch) == ("DUPLICATE", 3, new.epoch)
    assert (duplicate.first_sequence, duplicate.last_sequence, duplicate.offset) == (0, 2, 2)
    assert (fenced.verdict, fenced.epoch, fenced.producer_id) == ("FENCED", old.epoch, pid)
    assert fenced.node_id == duplicate.node_id == cluster.leader(topic, 0)
    assert [event.epoch for event in seen("producer")] == [old.epoch, new.epoch]
    assert any("leads" in event.text for event in seen("leader"))


def test_a_follower_of_all_nodes_sees_what_comes(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    cluster.api(1).create_topic(topic, 3, 3)
    follower = admin.follow_events(EventFilter(("verdict", "producer"), name=topic))
    with Producer(
        bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0
    ) as producer:
        for partition in range(3):
            producer.send(topic, b"x", partition=partition).result(30)
    came = {(event.kind, event.partition) for event in (next(follower) for _ in range(4))}
    assert came == {("producer", -1), *(("producer", partition) for partition in range(3))}
    follower.close()
