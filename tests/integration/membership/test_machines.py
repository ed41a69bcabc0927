"""Machines with a process for each core: one process dies, a whole machine dies.

Three supervisors on loopback, two nodes each. A producer writes all the time; at the end every
record that was acknowledged is there once.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.node_process import NodeProcess, NodeSpec
from harness.ports import LOOPBACK, free_ports
from oncelog import Admin, Consumer, Producer
from tests.integration.background import Background
from tests.integration.conftest import STEADY
from tests.integration.waiting import TIMEOUT, eventually

PROCESSES, STEP, PARTITIONS = 2, 100, 12
TOPIC = "t"


class Machine:
    """One supervisor. `nodes`: of its processes."""

    def __init__(self, process: NodeProcess, health: str) -> None:
        self.process = process
        first = process.spec.node_id
        self.nodes = [first + STEP * number for number in range(PROCESSES)]
        self._health = health

    def probe(self, path: str = "/readyz") -> tuple[int, str]:
        """Status and text of the machine's answer; (0, reason) without one."""
        try:
            with urllib.request.urlopen(f"http://{self._health}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    @property
    def is_ready(self) -> bool:
        return self.probe()[0] == 200

    def pid_of(self, node: int) -> int:
        """The process that the supervisor started last for this node."""
        found = re.findall(rf"process started node={node} pid=(\d+)", self.process.log_text())
        return int(found[-1])

    def is_gone(self, node: int) -> bool:
        """Whether nothing listens where the node served. Its process may be a zombie."""
        host, port = self.process.spec.nodes[node].split(":")
        try:
            socket.create_connection((host, int(port))).close()
        except ConnectionRefusedError:
            return True
        return False

    def kill(self) -> None:
        """Kills the supervisor and all of its processes at once, as a loss of power does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Machines:
    def __init__(self, root: Path) -> None:
        free = {*free_ports(3 * STEP)}
        first = sorted(port for port in free if port + STEP in free)
        listen = dict(zip((1, 2, 3), first[::3], strict=False))
        health = dict(zip((1, 2, 3), first[1::3], strict=False))
        nodes = {
            node + STEP * number: f"{LOOPBACK}:{port + STEP * number}"
            for node, port in listen.items()
            for number in range(PROCESSES)
        }
        self.bootstrap = ",".join(nodes.values())
        self.by_name: dict[str, Machine] = {}
        for node, port in listen.items():
            name = f"m{node}"
            spec = NodeSpec(
                node_id=node,
                listen=f"{LOOPBACK}:{port}",
                advertise=f"{LOOPBACK}:{port}",
                nodes=nodes,
                data_dir=root / name,
                log_file=root / f"{name}.log",
                settings={
                    **STEADY,
                    "processes": PROCESSES,
                    "machine": name,
                    "health_listen": f"{LOOPBACK}:{health[node]}",
                },
            )
            process = NodeProcess(spec, detached=True)  # it leads a group of processes
            self.by_name[name] = Machine(process, f"{LOOPBACK}:{health[node]}")

    def start(self) -> None:
        for machine in self.by_name.values():
            machine.process.start()
        machines = self.by_name.values()
        eventually(lambda: all(one.is_ready for one in machines), "all are ready", 3 * TIMEOUT)


class Load(Background):
    """Records with their numbers as values, to all partitions; counts what is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self.acknowledged: list[int] = []

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap, linger_ms=0) as producer:
            number = 0
            while not self._stop.is_set():
                sent = [
                    producer.send(TOPIC, str(number + part).encode(), partition=part)
                    for part in range(PARTITIONS)
                ]
                for part, each in enumerate(sent):
                    each.result()
                    self.acknowledged.append(number + part)
                number += PARTITIONS


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    made = Machines(tmp_path_factory.mktemp("machines"))
    try:
        made.start()
        yield made
    finally:
        for machine in made.by_name.values():
            if machine.process.running:
                machine.kill()


@pytest.fixture(scope="module")
def admin(machines: Machines) -> Iterator[Admin]:
    with Admin(bootstrap_servers=machines.bootstrap) as one:

        def labelled() -> bool:
            found = Counter(node.machine for node in one.list_nodes() if node.alive)
            return found == dict.fromkeys(machines.by_name, PROCESSES)

        eventually(labelled, "all nodes have told their machine")
        one.create_topic(TOPIC, PARTITIONS, 3)
        yield one


def leaders(admin: Admin) -> dict[int, int]:
    parts = admin.describe_topic(TOPIC).partitions
    return {part.partition: part.leader_id for part in parts}


def test_a_process_dies_and_then_a_machine(machines: Machines, admin: Admin) -> None:
    for part in admin.describe_topic(TOPIC).partitions:
        assert len({node % STEP for node in part.replicas}) == 3, "one replica on each machine"
    with Load(machines.bootstrap) as load:
        eventually(lambda: len(load.acknowledged) >= 5 * PARTITIONS, "records are acknowledged")
        a_process_dies(machines, admin)
        a_machine_dies(machines, admin)
        count = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > count + PARTITIONS, "the load goes on")
    with Consumer(TOPIC, bootstrap_servers=machines.bootstrap) as consumer:
        stored: Counter[int] = Counter()
        ends = consumer.end_offsets(consumer.assignment())
        consumer.seek_to_beginning()
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for records in consumer.getmany(timeout_ms=1000).values():
                stored.update(int(record.value or b"") for record in records)
    assert [*stored.values()].count(1) == len(stored), "nothing is there twice"
    assert {*load.acknowledged} <= {*stored}, "nothing is lost"


def a_process_dies(machines: Machines, admin: Admin) -> None:
    """Only its own leaderships move, and it comes back. The other process goes on."""
    machine = machines.by_name["m1"]
    killed, other = machine.nodes[1], machine.nodes[0]
    pids = {node: machine.pid_of(node) for node in machine.nodes}
    before = leaders(admin)
    os.kill(pids[killed], signal.SIGKILL)
    status, text = machine.probe()
    assert (status, text) == (503, f"not ready:\n- node {killed}: it does not run\n")
    assert machine.probe("/livez") == (200, "alive\n")
    lost = [part for part, leader in before.items() if leader == killed]

    def moved() -> bool:
        return all(leaders(admin)[part] not in (0, killed) for part in lost)

    eventually(moved, "others lead its partitions")
    kept = {part for part, leader in before.items() if leader == other}
    assert all(leaders(admin)[part] == other for part in kept)
    eventually(lambda: machine.is_ready, "the process runs again")
    assert machine.pid_of(killed) != pids[killed]
    assert machine.pid_of(other) == pids[other]
    os.kill(pids[other], 0)


def a_machine_dies(machines: Machines, admin: Admin) -> None:
    """Every partition stays writable: its other replicas are on other machines."""
    machine = machines.by_name["m2"]
    machine.kill()
    left = ",".join(
        address for node, address in machine.process.spec.nodes.items() if node not in machine.nodes
    )
    with Producer(bootstrap_servers=left, linger_ms=0) as producer:
        sent = [
            producer.send(TOPIC, str(-1 - part).encode(), partition=part)
            for part in range(PARTITIONS)
        ]
        assert all(one.result(TIMEOUT).offset >= 0 for one in sent)
    machine.process.start()
    eventually(lambda: machine.is_ready, "the machine is back", 3 * TIMEOUT)


def test_a_stop_ends_all_processes(machines: Machines) -> None:
    machine = machines.by_name["m1"]
    assert machine.process.terminate() == 0
    assert all(machine.is_gone(node) for node in machine.nodes)


def test_processes_end_with_their_supervisor(machines: Machines) -> None:
    machine = machines.by_name["m3"]
    assert not any(machine.is_gone(node) for node in machine.nodes)
    machine.process.kill()
    eventually(lambda: all(map(machine.is_gone, machine.nodes)), "all end with their supervisor")
