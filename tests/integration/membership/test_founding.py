"""A node without data founds no second history, in any state of the others at its start."""

from __future__ import annotations

import json
import shutil
from typing import Any

from harness.api import batch
from harness.local_cluster import LocalCluster
from harness.node_process import NodeProcess
from oncelog import Admin
from tests.integration.conftest import MakeCluster
from tests.integration.membership.test_nodes import joining, wait_settled
from tests.integration.waiting import eventually

NOT_SERVING = 1.0  # several election timeouts
END_TIMEOUT = 30.0


def says(process: NodeProcess, words: str) -> None:
    eventually(lambda: words in process.log_text(), f"node {process.spec.node_id} says {words!r}")


def identity(cluster: LocalCluster, node: int) -> Any:
    return json.loads((cluster.nodes[node].spec.data_dir / "identity.json").read_text())


def test_wiped_nodes_begin_no_second_history(make_cluster: MakeCluster) -> None:
    """The third has the last copy, is down when they start, and comes back without a majority.

    The first had founded the cluster.
    """
    cluster = make_cluster()
    cluster.api(1).create_topic("t", 1, 3)
    pid = cluster.api(1).lease().producer_id
    cluster.store(batch("t", 0, pid, 0, b"before"))
    cluster.kill([1, 2, 3])
    for node in (1, 2):
        shutil.rmtree(cluster.nodes[node].spec.data_dir)
    cluster.start_nodes([1, 2], wait=False)
    says(cluster.nodes[1], "where a cluster may be known that was founded before")
    cluster.nodes[3].start()
    for node in (1, 2):
        says(cluster.nodes[node], f"oncelog node replace {node}`")
        assert not cluster.api(node).serving(NOT_SERVING)
        assert identity(cluster, node)["founding"] == 0
    assert cluster.nodes[3].running


def test_the_wiped_first_node_of_a_grown_cluster_begins_no_second_one(
    make_cluster: MakeCluster,
) -> None:
    """The wiped node starts with its old settings, which name no other node."""
    cluster = make_cluster(start=False)
    at = cluster.nodes[1].spec.nodes[1]
    cluster.change_spec(1, nodes={1: at})
    cluster.start_nodes([1])
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        joining(cluster, 2, at).start()
        said = admin.add_node(2)
        assert "node 1 names no other node in its settings" in said[1]
        wait_settled(admin, 2)
    assert cluster.nodes[1].terminate() == 0
    cluster.nodes[1].start()
    assert cluster.nodes[1].wait(END_TIMEOUT) == 2, "nobody would stop it if its disk were lost"
    assert f"Set join to {cluster.addresses[2]}" in cluster.nodes[1].log_text()
    shutil.rmtree(cluster.nodes[1].spec.data_dir)
    cluster.nodes[1].start()
    says(cluster.nodes[1], "set `join`")
    assert not cluster.api(1).serving(NOT_SERVING)
    assert identity(cluster, 1)["founding"] == 0
