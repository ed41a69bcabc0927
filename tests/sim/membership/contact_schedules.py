"""Schedules about nodes that may or may not speak. The metadata group and all Hellos are real."""

from __future__ import annotations

from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.membership.put_back_schedules import PutBack
from tests.sim.membership.repair_schedules import Damaged
from tests.sim.schedules import schedule

TO_4 = ((1, 4), (3, 4))


class Apart(Damaged):
    """Three nodes, which 4 and 5 join."""

    def add(self, *numbers: int) -> None:
        for number in numbers:
            assert not self.change(number, mpb.NODE_ACTION_ADD)
            self.until_voter(number)

    def replace_disk(self, number: int) -> None:
        self.lose_disk(number)
        assert not self.change(number, mpb.NODE_ACTION_REPLACE)
        self.until(lambda: self.node(number).joining.instance > 0, f"{number} joins")
        self.until_voter(number)

    def until_voter(self, number: int) -> None:
        """Waits until the node, with its present disk, is a voter and all present nodes know it."""
        joining = self.node(number).joining

        def knows(other: int) -> bool:
            own = self.node(other).running.state.membership.own
            return own.instance_of(number) == joining.instance > 0 and number in own.replicas

        def is_voter() -> bool:
            members = self.group(self.leader.id).members
            there = [one for one in self.cluster.live() if one.id in members.voters]
            return number in members.voters and all(knows(one.id) for one in there)

        self.until(is_voter, f"{number} is a voter")

    def meets(self, number: int, *others: int) -> None:
        """Waits for links both ways: they come up before a refused node has to end."""

        def linked(one: int, other: int) -> bool:
            node = self.node(one)
            return node.alive and other in node.running.linked_since

        def all_linked() -> bool:
            return all(linked(number, other) and linked(other, number) for other in others)

        end = self.cluster.scheduler.now + 10.0
        while not all_linked():
            self.run(0.25)
            if self.cluster.scheduler.now > end:
                there = {one.id: sorted(one.running.linked_since) for one in self.cluster.live()}
                raise Violation(f"{number} does not meet {others}: {there}")


@schedule
def who_was_away_does_not_judge() -> None:
    """While 2 was away 4 and 5 lost their disks, and 4 leads: 2 hears of it from 4 only."""
    nodes = Apart()
    nodes.add(4, 5)
    nodes.settle()
    nodes.node(2).crash("away")
    for number in (4, 5):
        nodes.replace_disk(number)
    nodes.lead(4, METADATA_GROUP)
    nodes.node(2).start()
    nodes.meets(2, 4, 5)
    nodes.settle()


@schedule
def who_was_away_knows_registrations_of_another_directory() -> None:
    """While 2 was away 4 lost its disk. 2 knows of two starts of 4, the new disk of one."""
    nodes = Apart()
    nodes.add(4, 5)  # most are there without 2 and 4
    nodes.restart(4)
    nodes.node(2).crash("away")
    nodes.replace_disk(4)
    nodes.cluster.network.tap = lambda sender, receiver, message: receiver == 2
    nodes.node(2).start()
    nodes.meets(2, 4)
    nodes.cluster.network.tap = None
    nodes.settle()


@schedule
def who_joins_is_told_of_who_is_away() -> None:
    """2 is away when 4 asks, and then it leads: 4 has the metadata from 2 only."""
    nodes = Apart()
    nodes.node(2).crash("away")
    nodes.cluster.network.tap = lambda sender, receiver, message: receiver == 4
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.until(lambda: nodes.node(4).joining.instance > 0, "4 joins")
    nodes.node(2).start()
    nodes.lead(2, METADATA_GROUP)
    nodes.cluster.network.tap = lambda sender, receiver, message: (sender, receiver) in TO_4
    nodes.meets(4, 2)
    nodes.cluster.network.tap = None
    nodes.until_voter(4)
    nodes.settle()


@schedule
def who_never_said_where_it_is_is_let_in() -> None:
    """2 is away while 4 joins, and 4 starts again when nobody answers: it knows 1 and 3 only."""
    nodes = Apart()
    nodes.node(2).crash("away")
    nodes.add(4)
    for number in (1, 3, 4):
        nodes.node(number).crash("power cut")
    nodes.node(4).start()
    nodes.node(2).start()
    nodes.run(1.0)
    for number in (1, 3):
        nodes.node(number).start()
    nodes.meets(4, 1, 2, 3)
    nodes.settle()


@schedule
def who_joined_and_starts_alone_is_found() -> None:
    """4 knows nobody: it died before it had the metadata, and nobody answers when it starts."""
    nodes = Apart()
    nodes.cluster.network.tap = lambda sender, receiver, message: receiver == 4
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.until(lambda: nodes.node(4).joining.instance > 0, "4 joins")
    nodes.run(2.0)
    for node in nodes.cluster.live():
        node.crash("power cut")
    nodes.cluster.network.tap = None
    nodes.node(4).start()
    for number in (1, 2, 3):
        nodes.node(number).start()
    nodes.meets(4, 1, 2, 3)
    nodes.until_voter(4)
    nodes.settle()


@schedule
def who_joined_through_a_node_that_is_gone_finds_the_others() -> None:
    """4's setting names 1 only, which was removed. 4 knows 2 and 3 by its own copy of the metadata
    before anybody answers it.
    """
    nodes = Apart()
    joining = nodes.node(4).joining
    nodes.add(4)
    joining.name([1])
    nodes.settle()
    assert not nodes.change(1, mpb.NODE_ACTION_REMOVE)
    nodes.until(lambda: 1 not in nodes.state.nodes, "1 is forgotten")
    nodes.settle()
    nodes.group(4).checkpoint_early()  # its copy after the power cut is as old as its checkpoint
    nodes.run(1.0)
    for node in nodes.cluster.live():
        node.crash("power cut")
    nodes.node(4).start()
    found = sorted(nodes.node(4).running.peers.links)
    if joining.said or found != [2, 3]:
        raise Violation(f"4 was told {joining.said}, and goes by the addresses of {found}")
    for number in (2, 3):
        nodes.node(number).start()
    nodes.meets(4, 2, 3)
    nodes.settle()


@schedule
def a_node_that_was_removed_while_away_ends() -> None:
    """4 hears nothing of its removal before it is forgotten: the others tell it."""
    nodes = Apart()
    nodes.add(4)
    nodes.settle()
    nodes.cut(4, blocked=True)
    assert not nodes.change(4, mpb.NODE_ACTION_REMOVE)
    nodes.until(lambda: 4 not in nodes.state.nodes, "node 4 is forgotten")
    nodes.cut(4, blocked=False)
    nodes.run(25.0)
    if nodes.node(4).alive:
        raise Violation("4 goes on with what it knows")
    nodes.settle()


@schedule
def a_directory_that_was_put_back_does_not_elect_the_metadata() -> None:
    """1 and 3 take a command that 2 does not hear of. 1 dies, 3 starts from an older copy."""
    nodes = PutBack()
    taken = nodes.node(3).registering.copied()
    nodes.restart(3)
    nodes.lead(1, METADATA_GROUP)
    nodes.cut(2, blocked=True)
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.node(1).crash("dies")
    nodes.node(3).crash("stopped")
    nodes.node(3).registering.put_back(taken)
    nodes.cut(2, blocked=False)
    nodes.node(3).start()
    nodes.run(25.0)
    if nodes.cluster.leader(METADATA_GROUP) is not None:
        raise Violation("2 and 3 elect, and 3 has forgotten what it acknowledged")
    if nodes.node(3).alive:
        raise Violation("3 goes on with an older copy")
    nodes.node(1).restart()
    nodes.lose_disk(3)  # the remedy: the restored directory is given up
    assert not nodes.change(3, mpb.NODE_ACTION_REPLACE)
    nodes.settle()


@schedule
def a_grown_cluster_moves_at_once() -> None:
    """Each node has a new address, 2 and 3 ask only the first one, and too early."""
    nodes = Apart(smallest_majority=1, founding=1)
    nodes.add(2, 3)
    nodes.cluster.checker.majorities[METADATA_GROUP] = 1
    before = nodes.cluster.checker.acknowledged
    nodes.until(lambda: nodes.cluster.checker.acknowledged > before, "clients go on")
    for number in (1, 2, 3):
        nodes.node(number).crash("moves")
        nodes.node(number).joining.move()
    for number in (2, 3):
        nodes.node(number).joining.name([1])
        nodes.node(number).start()
    nodes.node(1).joining.name([2, 3])
    nodes.run(2.0)
    nodes.node(1).start()
    nodes.until(lambda: nodes.cluster.leader(METADATA_GROUP) is not None, "somebody leads")
    nodes.meets(2, 1, 3)
    before = nodes.cluster.checker.acknowledged
    nodes.until(lambda: nodes.cluster.checker.acknowledged > before, "clients go on")
