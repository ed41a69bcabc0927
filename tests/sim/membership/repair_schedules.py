"""Schedules in which replicas are damaged, and rebuilt. The metadata group is real."""

from __future__ import annotations

from cluster.consensus.journal import Journal
from cluster.metadata.repairs import MAX_REPAIRS
from cluster.metadata.topics import PartitionState
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.disk import PlantedDamage
from tests.sim.membership.node_schedules import Nodes
from tests.sim.membership.nodes import is_whole
from tests.sim.schedules import limited, schedule
from tests.sim.stage import GID


class Damaged(Nodes):
    """Three nodes that hold one partition."""

    @property
    def record(self) -> PartitionState:
        found = self.state.partition(GID)
        assert found is not None
        return found[2]

    def instance(self, number: int) -> int:
        return self.record.instance_of(number)

    def retarget(self, *target: int) -> None:
        move = mpb.SetReplicas(group_id=GID, replicas=target, expected_version=self.record.version)
        assert not self.command(mpb.MetadataCommand(set_replicas=move))

    def move(self, *target: int) -> None:
        self.retarget(*target)
        self.until(lambda: {*self.record.replicas} == {*target} and not self.record.target, "moved")

    def goes_on(self, what: str) -> None:
        before = self.cluster.checker.acknowledged
        self.until(lambda: self.cluster.checker.acknowledged > before + 5, what)

    def settle(self) -> None:
        """Waits until the partition has all its replicas, and clients go on."""
        self.until(lambda: is_whole(self.cluster, self.state), f"all is whole: {self.record}")
        before = self.cluster.checker.acknowledged
        self.until(lambda: self.cluster.checker.acknowledged > before, "clients go on")

    def restart(self, number: int, *, settled: bool = True) -> None:
        if self.node(number).alive:
            self.node(number).crash("stopped")
        self.node(number).start()
        self.until(lambda: self.node(number).registering.takes_part, f"{number} is registered")
        if settled:
            self.settle()

    def damage(self, number: int) -> None:
        self.node(number).partitions[GID].unreadable(PlantedDamage("a damaged entry"))

    def cut(self, number: int, *, blocked: bool) -> None:
        """Cuts the node off: it hears nobody, and nobody hears it."""
        for link in self.cluster.network.links:
            if number in link:
                self.cluster.network.links[link].blocked = blocked


@schedule
def a_damaged_replica_is_made_anew() -> None:
    """Each in turn, the leader among them; as another instance, without a person."""
    nodes = Damaged()
    for turn, number in enumerate((3, 1, 2)):
        nodes.lead(1 if turn != 2 else 2)
        before = nodes.instance(number)
        nodes.damage(number)
        nodes.until(lambda number=number: bool(nodes.record.target), "it is known")  # type: ignore[misc]
        nodes.settle()
        if nodes.instance(number) <= before:
            raise Violation(f"{number} holds the instance that was damaged, {before}")
    assert nodes.cluster.checker.acknowledged > 0


@schedule
def a_damaged_replica_is_never_the_voter_that_it_was() -> None:
    """1 and 3 acknowledge, 2 hears nothing, 3 is damaged, 1 dies: 2 and 3 must not elect."""
    nodes = Damaged()
    nodes.lead(1)
    nodes.cut(2, blocked=True)
    before = nodes.cluster.checker.acknowledged
    nodes.until(lambda: nodes.cluster.checker.acknowledged > before + 20, "1 and 3 acknowledge")
    nodes.damage(3)
    nodes.run(3.0)
    nodes.node(1).crash("dies")
    nodes.cut(2, blocked=False)
    nodes.run(15.0)
    nodes.node(1).restart()
    nodes.settle()
    if not nodes.instance(3):
        raise Violation("3 is what it was")


@schedule
def a_replica_that_is_damaged_again_and_again_stays_where_it_is() -> None:
    """After MAX_REPAIRS it is named, until a restart finds it sound."""
    nodes = Damaged()
    for _ in range(MAX_REPAIRS):
        before = nodes.record.version
        nodes.damage(3)
        nodes.until(lambda before=before: nodes.record.version > before, "it is removed")  # type: ignore[misc]
        nodes.settle()
    nodes.damage(3)
    held = nodes.instance(3)
    nodes.until(lambda: bool(nodes.record.damaged), "it is named")
    nodes.run(5.0)
    if nodes.record.target or nodes.instance(3) != held or nodes.record.damaged[0].rebuild:
        raise Violation(f"it is made anew once more: {nodes.record}")
    nodes.node(3).crash("an operator looks at it")
    nodes.node(3).restart()
    nodes.until(lambda: not nodes.record.damaged, "it is sound")
    nodes.settle()
    if nodes.instance(3) != held:
        raise Violation("it was made anew")


@schedule
def two_of_three_are_damaged_and_one_comes_back() -> None:
    """Either of the two: it proves sound, the other one is rebuilt."""
    for back, anew in ((2, 3), (3, 2)):
        nodes = Damaged()
        nodes.lead(1)
        before = nodes.instance(anew)
        nodes.damage(2)
        nodes.damage(3)
        nodes.until(lambda nodes=nodes: len(nodes.record.to_remove) == 2, "both are known")  # type: ignore[misc]
        nodes.restart(back, settled=False)
        nodes.until(lambda nodes=nodes: not nodes.record.damaged, "no damage is left")  # type: ignore[misc]
        nodes.settle()
        if nodes.instance(anew) <= before:
            raise Violation(f"{anew} holds the instance that was damaged, {before}")


@schedule
def the_only_voter_cannot_read_for_a_learner() -> None:
    """The voter goes on with its sound entries; the change says why it waits, and is taken back."""
    nodes = Damaged(smallest_majority=1)
    nodes.move(1)
    stored, journal = Journal.stored, nodes.group(1, GID).journal
    damaged, journal._tail_bytes = journal.base_index + 2, lambda: 0

    def read(self: Journal, index: int) -> bytes:
        if self is journal and index == damaged:
            raise PlantedDamage("a damaged entry")
        return stored(self, index)

    nodes.goes_on("what is damaged is in memory no more")
    with limited(Journal, "stored", read):
        nodes.retarget(1, 2)
        changes = nodes.node(1).running.changes
        nodes.until(lambda: "cannot be filled" in changes.waiting.get(GID, ""), "it says why")
        nodes.goes_on("clients go on")
        nodes.move(1)
    nodes.move(1, 2)
    nodes.settle()
