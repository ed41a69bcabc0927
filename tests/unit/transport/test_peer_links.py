"""A link and a listener over real sockets: admission, delivery, limits for strangers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from cluster.access.budget import Budget
from cluster.config.addresses import ListenError
from cluster.consensus.message import (
    Append,
    Heartbeat,
    Message,
    PreVote,
    Snapshot,
    checksum_of,
)
from cluster.features import THIS_RELEASE, Finalized, Release, Versions
from cluster.transport import calls
from cluster.transport import link as peers
from cluster.transport import listener as peer_listener
from cluster.transport import stream as peer_stream
from cluster.transport.calls import NotSentError, PeerCallError
from cluster.transport.connecting import MAX_HELLO_BYTES
from cluster.transport.frames import encode_frame, encode_head, encode_hello
from cluster.transport.hellos import Acceptance, NodeIdentity
from cluster.transport.link import PeerLink
from cluster.transport.listener import PeerListener, PeerStream
from cluster.transport.membership import Membership
from cluster.transport.send_queue import MAX_BULK_BYTES
from cluster.transport.snapshots import PART_BYTES, SnapshotParts, send_snapshot
from cluster.transport.stream import LENGTH, MISSED_PINGS
from cluster.transport.versions import MESSAGES, PROTOCOL, PeerVersions, release_of
from cluster.v1 import peer_pb2 as pb
from harness.proxy import Route

MIB = 1024 * 1024
NODES = (1, 2, 3)


def membership(founding: int = 7, members: tuple[int, ...] = NODES) -> Membership:
    return Membership(members, founding)


VERSIONS = PeerVersions(THIS_RELEASE, Finalized)
OURS = NodeIdentity("c", 1, 11, directory_id=111, membership=membership(), versions=VERSIONS)
PEER = NodeIdentity("c", 2, 22, directory_id=222, membership=membership(), versions=VERSIONS)
NEWER = Release("2.0", Versions(1, 2))
MAX_FRAME = 24 * MIB
KNOWN_VERSION = 5  # version of the metadata group's configuration, at the listening node


def entry(number: int, size: int = 10) -> Append:
    data = number.to_bytes(4) * (size // 4 + 1)
    return Append(7, 1, number, 1, 0, (1,), (data,), (crc32c(data),))


class Side:
    """The listening node 1, and the events that it and its links received."""

    def __init__(self, at: str = "127.0.0.1:0", ours: NodeIdentity = OURS) -> None:
        self.received: list[tuple[int, Message]] = []
        self.links: list[tuple[int, bool]] = []
        self.refusals: list[str] = []
        self.directories = {2: 222}
        self.asked: list[tuple[int, bytes]] = []
        self.parts = SnapshotParts(lambda: 0.0, Budget(1 << 40, 1 << 39).open("snapshots"))
        self.snapshots: list[Snapshot] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.news = asyncio.Event()
        self.acceptance = Acceptance(ours, {1: "", 2: "", 3: ""}, self.directory_of)
        self.listener = PeerListener(self.acceptance, self.on_receive, self.answer, MAX_FRAME)
        self.listener.bind(at)
        self.port: int = self.listener._sockets[0].getsockname()[1]

    def directory_of(self, node: int, instance: int) -> int:
        return self.directories.get(node, 0) if instance <= KNOWN_VERSION else 0

    def on_receive(self, peer: int, messages: list[Message]) -> None:
        self.received += [(peer, message) for message in messages]
        self.news.set()

    async def answer(self, peer: int, request: pb.Request) -> pb.Response:
        if request.WhichOneof("what") == "snapshot_part":
            snapshot = self.parts.take(peer, request.snapshot_part)
            self.snapshots += [] if snapshot is None else [snapshot]
            result = pb.SnapshotResult(installed=snapshot is not None)
            return pb.Response(snapshot_part=result)
        command = request.propose_metadata.command
        self.asked.append((peer, command))
        self.news.set()
        await self.may_answer.wait()
        if command == b"bad":
            raise ValueError("a bad command")
        return pb.Response(propose_metadata=pb.ProposeMetadataResponse(result=command))

    def on_link(self, peer: int, up: bool) -> None:
        self.links.append((peer, up))
        self.news.set()

    def on_refusal(self, peer: int, reason: str, mutual: bool) -> None:
        assert mutual == ("members are" in reason or "was founded as" in reason)
        self.refusals.append(reason)
        self.news.set()

    def link(self, identity: NodeIdentity = PEER, port: int = 0) -> PeerLink:
        address = f"127.0.0.1:{port or self.port}"
        return PeerLink(identity, 1, address, self.on_link, self.on_refusal)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not done():
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def listening(at: str = "127.0.0.1:0", ours: NodeIdentity = OURS) -> AsyncIterator[Side]:
    side = Side(at, ours)
    await side.listener.start()
    try:
        yield side
    finally:
        side.listener.stop()


@asynccontextmanager
async def linked(
    side: Side, identity: NodeIdentity = PEER, port: int = 0
) -> AsyncIterator[PeerLink]:
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
        (replace(PEER, node_id=1), "node_id 1 is this node's own"),
        (replace(PEER, directory_id=5), "registered with another data directory"),
        (replace(PEER, directory_id=5, instance=5), "registered with another data directory"),
        (
            replace(PEER, membership=membership(members=(1, 2, 3, 4, 5))),
            "members are 1, 2, 3 on this side and 1, 2, 3, 4, 5 on node 2",
        ),
        (
            replace(PEER, membership=membership(founding=255)),
            "of this side was founded as 0000000000000007, that of node 2 as 00000000000000ff",
        ),
    ],
)
async def test_a_member_that_is_not_let_in_is_told_why(identity: NodeIdentity, reason: str) -> None:
    async with listening() as side:
        link = side.link(identity)
        await side.until(lambda: bool(side.refusals))
        assert reason in side.refusals[0]
        link.send([entry(1)])
        assert not link.up and not side.received
        await link.close()


async def test_a_directory_that_is_newer_than_all_that_is_known_is_not_judged() -> None:
    """The listener was away, or is new and reads the past: it must hear the unknown news."""
    newer = replace(PEER, directory_id=5, instance=KNOWN_VERSION + 1)
    async with listening() as side, linked(side, newer) as link:
        link.send([entry(1)])
        await side.until(lambda: bool(side.received))
        assert not side.refusals


async def test_who_does_not_know_its_cluster_learns_nothing_and_has_no_link() -> None:
    """The node may have an empty directory: it asks, and is admitted, or it takes part in
    nothing.
    """
    async with listening() as side:
        new = membership(founding=0)
        link = side.link(replace(PEER, membership=new))
        await side.until(lambda: bool(side.refusals))
        assert "node 2 does not know its cluster yet" in side.refusals[0]
        assert new.founding == 0 and not link.up
        await link.close()


async def test_a_peer_that_does_not_know_its_cluster_ends_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "RECONNECT_WAIT", 0.001)
    async with listening(ours=replace(OURS, membership=membership(founding=0))) as side:
        link = side.link()
        tried = 0
        before = side.acceptance.answer

        def counted(hello: pb.Hello) -> pb.Hello:
            nonlocal tried
            tried += 1
            side.news.set()
            return before(hello)

        monkeypatch.setattr(side.acceptance, "answer", counted)
        await side.until(lambda: tried > 3)
        assert not link.up and side.refusals == []
        await link.close()


async def test_no_common_protocol_is_refused_with_both_ranges() -> None:
    newer = PeerVersions(THIS_RELEASE, Finalized, Versions(98, 99))
    async with listening(ours=replace(OURS, versions=newer)) as side:
        link = side.link()
        await side.until(lambda: bool(side.refusals))
        wanted = f"protocol_version: node 2 speaks {PROTOCOL}, this side 98 to 99"
        assert side.refusals[0] == wanted
        await link.close()


def of_release(
    identity: NodeIdentity, release: Release, *, protocol: Versions = PROTOCOL
) -> NodeIdentity:
    return replace(identity, versions=PeerVersions(release, Finalized, protocol))


class BeforeTheGate(PeerVersions):
    """Sends as releases without cluster versions do, and accepts the same messages."""

    def write(self, hello: pb.Hello) -> None:
        hello.protocol_version = 3

    def refusal(self, hello: pb.Hello) -> str:
        return "" if hello.protocol_version == 3 else "protocol_version is not 3"


def before_the_gate(identity: NodeIdentity) -> NodeIdentity:
    return replace(identity, versions=BeforeTheGate(Release(), Finalized))


@pytest.mark.parametrize("older", ["caller", "listener"])
async def test_a_release_from_before_the_gate_has_a_link(older: str) -> None:
    ours, peer = OURS, PEER
    if older == "caller":
        peer = before_the_gate(PEER)
    else:
        ours = before_the_gate(OURS)
    async with listening(ours=ours) as side, linked(side, peer) as link:
        link.send([entry(1)])
        await side.until(lambda: bool(side.received))
        assert link.hello is not None
        if older == "listener":
            assert link.version == 3 and release_of(link.hello) == Release()


async def test_a_link_has_the_highest_common_version_and_knows_the_release() -> None:
    theirs = Release("9.9", Versions(1, 7), frozenset({"a"}))
    newer = of_release(OURS, theirs, protocol=Versions(3, 9))
    async with listening(ours=newer) as side, linked(side) as link:
        assert link.version == PROTOCOL.newest
        assert link.hello is not None and release_of(link.hello) == theirs


async def test_an_older_link_gets_no_newer_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener of that release would take it for damage, and close the stream."""
    monkeypatch.setitem(MESSAGES, Heartbeat, 4)
    newer = Heartbeat((7,), (1,), (1,))
    async with listening(ours=before_the_gate(OURS)) as side, linked(side) as link:
        link.send([newer, entry(1)])
        await side.until(lambda: bool(side.received))
        assert side.received == [(2, entry(1))]
    async with listening() as side, linked(side) as link:
        link.send([newer, entry(1)])
        await side.until(lambda: len(side.received) == 2)


async def test_an_older_release_is_told_why_after_the_upgrade() -> None:
    upgraded = replace(OURS, versions=PeerVersions(NEWER, lambda: Finalized(2)))
    async with listening(ours=upgraded) as side:
        link = side.link(before_the_gate(PEER))
        await side.until(lambda: bool(side.refusals))
        assert side.refusals[0] == (
            "the cluster is at version 2, and node 2 cannot take part in it: a release from "
            "before cluster versions takes part in versions 1 to 1, not in 2"
        )
        assert not link.up
        await link.close()


async def test_an_upgraded_node_has_no_link_to_an_older_release(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The older release does not know why; its refusal does not end the upgraded node."""
    monkeypatch.setattr(peers, "RECONNECT_WAIT", 0.001)
    upgraded = replace(PEER, versions=PeerVersions(NEWER, lambda: Finalized(2)))
    async with listening(ours=before_the_gate(OURS)) as side:
        link = side.link(upgraded)
        tried = 0
        before = side.acceptance.begin

        def counted(hello: pb.Hello) -> None:
            nonlocal tried
            tried += 1
            before(hello)
            side.news.set()

        monkeypatch.setattr(side.acceptance, "begin", counted)
        await side.until(lambda: tried > 3)
        assert not link.up and side.refusals == [] and side.links == []
        assert caplog.text.count("no link to peer=1: the cluster is at version 2") == 1
        await link.close()


@pytest.mark.parametrize("upgraded", ["caller", "listener"])
async def test_an_upgrade_ends_links_to_older_releases(
    upgraded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_stream, "PING_EVERY", 0.01)
    agreed = Finalized()
    versions = PeerVersions(NEWER, lambda: agreed)
    ours = replace(OURS, versions=versions) if upgraded == "listener" else before_the_gate(OURS)
    peer = replace(PEER, versions=versions) if upgraded == "caller" else before_the_gate(PEER)
    async with listening(ours=ours) as side, linked(side, peer):
        agreed = Finalized(2)
        await side.until(lambda: (1, False) in side.links)


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
    """Beyond the queue's limit new entries are dropped; Raft sends the important ones again."""
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
    """Also where the queue of entries is full: only frames that already left come before them."""
    async with listening() as side:
        async with linked(side) as link:
            (stream,) = side.listener._streams
            assert stream._transport is not None
            stream._transport.pause_reading()
            for number in range(2 * MAX_BULK_BYTES // MIB):
                link.send([entry(number, size=MIB)])
            await asyncio.sleep(0)  # a part of the first frame leaves
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
    """Its connections stay open, and only a request for a sign of life shows that it is gone."""
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
    """The bytes with one bit of the last byte changed."""
    return frame[:-1] + bytes([frame[-1] ^ 0x10])


async def test_a_link_says_once_that_it_gets_no_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "RECONNECT_WAIT", 0.001)
    async with listening() as side:
        opened = 0
        before = side.listener.opened

        def counted(stream: PeerStream) -> bool:
            nonlocal opened
            opened += 1
            side.news.set()
            return before(stream)

        monkeypatch.setattr(side.listener, "opened", counted)
        link = side.link(replace(PEER, cluster_id="other"))
        await side.until(lambda: opened > 5)
        await link.close()
    assert caplog.text.count("is its cluster_id another") == 1
    assert side.refusals == [] and side.links == []


# -- requests -------------------------------------------------------------------------------


def propose(command: bytes) -> pb.Request:
    return pb.Request(propose_metadata=pb.ProposeMetadataRequest(command=command))


async def test_requests_are_answered_each_its_own_way() -> None:
    async with listening() as side, linked(side) as link:
        commands = [b"%d" % n for n in range(50)]
        answers = await asyncio.gather(*(link.ask(propose(command)) for command in commands))
        assert [answer.propose_metadata.result for answer in answers] == commands
        assert side.asked == [(2, command) for command in commands]
        with pytest.raises(PeerCallError, match="a bad command"):
            await link.ask(propose(b"bad"))
        assert (await link.ask(propose(b"good"))).propose_metadata.result == b"good"
        assert side.links == [(1, True)]


async def test_nobody_waits_for_a_connection_that_broke() -> None:
    async with listening() as side, linked(side) as link:
        side.may_answer.clear()
        asked = asyncio.ensure_future(link.ask(propose(b"x")))
        await side.until(lambda: bool(side.asked))
        (stream,) = side.listener._streams
        stream.close()
        with pytest.raises(PeerCallError, match="the connection broke"):
            await asked
        assert not stream._answering


async def test_a_request_that_was_not_sent_when_the_connection_broke_says_so() -> None:
    async with listening() as side, linked(side) as link:
        side.may_answer.clear()
        asked = asyncio.ensure_future(link.ask(propose(b"x")))
        await side.until(lambda: bool(side.asked))
        queued = asyncio.ensure_future(link.ask(propose(b"y")))
        await asyncio.sleep(0)
        link._calls.lost()  # before the loop's next turn, in which it would be sent
        told = await asyncio.gather(asked, queued, return_exceptions=True)
        assert [type(one) for one in told] == [PeerCallError, NotSentError]


async def test_no_request_without_a_connection() -> None:
    async with listening() as side:
        link = side.link(replace(PEER, cluster_id="other"))
        with pytest.raises(NotSentError, match="no connection"):
            await link.ask(propose(b"x"))
        await link.close()


async def test_requests_without_an_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_REQUESTS", 3)
    async with listening() as side, linked(side) as link:
        side.may_answer.clear()
        asked = [asyncio.ensure_future(link.ask(propose(b"%d" % n))) for n in range(3)]
        await side.until(lambda: len(side.asked) == 3)
        with pytest.raises(NotSentError, match="3 requests"):
            await link.ask(propose(b"x"))
        side.may_answer.set()
        await asyncio.gather(*asked)
        await link.ask(propose(b"x"))


async def test_who_asks_beyond_the_bound_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_listener, "MAX_REQUESTS", 3)
    async with listening() as side, linked(side) as link:
        side.may_answer.clear()
        asked = [asyncio.ensure_future(link.ask(propose(b"%d" % n))) for n in range(4)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in done] == [PeerCallError] * 4
        assert (1, False) in side.links


async def test_requests_take_turns_with_messages() -> None:
    """A link that always has messages still sends a request, and vice versa."""
    async with listening() as side, linked(side) as link:
        big = entry(1, size=8 * MIB)
        for _ in range(6):
            link.send([big])
        answer = asyncio.ensure_future(link.ask(propose(b"x")))
        await side.until(lambda: bool(side.asked))
        assert len(side.received) < 6
        await answer
        await side.until(lambda: len(side.received) == 6)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, 3 * PART_BYTES + 1])
async def test_a_snapshot_goes_in_parts(size: int) -> None:
    state = bytes(range(256)) * (size // 256) + bytes(size % 256)
    sent = Snapshot(16, 7, 99, 6, state, checksum_of(16, 99, 6, state))
    async with listening() as side, linked(side) as link:
        result = await send_snapshot(link, sent)
        assert result.installed and side.snapshots == [sent] and sent.is_whole
        assert not side.parts._arriving


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
        prefixed(encode_head(pb.Frame(request=pb.Request(id=1)))),
        prefixed(encode_hello(replace(PEER, cluster_id="other").hello())),
        prefixed(encode_hello(replace(PEER, node_id=9).hello())),
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
        "a request first",
        "another cluster",
        "no node of ours",
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
                answer = await reader.read()  # until it is closed
            except ConnectionResetError:
                answer = b""
        knows_us = said.startswith(prefixed(encode_hello(PEER.hello())))
        assert knows_us or answer == b"", "a stranger learns nothing"
        writer.close()
        async with linked(side) as link:
            link.send([entry(3)])
            await side.until(lambda: bool(side.received))
        assert side.received == [(2, entry(3))]


async def test_who_says_nothing_must_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_listener, "HELLO_TIMEOUT", 0.05)
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


async def test_strangers_make_room_for_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers may hold all connections for as long as a Hello may take, and come again."""
    monkeypatch.setattr(peer_listener, "HELLO_TIMEOUT", 600.0)
    async with listening() as side:
        monkeypatch.setattr(side.listener, "_most", 3)
        silent = [await asyncio.open_connection("127.0.0.1", side.port) for _ in range(5)]
        async with linked(side) as link:
            assert await silent[0][0].read() == b"", "the oldest had to go"
            more = [await asyncio.open_connection("127.0.0.1", side.port) for _ in range(5)]
            link.send([entry(3)])
            await side.until(lambda: bool(side.received))
            assert len(side.listener._streams) <= 3
        for _, writer in silent + more:
            writer.close()


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
        link = PeerLink(PEER, 1, f"node.test:{side.port}", side.on_link, side.on_refusal)
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
        link = PeerLink(PEER, 1, f"{host}:{side.port}", side.on_link, side.on_refusal)
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
        other = PeerListener(side.acceptance, side.on_receive, side.answer, MAX_FRAME)
        with pytest.raises(ListenError, match=rf"peer_port_offset: .*127\.0\.0\.1:{side.port}"):
            other.bind(f"127.0.0.1:{side.port}")
        other.stop()
