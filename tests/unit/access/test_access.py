"""Callers without gRPC: the gate, memory and pace of a small protocol, and the services behind.

The protocol is the smallest one: a request, its caller, the result or the error. Another protocol
beside gRPC has no more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.access import memory as access_memory
from cluster.access import quotas as access_quotas
from cluster.access.budget import Budget
from cluster.access.gate import NOBODY_MAY, Gate
from cluster.access.quotas import MAX_DELAY, Pace
from cluster.dedup.verdict import Kind
from cluster.entries import unpack_batch
from cluster.errors import FeatureOffError, NotLeaderError
from cluster.partition.replica import Answer, AppendRequest
from cluster.security.audit import Audit
from cluster.security.caller import CALLER, Caller
from cluster.security.identities import Identities
from cluster.security.permissions import Authorizer, Need, Rule, tidy
from cluster.security.quotas import (
    IN_BYTES,
    OUT_BYTES,
    PRODUCERS,
    REQUESTS,
    ExceededError,
    QuotaRow,
    Quotas,
)
from cluster.security.tokens import StaticTokens
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.security_service import SecurityService
from cluster.services.errors import ON_PURPOSE, to_public
from cluster.services.log.fetch import Reader
from cluster.services.log.produce import Appender, meta_of
from cluster.services.log.resolve import Resolver
from cluster.services.log.service import LogService
from oncelog import errors
from oncelog.v1 import cluster_pb2, log_pb2, security_pb2
from tests.unit.services.log_rig import PAYLOAD, TOPIC, LogNode, batch, fetch, header

WRITE = (Need("write", "topic", TOPIC),)
CREATE = (Need("create", "topic", "new"),)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Guarded:
    """A gate with one person, alice; its rules, quotas and clock are the test's."""

    def __init__(self, directory: Path) -> None:
        digest = hashlib.scrypt(b"secret", salt=b"s" * 16, n=4096, r=8, p=1, dklen=32).hex()
        tokens = directory / "tokens"
        tokens.write_text(f"alice scrypt:4096:8:1:{(b's' * 16).hex()}:{digest}\n")
        self.file, self.clock = directory / "audit", Clock()
        self.audit = Audit(self.file, 1)
        self.rules: tuple[Rule, ...] = ()
        self.rows: tuple[QuotaRow, ...] = ()
        self.quotas = Quotas(lambda: self.rows, self.clock, lambda _: True)
        permissions = Authorizer(lambda: self.rules)
        identities = Identities(StaticTokens(tokens), None)
        self.gate = Gate(identities, permissions, self.audit, self.quotas, self.clock)

    async def alice(self) -> Caller:
        return await self.gate.caller("Produce", "host:1", "Bearer oncelog.alice.secret", b"")

    def allow(self, operation: str, name: str) -> None:
        rule = tidy(Rule("token:alice", "topic", name, (operation,)))
        self.rules = (*self.rules, rule)

    def noted(self) -> list[dict[str, Any]]:
        self.audit.close()
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


# --- the gate -----------------------------------------------------------------------------


async def test_a_caller_has_a_principal_its_address_and_its_quotas(guarded: Guarded) -> None:
    caller = await guarded.alice()
    assert (caller.principal, caller.address, caller.client) == (
        "token:alice",
        "host:1",
        "token:alice",
    )
    assert caller.usage is guarded.quotas.usage("token:alice")
    open_gate = Gate(None, None, None)
    stranger = await open_gate.caller("Produce", "host:2", "", b"")
    assert (stranger.principal, stranger.usage, stranger.client) == ("", None, "host:2")
    open_gate.admit("Produce", stranger, WRITE)


async def test_an_unknown_caller_is_refused_and_noted(guarded: Guarded) -> None:
    with pytest.raises(errors.UnauthenticatedError, match="the token is not known"):
        await guarded.gate.caller("Produce", "host:1", "Bearer oncelog.bob.secret", b"")
    (line,) = guarded.noted()
    assert (line["method"], line["principal"], line["from"]) == ("Produce", "", "host:1")
    assert line["result"] == "UNAUTHENTICATED"


async def test_a_request_is_admitted_by_its_needs(guarded: Guarded) -> None:
    caller, gate = await guarded.alice(), guarded.gate
    with pytest.raises(errors.NotAuthorizedError) as refused:
        gate.admit("Produce", caller, WRITE)
    assert (refused.value.operation, refused.value.name) == ("write", TOPIC)
    with pytest.raises(errors.NotAuthorizedError, match="Surprise is for nobody"):
        gate.admit("Surprise", caller, NOBODY_MAY)
    guarded.allow("write", TOPIC)
    gate.admit("Produce", caller, WRITE)
    gate.ended("Produce", caller, WRITE, "ok")
    guarded.allow("create", "new")
    gate.admit("CreateTopic", caller, CREATE)
    gate.ended("CreateTopic", caller, CREATE, "ok")
    assert [(line["method"], line["result"]) for line in guarded.noted()] == [
        ("Produce", "NOT_AUTHORIZED"),
        ("Surprise", "NOT_AUTHORIZED"),
        ("CreateTopic", "ok"),
    ]


async def test_a_connection_goes_on_until_a_right_or_its_proof_is_over(guarded: Guarded) -> None:
    known, gate = await guarded.alice(), guarded.gate
    caller = Caller(known.principal, guarded.clock.now + 10, known.address)
    guarded.allow("write", TOPIC)
    gate.go_on("Produce", caller, WRITE)
    guarded.rules = ()
    with pytest.raises(errors.NotAuthorizedError):
        gate.go_on("Produce", caller, WRITE)
    guarded.allow("write", TOPIC)
    guarded.clock.now += 10
    with pytest.raises(errors.NotReadyError, match="open the stream anew"):
        gate.go_on("Produce", caller, WRITE)
    with pytest.raises(errors.UnauthenticatedError):
        gate.admit("Produce", caller, WRITE)


# --- memory and pace ----------------------------------------------------------------------


async def test_a_call_counts_until_its_client_has_the_answer() -> None:
    memory = Budget(limit=10 * access_memory.CALL_BYTES, slow=9 * access_memory.CALL_BYTES)
    account = memory.open("a call", "host:1")
    assert access_memory.has_room(memory)
    account.take(access_memory.CALL_BYTES)
    access_memory.received(memory, account, 100)
    access_memory.answered(account, 1000)
    assert memory.used == access_memory.CALL_BYTES + 2 * 1100
    assert account.blocked_since is not None
    with pytest.raises(errors.ThrottledError, match="client_memory_bytes"):
        access_memory.received(memory, account, memory.limit)
    assert not access_memory.has_room(memory)
    memory.close("a call")
    assert memory.used == 0


class Frame(bytes):
    def ByteSize(self) -> int:
        return len(self)


async def test_a_request_waits_for_its_rate_or_is_refused_with_the_wait(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        guarded.clock.now += seconds
        await asyncio.sleep(0)

    monkeypatch.setattr(access_quotas, "asyncio", SimpleNamespace(sleep=sleep))
    guarded.rows = (QuotaRow("token:alice", IN_BYTES, 128), QuotaRow("token:alice", OUT_BYTES, 10))
    usage, pace = (await guarded.alice()).usage, Pace((REQUESTS, IN_BYTES))
    assert usage is not None
    await pace.admit(usage, Frame(b"x" * 192))
    await pace.admit(usage, Frame(b"x" * 640))
    assert waits == [0.5]
    with pytest.raises(ExceededError) as refused:
        await pace.admit(usage, Frame(b"x"))
    assert access_quotas.throttled(refused.value).retry_after_ms == 5000 > MAX_DELAY * 1000
    pace.answered(usage, b"x" * 30)  # its rate delays no writer
    guarded.clock.now += 64

    async def frames() -> AsyncIterator[Frame]:
        yield Frame(b"x" * 384)
        yield Frame(b"x")

    assert [len(frame) async for frame in pace.messages(usage, frames())] == [384, 1]
    assert waits[1:] == [1.0, 1.0, 1 / 128]


# --- the services -------------------------------------------------------------------------


async def call(caller: Caller, method: Any, request: Any, node: LogNode) -> Any:
    """The whole protocol: a task of its own for each call. Raises the public errors."""

    async def answer() -> Any:
        CALLER.set(caller)
        try:
            return await method(request)
        except ON_PURPOSE as error:
            raise to_public(error, node.metadata.nodes) from error

    return await asyncio.create_task(answer())


async def test_a_topic_is_made_and_refused_without_grpc() -> None:
    node, caller = LogNode(), Caller(address="host:1")
    service = ClusterService(node)
    request = cluster_pb2.CreateTopicRequest(name="new", partitions=2)
    made = await call(caller, service.CreateTopic, request, node)
    assert len(made.topic.partitions) == 2
    with pytest.raises(errors.TopicAlreadyExistsError):
        await call(caller, service.CreateTopic, request, node)
    invalid = cluster_pb2.CreateTopicRequest(name="a/b")
    with pytest.raises(errors.InvalidRequestError) as refused:
        await call(caller, service.CreateTopic, invalid, node)
    assert refused.value.field == "name"


async def test_who_calls_is_the_caller_of_the_task(guarded: Guarded) -> None:
    node = LogNode()
    service, request = SecurityService(node, None), security_pb2.ListPermissionsRequest()
    listed = await call(await guarded.alice(), service.ListPermissions, request, node)
    assert listed.caller == "token:alice"


async def test_batches_are_written_and_read_without_grpc() -> None:
    node, caller = LogNode(), Caller(address="host:1")
    service = LogService(node)
    request = log_pb2.ProduceRequest(batches=[batch(), batch(crc32c=1)])
    answer = await call(caller, service.Produce, request, node)
    assert [result.verdict for result in answer.results] == [Kind.APPENDED, Kind.INVALID_BATCH]
    fetched = await call(caller, service.Fetch, fetch(), node)
    (part,) = log_pb2.FetchResponse.FromString(fetched).partitions
    assert [one.payload for one in part.batches] == [PAYLOAD]
    with pytest.raises(errors.InvalidRequestError, match="partitions"):
        await call(caller, service.Fetch, log_pb2.FetchRequest(), node)


async def test_a_batch_of_another_form_is_taken_as_it_is() -> None:
    """Another protocol checks form and producer itself, and reads what is stored, not its bytes."""
    node = LogNode()
    appender, answers = Appender(node, Resolver(node)), list[Answer]()
    payload = b"not of this protocol"
    request = AppendRequest(meta_of(header(payload)), 2, 0, 0, payload)
    await appender.take(node.part, request, answers.append)
    assert [one.verdict.kind for one in answers] == [Kind.APPENDED]
    assert unpack_batch(node.log.entries[-1]).record_count == 1
    (section,) = await Reader(node).sections(fetch())
    assert [bytes(payload) for _, payload in section.batches] == [payload]
    node.leaders.clear()
    (section,) = await Reader(node).sections(fetch())
    assert section.records.error == log_pb2.PARTITION_ERROR_NOT_LEADER


async def test_a_quota_of_producer_ids_holds_for_any_protocol(guarded: Guarded) -> None:
    guarded.rows = (QuotaRow("token:alice", PRODUCERS, 1),)
    node, caller = LogNode(), await guarded.alice()
    service, kinds = LogService(node), list[int]()
    for producer_id in (1, 2):
        sent = node.batch(header(producer_id=producer_id, prev_sequence=-1), PAYLOAD, caller)
        request = log_pb2.ProduceRequest(batches=[sent])
        answer = await call(caller, service.Produce, request, node)
        kinds += [result.verdict for result in answer.results]
    assert kinds == [Kind.APPENDED, Kind.THROTTLED]


def test_faults_of_the_node_have_public_forms() -> None:
    moved = to_public(NotLeaderError("not here", 3), {3: "host3:1"})
    assert isinstance(moved, errors.NotLeaderError) and moved.leader_address == "host3:1"
    assert isinstance(to_public(FeatureOffError("later"), {}), errors.NotSupportedError)
