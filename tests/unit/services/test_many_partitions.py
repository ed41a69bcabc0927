"""20,000 partitions, the limit: no call, and no step of a move, holds up the loop with all."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from cluster.consensus.tombstone import Tombstone
from cluster.features import REPLICA_CHANGES, Finalized
from cluster.metadata import nodes as rules
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import PartitionState
from cluster.services import slices
from cluster.services.admin import node_changes
from cluster.services.admin.cluster_service import TOPICS_SLICE, ClusterService
from cluster.services.admin.placement import place_replicas
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import cluster_pb2 as pb
from storage.raft_log import RaftLogStore
from tests.unit.node.test_replicas import Node as ReplicaNode
from tests.unit.small_node import Node

TOPICS, EACH, NODES = 20, 1000, (1, 2, 3)


def creations() -> Iterator[meta.MetadataCommand]:
    rng = random.Random(1)
    for number in range(TOPICS):
        placements = [meta.Placement(replicas=rng.sample(NODES, 2)) for _ in range(EACH)]
        topic = meta.CreateTopic(name=f"t{number}", placements=placements)
        yield meta.MetadataCommand(create_topic=topic)


@pytest.fixture(scope="module")
def node() -> Node:
    made = Node()
    made.register(*NODES)
    for command in creations():
        assert not made.apply(command).error
    return made


async def turns_of(call: Awaitable[Any]) -> int:
    """Number of turns that the loop gave to others until the call was answered."""
    turns, task = 0, asyncio.ensure_future(call)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_a_call_about_all_partitions_leaves_the_loop_to_others(node: Node) -> None:
    service, all_of_them = ClusterService(node), TOPICS * EACH
    describe = service.DescribeCluster(pb.DescribeClusterRequest())
    assert await turns_of(describe) > all_of_them // slices.SLICE
    assert await turns_of(service.ListNodes(pb.ListNodesRequest())) > (all_of_them // slices.SLICE)
    topics = service.DescribeTopics(pb.DescribeTopicsRequest())
    assert await turns_of(topics) >= TOPICS // TOPICS_SLICE


def test_what_a_change_of_a_node_would_do_is_tried_without_a_dump(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node.metadata.dump()
    monkeypatch.setattr(MetadataState, "dump", None)
    monkeypatch.setattr(rules, "_without_directory", None)  # no partition is marked
    monkeypatch.setattr(PartitionState, "counting", None)  # nor looked at closely, as none moves
    for action in (meta.NODE_ACTION_DRAIN, meta.NODE_ACTION_REPLACE):
        change = meta.ChangeNode(node_id=3, action=action)
        assert node_changes.effects(node, change) != ["nothing: it is so already"]
    monkeypatch.undo()
    assert node.metadata.dump() == before


def test_a_topic_is_placed_without_a_look_at_all_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MetadataState, "topics", None)
    placed = place_replicas(node, 3, 3)
    assert all(sorted(nodes) == [1, 2, 3] for nodes in placed)


def test_a_step_of_a_move_looks_at_its_partition_only(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ReplicaNode()  # node 1, which holds a few of them
    for command in creations():
        for placement in command.create_topic.placements[10:]:
            placement.replicas[:] = [2, 3]
        node.command(command)
    node.metadata.tables.finalized = Finalized(2, frozenset({REPLICA_CHANGES}))
    node.reconcile()
    held, looked_for = set(node.replicas.by_group), Counter[int]()
    monkeypatch.setattr(MetadataState, "topics", None)
    tombstone = RaftLogStore.tombstone

    def looked(self: RaftLogStore) -> bytes:
        looked_for[self._group] += 1
        return tombstone(self)

    monkeypatch.setattr(RaftLogStore, "tombstone", looked)
    topic = node.metadata.topic("t5")
    assert topic is not None
    here = next(one.group_id for one in topic.partitions if one.group_id in held)
    elsewhere = topic.partitions[700].group_id
    for version in (1, 2):
        for moved in (here, elsewhere):
            report = meta.ReportReplicas(group_id=moved, version=version, voters=[2, 3])
            report.instances[:], report.index, report.index_term = [0, 0], 9, 1
            node.command(meta.MetadataCommand(report_replicas=report))
            node.reconcile()
    assert set(node.replicas.by_group) == held - {here}
    assert isinstance(node.driver.tombstones.get(here), Tombstone)
    assert looked_for == {elsewhere: 1}, "one read, and of no partition that never changed"
