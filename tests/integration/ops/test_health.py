"""/livez and /readyz of real nodes: of a sound cluster, a hung loop, and others' faults."""

from __future__ import annotations

import dataclasses
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

from harness.local_cluster import LocalCluster
from harness.ports import free_ports
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

TIMEOUT = 10.0
READY, ALIVE = (200, "ready\n"), (200, "alive\n")


def probed(cluster: LocalCluster, node: int, page: str) -> tuple[int, str]:
    address = cluster.machines[node].spec.settings["health_listen"]
    try:
        with urllib.request.urlopen(f"http://{address}{page}", timeout=TIMEOUT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def with_probes(cluster: LocalCluster, module: str = "cluster") -> LocalCluster:
    ports = free_ports(len(cluster.machines), cluster.processes + 1)
    for node, port in zip(cluster.machines.values(), ports, strict=True):
        settings = {**node.spec.settings, "health_listen": f"127.0.0.1:{port}"}
        node.spec = dataclasses.replace(node.spec, settings=settings)
    for node in {*cluster.machines.values(), *cluster.nodes.values()}:
        node.spec = dataclasses.replace(node.spec, module=module)
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
