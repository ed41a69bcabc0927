"""A node's replicas: opened and closed as the metadata says, with the settings in effect."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cluster.consensus.driver import Driver
from cluster.consensus.replay_budget import ReplayBudget
from cluster.features import REPLICA_CHANGES, Finalized
from cluster.metadata.state import MetadataState
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.replicas.replicas import ReplicaContext, Replicas, ReplicaSettings
from cluster.partition.replica import Partition
from cluster.v1 import metadata_pb2 as mpb
from storage import keys
from storage.errors import CorruptionError
from storage.kv import Family
from storage.raft_log import RaftLogStore
from tests.sim.cluster import create_topic, register_node, topic_config
from tests.sim.disk import Disk
from tests.sim.node import Settings

FIRST = 16  # the first partition's group


def lone_clock(clock: Callable[[], float]) -> ClockAgreement:
    """Clock of a node without peers, which agrees with itself."""
    return ClockAgreement((), 1000, clock, lambda: int(clock() * 1000), lambda *sent: None)


class Node:
    """Node 1 of three: a disk, the metadata, and the replicas over them."""

    def __init__(self) -> None:
        self.disk, self.metadata, self.linked = Disk(), MetadataState(), {2: 0.0}
        self.index = 0
        self.now = 0.0
        for node in (1, 2, 3):
            self.command(register_node(node))
        self.open()

    def open(self) -> None:
        """A new process over the same disk; opens nothing by itself."""
        self.driver = Driver(
            self.disk,
            lambda: self.now,
            lambda *sent: None,
            lambda: None,
            ReplayBudget(1 << 30),
            lambda read, done: done(read()),
        )
        self.replicas = Replicas(
            ReplicaSettings(
                directory_id=1,
                node_id=1,
                election_timeout=1.0,
                heartbeat=0.3,
                checkpoint_bytes=1 << 20,
                checkpoint_entries=100,
                tail_cache_bytes=1 << 20,
                min_tail_bytes=0,
                max_batch_bytes=2000,
                last_seen_capacity=100,
            ),
            ReplicaContext(
                kv=self.disk,
                driver=self.driver,
                clock=lambda: self.now,
                clocks=lone_clock(lambda: self.now),
                rng=random.Random(1),
                metadata=self.metadata,
                linked=self.linked,
                on_role=lambda gid: None,
                leader_changed=lambda: None,
            ),
        )

    def command(self, command: mpb.MetadataCommand) -> None:
        self.index += 1
        result = self.metadata.apply(self.index, command.SerializeToString())
        assert not mpb.MetadataResult.FromString(result).error

    def reconcile(self) -> None:
        self.replicas.reconcile(self.metadata.tables.take_touched())

    def create(self, name: str, *placements: list[int]) -> None:
        self.command(create_topic(name, list(placements), Settings()))

    def delete(self, name: str) -> None:
        self.command(mpb.MetadataCommand(delete_topic=mpb.DeleteTopic(name=name)))

    def alter(self, name: str, retention_bytes: int) -> None:
        alter = mpb.AlterTopic(name=name, config=topic_config(retention_bytes))
        self.command(mpb.MetadataCommand(alter_topic=alter))

    def rounds(self) -> None:
        for _ in range(20):
            self.now += 0.2
            if self.driver.begin():
                self.driver.sync()
                self.driver.finish()

    def stored(self, gid: int) -> int:
        """Number of keys of a group on the disk."""
        begin, end = keys.group_range(gid)
        return sum(1 for family in Family for _ in self.disk.scan(family, begin, end))


@pytest.fixture
def node() -> Node:
    return Node()


def test_opens_what_is_placed_here_and_nothing_else(node: Node) -> None:
    node.create("a", [1, 2], [2, 3], [3, 1])
    node.reconcile()
    assert set(node.replicas.by_group) == {FIRST, FIRST + 2} == set(node.driver.groups)
    assert set(node.replicas.by_name) == {("a", 0), ("a", 2)}
    assert node.driver.groups[FIRST].config.peers == (2,)
    assert node.driver.groups[FIRST + 2].config.peers == (3,)


def test_a_second_look_opens_nothing_again(node: Node) -> None:
    node.create("a", [1])
    node.reconcile()
    before = node.replicas.by_group[FIRST]
    node.reconcile()
    assert node.replicas.by_group[FIRST] is before


def test_only_the_preferred_leader_of_a_new_group_stands_at_once(node: Node) -> None:
    node.create("a", [1, 2, 3], [2, 1, 3])
    node.reconcile()
    deadlines = [node.driver.groups[FIRST + i].core.election_deadline for i in (0, 1)]
    assert deadlines[0] == 0.0
    assert deadlines[1] > 0.0


def test_a_group_that_has_had_a_leader_waits_as_usual(node: Node) -> None:
    node.create("a", [1])
    node.reconcile()
    node.rounds()
    assert node.driver.groups[FIRST].term == 1
    node.open()
    node.reconcile()
    assert node.driver.groups[FIRST].core.election_deadline > node.now


def test_a_new_group_knows_which_links_are_up(node: Node) -> None:
    node.create("a", [1, 2, 3])
    node.reconcile()
    assert node.driver.groups[FIRST]._up == {2}


def test_a_deleted_topic_leaves_nothing_behind(node: Node) -> None:
    node.create("a", [1])
    node.create("b", [1])
    node.reconcile()
    node.rounds()
    assert node.stored(FIRST) > 0
    answers: list[object] = []
    node.driver.groups[FIRST].confirm(answers.append)
    node.delete("a")
    node.reconcile()
    assert len(answers) == 1, "who waits is answered"
    assert set(node.replicas.by_group) == {FIRST + 1} == set(node.driver.groups)
    assert set(node.replicas.by_name) == {("b", 0)}
    node.rounds()
    assert node.stored(FIRST) == 0
    assert node.stored(FIRST + 1) > 0


def test_a_topic_of_the_same_name_is_another_one(node: Node) -> None:
    node.create("a", [1])
    node.reconcile()
    node.delete("a")
    node.create("a", [1])
    node.reconcile()
    assert set(node.replicas.by_group) == {FIRST + 1}
    assert node.replicas.by_name["a", 0] is node.replicas.by_group[FIRST + 1]


def damage(node: Node, gid: int) -> None:
    batch = node.disk.batch()
    batch.put(Family.STATE, keys.prefix(gid) + b"\x01", b"garbage")
    node.disk.write(batch)
    with pytest.raises(CorruptionError):
        RaftLogStore(node.disk, gid).load()


def test_a_damaged_replica_is_broken_and_the_others_go_on(node: Node) -> None:
    node.create("a", [1], [1], [1])
    node.reconcile()
    node.rounds()
    damage(node, FIRST + 1)
    node.open()
    node.reconcile()
    assert set(node.replicas.broken) == {FIRST + 1}
    error, instance = node.replicas.broken[FIRST + 1]
    assert isinstance(error, CorruptionError) and instance == 0
    assert set(node.replicas.by_group) == {FIRST, FIRST + 2} == set(node.driver.groups)
    node.rounds()
    assert node.driver.groups[FIRST].is_ready


def test_a_broken_replica_is_not_opened_again_by_the_next_change(node: Node) -> None:
    node.create("a", [1])
    node.reconcile()
    node.rounds()
    damage(node, FIRST)
    node.open()
    node.reconcile()
    first_error = node.replicas.broken[FIRST]
    node.create("b", [1])
    node.reconcile()
    assert node.replicas.broken == {FIRST: first_error}
    assert set(node.replicas.by_group) == {FIRST + 1}


def report(node: Node, version: int, voters: list[int], instance: int) -> None:
    """The group's leader reports these replicas; all but node 1's are of the beginning."""
    instances = [instance if one == 1 else 0 for one in voters]
    command = mpb.ReportReplicas(
        group_id=FIRST, version=version, index=version, index_term=1, voters=voters,
        instances=instances,
    )  # fmt: skip
    node.metadata._tables.finalized = Finalized(2, frozenset({REPLICA_CHANGES}))
    node.command(mpb.MetadataCommand(report_replicas=command))
    node.reconcile()


def test_a_broken_replica_is_made_anew_once_another_instance_is_reported(node: Node) -> None:
    node.create("a", [1, 2, 3])
    node.reconcile()
    node.rounds()
    damage(node, FIRST)
    node.open()
    node.reconcile()
    report(node, 1, [1, 2, 3], 0)
    assert FIRST in node.replicas.broken, "it is the one that it was"
    report(node, 2, [2, 3], 0)
    node.rounds()
    assert FIRST not in node.replicas.broken and not node.replicas.by_group
    report(node, 4, [1, 2, 3], 3)
    node.rounds()
    node.reconcile()
    assert node.driver.groups[FIRST].config.instance == 3
    assert node.driver.groups[FIRST].term == 0, "and empty"


def test_what_cannot_say_which_instance_it_is_is_never_made_anew(node: Node) -> None:
    """This copy of the metadata may be older than the replica is."""
    node.create("a", [1, 2, 3])
    report(node, 4, [1, 2, 3], 3)
    node.rounds()
    assert node.driver.groups[FIRST].config.instance == 3
    node.open()
    broken = CorruptionError("the instance")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RaftLogStore, "instance", lambda self: _raise(broken))
        node.reconcile()
    report(node, 6, [2, 3], 0)
    report(node, 8, [1, 2, 3], 7)
    assert node.replicas.broken == {FIRST: (broken, None)} and not node.replicas.by_group


def _raise(error: Exception) -> int:
    raise error


def test_altered_settings_reach_the_policies(node: Node) -> None:
    node.create("a", [1], [1])
    node.create("b", [1])
    node.reconcile()
    node.alter("a", 777)
    assert [node.replicas.by_group[FIRST + i].policy.retention_bytes for i in range(3)] == [-1] * 3
    node.replicas.apply_settings()
    kept = [node.replicas.by_group[FIRST + i].policy.retention_bytes for i in range(3)]
    assert kept == [777, 777, -1]


def test_a_policy_is_the_topics_settings_within_the_nodes(node: Node) -> None:
    node.create("a", [1])
    node.reconcile()
    policy = node.replicas.by_group[FIRST].policy
    assert policy.max_batch_bytes == 2000, "the node's limit is below the topic's"
    assert policy.lease_lifetime_ms == node.metadata.lease_lifetime_ms
    assert policy.names is node.metadata
    assert policy.expired_below() == node.metadata.next_producer_id


def test_partitions_are_made_with_the_class_that_is_given(node: Node) -> None:
    class Watched(Partition):
        """A partition of a test."""

    made: list[int] = []

    def watched(gid: int) -> type[Partition]:
        made.append(gid)
        return Watched

    node.replicas._partition_class = watched
    node.create("a", [1])
    node.reconcile()
    assert made == [FIRST]
    assert type(node.replicas.by_group[FIRST]) is Watched
