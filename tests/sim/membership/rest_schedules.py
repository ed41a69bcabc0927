"""Schedules of a run's end: the checks there must see a loss."""

from __future__ import annotations

from typing import Any

from cluster.metadata.tables import METADATA_GROUP
from cluster.services.admin import node_changes
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Entry, Violation
from tests.sim.membership import nodes as random_nodes
from tests.sim.membership.founding_schedules import Wiped
from tests.sim.membership.harm import Harm, Unrest
from tests.sim.membership.node_schedules import Nodes
from tests.sim.membership.operators import Asked
from tests.sim.membership.seeds import check_topics
from tests.sim.schedules import schedule
from tests.sim.stage import GID

PAIR = [1, 2]


@schedule
def equal_replicas_are_not_at_rest_without_a_leader() -> None:
    """Both replicas of a topic restart with equal logs; neither knows the last commits."""
    nodes = Nodes()
    pair = nodes.made("pair", PAIR)
    model = nodes.cluster.checker.models[pair]
    nodes.until(lambda: model.next_offset > 20, "records are stored")
    nodes.clients.close()
    nodes.until(lambda: random_nodes.is_at_rest(nodes.cluster, pair, PAIR), "all is applied")
    for number in PAIR:
        nodes.node(number).crash("killed")
    for number in PAIR:
        nodes.node(number).start()
    for _ in range(40):  # the others elect, the pair does not
        for node in map(nodes.node, PAIR):
            if pair in node.machines:
                nodes.group(node.id, pair).core.election_deadline = node.clock() + 1e6
        nodes.run(0.25)
        if random_nodes.is_done(nodes.cluster):
            check_topics(nodes.cluster)
    assert nodes.cluster.leader(METADATA_GROUP) is not None
    logs = [nodes.group(number, pair) for number in PAIR]
    assert len({(log.applied_index, log.journal.last_index) for log in logs}) == 1
    assert logs[0].applied_index < logs[0].journal.last_index
    for node in map(nodes.node, PAIR):
        nodes.group(node.id, pair).core.election_deadline = node.clock() + node.id
        node.driver.touch(pair)
    nodes.until(lambda: random_nodes.is_done(nodes.cluster), "all is at rest")
    check_topics(nodes.cluster)


class Told(Nodes):
    """Three nodes. The disk of 3, with the only replica of a topic, is given up after a warning."""

    def __init__(self) -> None:
        super().__init__()
        self.single, self.harm = self.made("single", [3]), Harm(self.cluster)
        model = self.cluster.checker.models[self.single]
        self.until(lambda: model.next_offset > 5, "records are stored")
        assert self.harm.of_loss(self.state, 3, ()) == {self.single}
        self.lose_disk(3)
        assert "these partitions end" in self.change(3, mpb.NODE_ACTION_REPLACE)
        context: Any = Asked(self.leader)
        change = mpb.ChangeNode(
            node_id=3, action=mpb.NODE_ACTION_REPLACE, accept_loss=True,
            directory_id=self.state.directory_of(3),
        )  # fmt: skip
        self.harm.told(self.state, node_changes.effects(context, change))
        assert not self.command(mpb.MetadataCommand(change_node=change))
        self.clients.close()
        self.until(lambda: self.harm.is_over(is_mended=True), "the other groups are at rest")
        self.harm.check_end()

    def notices(self, error: str) -> bool:
        """Tells whether the end of the run shows this breach, and nothing forgives it."""
        try:
            self.harm.check_end()
        except Violation as violation:
            if error not in str(violation):
                raise
            return not self.harm.forgives(violation)
        return False


@schedule
def a_told_loss_forgives_its_partition_only() -> None:
    """A record is missing at the end: of the partition that was told as lost, then of another."""
    nodes = Told()
    models = nodes.cluster.checker.models
    models[nodes.single].next_offset += 1
    if nodes.notices("holds"):
        raise Violation("a loss that was told is none")
    models[GID].next_offset += 1
    if not nodes.notices(f"group {GID} holds"):
        raise Violation("a record of a group that was not harmed is missing, and nobody notices")


@schedule
def a_cluster_that_stands_still_has_the_records_of_whole_groups() -> None:
    """The metadata may be lost: nobody serves, and the disks must have all committed entries."""
    nodes = Told()
    nodes.harm.may_stand_still({METADATA_GROUP}, Unrest.LOST)
    nodes.harm.check_end()
    nodes.cluster.checker.logs[nodes.single][1000] = Entry(1, b"never stored")
    if nodes.notices("on no disk"):
        raise Violation("a loss that was told is none")
    nodes.cluster.checker.logs[GID][1000] = Entry(1, b"never stored")
    if not nodes.notices(f"group {GID}: the committed entry 1000 is on no disk"):
        raise Violation("an entry of a group that was not harmed is gone, and nobody notices")


@schedule
def a_run_that_ends_by_another_founding_is_checked() -> None:
    """4 and 5 are away when the first nodes found a cluster anew; they hold no records."""
    nodes = Wiped()
    nodes.add(4, 5)
    nodes.settle()
    for number in (4, 5):
        nodes.node(number).crash("down")
    nodes.wipe(1, 2, 3)
    found = ""
    try:
        with random_nodes.ended_by_another_founding(nodes.cluster, ()):
            for number in (1, 2, 3):
                nodes.node(number).start()
            nodes.run(25.0)
            raise AssertionError("nobody founds")
    except Violation as violation:
        found = str(violation)
    if f"group {GID}: the committed entry" not in found:
        raise Violation(f"all replicas of a partition are gone, and nobody notices: {found}")
    random_nodes.check_disks(nodes.cluster, {GID})
