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

from cluster.budget import Budget
from cluster.kafka.codec import MAX_ELEMENTS, Source, decode, encode
from cluster.kafka.frames import LENGTH, REQUEST_BYTES, Connection, Exchange
from cluster.kafka.messages import API_VERSIONS, CALLS, PRODUCE
from cluster.kafka.produce_wire import read_produce
from cluster.kafka.records import InvalidKafkaBatch, read_batch
from cluster.kafka.versions import api_versions, read_head
from tests.unit.kafka.kafka_bytes import batch
from tests.unit.kafka.made import kinds, message

LIMIT = 1 << 20


class _Transport:
    """A socket's other side, which takes everything."""

    def __init__(self) -> None:
        self.closed = self.paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 5)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def writelines(self, parts: list[bytes]) -> None:
        (size,) = LENGTH.unpack(parts[0])
        assert size == sum(map(len, parts[1:]))

    def abort(self) -> None:
        self.closed = True


class _Client:
    """Reads each request as a session does, and answers it at once."""

    def made(self, connection: Connection) -> None:
        connection.start()

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


_loop: list[asyncio.AbstractEventLoop] = []


def run(data: bytes) -> None:
    if not _loop:
        _loop.append(asyncio.new_event_loop())
    _loop[0].run_until_complete(_feed(data))


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
