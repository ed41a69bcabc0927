"""Schedules in which a topic gets more partitions, and more or fewer replicas."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.metadata.placement import resized
from cluster.metadata.topics import PartitionState, TopicState
from tests.sim.checker import Violation
from tests.sim.membership.node_schedules import Nodes
from tests.sim.membership.nodes import is_whole
from tests.sim.membership.seeds import added, check_partitions, replicas_asked
from tests.sim.schedules import schedule
from tests.sim.stage import GID


class Sized(Nodes):
    """Three nodes that hold a topic of one partition."""

    @property
    def topic(self) -> TopicState:
        found = self.state.partition(GID)
        assert found is not None
        return found[0]

    def resize(self, replicas: int) -> None:
        nodes, leader = self.cluster.founding, self.cluster.leader(GID)
        leaders = {} if leader is None else {GID: leader.id}
        moves = resized(self.topic, replicas, nodes, nodes, leaders, self.state.tables.loads)
        error = self.command(replicas_asked(self.topic, moves))
        assert not error, error
        self.until(lambda: self._all_hold(replicas), f"{replicas} replicas: {self.topic}")

    def _all_hold(self, replicas: int) -> bool:
        return all(
            len(one.replicas) == replicas and not one.target for one in self.topic.partitions
        )

    def settle(self) -> None:
        """Waits until all have the same partitions, and clients go on."""
        self.until(lambda: is_whole(self.cluster, self.state), f"all is whole: {self.topic}")
        before = self.cluster.checker.acknowledged
        self.until(lambda: self.cluster.checker.acknowledged > before, "clients go on")
        check_partitions(self.cluster)


@schedule
def a_topic_gets_more_partitions_while_a_node_is_away() -> None:
    """Twice, of which a node hears late: each number and each group is one partition's only."""
    topics = Sized()
    topics.node(3).crash("away")
    for _ in range(2):
        error = topics.command(added(topics.topic, (1, 2, 3), (2, 3, 1)))
        assert not error, error
        groups = [one.group_id for one in topics.topic.partitions]
        if len({*groups}) != len(groups):
            raise Violation(f"a group is two partitions': {groups}")
    stale = topics.topic.partitions[:1]
    topics.node(3).restart()
    if not topics.command(added(_of(topics.topic, stale), (1, 2, 3))):
        raise Violation("who knew of one partition only has added another")
    topics.settle()
    if len(topics.topic.partitions) != 5:
        raise Violation(f"{topics.topic} has not five partitions")


@schedule
def replicas_become_one_and_three_again() -> None:
    """A single voter decides alone then; the leader stays, and nothing is lost."""
    topics = Sized(smallest_majority=1)
    leader = topics.cluster.leader(GID)
    assert leader is not None
    topics.resize(1)
    kept = topics.topic.partitions[0].replicas
    if kept != (leader.id,):
        raise Violation(f"{leader.id} led, and {kept} is kept")
    before = topics.cluster.checker.acknowledged
    topics.until(lambda: topics.cluster.checker.acknowledged > before, "one alone goes on")
    topics.resize(3)
    topics.settle()


def _of(topic: TopicState, partitions: Sequence[PartitionState]) -> TopicState:
    """Builds an older copy of a topic's state."""
    return TopicState(
        topic.name, topic.topic_id, tuple(partitions), topic.settings, topic.created_ms
    )
