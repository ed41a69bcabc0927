"""The guard before each call: each RPC of each service, each kind of caller, each stream.

A server with all services behind `Guarding`; callers are known by static tokens, which go over
plain TCP here: only a node refuses that.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

import oncelog.v1
from cluster.access.gate import Gate
from cluster.node.ports.offered import add_services
from cluster.rpc import authorization as guarded
from cluster.rpc.authorization import Guarding
from cluster.rpc.decoding import Decoding
from cluster.rpc.reflection import V1, add_reflection
from cluster.rpc.required_permissions import NEEDS, OPEN
from cluster.security import audit as audit_log
from cluster.security.audit import MAX_REFUSED, MAX_REFUSED_EACH, Audit
from cluster.security.caller import RULES_VERSION, Caller
from cluster.security.identities import Identities
from cluster.security.permissions import Authorizer, Need, Rule, tidy
from cluster.security.quotas import QuotaRow, Quotas
from cluster.security.tokens import StaticTokens
from cluster.services.groups.running_groups import GroupMembers
from oncelog import errors
from oncelog.v1 import cluster_pb2 as cpb
from oncelog.v1 import group_pb2 as gpb
from oncelog.v1 import log_pb2 as lpb
from oncelog.v1 import observe_pb2, observe_pb2_grpc
from oncelog.v1 import producer_pb2 as ppb
from oncelog.v1 import security_pb2 as spb
from oncelog.v1.batch_pb2 import Batch, BatchHeader, TopicPartition
from oncelog.wire.status import from_rpc_error
from tests.unit.services import log_rig
from tests.unit.services.log_rig import LogNode

PEOPLE = ("root", "alice", "bob")
NOBODY: tuple[tuple[str, str], ...] = ()


def services() -> list[ServiceDescriptor]:
    """All that a node offers, found in the stubs and not in a list."""
    found: list[ServiceDescriptor] = []
    for path in sorted(Path(oncelog.v1.__path__[0]).glob("*_pb2.py")):
        module = importlib.import_module(f"oncelog.v1.{path.stem}")
        found += module.DESCRIPTOR.services_by_name.values()
    found += health_pb2.DESCRIPTOR.services_by_name.values()
    found += reflection_pb2.DESCRIPTOR.services_by_name.values()
    return found


def methods() -> dict[str, Any]:
    found = {f"/{s.full_name}/{m.name}": m for s in services() for m in s.methods}
    # Its messages are v1alpha's: it has no stubs of its own.
    (reflects,) = reflection_pb2.DESCRIPTOR.services_by_name.values()
    return found | {f"/{V1}/{method.name}": method for method in reflects.methods}


def test_every_rpc_declares_what_it_needs() -> None:
    """A new one without a line in the table fails here, and is refused to everybody."""
    assert len(methods()) > 25
    assert set(NEEDS) | set(OPEN) == set(methods())
    assert not set(NEEDS) & set(OPEN)


NAMED = {"topic": "topic", "topics": "topic", "group": "group", "producer_name": "producer"}


def named(description: Any) -> list[tuple[Any, str]]:
    """(a request with one name in it, the name's kind) for each place where there may be one."""
    found: list[tuple[Any, str]] = []
    for field in description.fields:
        if field.message_type is not None:
            for inner, kind in named(field.message_type):
                request = GetMessageClass(description)()
                place = getattr(request, field.name)
                (place.add() if field.is_repeated else place).CopyFrom(inner)
                found.append((request, kind))
        elif field.name in NAMED:
            request = GetMessageClass(description)()
            if field.is_repeated:
                getattr(request, field.name).append("secret")
            else:
                setattr(request, field.name, "secret")
            found.append((request, NAMED[field.name]))
    return found


def test_every_name_in_a_request_is_looked_at() -> None:
    """Wherever a request names a topic, group or producer, it needs something of that."""
    looked_at = 0
    for method, description in methods().items():
        for request, kind in named(description.input_type):
            kinds = {need.kind for need in NEEDS[method](request) if need.name == "secret"}
            assert kind in kinds, (method, str(request))
            looked_at += 1
    assert looked_at > 25


class Guarded:
    """A server behind the guard, with rules that a test may change."""

    def __init__(self, directory: Path) -> None:
        self.node = LogNode()
        self.rules: tuple[Rule, ...] = ()
        self.now = 0.0
        path = directory / "tokens"
        path.write_text("".join(map(_line, PEOPLE)))
        self.audit_file = directory / "audit"
        self.audit = Audit(self.audit_file, 1)
        self.identities = Identities(StaticTokens(path), None)
        self.permissions = Authorizer(lambda: self.rules, ["token:root"])
        self.limits: tuple[QuotaRow, ...] = ()
        self.open_transactions: set[int] = set()
        self.quotas = Quotas(
            lambda: self.limits, time.monotonic, self.open_transactions.__contains__, ["token:root"]
        )
        self.gate = Gate(
            self.identities, self.permissions, self.audit, self.quotas, lambda: self.now,
            lambda: len(self.rules), self.node.metrics.events,
        )  # fmt: skip
        self.guarding = Guarding(self.gate)
        self.channel: Any = None

    def allow(self, who: str, operations: str, kind: str, name: str = "", **more: bool) -> None:
        rule = tidy(Rule(f"token:{who}", kind, name, tuple(operations.split(",")), **more))
        self.rules = (*self.rules, rule)

    async def call(self, method: str, who: str, request: Any = None) -> Any:
        """The first answer. Raises the error that the client gets."""
        description = methods()[method]
        request = request or GetMessageClass(description.input_type)()
        kind = "stream" if description.client_streaming else "unary"
        kind += "_stream" if description.server_streaming else "_unary"
        multi = getattr(self.channel, kind)(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=GetMessageClass(description.output_type).FromString,
        )
        metadata = header(who) if who else NOBODY
        given = iter([request]) if description.client_streaming else request
        try:
            call = multi(given, metadata=metadata, timeout=10)
            if description.server_streaming:
                return await call.read()
            return await call
        except grpc.aio.AioRpcError as error:
            known = from_rpc_error(error)
            if description.client_streaming and isinstance(known, errors.BrokerUnavailableError):
                # The write met the end of the stream: gRPC has lost the reason for the end.
                return await self.call(method, who, request)
            raise known from None

    def refusal(self, method: str, caller: Caller, request: Any) -> errors.OncelogError | None:
        return self.gate.refusal(method, caller, self.guarding.needs(method, request))

    def noted(self) -> list[dict[str, Any]]:
        self.audit.close()
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]


def _line(name: str) -> str:
    digest = hashlib.scrypt(b"secret", salt=b"s" * 16, n=4096, r=8, p=1, dklen=32)
    return f"{name} scrypt:4096:8:1:{(b's' * 16).hex()}:{digest.hex()}\n"


def header(who: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer oncelog.{who}.secret"),)


# Calls that reach it have passed the guard.
NO_TRANSACTIONS: Any = SimpleNamespace(all_runs=None)


@asynccontextmanager
async def guard(directory: Path, *, on: bool = True) -> AsyncIterator[Guarded]:
    """on: False: the same services without a guard."""
    made = Guarded(directory)
    server = grpc.aio.server(interceptors=[made.guarding, Decoding()] if on else [Decoding()])
    members = GroupMembers(made.node)
    gate = made.gate if on else None
    add_services(made.node, server, lambda: 0, gate, members, NO_TRANSACTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    add_reflection(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as made.channel:
        yield made
    await server.stop(None)
    members.close()


# Requests that every known caller may send without a rule: empty, they name nothing.
FOR_ALL_KNOWN = {
    "/oncelog.v1.ProducerService/LeaseProducer", "/oncelog.v1.ProducerService/OpenProducer",
    "/oncelog.v1.LogService/Produce", "/oncelog.v1.LogService/ProduceStream",
    "/oncelog.v1.LogService/Fetch", "/oncelog.v1.LogService/Subscribe",
    "/oncelog.v1.LogService/ListOffsets", "/oncelog.v1.ClusterService/DescribeTopics",
    "/oncelog.v1.SecurityService/CheckPermission", "/oncelog.v1.GroupService/JoinGroup",
    "/oncelog.v1.TransactionService/KeepTransactionsAlive",
    "/oncelog.v1.ObserveService/ListEvents",
}  # fmt: skip


@pytest.mark.parametrize("method", sorted(NEEDS))
async def test_each_rpc_is_refused_by_default(tmp_path: Path, method: str) -> None:
    async with guard(tmp_path) as node:
        with pytest.raises(errors.UnauthenticatedError):
            await node.call(method, "")
        with pytest.raises(errors.UnauthenticatedError, match="the token is not known"):
            await node.call(method, "mallory")
        if method in FOR_ALL_KNOWN:
            assert not list(NEEDS[method](GetMessageClass(methods()[method].input_type)()))
            return
        with pytest.raises(errors.NotAuthorizedError, match="token:bob lacks: ") as raised:
            await node.call(method, "bob")
        assert raised.value.principal == "token:bob"
        # A caller who may do everything gets as far as the service.
        try:
            await node.call(method, "root")
        except (errors.NotAuthorizedError, errors.UnauthenticatedError):
            pytest.fail("refused")
        except errors.OncelogError:
            pass  # by the service itself: the request is empty


KINDS_OF_PRINCIPAL = ("spiffe://example.org/a", "dns:a", "jwt:a", "token:a")


@pytest.mark.parametrize("principal", KINDS_OF_PRINCIPAL)
async def test_no_kind_of_principal_has_a_right_by_default(tmp_path: Path, principal: str) -> None:
    """No right comes from rules of somebody with the same name but another kind, or a longer
    name.
    """
    async with guard(tmp_path) as node:
        alike = [one for one in KINDS_OF_PRINCIPAL if one != principal]
        for other in (*alike, f"{principal}b", principal.upper(), "a", principal[:-1]):
            for kind in ("topic", "group", "producer", "sink", "cluster"):
                rule = Rule(other, kind, "" if kind == "cluster" else "*", ("*",))
                node.rules = (*node.rules, tidy(rule))
        refused = 0
        for method, description in methods().items():
            if method in OPEN:
                continue
            asked = [GetMessageClass(description.input_type)()]
            asked += [request for request, _ in named(description.input_type)]
            for request in asked:
                if list(NEEDS[method](request)):
                    error = node.refusal(method, Caller(principal), request)
                    assert isinstance(error, errors.NotAuthorizedError), (method, str(request))
                    assert error.principal == principal
                    refused += 1
        assert refused > 50


async def test_without_the_guard_anybody_is_answered(tmp_path: Path) -> None:
    async with guard(tmp_path, on=False) as node:
        assert await node.call("/oncelog.v1.ClusterService/DescribeTopics", "")
        assert await node.call("/oncelog.v1.SecurityService/ListPermissions", "mallory")


async def test_health_is_for_everybody(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        assert await node.call("/grpc.health.v1.Health/Check", "")


async def test_an_rpc_that_is_not_in_the_table_is_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = "/oncelog.v1.ClusterService/DescribeTopics"
    left = {name: needs for name, needs in NEEDS.items() if name != method}
    monkeypatch.setattr(guarded, "NEEDS", left)
    async with guard(tmp_path) as node:
        with pytest.raises(errors.NotAuthorizedError, match="is for nobody"):
            await node.call(method, "root")


TOPIC = "orders"


def produce(topic: str) -> lpb.ProduceRequest:
    return lpb.ProduceRequest(batches=[Batch(header=BatchHeader(topic=topic))])


ABOUT_A_TOPIC: dict[str, Callable[[str], Any]] = {
    "/oncelog.v1.LogService/Fetch": lambda name: lpb.FetchRequest(
        partitions=[lpb.PartitionFetch(topic=name)]
    ),
    "/oncelog.v1.LogService/Subscribe": lambda name: lpb.SubscribeRequest(
        partitions=[lpb.PartitionFetch(topic=name, offset=1)]  # missing: answered at once
    ),
    "/oncelog.v1.LogService/ListOffsets": lambda name: lpb.ListOffsetsRequest(
        queries=[lpb.OffsetQuery(topic=name)]
    ),
    "/oncelog.v1.LogService/Produce": produce,
    "/oncelog.v1.LogService/ProduceStream": produce,
    "/oncelog.v1.LogService/ResolveSequence": lambda name: lpb.ResolveSequenceRequest(topic=name),
    "/oncelog.v1.ClusterService/DescribeTopics": lambda name: cpb.DescribeTopicsRequest(
        names=[name]
    ),
    "/oncelog.v1.ProducerService/DescribeProducers": lambda name: ppb.DescribeProducersRequest(
        topic=name
    ),
    "/oncelog.v1.ClusterService/CreateTopic": lambda name: cpb.CreateTopicRequest(name=name),
    "/oncelog.v1.ClusterService/AlterTopic": lambda name: cpb.AlterTopicRequest(name=name),
    "/oncelog.v1.ClusterService/ResizeTopic": lambda name: cpb.ResizeTopicRequest(name=name),
    "/oncelog.v1.ClusterService/ReassignPartition": lambda name: cpb.ReassignPartitionRequest(
        topic=name
    ),
    "/oncelog.v1.ClusterService/DeleteTopic": lambda name: cpb.DeleteTopicRequest(name=name),
    "/oncelog.v1.ClusterService/TransferLeadership": lambda name: cpb.TransferLeadershipRequest(
        topic=name
    ),
    "/oncelog.v1.ProducerService/LeaseProducer": lambda name: ppb.LeaseProducerRequest(
        partitions=[TopicPartition(topic=name)]
    ),
    "/oncelog.v1.ProducerService/OpenProducer": lambda name: ppb.OpenProducerRequest(
        partitions=[TopicPartition(topic=name)]
    ),
    "/oncelog.v1.GroupService/CommitOffsets": lambda name: gpb.CommitOffsetsRequest(
        group="g", offsets=[gpb.OffsetCommit(topic=name)]
    ),
    "/oncelog.v1.GroupService/JoinGroup": lambda name: gpb.JoinGroupRequest(
        hello=gpb.MemberHello(group="g", topics=[name])
    ),
    "/oncelog.v1.GroupService/GroupHeartbeat": lambda name: gpb.GroupHeartbeatRequest(
        group="g",
        request=gpb.JoinGroupRequest(hello=gpb.MemberHello(group="g", topics=[name])),
    ),
    "/oncelog.v1.GroupService/FetchOffsets": lambda name: gpb.FetchOffsetsRequest(
        group="g", partitions=[TopicPartition(topic=name)]
    ),
}


@pytest.mark.parametrize("method", ABOUT_A_TOPIC)
async def test_what_exists_and_what_does_not_are_denied_alike(tmp_path: Path, method: str) -> None:
    """The rig's topic is there, "orders" is not; rules for groups and names open no topic."""
    async with guard(tmp_path) as node:
        for kind in ("group", "producer", "sink", "cluster"):
            node.allow("bob", "*", kind, "" if kind == "cluster" else "*")
        told = []
        for name in (TOPIC, log_rig.TOPIC):
            with pytest.raises(errors.NotAuthorizedError) as raised:
                await node.call(method, "bob", ABOUT_A_TOPIC[method](name))
            assert raised.value.name == name
            told.append(raised.value.message.replace(repr(name), "it"))
        assert told[0] == told[1]


@pytest.mark.parametrize("method", ABOUT_A_TOPIC)
async def test_a_denied_topic_stays_shut_whatever_else_is_allowed(
    tmp_path: Path, method: str
) -> None:
    async with guard(tmp_path) as node:
        for kind in ("topic", "group", "producer", "sink", "cluster"):
            node.allow("bob", "*", kind, "" if kind == "cluster" else "*")
        request = ABOUT_A_TOPIC[method](log_rig.TOPIC)
        try:
            await node.call(method, "bob", request)
        except errors.NotAuthorizedError:
            pytest.fail("allowed, and refused")
        except errors.OncelogError:
            pass  # by the service itself
        node.allow("bob", "*", "topic", log_rig.TOPIC, deny=True)
        with pytest.raises(errors.NotAuthorizedError):
            await node.call(method, "bob", request)


async def test_a_list_shows_what_may_be_described(tmp_path: Path) -> None:
    method = "/oncelog.v1.ClusterService/DescribeTopics"
    async with guard(tmp_path) as node:
        seen = [topic.name for topic in (await node.call(method, "root")).topics]
        assert (await node.call(method, "bob")).topics == []
        node.allow("bob", "read", "topic", log_rig.TOPIC[:2], prefix=True)
        assert [t.name for t in (await node.call(method, "bob")).topics] == seen


async def test_a_stream_ends_when_its_right_is_taken_away(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        node.allow("alice", "write", "topic", TOPIC)
        call = node.channel.stream_stream(
            "/oncelog.v1.LogService/ProduceStream",
            request_serializer=lpb.ProduceRequest.SerializeToString,
            response_deserializer=lpb.ProduceResponse.FromString,
        )(metadata=header("alice"))
        request = produce(TOPIC)
        await call.write(request)
        assert (await call.read()).results  # refused, but by the log
        node.rules = ()
        await call.write(request)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        error = from_rpc_error(raised.value)
        assert isinstance(error, errors.NotAuthorizedError)
        assert (error.operation, error.kind, error.name) == ("write", "topic", TOPIC)


async def test_what_names_nothing_goes_on_with_what_was_asked_before(tmp_path: Path) -> None:
    """A member's pings: its right to read was asked for with its hello."""
    async with guard(tmp_path) as node:
        node.allow("alice", "read", "group", "g")
        node.allow("alice", "read", "topic", TOPIC)
        method = "/oncelog.v1.GroupService/JoinGroup"
        caller = await node.identities.caller(header("alice")[0][1], b"")
        hello = gpb.JoinGroupRequest(hello=gpb.MemberHello(group="g", topics=[TOPIC]))
        ping = gpb.JoinGroupRequest(ping=gpb.MemberPing())

        async def said() -> AsyncIterator[Any]:
            yield hello
            yield ping
            node.rules = ()
            yield ping

        got = node.guarding._allowed(method, caller, said())
        assert [await anext(got), await anext(got)] == [hello, ping]
        with pytest.raises(errors.NotAuthorizedError, match="read on group 'g'"):
            await anext(got)
        pattern = gpb.JoinGroupRequest(hello=gpb.MemberHello(group="g", topics=["^ord.*"]))
        node.allow("alice", "read", "group", "g")
        node.allow("alice", "read", "topic", "ord", prefix=True)
        refused = node.refusal(method, caller, pattern)
        assert "read on topic '*'" in str(refused)


async def test_a_stream_ends_when_its_token_is_over(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        caller = await node.identities.caller(header("root")[0][1], b"")
        method = "/oncelog.v1.LogService/ProduceStream"
        short = type(caller)(caller.principal, expires=10.0)
        request = lpb.ProduceRequest()
        assert node.refusal(method, short, request) is None
        node.now = 10.0
        assert isinstance(node.refusal(method, short, request), errors.UnauthenticatedError)


async def test_a_stream_ends_with_the_next_message_after_its_certificate_is_over(
    tmp_path: Path,
) -> None:
    """Covers calls whose certificate was good when they began: a stream that is written, and one
    that is read.
    """
    async with guard(tmp_path) as node:
        node.allow("alice", "write,read", "topic", log_rig.TOPIC)
        known = node.identities.caller

        async def caller(authorization: str, certificate: bytes) -> Caller:
            return replace(await known(authorization, certificate), expires=10.0)

        node.identities.caller = caller  # type: ignore[method-assign]
        call = node.channel.stream_stream(
            "/oncelog.v1.LogService/ProduceStream",
            request_serializer=lpb.ProduceRequest.SerializeToString,
            response_deserializer=lpb.ProduceResponse.FromString,
        )(metadata=header("alice"))
        request = lpb.ProduceRequest(batches=[log_rig.batch()])
        for _ in range(3):
            await call.write(request)
            assert (await call.read()).results, "before it is over"
        node.now = 10.0
        await call.write(request)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        # It may be opened again; a caller without a new certificate is refused then.
        assert isinstance(from_rpc_error(raised.value), errors.NotReadyError)
        for method in ("ClusterService/DescribeTopics", "LogService/ProduceStream"):
            asked = produce(log_rig.TOPIC) if "Produce" in method else None
            with pytest.raises(errors.UnauthenticatedError, match="is over"):
                await node.call(f"/oncelog.v1.{method}", "alice", asked)


async def test_a_command_is_proposed_with_the_version_of_the_rules_that_let_it_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guard(tmp_path) as node:
        versions: list[int] = []
        propose = node.node.propose_metadata

        async def note(*given: Any) -> Any:
            versions.append(RULES_VERSION.get())
            return await propose(*given)

        monkeypatch.setattr(node.node, "propose_metadata", note)
        for name in ("a", "b"):
            node.allow("alice", "create", "topic", name)
            request = cpb.CreateTopicRequest(name=name, partitions=1)
            await node.call("/oncelog.v1.ClusterService/CreateTopic", "alice", request)
    assert versions == [1, 2]


async def test_leases_belong_to_who_took_them(tmp_path: Path) -> None:
    method = "/oncelog.v1.ProducerService/LeaseProducer"
    async with guard(tmp_path) as node:
        with pytest.raises(errors.NotAuthorizedError, match="lacks: write on producer 'billing'"):
            await node.call(method, "alice", ppb.LeaseProducerRequest(producer_name="billing"))
        with pytest.raises(errors.NotAuthorizedError, match="lacks: fence on producer 'billing'"):
            await node.call(
                "/oncelog.v1.ProducerService/FenceProducer", "alice",
                ppb.FenceProducerRequest(producer_name="billing"),
            )  # fmt: skip


async def test_the_audit_log_has_refusals_and_changes_and_no_secrets(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        with pytest.raises(errors.UnauthenticatedError):
            await node.call("/oncelog.v1.ClusterService/DescribeCluster", "mallory")
        with pytest.raises(errors.NotAuthorizedError):
            await node.call(
                "/oncelog.v1.ClusterService/DeleteTopic", "bob", cpb.DeleteTopicRequest(name="x")
            )
        with pytest.raises(errors.OncelogError):
            await node.call(
                "/oncelog.v1.ClusterService/DeleteTopic", "root", cpb.DeleteTopicRequest(name="x")
            )
        await node.call("/oncelog.v1.ClusterService/DescribeTopics", "root")
        found = [(n["principal"], n["needs"], n["result"]) for n in node.noted()]
        assert found[:2] == [
            ("", [], "UNAUTHENTICATED"),
            ("token:bob", ["delete on topic 'x'"], "NOT_AUTHORIZED"),
        ]
        assert len(found) == 3
        assert found[2][:2] == ("token:root", ["delete on topic 'x'"])
        assert found[2][2] != "ok"
        assert "secret" not in node.audit_file.read_text()
        assert node.audit_file.stat().st_mode & 0o077 == 0


def test_who_is_refused_often_does_not_fill_the_disk(tmp_path: Path) -> None:
    path, now = tmp_path / "audit", [0.0]
    audit = Audit(path, 1, lambda: now[0])
    for _ in range(1000):
        audit.note("m", "", "there", (), "UNAUTHENTICATED")
    audit.note("m", "root", "here", (), "ok")
    now[0] = 1.0
    audit.note("m", "", "there", (), "UNAUTHENTICATED")
    audit.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    most = MAX_REFUSED_EACH
    assert len(lines) == most + 2
    assert [line.get("dropped", 0) for line in lines[most:]] == [1000 - most, 0]


def test_no_refusals_hide_those_of_others(tmp_path: Path) -> None:
    """Of a noisy host, of all addresses of one IPv6 site, of all strangers together."""
    path = tmp_path / "audit"
    audit = Audit(path, 1, lambda: 0.0)
    for number in range(1000):
        audit.note("m", "", f"ipv4:10.0.0.1:{number}", (), "UNAUTHENTICATED")
        audit.note("m", "", f"ipv6:%5B2001:db8::{number:x}%5D:1", (), "UNAUTHENTICATED")
    audit.note("m", "", "ipv4:10.0.0.2:1", (), "UNAUTHENTICATED")
    audit.note("m", "", "ipv6:%5B2001:db8:0:1::1%5D:1", (), "UNAUTHENTICATED")
    for number in range(1000):
        audit.note("m", "", f"ipv4:10.1.{number % 250}.{number // 250}:1", (), "UNAUTHENTICATED")
    audit.note("m", "token:bob", "ipv4:10.0.0.1:1", (), "NOT_AUTHORIZED")
    audit.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    hosts = [line["from"].rpartition(":")[0] for line in lines]
    assert hosts.count("ipv4:10.0.0.1") == MAX_REFUSED_EACH + 1, "bob's as well"
    assert sum("2001:db8::" in host for host in hosts) == MAX_REFUSED_EACH
    assert hosts.count("ipv4:10.0.0.2") == hosts.count("ipv6:%5B2001:db8:0:1::1%5D") == 1
    assert len(lines) == MAX_REFUSED + 1 and lines[-1]["principal"] == "token:bob"


async def test_a_change_whose_client_went_is_noted_as_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    async with guard(tmp_path) as node:

        async def propose(*_: Any, **__: Any) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        monkeypatch.setattr(node.node, "propose_metadata", propose)
        request = cpb.DeleteTopicRequest(name=log_rig.TOPIC)
        method = "/oncelog.v1.ClusterService/DeleteTopic"
        call = asyncio.create_task(node.call(method, "root", request))
        await begun.wait()
        call.cancel()
        await ended.wait()
        await asyncio.sleep(0)
        assert [line["result"] for line in node.noted()] == ["CANCELLED"]


async def test_many_wrong_tokens_do_not_keep_others_waiting(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        method = "/oncelog.v1.ClusterService/DescribeTopics"
        wrong = [node.call(method, "mallory") for _ in range(50)]
        wrong += [node.identities.caller(f"Bearer oncelog.alice.{n}", b"") for n in range(200)]
        flood = asyncio.gather(*wrong, return_exceptions=True)
        assert await node.call(method, "root")
        assert all(isinstance(one, Exception) for one in await flood)


def test_no_metadata_of_a_client_names_a_principal() -> None:
    """The caller is the proven identity: no header can name another."""
    source = Path(guarded.__file__).read_text()
    assert source.count("invocation_metadata") == 1
    assert 'key == "authorization"' in source


async def test_two_tokens_in_one_call_are_nobodys(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        describe = node.channel.unary_unary(
            "/oncelog.v1.ClusterService/DescribeTopics",
            request_serializer=cpb.DescribeTopicsRequest.SerializeToString,
            response_deserializer=cpb.DescribeTopicsResponse.FromString,
        )
        assert await describe(cpb.DescribeTopicsRequest(), metadata=header("root"))
        for both in (header("root") + header("bob"), header("bob") + header("root")):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await describe(cpb.DescribeTopicsRequest(), metadata=both)
            assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_needs_are_readable() -> None:
    assert str(Need("read", "topic", "orders")) == "read on topic 'orders'"
    assert str(Need("alter", "cluster")) == "alter on cluster"
    assert spb.PermissionRule().principal == ""


def test_an_audit_file_that_nobody_reads_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "CLOSE_TIMEOUT", 0.05)
    path = tmp_path / "audit"
    audit = Audit(path, 1)
    path.unlink()
    os.mkfifo(path)
    audit.note("Delete", "alice", "here", [], "ok")
    audit.close()
    with path.open() as reader:  # the thread goes on
        assert "alice" in reader.readline()


async def test_events_are_for_those_who_may_describe_their_resource(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        events = node.node.metrics.events
        for resource, name in (("topic", "t"), ("group", "g"), ("producer", "p"), ("cluster", "")):
            events.note("node", resource, name, "something")
        with pytest.raises(errors.NotAuthorizedError):
            await node.call("/oncelog.v1.ClusterService/DescribeCluster", "bob")

        async def seen(who: str, **request: Any) -> list[tuple[str, str]]:
            asked = observe_pb2.ListEventsRequest(**request)
            answer = await node.call("/oncelog.v1.ObserveService/ListEvents", who, asked)
            return [(event.kind, event.resource) for event in answer.events]

        assert await seen("bob") == []
        node.allow("bob", "describe", "topic", "t")
        assert await seen("bob") == [("node", "topic")]
        node.allow("bob", "describe", "group", "g")
        node.allow("bob", "describe", "producer", "p")
        assert len(await seen("bob")) == 3
        node.allow("bob", "describe", "cluster")
        assert len(await seen("bob")) == 4, "but the refusal above"
        node.allow("bob", "alter", "cluster")
        assert await seen("bob", kinds=["audit"]) == [("audit", "cluster")]
        assert await seen("bob", resource="group", name="g") == [("node", "group")]
        assert len(await seen("bob", limit=2)) == 2
        for wrong in ({"kinds": ["x"]}, {"resource": "sink"}, {"limit": 10_001}, {"since_ms": -1}):
            with pytest.raises(errors.InvalidRequestError, match=next(iter(wrong))):
                await seen("root", **wrong)


async def test_a_follower_gets_what_comes_and_a_repeat_with_its_count(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        events = node.node.metrics.events
        node.allow("bob", "describe", "topic", "t")
        stub = observe_pb2_grpc.ObserveServiceStub(node.channel)
        request = observe_pb2.ListEventsRequest(follow=True)
        call = stub.ListEvents(request, metadata=header("bob"), timeout=10)
        assert not (await call.read()).events
        for _ in range(3):
            events.note("node", "topic", "t", "again")
        events.note("node", "topic", "secret", "no")
        ((event,),) = [(await call.read()).events]
        assert (event.text, event.count) == ("again", 3)
        events.note("node", "topic", "t", "again")
        ((again,),) = [(await call.read()).events]
        assert (again.id, again.count) == (event.id, 4)
        call.cancel()
