"""Health of a machine: one answer from the real answers of its processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cluster.machine import health
from cluster.machine.hangs import LIMIT, Hangs
from cluster.machine.health import faults_of, pages_of
from cluster.metrics.http import Page, PageAnswer, serve_pages
from cluster.node.health.probes import HANGS, Probes
from harness.ports import free_ports


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Machine:
    """Two processes' probes at their ports, nodes 1 and 101."""

    def __init__(self, stack: ExitStack) -> None:
        self.clock = Clock()
        self.probes = {1: Probes(self.clock), 101: Probes(self.clock)}
        ports = dict(zip(self.probes, free_ports(2), strict=True))
        self.addresses = {node: f"127.0.0.1:{port}" for node, port in ports.items()}
        self.close = {
            node: serve_pages("health_listen", self.addresses[node], probes.pages)
            for node, probes in self.probes.items()
        }
        for close in self.close.values():
            stack.callback(close)
        self.own = Probes(self.clock)
        self.pages: dict[str, Page] = pages_of(self.addresses, self.own)
        self.hangs = Hangs(self.addresses, self.clock)
        for probes in self.probes.values():
            probes.turned()
            probes.faults = tuple

    def ask(self, path: str) -> PageAnswer:
        return self.pages[path]("")


@pytest.fixture
def machine() -> Iterator[Machine]:
    with ExitStack() as stack:
        yield Machine(stack)


def test_a_machine_is_ready_when_all_its_processes_are(machine: Machine) -> None:
    assert machine.ask("/livez")[:2] == (200, "alive\n")
    assert machine.ask("/readyz")[:2] == (200, "ready\n")
    machine.probes[101].faults = lambda: ("its disk is full: make space", "it is starting")
    assert machine.ask("/readyz")[:2] == (
        503,
        "not ready:\n- node 101: its disk is full: make space\n- node 101: it is starting\n",
    )
    assert machine.ask("/livez").status == 200


def pass_by(machine: Machine, seconds: float, *turning: int) -> None:
    """Lets time pass, in which the loops of these nodes turn."""
    machine.clock.now += seconds
    for node in turning:
        machine.probes[node].turned()


def test_a_process_that_hangs_makes_the_machine_unready_and_not_dead(machine: Machine) -> None:
    pass_by(machine, 2 * HANGS, 1)
    assert machine.ask("/livez")[:2] == (200, "alive\n")
    said = machine.ask("/readyz")
    assert said.status == 503 and "- node 101: its event loop has not turned" in said.body
    assert "node 1:" not in said.body


def test_a_machine_is_dead_when_its_supervisor_hangs(machine: Machine) -> None:
    machine.own.turned()
    pass_by(machine, 2 * HANGS, 1, 101)
    assert machine.ask("/livez").status == 503
    assert machine.ask("/readyz").status == 200


def test_a_process_hangs_once_it_was_not_alive_for_long(machine: Machine) -> None:
    pass_by(machine, 2 * HANGS, 1)
    assert machine.hangs.look() == []
    pass_by(machine, LIMIT - 1, 1)
    assert machine.hangs.look() == []
    pass_by(machine, 1, 1)
    assert machine.hangs.look() == [101]
    machine.hangs.forget(101)
    assert machine.hangs.look() == [], "its successor has its own time"


def test_a_process_that_turns_again_or_ended_does_not_hang(machine: Machine) -> None:
    for ends in (False, True):
        pass_by(machine, 2 * HANGS, 1)
        assert machine.hangs.look() == []
        if ends:
            machine.close.pop(101)()
        else:
            machine.probes[101].turned()
        assert machine.hangs.look() == []
        pass_by(machine, LIMIT, 1)
        assert machine.hangs.look() == []


def test_a_process_that_ended_makes_the_machine_unready_and_not_dead(machine: Machine) -> None:
    machine.close.pop(101)()
    assert machine.ask("/readyz")[:2] == (503, "not ready:\n- node 101: it does not run\n")
    assert machine.ask("/livez").status == 200


def test_a_process_that_is_not_started_again_does_not_count(machine: Machine) -> None:
    machine.close.pop(101)()
    del machine.addresses[101]
    assert machine.ask("/readyz")[:2] == (200, "ready\n")


def test_a_process_that_does_not_answer_is_not_alive(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        told = faults_of("/livez", {**machine.addresses, 201: f"127.0.0.1:{port}"})
    assert told == {1: [], 101: [], 201: ["it has not answered in time"]}
