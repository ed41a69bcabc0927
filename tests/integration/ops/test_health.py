"""/livez and /readyz of real nodes: of a sound cluster, a hung loop, and others' faults."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness.local_cluster import LocalCluster
from tests.integration.conftest import MakeCluster
from tests.integration.probes import READY, give_probes, probed
from tests.integration.waiting import eventually

ALIVE = (200, "alive\n")


def with_probes(cluster: LocalCluster, module: str = "cluster") -> LocalCluster:
    give_probes(cluster, module=module)
    cluster.start()
    return cluster


def test_others_faults_leave_a_node_ready(make_cluster: MakeCluster) -> None:
    cluster = with_probes(make_cluster(start=False))
    cluster.api(1).create_topic("t", 3, 3)
    for node in cluster.nodes:
        eventually(lambda node=node: probed(cluster, node, "/readyz") == READY, "ready")  # type: ignore[misc]
    for node in (1, 2):
        cluster.nodes[node].kill()
    eventually(
        lambda: not any(one.alive for one in cluster.api(3).describe().nodes if one.node_id != 3),
        "node 3 misses the others",
    )
    assert probed(cluster, 3, "/readyz") == READY
    assert probed(cluster, 3, "/livez") == ALIVE


def test_a_hung_loop_fails_both_probes_until_it_turns(make_cluster: MakeCluster) -> None:
    cluster = with_probes(make_cluster(1, start=False), "tests.integration.ops.hanging")
    eventually(lambda: probed(cluster, 1, "/readyz") == READY, "it serves")
    assert probed(cluster, 1, "/livez") == ALIVE
    os.kill(cluster.nodes[1].pid, signal.SIGUSR1)
    eventually(lambda: probed(cluster, 1, "/livez")[0] == 503, "the hang is noticed")
    status, text = probed(cluster, 1, "/livez")
    assert text.startswith("not alive:\n- its event loop has not turned for ")
    assert (status, probed(cluster, 1, "/readyz")[0]) == (503, 503)
    os.kill(cluster.nodes[1].pid, signal.SIGUSR2)
    eventually(lambda: probed(cluster, 1, "/livez") == ALIVE, "it turns again")


def test_a_machine_ends_the_one_process_that_hangs(make_cluster: MakeCluster) -> None:
    """Its other process runs on."""
    made = make_cluster(1, start=False, processes=2)
    cluster = with_probes(made, "tests.integration.ops.hanging")
    eventually(lambda: probed(cluster, 1, "/readyz") == READY, "it serves")
    other, hung = cluster.nodes
    pids = {node: cluster.nodes[node].pid for node in cluster.nodes}
    os.kill(pids[hung], signal.SIGUSR1)
    eventually(lambda: cluster.nodes[hung].noted_pid() != pids[hung], "it is started again")
    eventually(lambda: probed(cluster, 1, "/readyz") == READY, "it serves again")
    assert cluster.nodes[other].noted_pid() == pids[other]
    assert f"process hangs node={hung} pid={pids[hung]}: ended" in cluster.machines[1].log_text()


def test_probes_need_no_certificate(tmp_path: Path) -> None:
    with_ports = LocalCluster(tmp_path / "secured", 1, secured=True)
    try:
        cluster = with_probes(with_ports)
        eventually(lambda: probed(cluster, 1, "/readyz") == READY, "it serves")
    finally:
        with_ports.close()
