"""Node as a process: started, killed, paused and waited for by its pid.

A `NodeSpec` holds everything for a start. `scripts/cluster` and `scripts/chaos` attach to nodes
of an earlier command by pid.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXIT_TIMEOUT = 30.0  # seconds that a process may take to end
LOOK_AGAIN = 0.02  # seconds, where a system has no event for the end of a process


class HarnessError(Exception):
    """Failure of a node; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Start settings of a node. `nodes`: id -> address at which this node reaches it.

    `settings`: further settings by their names in the configuration file.
    `module`: the module to run; durability tests put hooks around the node.
    `within`: command prefix that runs the node in a network namespace.
    `tree`: source tree to run from: another release's, in a test of upgrades.
    """

    node_id: int
    listen: str
    advertise: str
    nodes: Mapping[int, str]
    data_dir: Path
    log_file: Path
    cluster_id: str = "oncelog"
    metrics_listen: str = ""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    module: str = "cluster"
    within: tuple[str, ...] = ()
    tree: Path = ROOT

    def environment(self) -> dict[str, str]:
        """Environment that makes `python -m cluster` this node, without the caller's variables."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("ONCELOG_")}
        given: dict[str, str | int] = {
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "listen": self.listen,
            "advertise": self.advertise,
            "nodes": ",".join(f"{node}={address}" for node, address in self.nodes.items()),
            "data_dir": str(self.data_dir),
            "metrics_listen": self.metrics_listen,
            **self.settings,
        }
        own.update({f"ONCELOG_{name.upper()}": str(value) for name, value in given.items()})
        return own


class NodeProcess:
    """Node of this machine, running or not.

    detached: the node outlives this process and does not get the terminal's Ctrl-C.
    """

    def __init__(self, spec: NodeSpec, *, detached: bool = False) -> None:
        self.spec = spec
        self.exit_code: int | None = None  # of the last run, if this process started it
        self._detached = detached
        self._pid = 0
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid_file(self) -> Path:
        return self.spec.log_file.with_suffix(".pid")

    @property
    def pid(self) -> int:
        """Process id. Raises HarnessError if the node does not run."""
        if not self.running:
            raise HarnessError(f"node {self.spec.node_id} is not running\n{self.log_tail()}")
        return self._pid

    @property
    def running(self) -> bool:
        return self._pid != 0 and not self._gone(0)

    def check_alive(self) -> None:
        """Raises HarnessError if the node does not run."""
        self.pid  # noqa: B018

    def attach(self) -> None:
        """Takes over the noted process, if it is a node."""
        pid = self.noted_pid()
        if pid not in (0, self._pid) and is_node(pid, self.spec.module):
            self._pid = pid
            self._child = None

    def noted_pid(self) -> int:
        """Process id in the pid file; 0 without one."""
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def start(self) -> None:
        """Starts the process without waiting for it; output is appended to its log file."""
        assert not self.running, f"node {self.spec.node_id} runs already"
        self.spec.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.spec.log_file.open("ab") as output:
            self._child = subprocess.Popen(
                [*self.spec.within, sys.executable, "-m", self.spec.module],
                cwd=self.spec.tree,
                env=self.spec.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=self._detached,
            )
        self._pid = self._child.pid
        self.exit_code = None
        self.pid_file.write_text(f"{self._pid}\n")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the running process. Raises HarnessError if it does not run."""
        os.kill(self.pid, number)

    def wait(self, timeout: float = EXIT_TIMEOUT) -> int | None:
        """Waits for the end. Returns our child's exit code, else None. Raises HarnessError."""
        if not self._gone(timeout):
            text = f"node {self.spec.node_id} still runs after {timeout} s\n{self.log_tail()}"
            raise HarnessError(text)
        return self.exit_code

    def kill(self) -> None:
        """Sends SIGKILL and waits for the end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> int | None:
        """Sends SIGTERM and waits for the end; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def log_text(self) -> str:
        try:
            return self.spec.log_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def log_tail(self, lines: int = 40) -> str:
        """End of the log, for the text of an error."""
        tail = "\n".join(self.log_text().splitlines()[-lines:])
        return f"--- node {self.spec.node_id}, end of {self.spec.log_file}\n{tail}"

    def _gone(self, timeout: float) -> bool:
        """Whether the process has ended within `timeout` seconds; reaps it if it is ours."""
        if self._pid == 0:
            return True
        if self._child is not None:
            try:
                self.exit_code = self._child.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
        elif not wait_for_pid(self._pid, timeout):
            return False
        self._clear()
        return True

    def _clear(self) -> None:
        pid, self._pid, self._child = self._pid, 0, None
        try:
            noted = self.pid_file.read_text().strip()
        except FileNotFoundError:
            return
        if noted == str(pid):  # else another process has started the node again
            self.pid_file.unlink()


def command_line() -> list[str]:
    return [sys.executable, "-m", "cluster"]


def is_node(pid: int, module: str) -> bool:
    """Whether the process is a node: a pid file may be older than the machine's last start."""
    return command_words(pid)[1:3] == [b"-m", module.encode()]


def command_words(pid: int) -> list[bytes]:
    """Command line of the process; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        listed = subprocess.run(
            ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, check=False
        )
        return listed.stdout.split()


def wait_for_pid(pid: int, timeout: float) -> bool:
    """Waits for the end of a process that is not our child; returns whether it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):
        return _poll_pid(pid, timeout)
    try:
        return bool(select.select([descriptor], [], [], timeout)[0])
    finally:
        os.close(descriptor)


def _poll_pid(pid: int, timeout: float) -> bool:
    """Does the same on a system without a descriptor for processes."""
    end = time.monotonic() + timeout
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(LOOK_AGAIN)
