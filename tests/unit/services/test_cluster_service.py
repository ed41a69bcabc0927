"""ClusterService over real gRPC, behind it a real MetadataState."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.config.settings import MIB
from cluster.errors import NotReadyError, ProposalTimeoutError
from cluster.features import THIS_RELEASE, Release
from oncelog import errors
from oncelog.v1 import cluster_pb2 as cpb
from tests.unit.small_node import (
    Client,
    Node,
    Replica,
    create,
    refused,
    registered,
    serving,
)


@pytest.fixture
def node() -> Node:
    return registered()


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Client]:
    async with serving(node) as client:
        yield client


async def test_create_topic_with_the_clusters_defaults(node, client):
    topic = (await create(client)).topic
    assert topic.name == "orders"
    assert [p.partition for p in topic.partitions] == list(range(6))
    assert all(sorted(p.replicas) == [1, 2, 3] for p in topic.partitions)
    assert sorted(p.leader_id for p in topic.partitions) == [1, 1, 2, 2, 3, 3]
    assert {p.term for p in topic.partitions} == {4}
    assert {p.high_watermark for p in topic.partitions} == {-1}, "no replica opened here"
    assert topic.config.max_batch_bytes == 4 * MIB
    assert topic.created_ms == node.now_ms


async def test_create_topic_keeps_what_is_asked_for(node, client):
    config = cpb.TopicConfig(
        retention_ms=-1,
        max_batch_bytes=5000,
        expected_offsets=cpb.ExpectedOffsets.EXPECTED_OFFSETS_REQUIRED,
    )
    topic = (await create(client, partitions=2, replicas=1, config=config)).topic
    assert [len(p.replicas) for p in topic.partitions] == [1, 1]
    config.retention_bytes = -1
    assert topic.config == config


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"name": "a b"}, "name", "'a b' must only use"),
        ({"name": ""}, "name", "must have 1..249"),
        ({"partitions": -1}, "partitions", "-1 must be 1..1000"),
        ({"partitions": 1001}, "partitions", "1001 must be 1..1000"),
        ({"replicas": -1}, "replicas", "-1 must be 1..9"),
        ({"replicas": 4}, "replicas", "4 must be at most the number of nodes, 3"),
        ({"timeout_ms": -1}, "timeout_ms", "-1 must be 0..600000"),
        ({"config": cpb.TopicConfig(retention_ms=-5)}, "retention_ms", "-5 must be"),
        ({"config": cpb.TopicConfig(max_batch_bytes=10)}, "max_batch_bytes", "10 must be 1024.."),
    ],
)
async def test_bad_topics_are_refused_before_the_log(node, client, fields, field, text):
    error = await refused(create(client, **fields))
    assert isinstance(error, errors.InvalidRequestError)
    assert not error.retriable
    assert error.field == field
    assert text in error.message
    assert node.proposed == 0


async def test_a_topic_that_exists(node, client):
    await create(client)
    error = await refused(create(client))
    assert isinstance(error, errors.TopicAlreadyExistsError)
    assert error.topic == "orders"


async def test_a_topic_that_another_node_has_just_created(node, client):
    await create(client)
    known, node.metadata.topic = node.metadata.topic, lambda name: None
    error = await refused(create(client))
    node.metadata.topic = known
    assert isinstance(error, errors.TopicAlreadyExistsError), "decided where it is applied"
    assert error.topic == "orders"


async def test_larger_batches_than_the_nodes_take(client, node):
    node.config = Node("--max-batch-bytes", str(MIB)).config
    assert (await create(client)).topic.config.max_batch_bytes == MIB
    config = cpb.TopicConfig(max_batch_bytes=MIB + 1)
    error = await refused(create(client, "big", config=config))
    assert error.field == "max_batch_bytes"
    request = cpb.AlterTopicRequest(name="orders", config=config)
    assert (await refused(client.cluster.AlterTopic(request))).field == "max_batch_bytes"


async def test_nodes_that_have_not_joined_are_waited_for_by_the_client(client, node):
    node.metadata.replace(None, 0)
    node.register(1, 3)
    error = await refused(create(client))
    assert isinstance(error, errors.NotReadyError)
    assert "not joined yet: 2" in error.message


async def test_a_topic_needs_a_living_majority(client, node):
    node.dead = {2}
    topic = (await create(client)).topic
    assert all(p.replicas[0] != 2 for p in topic.partitions)
    node.dead = {2, 3}
    error = await refused(create(client, "more"))
    assert isinstance(error, errors.NotReadyError)
    assert "3 need 2 living nodes, node 1 hears 1" in error.message


async def test_a_topic_without_leaders_in_time_says_that_it_exists(client, node):
    node.has_leaders = False
    error = await refused(create(client, partitions=3))
    assert isinstance(error, errors.RequestTimeoutError)
    assert "'orders' is created, but these partitions have no leader yet: 2" in error.message


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (NotReadyError("no leader"), errors.NotReadyError),
        (ProposalTimeoutError("slow"), errors.RequestTimeoutError),
        (ZeroDivisionError("oops"), errors.InternalError),
    ],
)
async def test_faults_of_the_node_are_told_apart(client, node, fault, kind, caplog):
    node.proposal_error = fault
    error = await refused(create(client))
    assert type(error) is kind
    assert ("oops" in caplog.text) == (kind is errors.InternalError)
    assert "oops" not in error.message, "a traceback is for the node's log"


async def test_describe_topics(client, node):
    for name in ("b", "a"):
        await create(client, name, partitions=1)
    group_id = node.metadata.group_of("a", 0)
    node.replicas[group_id] = Replica()
    answer = await client.cluster.DescribeTopics(cpb.DescribeTopicsRequest())
    assert [topic.name for topic in answer.topics] == ["a", "b"]
    assert [node.address for node in answer.nodes] == ["public1:1", "public2:1", "public3:1"]
    partition = answer.topics[0].partitions[0]
    assert (partition.log_start_offset, partition.high_watermark) == (2, 7)
    request = cpb.DescribeTopicsRequest(names=["b", "b"])
    answer = await client.cluster.DescribeTopics(request)
    assert [topic.name for topic in answer.topics] == ["b"]
    request = cpb.DescribeTopicsRequest(names=["b", "nope"])
    error = await refused(client.cluster.DescribeTopics(request))
    assert isinstance(error, errors.UnknownTopicOrPartitionError)
    assert error.topic == "nope"


async def test_a_node_that_hears_no_controller_does_not_deny_a_topic(client, node):
    """The node may be behind: it has just started, and the topic may be known everywhere else."""
    request = cpb.DescribeTopicsRequest(names=["orders"])
    assert isinstance(
        await refused(client.cluster.DescribeTopics(request)), errors.UnknownTopicOrPartitionError
    )
    node.controller_id = 0
    assert isinstance(await refused(client.cluster.DescribeTopics(request)), errors.NotReadyError)
    node.controller_id = 2
    await create(client)
    node.controller_id = 0
    (topic,) = (await client.cluster.DescribeTopics(request)).topics
    assert topic.name == "orders", "what it knows it tells"


async def test_alter_and_delete(client, node):
    await create(client)
    config = cpb.TopicConfig(retention_bytes=99)
    request = cpb.AlterTopicRequest(name="orders", config=config)
    answer = await client.cluster.AlterTopic(request)
    assert answer.topic.config.retention_bytes == 99
    request = cpb.AlterTopicRequest(name="orders", config=cpb.TopicConfig(retention_bytes=-9))
    assert (await refused(client.cluster.AlterTopic(request))).field == "retention_bytes"
    await client.cluster.DeleteTopic(cpb.DeleteTopicRequest(name="orders"))
    assert node.metadata.topic("orders") is None
    for call in (
        client.cluster.DeleteTopic(cpb.DeleteTopicRequest(name="orders")),
        client.cluster.AlterTopic(cpb.AlterTopicRequest(name="orders")),
    ):
        assert isinstance(await refused(call), errors.UnknownTopicOrPartitionError)


async def test_a_leader_that_is_away_is_not_named(client, node):
    await create(client, partitions=3)
    node.dead = {3}
    answer = await client.cluster.DescribeTopics(cpb.DescribeTopicsRequest(names=["orders"]))
    assert [p.leader_id for p in answer.topics[0].partitions] == [1, 2, 0]
    assert {p.term for p in answer.topics[0].partitions} == {4}


async def test_describe_cluster_counts_what_is_wrong(client, node):
    await create(client, partitions=4)
    node.leaders[node.metadata.group_of("orders", 3)] = 0
    node.dead, node.wrong_clocks = {3}, {2}
    answer = await client.cluster.DescribeCluster(cpb.DescribeClusterRequest())
    assert (answer.cluster_id, answer.answering_node_id) == ("oncelog", 1)
    assert answer.controller_id == 2
    assert [(n.node_id, n.address, n.alive) for n in answer.nodes] == [
        (1, "public1:1", True),
        (2, "public2:1", True),
        (3, "public3:1", False),
    ]
    assert [n.node_id for n in answer.nodes if n.clock_disagrees] == [2]
    assert [n.node_id for n in answer.nodes if n.insecure] == [3]
    assert (answer.topics, answer.partitions) == (1, 4)
    assert answer.leaderless_partitions == 2, "one has none, and that of another is away"
    assert answer.under_replicated_partitions == 4
    assert answer.max_message_bytes == 65 * MIB
    assert answer.limits == cpb.RequestLimits(
        produce_batches=20_000,
        fetch_partitions=1000,
        fetch_wait_ms=60_000,
        producer_partitions=20_000,
        produce_timeout_ms=10_000,
        stream_waiting_bytes=64 * MIB,
        fetch_bytes=4 * MIB,
        message_bytes=69 * MIB,
    )


async def test_what_is_far_behind_is_under_replicated_if_leaders_are_asked(client, node):
    await create(client, partitions=4)
    node.lags = {(node.metadata.group_of("orders", number), 3): 2000 for number in (1, 2)}
    for asked, count in ((True, 2), (False, 0)):
        request = cpb.DescribeClusterRequest(ask_leaders=asked)
        answer = await client.cluster.DescribeCluster(request)
        assert answer.under_replicated_partitions == count
    status = {
        one.node_id: one for one in (await client.cluster.ListNodes(cpb.ListNodesRequest())).nodes
    }
    assert list(status[3].waits_for) == [
        f"orders-{number}: its replica is 2000 entries behind" for number in (1, 2)
    ]
    assert not status[2].waits_for


async def test_describe_cluster_shows_nodes_that_have_not_joined(client, node):
    node.metadata.replace(None, 0)
    node.register(1)
    answer = await client.cluster.DescribeCluster(cpb.DescribeClusterRequest())
    assert [(n.node_id, n.address) for n in answer.nodes] == [(1, "public1:1"), (2, ""), (3, "")]


async def test_transfer_leadership(client, node):
    await create(client, partitions=2, replicas=2)
    topic = node.metadata.topic("orders")
    group_id = topic.partitions[0].group_id
    node.leaders[group_id] = 1

    async def transfer(**fields: Any) -> Any:
        request = cpb.TransferLeadershipRequest(topic="orders", **fields)
        return await client.cluster.TransferLeadership(request)

    follower = next(n for n in topic.partitions[0].replicas if n != 1)
    outsider = next(n for n in (2, 3) if n not in topic.partitions[0].replicas)
    assert (await transfer(target_node_id=follower)).leader_id == follower
    assert (await transfer()).leader_id == 3
    assert (await transfer(target_node_id=1)).leader_id == 1
    assert node.transferred == [(group_id, follower), (group_id, 0)], "it leads already"
    error = await refused(transfer(target_node_id=outsider))
    assert error.field == "target_node_id"
    for partition in (2, -1):
        error = await refused(transfer(partition=partition))
        assert isinstance(error, errors.UnknownTopicOrPartitionError)
        assert error.partition == partition
    node.leaders[group_id] = follower
    error = await refused(transfer())
    assert isinstance(error, errors.NotLeaderError)
    assert error.leader_id == follower
    assert error.leader_address == f"public{follower}:1"


# --- upgrades -----------------------------------------------------------------------------


async def test_an_upgrade_is_shown_and_finalized(node, client):
    facts = await client.cluster.DescribeCluster(cpb.DescribeClusterRequest())
    newest = THIS_RELEASE.versions.newest
    assert (facts.upgrade.cluster_version, facts.upgrade.target_version) == (1, newest)
    assert {info.release for info in facts.nodes} == {THIS_RELEASE.name}
    assert {info.newest_cluster_version for info in facts.nodes} == {newest}
    assert not facts.upgrade.hindered_by
    for _ in range(2):  # again changes nothing
        done = await client.cluster.FinalizeUpgrade(cpb.FinalizeUpgradeRequest())
        assert done.upgrade.cluster_version == done.upgrade.target_version == newest
    assert node.metadata.finalized.version == newest
    assert node.proposed == 1


async def test_an_upgrade_that_is_hindered_names_the_nodes(node, client):
    node.releases |= {2: Release(), 3: None}
    error = await refused(client.cluster.FinalizeUpgrade(cpb.FinalizeUpgradeRequest()))
    assert isinstance(error, errors.NotSupportedError)
    assert "node 2: a release from before cluster versions" in error.message
    assert "node 3 is unreachable" in error.message
    assert node.proposed == 0
    facts = await client.cluster.DescribeCluster(cpb.DescribeClusterRequest())
    assert len(facts.upgrade.hindered_by) == 2
    assert [info.newest_cluster_version for info in facts.nodes] == [3, 1, 0]


async def test_before_the_upgrade_the_log_has_no_field_of_a_feature_that_is_off(node, client):
    """Even with its default's value it would stop the metadata of each older release."""
    given = cpb.TopicConfig(
        retention_ms=5000,
        formats=cpb.TOPIC_FORMATS_COLUMNAR,
        cleanup_policy=cpb.CLEANUP_POLICY_DELETE,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=-1,
        delete_retention_ms=86_400_000,
        min_cleanable_dirty_ratio=0.5,
    )
    logged = []

    async def propose(command, timeout):
        logged.append(command)
        return await Node.propose_metadata(node, command, timeout)

    node.propose_metadata = propose
    await create(client, config=given)
    await client.cluster.AlterTopic(cpb.AlterTopicRequest(name="orders", config=given))
    made, altered = logged[0].create_topic.config, logged[1].alter_topic.config
    assert [one.name for one, _ in made.ListFields()] == ["retention_ms", "max_batch_bytes"]
    assert [one.name for one, _ in altered.ListFields()] == ["retention_ms"]
    given.cleanup_policy = cpb.CLEANUP_POLICY_COMPACT
    request = cpb.AlterTopicRequest(name="orders", config=given)
    error = await refused(client.cluster.AlterTopic(request))
    assert isinstance(error, errors.NotSupportedError) and len(logged) == 2
