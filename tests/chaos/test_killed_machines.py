"""Machines with two processes each: one of them is killed, or a whole machine; then every check."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bench import machines
from harness import demo
from harness.local_cluster import LocalCluster
from tests.chaos.run import run
from tests.chaos.workload import Load

FAULTS = ("kill-leader", "kill-machine")
RECORDS = 4000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("machines") / "cluster", processes=2) as made:
        yield made


def pids(cluster: LocalCluster) -> dict[int, int]:
    return {node: process.pid for node, process in cluster.nodes.items()}


def test_a_supervisor_starts_a_killed_process_and_nothing_starts_a_killed_machine(
    cluster: LocalCluster,
) -> None:
    before, supervisors = pids(cluster), {m: one.pid for m, one in cluster.machines.items()}
    cluster.kill([101])
    cluster.start_nodes([101])
    after = pids(cluster)
    assert after.pop(101) != before.pop(101) and after == before
    assert supervisors == {m: one.pid for m, one in cluster.machines.items()}
    cluster.kill_machines([2])
    assert cluster.running == [1, 3, 101, 103]
    assert not cluster.machines[2].running
    cluster.start_nodes([2, 102])
    assert pids(cluster).keys() == {1, 2, 3, 101, 102, 103}
    assert pids(LocalCluster.load(cluster.root)) == pids(cluster)


def test_nothing_is_lost_or_twice_when_processes_and_machines_are_killed(
    cluster: LocalCluster,
) -> None:
    result = run(cluster, seconds=0, faults=FAULTS, seed=5, load=Load("orders", 3), say=print)
    assert {event.name for event in result.events} == {*FAULTS}
    for part in cluster.describe_topic("orders").partitions:
        assert {cluster.machine_of(node) for node in part.replicas} == {1, 2, 3}
    assert [one.name for one in result.checks if not one.holds] == []


def test_the_demo_on_machines(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's job without its download: a process is killed, then a machine."""

    def rows(count: int) -> Iterator[tuple[bytes, bytes]]:
        for row in range(count):
            yield b"N%d" % (row % 50), b'{"row":%d,"x":1}' % row

    monkeypatch.setattr(demo, "departures", rows)
    cluster.api(1).create_topic(demo.TOPIC, demo.PARTITIONS, 3)
    outcome = demo.stream(cluster, RECORDS, 2, idempotent=True)
    assert outcome.ledger.acknowledged == RECORDS and outcome.failed == 0
    assert len(outcome.killed) == 2
    assert len(outcome.audits) == 3 and outcome.identical
    assert all(one.clean for one in outcome.audits), [one.examples for one in outcome.audits]


def test_the_bench_of_machines_counts_what_both_processes_stored(cluster: LocalCluster) -> None:
    machines.prepare(cluster)
    found = asyncio.run(machines.measure(cluster, [1, 101], turns=1, seconds=0.3, producers=8))
    stored = sum(cluster.latest(machines.TOPIC, part) for part in range(machines.PARTITIONS))
    measured = sum(turn.records for turns in found.values() for turn in turns)
    assert all(turn.records >= 8 and turn.nodes_s > 0 for turns in found.values() for turn in turns)
    assert stored >= measured > 0
    assert len(machines.lines(found)) == 7
