"""Machine with several nodes: a supervisor, and each of its nodes, as processes of the harness.

    LocalCluster --starts, kills--> MachineProcess: the supervisor, which leads a group of processes
                                       '--log: node, pid--> MachineNode: killed and paused by itself

The supervisor starts a killed node again, so the harness only waits for it.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace

from harness.node_process import (
    EXIT_TIMEOUT,
    HarnessError,
    NodeProcess,
    NodeSpec,
    wait_for_pid,
)
from harness.ports import PROCESS_STEP, beside


class MachineProcess(NodeProcess):
    """Supervisor of `nodes`. spec: of its first node, with the setting `processes`.

    With one process it is that node.
    """

    def __init__(self, spec: NodeSpec) -> None:
        super().__init__(spec, detached=True)
        count = int(spec.settings.get("processes", 1))
        self.nodes = [spec.node_id + PROCESS_STEP * number for number in range(count)]

    def pid_of(self, node: int) -> int:
        """Process that was started last for this node; 0 if there is none. It may have ended."""
        pids = re.findall(rf"process started node={node} pid=(\d+)", self.log_text())
        return int(pids[-1]) if pids else 0

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all processes at once. A supervisor passes SIGTERM on by itself."""
        send = os.kill if number == signal.SIGTERM else os.killpg
        send(self.pid, number)

    def wait(self, timeout: float = EXIT_TIMEOUT) -> int | None:
        """Waits for the end of all processes; returns the supervisor's exit code."""
        group = self._pid
        code = super().wait(timeout)
        for pid in map(self.pid_of, self.nodes):
            if _group_of(pid) == group and not wait_for_pid(pid, timeout):
                raise HarnessError(f"process {pid} outlives its supervisor\n{self.log_tail()}")
        return code

    def of_node(self, node: int) -> MachineNode:
        spec, place = self.spec, node - self.spec.node_id
        if place:
            spec = replace(
                spec,
                node_id=node,
                listen=beside(spec.listen, place),
                advertise=beside(spec.advertise, place),
                data_dir=spec.data_dir / "processes" / str(node),
            )
        return MachineNode(spec, self)


class MachineNode(NodeProcess):
    """Node of a machine. Its pid is that of the supervisor's last start of it."""

    def __init__(self, spec: NodeSpec, machine: MachineProcess) -> None:
        super().__init__(spec)
        self._machine = machine

    @property
    def running(self) -> bool:
        if not super().running:
            self.attach()
        return super().running

    def noted_pid(self) -> int:
        """Process id in the supervisor's log; 0 before the first start."""
        return self._machine.pid_of(self.spec.node_id)

    def start(self) -> None:
        """Starts the machine unless its supervisor runs, which starts this node by itself."""
        if not self._machine.running:
            self._machine.start()

    def check_alive(self) -> None:
        self._machine.check_alive()


def _group_of(pid: int) -> int:
    """Process group; -1 of a process that is gone. One that is ending has it still."""
    try:
        return os.getpgid(pid) if pid else -1
    except ProcessLookupError:
        return -1
