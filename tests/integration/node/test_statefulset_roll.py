"""A roll as Kubernetes does it, while a producer writes: each leadership is handed over before.

    .venv/bin/python -m pytest -s tests/integration/node/test_statefulset_roll.py

prints the producer's longest silence, with restarts and without. The nodes are the pods of the
chart's StatefulSet: three begin the cluster, and the fourth joins through them. The pod with the
highest number goes first: SIGTERM, its end, a new process, and the next one once its readiness
probe succeeds.
"""

from __future__ import annotations

import dataclasses
import time

from harness.local_cluster import LocalCluster
from oncelog import Admin
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.counted_load import CountedLoad
from tests.integration.probes import READY, give_probes, probed
from tests.integration.waiting import eventually

FOUNDERS = (1, 2, 3)


def start_pods(cluster: LocalCluster, admin: Admin) -> None:
    """Starts all with the founders in `nodes`, also the node that is none, and adds that."""
    give_probes(cluster)
    founders = {node: cluster.nodes[1].spec.nodes[node] for node in FOUNDERS}
    for process in cluster.nodes.values():
        process.spec = dataclasses.replace(process.spec, nodes=founders)
    cluster.start_nodes(cluster.nodes, wait=False)
    cluster.wait_serving(FOUNDERS)
    fourth = cluster.nodes[4]
    eventually(lambda: "node 4 is not expected" in fourth.log_text(), "it waits, and says why")
    assert probed(cluster, 4, "/readyz")[0] == 503
    admin.add_node(4)


def all_ready(cluster: LocalCluster) -> bool:
    return all(probed(cluster, node, "/readyz") == READY for node in cluster.nodes)


def test_a_statefulset_rolls_under_load(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4, settings=STEADY, start=False)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        start_pods(cluster, admin)
        eventually(lambda: all_ready(cluster), "all are ready")
        cluster.wait_joined()
        with CountedLoad(admin, cluster.bootstrap) as load:
            spans, quiet = {}, time.monotonic()
            for node in sorted(cluster.nodes, reverse=True):
                eventually(lambda: all_ready(cluster), "no other one is down")
                start = time.monotonic()
                assert cluster.nodes[node].terminate() == 0
                cluster.nodes[node].start()
                eventually(lambda: all_ready(cluster), "it is ready")
                spans[node] = start, time.monotonic()
    assert "hands over leaderships" in cluster.logs(1_000_000)
    load.check()
    print("\nsilence without a restart:", f"{1000 * load.silence(quiet - 2, quiet):.0f} ms")
    for node, span in spans.items():
        print(f"silence while node {node} was restarted: {1000 * load.silence(*span):.0f} ms")
