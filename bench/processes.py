"""Processes of a measurement: servers that are ended by pid, clients with a time limit.

Also their figures in /proc: processor time, memory, bytes written to disk.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Seconds that a killed process may take to be gone.
_END_TIMEOUT = 5.0
_LOOK_AGAIN = 0.05
_TAIL_CHARS = 2000


class BenchError(Exception):
    """A measurement failed; the table shows the text."""


class Server:
    """Server process in a session of its own, with its output in a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, **(env or {})},
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> list[int]:
        """This process and its children in its session."""
        return session(self.pid)

    def check(self) -> None:
        """Checks the server. Raises BenchError if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise BenchError(f"{self.name} ended with code {code}: {self.tail()}")

    def tail(self) -> str:
        try:
            return self.log.read_text(errors="replace")[-_TAIL_CHARS:].strip()
        except OSError:
            return ""

    def stop(self) -> None:
        """Kills the server and its children by SIGKILL: their data are thrown away."""
        members = self.pids()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pid in members:
            if pid != self.pid and _session_of(pid) == self.pid:
                _kill(pid)
        end = time.monotonic() + _END_TIMEOUT
        while len(self.pids()) > 1 and time.monotonic() < end:
            time.sleep(_LOOK_AGAIN)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def session(leader: int) -> list[int]:
    """Processes of a session, its leader first."""
    others = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _session_of(int(entry.name)) == leader
    ]
    return [leader, *(pid for pid in others if pid != leader)]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return -1


def wait_until(
    what: str, ready: Callable[[], bool], timeout: float, servers: Iterable[Server] = ()
) -> None:
    """Polls a condition. Raises BenchError after `timeout` s, or if a server has ended."""
    watched = list(servers)
    end = time.monotonic() + timeout
    while not ready():
        for server in watched:
            server.check()
        if time.monotonic() > end:
            tails = "".join(f"; {server.name}: {server.tail()[-300:]}" for server in watched)
            raise BenchError(f"no {what} after {timeout:g} s{tails}")
        time.sleep(_LOOK_AGAIN)


# -- use of resources --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of some processes since they started."""

    cpu_s: float
    written_bytes: int

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.cpu_s - other.cpu_s, self.written_bytes - other.written_bytes)


def usage(pids: Iterable[int]) -> Usage:
    """Adds up the processes; an ended process counts nothing."""
    cpu, written = 0.0, 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu += (int(fields[11]) + int(fields[12])) / _TICKS
            written += _io(pid, "write_bytes")
        except OSError:
            continue
    return Usage(cpu, written)


def _io(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


# -- clients ------------------------------------------------------------------------------


def run_text(
    command: Sequence[str | Path],
    timeout: float,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> str:
    """Runs a program to its end; returns its standard output. Raises BenchError."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{_short(words)} was not done after {timeout:g} s") from None
    except OSError as error:
        raise BenchError(f"{_short(words)}: {error}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-_TAIL_CHARS:]
        raise BenchError(f"{_short(words)} ended with code {done.returncode}: {said}")
    return done.stdout


def run_json(command: Sequence[str | Path], timeout: float) -> dict[str, Any]:
    """Runs a program with a JSON object as its last line of output. Raises BenchError."""
    text = run_text(command, timeout)
    try:
        found = json.loads(text.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise BenchError(f"{_short(command)} printed no JSON: {text[-200:]!r}") from None
    assert isinstance(found, dict)
    return found


def _short(command: Sequence[str | Path]) -> str:
    words = [str(word) for word in command]
    return " ".join([Path(words[0]).name, *words[1:4]])


class Stack:
    """Servers, stopped in the reverse order of their start."""

    def __init__(self) -> None:
        self.servers: list[Server] = []

    def add(self, server: Server) -> Server:
        self.servers.append(server)
        return server

    def pids(self) -> list[int]:
        return [pid for server in self.servers for pid in server.pids()]

    def stop(self) -> None:
        while self.servers:
            self.servers.pop().stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
