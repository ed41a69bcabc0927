"""Sick disks and clocks: each bites where a protection is taken out, and costs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from tests.chaos import sick
from tests.chaos.faults import FAULTS, lacking
from tests.chaos.run import run
from tests.chaos.workload import Load
from tests.integration.conftest import STEADY
from tests.integration.waiting import TIMEOUT, eventually

pytestmark = pytest.mark.skipif(bool(sick.missing()), reason=sick.missing())
DAY_MS = 24 * 3600 * 1000
SETTINGS = {**STEADY, "retention_check_ms": 100}
KEPT = 5


@contextmanager
def cluster_of(folder: Path, nodes: int, *, off: str = "") -> Iterator[LocalCluster]:
    """Starts a cluster with a topic of a week, and some records in it."""
    cluster = LocalCluster(folder / "cluster", nodes, settings=SETTINGS)
    sick.prepare(cluster, off=off)
    with cluster:
        cluster.api(1).create_topic("orders", 1, nodes, retention_ms=7 * DAY_MS)
        for number in range(KEPT):
            assert verdict(cluster.produce(batch("orders", 0, 0, 0, b"%d" % number))) == "APPENDED"
        yield cluster


def kept(cluster: LocalCluster, node: int) -> list[bytes]:
    return [one.payload for one in cluster.api(node).stored("orders", 0)]


def first_offset(cluster: LocalCluster, node: int) -> int:
    return cluster.api(node).offset("orders", 0, "earliest", any_replica=True)


# -- the clock ----------------------------------------------------------------------------------


def test_a_node_that_believes_its_own_clock_deletes_what_is_new(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3, off="clock") as cluster:
        leader = cluster.leader("orders", 0)
        sick.machine(cluster, leader).set_clock(8 * DAY_MS)
        eventually(lambda: first_offset(cluster, leader) > 0, "its records are gone")


def test_a_leader_whose_clock_jumps_deletes_nothing_and_hands_over(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        leader = cluster.leader("orders", 0)
        machine = sick.machine(cluster, leader)
        machine.set_clock(8 * DAY_MS)
        cluster.leader("orders", 0, not_in=[leader])
        assert verdict(cluster.produce(batch("orders", 0, 0, 0, b"later"))) == "APPENDED"
        eventually(
            lambda: "wall clock is not within" in cluster.nodes[leader].log_text(), "it says so"
        )
        machine.heal()
        eventually(
            lambda: (
                cluster.nodes[leader]
                .log_text()
                .rpartition("is not within")[2]
                .count("clock agrees")
                > 0
            ),
            "and that it is put right",
        )
        cluster.wait_level("orders")
        for node in cluster.nodes:
            assert first_offset(cluster, node) == 0
            assert len(kept(cluster, node)) == KEPT + 1


# -- the disk -----------------------------------------------------------------------------------


def test_nothing_is_acknowledged_while_a_majoritys_syncs_hang(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster, ThreadPoolExecutor() as pool:
        machines = [sick.machine(cluster, node) for node in cluster.nodes]
        for machine in machines[:2]:
            machine.hold_syncs(held=True)
        try:
            hanging = pool.submit(cluster.produce, batch("orders", 0, 0, 0, b"waits"))
            answer = cluster.api(3).produce(batch("orders", 0, 0, 0, b"too"), timeout_ms=1000)[0]
            assert verdict(answer) != "APPENDED"
            assert not hanging.done()
        finally:
            for machine in machines:
                machine.heal()
        assert verdict(hanging.result(TIMEOUT)) == "APPENDED"
        cluster.wait_level("orders")
        assert {len(kept(cluster, node)) for node in cluster.nodes} <= {KEPT + 1, KEPT + 2}


def test_a_node_whose_sync_fails_ends_and_has_acknowledged_nothing_by_it(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        machine, process = sick.machine(cluster, 1), cluster.nodes[1]
        machine.fail_syncs(1)
        answers = [*verdict_of_last_words(cluster)]
        process.wait(TIMEOUT)
        assert process.exit_code not in (0, None)
        assert machine.failed_syncs == 1
        assert answers in ([], ["NOT_LEADER"], ["TIMEOUT"])
        assert machine.take_lost_pages() > 0
        cluster.start_nodes([1])
        cluster.leader("orders", 0)  # it knows its commit index again
        assert kept(cluster, 1) == [b"%d" % number for number in range(KEPT)]
        assert verdict(cluster.produce(batch("orders", 0, 0, 0, b"on"))) == "APPENDED"


def test_where_a_failed_sync_is_ignored_an_acknowledged_record_is_lost(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1, off="eio") as cluster:
        machine = sick.machine(cluster, 1)
        machine.fail_syncs(1)
        assert verdict(cluster.produce(batch("orders", 0, 0, 0, b"lost"))) == "APPENDED"
        assert machine.failed_syncs == 1
        cluster.kill([1])
        assert machine.take_lost_pages() > 0
        machine.heal()
        demand_missed(cluster, 1)


def test_a_majority_that_lies_in_its_syncs_loses_what_it_acknowledged(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as cluster:
        machines = [sick.machine(cluster, node) for node in cluster.nodes]
        for machine in machines:
            machine.lie_in_syncs()
        assert verdict(cluster.produce(batch("orders", 0, 0, 0, b"lost"))) == "APPENDED"
        cluster.kill(cluster.nodes)
        lost = [n for n, one in zip(cluster.nodes, machines, strict=True) if one.take_lost_pages()]
        assert len(lost) >= 2, "a majority has acknowledged it"
        for machine in machines:
            machine.heal()
        demand_missed(cluster, lost[0])


def demand_missed(cluster: LocalCluster, node: int) -> None:
    """Checks that the loss is real: at its start the store misses data reported as synced."""
    with pytest.raises(HarnessError, match="synced writes are missing"):
        cluster.start_nodes([node])


def verdict_of_last_words(cluster: LocalCluster) -> Iterator[str]:
    """Yields the verdict, if there is an answer: the node may end before it gives one."""
    try:
        yield verdict(cluster.api(1).produce(batch("orders", 0, 0, 0, b"lost"), timeout_ms=3000)[0])
    except grpc.RpcError:
        return


def test_a_run_with_sick_clocks_and_disks_holds(tmp_path: Path) -> None:
    names = ["clock", "slow-disk", "eio"]
    cluster = LocalCluster(tmp_path / "cluster", settings=SETTINGS)
    assert all(lacking(FAULTS[name], cluster) for name in names)
    sick.prepare(cluster)
    assert not any(lacking(FAULTS[name], cluster) for name in names)
    with cluster:
        result = run(cluster, seconds=10, faults=names, seed=3, load=Load("load", 3), say=print)
    assert {event.name for event in result.events} == set(names)
    assert result.good, result.checks
