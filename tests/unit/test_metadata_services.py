"""ClusterService and ProducerService over real gRPC, behind them a real MetadataState.

The node around them is a small one that applies commands at once; what other
nodes are up to (who leads, who lives) is set by the test. The same services in
real nodes are tested in tests/integration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from cluster.config import MIB, NodeConfig
from cluster.errors import NotReadyError, ProposalTimeoutError
from cluster.last_seen import LastSeen
from cluster.metadata import MetadataState
from cluster.metrics import Metrics
from cluster.producer_ids import ProducerIdBlocks
from cluster.producers import BatchMeta
from cluster.services.cluster_service import ClusterService
from cluster.services.producer_service import ProducerService
from cluster.v1 import metadata_pb2 as meta
from oncelog import errors
from oncelog.v1 import cluster_pb2 as cpb
from oncelog.v1 import cluster_pb2_grpc, producer_pb2_grpc
from oncelog.v1 import producer_pb2 as ppb
from oncelog.v1.batch_pb2 import TopicPartition
from oncelog.wire.status import from_rpc_error

NODES = "1=host1:1,2=host2:1,3=host3:1"
LIFETIME = 10_000


@dataclass
class Group:
    is_ready: bool = True


@dataclass
class Replica:
    high_watermark: int = 7
    log_start_offset: int = 2
    last_seen: LastSeen = field(default_factory=LastSeen)
    group: Group | None = field(default_factory=Group)


class Node:
    """Node 1 of three: `services.context.NodeContext`."""

    def __init__(self, *flags: str) -> None:
        self.config = NodeConfig.load(
            ["--nodes", NODES, "--node-id", "1", "--lease-lifetime-ms", str(LIFETIME), *flags], {}
        )
        self.metadata = MetadataState(lease_lifetime_ms=LIFETIME)
        self.metrics = Metrics()
        self.controller_id = 2
        self.now_ms = 1_000_000
        self.dead: set[int] = set()
        self.leaders: dict[int, int] = {}
        self.replicas: dict[int, Replica] = {}
        self.transferred: list[tuple[int, int]] = []
        self.proposal_error: Exception | None = None
        self.proposed = 0
        self.has_leaders = True
        self._ids = ProducerIdBlocks(self._allocate, 100, 60, lambda: self.now_ms / 1000)
        self.nonce = 0

    def apply(self, command: meta.MetadataCommand) -> meta.MetadataResult:
        command.stamp_ms = self.now_ms
        index = self.metadata.applied_index + 1
        answer = self.metadata.apply(index, command.SerializeToString())
        return meta.MetadataResult.FromString(answer)

    def register(self, *node_ids: int) -> None:
        for node_id in node_ids:
            record = meta.RegisterNode(node_id=node_id, address=f"public{node_id}:1")
            self.apply(meta.MetadataCommand(register_node=record))

    async def propose_metadata(self, command: meta.MetadataCommand, timeout: float):
        self.proposed += 1
        if self.proposal_error is not None:
            raise self.proposal_error
        result = self.apply(command)
        for topic in self.metadata.topics():
            for partition in topic.partitions:
                self.leaders.setdefault(partition.group_id, partition.replicas[0])
        return result

    async def _allocate(self) -> int:
        command = meta.AllocateProducerIds(node_id=1, count=100)
        result = await self.propose_metadata(
            meta.MetadataCommand(allocate_producer_ids=command), 1.0
        )
        return int(result.first_producer_id)

    def leader_of(self, group_id: int) -> tuple[int, int]:
        return self.leaders.get(group_id, 0), 4

    def alive(self, node_id: int) -> bool:
        return node_id not in self.dead

    def partition(self, group_id: int) -> Any:  # as much of a replica as these calls read
        return self.replicas.get(group_id)

    async def transfer_leadership(self, group_id: int, target: int) -> int:
        self.transferred.append((group_id, target))
        return target or 3

    async def confirm_issued(self, producer_id: int) -> bool:
        return self.metadata.is_issued(producer_id)

    async def next_producer_id(self) -> int:
        return await self._ids.next_id()

    async def wait_for_leaders(self, group_ids: list[int], timeout: float) -> bool:
        if not self.has_leaders:
            self.leaders.pop(group_ids[-1], None)
        return self.has_leaders

    def new_nonce(self) -> int:
        self.nonce += 1
        return self.nonce


class Client:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.cluster: Any = cluster_pb2_grpc.ClusterServiceStub(channel)
        self.producer: Any = producer_pb2_grpc.ProducerServiceStub(channel)


@pytest.fixture
def node() -> Node:
    node = Node()
    node.register(1, 2, 3)
    return node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Client]:
    server = grpc.aio.server()
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(ClusterService(node), server)
    producer_pb2_grpc.add_ProducerServiceServicer_to_server(
        ProducerService(node, now_ms=lambda: node.now_ms, new_nonce=node.new_nonce), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Client(channel)
    await server.stop(None)


async def refused(call: Awaitable[Any]) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def create(client: Client, name: str = "orders", **fields: Any) -> Awaitable[Any]:
    call: Awaitable[Any] = client.cluster.CreateTopic(cpb.CreateTopicRequest(name=name, **fields))
    return call


# --- cluster -------------------------------------------------------------------------


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
    node.metadata.clear()
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


async def test_describe_cluster_counts_what_is_wrong(client, node):
    await create(client, partitions=4)
    node.leaders[node.metadata.group_of("orders", 3)] = 0
    node.dead = {3}
    answer = await client.cluster.DescribeCluster(cpb.DescribeClusterRequest())
    assert (answer.cluster_id, answer.answering_node_id) == ("oncelog", 1)
    assert answer.controller_id == 2
    assert [(n.node_id, n.address, n.alive) for n in answer.nodes] == [
        (1, "public1:1", True),
        (2, "public2:1", True),
        (3, "public3:1", False),
    ]
    assert (answer.topics, answer.partitions) == (1, 4)
    assert answer.leaderless_partitions == 1
    assert answer.under_replicated_partitions == 4
    assert answer.max_message_bytes == 65 * MIB


async def test_describe_cluster_shows_nodes_that_have_not_joined(client, node):
    node.metadata.clear()
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


# --- producers -----------------------------------------------------------------------


def lease(client: Client, **fields: Any) -> Awaitable[Any]:
    call: Awaitable[Any] = client.producer.LeaseProducer(ppb.LeaseProducerRequest(**fields))
    return call


async def test_fresh_leases_rise_and_end_with_their_block(client, node):
    first = await lease(client)
    assert (first.producer_id, first.epoch) == (1, 0)
    assert first.expire_ms == node.now_ms + LIFETIME
    assert first.lifetime_ms == LIFETIME
    node.now_ms += 500
    second = await lease(client)
    assert second.producer_id == 2
    assert second.expire_ms == first.expire_ms, "both are of one block"
    assert second.lifetime_ms == LIFETIME - 500
    assert node.proposed == 1
    assert node.metrics.leases == 2


async def test_each_partition_gets_a_line(client, node):
    await create(client, partitions=2)
    wanted = [("orders", 1), ("orders", 2), ("nope", 0), ("orders", -1), ("orders", 0)]
    answer = await lease(
        client, partitions=[TopicPartition(topic=t, partition=p) for t, p in wanted]
    )
    assert [(p.topic, p.partition) for p in answer.partitions] == wanted
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert [p.error for p in answer.partitions] == ["", unknown, unknown, unknown, ""]
    good, bad = answer.partitions[0], answer.partitions[1]
    assert (good.producer_id, good.sequence, good.expire_ms) == (1, 0, answer.expire_ms)
    assert (bad.producer_id, bad.expire_ms) == (0, 0)


async def test_a_named_lease_raises_the_epoch(client, node):
    one = await lease(client, producer_name="etl")
    two = await lease(client, producer_name="etl")
    assert (one.producer_id, one.epoch) == (1, 0)
    assert (two.producer_id, two.epoch) == (1, 1)
    assert two.lifetime_ms == LIFETIME
    fenced = await client.producer.FenceProducer(ppb.FenceProducerRequest(producer_name="etl"))
    assert (fenced.producer_id, fenced.epoch) == (1, 2)
    answer = await client.producer.ListProducerNames(ppb.ListProducerNamesRequest())
    assert [(n.name, n.producer_id, n.epoch) for n in answer.names] == [("etl", 1, 2)]


async def test_bad_names_and_unknown_names(client, node):
    error = await refused(lease(client, producer_name="a\n"))
    assert (error.reason, error.field) == ("INVALID_REQUEST", "producer_name")
    for name, kind in (
        ("", errors.InvalidRequestError),
        ("nobody", errors.ProducerNameNotFoundError),
    ):
        request = ppb.FenceProducerRequest(producer_name=name)
        error = await refused(client.producer.FenceProducer(request))
        assert isinstance(error, kind)
    assert error.producer_name == "nobody"


async def test_a_lease_that_is_over_is_not_handed_out(client, node):
    await lease(client)
    node.now_ms += LIFETIME
    node._ids._max_age_s = 1e9
    error = await refused(lease(client))
    assert isinstance(error, errors.NotReadyError)
    node.apply(meta.MetadataCommand(lease_name=meta.LeaseName(name="forgets")))
    assert isinstance(await refused(lease(client)), errors.NotReadyError)
    assert node.metrics.leases == 1


async def test_open_producer_checks_who_asks(client):
    for pid, epoch, named in ((0, 0, "producer_id"), (-1, 0, "producer_id"), (1, -1, "epoch")):
        request = ppb.OpenProducerRequest(producer_id=pid, epoch=epoch)
        error = await refused(client.producer.OpenProducer(request))
        assert isinstance(error, errors.InvalidRequestError)
        assert error.field == named
    request = ppb.OpenProducerRequest(
        producer_id=77, partitions=[TopicPartition(topic="nope", partition=0)]
    )
    (line,) = (await client.producer.OpenProducer(request)).partitions
    assert line.error == "UNKNOWN_PRODUCER"


def describe(client: Client, **fields: Any) -> Awaitable[Any]:
    request = ppb.DescribeProducersRequest(topic="orders", **fields)
    call: Awaitable[Any] = client.producer.DescribeProducers(request)
    return call


async def test_describe_producers(client, node):
    await create(client, partitions=1)
    group_id = node.metadata.group_of("orders", 0)
    replica = node.replicas[group_id] = Replica()
    node.leaders[group_id] = 1
    for producer_id in (5, 9, 12):
        batch = BatchMeta(producer_id, 3, 0, 9, -1, 10, 77)
        replica.last_seen.record(batch, 40, 1234)
    answer = await describe(client)
    assert [p.producer_id for p in answer.producers] == [5, 9, 12]
    answer = await describe(client, after_producer_id=5, limit=1)
    assert [p.producer_id for p in answer.producers] == [9]
    (known,) = (await describe(client, producer_id=12)).producers
    assert (known.epoch, known.last_sequence, known.last_append_ms) == (3, 9, 1234)
    assert list(known.recent) == [
        ppb.RecentBatch(
            first_sequence=0, last_sequence=9, base_offset=40, record_count=10, crc32c=77
        )
    ]
    assert not (await describe(client, producer_id=6)).producers


async def test_describe_producers_goes_to_the_leader(client, node):
    await create(client, partitions=1)
    group_id = node.metadata.group_of("orders", 0)
    node.leaders[group_id] = 2
    for any_replica in (False, True):
        error = await refused(describe(client, any_replica=any_replica))
        assert isinstance(error, errors.NotLeaderError)
        assert (error.leader_id, error.leader_address) == (2, "public2:1")
    replica = node.replicas[group_id] = Replica()
    assert isinstance(await refused(describe(client)), errors.NotLeaderError)
    assert await describe(client, any_replica=True)
    node.leaders[group_id] = 1
    replica.group = Group(is_ready=False)
    assert isinstance(await refused(describe(client)), errors.NotReadyError)
    assert await describe(client, any_replica=True)


@pytest.mark.parametrize("fields", [{"limit": -1}, {"limit": 1001}, {"producer_id": -1},
                                    {"after_producer_id": -1}])  # fmt: skip
async def test_describe_producers_checks_its_numbers(client, node, fields):
    error = await refused(describe(client, **fields))
    assert error.field == next(iter(fields))
    assert isinstance(
        await refused(describe(client, partition=5)), errors.UnknownTopicOrPartitionError
    )
