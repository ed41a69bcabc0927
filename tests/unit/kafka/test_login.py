"""The way in at Kafka's port: certificates, SASL, strangers, the end of a proof, quotas."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cluster.kafka import login, port
from cluster.kafka.errors import Error
from cluster.kafka.messages import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
)
from cluster.security.quotas import CONNECTIONS, IN_BYTES, OUT_BYTES, REQUESTS, QuotaRow
from harness.certificates import Authority, dns, replace, uri
from tests.unit.kafka.kafka_bytes import batch
from tests.unit.kafka.login_rig import ALICE, framed, said, world
from tests.unit.kafka.test_produce import answer_in, request
from tests.unit.services.log_rig import TOPIC

MINUTE = 60.0


def produce(batches: int = 1) -> bytes:
    records = [batch(60, value=bytes(50)) for _ in range(batches)]
    return framed(PRODUCE, 9, None) + request(*records, topic=TOPIC)


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "PLAIN"])
async def test_a_token_is_the_caller(tmp_path: Path, mechanism: str) -> None:
    async with world(tmp_path) as node, node.client() as client:
        answer = await client.log_in(node.jwt(MINUTE), mechanism)
        assert answer.error_code == 0 and not answer.auth_bytes
        assert 60_000 < answer.session_lifetime_ms <= 70_000, "exp, and the leeway of clocks"
        assert (await client.metadata()).cluster_id == "c"
        assert node.asked == ["jwt:bob"]
    async with world(tmp_path) as node, node.client() as client:
        answer = await client.log_in(ALICE, mechanism)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0), "it does not end"
        await client.metadata()
        assert node.asked == ["token:alice"]


async def test_old_clients_send_the_mechanisms_bytes_alone(tmp_path: Path) -> None:
    """SaslHandshake v0: the next frame is no request."""
    async with world(tmp_path) as node, node.client() as client:
        assert (await client.shake("PLAIN", version=0)).error_code == 0
        client.send(said(ALICE, "PLAIN"))
        assert await client.receive() == b""
        await client.metadata()
        assert node.asked == ["token:alice"]
    async with world(tmp_path) as node, node.client() as client:
        await client.shake("PLAIN", version=0)
        client.send(said(ALICE + "x", "PLAIN"))
        assert await client.is_ended(), "an answer would be a success"


async def test_a_certificate_is_the_caller_and_a_token_counts_in_its_place(tmp_path: Path) -> None:
    async with world(tmp_path, certificates=True) as node:
        pair = node.authority.issue([uri("spiffe://example.org/billing")])
        async with node.client(pair) as client:
            await client.metadata()
            refused = await client.log_in(ALICE)
            assert refused.error_code == Error.SASL_AUTHENTICATION_FAILED, "too late"
            assert "this connection is of spiffe://" in refused.error_message
            assert await client.is_ended()
        async with node.client(pair, least=ssl.TLSVersion.TLSv1_2) as client:
            assert (await client.log_in(ALICE)).error_code == 0
            await client.metadata()
        nameless = node.authority.issue([])
        async with node.client(nameless) as client:
            assert (await client.log_in(ALICE)).error_code == 0
            await client.metadata()
        assert node.asked == ["spiffe://example.org/billing", "token:alice", "token:alice"]


async def test_certificates_alone_offer_no_mechanism(tmp_path: Path) -> None:
    async with world(tmp_path, certificates=True, tokens=False) as node:
        async with node.client(node.authority.issue([dns("a")])) as client:
            answer = await client.shake("PLAIN")
            assert (answer.error_code, answer.mechanisms) == (33, [])
            await client.metadata()
        for pair in (node.authority.issue([]), node.authority.issue([dns("*.evil.org")])):
            async with node.client(pair) as client:
                assert await client.is_ended()
        for stranger in (None, Authority().issue([dns("a")])):
            async with node.client(stranger) as client:
                assert await client.is_ended(), "no certificate of the clients' authority"
        assert node.asked == ["dns:a"]


async def test_other_mechanisms_are_refused_with_the_list_of_ours(tmp_path: Path) -> None:
    async with world(tmp_path) as node, node.client() as client:
        for mechanism in ("SCRAM-SHA-256", "GSSAPI", "plain", ""):
            answer = await client.shake(mechanism)
            assert (answer.error_code, answer.mechanisms) == (33, ["OAUTHBEARER", "PLAIN"])
        assert (await client.log_in(ALICE)).error_code == 0


WRONG = {
    "a wrong secret": said(ALICE + "x"),
    "another provider's": said("e30.e30.e30"),
    "no token": said(""),
    "no message": b"",
    "another mechanism's": said(ALICE, "PLAIN"),
    "another's name": said(ALICE).replace(b"n,,", b"n,a=token:bob,"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_token_is_told_noted_and_the_end(tmp_path: Path, wrong: str) -> None:
    async with world(tmp_path) as node:
        async with node.client() as client:
            await client.shake("OAUTHBEARER")
            answer = await client.authenticate(WRONG[wrong])
            assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
            assert answer.error_message and "secret" not in answer.error_message
            assert await client.is_ended()
        assert node.noted() == [("kafka/SaslAuthenticate", "", "UNAUTHENTICATED")]


async def test_a_token_without_a_handshake_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        async with node.client() as client:
            answer = await client.authenticate(said(ALICE))
            assert answer.error_code == Error.ILLEGAL_SASL_STATE
            assert await client.is_ended()


async def test_a_token_that_is_over_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as node, node.client() as client:
        answer = await client.log_in(node.jwt(-MINUTE))
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert "expired" in answer.error_message


async def test_a_token_that_was_valid_once_is_refused_when_it_is_over(tmp_path: Path) -> None:
    async with world(tmp_path) as node, node.client() as first, node.client() as second:
        token = node.jwt(MINUTE)
        assert (await first.log_in(token)).error_code == 0
        node.clock.ahead = 100
        answer = await second.log_in(token)
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == login.OVER
        assert await second.is_ended()


@pytest.mark.parametrize("first", [METADATA, PRODUCE])
async def test_nothing_but_versions_is_answered_before(tmp_path: Path, first: object) -> None:
    async with world(tmp_path) as node:
        async with node.client() as client:
            assert (await client.call(API_VERSIONS, 3, ApiVersionsRequest())).error_code == 0
            if first is METADATA:
                client.ask(METADATA, 9, MetadataRequest(topics=[]))
            else:
                client.send(produce())
            assert await client.is_ended()
        assert not node.asked and not node.node.log.entries
        assert [result for _, _, result in node.noted()] == ["UNAUTHENTICATED"]


async def test_requests_behind_a_token_wait_for_its_check(tmp_path: Path) -> None:
    async with world(tmp_path) as node, node.client() as client:
        await client.shake("OAUTHBEARER")
        client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(said(ALICE)))
        client.ask(METADATA, 9, MetadataRequest(topics=[]))
        assert (await client.answer(SASL_AUTHENTICATE, 2)).error_code == 0
        assert (await client.answer(METADATA, 9)).cluster_id == "c"


async def test_a_strangers_request_is_small(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        async with node.client() as client:
            await client.shake("PLAIN")
            client.send(bytes(login.STRANGER_BYTES + 1))
            assert await client.is_ended()
        async with node.client() as client:
            await client.log_in(ALICE)
            large = produce(batches=6)
            assert len(large) > login.STRANGER_BYTES
            client.send(large)
            assert [one.error_code for one in answer_in([await client.receive()])] == [0] * 6


async def test_a_stranger_asks_little_and_makes_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cluster.kafka")
    async with world(tmp_path) as node:
        async with node.client() as client:
            for _ in range(login.STRANGER_REQUESTS):
                await client.call(API_VERSIONS, 3, ApiVersionsRequest())
            client.ask(API_VERSIONS, 3, ApiVersionsRequest())
            assert await client.is_ended()
        async with node.client() as client:
            client.send(b"GET / HTTP/1.1")
            assert await client.is_ended()
        assert not caplog.records
        for _ in range(port.MAX_TOLD + 1):
            async with node.client() as client:
                await client.log_in(ALICE)
                for _ in range(login.STRANGER_REQUESTS):
                    await client.call(API_VERSIONS, 3, ApiVersionsRequest())
                client.send(b"GET / HTTP/1.1")
                assert await client.is_ended()
        assert len(caplog.records) == port.MAX_TOLD


async def test_a_connection_ends_when_its_static_token_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "LOOK_AT_CAS", 0.01)
    async with world(tmp_path) as node, node.client() as kept, node.client() as client:
        await kept.log_in(node.jwt(MINUTE))
        await client.log_in(ALICE)
        await client.metadata()
        tokens = tmp_path / "tokens"
        tokens.write_text(tokens.read_text() + "\n# the same line, read again\n")
        await client.metadata()
        tokens.write_text(tokens.read_text().replace("alice", "eve"))
        assert await client.is_ended()
        await kept.metadata()


async def test_a_stranger_has_little_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "STRANGER_S", 0.05)
    async with world(tmp_path) as node, node.client() as client:
        assert await client.is_ended()


async def test_too_many_strangers_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "MAX_STRANGERS", 3)
    async with world(tmp_path) as node, node.client() as known:
        await known.log_in(ALICE)
        async with AsyncExitStack() as stack:
            strangers = [await stack.enter_async_context(node.client()) for _ in range(4)]
            assert await strangers[0].is_ended(), "the oldest of four"
            assert (await strangers[3].log_in(ALICE)).error_code == 0
            assert (await known.metadata()).cluster_id == "c", "a known one is no stranger"


async def test_a_session_is_renewed_in_time_or_ends(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        async with node.client() as kept, node.client() as left:
            for client in (kept, left):
                await client.log_in(node.jwt(MINUTE))
                await client.metadata()
            node.clock.ahead = 65  # within the leeway
            assert (await kept.log_in(node.jwt(5 * MINUTE))).error_code == 0
            node.clock.ahead = 100
            await kept.metadata()
            left.ask(METADATA, 9, MetadataRequest(topics=[]))
            assert await left.is_ended()
        assert len(node.asked) == 3


async def test_an_idle_connection_ends_with_its_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "LOOK_S", 0.01)
    async with world(tmp_path) as node, node.client() as client:
        await client.log_in(node.jwt(MINUTE))
        await client.metadata()
        node.clock.ahead = 100
        assert await client.is_ended()


async def test_a_connection_stays_with_its_principal(tmp_path: Path) -> None:
    async with world(tmp_path) as node, node.client() as client:
        await client.log_in(node.jwt(MINUTE, "bob"))
        await client.metadata()
        answer = await client.log_in(node.jwt(MINUTE, "carol"))
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert "this connection is of jwt:bob" in answer.error_message
        assert await client.is_ended()


async def test_a_callers_connection_ends_with_its_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "LOOK_AT_CAS", 0.01)
    async with world(tmp_path, certificates=True) as node:
        pair = node.authority.issue([dns("a")])
        async with node.client(pair) as known, node.client(pair) as by_token:
            await known.metadata()
            await by_token.log_in(ALICE)
            renewed = node.authority.issue([dns("node")])
            renewed.write(tmp_path, "node")
            await known.metadata()
            replace(node.ca, Authority().certificate)
            assert await known.is_ended()
            await by_token.metadata()
        assert node.asked == ["dns:a", "dns:a", "token:alice"]


# -- quotas ---------------------------------------------------------------------------------


async def test_over_a_rate_the_answer_says_how_long_and_nothing_is_read(tmp_path: Path) -> None:
    async with world(tmp_path) as node, node.client() as client:
        await client.log_in(ALICE)
        client.send(produce())
        (first,) = answer_in([await client.receive()])
        assert first.error_code == 0
        size = len(produce())
        node.rows = (QuotaRow("token:alice", IN_BYTES, size),)
        waits = []
        for _ in range(3):
            client.send(produce())
            data = await client.receive()
            waits.append(int.from_bytes(data[-5:-1], "big"))  # throttle_time_ms, no tagged field
            if waits[-1]:
                break
        assert waits == [0, 1000], "one second's worth is there, the next is drawn in advance"
        client.send(produce())
        client.ask(METADATA, 9, MetadataRequest(topics=[]))
        await asyncio.sleep(0)
        before = len(node.node.log.entries)
        (one,) = node.port._logins
        connection = one._connection
        assert connection is not None and connection._holds, "it is not read"
        assert before == 3 and not node.asked
        node.rows = ()  # the operator lifts it: nothing was lost
        (again,) = answer_in([await client.receive()])
        assert again.error_code == 0 and again.base_offset == 180
        assert (await client.answer(METADATA, 9)).throttle_time_ms == 0
        assert node.quotas.delayed[IN_BYTES] > 0


@pytest.mark.parametrize("rate", [REQUESTS, OUT_BYTES])
async def test_other_answers_say_it_as_well(tmp_path: Path, rate: str) -> None:
    async with world(tmp_path) as node, node.client() as client:
        await client.log_in(ALICE)
        assert (await client.metadata()).throttle_time_ms == 0
        node.rows = (QuotaRow("token:alice", rate, 1),)
        found = (await client.metadata()).throttle_time_ms
        assert found > 0 if rate == OUT_BYTES else found == 0
        if rate == REQUESTS:
            assert (await client.metadata()).throttle_time_ms == 1000
        node.rows = ()
        await client.metadata()


async def test_a_known_callers_questions_before_a_session_count(tmp_path: Path) -> None:
    """ApiVersions waits, a login never: its delay could end the session."""
    asked = ApiVersionsRequest("c", "1")
    async with world(tmp_path) as node, node.client() as client:
        await client.log_in(ALICE)
        node.rows = (QuotaRow("token:alice", REQUESTS, 1),)
        assert (await client.call(API_VERSIONS, 3, asked)).throttle_time_ms == 0
        assert (await client.log_in(ALICE)).error_code == 0
        assert (await client.call(API_VERSIONS, 3, asked)).throttle_time_ms == 3000
        (one,) = node.port._logins
        connection = one._connection
        assert connection is not None and connection._holds, "it is not read"
        node.rows = ()
        assert (await client.call(API_VERSIONS, 3, asked)).throttle_time_ms == 0


async def test_connections_of_a_principal_are_counted(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        node.rows = (QuotaRow("token:alice", CONNECTIONS, 1),)
        async with node.client() as first, node.client() as second:
            assert (await first.log_in(ALICE)).error_code == 0
            assert (await first.log_in(ALICE)).error_code == 0, "it counts once"
            await second.shake("PLAIN")
            second.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(said(ALICE, "PLAIN")))
            assert await second.is_ended(), "no final answer: later there is room"
        assert node.quotas.refused[CONNECTIONS] == 1
