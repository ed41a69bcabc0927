"""The node that a consumer with a rack asks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from oncelog._engine.consume import routes
from oncelog._engine.consume.routes import Routes
from oncelog._engine.net.cluster import Cluster
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import cluster_pb2, log_pb2

TP = TopicPartition("t", 0)
RACKS = {1: "a", 2: "b", 3: "c"}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(routes, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def routes_of(rack: str, racks: dict[int, str] = RACKS) -> Routes:
    config = ConsumerConfig(bootstrap_servers=("n1:1",), rack=rack)
    cluster = Cluster(config)
    info = cluster_pb2.PartitionInfo(partition=0, leader_id=1, term=1, replicas=racks)
    nodes = [
        cluster_pb2.NodeInfo(node_id=node, address=f"n{node}:1", rack=label)
        for node, label in racks.items()
    ]
    topic = cluster_pb2.TopicInfo(name="t", topic_id=5, partitions=[info])
    cluster.leaders.update(cluster_pb2.DescribeTopicsResponse(topics=[topic], nodes=nodes))
    return Routes(config, cluster)


@pytest.mark.parametrize(("rack", "address"), [("a", "n1:1"), ("c", "n3:1"), ("d", "n1:1")])
def test_records_come_from_the_own_rack_and_offsets_from_the_leader(
    rack: str, address: str
) -> None:
    found = routes_of(rack)
    assert found.address(TP) == address
    assert found.address(TP, for_records=False) == "n1:1"


def test_the_leader_is_asked_for_a_while_after_a_near_replica_failed(clock: Clock) -> None:
    near = routes_of("c")
    near.leads_elsewhere(TP, "n3:1", 1, "n1:1")
    assert near.address(TP) == "n1:1"
    near.failed(TP, "n1:1")
    assert near.address(TP) == "", "it is not known who leads, and the near one is behind"
    clock.now += 9.9
    assert near.address(TP) == ""
    clock.now += 0.2
    assert near.address(TP) == "n3:1"


def test_a_near_replica_that_hangs_is_tried_less_and_less_often(clock: Clock) -> None:
    near = routes_of("c")
    for pause in (10, 20, 40, 60, 60):
        near.failed(TP, "n3:1")
        assert near.take_outdated() == {"t"}, "it may have moved"
        clock.now += pause - 0.1
        assert near.address(TP) == "n1:1"
        clock.now += 0.2
        assert near.address(TP) == "n3:1"
    near.answered(TP, "n3:1")
    near.failed(TP, "n3:1")
    clock.now += 10.1
    assert near.address(TP) == "n3:1", "an answer ends the row of failures"


def test_another_replica_of_the_rack_stands_in(clock: Clock) -> None:
    near = routes_of("b", {1: "a", 2: "b", 3: "b", 4: "b"})
    for address in ("n2:1", "n3:1", "n4:1"):
        assert near.address(TP) == address
        near.failed(TP, address)
        clock.now += 1
    assert near.address(TP) == "n1:1"
    clock.now += 7.1
    assert near.address(TP) == "n2:1", "each has its own pause"


def test_only_a_leaders_damage_is_final() -> None:
    near = routes_of("c")
    assert near.damaged(TP, "n3:1", log_pb2.PARTITION_ERROR_STORAGE)
    assert not near.damaged(TP, "n1:1", log_pb2.PARTITION_ERROR_STORAGE)
