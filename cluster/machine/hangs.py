"""Search for hung processes of a machine, by their own answers to /livez.

    supervisor --look, periodically--> GET /livez of each process --hangs for LIMIT--> it is ended

A restart of the machine would end the other processes, too. A process hangs if it was alive, and
for LIMIT each look found its event loop still, or got no answer. It does not count that

- a process starts or stops: it opens or saves its data, with a loop that is not watched
- it could not be asked: the supervisor has no descriptor left, or nothing listens there
- the supervisor itself did not run: the whole machine stood still, and its processes with it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus

from cluster.machine.health import Answer, ask_all
from cluster.metrics.http import PageAnswer
from cluster.node.health.probes import ALIVE

UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
LIMIT = 30.0  # seconds that a process hangs before it is ended: then a peer leads its partitions
TIMEOUT = 10.0  # seconds for an answer: on a loaded machine one is late, and its process is well
LATE = 15.0  # seconds between two looks; after more the supervisor stood still itself

Process = tuple[int, int]  # node, pid


class Hangs:
    """Processes of a machine that hang. processes: node -> where it answers probes; may change."""

    def __init__(
        self,
        processes: Mapping[int, str],
        clock: Callable[[], float],
        limit: float = LIMIT,
        timeout: float = TIMEOUT,
        late: float = LATE,
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._limit = limit
        self._timeout = timeout
        self._late = late
        self._looked_at = clock()
        self._since: dict[Process, float] = {}  # when it was last seen alive, or could not be seen

    def look(self, running: Mapping[int, int]) -> Collection[Process]:
        """Returns the processes that hang. running: node -> pid. Takes up to TIMEOUT."""
        processes = dict(self._processes)  # the loop's thread may change it meanwhile
        asked = {node: at for node, at in processes.items() if node in running}
        answers, now = ask_all("/livez", asked, self._timeout), self._clock()
        stood_still = now - self._looked_at > self._late
        self._looked_at = now
        before, self._since = self._since, {}
        for node, answer in answers.items():
            process = node, running[node]
            if _is_told(answer, HTTPStatus.OK):
                if answer == ALIVE:
                    self._since[process] = now
            elif process in before:
                is_hung = isinstance(answer, TimeoutError) or _is_told(answer, UNAVAILABLE)
                counts = is_hung and not stood_still
                self._since[process] = before[process] if counts else now
        return [process for process, at in self._since.items() if now - at >= self._limit]


def _is_told(answer: Answer, status: HTTPStatus) -> bool:
    return isinstance(answer, PageAnswer) and answer.status == status
