"""Messages to a service manager, over a socket as systemd's."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.machine.supervisor import Supervisor
from cluster.service_manager import ServiceManager

PID = 4711


@pytest.fixture(params=["path", "abstract"])
def heard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Socket of a manager, and its NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = str(tmp_path / "notify") if request.param == "path" else f"@oncelog-{os.getpid()}"
        sock.bind(name.replace("@", "\0", 1) if name[0] == "@" else name)
        sock.settimeout(60)
        yield sock, name


def test_a_process_tells_its_start_its_turns_and_its_stop(heard: tuple[socket.socket, str]) -> None:
    sock, name = heard
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": str(PID), "A": "b"}
    manager = ServiceManager.of(environ, PID)
    assert environ == {"A": "b"}, "not for children"
    assert manager.listens

    async def body() -> None:
        async with manager.serving("node 1"):
            for message in (b"READY=1\nSTATUS=node 1", b"WATCHDOG=1", b"WATCHDOG=1"):
                assert await asyncio.to_thread(sock.recv, 100) == message
            manager.stopping()
            while (message := await asyncio.to_thread(sock.recv, 100)) == b"WATCHDOG=1":
                continue
            assert message == b"STOPPING=1\nSTATUS=stops"

    asyncio.run(asyncio.wait_for(body(), 60))


@pytest.mark.parametrize(
    ("watchdog", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(PID)}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),  # a parent's
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_of_this_process(watchdog: dict[str, str], seconds: float) -> None:
    assert ServiceManager.of({"NOTIFY_SOCKET": "/run/x", **watchdog}, PID).watchdog == seconds


@pytest.mark.parametrize("address", ["", "vsock:2:1", "/does/not/exist", "/" + "x" * 200])
def test_a_manager_that_is_not_there_harms_nothing(address: str) -> None:
    manager = ServiceManager.of({"NOTIFY_SOCKET": address}, PID)
    assert manager.listens == address.startswith("/")

    async def body() -> None:
        async with manager.serving("node 1"):
            manager.stopping()

    asyncio.run(body())


def test_a_machine_tells_it_for_all_its_processes() -> None:
    told: list[bytes] = []
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]

    async def body() -> int:
        started = asyncio.Event()

        def send(message: bytes) -> None:
            told.append(message)
            started.set()

        run = asyncio.create_task(Supervisor(command, [1, 101], manager=ServiceManager(send)).run())
        await started.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        return await run

    assert asyncio.run(asyncio.wait_for(body(), 60)) == 0
    assert told == [b"READY=1\nSTATUS=runs 2 nodes", b"STOPPING=1\nSTATUS=stops"]
