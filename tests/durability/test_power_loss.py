"""Power cuts of one, two and three nodes: nothing acknowledged is lost, nothing is there twice.

The last test shows that the cut is one: with a store that only says that it synced, the
same cut takes acknowledged batches away.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.durability import power
from tests.durability.conftest import hook, unhook
from tests.durability.workload import Workload, problems
from tests.harness.local_cluster import LocalCluster

pytestmark = pytest.mark.skipif(bool(power.missing()), reason=power.missing())
NODES = (1, 2, 3)
BATCHES = 150  # acknowledged before a cut, and after it


class PoweredCluster:
    """Three nodes, each with a disk of its own."""

    def __init__(self, root: Path) -> None:
        self.cluster = LocalCluster(root)
        self.disks: dict[int, power.PowerDisk] = {}

    def open(self) -> None:
        root = self.cluster.root
        root.mkdir()
        for node in NODES:
            self.disks[node] = power.PowerDisk(root / f"disk{node}", root / f"node{node}")
        self.cluster.start()

    def close(self) -> None:
        self.cluster.close()
        for disk in self.disks.values():
            disk.unmount()

    def cut(self, nodes: Iterable[int]) -> None:
        """The disks first, as close together as can be: a node may notice and end by itself."""
        down = list(nodes)
        cutters = [self.disks[node].cutter() for node in down]
        for cut in cutters:
            cut()
        for node in down:
            process = self.cluster.nodes[node]
            if process.running:
                process.signal(signal.SIGKILL)
            process.wait()
        for node in down:
            self.disks[node].restore()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoweredCluster]:
    made = PoweredCluster(tmp_path_factory.mktemp("power") / "cluster")
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_power_cut_loses_nothing(shared: PoweredCluster, topic: str, count: int) -> None:
    cluster = shared.cluster
    cluster.api(1).create_topic(topic, 2, 3)
    topics = {topic: 2}
    workload = Workload(cluster, topics).start()
    workload.more(BATCHES)
    leader = cluster.leader(topic, 0)
    down = [*range(leader, 4), *range(1, leader)][:count]
    shared.cut(down)
    cluster.start_nodes(down)
    workload.more(BATCHES)
    workload.stop()
    assert problems(cluster, topics, workload.acks) == []


def test_without_fsync_the_same_cut_loses_acknowledged_batches(tmp_path: Path, topic: str) -> None:
    powered = PoweredCluster(tmp_path / "cluster")
    cluster = powered.cluster
    try:
        powered.open()
        cluster.api(1).create_topic(topic, 2, 3)
        cluster.wait_level(topic)
        cluster.kill(NODES)
        for node in NODES:
            hook(cluster, node, no_sync=1)
        cluster.start_nodes(NODES)
        workload = Workload(cluster, {topic: 2}).start()
        workload.more(2 * BATCHES)
        workload.stop()
        assert problems(cluster, {topic: 2}, workload.acks) == []
        powered.cut(NODES)
        for node in NODES:
            unhook(cluster, node)
        cluster.start_nodes(NODES)
        found = problems(cluster, {topic: 2}, workload.acks)
        assert any("is lost" in text for text in found), "the cut took nothing: it is not one"
    finally:
        powered.close()
