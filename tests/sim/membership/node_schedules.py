"""Schedules in which nodes come, go and lose their disks. The metadata group is real.

Elections happen by themselves and clients write all the time; only the nodes' fates are scripted.
`weak.py` names the weakness that each of them catches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

from cluster.consensus.group import Group
from cluster.features import REPLICA_CHANGES, THIS_RELEASE, Release
from cluster.metadata.nodes import NodesView
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.cluster import Cluster, create_topic, register_node
from tests.sim.membership.nodes import Whole, is_whole
from tests.sim.membership.seeds import Moves
from tests.sim.node import Node, Settings
from tests.sim.schedules import schedule
from tests.sim.stage import GID

FOUNDING = 3


class Nodes:
    """A cluster of three nodes, all with its partition; two more may join."""

    def __init__(
        self,
        smallest_majority: int = 2,
        founding: int = FOUNDING,
        racks: str = "",
        voters: int = 9,
        release: Release = THIS_RELEASE,
        older: Collection[int] = (),
    ) -> None:
        """racks: the racks of the five nodes, one letter each. voters: of the metadata, at most.

        release: which the upgrade is finalized for. older: nodes that run it; others run this one.
        """
        settings = Settings(
            nodes=5, founding=founding, metadata=True, smallest_majority=smallest_majority,
            groups=1, repair_after=1.0, registers=True, voters=voters, news=True,
        )  # fmt: skip
        cluster = self.cluster = Cluster(settings, 1)
        cluster.racks = dict(zip(cluster.node_ids, racks, strict=False))
        cluster.checker.majorities[METADATA_GROUP] = min(2, founding)
        self._held: list[tuple[Any, Any]] = []
        clients = self.clients = Whole(cluster)
        clients.bootstrap = [
            *(register_node(node) for node in cluster.founding),
            create_topic(f"t{GID}", [cluster.founding], settings),
        ]
        for node in cluster.nodes.values():
            node.release = release if node.id in older else THIS_RELEASE
            cluster.upgraded.add(node.id)
        cluster.start()
        clients.start()
        self._moves = Moves(cluster, clients, random.Random(1))
        self.until(lambda: self.state.partition(GID) is not None, "the topic is there")
        self.finalize(release)
        self.until(lambda: self.state.features.is_on(REPLICA_CHANGES), "changes are on")
        clients.closed = True  # no more commands
        if founding == FOUNDING:
            self.until(lambda: is_whole(cluster, self.state), "all replicas are there")

    def finalize(self, release: Release) -> None:
        """Finalizes the upgrade to this release."""
        self._moves.finalize(self.leader, self.state, release)

    @property
    def leader(self) -> Node:
        """Leader of the metadata group."""
        self.until(lambda: self.cluster.leader(METADATA_GROUP) is not None, "somebody leads")
        found = self.cluster.leader(METADATA_GROUP)
        assert found is not None
        return found

    @property
    def state(self) -> MetadataState:
        return self.leader.running.state

    @property
    def view(self) -> NodesView:
        return self.state.membership

    def node(self, number: int) -> Node:
        return self.cluster.nodes[number]

    def group(self, number: int, gid: int = METADATA_GROUP) -> Group:
        found = self.node(number).machines[gid].group
        assert found is not None
        return found

    def run(self, seconds: float) -> None:
        self.cluster.scheduler.run_until(self.cluster.scheduler.now + seconds)

    def lead(self, number: int, gid: int = GID) -> None:
        """Makes the node lead the partition, or another group."""
        self.until(lambda: self.cluster.hand_over(gid, number), f"{number} leads group {gid}")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = self.cluster.scheduler.now + 60.0
        while not holds():
            if self.cluster.scheduler.now >= end:
                raise Violation(f"it never comes to this: {what}")
            self.run(0.25)

    def change(self, number: int, action: Any) -> str:
        """Changes a node; returns why it was rejected; empty: it was not."""
        directory = self.state.directory_of(number) if action == mpb.NODE_ACTION_REPLACE else 0
        change = mpb.ChangeNode(node_id=number, action=action, directory_id=directory)
        return self.command(mpb.MetadataCommand(change_node=change))

    def command(self, command: mpb.MetadataCommand) -> str:
        """Runs a command; returns why it was rejected; empty: it was not."""
        results: list[bytes] = []
        self.leader  # noqa: B018  # waits for one
        self.cluster.command(command, results.append)
        self.until(lambda: bool(results), "the command is answered")
        return mpb.MetadataResult.FromString(results[0]).message

    def lose_disk(self, number: int) -> None:
        """Loses a disk. Nobody reacts yet; with the empty one the node asks for its identity."""
        self.node(number).joining.wipe()
        self.node(number).start()

    def made(self, name: str, replicas: list[int]) -> int:
        """Makes a topic of one partition with these replicas, and a producer; returns its group."""
        topic = create_topic(name, [replicas], self.cluster.settings)
        assert not self.command(topic)
        self.clients._follow_topics()
        return self.clients.newest_group

    def hold_changes(self, gid: int) -> None:
        """Holds back the changes of this group's leader."""
        for node in self.cluster.live():
            changes = node.running.changes
            look = changes._look
            self._held.append((changes, look))

            def held(at: int, *rest: Any, look: Any = look) -> None:
                if at != gid:
                    look(at, *rest)

            changes._look = held  # type: ignore[assignment, method-assign]

    def let_changes(self) -> None:
        for changes, look in self._held:
            changes._look = look

    def settle(self) -> None:
        """Waits until all targets are reached, and the cluster bears the loss of a disk again."""
        self.until(lambda: is_whole(self.cluster, self.state), f"all is whole: {self.view.own}")
        known = {*self.state.nodes}
        if known != {*self.view.own.replicas}:
            raise Violation(f"the nodes are {known}, the metadata's {self.view.own.replicas}")
        before = self.group(self.leader.id, METADATA_GROUP).applied_index
        self.until(
            lambda: all(
                self.group(number).applied_index >= before for number in self.view.own.replicas
            ),
            "all nodes have the metadata",
        )


@schedule
def a_lost_disk_is_replaced() -> None:
    """Each of the three in turn, the metadata's leader among them."""
    nodes = Nodes()
    for number in (3, 1, 2):
        nodes.lose_disk(number)
        nodes.run(2.0)
        if nodes.node(number).alive:
            raise Violation(f"node {number} takes part with an empty disk")
        assert not nodes.change(number, mpb.NODE_ACTION_REPLACE)
        nodes.settle()
        assert nodes.node(number).joining.instance > 0
    assert nodes.cluster.checker.acknowledged > 0


@schedule
def an_empty_disk_holds_nothing_that_the_lost_one_held() -> None:
    """The partition still counts the lost replica when the node is back, and reads the old log."""
    nodes = Nodes()
    nodes.hold_changes(GID)
    nodes.lose_disk(3)
    assert not nodes.change(3, mpb.NODE_ACTION_REPLACE)
    nodes.until(lambda: nodes.node(3).alive, "node 3 has joined")
    nodes.until(lambda: 3 in nodes.view.own.replicas, "and has the metadata")
    nodes.run(3.0)
    if GID in nodes.node(3).partitions:
        raise Violation("an empty disk holds the replica that had acknowledged and voted")
    nodes.let_changes()
    nodes.settle()


@schedule
def a_new_directory_waits_until_the_old_replica_is_removed() -> None:
    nodes = Nodes()
    nodes.hold_changes(METADATA_GROUP)
    nodes.lose_disk(3)
    assert not nodes.change(3, mpb.NODE_ACTION_REPLACE)
    nodes.run(5.0)
    if 3 in nodes.view.joining or 3 not in nodes.view.expected:
        raise Violation("3 is taken in while its old replica may still count")
    nodes.let_changes()
    nodes.settle()


@schedule
def a_node_that_left_is_forgotten_when_all_know() -> None:
    """2 hears nothing of the removal: 4, which knows, must stay where it can be asked."""
    nodes = Nodes()
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.until(lambda: len(nodes.view.own.replicas) == 4, "node 4 is in")
    nodes.until(lambda: is_whole(nodes.cluster, nodes.state), "as a voter")
    slow = next(node for node in (1, 2, 3) if node != nodes.leader.id)
    nodes.node(slow).crash("away")
    assert not nodes.change(4, mpb.NODE_ACTION_REMOVE)
    nodes.until(lambda: 4 not in nodes.view.own.replicas, "node 4 is removed")
    nodes.run(5.0)
    if 4 not in nodes.state.nodes:
        raise Violation(f"4 is forgotten, and {slow} may need its word")
    nodes.node(slow).restart()
    nodes.until(lambda: 4 not in nodes.state.nodes, "node 4 is forgotten")
    nodes.settle()


@schedule
def a_removal_is_taken_back_too_late() -> None:
    """The node's replica of the metadata has gone, and nobody has reported that yet."""
    nodes = Nodes()
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.until(lambda: len(nodes.view.own.replicas) == 4, "node 4 is in")
    nodes.until(lambda: is_whole(nodes.cluster, nodes.state), "as a voter")
    nodes.until(
        lambda: nodes.view.own.version == nodes.group(nodes.leader.id).members.version, "reported"
    )
    for node in nodes.cluster.live():
        node.running.changes._report = lambda gid, group: None  # type: ignore[method-assign]
    assert not nodes.change(4, mpb.NODE_ACTION_REMOVE)
    nodes.until(
        lambda: nodes.group(nodes.leader.id).members.configuration.member(4) is None,
        "node 4 is removed",
    )
    assert not nodes.change(4, mpb.NODE_ACTION_KEEP)
    for node in nodes.cluster.live():
        del node.running.changes._report
    nodes.until(lambda: 4 not in nodes.state.nodes, "node 4 is forgotten")
    nodes.settle()


@schedule
def a_node_that_is_being_removed_gets_no_new_directory() -> None:
    """A disk is lost before or during a removal, which goes on; then the node is added anew.

    Taken in, the new directory would be removed with the node that was told to start with it.
    """
    nodes = Nodes()
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.until(lambda: 4 in nodes.view.own.replicas, "node 4 is in")
    nodes.settle()
    orders = ((3, mpb.NODE_ACTION_REMOVE, mpb.NODE_ACTION_REPLACE),
              (2, mpb.NODE_ACTION_REPLACE, mpb.NODE_ACTION_REMOVE))  # fmt: skip
    for number, *actions in orders:
        nodes.hold_changes(GID)  # the removal waits for the partition's replica
        nodes.node(number).joining.wipe()
        for action in actions:
            assert not nodes.change(number, action)
        nodes.node(number).start()
        nodes.until(lambda number=number: number not in nodes.view.own.replicas, "it has left")  # type: ignore[misc]
        nodes.run(5.0)
        if nodes.node(number).alive or number not in nodes.view.expected:
            raise Violation(f"node {number} joins while it is being removed")
        assert "is being removed" in nodes.change(number, mpb.NODE_ACTION_ADD)
        nodes.let_changes()
        nodes.until(lambda number=number: number not in nodes.state.nodes, "it is forgotten")  # type: ignore[misc]
        assert not nodes.change(number, mpb.NODE_ACTION_ADD)
        nodes.until(lambda number=number: number in nodes.view.own.replicas, "it is back")  # type: ignore[misc]
        nodes.settle()


@schedule
def a_directory_that_was_given_up_does_not_join_again() -> None:
    """4 joined later, is given up while it is down, and starts with the directory it had.

    It asks the others for their addresses, as each directory that joined.
    """
    nodes = Nodes()
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.until(lambda: 4 in nodes.view.own.replicas, "node 4 is in")
    nodes.settle()
    nodes.node(4).crash("stopped")
    assert not nodes.change(4, mpb.NODE_ACTION_REPLACE)
    nodes.until(lambda: 4 not in nodes.view.own.replicas, "node 4 is removed")
    nodes.node(4).restart()
    nodes.run(5.0)
    if 4 not in nodes.view.expected:
        raise Violation("the directory that was given up is taken for the new one")
    nodes.lose_disk(4)
    nodes.settle()


@schedule
def a_leaving_nodes_replica_stays_in_its_rack() -> None:
    """4 shares the rack of 2, and holds as little as 5, which shares the rack of 3."""
    nodes = Nodes(racks="abcbc")
    for number in (4, 5):
        assert not nodes.change(number, mpb.NODE_ACTION_ADD)
        nodes.until(lambda number=number: number in nodes.view.places, "it is in")  # type: ignore[misc]
    nodes.settle()
    assert not nodes.change(3, mpb.NODE_ACTION_REMOVE)
    nodes.until(lambda: 3 not in nodes.state.nodes, "node 3 is forgotten")
    nodes.settle()
    found = nodes.state.partition(GID)
    assert found is not None
    if {*found[2].replicas} != {1, 2, 5}:
        raise Violation(f"the replica of rack c went elsewhere: {found[2]}")


@schedule
def nodes_come_and_go() -> None:
    """Three become five, and the first two leave, one of them while it leads the metadata."""
    nodes = Nodes()
    for number in (4, 5):
        assert not nodes.change(number, mpb.NODE_ACTION_ADD)
        nodes.until(lambda number=number: number in nodes.view.own.replicas, "it is in")  # type: ignore[misc]
    nodes.settle()
    for number in (1, 2):
        assert not nodes.change(number, mpb.NODE_ACTION_REMOVE)
        nodes.until(lambda number=number: number not in nodes.state.nodes, "it is forgotten")  # type: ignore[misc]
    nodes.settle()
    if {*nodes.view.own.replicas} != {3, 4, 5}:
        raise Violation(f"the metadata is at {nodes.view.own.replicas}")
