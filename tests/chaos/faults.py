"""Faults for a local cluster. Each is injected, lasts a while, and is healed.

Every fault leaves the cluster as it found it: all nodes running, all connections open.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable

from tests.harness.local_cluster import LocalCluster

Wait = Callable[[float], None]


class Fault(ABC):
    """One kind of fault, ready to be injected again and again.

    topic, partitions: where leaders are looked for. `wait` passes the time, in seconds.
    """

    name = ""
    needs_proxy = False
    longest = 3.0  # seconds that it lasts at most

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int) -> None:
        self.cluster, self.topic, self.partitions = cluster, topic, partitions

    @abstractmethod
    def inject(self, rng: random.Random, wait: Wait) -> str:
        """Injects it, waits, heals; what was done, in a few words."""

    def _pause(self, rng: random.Random, wait: Wait) -> float:
        seconds = round(rng.uniform(0.3, self.longest), 1)
        wait(seconds)
        return seconds

    def _leader(self, rng: random.Random) -> tuple[int, int]:
        partition = rng.randrange(self.partitions)
        return self.cluster.leader(self.topic, partition), partition


class KillLeader(Fault):
    name = "kill-leader"

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        self.cluster.kill([node])
        seconds = self._pause(rng, wait)
        self.cluster.start_nodes([node])
        return f"killed node {node}, leader of {self.topic}-{partition}, for {seconds} s"


class KillAll(Fault):
    name = "kill-all"
    longest = 1.0

    def inject(self, rng: random.Random, wait: Wait) -> str:
        self.cluster.kill(self.cluster.nodes)
        seconds = self._pause(rng, wait)
        self.cluster.start_nodes(self.cluster.nodes)
        return f"killed all nodes at once, for {seconds} s"


class Pause(Fault):
    name = "pause"

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        self.cluster.pause(node)
        try:
            seconds = self._pause(rng, wait)
        finally:
            self.cluster.resume(node)
        return f"paused node {node}, leader of {self.topic}-{partition}, for {seconds} s"


class Cut(Fault):
    """A node is cut off from its peers; clients still reach it."""

    name = "cut"
    needs_proxy = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        node, partition = self._leader(rng)
        self.cluster.isolate(node)
        try:
            seconds = self._pause(rng, wait)
        finally:
            self.cluster.isolate(node, "heal")
        return f"cut node {node}, leader of {self.topic}-{partition}, from its peers, {seconds} s"


class Reset(Fault):
    """All TCP connections of clients are reset, several times."""

    name = "reset"
    needs_proxy = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        assert self.cluster.proxy is not None
        times = rng.randint(1, 5)
        for _ in range(times):
            for node in self.cluster.nodes:
                self.cluster.proxy.ask("reset", f"client-{node}")
            wait(rng.uniform(0.05, 0.5))
        return f"reset all connections of clients {times} times"


class Freeze(Fault):
    """A leader's answers to its clients hang; then the connection breaks."""

    name = "freeze"
    needs_proxy = True

    def inject(self, rng: random.Random, wait: Wait) -> str:
        assert self.cluster.proxy is not None
        node, partition = self._leader(rng)
        route = f"client-{node}"
        self.cluster.proxy.ask("freeze", route, direction="down")
        try:
            seconds = self._pause(rng, wait)
        finally:
            self.cluster.proxy.ask("reset", route)
            self.cluster.proxy.ask("heal", route)
        return f"froze the answers of node {node}, leader of {self.topic}-{partition}, {seconds} s"


class RollingRestart(Fault):
    name = "rolling-restart"

    def inject(self, rng: random.Random, wait: Wait) -> str:
        codes = roll(self.cluster)
        return f"restarted all nodes with SIGTERM, exit codes {codes}"


def roll(cluster: LocalCluster) -> list[int | None]:
    """SIGTERM and start, one node after the other; their exit codes."""
    codes = []
    for node in cluster.nodes:
        codes.append(cluster.nodes[node].terminate())
        cluster.start_nodes([node])
    return codes


FAULTS: dict[str, type[Fault]] = {
    fault.name: fault for fault in (KillLeader, KillAll, Pause, Cut, Reset, Freeze, RollingRestart)
}
