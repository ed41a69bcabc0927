"""Kubelet and scheduler of the tests: each pod of a StatefulSet is a real node on loopback.

    pods that the controller makes --environment of their container--> processes
    /readyz, ends of processes --status, deletion--> kube-apiserver --> controller

It does as kubelets do: a pod that is deleted gets SIGTERM and goes when its process has ended, and
a pod is ready while its readiness probe succeeds. A pod's addresses become ports of its own.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from harness.node_process import ROOT
from harness.ports import LOOPBACK, free_ports
from tests.deploy.kubernetes import Server
from tests.integration.background import Background

PERIOD = 0.1  # seconds between two looks
PROBE_S = 5.0
_NAME = re.compile(r"([a-z]+-\d+)\.[a-z.-]+:7001")
_VARIABLE = re.compile(r"\$\((\w+)\)")
_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")


class Stop(NamedTuple):
    """A pod that was asked to end. down: others that were not ready then."""

    pod: str
    down: list[str]


class Kubelet(Background):
    """Runs pods within the `with` block.

    starts: of each pod's process; stops: in their order.
    """

    def __init__(self, server: Server, namespace: str, folder: Path, pods: list[str]) -> None:
        super().__init__()
        self.starts: dict[str, int] = dict.fromkeys(pods, 0)
        self.stops: list[Stop] = []
        self.ready: set[str] = set()
        self.failure: BaseException | None = None
        self._server = server
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._folder = folder
        ports = iter(free_ports(4 * len(pods)))
        self._ports = {pod: [next(ports) for _ in range(4)] for pod in pods}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: set[str] = set()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{ports[0]}" for ports in self._ports.values())

    def log_of(self, pod: str) -> str:
        path = self._folder / f"{pod}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _run(self) -> None:
        try:
            while not self._stop.wait(PERIOD):
                for pod in self._server.ask(self._pods)["items"]:
                    self._look(pod)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()

    def _look(self, pod: Any) -> None:
        name, process = pod["metadata"]["name"], self._processes.get(pod["metadata"]["name"])
        if "nodeName" not in pod["spec"]:
            machine = {"kind": "Node", "name": f"machine-{name.rpartition('-')[2]}"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            self._server.ask(f"{self._pods}/{name}/binding", {**binding, "target": machine})
        elif "deletionTimestamp" in pod["metadata"]:
            self._end(name, process)
        elif process is None:
            self._start(name, pod)
        else:
            assert process.poll() is None, (
                f"{name} has ended by itself\n{self.log_of(name)[-3000:]}"
            )
            self._probe(name, pod)

    def _start(self, name: str, pod: Any) -> None:
        own = {k: v for k, v in os.environ.items() if not k.startswith("ONCELOG_")}
        with (self._folder / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "cluster"],
                cwd=ROOT,
                env={**own, **self.environment(name, pod)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.starts[name] += 1

    def environment(self, name: str, pod: Any) -> dict[str, str]:
        """Return the container's variables, with this machine's addresses and directories."""
        found: dict[str, str] = {}
        client, health, metrics, _ = self._ports[name]
        here = {"0.0.0.0:7001": client, "0.0.0.0:7080": health, "0.0.0.0:9100": metrics}
        for one in pod["spec"]["containers"][0]["env"]:
            text = one["value"] if "value" in one else self._field(pod, one["valueFrom"])
            text = _VARIABLE.sub(lambda hit: found[hit[1]], text)
            text = _NAME.sub(lambda hit: f"{LOOPBACK}:{self._ports[hit[1]][0]}", text)
            found[one["name"]] = f"{LOOPBACK}:{here[text]}" if text in here else text
        data = {
            mount["name"]: mount["mountPath"]
            for mount in pod["spec"]["containers"][0]["volumeMounts"]
        }
        assert found["ONCELOG_DATA_DIR"] == data["data"]
        return {**found, "ONCELOG_DATA_DIR": str(self._folder / f"data-{name}")}

    def _field(self, pod: Any, source: Any) -> str:
        path = source["fieldRef"]["fieldPath"]
        label = _LABEL.fullmatch(path)
        if label:
            return str(pod["metadata"]["labels"].get(label[1], ""))
        assert path == "metadata.name"
        return str(pod["metadata"]["name"])

    def _end(self, name: str, process: subprocess.Popen[bytes] | None) -> None:
        if process is not None and name not in self._ending:
            self._ending.add(name)
            others = sorted(self._processes.keys() - {name})
            down = [one for one in others if not self._succeeds(one, "/readyz")]
            self.stops.append(Stop(name, down))
            process.terminate()
        if process is None or process.poll() is not None:
            self._processes.pop(name, None)
            self._ending.discard(name)
            self.ready.discard(name)
            now = {"gracePeriodSeconds": 0}
            self._server.ask(f"{self._pods}/{name}", now, method="DELETE")

    def _probe(self, name: str, pod: Any) -> None:
        container = pod["spec"]["containers"][0]
        path = container["readinessProbe"]["httpGet"]["path"]
        is_ready = self._succeeds(name, path)
        (self.ready.add if is_ready else self.ready.discard)(name)
        told = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
        status = "True" if is_ready else "False"
        if told.get("Ready") == status:
            return
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now}
        body = {"status": {"phase": "Running", "conditions": [condition]}}
        kind = "application/strategic-merge-patch+json"
        path = f"{self._pods}/{name}/status"
        self._server.ask(path, body, method="PATCH", kind=kind)

    def _succeeds(self, name: str, path: str) -> bool:
        address = f"http://{LOOPBACK}:{self._ports[name][1]}{path}"
        try:
            with urllib.request.urlopen(address, timeout=PROBE_S):
                return True
        except OSError:
            return False
