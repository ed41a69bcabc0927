"""Balancing by the metadata's leader: begins moves, and ends the balance.

    ChangeBalance --> metadata --> Balancing --SetReplicas--> ReplicaChanges of the leaders
                          '--------ChangeBalance--> when nothing moves and nothing is to move

Each plan is new, as in `node_changes`, so the next leader continues. A plan without moves ends
the balance, unless the layout has changed since. Nodes that do not answer neither receive nor
lose replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from cluster.consensus.driver import Driver
from cluster.metadata.balance import plan
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState
from cluster.node.replicas.changes import Propose
from cluster.node.replicas.node_changes import MAX_MOVES
from cluster.node.replicas.replicas import PlacementView
from cluster.v1 import metadata_pb2 as mpb

log = logging.getLogger(__name__)

Moves = list[tuple[PartitionState, list[int]]]


class Balancing:
    """Balancer of one node; acts only while the node leads the metadata.

    alive: whether a node answers. propose(command, done): as of `NodeChanges`.
    """

    def __init__(
        self,
        driver: Driver,
        metadata: PlacementView,
        alive: Callable[[int], bool],
        propose: Propose,
    ) -> None:
        self._driver = driver
        self._metadata = metadata
        self._alive = alive
        self._propose = propose
        self._layout = 0  # of the last plan
        self._under_way = 0  # commands without an answer: no plan is drawn before they have it

    @property
    def is_due(self) -> bool:
        """Return whether to plan; planning needs the sizes."""
        group = self._driver.groups.get(METADATA_GROUP)
        leads = group is not None and group.is_ready
        return leads and self._metadata.membership.balancing and not self._under_way

    def draw(self, sizes: Mapping[int, int]) -> Callable[[], Moves]:
        """Return a function that plans the next moves in any thread: many partitions take a while.

        sizes: bytes by group. No move is next while as many move as may.
        """
        view = self._metadata.membership
        records, self._layout = self._records(), view.layout_version
        moving = sum(bool(record.target) for record in records)
        nodes = [node for node in view.holders() if self._alive(node)]
        if moving >= MAX_MOVES:
            return list
        left = MAX_MOVES - moving
        return partial(plan, records, nodes, sizes, left, view.spread, view.loads)

    def begin(self, moves: Moves) -> None:
        """Propose the moves, between rounds of the driver; outdated ones are refused."""
        if not self.is_due:
            return
        for record, target in moves:
            move = mpb.SetReplicas(
                group_id=record.group_id,
                replicas=target,
                expected_version=record.version,
                for_balance=True,
            )
            self._ask(mpb.MetadataCommand(set_replicas=move))
        # A move by hand counts, too: its replicas may have to be spread once they are there.
        if not moves and not any(record.target for record in self._records()):
            log.info("nothing is to move: the balance ends")
            end = mpb.ChangeBalance(balancing=False, expected_layout=self._layout)
            self._ask(mpb.MetadataCommand(change_balance=end))

    def _records(self) -> list[PartitionState]:
        return [record for topic in self._metadata.topics() for record in topic.partitions]

    def _ask(self, command: mpb.MetadataCommand) -> None:
        self._under_way += 1
        self._propose(command, self._answered)

    def _answered(self) -> None:
        self._under_way -= 1
