"""A changed `nodes` makes no second history: nodes that do not fit are refused, the rest go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from harness.node_process import NodeProcess
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

END_TIMEOUT = 60.0
NOT_SERVING = 2.0  # several election timeouts


def given(cluster: LocalCluster, node: int, nodes: Mapping[int, str]) -> NodeProcess:
    """The node with another setting `nodes`."""
    cluster.change_spec(node, nodes=dict(nodes))
    return cluster.nodes[node]


def says(process: NodeProcess, words: str) -> None:
    eventually(lambda: words in process.log_text(), f"node {process.spec.node_id} says {words!r}")


def identity(cluster: LocalCluster, node: int) -> Any:
    return json.loads((cluster.nodes[node].spec.data_dir / "identity.json").read_text())


def test_one_node_becomes_no_three_by_configuration(make_cluster: MakeCluster) -> None:
    """The new nodes would elect a second history, and issue the first one's ids again."""
    cluster = make_cluster(start=False)
    all_of_them = dict(cluster.nodes[1].spec.nodes)
    given(cluster, 1, {1: all_of_them[1]})
    cluster.start_nodes([1])
    cluster.api(1).create_topic("t", 1, 1)
    pid = cluster.api(1).lease().producer_id
    one = batch("t", 0, pid, 0, b"before")
    cluster.store(one)
    cluster.nodes[1].terminate()

    grown = given(cluster, 1, all_of_them)
    cluster.start_nodes([1, 2, 3], wait=False)
    assert grown.wait(END_TIMEOUT) == 1
    text = grown.log_text()
    assert "a cluster with the nodes 1, and the setting `nodes` names 1, 2, 3" in text
    assert "Put `nodes` back" in text
    for node in (2, 3):
        new = cluster.nodes[node]
        says(new, "node 1 has to start first")
        assert not cluster.api(node).serving(NOT_SERVING)
        assert new.running and "leads partition" not in new.log_text()
    cluster.kill([2, 3])

    given(cluster, 1, {1: all_of_them[1]})
    cluster.start_nodes([1])
    assert verdict(cluster.produce(one)) == "DUPLICATE"


def test_three_nodes_become_no_five_in_a_rolling_restart(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(5, start=False)
    five = dict(cluster.nodes[1].spec.nodes)
    three = {node: five[node] for node in (1, 2, 3)}
    for node in three:
        given(cluster, node, three)
    cluster.start_nodes(three)
    cluster.api(1).create_topic("t", 1, 3)
    pid = cluster.api(1).lease().producer_id
    cluster.store(batch("t", 0, pid, 0, b"before"))

    cluster.start_nodes([4, 5], wait=False)
    for node in (3, 2):
        cluster.nodes[node].terminate()
        given(cluster, node, five).start()
        assert cluster.nodes[node].wait(END_TIMEOUT) == 1
        text = cluster.nodes[node].log_text()
        assert "the nodes 1, 2, 3, and the setting `nodes` names 1, 2, 3, 4, 5" in text
        given(cluster, node, three)
        cluster.start_nodes([node], wait=False)
        cluster.wait_serving([node])
        sequence = 4 - node
        cluster.store(batch("t", 0, pid, sequence, b"after"))
    for node in (4, 5):
        new = cluster.nodes[node]
        says(new, f"`oncelog node add {node}` comes first")
        assert "leads partition" not in new.log_text()
        assert identity(cluster, node)["founding"] == 0
    assert len({identity(cluster, node)["founding"] for node in three}) == 1


def test_a_member_that_comes_first_waits_for_the_one_that_founds(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(start=False)
    cluster.start_nodes([2, 3], wait=False)
    for node in (2, 3):
        says(cluster.nodes[node], "node 1 has to start first")
    cluster.start_nodes([1], wait=False)
    cluster.wait_serving([1, 2, 3])
    founding = {identity(cluster, node)["founding"] for node in (1, 2, 3)}
    assert len(founding) == 1 and founding != {0}
    cluster.kill([1, 2, 3])
    cluster.start_nodes([2, 3])  # from now on any two of them can start


def test_a_directory_of_another_founding_ends_its_node(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.kill([1])
    process = cluster.nodes[1]
    changed = {**identity(cluster, 1), "founding": 255}
    (process.spec.data_dir / "identity.json").write_text(json.dumps(changed))
    process.start()
    assert process.wait(END_TIMEOUT) == 1
    ours = identity(cluster, 2)["founding"]
    assert f"{ours:016x}" in process.log_text() and f"{255:016x}" in process.log_text()
    assert sorted(cluster.running) == [2, 3]
