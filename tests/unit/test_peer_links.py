"""A link and a listener over real sockets: who is let in, what arrives, what strangers can do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from cluster.consensus.message import Append, Heartbeat, Message, PreVote
from cluster.errors import ListenError
from cluster.transport import link as peers
from cluster.transport import listener as peer_listener
from cluster.transport import stream as peer_stream
from cluster.transport.frames import encode_frame, encode_hello
from cluster.transport.link import MAX_HELLO_BYTES, Identity, PeerLink
from cluster.transport.listener import PeerListener, PeerStream
from cluster.transport.send_queue import MAX_BULK_BYTES
from cluster.transport.stream import LENGTH, MISSED_PINGS
from harness.proxy import Route

MIB = 1024 * 1024
OURS = Identity("c", node_id=1, incarnation=11, directory_id=111)
PEER = Identity("c", node_id=2, incarnation=22, directory_id=222)
MAX_FRAME = 24 * MIB


def entry(number: int, size: int = 10) -> Append:
    data = number.to_bytes(4) * (size // 4 + 1)
    return Append(7, 1, number, 1, 0, (1,), (data,), (crc32c(data),))


class Side:
    """The listening node 1, and what it and its links were told."""

    def __init__(self, at: str = "127.0.0.1:0") -> None:
        self.received: list[tuple[int, Message]] = []
        self.links: list[tuple[int, bool]] = []
        self.refusals: list[str] = []
        self.directories = {2: 222}
        self.news = asyncio.Event()
        self.listener = PeerListener(
            OURS, {1: "", 2: "", 3: ""}, self.on_receive, self.directory_of, MAX_FRAME
        )
        self.listener.bind(at)
        self.port: int = self.listener._sockets[0].getsockname()[1]

    def directory_of(self, node: int) -> int:
        return self.directories.get(node, 0)

    def on_receive(self, peer: int, messages: list[Message]) -> None:
        self.received += [(peer, message) for message in messages]
        self.news.set()

    def on_link(self, peer: int, up: bool) -> None:
        self.links.append((peer, up))
        self.news.set()

    def on_refusal(self, peer: int, reason: str) -> None:
        self.refusals.append(reason)
        self.news.set()

    def link(self, identity: Identity = PEER, port: int = 0) -> PeerLink:
        address = f"127.0.0.1:{port or self.port}"
        return PeerLink(identity, 1, address, address, self.on_link, self.on_refusal)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not done():
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def listening(at: str = "127.0.0.1:0") -> AsyncIterator[Side]:
    side = Side(at)
    await side.listener.start()
    try:
        yield side
    finally:
        side.listener.stop()


@asynccontextmanager
async def linked(side: Side, identity: Identity = PEER, port: int = 0) -> AsyncIterator[PeerLink]:
    link = side.link(identity, port)
    try:
        await side.until(lambda: link.up)
        yield link
    finally:
        await link.close()


async def test_messages_arrive_in_order_small_and_large() -> None:
    sent: list[Message] = [entry(n, size=4 * MIB if n % 10 == 0 else 100) for n in range(40)]
    async with listening() as side, linked(side) as link:
        for message in sent[:20]:
            link.send([message])
        link.send(sent[20:])
        await side.until(lambda: len(side.received) == len(sent))
        assert side.received == [(2, message) for message in sent]
        assert side.links == [(1, True)]


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (replace(PEER, cluster_id="other"), "cluster_id is 'c' here, the caller's is 'other'"),
        (replace(PEER, node_id=1), "node_id 1 is this node's own"),
        (replace(PEER, node_id=9), "node_id 9 is not in this node's list"),
        (replace(PEER, directory_id=5), "registered with another data directory"),
    ],
)
async def test_who_is_not_let_in_is_told_why(identity: Identity, reason: str) -> None:
    async with listening() as side:
        link = side.link(identity)
        await side.until(lambda: bool(side.refusals))
        assert reason in side.refusals[0]
        link.send([entry(1)])
        assert not link.up and not side.received
        await link.close()


async def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_listener, "PROTOCOL_VERSION", 99)
    async with listening() as side:
        link = side.link()
        await side.until(lambda: bool(side.refusals))
        assert side.refusals[0] == f"protocol_version {peers.PROTOCOL_VERSION} is not 99"
        await link.close()


async def test_a_second_process_with_an_id_waits_until_the_first_is_gone() -> None:
    async with listening() as side:
        async with linked(side):
            second = side.link(replace(PEER, incarnation=23))
            await side.until(lambda: bool(side.refusals))
            assert "connected already by another process" in side.refusals[0]
        await side.until(lambda: second.up)  # it asked again
        await second.close()


async def test_the_same_process_may_come_back_before_its_old_stream_is_noticed() -> None:
    async with listening() as side, linked(side), linked(side) as again:
        again.send([entry(5)])
        await side.until(lambda: bool(side.received))
        assert side.refusals == []


async def test_a_link_comes_up_again_with_nothing_of_before() -> None:
    async with listening() as side, linked(side) as link:
        link.send([entry(1)])
        await side.until(lambda: len(side.received) == 1)
        for stream in list(side.listener._streams):
            stream.close()
        await side.until(lambda: side.links == [(1, True), (1, False), (1, True)])
        link.send([entry(2)])
        await side.until(lambda: len(side.received) == 2)
        assert side.received == [(2, entry(1)), (2, entry(2))]


async def test_a_peer_that_does_not_read_costs_bounded_memory() -> None:
    """Beyond the queue's limit new entries are dropped; Raft sends again what matters."""
    async with listening() as side:
        async with linked(side) as link:
            (stream,) = side.listener._streams
            assert stream._transport is not None
            stream._transport.pause_reading()
            big = entry(1, size=8 * MIB)
            for _ in range(3 * MAX_BULK_BYTES // (8 * MIB)):
                link.send([big])
            assert link._queue.bulk_bytes < MAX_BULK_BYTES + 9 * MIB
            queued = len(link._queue)
            link.send([big])
            assert len(link._queue) == queued
            stream._transport.resume_reading()
            await side.until(lambda: len(side.received) == queued)
            assert link._queue.bulk_bytes == 0
            link.send([PreVote(7, 1, 1, 1)])
            await side.until(lambda: len(side.received) == queued + 1)


async def test_votes_and_heartbeats_overtake_entries() -> None:
    """Also where the queue of entries is full: only what left already comes before them."""
    async with listening() as side:
        async with linked(side) as link:
            (stream,) = side.listener._streams
            assert stream._transport is not None
            stream._transport.pause_reading()
            for number in range(2 * MAX_BULK_BYTES // MIB):
                link.send([entry(number, size=MIB)])
            await asyncio.sleep(0)  # the first frame leaves, as far as it goes
            queued = len(link._queue)
            small: list[Message] = [PreVote(8, 1, 1, 1), Heartbeat((9,), (1,), (1,))]
            link.send(small)
            stream._transport.resume_reading()
            await side.until(lambda: len(side.received) >= queued + len(small))
            received = [message for _, message in side.received]
            before = received.index(small[0])
            assert received[before : before + 2] == small
            assert before < len(received) // 4, "beside a frame, only what the kernels hold"
            assert [one for one in received if one not in small] == [
                entry(number, size=MIB) for number in range(len(received) - 2)
            ]


async def test_an_idle_link_stays_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_stream, "PING_EVERY", 0.01)
    async with listening() as side:
        pings = 0
        received = PeerStream._received

        def counted(stream: PeerStream, frame: memoryview) -> None:
            nonlocal pings
            pings += not frame
            side.news.set()
            received(stream, frame)

        monkeypatch.setattr(PeerStream, "_received", counted)
        async with linked(side):
            await side.until(lambda: pings > 4 * MISSED_PINGS)
            assert side.links == [(1, True)]


@pytest.mark.parametrize("noticed", [True, False])
async def test_a_peer_that_vanished_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    """Its connections stay open, and only who asks for a sign of life learns that it is gone."""
    monkeypatch.setattr(peer_stream, "PING_EVERY", 0.01 if noticed else 3600.0)
    async with listening() as side:
        route = Route()
        proxy = await route.listen("127.0.0.1", 0, ("127.0.0.1", side.port))
        port: int = proxy.sockets[0].getsockname()[1]
        async with linked(side, port=port) as link:
            route.freeze("both")
            if noticed:
                await side.until(lambda: not link.up)
            second = side.link(replace(PEER, incarnation=23))
            await side.until(lambda: bool(side.refusals) or second.up)
            if noticed:
                await side.until(lambda: second.up)
            else:
                assert "connected already by another process" in side.refusals[0]
                assert link.up
            await second.close()
        route.reset()
        proxy.close()


async def test_a_listener_that_says_more_than_answers_is_left() -> None:
    async with listening() as side, linked(side):
        (stream,) = side.listener._streams
        assert stream._transport is not None
        stream._transport.write(b"hello?")
        await side.until(lambda: side.links[:2] == [(1, True), (1, False)])


def flipped(frame: bytes) -> bytes:
    """One bit of the last byte is another one."""
    return frame[:-1] + bytes([frame[-1] ^ 0x10])


def prefixed(frame: bytes) -> bytes:
    return LENGTH.pack(len(frame)) + frame


FLIPPED = prefixed(flipped(b"".join(encode_frame([entry(1)]))))


@pytest.mark.parametrize(
    "said",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\xff\xff\xff\xff",
        LENGTH.pack(MAX_HELLO_BYTES + 1),
        prefixed(b""),
        prefixed(b"no frame"),
        prefixed(b"".join(encode_frame([entry(1)]))),
        prefixed(encode_hello(PEER.hello())) + prefixed(b"no frame"),
        prefixed(encode_hello(PEER.hello())) + FLIPPED,
        prefixed(encode_hello(PEER.hello())) + LENGTH.pack(MAX_FRAME + 1),
    ],
    ids=[
        "a gRPC client",
        "4 GiB to come",
        "a long hello",
        "nothing",
        "noise",
        "a message first",
        "noise after the hello",
        "an entry with a flipped bit",
        "too much after the hello",
    ],
)
async def test_strangers_are_cut_off_and_others_served(said: bytes) -> None:
    async with listening() as side:
        reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
        writer.write(said)
        async with asyncio.timeout(30):
            try:
                await reader.read()  # until it is closed
            except ConnectionResetError:
                pass
        writer.close()
        async with linked(side) as link:
            link.send([entry(3)])
            await side.until(lambda: bool(side.received))
        assert side.received == [(2, entry(3))]


async def test_who_says_nothing_must_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_listener, "HELLO_TIMEOUT", 0.05)
    monkeypatch.setattr(peer_listener, "MAX_STREAMS", 3)
    async with listening() as side:
        silent = [await asyncio.open_connection("127.0.0.1", side.port) for _ in range(5)]
        async with asyncio.timeout(30):
            for reader, _ in silent:
                try:
                    assert await reader.read() == b""
                except ConnectionResetError:
                    pass
        for _, writer in silent:
            writer.close()
        async with linked(side):
            assert len(side.listener._streams) == 1


@pytest.mark.parametrize("tried_first", ["127.0.0.2", "::1"])
async def test_a_name_with_several_addresses(
    monkeypatch: pytest.MonkeyPatch, tried_first: str
) -> None:
    async with listening() as side:
        loop = asyncio.get_running_loop()
        real: Any = loop.getaddrinfo

        async def getaddrinfo(host: str, *args: object, **more: object) -> list[object]:
            hosts = [tried_first, "127.0.0.1"] if host == "node.test" else [host]
            found = [await real(one, *args, **more) for one in hosts]
            return [info for infos in found for info in infos]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        link = PeerLink(PEER, 1, "", f"node.test:{side.port}", side.on_link, side.on_refusal)
        await side.until(lambda: link.up)
        await link.close()


def has_ipv6() -> bool:
    """Python may be built with it and the machine be without: containers often are."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("at", ["0.0.0.0:0", "localhost:0", "[::]:0", "[::1]:0"])
async def test_where_a_node_may_listen(at: str) -> None:
    host = "[::1]" if at == "[::1]:0" else "127.0.0.1"
    if "::" in at and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    async with listening(at) as side:
        link = PeerLink(PEER, 1, "", f"{host}:{side.port}", side.on_link, side.on_refusal)
        await side.until(lambda: link.up)
        await link.close()


async def test_a_name_that_does_not_resolve_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as side:
        loop = asyncio.get_running_loop()
        real: Any = loop.getaddrinfo
        asked = 0

        async def getaddrinfo(*args: object, **more: object) -> object:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return await real(*args, **more)

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        async with linked(side):
            assert asked >= 2


async def test_a_port_in_use_is_named() -> None:
    async with listening() as side:
        other = PeerListener(OURS, {}, side.on_receive, side.directory_of, MAX_FRAME)
        with pytest.raises(ListenError, match=rf"peer_port_offset: .*127\.0\.0\.1:{side.port}"):
            other.bind(f"127.0.0.1:{side.port}")
        other.stop()
