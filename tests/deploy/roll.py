"""The chart on a real controller of StatefulSets: a cluster begins, grows, and rolls under load.

    docs/kubernetes.md --helm--> kube-apiserver <--> controller --pods--> Kubelet --> nodes <-- load

Nothing is lost, nothing is stored twice, and never are two nodes down.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from harness.node_process import ROOT
from oncelog import Admin
from tests.deploy import charts
from tests.deploy.charts import NAMESPACE
from tests.deploy.kubelet import Kubelet, Stop
from tests.deploy.kubernetes import TOKEN, Server, make_namespace
from tests.deploy.tools import tool
from tests.integration.counted_load import CountedLoad
from tests.integration.waiting import eventually

PODS = [f"oncelog-{number}" for number in range(1, 5)]
FOUNDERS = PODS[:3]
TIMEOUT = 300.0  # seconds, on a busy machine
ZONES = {1: "a", 2: "b", 3: "c", 4: "a"}  # of the machine of each node


def faults(server: Server) -> Iterator[str]:
    """Run it all; only assertions fail."""
    server = Server(server.address, server.certificate)  # with warnings of its own
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_namespace(server, NAMESPACE)
        for number, name in ZONES.items():
            zone = {"topology.kubernetes.io/zone": name}
            machine = {"metadata": {"name": f"machine-{number}", "labels": zone}}
            server.ask("/api/v1/nodes", machine)
        words = [str(tool("controller")), server.address, TOKEN, str(server.certificate)]
        with (folder / "controller.log").open("wb") as log:
            controller = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        stack.callback(controller.wait)
        stack.callback(controller.kill)
        kubelet = stack.enter_context(Kubelet(server, NAMESPACE, folder, PODS))
        _life(server, kubelet)
        yield from _broken(kubelet)


def _life(server: Server, kubelet: Kubelet) -> None:
    install, *upgrades = charts.typed()
    (grow,) = (words for words in upgrades if "replicas=4" in words)
    (upgrade,) = (words for words in upgrades if words[-1] == charts.KEEP)
    _helm(server, install)
    _ready(kubelet, FOUNDERS)
    with Admin(bootstrap_servers=kubelet.bootstrap) as admin:
        _helm(server, grow)
        _await(kubelet, lambda: "node 4 is not expected" in kubelet.log_of(PODS[3]), "pod 4 waits")
        admin.add_node(4)
        _ready(kubelet, PODS)
        assert {*kubelet.starts.values()} == {1}, "growth restarts nobody"
        _await(kubelet, lambda: _racks(admin) == ZONES, "the racks are the zones")
        with CountedLoad(admin, kubelet.bootstrap) as load:
            _helm(server, [*upgrade, "--set", "podAnnotations.rolled=once"])
            _await(kubelet, lambda: {*kubelet.starts.values()} == {2}, "all were restarted")
            _ready(kubelet, PODS)
        load.check()


def _racks(admin: Admin) -> dict[int, str]:
    return {node.node_id: node.rack for node in admin.list_nodes()}


def _broken(kubelet: Kubelet) -> Iterator[str]:
    wanted = [Stop(pod, []) for pod in reversed(PODS)]
    if kubelet.stops != wanted:
        yield f"pods were stopped in another order, or two at once: {kubelet.stops}"


def _helm(server: Server, words: list[str]) -> None:
    """Run a command as the page has it. Raises CalledProcessError."""
    access = {"APISERVER": server.address, "TOKEN": TOKEN, "CAFILE": str(server.certificate)}
    env = {**os.environ, **{f"HELM_KUBE{name}": value for name, value in access.items()}}
    command = [str(tool(words[0])), *words[1:]]
    env["KUBECONFIG"] = os.devnull
    subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)


def _ready(kubelet: Kubelet, pods: list[str]) -> None:
    _await(kubelet, lambda: kubelet.ready >= {*pods}, f"{pods} are ready")


def _await(kubelet: Kubelet, condition: Callable[[], bool], what: str) -> None:
    """Wait for the condition. Raises the kubelet's error if that has ended."""

    def holds() -> bool:
        if kubelet.failure is not None:
            raise kubelet.failure
        return condition()

    eventually(holds, what, TIMEOUT)
