"""Machines with a process for each core, on a cluster that began with one process each.

Three supervisors on loopback, with TLS and one certificate each. A process dies, then a machine,
while a producer writes. At the end every record that was acknowledged is there once.
"""

from __future__ import annotations

import os
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.machine_process import MachineProcess
from harness.node_process import NodeSpec
from harness.ports import LOOPBACK, PROCESS_STEP, free_ports
from oncelog import Admin, Consumer, NodeStatus, Producer
from oncelog.certificates import make_authorities, make_client, make_node
from oncelog.cli.app import cli
from oncelog.errors import DeliveryTimeoutError
from tests.integration.background import Background
from tests.integration.conftest import STEADY
from tests.integration.waiting import TIMEOUT, eventually

PROCESSES, PARTITIONS = 2, 12
START_TIMEOUT = 3 * TIMEOUT
TOPIC, UNSAFE = "t", "unsafe"


class Machine:
    """One supervisor, or a node alone before `grow`. `nodes`: of its processes."""

    def __init__(self, spec: NodeSpec, health: str) -> None:
        self.process = MachineProcess(spec)
        self.nodes = [spec.node_id + PROCESS_STEP * number for number in range(PROCESSES)]
        self._health = health

    def change(self, processes: int) -> None:
        """Stops it and starts it with this number of processes."""
        assert self.process.terminate() == 0
        spec = self.process.spec
        settings = {**spec.settings, "processes": processes}
        self.process = MachineProcess(replace(spec, settings=settings))
        self.process.start()

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

    def is_gone(self, node: int) -> bool:
        """Whether nothing listens where the node served. Its process may be a zombie."""
        host, port = self.process.spec.listen.split(":")
        try:
            socket.create_connection((host, int(port) + node - self.nodes[0])).close()
        except ConnectionRefusedError:
            return True
        return False


class Machines:
    """Three, by name. `client`: settings of a client."""

    def __init__(self, root: Path) -> None:
        certs = root / "certs"
        make_authorities(certs, days=1)
        make_client(certs, "tester", days=1)
        addresses = [f"{LOOPBACK}:{port}" for port in free_ports(6, PROCESSES + 1)]
        nodes = dict(zip((1, 2, 3), addresses, strict=False))
        self.by_name = {}
        for node, listen in nodes.items():
            name, health = f"m{node}", addresses[2 + node]
            make_node(certs, node, "oncelog", [LOOPBACK], 1, [node + PROCESS_STEP])
            own = certs / f"node-{node}"
            spec = NodeSpec(
                node_id=node,
                listen=listen,
                advertise=listen,
                nodes=nodes,
                data_dir=root / name,
                log_file=root / f"{name}.log",
                settings={
                    **STEADY,
                    **{f"{kind}_cert": str(own / f"{kind}.crt") for kind in ("tls", "peer")},
                    **{f"{kind}_key": str(own / f"{kind}.key") for kind in ("tls", "peer")},
                    **{f"{kind}_ca": str(own / f"{kind}-ca.crt") for kind in ("tls", "peer")},
                    "machine": name,
                    "health_listen": health,
                },
            )
            self.by_name[name] = Machine(spec, health)
        self.client = self._client(certs / "client-tester", nodes.values())

    @staticmethod
    def _client(files: Path, bootstrap: Any) -> dict[str, Any]:
        names = {"tls_ca_file": "ca.crt", "tls_cert_file": "client.crt"}
        names["tls_key_file"] = "client.key"
        own = {name: str(files / file) for name, file in names.items()}
        return {"bootstrap_servers": ",".join(bootstrap), **own}

    def wait_ready(self) -> None:
        machines = self.by_name.values()
        eventually(lambda: all(one.is_ready for one in machines), "all are ready", START_TIMEOUT)

    def command(self, *words: str) -> Result:
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self.client.items()]
        options[0] = options[0].replace("--bootstrap-servers", "--bootstrap")
        return CliRunner().invoke(cli, ["node", *words, *options])

    def done(self, *words: str) -> str:
        result = self.command(*words)
        assert result.exit_code == 0, result.output
        return result.output


class Load(Background):
    """Records with their numbers as values, to all partitions; counts acknowledged ones."""

    def __init__(self, client: dict[str, Any]) -> None:
        super().__init__()
        self._client = client
        self.acknowledged: list[int] = []

    def _run(self) -> None:
        with Producer(**self._client, linger_ms=0) as producer:
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
    """Founded with a process each, then two, as docs/operations.md changes their number."""
    made = Machines(tmp_path_factory.mktemp("machines"))
    try:
        for machine in made.by_name.values():
            machine.process.start()
        made.wait_ready()
        made.done("add", *(str(machine.nodes[1]) for machine in made.by_name.values()))
        for machine in made.by_name.values():
            machine.change(PROCESSES)
            eventually(lambda one=machine: one.is_ready, "it is ready", START_TIMEOUT)  # type: ignore[misc]
        yield made
    finally:
        for machine in made.by_name.values():
            if machine.process.running:
                machine.process.kill()


@pytest.fixture(scope="module")
def admin(machines: Machines) -> Iterator[Admin]:
    with Admin(**machines.client) as one:

        def labelled() -> bool:
            found = Counter(node.machine for node in one.list_nodes() if node.alive)
            return found == dict.fromkeys(machines.by_name, PROCESSES)

        eventually(labelled, "all nodes have told their machine")
        one.create_topic(TOPIC, PARTITIONS, 3)
        yield one


def test_commands_take_a_machine(machines: Machines, admin: Admin) -> None:
    def statuses(name: str) -> list[NodeStatus]:
        return [node for node in admin.list_nodes() if node.machine == name]

    rows = [line.split() for line in machines.done("list").splitlines()[1:]]
    assert [(int(row[0]), row[2]) for row in rows] == [
        (node, name) for name, machine in machines.by_name.items() for node in machine.nodes
    ]
    assert machines.done("drain", "--machine", "m2", "--dry-run").count("would: ") >= 2
    machines.done("drain", "--machine", "m2", "--wait")
    assert [(node.drained, node.leaderships) for node in statuses("m2")] == [(True, 0)] * 2
    assert not any(node.drained for node in [*statuses("m1"), *statuses("m3")])
    machines.done("undrain", "--machine", "m2", "--wait")
    assert not any(node.drained for node in statuses("m2"))
    for words in (["drain"], ["drain", "1", "--machine", "m1"], ["drain", "1", "--rack", "a"]):
        assert "name nodes by their ids, or a machine" in machines.command(*words).output
    assert machines.command("drain", "--machine", "m9").exit_code == 2


def test_each_machine_has_a_vote_on_the_metadata(admin: Admin) -> None:
    """Its other process learns, so the loss of a machine takes one vote of three."""

    def is_spread() -> bool:
        voting = [one.machine for one in admin.list_nodes() if not one.metadata_learner]
        return sorted(voting) == ["m1", "m2", "m3"]

    eventually(is_spread, "one process of each machine votes")


def leaders(admin: Admin) -> dict[int, int]:
    parts = admin.describe_topic(TOPIC).partitions
    return {part.partition: part.leader_id for part in parts}


def test_a_process_dies_and_then_a_machine(machines: Machines, admin: Admin) -> None:
    for part in admin.describe_topic(TOPIC).partitions:
        assert len({node % PROCESS_STEP for node in part.replicas}) == 3, "one on each machine"
    with Load(machines.client) as load:
        eventually(lambda: len(load.acknowledged) >= 5 * PARTITIONS, "records are acknowledged")
        a_process_dies(machines, admin)
        put_on_one_machine(admin)
        a_machine_dies(machines)
        count = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > count + PARTITIONS, "the load goes on")
    with Consumer(TOPIC, **machines.client) as consumer:
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
    other, killed = machine.nodes
    eventually(lambda: {other, killed} <= {*leaders(admin).values()}, "both lead some")
    pids = {node: machine.process.pid_of(node) for node in machine.nodes}
    before = leaders(admin)
    os.kill(pids[killed], signal.SIGKILL)
    assert machine.probe() == (503, f"not ready:\n- node {killed}: it does not run\n")
    assert machine.probe("/livez") == (200, "alive\n")
    lost = [part for part, leader in before.items() if leader == killed]

    def moved() -> bool:
        return all(leaders(admin)[part] not in (0, killed) for part in lost)

    eventually(moved, "others lead its partitions")
    kept = {part for part, leader in before.items() if leader == other}
    assert all(leaders(admin)[part] == other for part in kept)
    eventually(lambda: machine.is_ready, "the process runs again")
    assert machine.process.pid_of(killed) != pids[killed]
    assert machine.process.pid_of(other) == pids[other]
    os.kill(pids[other], 0)


def put_on_one_machine(admin: Admin) -> None:
    """Makes a partition as placement without machines might: a majority of it on one."""
    admin.create_topic(UNSAFE, 1, 3)
    replicas = (2, 2 + PROCESS_STEP, 1)
    admin.reassign_partition(UNSAFE, 0, replicas)

    def is_moved() -> bool:
        (part,) = admin.describe_topic(UNSAFE).partitions
        return (part.replicas, part.target) == (replicas, ())

    eventually(is_moved, "the partition is on one machine")


def a_machine_dies(machines: Machines) -> None:
    """Every partition stays writable: its other replicas are on other machines."""
    machine = machines.by_name["m2"]
    machine.process.kill()
    with Producer(**machines.client, linger_ms=0) as producer:
        sent = [
            producer.send(TOPIC, str(-1 - part).encode(), partition=part)
            for part in range(PARTITIONS)
        ]
        assert all(one.result(TIMEOUT).offset >= 0 for one in sent)
    short: dict[str, Any] = {
        "linger_ms": 0,
        "request_timeout_ms": 2000,
        "delivery_timeout_ms": 3000,
    }
    with Producer(**machines.client, **short) as producer:
        with pytest.raises(DeliveryTimeoutError):
            producer.send(UNSAFE, b"x", partition=0).result()
    machine.process.start()
    eventually(lambda: machine.is_ready, "the machine is back", START_TIMEOUT)


def test_a_machine_goes_back_to_one_process(machines: Machines, admin: Admin) -> None:
    machine = machines.by_name["m1"]
    first, second = machine.nodes
    machines.done("remove", str(second), str(machines.by_name["m3"].nodes[1]), "--wait")
    machine.change(1)
    eventually(lambda: machine.is_ready, "it is ready", START_TIMEOUT)
    assert not machine.is_gone(first) and machine.is_gone(second)
    assert {node.node_id for node in admin.list_nodes()} == {1, 2, 102, 3}


def test_a_removed_node_is_not_started_again(machines: Machines) -> None:
    """The one that the test above removed, while its machine still has two processes."""
    machine = machines.by_name["m3"]
    text = f"process ended node={machine.nodes[1]}: the cluster removed it: not started again"
    eventually(lambda: text in machine.process.log_text(), "it ends", START_TIMEOUT)
    assert machine.is_gone(machine.nodes[1]) and not machine.is_gone(machine.nodes[0])
    assert machine.is_ready


def test_a_stop_ends_all_processes(machines: Machines) -> None:
    machine = machines.by_name["m2"]
    assert not any(map(machine.is_gone, machine.nodes))
    assert machine.process.terminate() == 0
    assert all(map(machine.is_gone, machine.nodes))


def test_processes_end_with_their_supervisor(machines: Machines) -> None:
    machine = machines.by_name["m3"]
    assert not machine.is_gone(machine.nodes[0])
    os.kill(machine.process.pid, signal.SIGKILL)
    machine.process.wait()
    eventually(lambda: all(map(machine.is_gone, machine.nodes)), "all end with their supervisor")
