"""Kafka's port as a stranger meets it: a real Connection, fed bytes as they come.

Each input ends in a closed connection, in requests that were read, or in nothing. A request makes
no more objects than its bytes pay for, and the connection holds no more memory than came.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from random import Random
from typing import Any, cast

from cluster.access.budget import Budget
from cluster.access.gate import Gate
from cluster.kafka.codec import MAX_ELEMENTS, Source, decode, encode
from cluster.kafka.frames import LENGTH, REQUEST_BYTES, Connection, Exchange
from cluster.kafka.login import Login
from cluster.kafka.messages import API_VERSIONS, CALLS, PRODUCE
from cluster.kafka.needs import Rights
from cluster.kafka.produce_wire import read_produce
from cluster.kafka.records import InvalidKafkaBatch, read_batch
from cluster.kafka.sent import Sent
from cluster.kafka.session import Session
from cluster.kafka.versions import api_versions, read_head
from tests.fuzz import identities
from tests.unit.kafka.kafka_bytes import batch
from tests.unit.kafka.made import kinds, message

LIMIT = 1 << 20


class _Tls:
    """TLS with a client that showed no certificate."""

    def getpeercert(self, *, binary_form: bool) -> None: ...


class _Transport:
    """A socket's other side, which takes everything. tls: None in the clear."""

    def __init__(self, tls: _Tls | None = None) -> None:
        self._tls = tls
        self.closed = self.paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else self._tls

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def writelines(self, parts: list[bytes]) -> None:
        (size,) = LENGTH.unpack(parts[0])
        assert size == sum(map(len, parts[1:]))

    def abort(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True


class _Client:
    """Reads each request as a session does, and answers it at once."""

    def made(self, connection: Connection) -> None: ...

    def refused(self, connection: Connection, reason: str) -> None: ...

    def ended(self, connection: Connection) -> None: ...

    def begin(self, connection: Connection, exchange: Exchange) -> None:
        source = Source(exchange.request)
        head = read_head(source)
        if head.call is API_VERSIONS:
            exchange.answer((api_versions(head),))
        elif head.call is PRODUCE:
            self._produce(source, head.version, flexible=head.flexible)
            exchange.answer(())
        else:
            kind = head.call.request
            assert kind is not None
            found: Any = decode(kind, source, head.version, flexible=head.flexible)
            assert _objects(found) <= MAX_ELEMENTS + 10
            exchange.answer((head.begin_answer(),))

    def _produce(self, source: Source, version: int, *, flexible: bool) -> None:
        for data in read_produce(source, version, flexible=flexible).partitions:
            with suppress(InvalidKafkaBatch):
                assert read_batch(data.records).record_count > 0


def _objects(value: Any) -> int:
    if isinstance(value, list):
        return len(value) + sum(_objects(one) for one in value if not isinstance(one, int))
    fields = getattr(type(value), "__slots__", ())
    return sum(_objects(getattr(value, name)) for name in fields)


async def _feed(data: bytes) -> None:
    memory, transport = Budget(1 << 30, 1 << 29), _Transport()
    connection = Connection(memory, LIMIT, _Client())
    connection.connection_made(cast("asyncio.Transport", transport))
    for at in range(0, len(data), 1000):
        if not transport.closed:
            connection.data_received(data[at : at + 1000])
    assert memory.used <= len(data) + REQUEST_BYTES or transport.closed
    connection.connection_lost(None)
    assert memory.used == 0


class _Port:
    """Knows callers by tokens. Nobody has one: no session begins."""

    def __init__(self) -> None:
        self.gate = Gate(identities.known(), None, None)

    def opened(self, login: Login) -> None: ...

    def known(self, login: Login) -> None:
        raise AssertionError("let in without a token")

    def closed(self, login: Login) -> None: ...

    def may_tell(self) -> bool:
        raise AssertionError("a stranger makes no line")

    def sent(self) -> Sent:
        return Sent(1)

    def session(self, rights: Rights) -> Session:
        raise AssertionError("let in without a token")


async def _say(data: bytes) -> None:
    """Feed bytes to a connection whose client has to log in."""
    memory, transport = Budget(1 << 30, 1 << 29), _Transport(_Tls())
    connection = Connection(memory, LIMIT, Login(_Port()))
    connection.connection_made(cast("asyncio.Transport", transport))
    await _settled(connection)
    for at in range(0, len(data), 1000):
        if not transport.closed:
            connection.data_received(data[at : at + 1000])
            await _settled(connection)
    connection.connection_lost(None)
    assert memory.used == 0


async def _settled(connection: Connection) -> None:
    while connection._holds:
        await asyncio.wait(connection._holds)
    await asyncio.sleep(0)


_loop: list[asyncio.AbstractEventLoop] = []


def run(data: bytes) -> None:
    if not _loop:
        _loop.append(asyncio.new_event_loop())
    _loop[0].run_until_complete(_feed(data))


def run_login(data: bytes) -> None:
    if not _loop:
        _loop.append(asyncio.new_event_loop())
    _loop[0].run_until_complete(_say(data))


def login_seeds() -> list[bytes]:
    """Logins of both mechanisms with a wrong token, in both forms, and a request before it."""
    found = []
    for mechanism, said in (
        (b"PLAIN", b"\0token\0oncelog.a.b"),
        (b"OAUTHBEARER", b"n,a=x,\x01auth=Bearer a.b.c\x01host=h\x01\x01"),
    ):
        hand = struct.pack(">hhihh", 17, 1, 7, -1, len(mechanism)) + mechanism
        sent = struct.pack(">hhihi", 36, 1, 8, -1, len(said)) + said
        old = struct.pack(">hhihh", 17, 0, 7, -1, len(mechanism)) + mechanism
        versions = struct.pack(">hhih", 18, 0, 1, -1)
        found.append(_framed(versions, hand, sent))
        found.append(_framed(old, said))
    return found


def _framed(*requests: bytes) -> bytes:
    return b"".join(LENGTH.pack(len(one)) + one for one in requests)


def seeds() -> list[bytes]:
    """One request of each call, framed; and one of Produce."""
    random, found = Random(1), list[bytes]()
    for call, kind, version in kinds():
        if kind is call.request and version == call.newest:
            body = bytearray(struct.pack(">hhihs", call.key, version, 7, 1, b"c"))
            if version >= call.flexible:
                body.append(0)
            encode(message(kind, version, random), body, version, flexible=version >= call.flexible)
            found.append(LENGTH.pack(len(body)) + body)
    assert len(found) == len(CALLS) - 1
    records = batch(2)
    old = struct.pack(">hhih", PRODUCE.key, 3, 7, -1) + struct.pack(">hhii", -1, 1, 500, 1)
    old += struct.pack(">h1siii", 1, b"t", 1, 0, len(records)) + records
    return [*found, LENGTH.pack(len(old)) + old]


def with_length(data: bytes) -> bytes:
    """Sets the first frame's length to all that follows it."""
    return LENGTH.pack(len(data) - LENGTH.size) + data[LENGTH.size :] if len(data) > 4 else data
