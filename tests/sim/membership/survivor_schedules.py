"""Schedules in which one of two voters is gone for good, and the other one goes on (ADR 84)."""

from __future__ import annotations

from collections.abc import Collection

from cluster.consensus.configuration import ChangeStep
from cluster.consensus.message import Append, AppendReply
from cluster.consensus.survivor import who_else_decides
from cluster.dedup.verdict import Kind
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import PartitionState
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.membership.repair_schedules import Damaged
from tests.sim.membership.stage import Changing
from tests.sim.schedules import schedule
from tests.sim.stage import GID

# -- with the real metadata -----------------------------------------------------------------------


class Two(Damaged):
    """Three nodes; 1 and 2 hold a partition."""

    def __init__(self) -> None:
        super().__init__(smallest_majority=1)
        self.move(1, 2)
        self.until(self._is_confirmed, "the two know that they are the ones")

    def _is_confirmed(self) -> bool:
        groups = [self.group(number, GID) for number in (1, 2)]
        return not any(who_else_decides(one.members, one.journal.configurations) for one in groups)

    def is_back(self, record: PartitionState, number: int) -> None:
        """Waits until the node holds the partition as another instance than in `record`."""
        self.until(
            lambda: self._is_voter(number) and self.instance(number) > record.instance_of(number),
            f"{number} is a voter again: {self.record}",
        )
        self.goes_on("clients go on with both")

    def _is_voter(self, number: int) -> bool:
        leader = self.cluster.leader(GID)
        if leader is None or self.record.target:
            return False
        return number in {
            one.node for one in self.group(leader.id, GID).members.configuration.voters
        }


@schedule
def of_two_one_disk_is_lost() -> None:
    """A follower's, then a leader's: the other one has all, goes on, and fills the new one."""
    for leads in (1, 2):
        nodes = Two()
        nodes.lead(leads)
        before = nodes.record
        nodes.node(2).joining.wipe()
        nodes.run(3.0)
        assert not nodes.change(2, mpb.NODE_ACTION_REPLACE)
        nodes.goes_on("1 goes on alone")
        nodes.node(1).crash("restarts")
        nodes.node(1).restart()
        nodes.goes_on("1 goes on alone after a restart")
        nodes.node(2).start()
        nodes.is_back(before, 2)


@schedule
def of_two_one_is_damaged() -> None:
    """The leader's: nobody has to do anything."""
    nodes = Two()
    nodes.lead(1)
    before = nodes.record
    nodes.damage(1)
    nodes.goes_on("2 goes on alone")
    nodes.is_back(before, 1)


@schedule
def of_two_nodes_one_disk_is_lost() -> None:
    """The other node is told, as nobody else can, and dies before the first is removed."""
    nodes = Two()
    assert not nodes.change(3, mpb.NODE_ACTION_REMOVE)
    nodes.until(lambda: 3 not in nodes.state.nodes, "3 is forgotten")
    nodes.cluster.checker.majorities[METADATA_GROUP] = 1
    before = nodes.record
    nodes.node(2).joining.wipe()
    nodes.run(3.0)
    nodes.until(lambda: nodes.cluster.leader(METADATA_GROUP) is None, "1 decides nothing")
    group = nodes.group(1)
    lost = group.members.configuration.member(2)
    assert lost is not None and not group.exclude_lost({(2, lost.instance)})
    nodes.node(1).driver.touch(METADATA_GROUP)
    nodes.hold_changes(METADATA_GROUP)
    assert not nodes.change(2, mpb.NODE_ACTION_REPLACE)
    nodes.run(1.0)
    nodes.node(1).crash("before 2 is removed")
    nodes.node(1).restart()
    nodes.goes_on("1 goes on alone after a restart")
    nodes.node(2).start()
    nodes.is_back(before, 2)
    nodes.until(lambda: {*nodes.view.own.replicas} == {1, 2}, "both hold the metadata")


# -- forbidden steps ------------------------------------------------------------------------------


def told(stage: Changing, node: int, gone: Collection[tuple[int, int]]) -> None:
    """Tells the node, as the metadata would, the replicas that are gone."""
    stage.node(node).driver.touch(GID)
    stage.run(0.1)
    if not stage.group(node).is_stopped:
        stage.group(node).exclude_lost(gone)
        stage.stands(node)
    stage.run(1.0)


@schedule
def of_two_that_are_gone_neither_goes_on_alone() -> None:
    """Both are named as gone and run, cut off from each other: each would decide alone."""
    stage = Changing(founding=2, smallest_majority=1)
    stage.elect(1)
    stage.produce(1, 3)
    stage.isolate(1)
    stage.run(3.0)
    for node in (1, 2):
        told(stage, node, {(1, 0), (2, 0)})
    if stage.leaders():
        raise Violation(f"{stage.leaders()} lead, each alone")
    stage.settle()


@schedule
def who_may_be_outvoted_does_not_go_on_alone() -> None:
    """{1,2} and 3 becomes a voter; 2 has that in its log and does not know that it is in force."""
    stage = Changing(founding=2, smallest_majority=1)
    stage.elect(1)
    stage.produce(1, 2)
    stage.learn(1, 3)
    stage.hold(
        lambda sender, receiver, message: (
            receiver == 2
            and isinstance(message, Append)
            and not (message.data and stage.group(1).members.version == 1)
        )
    )
    stage.change(1, ChangeStep.PROMOTE, 3)
    stage.drop()
    stage.isolate(2)
    stage.produce(1, 3)
    assert stage.group(2).members.version == 1
    assert stage.group(2).journal.configurations[-1].configuration.version == 2
    stage.crash(1)
    told(stage, 2, {(1, 0)})
    if 2 in stage.leaders():
        raise Violation("2 goes on without what 1 and 3 have acknowledged")
    stage.settle()


@schedule
def those_of_before_do_not_decide_beside_one_alone() -> None:
    """1 of {1,2,3} goes; 1 and 2 have not heard that it is in force, and 2 has elected 1."""
    stage = Changing()
    stage.elect(3)
    stage.produce(3, 2)
    stage.run(1.0)
    stage.hold(
        lambda sender, receiver, message: (
            sender == 3 and isinstance(message, Append) and not message.data
        )
    )
    stage.change(3, ChangeStep.REMOVE, 1)
    assert stage.group(1).members.version == stage.group(2).members.version == 0
    stage.drop()
    stage.isolate(3)
    stage.run(3.0)
    stage.stands(1)
    assert stage.leaders() == [1], "by the vote of 2"
    stage.crash(2)
    told(stage, 3, {(2, 0)})
    if 3 in stage.leaders():
        raise Violation("3 decides alone, and 1 leads")
    stage.settle()


@schedule
def a_late_answer_of_who_is_excluded_counts_nothing() -> None:
    """1 leads on alone; acknowledgements of 2 from before its disk was lost arrive afterwards."""
    stage = Changing(founding=2, smallest_majority=1)
    stage.elect(1)
    stage.produce(1, 2)
    stage.hold(lambda sender, receiver, message: isinstance(message, AppendReply))
    sent = stage.send(1, stage.batch())
    stage.run(0.1)
    told(stage, 1, {(2, 0)})
    stage.release()
    stage.run(1.0)
    if stage.group(1).failed is not None or sent.kind is not Kind.APPENDED:
        raise Violation(f"1 has stopped: {stage.group(1).failed}; {sent.kind}")
    stage.produce(1)
