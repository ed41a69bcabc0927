"""Probes of real nodes, asked as a kubelet asks them."""

from __future__ import annotations

import dataclasses
import urllib.error
import urllib.request

from harness.local_cluster import LocalCluster
from harness.ports import free_ports

TIMEOUT = 10.0
READY = (200, "ready\n")


def give_probes(cluster: LocalCluster, module: str = "cluster") -> None:
    """Gives each stopped machine a port for probes. module: to run instead of the node's."""
    ports = free_ports(len(cluster.machines), cluster.processes + 1)
    for machine, port in zip(cluster.machines.values(), ports, strict=True):
        settings = {**machine.spec.settings, "health_listen": f"127.0.0.1:{port}"}
        machine.spec = dataclasses.replace(machine.spec, settings=settings)
    for node in {*cluster.machines.values(), *cluster.nodes.values()}:
        node.spec = dataclasses.replace(node.spec, module=module)


def probed(cluster: LocalCluster, machine: int, page: str) -> tuple[int, str]:
    """Returns status and text; status 0 if nothing listens."""
    address = cluster.machines[machine].spec.settings["health_listen"]
    try:
        with urllib.request.urlopen(f"http://{address}{page}", timeout=TIMEOUT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError as error:
        return 0, str(error)
