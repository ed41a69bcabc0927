"""A cleaner's worker in the simulation: it takes a while, and dies now and then.

Cleaner --ask--> SimulatedWorker --later--> CleaningWorker.answer --> done
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.cleaning.messages import CleaningWorker

if TYPE_CHECKING:
    from tests.sim.node import Node

WORK = 0.05  # seconds of a request, at most


class SimulatedWorker:
    """The worker of a node's process, `incarnation`."""

    def __init__(self, node: Node, dies: float) -> None:
        """dies: chance of an end, with each request."""
        self._node, self._dies = node, dies
        self._incarnation = node.incarnation
        self._dice = random.Random(node.id * 1000 + node.incarnation)
        self._worker: CleaningWorker | None = None
        self.requests = self.deaths = 0
        self.asked = -1  # the kind of the request that is being answered; -1: none is

    def ask(self, request: bytes, done: Callable[[bytes | None], None]) -> None:
        if self._worker is None:
            self._worker = CleaningWorker()
        self.asked = request[0]
        delay = WORK * self._dice.random()
        self._node.cluster.scheduler.after(delay, self._answer, self._worker, request, done)

    def _answer(
        self, worker: CleaningWorker, request: bytes, done: Callable[[bytes | None], None]
    ) -> None:
        node = self._node
        if node.incarnation != self._incarnation or not node.alive:
            return
        if node.cluster.scheduler.now < node.paused_until:
            again = (self._answer, worker, request, done)
            node.cluster.scheduler.at(node.paused_until, *again)
            return
        self.requests += 1
        self.asked = -1
        if worker is not self._worker or self._dice.random() < self._dies:
            self._worker = None
            self.deaths += 1
            done(None)
        else:
            done(worker.answer(request))

    def close(self) -> None:
        self._worker = None
