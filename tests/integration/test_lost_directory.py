"""A node whose data directory was emptied has forgotten what it promised: it stays out."""

from __future__ import annotations

import shutil

from harness.api import batch, verdict
from tests.integration.conftest import MakeCluster


def test_an_emptied_directory_is_refused_and_the_cluster_goes_on(
    make_cluster: MakeCluster,
) -> None:
    """It could otherwise vote for a leader that lacks what it had acknowledged."""
    cluster = make_cluster()
    cluster.api(1).create_topic("t", 1, 3)
    pid = cluster.api(1).lease().producer_id
    assert verdict(cluster.produce(batch("t", 0, pid, 0, b"before"))) == "APPENDED"
    lost = next(node for node in cluster.nodes if node != cluster.leader("t", 0))
    cluster.kill([lost])
    process = cluster.nodes[lost]
    shutil.rmtree(process.spec.data_dir)
    process.start()
    assert process.wait(60) == 1
    assert f"node_id {lost} is registered with another data directory" in process.log_text()
    assert verdict(cluster.produce(batch("t", 0, pid, 1, b"after"))) == "APPENDED"
    assert verdict(cluster.produce(batch("t", 0, pid, 0, b"before"))) == "DUPLICATE"
