"""Faults that made neighbours unsafe: each attack is shown working first, with the check off.

| fault | here | elsewhere |
---|---|---|
 CVE-2026-33248 (NATS): names that look alike | look-alikes, the common name | test_identities.py |
 GHSA-38x3 (NATS): nodes' protocol before identity | no service of nodes | test_peer_tls.py |
 GHSA-jx8g (NATS): a group's rule opens a denied topic | deny and allow | test_guarding.py |
 GHSA-fhg8, CVE-2026-33222 (NATS): calls without a check | each RPC, no guard | test_guarding.py |
 CVE-2026-33246 (NATS): an identity that is passed on | headers, commands | |
 CVE-2026-44283 (etcd): parts of a transaction unchecked | its batches, offsets, runs | |
 etcd's authStore: revoked after the check | a stream that is checked once | test_guarding.py |
 the same, on the way to the log | a command let in by older rules | test_permissions.py |
 CVE-2024-56128 (Kafka): replay | a token after its time | test_identities.py |
 CVE-2025-27817 (Kafka): a URL from any caller | | test_jwks.py, test_identities.py |
 CVE-2022-29217 (PyJWT): keys confused | the algorithm of the header | test_identities.py |
 CVE-2023-44487: rapid reset | | integration/test_floods.py |
 ours: pickle | | test_port.py, tests/fuzz |
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import hmac
import importlib
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as changed
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography import x509

import cluster.v1
from cluster.access.budget import Budget
from cluster.config.node_config import NodeConfig
from cluster.rpc import server as node_server
from cluster.rpc.required_permissions import NEEDS
from cluster.rpc.server import Server
from cluster.security import jwts as tokens
from cluster.security import names
from cluster.security.certificates import CertificateFiles, Certificates
from cluster.security.identities import Identities, UnknownCallerError
from cluster.security.jwks import FileKeys
from cluster.security.jwts import Jwts
from cluster.security.names import principal_of
from cluster.security.permissions import Authorizer, Rule, tidy
from cluster.security.tokens import TokenError
from cluster.v1 import metadata_pb2
from harness.certificates import Authority, Pair, dns, replace, uri
from oncelog import errors
from oncelog.v1 import group_pb2 as gpb
from oncelog.v1 import log_pb2 as lpb
from oncelog.v1 import transaction_pb2 as tpb
from oncelog.v1.batch_pb2 import Batch, BatchHeader
from tests.unit.security import test_identities
from tests.unit.security.test_identities import AUDIENCE, ISSUER, LOOK_ALIKES, public_pem
from tests.unit.services.test_guarding import ABOUT_A_TOPIC, TOPIC, guard, header, methods, produce

MIB = 1024 * 1024

# --- names --------------------------------------------------------------------------------

BY_THEIR_LOOK = ("a wildcard", "upper case", "a percent sign", "a user in the URI", "a long name",
                 "an upper-case scheme")  # fmt: skip


@pytest.mark.parametrize("what", BY_THEIR_LOOK)
def test_look_alikes_are_somebody_with_the_check_off(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the check on they are nobody: see test_identities.py."""
    certificate = Authority().issue(LOOK_ALIKES[what])
    monkeypatch.setattr(names, "_URI", re.compile(".*"))
    monkeypatch.setattr(names, "_DNS", re.compile(".*"))
    monkeypatch.setattr(names, "MAX_NAME_CHARS", 1000)
    assert principal_of(certificate.der)


class Port:
    """A node's port for clients, over TLS, without a node: reads a caller's identity in two
    ways.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory, self.authority = directory, Authority("clients")
        self.nodes = Authority("nodes")
        own = self.nodes.issue([x509.IPAddress(ip_address("127.0.0.1"))])
        certificate, key = own.write(directory, "node")
        self.ca = directory / "clients.ca"
        self.ca.write_bytes(self.authority.certificate)
        files = CertificateFiles("tls", certificate, key, self.ca)
        config = changed(NodeConfig.load([], {}), listen="127.0.0.1:0", **settings)
        limits = (Budget(64 * MIB, 32 * MIB), 100)
        self.server = Server(config, *limits, Certificates(files), founding=1)
        self.identities = Identities(None, None)
        answers: dict[str, Any] = {
            "who": grpc.unary_unary_rpc_method_handler(self._who),
            "echo": grpc.stream_stream_rpc_method_handler(self._echo),
        }
        self.server.grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("test", answers),)
        )
        self.server.bind()
        self.address = f"127.0.0.1:{self.server.port}"

    async def _who(self, request: bytes, context: Any) -> bytes:
        """The peer's identity as gRPC gives it, and as our check gives it."""
        certificate = context.auth_context().get("x509_pem_cert", (b"",))[0]
        try:
            ours = (await self.identities.caller("", certificate)).principal
        except UnknownCallerError as error:
            ours = f"nobody: {error}"
        theirs = [one.decode() for one in context.peer_identities() or ()]
        return json.dumps({"ours": ours, "gRPC": theirs}).encode()

    async def _echo(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(request)

    def channel(self, pair: Pair | None) -> grpc.aio.Channel:
        shown = (None, None) if pair is None else (pair.key, pair.certificate)
        credentials = grpc.ssl_channel_credentials(self.nodes.certificate, *shown)
        return grpc.aio.secure_channel(self.address, credentials)

    async def who(self, pair: Pair | None) -> dict[str, Any]:
        """Raises AioRpcError where the handshake fails."""
        async with self.channel(pair) as channel:
            answer = await call_of(channel, "unary_unary", "/test/who")(b"", timeout=10)
            found: dict[str, Any] = json.loads(answer)
            return found


def call_of(channel: grpc.aio.Channel, kind: str, method: str) -> Any:
    """A call whose messages are bytes, which gRPC's types do not know."""
    return getattr(channel, kind)(method)


@asynccontextmanager
async def port(directory: Path, **settings: Any) -> AsyncIterator[Port]:
    made = Port(directory, **settings)
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.stop(0)


async def test_a_common_name_is_somebody_for_grpc_and_nobody_for_us(tmp_path: Path) -> None:
    async with port(tmp_path) as node:
        found = await node.who(node.authority.issue([], common_name="billing"))
        assert found["gRPC"] == ["billing"], "what would be trusted without our own look"
        assert found["ours"].startswith("nobody: ")
        both = [uri("spiffe://a/b"), dns("billing")]
        found = await node.who(node.authority.issue(both, common_name="root"))
        assert found["ours"] == "spiffe://a/b" and "billing" in found["gRPC"]


# --- certificates on the port for clients -------------------------------------------------

HOUR = dt.timedelta(hours=1)
REFUSED: dict[str, Any] = {
    "none": lambda ours: None,
    "another authority's": lambda ours: Authority("clients").issue([dns("billing")]),
    "expired": lambda ours: ours.issue([dns("billing")], ends=-HOUR),
    "not yet valid": lambda ours: ours.issue([dns("billing")], begins=HOUR),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_certificates_that_are_of_no_use_come_no_further_than_the_handshake(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with port(tmp_path) as node:
        assert (await node.who(node.authority.issue([dns("billing")])))["ours"] == "dns:billing"
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await node.who(REFUSED[what](node.authority))
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    monkeypatch.setattr(Certificates, "current", _without_ca(Certificates.current))
    async with port(tmp_path / "off") as node:
        assert await node.who(REFUSED[what](node.authority)), "with the check off"


def _without_ca(current: Any) -> Any:
    def found(self: Certificates) -> Any:
        return changed(current(self), ca=b"")

    return found


async def test_a_client_speaks_with_no_other_host(tmp_path: Path) -> None:
    """Shows the client a certificate of the nodes' own authority, but of another host."""
    async with port(tmp_path) as node:
        elsewhere = node.nodes.issue([dns("elsewhere.test")])
        replace(tmp_path / "node.key", elsewhere.key)
        replace(tmp_path / "node.crt", elsewhere.certificate)
        pair = node.authority.issue([dns("billing")])
        with pytest.raises(grpc.aio.AioRpcError):
            await node.who(pair)
        credentials = grpc.ssl_channel_credentials(
            node.nodes.certificate, pair.key, pair.certificate
        )
        off = [("grpc.ssl_target_name_override", "elsewhere.test")]
        async with grpc.aio.secure_channel(node.address, credentials, options=off) as channel:
            assert await call_of(channel, "unary_unary", "/test/who")(b"", timeout=10), (
                "with the check off"
            )


async def test_a_session_of_before_is_no_way_around_a_new_authority(tmp_path: Path) -> None:
    """TLS lets earlier clients come back without showing a certificate again."""
    async with port(tmp_path) as node:
        pair = node.authority.issue([dns("billing")])
        context = ssl.create_default_context(cadata=node.nodes.certificate.decode())
        context.load_cert_chain(*pair.write(tmp_path, "client"))
        context.set_alpn_protocols(["h2"])

        def connect(session: ssl.SSLSession | None) -> tuple[bytes, bool, Any]:
            with socket.create_connection(("127.0.0.1", node.server.port)) as plain:
                plain.settimeout(5)
                with context.wrap_socket(
                    plain, server_hostname="127.0.0.1", session=session
                ) as sock:
                    try:
                        return sock.recv(100), bool(sock.session_reused), sock.session
                    except OSError:
                        return b"", False, None

        first, _, session = await asyncio.to_thread(connect, None)
        assert first
        again, reused, _ = await asyncio.to_thread(connect, session)
        assert again and reused, "as long as nothing has changed"
        replace(node.ca, Authority("clients").certificate)
        assert (await asyncio.to_thread(connect, session))[0] == b""


@pytest.mark.parametrize("limited", [False, True])
async def test_handshakes_that_are_not_finished_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    monkeypatch.setattr(node_server, "HANDSHAKE_MS", 200 if limited else 120_000)
    async with port(tmp_path) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
        writer.write(b"\x16\x03\x01")  # how a TLS handshake begins
        if limited:
            assert await asyncio.wait_for(reader.read(), 20) is not None
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(), 1)
        writer.close()
        assert await node.who(node.authority.issue([dns("billing")]))


@pytest.mark.parametrize("limited", [False, True])
async def test_streams_end_with_the_age_of_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """A certificate whose authority was removed: open streams go on, but not for long."""
    monkeypatch.setattr(node_server, "AGE_GRACE_MS", 100)
    age = {"connection_age_ms": 1000} if limited else {}
    async with port(tmp_path, **age) as node:
        async with node.channel(node.authority.issue([dns("billing")])) as channel:
            call = call_of(channel, "stream_stream", "/test/echo")()
            await call.write(b"1")
            assert await call.read() == b"1"
            replace(node.ca, Authority("clients").certificate)
            if not limited:
                await call.write(b"2")
                assert await call.read() == b"2", "with the check off"
                call.cancel()
                return
            with pytest.raises(grpc.aio.AioRpcError):
                await asyncio.wait_for(call.read(), 20)
            with pytest.raises(grpc.aio.AioRpcError):
                await call_of(channel, "unary_unary", "/test/who")(b"", timeout=5)


# --- calls --------------------------------------------------------------------------------


def test_what_nodes_say_to_each_other_is_no_service_for_clients() -> None:
    """A port for clients can only offer services: nodes have none."""
    paths = sorted(Path(cluster.v1.__path__[0]).glob("*_pb2.py"))
    assert len(paths) > 3
    for path in paths:
        module = importlib.import_module(f"cluster.v1.{path.stem}")
        assert not module.DESCRIPTOR.services_by_name, path


@pytest.mark.parametrize("method", ABOUT_A_TOPIC)
def test_a_denial_is_what_keeps_a_topic_shut(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [
        tidy(Rule("bob", kind, "" if kind == "cluster" else "*", ("*",)))
        for kind in ("topic", "group", "producer", "sink", "cluster")
    ]
    rules = (*everything, tidy(Rule("bob", "topic", TOPIC, ("*",), deny=True)))
    needs = list(NEEDS[method](ABOUT_A_TOPIC[method](TOPIC)))
    assert Authorizer(lambda: rules).missing("bob", needs) is not None
    monkeypatch.setattr(Rule, "forbids", lambda self, operation: False)
    assert Authorizer(lambda: rules).missing("bob", needs) is None, "with the check off"


async def test_each_rpc_answers_anybody_with_the_guard_off(tmp_path: Path) -> None:
    """The other side of the table in test_guarding.py, where each refuses callers without a
    right.
    """
    async with guard(tmp_path, on=False) as node:
        streams = {name for name, one in methods().items() if one.client_streaming}
        # For these calls the services of this test have only the guard.
        without = {"/oncelog.v1.LogService/Subscribe"} | streams
        for method in sorted(set(NEEDS) - without):
            try:
                await node.call(method, "")
            except (errors.UnauthenticatedError, errors.NotAuthorizedError):
                pytest.fail(method)
            except errors.OncelogError:
                pass  # by the service itself: the request is empty


async def test_no_header_makes_a_caller_somebody_else(tmp_path: Path) -> None:
    method = "/oncelog.v1.ClusterService/DescribeCluster"
    claims = ("principal", "x-principal", "x-forwarded-user", "x-forwarded-client-cert",
              "x-remote-user", "x-oncelog-principal", "ssl-client-subject", "proxy-authorization",
              "x-authorization", "authorization-bin")  # fmt: skip
    async with guard(tmp_path) as node:
        call = node.channel.unary_unary(method)
        root = header("root")[0][1]
        more = tuple(
            (key, b"token:root" if key.endswith("-bin") else value)
            for key in claims
            for value in ("token:root", root)
        )
        for who in ((), header("bob")):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(b"", metadata=who + more)
            wanted = "PERMISSION_DENIED" if who else "UNAUTHENTICATED"
            assert raised.value.code() == grpc.StatusCode[wanted]


def test_no_command_between_nodes_says_on_whose_behalf_it_is() -> None:
    """Messages cannot make a node act for somebody else: the node that receives a call decides the
    caller.
    """
    rules = {"PermissionRule", "Quota", "QuotaKey"}  # rules about principals, not on behalf of one
    seen: set[str] = set()

    def look(message: Any) -> None:
        if message.name in seen or message.name in rules:
            return
        seen.add(message.name)
        for field in message.fields:
            assert "principal" not in field.name and "caller" not in field.name, field.full_name
            if field.message_type is not None:
                look(field.message_type)

    look(metadata_pb2.MetadataCommand.DESCRIPTOR)
    assert len(seen) > 20


IN_A_TRANSACTION: dict[str, Any] = {
    "/oncelog.v1.LogService/Produce": lpb.ProduceRequest(
        batches=[
            Batch(header=BatchHeader(topic=topic, transaction_id=7)) for topic in ("mine", TOPIC)
        ]
    ),
    "/oncelog.v1.GroupService/CommitOffsets": gpb.CommitOffsetsRequest(
        group="g", offsets=[gpb.OffsetCommit(topic=topic) for topic in ("mine", TOPIC)]
    ),
    "/oncelog.v1.TransactionService/CommitTransaction": tpb.CommitTransactionRequest(
        transaction_id=7, runs=[tpb.StagedRun(topic=topic) for topic in ("mine", TOPIC)]
    ),
}


@pytest.mark.parametrize("method", IN_A_TRANSACTION)
def test_what_is_in_a_transaction_is_checked_one_by_one(method: str) -> None:
    """A right to write to one topic, and to commit, gives no right to another topic."""
    mine = [
        tidy(Rule("bob", "topic", "mine", ("*",))),
        tidy(Rule("bob", "group", "*", ("*",))),
        tidy(Rule("bob", "producer", "*", ("*",))),
    ]
    may = Authorizer(lambda: mine)
    needs = list(NEEDS[method](IN_A_TRANSACTION[method]))
    missing = may.missing("bob", needs)
    assert missing is not None and missing.name == TOPIC
    first = [need for need in needs if need.name != TOPIC]
    assert first and may.missing("bob", first) is None, "with only the first one looked at"


async def test_a_stream_that_is_checked_once_goes_on_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guard(tmp_path) as node:
        node.allow("alice", "write", "topic", TOPIC)
        check = node.gate.refusal
        once: list[Any] = []

        def first_only(*given: Any) -> Any:
            if not once:
                once.append(check(*given))
            return once[0]

        monkeypatch.setattr(node.gate, "refusal", first_only)  # also of messages that follow
        call = node.channel.stream_stream(
            "/oncelog.v1.LogService/ProduceStream",
            request_serializer=lpb.ProduceRequest.SerializeToString,
            response_deserializer=lpb.ProduceResponse.FromString,
        )(metadata=header("alice"))
        await call.write(produce(TOPIC))
        assert (await call.read()).results
        node.rules = ()
        await call.write(produce(TOPIC))
        assert (await call.read()).results, "with the check off"
        monkeypatch.setattr(node.gate, "refusal", check)
        await call.write(produce(TOPIC))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED


# --- tokens -------------------------------------------------------------------------------

ISSUED = test_identities.ISSUED


@pytest.fixture
def known(tmp_path: Path) -> Jwts:
    path = tmp_path / "jwks"
    path.write_text(json.dumps(ISSUED.jwks()))
    return Jwts(FileKeys(path), ISSUER, AUDIENCE)


async def test_a_token_is_of_no_use_after_its_time(
    known: Jwts, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ISSUED.token(exp=1_000_000)
    with pytest.raises(TokenError, match="expired"):
        await known.caller(old)
    monkeypatch.setattr(tokens, "LEEWAY_S", 10**10)
    assert (await known.caller(old)).principal == "jwt:billing", "with the check off"


async def test_an_algorithm_of_the_tokens_choice_makes_a_public_key_a_secret(known: Jwts) -> None:
    forged = test_identities.FORGED["HS256 with the public key"]()
    with pytest.raises(TokenError):
        await known.caller(forged)
    # With the check off: a server that believes the header takes the public key.
    signed, _, mac = forged.rpartition(".")
    assert jwt.get_unverified_header(forged)["alg"] == "HS256"
    wanted = hmac.new(public_pem("rsa"), signed.encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64encode(wanted).rstrip(b"=").decode() == mac


async def test_another_audiences_token_is_taken_with_the_check_off(
    known: Jwts, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = ISSUED.token(aud="other")
    with pytest.raises(TokenError, match=r"[Aa]udience"):
        await known.caller(theirs)
    monkeypatch.setattr(known, "_audience", "other")
    assert (await known.caller(theirs)).principal == "jwt:billing"
