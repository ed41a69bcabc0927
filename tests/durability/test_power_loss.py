"""Power cuts of one, two and three nodes: nothing acknowledged is lost, nothing is there twice.

The last test shows that the cut is real: with a store that only says that it synced, the
same cut takes acknowledged batches away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import disk
from harness.local_cluster import LocalCluster
from tests.durability.conftest import hook, unhook
from tests.durability.workload import Workload, problems

pytestmark = pytest.mark.skipif(bool(disk.missing()), reason=disk.missing())
NODES = (1, 2, 3)
BATCHES = 150  # acknowledged before a cut, and after it


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("power") / "cluster", disks=True) as made:
        yield made


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_power_cut_loses_nothing(cluster: LocalCluster, topic: str, count: int) -> None:
    cluster.api(1).create_topic(topic, 2, 3)
    topics = {topic: 2}
    workload = Workload(cluster, topics).start()
    workload.more(BATCHES)
    leader = cluster.leader(topic, 0)
    down = [*range(leader, 4), *range(1, leader)][:count]
    cluster.cut_power(down)
    cluster.start_nodes(down)
    workload.more(BATCHES)
    workload.stop()
    assert problems(cluster, topics, workload.acks) == []


def test_without_fsync_the_same_cut_loses_acknowledged_batches(tmp_path: Path, topic: str) -> None:
    with LocalCluster(tmp_path / "cluster", disks=True) as cluster:
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
        cluster.cut_power(NODES)
        for node in NODES:
            unhook(cluster, node)
        cluster.start_nodes(NODES)
        found = problems(cluster, {topic: 2}, workload.acks)
        assert any("is lost" in text for text in found), "the cut took nothing: it is not one"
