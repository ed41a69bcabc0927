"""Health of a machine: one answer from the real answers of its processes."""

from __future__ import annotations

import errno
import http.client
import math
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cluster.machine import health
from cluster.machine.hangs import LATE, LIMIT, Hangs
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
    machine.own.turned()
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
    machine.own.turned()
    assert machine.ask("/livez")[:2] == (200, "alive\n")
    said = machine.ask("/readyz")
    assert said.status == 503 and "- node 101: its event loop has not turned" in said.body
    assert "node 1:" not in said.body


def test_a_machine_is_dead_when_its_supervisor_hangs(machine: Machine) -> None:
    machine.own.turned()
    pass_by(machine, 2 * HANGS, 1, 101)
    assert machine.ask("/livez").status == 503
    assert machine.ask("/readyz").status == 200


RUNNING = {1: 11, 101: 12}  # node -> pid


def looks(machine: Machine, seconds: float, *turning: int) -> list[int]:
    """Lets time pass with a look each second; returns the pids that hang then."""
    hung: list[int] = []
    for _ in range(int(seconds)):
        assert not hung
        pass_by(machine, 1, *turning)
        hung = [pid for _, pid in machine.hangs.look(RUNNING)]
    return hung


def test_a_process_hangs_once_it_was_not_alive_for_long(machine: Machine) -> None:
    assert looks(machine, 1, 1, 101) == []
    assert looks(machine, HANGS + LIMIT - 1, 1) == []
    assert looks(machine, 1, 1) == [12]
    assert machine.hangs.look({1: 11, 101: 13}) == [], "its successor has its own time"


def test_a_process_that_turns_again_does_not_hang(machine: Machine) -> None:
    for _ in range(3):
        assert looks(machine, 1, 1, 101) == []
        assert looks(machine, LIMIT, 1) == []


def test_a_process_that_starts_or_stops_does_not_hang(machine: Machine) -> None:
    """The store's opening holds the interpreter lock: the process answers nothing meanwhile."""
    starting = machine.probes[101] = Probes(machine.clock)
    machine.close.pop(101)()
    machine.close[101] = serve_pages("health_listen", machine.addresses[101], starting.pages)
    assert looks(machine, 2 * LIMIT, 1) == []
    starting.turned()
    assert looks(machine, LIMIT, 1) == []
    starting.stop()
    assert looks(machine, 2 * LIMIT, 1) == []
    machine.close.pop(101)()
    assert looks(machine, 2 * LIMIT, 1) == [], "nothing listens there"


@pytest.mark.parametrize("late", [LATE, math.inf])
def test_nothing_hangs_because_the_whole_machine_stood_still(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    """Without the limit of a look's delay a well process would be ended: it could not turn."""
    monkeypatch.setattr(machine, "hangs", Hangs(machine.addresses, machine.clock, late=late))
    assert looks(machine, HANGS, 1, 101) == []
    pass_by(machine, LIMIT)
    hung = list(machine.hangs.look(RUNNING))
    assert hung == ([] if late == LATE else [(1, 11), (101, 12)])
    if not hung:
        assert looks(machine, LIMIT - 1, 1) == []
        assert looks(machine, 1, 1) == [12], "this one did hang"


def test_a_process_may_be_removed_during_a_look(machine: Machine) -> None:
    """A thread looks, and the loop forgets a process that the cluster removed."""

    class Running(dict[int, int]):
        def __contains__(self, node: object) -> bool:
            machine.addresses.pop(101, None)
            return super().__contains__(node)

    assert machine.hangs.look(Running(RUNNING)) == []
    assert 101 not in machine.addresses


@pytest.mark.parametrize("number", [errno.EMFILE, None])
def test_nothing_hangs_because_the_supervisor_cannot_ask(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    """Without a descriptor it learns nothing; without an answer it learns of the hang."""
    assert looks(machine, 1, 1, 101) == []

    def fails(*args: object) -> None:
        raise TimeoutError if number is None else OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(http.client.HTTPConnection, "connect", fails)
        assert looks(machine, LIMIT, 1) == ([] if number else [11, 12])
        assert looks(machine, 1, 1) == ([] if number else [11, 12])
        told = "it could not be asked: [Errno 24] Too many open files"
        assert (f"- node 1: {told}" in machine.ask("/readyz").body) == bool(number)
    assert looks(machine, 1, 1, 101) == []


def test_a_process_that_ended_makes_the_machine_unready_and_not_dead(machine: Machine) -> None:
    machine.close.pop(101)()
    assert machine.ask("/readyz")[:2] == (503, "not ready:\n- node 101: it does not run\n")
    assert machine.ask("/livez").status == 200


def test_a_process_that_is_not_started_again_does_not_count(machine: Machine) -> None:
    machine.close.pop(101)()
    del machine.addresses[101]
    assert machine.ask("/readyz")[:2] == (200, "ready\n")


def test_a_process_that_does_not_answer_is_not_ready(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health.ask_all, "__defaults__", (0.1,))
    machine.addresses.clear()  # the answers of the others may take longer
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        machine.addresses[201] = f"127.0.0.1:{port}"
        told = machine.ask("/readyz").body
    assert told == "not ready:\n- node 201: it has not answered in time\n"
