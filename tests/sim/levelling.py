"""A simulated node's part in a balance: the node's own `Balancing`, over sizes that are asked for.

    Node, now and then --> Levelling.look: sizes, a while later the plan, a while later the moves

Sizes and plans may be out of date when a plan is carried out, as in a node, where nodes are
asked and a thread draws. An answer may be lost: then the balance waits for it a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cluster.consensus.driver import Driver
from cluster.node.replicas.balance import Balancing, Moves
from cluster.node.replicas.replicas import PlacementView
from cluster.node.replicas.sizes import largest

if TYPE_CHECKING:
    from tests.sim.node import Node

ASKING = 1.0  # seconds that all answers take, at most
DRAWING = 2.0  # seconds that a plan takes, at most: there may be very many partitions
ANSWER_TIMEOUT = 5.0
# Runs write some hundred bytes; a balance ignores partitions below 64 MiB.
SCALE = 200_000


class Levelling:
    """Levelling of one process of a node."""

    def __init__(self, node: Node, driver: Driver, metadata: PlacementView) -> None:
        self._node = node
        self._balancing = Balancing(driver, metadata, self._alive, self._propose)
        self._is_busy = False

    def look(self) -> None:
        if self._balancing.is_due and not self._is_busy:
            self._is_busy = True
            self._later(ASKING, self._asked)

    def _asked(self) -> None:
        nodes = [one for one in self._node.cluster.live() if self._alive(one.id)]
        held = [
            {gid: SCALE * part.machine.stored.stored_bytes for gid, part in one.partitions.items()}
            for one in nodes
        ]
        draw = self._balancing.draw(largest(held))
        self._later(DRAWING, lambda: self._drawn(draw()))

    def _drawn(self, moves: Moves) -> None:
        self._is_busy = False
        self._balancing.begin(moves)

    def _later(self, most: float, action: Callable[[], None]) -> None:
        cluster, incarnation = self._node.cluster, self._node.incarnation

        def act() -> None:
            if self._node.incarnation != incarnation:
                return
            if cluster.scheduler.now < self._node.paused_until:
                cluster.scheduler.at(self._node.paused_until, act)
            else:
                action()

        cluster.scheduler.after(most * cluster.rng.random(), act)

    def _alive(self, node: int) -> bool:
        return node == self._node.id or node in self._node.running.linked_since

    def _propose(self, command: Any, done: Callable[[], None]) -> None:
        """Proposes at the metadata's leader; calls `done` on its answer or after a timeout."""
        cluster, answered = self._node.cluster, False

        def answer(_result: bytes = b"") -> None:
            nonlocal answered
            if not answered:
                answered = True
                done()

        cluster.command(command, answer)
        cluster.scheduler.after(ANSWER_TIMEOUT, answer)
