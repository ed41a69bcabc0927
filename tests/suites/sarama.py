"""sarama's functional tests, from the Go module proxy, against five nodes behind toxiproxy.

    tests --29091 to 29095--> toxiproxy --> nodes
    tests --docker compose stop kafka-2--> our program of that name --> _Containers

The tests stop and start containers by `docker compose`; here these are the nodes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from urllib.error import URLError
from urllib.request import Request, urlopen

from harness.local_cluster import LocalCluster
from harness.ports import LOOPBACK, free_ports
from tests.integration.kafka.kafka_rig import admin
from tests.suites.go_tests import GoTests
from tests.suites.outcome import Case
from tests.suites.places import SETTINGS, require, step

VERSION = "v1.61.1"
TESTS = GoTests("github.com/IBM/sarama", VERSION, tags="functional")
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
KAFKA_VERSION = "4.0.0"  # below it the version matrix writes records of format v0 and v1
NODES = 5
FIRST_PORT = 29091  # where the tests expect the first of five brokers
QUICK = ("TestFuncTxnProduce",)
_UNASKED = "sends versions of Kafka 4.0 without asking for those that are offered"
CANNOT: dict[str, str] = {
    "TestFuncProducingNoResponse": _UNASKED,
    "TestFuncProducingNoResponse/TestFuncProducingNoResponse-v4.0.0": _UNASKED,
    "TestFuncIdempotentBufferedSequence": "reads the log of a Kafka broker",
    "TestFuncAdminQuotas": "Kafka's quotas: there is oncelog quota",
    "TestFuncAdminAlterConfig": "sets segment.ms, which does not exist here",
    "TestFuncAdminIncrementalAlterConfigs": "sets a setting of a broker",
    "TestFuncAdminDescribeConfig": "a node's settings are in its file",
    "TestFuncAdminUpdateFeatures": "Kafka's features: there is oncelog cluster upgrade",
    "TestFuncAdminElectLeadersV1": "nodes hand leadership over by themselves",
    "TestFuncAdminAlterPartitionReassignments": "moves replicas by hand",
}
DOCKER = """\
#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    link.sendall((" ".join(sys.argv[1:]) + "\\n").encode())
    answer = link.makefile().read()
word, _, text = answer.partition("\\n")
sys.stdout.write(text)
sys.exit(word != "done")
"""


class _Containers(ThreadingUnixStreamServer):
    """Does for the nodes what the tests ask of docker compose."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        address = str(folder / "docker.socket")
        super().__init__(address, _Order)
        self.cluster, self.lock = cluster, threading.Lock()
        program = folder / "docker"
        program.write_text(DOCKER.format(python=sys.executable, address=address))
        program.chmod(0o755)

    def obey(self, words: str) -> str:
        """Stop or start a node; returns the answer of the program."""
        found = re.fullmatch(r"compose (stop|start) kafka-(\d)", words)
        if found is None:
            return f"failed\n{words!r} is not there\n"
        node = int(found[2])
        with self.lock:
            runs = node in self.cluster.running
            if found[1] == "start" and not runs:
                self.cluster.start_nodes([node])
            elif found[1] == "stop" and runs:
                self.cluster.nodes[node].terminate()
        return "done\n"


class _Order(StreamRequestHandler):
    server: _Containers

    def handle(self) -> None:
        words = self.rfile.readline().decode().strip()
        print(f"docker {words}", flush=True)
        self.wfile.write(self.server.obey(words).encode())


def run(only: Sequence[str], *, quick: bool) -> Iterator[Case]:
    require("go")
    TESTS.home.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(TESTS.home)}
    step("go", "install", TOXIPROXY, cwd=TESTS.home, env=environment)
    with tempfile.TemporaryDirectory() as folder, _nodes(Path(folder)) as cluster:
        with _Containers(Path(folder), cluster) as containers, _proxied(cluster) as address:
            threading.Thread(target=containers.serve_forever, daemon=True).start()
            environment = {
                "TOXIPROXY_ADDR": address,
                "KAFKA_VERSION": KAFKA_VERSION,
                "PATH": f"{folder}:{os.environ['PATH']}",
            }
            try:
                yield from TESTS.run(only or (QUICK if quick else ()), environment)
            finally:
                containers.shutdown()
        if len(cluster.running) < NODES:
            sys.exit("a node has ended:\n" + cluster.logs(60))


@contextmanager
def _nodes(folder: Path) -> Iterator[LocalCluster]:
    """Run the nodes, which name toxiproxy's ports to clients."""
    settings = {**SETTINGS, "kafka_auto_create": "false", "preferred_leader_delay_ms": "1000"}
    cluster = LocalCluster(folder / "cluster", NODES, settings=settings, kafka=True)
    for node, process in list(cluster.nodes.items()):
        named = {"kafka_advertise": f"{LOOPBACK}:{FIRST_PORT + node - 1}"}
        cluster.change_spec(node, settings={**process.spec.settings, **named})
    with cluster:
        yield cluster


@contextmanager
def _proxied(cluster: LocalCluster) -> Iterator[str]:
    """Run toxiproxy with a proxy for each node; gives the address of its API."""
    (port,) = free_ports(1)
    address = f"http://{LOOPBACK}:{port}"
    program = subprocess.Popen(
        [TESTS.home / "server", "-host", LOOPBACK, "-port", str(port)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for node, target in cluster.kafka_addresses.items():
            listen = f"{LOOPBACK}:{FIRST_PORT + node - 1}"
            _add(address, {"name": f"kafka{node}", "listen": listen, "upstream": target})
        admin(cluster)
        yield address
    finally:
        program.kill()
        program.wait()


def _add(address: str, proxy: dict[str, str]) -> None:
    """Add a proxy, once toxiproxy serves."""
    data = json.dumps({**proxy, "enabled": True}).encode()
    end = time.monotonic() + 60
    while True:
        try:
            urlopen(Request(f"{address}/proxies", data, method="POST"), timeout=10).close()
        except URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return
