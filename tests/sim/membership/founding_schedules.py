"""Schedules of nodes without data: they must found no second history. All Hellos are real."""

from __future__ import annotations

from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.membership.contact_schedules import Apart
from tests.sim.membership.nodes import is_whole
from tests.sim.schedules import schedule
from tests.sim.stage import GID


class Wiped(Apart):
    """Nodes that lost their disks and start with their old settings."""

    def wipe(self, *numbers: int) -> None:
        for number in numbers:
            self.node(number).joining.wipe()
            self.node(number).joining.name_first()

    def nothing_begins(self) -> None:
        """Checks that nobody decides anything without the nodes that are down."""
        self.run(25.0)
        for gid in (METADATA_GROUP, GID):
            if self.cluster.leader(gid) is not None:
                raise Violation(f"group {gid} has a leader, and its majority is lost")


@schedule
def two_wiped_nodes_do_not_found_again_while_the_third_is_down() -> None:
    """1 and 2 ask each other; 3 has the last copy, and comes back."""
    nodes = Wiped()
    nodes.settle()
    for number in (1, 2, 3):
        nodes.node(number).crash("power cut")
    nodes.wipe(1, 2)
    for number in (1, 2):
        nodes.node(number).start()
    nodes.run(25.0)
    nodes.node(3).start()
    nodes.nothing_begins()
    if not nodes.node(3).alive:
        raise Violation("the node with the last copy ends")


@schedule
def who_hears_of_a_cluster_is_none_of_its_voters() -> None:
    """2 and 3 are wiped; 1 is down when they start, and then tells them the cluster's id."""
    nodes = Wiped()
    nodes.settle()
    for number in (1, 2, 3):
        nodes.node(number).crash("power cut")
    nodes.wipe(2, 3)
    for number in (2, 3):
        nodes.node(number).start()
    nodes.run(25.0)
    nodes.node(1).start()
    nodes.nothing_begins()


@schedule
def a_wiped_node_that_was_started_too_early_is_replaced() -> None:
    """The others are cut off when it starts, then they speak to it: it writes nothing of that."""
    nodes = Wiped()
    nodes.settle()
    nodes.cut(3, blocked=True)
    nodes.wipe(3)
    nodes.node(3).start()
    nodes.run(5.0)
    nodes.cut(3, blocked=False)
    nodes.run(5.0)
    assert not nodes.change(3, mpb.NODE_ACTION_REPLACE)
    if not nodes.node(3).joining.is_asking:
        nodes.node(3).start()  # it was refused for too long
    nodes.until_voter(3)
    nodes.settle()


@schedule
def the_first_node_of_a_grown_cluster_does_not_found_again() -> None:
    """The node began alone, and its settings name nobody: the others look for it."""
    nodes = Wiped(smallest_majority=1, founding=1)
    nodes.add(2, 3)
    nodes.until(lambda: len(nodes.view.own.replicas) == 3, "the others are there")
    nodes.wipe(1)
    nodes.node(1).start()
    nodes.run(10.0)
    if nodes.node(1).alive:
        raise Violation("1 takes part without its disk")
    joining = nodes.node(1).joining
    joining.name([2, 3])
    assert "these partitions end" in nodes.change(1, mpb.NODE_ACTION_REPLACE), "its only replica"


@schedule
def nodes_that_are_wiped_one_by_one_come_back() -> None:
    """The node that founded the cluster, too: each is replaced, with its first settings."""
    nodes = Wiped()
    for number in (1, 3, 2):
        nodes.settle()
        nodes.wipe(number)
        nodes.node(number).start()
        nodes.run(2.0)
        if nodes.node(number).alive:
            raise Violation(f"{number} takes part with an empty disk")
        assert not nodes.change(number, mpb.NODE_ACTION_REPLACE)
        nodes.until_voter(number)
    nodes.until(lambda: is_whole(nodes.cluster, nodes.state), "all is whole")


@schedule
def first_nodes_that_are_all_wiped_hear_those_that_came_later() -> None:
    """1, 2 and 3 name each other only; 4 and 5 look for them (found by a random run)."""
    nodes = Wiped()
    nodes.add(4, 5)
    nodes.settle()
    nodes.wipe(1, 2, 3)
    for number in (1, 2, 3):
        nodes.node(number).start()
    nodes.nothing_begins()
