"""Schedules of two releases: nodes tell of leaders and compare clocks while they are replaced.

The older release has no learners of the metadata that stay (`tests/sim/news.py`).
"""

from __future__ import annotations

from typing import Any

from cluster.consensus.message import Append
from cluster.features import THIS_RELEASE
from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.membership.voter_schedules import BEFORE, Voting
from tests.sim.releases import replace_program
from tests.sim.schedules import schedule
from tests.sim.stage import GID

DAY_MS = 24 * 3600 * 1000


class Mixed(Voting):
    """Nodes 1 to 4, of which 2 and 4 run the older release. All vote, until the upgrade."""

    def __init__(self) -> None:
        super().__init__(joining=(4,), release=BEFORE, older=(2, 4))
        self.settle_votes(4)

    def settle_votes(self, number: int) -> None:
        self.until(lambda: len(self.votes) == number, f"{number} vote: {self.votes}")
        self.all_know()

    def all_know(self) -> None:
        nodes, groups = self.view.own.replicas, (METADATA_GROUP, GID)
        self.until(
            lambda: self.cluster.know_all_leaders(nodes, groups), "each node knows each leader"
        )

    def lead(self, number: int, gid: int = GID) -> None:
        super().lead(number, gid)
        self.all_know()

    def replace(self, number: int) -> None:
        """Gives the node this release."""
        node = self.node(number)
        replace_program(node, node.incarnation, THIS_RELEASE)
        self.until(lambda: node.alive, f"{number} starts again")
        self.until(lambda: self.cluster.leader(GID) is not None, "the partition is led")


@schedule
def two_releases_know_each_leader() -> None:
    """A node learns for a while, nodes are replaced one by one, and then learners may stay."""
    mixed = Mixed()
    for number in (1, 2, 3):
        mixed.lead(number)
    mixed.cluster.network.tap = _to_learner
    assert not mixed.change(5, mpb.NODE_ACTION_ADD)
    mixed.until(lambda: 5 in mixed.view.own.replicas, "5 is a learner")
    mixed.run(3.0)
    for number in (1, 2, 3):
        mixed.lead(number)
    mixed.cluster.network.tap = None
    mixed.settle_votes(5)
    for number in (2, 4):
        mixed.replace(number)
        mixed.lead(1)
        mixed.lead(2)
    mixed.upgrade()
    mixed.settle_votes(3)
    for number in (1, 2, 3):
        mixed.lead(number)
    mixed.settle()


@schedule
def two_releases_find_a_wrong_clock() -> None:
    """Of a node of each release: it leads nothing while it is wrong, and is trusted again after."""
    mixed = Mixed()
    for number in (1, 2):
        mixed.lead(number)
        mixed.node(number).wall_skew_ms = DAY_MS
        others = [node.running.clocks for node in mixed.cluster.live() if node.id != number]
        mixed.until(lambda: all(one.wrong == {number} for one in others), "all know it")  # noqa: B023
        mixed.until(lambda: mixed.cluster.leader(GID) is not mixed.node(number), "it leads not")  # noqa: B023
        mixed.node(number).wall_skew_ms = 0
        mixed.until(lambda: not any(one.wrong for one in others), "it is right again")  # noqa: B023
        mixed.all_know()


def _to_learner(sender: int, receiver: int, message: Any) -> bool:
    """Tells whether it would fill node 5, so that 5 stays a learner."""
    return isinstance(message, Append) and receiver == 5 and message.group == METADATA_GROUP
