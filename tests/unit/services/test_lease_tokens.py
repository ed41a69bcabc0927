"""Leased producer ids: tokens, and a node's answer to a chain without a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.dedup.verdict import Kind
from cluster.metadata.lease_tokens import SECRET_BYTES, proves, sign
from cluster.metadata.state import MetadataState
from cluster.security.caller import CALLER, Caller
from cluster.services.log.lease_checks import Leases
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import producer_pb2 as ppb
from oncelog.v1.batch_pb2 import Batch, TopicPartition
from tests.unit import small_node
from tests.unit.pages.test_protocol_page import PAGE
from tests.unit.services.log_rig import PAYLOAD, SECRET, TOPIC, LogNode, header
from tests.unit.small_node import Client

OTHER = bytes(reversed(SECRET))


def create(secret: bytes) -> meta.MetadataCommand:
    return meta.MetadataCommand(create_lease_secret=meta.CreateLeaseSecret(secret=secret))


# -- tokens ---------------------------------------------------------------------------------


def test_the_vector_of_the_page():
    token = sign(bytes(range(32)), 7, 2, 1_700_000_000_000).hex()
    assert f"    {token[:42]}\n    {token[42:]}\n" in PAGE


def test_a_token_proves_its_lease_and_no_other():
    token = sign(SECRET, 7, 2, 99)
    assert proves(SECRET, token, 7, 2)
    for producer_id, epoch in ((8, 2), (7, 3), (7, 1), (2, 7), (-7, 2), (1 << 62, 2)):
        assert not proves(SECRET, token, producer_id, epoch)
    assert not proves(OTHER, token, 7, 2)
    assert not proves(b"", token, 7, 2)
    for n in range(len(token)):
        assert not proves(SECRET, token[:n], 7, 2)
        flipped = bytearray(token)
        flipped[n] ^= 1
        assert not proves(SECRET, bytes(flipped), 7, 2)
    assert not proves(SECRET, token + b"\0", 7, 2)


def test_the_first_secret_stays_and_is_part_of_the_state():
    state = MetadataState()
    short = meta.MetadataResult.FromString(state.apply(1, create(b"x").SerializeToString()))
    assert (short.error, state.lease_secret) == ("INVALID_REQUEST", b"")
    for index, secret in ((2, SECRET), (3, OTHER)):
        result = state.apply(index, create(secret).SerializeToString())
        assert not meta.MetadataResult.FromString(result).error
        assert state.lease_secret == SECRET
    copy = MetadataState()
    copy.load(state.dump(), 3)
    assert copy.lease_secret == SECRET
    assert copy.dump() == state.dump()


# -- batches --------------------------------------------------------------------------------


async def produce(node: LogNode, token: bytes, pid: int, **fields: Any) -> Any:
    answers: list[Any] = []
    batch = Batch(header=header(producer_id=pid, **fields), payload=PAYLOAD, lease_token=token)
    await node.appender.append(batch, PAYLOAD, answers.append)
    (answer,) = answers
    return answer.verdict


async def test_an_id_that_nobody_leased_yet_cannot_be_used_up():
    """Before, this was APPENDED, and the owner's same bytes DUPLICATE: acknowledged, not stored."""
    node = LogNode()
    assert node.metadata.is_issued(2), "it is in the block of which 1 was leased"
    for forged in (b"", sign(SECRET, 1, 0, 9), sign(OTHER, 2, 0, 9), b"x" * 37):
        verdict = await produce(node, forged, 2)
        assert verdict.kind is Kind.UNKNOWN_PRODUCER
        assert verdict.message.startswith("lease_token")
    owners = await produce(node, sign(SECRET, 2, 0, 9), 2)
    assert (owners.kind, owners.base_offset) == (Kind.APPENDED, 0)


async def test_an_epoch_that_nobody_leased_fences_nobody():
    node = LogNode()
    token = sign(SECRET, 1, 0, 9)
    assert (await produce(node, token, 1)).kind is Kind.APPENDED
    assert (await produce(node, token, 1, epoch=1)).kind is Kind.UNKNOWN_PRODUCER
    assert (await produce(node, b"", 1, base_sequence=1)).kind is Kind.APPENDED


async def test_only_the_first_batch_of_a_chain_needs_the_token():
    node = LogNode()
    assert (await produce(node, sign(SECRET, 1, 0, 9), 1)).kind is Kind.APPENDED
    for sequence in range(1, 4):
        verdict = await produce(node, b"", 1, base_sequence=sequence)
        assert verdict.kind is Kind.APPENDED
    assert (await produce(node, b"", 0)).kind is Kind.APPENDED, "without idempotence"
    later = await produce(node, b"", 2, base_sequence=5)
    assert later.kind is Kind.UNKNOWN_PRODUCER, "the partition's own no"


# -- a node that is behind ------------------------------------------------------------------


class Behind(LogNode):
    """Its metadata learns of the ids from 1000 on with the next round, once that is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds, self.asked, self.go = 0, asyncio.Event(), asyncio.Event()

    async def propose_metadata(self, command: meta.MetadataCommand, timeout: float) -> Any:
        self.rounds += 1
        self.asked.set()
        await self.go.wait()
        ids = meta.AllocateProducerIds(node_id=2, count=10_000)
        return self.apply(meta.MetadataCommand(allocate_producer_ids=ids))


async def test_all_who_are_ahead_of_a_node_share_one_round():
    node = Behind()
    leases = Leases(node)
    asked = [asyncio.create_task(leases.check(sign(SECRET, pid, 0, 9), pid, 0))
             for pid in range(1000, 1100)]  # fmt: skip
    await node.asked.wait()
    # Later callers cannot rely on the round in progress.
    late = [asyncio.create_task(leases.is_issued(50_000)) for _ in range(50)]
    await asyncio.sleep(0)
    node.go.set()
    assert await asyncio.gather(*asked) == [None] * 100
    assert not any(await asyncio.gather(*late))
    assert node.rounds == 2


async def test_wrong_ids_ask_nobody():
    node = Behind()
    for pid in range(1000, 1100):
        assert (await produce(node, b"", pid)).kind is Kind.UNKNOWN_PRODUCER
        assert (await produce(node, sign(OTHER, pid, 0, 9), pid)).kind is Kind.UNKNOWN_PRODUCER
    assert node.rounds == 0


async def test_a_node_that_stays_behind_is_not_ready_and_waits_once(monkeypatch):
    """A stream with many partitions would otherwise wait for each of them."""
    monkeypatch.setattr("cluster.services.log.lease_checks.CATCH_UP", 0.5)
    node, loop = Behind(), asyncio.get_running_loop()
    started = loop.time()
    for pid in range(1000, 1100):
        verdict = await produce(node, sign(SECRET, pid, 0, 9), pid)
        assert verdict.kind is Kind.NOT_READY
    assert loop.time() - started < 5, "not 50"
    assert node.rounds == 1
    assert (await produce(node, sign(SECRET, 1, 0, 9), 1)).kind is Kind.APPENDED


# -- leases and opens over gRPC -------------------------------------------------------------


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with small_node.serving(small_node.registered()) as client:
        yield client


async def lines(client: Client, **fields: Any) -> Any:
    partition = TopicPartition(topic=TOPIC, partition=0)
    request = ppb.OpenProducerRequest(partitions=[partition], **fields)
    return (await client.producer.OpenProducer(request)).partitions[0]


async def test_leases_come_with_tokens_and_opens_need_them(client):
    one = await client.producer.LeaseProducer(ppb.LeaseProducerRequest())
    two = await client.producer.LeaseProducer(ppb.LeaseProducerRequest(producer_name="n"))
    assert one.lease_token != two.lease_token
    for lease in (one, two):
        line = await lines(client, producer_id=lease.producer_id, lease_token=lease.lease_token)
        assert line.error == "UNKNOWN_TOPIC_OR_PARTITION", "it came past the token"
    for pid, epoch, token in (
        (one.producer_id, 0, b""),
        (one.producer_id + 1, 0, one.lease_token),
        (two.producer_id, 1, two.lease_token),
    ):
        line = await lines(client, producer_id=pid, epoch=epoch, lease_token=token)
        assert line.error == "UNKNOWN_PRODUCER"
        assert line.message.startswith("lease_token")


async def test_the_secret_is_made_once_and_is_random():
    node = small_node.registered()
    async with small_node.serving(node) as client:
        await client.producer.LeaseProducer(ppb.LeaseProducerRequest())
        secret = node.metadata.lease_secret
        await client.producer.LeaseProducer(ppb.LeaseProducerRequest())
    assert node.metadata.lease_secret == secret
    assert len(secret) == SECRET_BYTES
    assert node.nonce == SECRET_BYTES // 8, "each part was drawn"


# -- owners ---------------------------------------------------------------------------------


def test_a_token_is_its_principals_and_nobody_elses():
    token = sign(SECRET, 7, 2, 99, "dns:alice")
    assert proves(SECRET, token, 7, 2, "dns:alice")
    for other in ("dns:bob", "dns:alic", "dns:alice ", "jwt:alice", ""):
        assert not proves(SECRET, token, 7, 2, other), other
    # A bound token and an unbound one do not replace each other, with either version byte.
    anybodys = sign(SECRET, 7, 2, 99)
    assert not proves(SECRET, anybodys, 7, 2, "dns:alice")
    assert not proves(SECRET, bytes([1]) + token[1:], 7, 2)
    assert not proves(SECRET, bytes([2]) + anybodys[1:], 7, 2, "dns:alice")


async def as_principal(who: str, node: LogNode, **fields: Any) -> Kind:
    """The verdict on a batch that this caller sends with Alice's token."""

    def sent() -> Any:
        CALLER.set(Caller(who))
        wanted = header(producer_id=7, epoch=0, **fields)
        token = sign(SECRET, 7, 0, 1, "dns:alice")
        return Batch(header=wanted, payload=PAYLOAD, lease_token=token)

    async def append() -> Kind:
        answers: list[Any] = []
        batch = sent()
        await node.appender.append(batch, PAYLOAD, answers.append)
        return Kind(answers[0].verdict.kind)

    return await asyncio.create_task(append())


async def test_nobody_writes_under_somebody_elses_id():
    """Refuses the first batch of a chain, and one in its middle."""
    node = LogNode()
    assert await as_principal("dns:bob", node, base_sequence=0) is Kind.UNKNOWN_PRODUCER
    assert await as_principal("dns:alice", node, base_sequence=0) is Kind.APPENDED
    assert await as_principal("dns:bob", node, base_sequence=1) is Kind.UNKNOWN_PRODUCER
    assert await as_principal("dns:alice", node, base_sequence=1) is Kind.APPENDED
    # Without identities, any caller that knows the epoch goes on: the attack.
    assert await as_principal("", node, base_sequence=2) is Kind.APPENDED
