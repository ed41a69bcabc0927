"""Connections of Kafka's port over real sockets: order, limits, memory."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from cluster.access.budget import Account, Budget
from cluster.kafka.codec import CodecError
from cluster.kafka.frames import MAX_REQUESTS, Connection, Exchange, name_of

LIMIT = 1 << 20
LENGTH = struct.Struct(">i")


def framed(*requests: bytes) -> bytes:
    return b"".join(LENGTH.pack(len(one)) + one for one in requests)


class Calls:
    """Takes requests and answers when a test says so. news: set with each request."""

    def __init__(self) -> None:
        self.begun: list[Exchange] = []
        self.requests: list[bytes] = []
        self.reasons: list[str] = []
        self.connections: list[Connection] = []
        self.news, self.gone = asyncio.Event(), asyncio.Event()

    def made(self, connection: Connection) -> None:
        self.connections.append(connection)

    def begin(self, connection: Connection, exchange: Exchange) -> None:
        self.requests.append(bytes(exchange.request))
        if self.requests[-1] == b"bad":
            raise CodecError("no request")
        if self.requests[-1] == b"fault":
            raise RuntimeError("planted")
        self.begun.append(exchange)
        self.news.set()

    def refused(self, connection: Connection, reason: str) -> None:
        self.reasons.append(reason)

    def ended(self, connection: Connection) -> None:
        self.gone.set()

    async def until(self, count: int) -> None:
        """Wait until so many requests have begun."""
        async with asyncio.timeout(10):
            while len(self.begun) < count:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def listening(
    memory: Budget,
) -> AsyncIterator[tuple[Calls, asyncio.StreamReader, asyncio.StreamWriter]]:
    calls = Calls()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(memory, LIMIT, calls), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    try:
        yield calls, reader, writer
    finally:
        writer.close()
        async with asyncio.timeout(10):
            await calls.gone.wait()
        server.close()
    assert memory.used == 0


def budget() -> Budget:
    return Budget(1 << 30, 1 << 29)


async def frames(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    found = []
    async with asyncio.timeout(10):
        for _ in range(count):
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            found.append(await reader.readexactly(size))
    return found


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)


def is_blocked(account: Account) -> bool:
    return account.blocked_since is not None


async def first_account(memory: Budget) -> Account:
    await turns_until(lambda: bool(memory._accounts))
    (account,) = memory._accounts.values()
    return account


async def test_answers_go_out_in_the_order_of_the_requests() -> None:
    async with listening(budget()) as (calls, reader, writer):
        writer.write(framed(b"a", b"b", b"c", b"d"))
        await calls.until(4)
        assert calls.requests == [b"a", b"b", b"c", b"d"]
        calls.begun[3].answer((b"four",))
        calls.begun[1].answer(())  # nothing is sent for it
        calls.begun[0].answer((b"o", memoryview(b"ne")))
        assert await frames(reader, 1) == [b"one"]
        calls.begun[2].answer((b"three",))
        assert await frames(reader, 2) == [b"three", b"four"]


async def test_a_request_may_come_in_any_pieces() -> None:
    data = framed(b"first", b"x" * 70_000, b"last")
    async with listening(budget()) as (calls, _, writer):
        for at in (*range(12), 13, 500, 70_005, 70_017, len(data)):
            writer.write(data[:at])
            await writer.drain()
            await asyncio.sleep(0)
            data = data[at:]
        writer.write(data)
        await calls.until(3)
        assert calls.requests == [b"first", b"x" * 70_000, b"last"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), LIMIT + 1, 2**31 - 1])
async def test_a_wrong_length_ends_the_connection_before_the_request_is_kept(size: int) -> None:
    memory = budget()
    async with listening(memory) as (calls, reader, writer):
        writer.write(LENGTH.pack(size))
        async with asyncio.timeout(10):
            assert await reader.read() == b""
            await calls.gone.wait()
        assert not calls.requests


async def test_a_request_that_is_none_ends_the_connection() -> None:
    async with listening(budget()) as (calls, reader, writer):
        writer.write(framed(b"bad", b"never begun"))
        async with asyncio.timeout(10):
            await calls.gone.wait()
        assert calls.requests == [b"bad"]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)


async def test_a_request_that_fails_behind_a_pause_ends_the_connection() -> None:
    """The bytes before it were parsed again with the next ones: its requests ran twice."""
    async with listening(budget()) as (calls, _, writer):
        writer.write(framed(*[b"a"] * MAX_REQUESTS, b"b", b"fault", b"c"))
        await calls.until(MAX_REQUESTS)
        for exchange in list(calls.begun):
            exchange.answer((b"",))
        async with asyncio.timeout(10):
            await calls.gone.wait()
        assert calls.requests[MAX_REQUESTS:] == [b"b", b"fault"]


async def test_a_connection_is_not_read_on_while_it_has_its_fill_of_requests() -> None:
    async with listening(budget()) as (calls, reader, writer):
        wanted = [b"%d" % number for number in range(3 * MAX_REQUESTS)]
        writer.write(framed(*wanted))
        await calls.until(MAX_REQUESTS)
        await asyncio.sleep(0)
        assert len(calls.begun) == MAX_REQUESTS
        for number in range(len(wanted)):
            await calls.until(number + 1)
            calls.begun[number].answer((calls.requests[number],))
        assert await frames(reader, len(wanted)) == wanted


async def test_a_client_that_does_not_read_is_not_read_and_is_seen() -> None:
    memory, answer = budget(), bytes(1 << 20)
    async with listening(memory) as (calls, reader, writer):
        account = await first_account(memory)
        begun = 0
        while not is_blocked(account):
            writer.write(framed(b"%d" % begun))
            await calls.until(begun + 1)
            calls.begun[begun].answer((answer,))
            begun += 1
        assert account.client == calls.connections[0].address and memory.used > 0
        writer.write(framed(b"one more"))
        await writer.drain()
        assert len(calls.begun) == begun
        assert await frames(reader, begun) == [answer] * begun
        await calls.until(begun + 1)
        assert not is_blocked(account)
        calls.begun[begun].answer((b"at last",))
        assert await frames(reader, 1) == [b"at last"]


async def test_a_connection_beyond_its_share_of_memory_waits_for_room() -> None:
    memory = Budget(1 << 20, 1 << 18)
    async with listening(memory) as (calls, reader, writer):
        large = bytes(1 << 19)
        writer.write(framed(large, large))
        await calls.until(1)
        await turns_until(lambda: bool(memory.waiting))
        calls.begun[0].answer((b"1",))
        await calls.until(2)
        calls.begun[1].answer((b"2",))
        assert await frames(reader, 2) == [b"1", b"2"]


def test_a_client_is_named_as_grpc_names_it() -> None:
    assert name_of(("127.0.0.1", 5)) == "ipv4:127.0.0.1:5"
    assert name_of(("::1", 5, 0, 0)) == "ipv6:%5B::1%5D:5"
