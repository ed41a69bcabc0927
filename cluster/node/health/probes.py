"""Answers to probes: /livez, the event loop turns; /readyz, this node can serve.

    watch_loop --turned--> Probes <--GET-- a thread of the server (health_listen)
    serving, clock, disk, replicas here --faults--'

Both say nothing secret: no topic, no address. A fault counts only if it is this node's own. A
node without a majority, or whose peers are down, is ready: a restart would not help it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

from cluster.metrics.http import Page, PageAnswer

HANGS = 5.0  # seconds without a turn of the loop

Faults = Callable[[], Iterable[str]]


def probe_answer(good: str, faults: Iterable[str]) -> PageAnswer:
    """Return 200 if there are no faults; else 503 with a line for each."""
    told = [f"- {fault}\n" for fault in faults]
    if told:
        return PageAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"not {good}:\n{''.join(told)}")
    return PageAnswer(HTTPStatus.OK, f"{good}\n")


ALIVE = probe_answer("alive", ())
UNWATCHED = probe_answer("alive: it starts or stops", ())  # which may take long


class Probes:
    """State of one node for probes. Any thread may ask.

    faults: why the node cannot serve, in plain words; set when its parts are there.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turned_at: float | None = None
        self._ends = False
        self.faults: Faults = lambda: ("it is starting",)

    @property
    def pages(self) -> dict[str, Page]:
        return {"/livez": self._livez, "/readyz": self._readyz}

    def turned(self) -> None:
        """Note a turn of the event loop, which is watched from the first one on."""
        if not self._ends:
            self._turned_at = self._clock()

    def stop(self) -> None:
        """Watch the loop no more: the node ends, and saves its data."""
        self._ends = True
        self._turned_at = None
        self.faults = lambda: ("it is stopping",)

    def _hangs(self) -> Iterable[str]:
        turned_at = self._turned_at
        silent = 0.0 if turned_at is None else self._clock() - turned_at
        if silent > HANGS:
            yield f"its event loop has not turned for {silent:.0f} seconds (limit {HANGS:.0f})"

    def _livez(self, query: str) -> PageAnswer:
        if self._turned_at is None:
            return UNWATCHED
        return probe_answer("alive", self._hangs())

    def _readyz(self, query: str) -> PageAnswer:
        return probe_answer("ready", [*self._hangs(), *self.faults()])
