"""Search for hung processes of a machine, by their own answers to /livez.

    supervisor --look, periodically--> GET /livez of each process --hangs for LIMIT--> it is ended

A restart of the machine would end the other processes, too. A process that ended, or is not there
yet, does not hang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from cluster.machine.health import faults_of

LIMIT = 30.0  # seconds that a process hangs before it is ended: then a peer leads its partitions


class Hangs:
    """Processes of a machine that hang. processes: node -> where it answers probes; may change."""

    def __init__(self, processes: Mapping[int, str], clock: Callable[[], float]) -> None:
        self._processes = processes
        self._clock = clock
        self._since: dict[int, float] = {}

    def look(self) -> Collection[int]:
        """Returns the nodes that have not been alive at any look for LIMIT. Takes seconds."""
        told, now = faults_of("/livez", self._processes), self._clock()
        self._since = {node: self._since.get(node, now) for node, faults in told.items() if faults}
        return [node for node, since in self._since.items() if now - since >= LIMIT]

    def forget(self, node: int) -> None:
        """Forgets the hang of a process that was ended."""
        self._since.pop(node, None)
