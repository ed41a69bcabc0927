"""ProducerService over real gRPC, behind it a real MetadataState."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from cluster.dedup.verdict import BatchMeta
from cluster.v1 import metadata_pb2 as meta
from oncelog import errors
from oncelog.v1 import producer_pb2 as ppb
from oncelog.v1.batch_pb2 import TopicPartition
from tests.unit.small_node import (
    LIFETIME,
    Client,
    Group,
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
    assert node.proposed == 2, "the secret, and the block"
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
