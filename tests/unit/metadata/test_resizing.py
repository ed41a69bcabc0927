"""A topic gets more partitions, or another number of replicas: decisions and rejections."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.metadata import upgrade
from cluster.metadata.placement import place, resized
from cluster.metadata.replicas import change
from cluster.metadata.snapshot import load_tables, packed_tables
from cluster.metadata.tables import Tables
from cluster.metadata.topics import (
    MAX_PARTITIONS_PER_TOPIC,
    DamagedReplica,
    PartitionState,
    Rejected,
    TopicSettings,
    TopicState,
)
from cluster.v1 import metadata_pb2 as pb
from oncelog import errors
from oncelog.v1 import cluster_pb2 as cpb
from tests.unit.small_node import Client, Node, create, refused, registered, serving

NODES = (1, 2, 3, 4, 5)
NOW = 5_000


def tables(*records: PartitionState) -> Tables:
    made = Tables(next_group_id=16 + len(records), next_topic_id=2)
    made.nodes.update({node: f"n{node}:1" for node in NODES})
    made.put_topic(TopicState("t", 1, records, TopicSettings(), 0))
    return made


def three() -> Tables:
    return tables(*(PartitionState(16 + number, (1, 2, 3)) for number in range(3)))


def more(*placements: tuple[int, ...], expected: int = 3, **fields: Any) -> pb.MetadataCommand:
    command = pb.AddPartitions(
        name="t",
        topic_id=1,
        expected_partitions=expected,
        placements=[pb.Placement(replicas=nodes) for nodes in placements],
    )
    command.MergeFrom(pb.AddPartitions(**fields))
    return pb.MetadataCommand(add_partitions=command)


def targets(*replicas: tuple[int, ...], version: int = 0, **fields: Any) -> pb.MetadataCommand:
    made = [
        pb.SetReplicas(group_id=16 + number, replicas=nodes, expected_version=version)
        for number, nodes in enumerate(replicas)
    ]
    command = pb.SetTopicReplicas(name="t", topic_id=1, partitions=made)
    command.MergeFrom(pb.SetTopicReplicas(**fields))
    return pb.MetadataCommand(set_topic_replicas=command)


# --- replicated commands ------------------------------------------------------------------


def test_new_partitions_come_behind_the_others_in_groups_of_their_own() -> None:
    state = three()
    before = state.topics["t"].partitions
    assert change(state, more((4, 5), (5, 4)), NOW)
    topic = state.topics["t"]
    assert topic.partitions[:3] == before
    assert topic.partitions[3:] == (
        PartitionState(19, (4, 5), added_ms=NOW),
        PartitionState(20, (5, 4), added_ms=NOW),
    )
    assert state.groups[20] == ("t", 4) and state.next_group_id == 21
    assert load_tables(b"".join(packed_tables(state))).topics == state.topics


def test_a_group_is_never_another_partitions() -> None:
    state = three()
    change(state, more((1,)), NOW)
    state.drop_topic("t")
    state.put_topic(TopicState("t", 2, (PartitionState(40, (1,)),), TopicSettings(), 0))
    state.next_group_id, state.next_topic_id = 41, 3
    with pytest.raises(Rejected, match="was deleted and created anew"):
        change(state, more((1,), expected=1), NOW)
    assert change(state, more((1,), expected=1, topic_id=2), NOW)
    assert [one.group_id for one in state.topics["t"].partitions] == [40, 41]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            more((1,), expected=2),
            r"^expected_partitions: 2 is not the topic's number of partitions, 3$",
        ),
        (more(), r"^partitions: 3 must be more than the topic has, 3"),
        (more((1, 1)), r"^placements: partition 0 names a node twice"),
        (more((9,)), r"^placements: partition 0 names node 9"),
        (more((1,), (1, 2)), r"^placements: partition 1 has 2 replicas"),
        (more(*[(1,)] * MAX_PARTITIONS_PER_TOPIC), r"^partitions: 1003 must be 1..1000$"),
        (more((1,), name="u"), "'u' does not exist"),
        (targets((1, 9)), r"^replicas: names node 9"),
        (targets((1, 2), version=1), r"^expected_version: 1 is not the partition's, 0$"),
        (targets((1, 2), topic_id=7), "was deleted and created anew"),
        (targets(partitions=[pb.SetReplicas(group_id=99, replicas=[1])]), r"^partitions: group 99"),
        (
            targets(partitions=[pb.SetReplicas(group_id=16, replicas=[1], for_balance=True)]),
            r"^partitions: group 16",
        ),
    ],
)
def test_what_does_not_fit_changes_nothing(command: pb.MetadataCommand, text: str) -> None:
    state = three()
    before = b"".join(packed_tables(state))
    with pytest.raises(Rejected, match=text):
        change(state, command, NOW)
    assert b"".join(packed_tables(state)) == before


def test_internal_topics_keep_their_size() -> None:
    state = three()
    state.put_topic(TopicState("__offsets", 1, (PartitionState(90, (1,)),), TopicSettings(), 0))
    with pytest.raises(Rejected, match=r"^name: '__offsets' is internal"):
        change(state, more((1,), name="__offsets", expected=1), NOW)


def test_targets_of_replicas_are_set_together_or_not_at_all() -> None:
    state = three()
    assert change(state, targets((1,), (2,), (3,)), NOW)
    assert [one.target for one in state.topics["t"].partitions] == [(1,), (2,), (3,)]
    assert state.topics["t"].replica_count == 1
    before = state.topics["t"]
    with pytest.raises(Rejected, match="names node 9"):
        change(state, targets((1, 2), (9,)), NOW)
    assert state.topics["t"] == before
    assert change(state, targets((1, 2, 3)), NOW)
    assert state.topics["t"].partitions[0].target == (1, 2, 3), "the leader takes it back"


# --- targets of replicas ------------------------------------------------------------------


def plan(
    state: Tables, replicas: int, live: tuple[int, ...] = NODES, **leaders: int
) -> list[tuple[int, ...]]:
    known = {16 + int(name[1:]): node for name, node in leaders.items()}
    found = resized(state.topics["t"], replicas, NODES, live, known, state.loads)
    return [target for _, target in found]


def test_more_replicas_keep_those_that_there_are_and_level_the_nodes() -> None:
    state = tables(*(PartitionState(16 + number, (node,)) for number, node in enumerate(NODES)))
    found = plan(state, 3)
    assert [target[0] for target in found] == list(NODES)
    assert set(Counter(node for target in found for node in target).values()) == {3}


def test_a_dead_node_is_taken_last() -> None:
    state = tables(PartitionState(16, (1,)))
    assert set(plan(state, 4, live=(1, 2, 3, 4))[0]) == {1, 2, 3, 4}
    assert set(plan(state, 2, live=(1, 5))[0]) == {1, 5}


def test_fewer_replicas_keep_the_leader() -> None:
    state = three()
    assert plan(state, 1, p0=3, p1=2, p2=1) == [(3,), (2,), (1,)]
    assert plan(state, 2, p0=3)[0][0] in (1, 3) and 3 in plan(state, 2, p0=3)[0]
    assert plan(state, 1) == [(1,), (1,), (1,)], "the preferred one where none is known"


def test_fewer_replicas_drop_the_dead_and_the_damaged_first() -> None:
    state = tables(PartitionState(16, (1, 2, 3)))
    assert plan(state, 2, live=(1, 3)) == [(1, 3)]
    sick = PartitionState(16, (1, 2, 3), damaged=(DamagedReplica(3, 0, False),))
    assert plan(tables(sick), 2) == [(1, 2)]


def test_what_is_under_way_is_taken_back_to_the_replicas_that_were_whole() -> None:
    growing = PartitionState(
        16, (1, 4, 5), founding=(1,), instances=(0, 1, 2), version=2, target=(1, 4, 5)
    )
    assert plan(tables(growing), 1) == [(1,)]
    assert plan(tables(growing), 2) == [(1, 4)], "the one that came first"
    assert plan(tables(growing), 3) == [], "it is on its way"


def test_a_node_that_leaves_gets_nothing_back() -> None:
    state = tables(PartitionState(16, (1, 2), target=(1, 3)))
    found = resized(state.topics["t"], 3, (1, 3, 4), (1, 3, 4), {16: 2}, state.loads)
    assert [set(target) for _, target in found] == [{1, 3, 4}]


def test_more_replicas_than_nodes_are_refused() -> None:
    with pytest.raises(Rejected, match=r"^replicas: 6 must be at most the number of nodes, 5"):
        plan(three(), 6)
    with pytest.raises(Rejected, match=r"^replicas: 10 must be 1..9$"):
        plan(three(), 10)


def test_new_partitions_level_what_is_there() -> None:
    state = three()
    placed = place(2, 2, NODES, NODES, state.loads)
    assert {node for nodes in placed for node in nodes} == {4, 5}


# --- the call -----------------------------------------------------------------------------


@pytest.fixture
def node() -> Node:
    made = registered()
    made.register(4)
    made.releases[4] = made.releases[3]
    command = upgrade.command(made.plan().target)
    made.apply(pb.MetadataCommand(finalize_upgrade=command))
    return made


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Client]:
    async with serving(node) as client:
        yield client


async def resize(client: Client, **fields: Any) -> cpb.ResizeTopicResponse:
    request = cpb.ResizeTopicRequest(name="orders", **fields)
    answer: cpb.ResizeTopicResponse = await client.cluster.ResizeTopic(request)
    return answer


async def test_partitions_are_added_and_have_leaders(node, client) -> None:
    before = (await create(client, partitions=3, replicas=2)).topic
    planned = await resize(client, partitions=6, dry_run=True)
    assert planned.topic == before and planned.count == 3
    assert [(m.partition, list(m.replicas)) for m in planned.moves] == [(3, []), (4, []), (5, [])]
    said = await resize(client, partitions=6)
    assert said.moves == planned.moves
    assert list(said.topic.partitions[:3]) == list(before.partitions)
    new = said.topic.partitions[3:]
    assert [list(one.replicas) for one in new] == [list(m.target) for m in said.moves]
    assert all(one.added_ms == node.now_ms and one.leader_id for one in new)
    held = Counter(n for one in said.topic.partitions for n in one.replicas)
    assert set(held.values()) == {3}, "level over the four nodes"
    node.has_leaders = False
    error = await refused(resize(client, partitions=7))
    assert isinstance(error, errors.RequestTimeoutError)
    assert "'orders' has 7 partitions, but these partitions have no leader yet: 6" in error.message


async def test_replicas_are_set_for_all_partitions_at_once(node, client) -> None:
    first = (await create(client, partitions=2, replicas=1)).topic.partitions[0]
    node.held = {first.replicas[0]: {first.group_id: 100}}
    planned = await resize(client, replicas=3, dry_run=True)
    assert planned.count == 2 and [one.bytes for one in planned.moves] == [200, 0]
    assert not any(one.target for one in planned.topic.partitions)
    proposed = node.proposed
    said = await resize(client, replicas=3)
    assert node.proposed == proposed + 1, "one command"
    assert [len(one.target) for one in said.topic.partitions] == [3, 3]
    assert all(one.target[0] == one.replicas[0] for one in said.topic.partitions)
    assert (await resize(client, replicas=3)).count == 0
    back = await resize(client, replicas=1)
    assert [one.target for one in back.topic.partitions] == [
        one.replicas for one in back.topic.partitions
    ]


@dataclass
class Reports:
    """A step of a partition is reported before each proposal, until its version is `most`."""

    node: Node
    record: cpb.PartitionInfo
    propose: Any
    versions: list[int] = field(default_factory=lambda: [0])
    most: int = 2

    async def slow(self, command: pb.MetadataCommand, timeout: float) -> Any:
        if self.versions[-1] < self.most:
            self.versions.append(self.versions[-1] + 1)
            report = pb.ReportReplicas(
                group_id=self.record.group_id,
                version=self.versions[-1],
                voters=self.record.replicas,
                instances=[0] * len(self.record.replicas),
            )
            assert not self.node.apply(pb.MetadataCommand(report_replicas=report)).error
        return await self.propose(command, timeout)


@pytest.fixture
async def reports(node, client, monkeypatch) -> Reports:
    record = (await create(client, partitions=2, replicas=1)).topic.partitions[0]
    made = Reports(node, record, node.propose_metadata)
    monkeypatch.setattr(node, "propose_metadata", made.slow)
    return made


async def test_a_step_that_is_reported_meanwhile_is_planned_anew(client, reports) -> None:
    assert (await resize(client, replicas=2)).count == 2 and reports.versions == [0, 1, 2]
    reports.most = 9
    error = await refused(resize(client, replicas=3))
    assert isinstance(error, errors.InvalidRequestError) and error.field == "expected_version"
    assert reports.versions == [0, 1, 2, 3, 4, 5], "three times, and no more"


async def test_a_partition_that_takes_a_step_meanwhile_is_reassigned(client, reports) -> None:
    target = [node for node in (1, 2, 3, 4) if node not in reports.record.replicas][:2]
    asked = cpb.ReassignPartitionRequest(topic="orders", replicas=target)
    said = await client.cluster.ReassignPartition(asked)
    assert list(said.topic.partitions[0].target) == target and reports.versions == [0, 1, 2]
    reports.most = 9
    error = await refused(client.cluster.ReassignPartition(asked))
    assert isinstance(error, errors.InvalidRequestError) and error.field == "expected_version"
    assert reports.versions == [0, 1, 2, 3, 4, 5], "three times, and no more"


async def test_a_partition_beside_replicas_that_come_gets_as_many(node, client) -> None:
    await create(client, partitions=1, replicas=1)
    await resize(client, replicas=3)
    assert len((await resize(client, partitions=2)).moves[0].target) == 3


async def test_what_the_call_refuses(node, client) -> None:
    await create(client, partitions=3, replicas=1)
    before = node.metadata.dump()
    for fields, text, limit in (
        ({}, "partitions: this or replicas must be set", ""),
        ({"partitions": 4, "replicas": 2}, "partitions: this or replicas must be set", ""),
        ({"partitions": 3}, "partitions: 3 must be more than the topic has, 3", "4..1000"),
        ({"partitions": 2}, "partitions: 2 must be more than the topic has, 3", "4..1000"),
        ({"partitions": -1}, "partitions: -1 must be more than the topic has, 3", "4..1000"),
        ({"partitions": 1001}, "partitions: 1001 must be 1..1000", "1..1000"),
        ({"replicas": 5}, "replicas: 5 must be at most the number of nodes, 4", "1..4"),
        ({"replicas": -1}, "replicas: -1 must be 1..9", "1..9"),
        ({"partitions": 4, "timeout_ms": -1}, "timeout_ms: -1 must be", "0..600000"),
    ):
        error = await refused(resize(client, **fields))
        assert isinstance(error, errors.InvalidRequestError), fields
        assert text in error.message and error.limit == limit, (fields, error.message)
        assert error.field == text.partition(":")[0]
    unknown = cpb.ResizeTopicRequest(name="nobody", partitions=4)
    error = await refused(client.cluster.ResizeTopic(unknown))
    assert isinstance(error, errors.UnknownTopicOrPartitionError)
    assert node.metadata.dump() == before


async def test_before_the_upgrade_is_finalized_it_is_refused() -> None:
    node = registered()
    async with serving(node) as client:
        await create(client, partitions=1, replicas=1)
        error = await refused(resize(client, partitions=2))
        assert isinstance(error, errors.NotSupportedError) and "replica_changes" in error.message
