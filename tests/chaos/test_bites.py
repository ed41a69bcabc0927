"""Faults that need root: each shows its damage."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from harness import disk, network
from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from oncelog.v1 import log_pb2
from tests.chaos.faults import demand_readable
from tests.chaos.run import run
from tests.chaos.workload import Load
from tests.durability.conftest import hook
from tests.integration.conftest import STEADY
from tests.integration.waiting import TIMEOUT, eventually

MISSING = disk.missing() or network.missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
NODES = (1, 2, 3)
ALL_THREE = 3  # a seed whose first power cut hits all nodes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path_factory.mktemp("bites") / "cluster",
        settings=STEADY,
        disks=True,
        namespaces=True,
    ) as made:
        made.api(1).create_topic("orders", 1, 3)
        yield made


@pytest.mark.parametrize("shape", ["split", "mute", "deaf"])
def test_a_leader_that_is_cut_off_is_replaced(cluster: LocalCluster, shape: str) -> None:
    leader = cluster.leader("orders", 0)
    others = [node for node in NODES if node != leader]
    sides = (others, [leader]) if shape == "deaf" else ([leader], others)
    with cluster.split(*sides, one_way=shape != "split"):
        assert cluster.leader("orders", 0, not_in=[leader]) in others
        eventually(lambda: cluster.high_watermark(leader, "orders", 0) is None, "the old one knows")
    cluster.wait_level("orders")


def test_beside_a_bridge_two_nodes_do_not_see_each_other(cluster: LocalCluster) -> None:
    with cluster.split([1], [3]):
        apart = {1: {1, 2}, 2: {1, 2, 3}, 3: {2, 3}}
        eventually(lambda: {node: seen(cluster, node) for node in NODES} == apart, f"{apart}")


def seen(cluster: LocalCluster, node: int) -> set[int]:
    return {info.node_id for info in cluster.api(node).describe().nodes if info.alive}


def test_a_full_disk_is_refused_with_a_reason_and_the_others_go_on(cluster: LocalCluster) -> None:
    leader = cluster.leader("orders", 0)
    one = batch("orders", 0, 0, 0, bytes(5000))
    end = log_pb2.PartitionFetch(topic="orders", partition=0, offset=cluster.latest("orders", 0))
    follows = cluster.api(leader).log.Subscribe(
        log_pb2.SubscribeRequest(partitions=[end]), timeout=TIMEOUT
    )
    with cluster.disks[leader].full():

        def refused() -> bool:
            (result,) = cluster.api(leader).produce(one, timeout_ms=300)
            assert verdict(result) != "APPENDED"
            return verdict(result) == "STORAGE_FULL" and "disk is full" in result.message

        eventually(refused, "the full node says so")
        other = cluster.leader("orders", 0, not_in=[leader])
        # It cannot even record that its term is over, but it must say so: its readers would wait
        # for records that only the other one gets.
        answer = next(follows).partitions[0]
        assert answer.error == log_pb2.PARTITION_ERROR_NOT_LEADER, answer
        assert answer.leader_id == other
        assert cluster.high_watermark(leader, "orders", 0) is None
        cluster.store(one)
        demand_readable(cluster, leader)
    cluster.wait_caught_up(leader)
    cluster.wait_level("orders")


def test_what_a_crashed_harness_left_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "cluster"
    left = LocalCluster(root, 1, disks=True, namespaces=True)
    left.start()
    left.api(1).create_topic("orders", 1, 1)
    assert left.network is not None
    name = left.network.name
    process, mounted = left.nodes[1], left.disks[1].mount_point
    assert mounted.is_mount() and name in namespaces()
    process.pid_file.unlink()  # so that nothing but the network knows the node
    again = LocalCluster(root, 1, disks=True, namespaces=True)
    again.start()
    process.wait()
    assert process.exit_code == -signal.SIGKILL
    assert [topic.name for topic in again.api(1).topics()] == ["orders"]
    LocalCluster.remove(root)
    assert not root.exists() and name not in namespaces()
    left.close()


def namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_partitions_show_in_the_timeline_as_other_leaders(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", namespaces=True) as cluster:
        result = run(cluster, seconds=20, faults=["partition"], seed=1,
                     load=Load("orders", 3), say=print)  # fmt: skip
    assert result.good
    changes = [
        (at, before, after)
        for partition in range(3)
        for (_, before), (at, after) in pairs(result.leaders, partition)
        if before and after and any(event.start < at < event.end + 1 for event in result.events)
    ]
    assert changes, result.leaders


def pairs(
    leaders: list[tuple[float, int, int]], partition: int
) -> Iterator[tuple[tuple[float, int], tuple[float, int]]]:
    """Pairs each leader of the partition with the next one, "nobody" left out."""
    return pairwise([(at, node) for at, part, node in leaders if part == partition and node])


@pytest.mark.slow
def test_without_fsync_a_power_cut_loses_records_and_the_checker_says_so(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", disks=True) as cluster:
        cluster.api(1).create_topic("orders", 2, 3)
        cluster.wait_level("orders")
        cluster.kill(NODES)
        for node in NODES:
            hook(cluster, node, no_sync=1)
        cluster.start_nodes(NODES)
        result = run(cluster, seconds=0, faults=["power-cut"], seed=ALL_THREE,
                     load=Load("orders", 2), say=print)  # fmt: skip
    assert "nodes 1, 2, 3" in result.events[0].what
    lost = next(one for one in result.checks if one.name == "lost")
    assert lost.holds is False, "the cut took nothing: it is not one"
