"""Health of a machine: one answer from the real answers of its processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cluster.machine import health
from cluster.machine.health import pages_of
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
        self.pages: dict[str, Page] = pages_of(self.addresses)
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


def test_a_process_that_hangs_makes_the_machine_dead(machine: Machine) -> None:
    machine.probes[1].turned()
    machine.clock.now += 2 * HANGS
    machine.probes[1].turned()
    assert machine.ask("/livez").status == 503
    assert "- node 101: its event loop has not turned" in machine.ask("/livez").body
    assert "node 1:" not in machine.ask("/livez").body


def test_a_process_that_ended_makes_the_machine_unready_and_not_dead(machine: Machine) -> None:
    machine.close.pop(101)()
    assert machine.ask("/readyz")[:2] == (503, "not ready:\n- node 101: it does not run\n")
    assert machine.ask("/livez").status == 200


def test_a_process_that_is_not_started_again_does_not_count(machine: Machine) -> None:
    machine.close.pop(101)()
    del machine.addresses[101]
    assert machine.ask("/readyz")[:2] == (200, "ready\n")


def test_a_process_that_does_not_answer_makes_the_machine_dead(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        pages = pages_of({**machine.addresses, 201: f"127.0.0.1:{port}"})
        said = pages["/livez"]("")
    assert said[:2] == (503, "not alive:\n- node 201: it has not answered in time\n")
