"""Kafka's port over TLS with real certificates, tokens, rules and quotas; clients of raw frames."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from cluster.access.budget import Budget
from cluster.access.gate import Gate
from cluster.kafka.codec import Source, decode, encode
from cluster.kafka.frames import LENGTH
from cluster.kafka.messages import (
    API_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Call,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from cluster.kafka.needs import Rights
from cluster.kafka.port import KafkaPort
from cluster.kafka.produce import Producing
from cluster.kafka.sent import Sent
from cluster.kafka.session import Handler, Session
from cluster.kafka.versions import Head
from cluster.metrics.requests import Requests
from cluster.security.audit import Audit
from cluster.security.certificates import CertificateFiles, Certificates
from cluster.security.identities import Identities
from cluster.security.jwks import FileKeys
from cluster.security.jwts import Jwts
from cluster.security.quotas import QuotaRow, Quotas
from cluster.security.tokens import StaticTokens
from cluster.services.log.lease_checks import Leases
from harness.certificates import Authority, Pair, dns
from tests.unit.kafka.test_produce import kafka_node

LIMIT = 1 << 20
ALICE = "oncelog.alice.secret"


class Clock:
    """The wall clock of a gate, which a test may move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class World:
    """A port that listens; `client` opens a connection.

    asked: callers of Metadata, in order. answers: made by `Metadata`.
    """

    def __init__(self, directory: Path, *, certificates: bool, tokens: bool) -> None:
        self.directory = directory
        self.authority = Authority()
        self.files = self._files(with_ca=certificates)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.clock = Clock()
        self.rows: tuple[QuotaRow, ...] = ()
        self.quota_clock = 100.0
        self.quotas = Quotas(lambda: self.rows, lambda: self.quota_clock, lambda _: True)
        self.audit = Audit(directory / "audit", 1)
        self.memory = Budget(1 << 30, 1 << 29)
        self.asked: list[str] = []
        identities = Identities(*self._kinds() if tokens else (None, None))
        self.gate = Gate(identities, None, self.audit, self.quotas, self.clock)
        self.node = kafka_node()
        self.port = KafkaPort(
            "127.0.0.1:0", self.memory, LIMIT, 1000, self.gate, Certificates(self.files)
        )

    def _files(self, *, with_ca: bool) -> CertificateFiles:
        certificate, key = self.authority.issue([dns("node")]).write(self.directory, "node")
        self.ca = self.directory / "ca.crt"
        self.ca.write_bytes(self.authority.certificate)
        return CertificateFiles("tls", certificate, key, self.ca if with_ca else None)

    def _kinds(self) -> tuple[StaticTokens, Jwts]:
        digest = hashlib.scrypt(b"secret", salt=b"s" * 16, n=4096, r=8, p=1, dklen=32).hex()
        tokens, keys = self.directory / "tokens", self.directory / "keys"
        tokens.write_text(f"alice scrypt:4096:8:1:{(b's' * 16).hex()}:{digest}\n")
        public = jwt.get_algorithm_by_name("ES256").to_jwk(self.key.public_key(), as_dict=True)
        keys.write_text(json.dumps({"keys": [{**public, "kid": "k"}]}))
        return StaticTokens(tokens), Jwts(FileKeys(keys), "i", "a")

    def jwt(self, seconds: float, subject: str = "bob") -> str:
        """A token that holds for so many seconds of the gate's clock, leeway aside."""
        claims = {"iss": "i", "aud": "a", "sub": subject, "exp": int(self.clock() + seconds)}
        return jwt.encode(claims, self.key, "ES256", headers={"kid": "k"})

    def session(self, rights: Rights) -> Session:
        async def metadata(rights: Rights, head: Head, request: Any) -> MetadataResponse:
            self.asked.append(rights.caller.principal)
            return MetadataResponse(cluster_id="c")

        handlers: Mapping[int, Handler] = {METADATA.key: metadata}
        producing = Producing(self.node, rights, Leases(self.node))
        return Session(rights, handlers, producing, Requests())

    @asynccontextmanager
    async def client(
        self, pair: Pair | None = None, *, least: ssl.TLSVersion | None = None
    ) -> AsyncIterator[Client]:
        """A connection, with a certificate or without."""
        context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        context.check_hostname = False
        if least is not None:
            context.maximum_version = least
        if pair is not None:
            context.load_cert_chain(*pair.write(self.directory / "client", "client"))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port.port, ssl=context)
        try:
            yield Client(reader, writer)
        finally:
            writer.transport.abort()

    def noted(self) -> list[tuple[str, str, str]]:
        """The lines of the audit log, all of them."""
        self.audit.close()
        lines = map(json.loads, (self.directory / "audit").read_text().splitlines())
        return [(one["method"], one["principal"], one["result"]) for one in lines]


class Client:
    """One client's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(LENGTH.pack(len(data)) + data)

    async def receive(self) -> bytes:
        async with asyncio.timeout(20):
            (size,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
            return await self.reader.readexactly(size)

    async def is_ended(self) -> bool:
        """Waits for the end of the connection; False if bytes come."""
        async with asyncio.timeout(20):
            try:
                return not await self.reader.read(1)
            except (ConnectionError, ssl.SSLError):
                return True

    def ask(self, call: Call, version: int, message: Any) -> None:
        self.send(framed(call, version, message))

    async def answer(self, call: Call, version: int) -> Any:
        kind, source = call.response, Source(memoryview(await self.receive()))
        assert kind is not None
        source.take(4)
        flexible = version >= call.flexible
        source.skip_tagged(flexible=flexible and call is not API_VERSIONS)
        return decode(kind, source, version, flexible=flexible)

    async def call(self, call: Call, version: int, message: Any) -> Any:
        self.ask(call, version, message)
        return await self.answer(call, version)

    async def metadata(self) -> Any:
        return await self.call(METADATA, 9, MetadataRequest(topics=[]))

    async def shake(self, mechanism: str, version: int = 1) -> Any:
        return await self.call(SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))

    async def authenticate(self, data: bytes, version: int = 2) -> Any:
        return await self.call(SASL_AUTHENTICATE, version, SaslAuthenticateRequest(data))

    async def log_in(self, token: str, mechanism: str = "OAUTHBEARER") -> Any:
        assert (await self.shake(mechanism)).error_code == 0
        return await self.authenticate(said(token, mechanism))


def said(token: str, mechanism: str = "OAUTHBEARER") -> bytes:
    """A client's message."""
    if mechanism == "PLAIN":
        return f"\0token\0{token}".encode()
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def framed(call: Call, version: int, message: Any) -> bytes:
    """A request, its length aside. message None: the head alone."""
    out = bytearray(struct.pack(">hhih", call.key, version, 7, -1))
    flexible = version >= call.flexible
    if flexible:
        out.append(0)
    if message is not None:
        encode(message, out, version, flexible=flexible)
    return bytes(out)


@asynccontextmanager
async def world(
    directory: Path, *, certificates: bool = False, tokens: bool = True
) -> AsyncIterator[World]:
    """A port that listens. At the end it holds nothing."""
    made = World(directory, certificates=certificates, tokens=tokens)
    made.port.bind()
    await made.port.start(made.session, lambda: Sent(1))
    try:
        yield made
    finally:
        await made.port.stop()
        made.audit.close()
    async with asyncio.timeout(20):
        while made.port._logins:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
    assert made.memory.used == 0
