"""A stage on which the members of the group change.

It plays the metadata's part: it names the node of each instance of the group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cluster.consensus.configuration import ChangeStep, Configuration, ConfigurationChange
from cluster.consensus.group import Group
from cluster.consensus.message import ClockProbe, ClockReply
from cluster.consensus.proposals import Outcome
from cluster.dedup.verdict import Kind
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import PartitionState
from tests.sim.checker import Violation
from tests.sim.cluster import Cluster, create_topic, register_node
from tests.sim.disk import Disk
from tests.sim.node import Settings
from tests.sim.stage import GID, Stage


class Changing(Stage):
    """A group that begins on the `founding` nodes, of `nodes`; the others have no replica."""

    def __init__(
        self, founding: int = 3, nodes: int = 5, smallest_majority: int = 2, **settings: Any
    ) -> None:
        self.founding = tuple(range(1, founding + 1))
        self.record = PartitionState(GID, self.founding)
        super().__init__(nodes, smallest_majority=smallest_majority, **settings)
        self.cluster.takes_steps = False  # the script does

    @classmethod
    def at_random(cls, founding: int, settings: Settings, seed: int, *, verbose: bool) -> Changing:
        """Builds one where elections happen by themselves and chance has a part."""
        stage = cls.__new__(cls)
        stage.founding = tuple(range(1, founding + 1))
        stage.record = PartitionState(GID, stage.founding)
        stage.free, stage.held = True, []
        stage.cluster = stage.make_cluster(settings, seed, verbose=verbose)
        stage.cluster.start()
        return stage

    def make_cluster(self, settings: Settings, seed: int = 1, *, verbose: bool = False) -> Cluster:
        cluster = Cluster(settings, seed, verbose=verbose)
        state = MetadataState()
        commands = [register_node(node) for node in cluster.node_ids]
        commands.append(create_topic(f"t{GID}", [list(self.founding)], settings))
        for index, command in enumerate(commands, 1):
            state.apply(index, command.SerializeToString())
        cluster.topics = state.dump()
        cluster.placement = lambda: {GID: self.members()}  # type: ignore[method-assign]
        return cluster

    # -- the metadata's words -----------------------------------------------------------------

    def assign(self, *nodes: int, **replicas: int) -> None:
        """Tells `nodes` the instances of the group: n4=2 is node 4 with instance 2."""
        record = self.record
        held = dict(zip(record.replicas, record.instances or (0,) * 9, strict=False))
        for name, instance in replicas.items():
            held.pop(int(name[1:]), None)
            held[int(name[1:])] = instance
        self.record = replace(
            record, replicas=tuple(held), founding=self.founding, instances=tuple(held.values())
        )
        self.tell(*nodes)
        self.run(1.0)

    def reported(self, node: int) -> None:
        """Tells the metadata the configuration that is in force at this node."""
        placed = self.group(node).members.placed
        now, lost = placed.configuration, self.record.lost
        members = now.voters + now.learners
        self.record = PartitionState(
            GID,
            tuple(one.node for one in members),
            self.founding,
            tuple(one.instance for one in members),
            now.version,
            placed.index,
            placed.term,
            lost=tuple(one for one in lost if one in {member[:2] for member in members}),
        )

    def tell(self, *nodes: int) -> None:
        """Has these nodes follow the metadata; all that start do, too."""
        state = MetadataState()
        state.load(self.cluster.topics)
        topic = state.topics()[0]
        topic = replace(topic, partitions=(self.record,))
        state._tables.put_topic(topic)
        self.cluster.topics = state.dump()
        for node_id in nodes:
            process = self.node(node_id).running
            process.state._tables.put_topic(topic)
            process.replicas.reconcile(process.state.tables.take_touched())

    def members(self) -> list[int]:
        """Members of the newest configuration in force anywhere."""
        newest = max(
            (self.group(node.id).members.configuration for node in self.cluster.live()
             if self.holds(node.id)),
            key=lambda one: one.version,
        )  # fmt: skip
        return sorted(one.node for one in newest.voters + newest.learners)

    # -- changes --------------------------------------------------------------------------------

    def propose(self, leader: int, step: ChangeStep, node: int) -> list[Any]:
        """Proposes one step; the list gets its outcome."""
        outcomes: list[Any] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)

        group = self.group(leader)
        change = ConfigurationChange(step, node, group.members.version, directory=node)
        group.change(change, done)
        self.node(leader).driver.touch(GID)
        return outcomes

    def change(self, leader: int, step: ChangeStep, node: int) -> Configuration:
        """Takes one step, and waits until it is in force at the leader."""
        before = self.group(leader).members.version
        self.propose(leader, step, node)
        self.run(0.3)
        now = self.group(leader).members.configuration
        if now.version != before + 1:
            raise Violation(f"{step} of node {node} did not come into force: {now}")
        return now

    def add(self, leader: int, node: int) -> None:
        """Adds a learner; once it has caught up, makes it a voter."""
        self.learn(leader, node)
        self.change(leader, ChangeStep.PROMOTE, node)
        self.run(0.5)

    def learn(self, leader: int, node: int) -> None:
        version = self.group(leader).members.version + 1
        self.change(leader, ChangeStep.ADD, node)
        self.assign(node, **{f"n{node}": version})
        self.run(1.0)

    def remove(self, leader: int, node: int) -> None:
        self.change(leader, ChangeStep.REMOVE, node)
        self.run(0.5)

    def bury(self, node: int, witness: int) -> None:
        """Tells the metadata and the node that the node's replica is removed."""
        self.reported(witness)
        self.tell(node)
        self.run(1.0)

    def wipe(self, node_id: int) -> None:
        """Loses the node's disk; it begins on an empty one."""
        node = self.node(node_id)
        if node.alive:
            node.crash("disk lost")
        node.volume.disk = Disk()
        self.cluster.checker.disk_lost(node_id, node.disk)

    # -- as in a stage, of the nodes that hold the group ------------------------------------

    def holds(self, node_id: int) -> bool:
        return GID in self.node(node_id).partitions

    def group(self, node_id: int) -> Group:
        found = self.node(node_id).partitions[GID].group
        assert found is not None
        return found

    def isolate(self, *nodes: int) -> None:
        """Isolates nodes, but for messages of clocks: a starting node needs its own to stand."""
        self.hold(
            lambda sender, receiver, message: (
                (sender in nodes) != (receiver in nodes)
                and not isinstance(message, ClockProbe | ClockReply)
            )
        )

    def nobody_stands(self) -> None:
        for node in self.cluster.live():
            if self.holds(node.id) and not self.group(node.id).core.is_leader:
                self.group(node.id).core.election_deadline = node.clock() + 1e6

    def stands(self, node_id: int) -> None:
        """Passes the node's election timeout once."""
        self.nobody_stands()
        self.group(node_id).core.election_deadline = self.node(node_id).clock()
        self.node(node_id).driver.touch(GID)
        scheduler = self.cluster.scheduler
        for _ in range(4):
            scheduler.run_until(scheduler.now + 0.05)
            self.nobody_stands()

    def leaders(self) -> list[int]:
        return [
            node.id
            for node in self.cluster.live()
            if self.holds(node.id) and self.group(node.id).is_leader
        ]

    def settle(self, *, gone: tuple[int, ...] = ()) -> None:
        """Has the rest elect a leader by themselves, which serves; replicas are equal."""
        self.drop()
        self.free = True
        self.cluster.network.heal()
        for node in self.cluster.nodes.values():
            if not node.alive and node.id not in gone:
                node.start()
        for node in self.cluster.live():
            if self.holds(node.id):
                group = self.group(node.id)
                soon = node.clock() + 1.0 + node.id / 3
                group.core.election_deadline = min(group.core.election_deadline, soon)
                node.driver.touch(GID)
        end = self.cluster.scheduler.now + 40.0
        while not self.is_settled(gone) and self.cluster.scheduler.now < end:
            self.run(0.5)
        if not self.is_settled(gone):
            raise Violation(f"no leader, or not equal: {self.describe()}")
        leader = self.cluster.leader(GID)
        assert leader is not None
        fresh = self.send(leader.id, self.batch(pid=99))
        self.run(3.0)
        if fresh.kind is not Kind.APPENDED:
            raise Violation(f"no progress: {fresh.answer}; {self.describe()}")
        for node_id in self.present(gone):
            self.cluster._check_replica(self.node(node_id), GID, self.cluster.checker.models[GID])

    def present(self, gone: tuple[int, ...]) -> list[int]:
        return [node for node in self.members() if node not in gone and self.holds(node)]

    def is_settled(self, gone: tuple[int, ...]) -> bool:
        leader = self.cluster.leader(GID)
        present = self.present(gone)
        marks = {(self.group(node).applied_index, self.group(node).journal.last_index,
                  self.group(node).members.version) for node in present}  # fmt: skip
        return leader is not None and len(marks) == 1 and all(a == b for a, b, _ in marks)

    def describe(self) -> str:
        return "; ".join(
            f"node {node.id}: term {group.term} leader {group.leader_id} applied "
            f"{group.applied_index} commit {group.core.commit_index} last "
            f"{group.journal.last_index}, {group.members.configuration}"
            f"{' removed' if group.removed else ''}"
            for node in self.cluster.live()
            if self.holds(node.id)
            for group in (self.group(node.id),)
        )
