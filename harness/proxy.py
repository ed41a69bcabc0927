"""TCP proxy with connections to cut, refuse and freeze, as a process of its own.

    python -m harness.proxy CONTROL_PORT ROUTE=HERE:PORT=HOST:PORT ...

Each route has a name, such as `client-2` or `1-3`, and an address of ours, HERE, at which
it listens and from which it connects; two routes may share a name. A line of JSON to the control
port, {"op": ..., "route": ...}, is answered by a line of JSON. The operations:

    reset   connections are reset now; new ones are let through
    cut     connections are reset now; new ones are reset as well, until heal
    limit   a connection is reset once "bytes" went up through it, until heal
    freeze  nothing is passed on any more ("direction": "up" to the node, "down" from it,
            "both"); connections stay open and data in flight waits for heal
    heal    everything is as at the start
    status  counts connections
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.node_process import ROOT, HarnessError, command_words
from harness.ports import LOOPBACK

CHUNK = 256 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends a reset
CONTROL_TIMEOUT = 10.0
PROGRAM = "harness.proxy"
DIRECTIONS = {"up": ("up",), "down": ("down",), "both": ("up", "down")}


# -- the proxy's process --------------------------------------------------------------------


class Route:
    """Connections through the listening ports of one name."""

    def __init__(self) -> None:
        self._open: set[asyncio.StreamWriter] = set()
        self._refusing = False
        self._flowing = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._most: int | None = None
        self.accepted = 0
        self.heal()

    def heal(self) -> None:
        self._refusing = False
        self._most = None
        for event in self._flowing.values():
            event.set()

    def freeze(self, direction: str) -> None:
        for way in DIRECTIONS[direction]:
            self._flowing[way].clear()

    def limit(self, most: int) -> None:
        self._most = most

    def reset(self) -> None:
        for writer in list(self._open):
            _reset(writer)

    def cut(self) -> None:
        self._refusing = True
        self.reset()

    def status(self) -> dict[str, Any]:
        return {"accepted": self.accepted, "open": len(self._open) // 2}

    async def listen(self, here: str, port: int, target: tuple[str, int]) -> asyncio.Server:
        """Accepts connections at here:port and forwards them to the target."""
        return await asyncio.start_server(partial(self._serve, here, target), here, port)

    async def _serve(
        self,
        here: str,
        target: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Passes bytes on in both directions until one side ends."""
        self.accepted += 1
        if self._refusing:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*target, local_addr=(here, 0))
        except OSError:
            _reset(writer)
            return
        ends = {writer, far_writer}
        self._open |= ends
        try:
            pumps = [
                asyncio.create_task(self._pump(reader, far_writer, "up")),
                asyncio.create_task(self._pump(far_reader, writer, "down")),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._open -= ends
            for end in ends:
                _reset(end)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        flowing = self._flowing[way]
        passed = 0
        with contextlib.suppress(OSError):
            while True:
                await flowing.wait()
                data = await reader.read(CHUNK)
                if not data:
                    return
                await flowing.wait()
                passed += len(data)
                if way == "up" and self._most is not None and passed > self._most:
                    return
                writer.write(data)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def _answer(routes: Mapping[str, Route], request: Mapping[str, Any]) -> dict[str, Any]:
    route = routes[request["route"]]
    match request["op"]:
        case "reset":
            route.reset()
        case "cut":
            route.cut()
        case "limit":
            route.limit(int(request["bytes"]))
        case "freeze":
            route.freeze(request.get("direction", "both"))
        case "heal":
            route.heal()
        case "status":
            pass
        case unknown:
            raise KeyError(unknown)
    return route.status()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def _run(control_port: int, wanted: list[str]) -> None:
    routes: dict[str, Route] = {}
    for text in wanted:
        name, *addresses = text.split("=")
        (here, port), target = (_host_and_port(address) for address in addresses)
        await routes.setdefault(name, Route()).listen(here, port, target)

    async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                answer = _answer(routes, json.loads(line))
            except (KeyError, ValueError) as error:
                answer = {"error": repr(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(control, LOOPBACK, control_port)
    print("ready", flush=True)
    await server.serve_forever()


# -- the user's side ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """Route of the proxy: `listen` forwards to `target`, both "host:port". Names may repeat."""

    name: str
    listen: str
    target: str


class Proxy:
    """User's side of the control port: the proxy's process and its orders.

    detached: the proxy outlives this process. Its pid is kept beside its log.
    """

    def __init__(
        self,
        control_port: int,
        routes: Sequence[RouteSpec],
        log_file: Path,
        *,
        detached: bool = False,
    ) -> None:
        self._control_port = control_port
        self._routes = routes
        self._log_file = log_file
        self._detached = detached
        self._pid = 0
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._pid != 0 and PROGRAM.encode() in command_words(self._pid)

    def attach(self) -> None:
        """Takes over the process in the pid file."""
        try:
            self._pid = int(self._pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return

    def start(self) -> None:
        """Starts the process and waits until it listens. Raises HarnessError."""
        words = [f"{route.name}={route.listen}={route.target}" for route in self._routes]
        # Not our own stderr: a caller waiting for its end would wait for the proxy's, too.
        with self._log_file.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, str(self._control_port), *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=self._detached,
            )
        assert self._child.stdout is not None
        if self._child.stdout.readline() != b"ready\n":
            raise HarnessError("the proxy did not start")
        self._pid = self._child.pid
        self._pid_file.write_text(f"{self._pid}\n")

    @property
    def _pid_file(self) -> Path:
        return self._log_file.with_suffix(".pid")

    def ask(self, op: str, route: str, **more: str | int) -> dict[str, Any]:
        """Sends one request. Raises HarnessError if the proxy refuses or is gone."""
        request = json.dumps({"op": op, "route": route, **more}).encode() + b"\n"
        try:
            with socket.create_connection((LOOPBACK, self._control_port), CONTROL_TIMEOUT) as sock:
                sock.sendall(request)
                line = sock.makefile("rb").readline()
        except OSError as error:
            raise HarnessError(f"the proxy cannot be reached: {error}") from error
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise HarnessError(f"the proxy refused {op} {route}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Ends the process, even if another command started it."""
        if self.running:
            os.kill(self._pid, signal.SIGKILL)
        self._pid = 0
        self._pid_file.unlink(missing_ok=True)
        if self._child is not None:
            self._child.wait()
            assert self._child.stdout is not None
            self._child.stdout.close()
            self._child = None


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), sys.argv[2:]))
