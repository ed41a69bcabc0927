"""TLS between nodes over real sockets: admission, refusal, and exchange of running certificates."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import logging
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.consensus.message import Append, Message, Vote
from cluster.errors import ConfigError
from cluster.features import THIS_RELEASE, Finalized
from cluster.security.certificates import CertificateFiles, Certificates, may_be_used_by_others
from cluster.security.peer_tls import Peer, PeerTls
from cluster.transport import listener as listener_module
from cluster.transport import stream
from cluster.transport.connection import MAX_JOINED_BYTES, RECORD_BYTES, joined
from cluster.transport.frames import encode_frame, encode_hello
from cluster.transport.hellos import Acceptance, NodeIdentity
from cluster.transport.link import PeerLink
from cluster.transport.listener import PeerListener
from cluster.transport.membership import Membership
from cluster.transport.stream import framed
from cluster.transport.versions import PeerVersions
from cluster.v1 import peer_pb2 as pb
from harness.certificates import Authority, Pair, dns, uri
from tests.fuzz import peer_port
from tests.fuzz.mutate import mutations

CLUSTER = "c"
MAX_FRAME = 24 * 1024 * 1024


def identity(node: int) -> NodeIdentity:
    members = Membership((1, 2, 3), 7)
    versions = PeerVersions(THIS_RELEASE, Finalized)
    return NodeIdentity(CLUSTER, node, node * 11, node * 111, members, versions)


def name_of(node: int, cluster: str = CLUSTER) -> str:
    return f"oncelog://{cluster}/node/{node}"


class OnLog(logging.Handler):
    """Calls back after each line that links log."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._loop, self._call = asyncio.get_running_loop(), call
        logging.getLogger("cluster.transport.link").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._loop.call_soon(self._call)


class World:
    """Node 1 listens. Any test can have certificates, by one authority or another."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.authority = directory, Authority()
        self.received: list[tuple[int, Message]] = []
        self.links: list[tuple[int, bool]] = []
        self.news = asyncio.Event()
        self.log = OnLog(self.news.set)
        self.tls = self.tls_of(1)
        acceptance = Acceptance(identity(1), {1: "", 2: "", 3: ""}, lambda _, instance: 0)
        self.acceptance = acceptance
        self.listener = PeerListener(acceptance, self._receive, self._answer, MAX_FRAME, self.tls)
        self.listener.bind("127.0.0.1:0")
        self.port: int = self.listener._sockets[0].getsockname()[1]

    def certificates(self, name: str, pair: Pair, ca: bytes | None = None) -> Certificates:
        certificate, key = pair.write(self.directory, name)
        trusted = self.directory / f"{name}.ca"
        trusted.write_bytes(ca or self.authority.certificate)
        return Certificates(CertificateFiles("peer", certificate, key, trusted))

    def tls_of(self, node: int, pair: Pair | None = None, ca: bytes | None = None) -> PeerTls:
        pair = pair or self.authority.issue([uri(name_of(node))])
        return PeerTls(self.certificates(f"node{node}", pair, ca), CLUSTER, node)

    def context(self, pair: Pair, ca: bytes | None = None) -> ssl.SSLContext:
        """The context of a client that shows this certificate, made by hand."""
        certificate, key = pair.write(self.directory, "stranger")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=(ca or self.authority.certificate).decode())
        context.load_cert_chain(certificate, key)
        return context

    def link(self, node: int = 2, tls: PeerTls | None = None, peer: int = 1) -> PeerLink:
        address = f"127.0.0.1:{self.port}"
        tls = tls or self.tls_of(node)
        return PeerLink(identity(node), peer, address, self._on_link, lambda *_: None, tls)

    def _receive(self, peer: int, messages: list[Message]) -> None:
        self.received += [(peer, message) for message in messages]
        self.news.set()

    async def _answer(self, peer: int, request: pb.Request) -> pb.Response:
        result = pb.ProposeMetadataResponse(result=request.propose_metadata.command)
        return pb.Response(propose_metadata=result)

    def _on_link(self, peer: int, up: bool) -> None:
        self.links.append((peer, up))
        self.news.set()

    async def until(self, done: Any) -> None:
        async with asyncio.timeout(30):
            while not done():
                self.news.clear()
                await self.news.wait()

    async def says(self, context: ssl.SSLContext | None, data: bytes) -> bytes:
        """The listener's answer to these bytes; empty if it closes."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        except OSError:
            return b""
        try:
            writer.write(data)
            async with asyncio.timeout(10):
                return await reader.read(65536)
        except OSError:
            return b""
        finally:
            writer.transport.abort()


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    made = World(directory)
    await made.listener.start()
    try:
        yield made
    finally:
        made.listener.stop()
        logging.getLogger("cluster.transport.link").removeHandler(made.log)


def entries(count: int, size: int) -> Append:
    from crc32c import crc32c

    data = tuple(bytes([number % 251]) * size for number in range(count))
    return Append(7, 1, 1, 1, 0, (1,) * count, data, tuple(map(crc32c, data)))


async def test_messages_and_requests_go_over_tls(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        link = node.link()
        await node.until(lambda: link.up)
        large = entries(30, 400_000)
        link.send([Vote(3, 1, 2, 3)])
        link.send([large])
        await node.until(lambda: len(node.received) == 2)
        assert node.received == [(2, Vote(3, 1, 2, 3)), (2, large)]
        request = pb.Request(propose_metadata=pb.ProposeMetadataRequest(command=b"x" * 100_000))
        answer = await link.ask(request)
        assert answer.propose_metadata.result == b"x" * 100_000
        await link.close()
        await node.until(lambda: node.links[-1] == (1, False))


async def test_the_nodes_of_a_machine_share_a_certificate(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        shared = node.authority.issue([uri(name_of(2)), uri(name_of(3))])
        links = [node.link(each, node.tls_of(each, shared)) for each in (2, 3)]
        await node.until(lambda: all(link.up for link in links))
        for each, link in zip((2, 3), links, strict=True):
            link.send([Vote(3, 1, each, 3)])
        await node.until(lambda: len(node.received) == 2)
        assert {peer for peer, _ in node.received} == {2, 3}
        for link in links:
            await link.close()
        with pytest.raises(ConfigError, match="is of nodes 2, 3, and this is node 4"):
            node.tls_of(4, shared)


async def test_a_link_takes_a_certificate_that_names_its_peer_among_others(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        node.tls = node.tls_of(1, node.authority.issue([uri(name_of(1)), uri(name_of(101))]))
        node.listener.tls = node.tls
        link = node.link()
        await node.until(lambda: link.up)
        await link.close()


def test_small_pieces_are_sealed_together_and_large_ones_are_not_copied() -> None:
    large, largest = b"l" * RECORD_BYTES, b"L" * 1_000_000
    pieces = [b"a", b"b" * 96, large, b"c", b"d", largest, b"", b"e"]
    found = joined(pieces)
    assert b"".join(found) == b"".join(pieces)
    assert [len(piece) for piece in found] == [97, RECORD_BYTES, 2, 1_000_000, 1]
    assert found[1] is large and found[3] is largest
    many = [bytes([number % 256]) * 1000 for number in range(1000)]
    assert b"".join(joined(many)) == b"".join(many)
    assert all(len(piece) <= MAX_JOINED_BYTES for piece in joined(many))
    assert joined([]) == [] and len(joined(many)) == 4


async def test_a_listener_without_tls_lets_the_same_stranger_in(tmp_path: Path) -> None:
    """The attack works with the protection off: a Hello is all that it takes."""
    async with world(tmp_path) as node:
        hello = framed(encode_hello(identity(2).hello()))
        assert await node.says(None, hello) == b""
        node.listener.stop()
    acceptance = Acceptance(identity(1), {1: "", 2: ""}, lambda _, instance: 0)
    open_port = PeerListener(acceptance, node._receive, node._answer, MAX_FRAME)
    open_port.bind("127.0.0.1:0")
    node.port = open_port._sockets[0].getsockname()[1]
    await open_port.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(hello + framed(b"".join(encode_frame([Vote(3, 1, 2, 3)]))))
        await node.until(lambda: node.received)
        assert await reader.read(4)
        writer.close()
    finally:
        open_port.stop()


STRANGERS = {
    "another authority": lambda ours: Authority().issue([uri(name_of(2))]),
    "expired": lambda ours: ours.issue([uri(name_of(2))], ends=-dt.timedelta(seconds=5)),
    "not yet valid": lambda ours: ours.issue([uri(name_of(2))], begins=dt.timedelta(hours=1)),
    "another node": lambda ours: ours.issue([uri(name_of(3))]),
    "no such node": lambda ours: ours.issue([uri(name_of(9))]),
    "another cluster": lambda ours: ours.issue([uri(name_of(2, "d"))]),
    "a cluster that begins alike": lambda ours: ours.issue([uri(name_of(2, "c2"))]),
    "a client": lambda ours: ours.issue([uri("spiffe://c/node/2")]),
    "only the common name": lambda ours: ours.issue([], common_name=name_of(2)),
    "a host of that name": lambda ours: ours.issue([dns("node2")], common_name=name_of(2)),
    "other nodes of a machine": lambda ours: ours.issue([uri(name_of(1)), uri(name_of(3))]),
    "a client's name beside": lambda ours: ours.issue([uri(name_of(2)), uri("spiffe://c/a")]),
    "another cluster's beside": lambda ours: ours.issue([uri(name_of(2)), uri(name_of(2, "d"))]),
    "too many": lambda ours: ours.issue([uri(name_of(node)) for node in range(2, 67)]),
    "upper case": lambda ours: ours.issue([uri("ONCELOG://c/node/2")]),
    "a longer id": lambda ours: ours.issue([uri(name_of(2) + "0")]),
    "a leading zero": lambda ours: ours.issue([uri("oncelog://c/node/02")]),
    "a NUL": lambda ours: ours.issue([uri(name_of(2) + "\0.evil")]),
    "a path": lambda ours: ours.issue([uri("oncelog://c/node/3/../2")]),
}


@pytest.mark.parametrize("who", STRANGERS)
async def test_who_has_no_certificate_of_that_node_is_told_nothing(
    tmp_path: Path, who: str
) -> None:
    async with world(tmp_path) as node:
        stranger = STRANGERS[who](node.authority)
        message = framed(b"".join(encode_frame([Vote(3, 1, 2, 3)])))
        said = framed(encode_hello(identity(2).hello())) + message
        assert await node.says(node.context(stranger), said) == b""
        # The same listener lets the link with the right certificate in.
        link = node.link()
        await node.until(lambda: link.up)
        await link.close()
        assert node.received == []


@pytest.mark.parametrize("who", STRANGERS)
async def test_with_the_check_off_the_same_strangers_get_in(
    tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as node:
        server = node.tls.server_context

        def trusting() -> ssl.SSLContext:
            context = server()
            context.verify_mode = ssl.CERT_NONE
            return context

        monkeypatch.setattr(node.listener._handshakes[0], "_context", trusting)
        anybody = Peer(frozenset({2}), float("inf"), server())
        monkeypatch.setattr(node.tls, "peer", lambda found: anybody)
        stranger = STRANGERS[who](node.authority)
        said = framed(encode_hello(identity(2).hello()))
        assert await node.says(node.context(stranger), said) != b""


async def test_random_frames_behind_tls_harm_nobody_else(tmp_path: Path) -> None:
    """Covers a member with a sound certificate: each frame ends in a closed connection or in
    nothing.
    """
    async with world(tmp_path) as node:
        theirs = node.context(node.authority.issue([uri(name_of(3))]))
        hello = framed(encode_hello(identity(3).hello()))
        frames = [hello + framed(b"".join(encode_frame([Vote(3, 1, 2, 3), entries(2, 50)])))]
        link = node.link()
        await node.until(lambda: link.up)
        wires = mutations([*frames, peer_port.seeds()[0][1:]], random.Random(2026))
        for wire in itertools.islice(wires, 80):
            _, writer = await asyncio.open_connection("127.0.0.1", node.port, ssl=theirs)
            writer.write(wire)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        async with asyncio.timeout(30):
            while set(node.acceptance.connected) != {2}:  # noqa: ASYNC110 - an end gives no event
                await asyncio.sleep(0.01)
        before = len(node.received)
        link.send([Vote(9, 1, 2, 3)])
        await node.until(lambda: (2, Vote(9, 1, 2, 3)) in node.received[before:])
        assert link.up and len(node.links) == 1
        await link.close()


async def test_no_certificate_and_older_versions_of_tls_are_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        said = framed(encode_hello(identity(2).hello()))
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname = False
        bare.load_verify_locations(cadata=node.authority.certificate.decode())
        assert await node.says(bare, said) == b""
        old = node.context(node.authority.issue([uri(name_of(2))]))
        assert await node.says(old, said) != b""  # it is refused only for its version, next
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await node.says(old, said) == b""


async def test_a_link_sends_nothing_to_whoever_is_not_its_peer(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        link = node.link(peer=3)  # node 1 answers at node 3's address
        stranger = node.link(3, node.tls_of(3, ca=Authority().certificate))
        await node.until(lambda: link._untrusted and stranger._untrusted)
        assert not link.up
        assert not stranger.up
        assert "node 1, not 3" in link._untrusted
        assert "certificate verify failed" in stranger._untrusted
        assert not node.acceptance.connected
        await link.close()
        await stranger.close()


async def test_certificates_and_authorities_are_exchanged_while_links_run(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        first = node.link()
        await node.until(lambda: first.up)
        new = Authority("new")
        new.issue([uri(name_of(1))]).write(tmp_path, "node1")
        (tmp_path / "node1.ca").write_bytes(new.certificate)
        # The old authority no longer counts for new connections.
        former = node.context(node.authority.issue([uri(name_of(3))]), new.certificate)
        assert await node.says(former, framed(encode_hello(identity(3).hello()))) == b""
        pair = new.issue([uri(name_of(3))])
        second = node.link(3, node.tls_of(3, pair, new.certificate))
        await node.until(lambda: second.up)
        first.send([Vote(3, 1, 2, 3)])
        await node.until(lambda: node.received)
        assert first.up, "until its next tick; see below"
        await first.close()
        await second.close()


class Off:
    """Stands for the check, and lets everything go on."""

    def distrust(self, peer: object) -> str:
        return ""


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("end", ["of the link", "of the listener"])
async def test_what_is_connected_ends_when_its_authority_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, checked: bool
) -> None:
    """Each end checks for itself: here one end now trusts another authority, and its peer does not
    check. Without the check the link goes on, although nobody could make it again.
    """
    monkeypatch.setattr(stream, "PING_EVERY", 0.02)
    async with world(tmp_path) as node:
        theirs = node.tls_of(2)
        link = node.link(2, theirs)
        await node.until(lambda: link.up)
        looks, other = (theirs, node.tls) if end == "of the link" else (node.tls, theirs)
        monkeypatch.setattr(other, "distrust", Off().distrust)
        if not checked:
            monkeypatch.setattr(looks, "distrust", Off().distrust)
        name = "node2" if looks is theirs else "node1"
        (tmp_path / f"{name}.ca").write_bytes(Authority("new").certificate)
        if checked:
            await node.until(lambda: not link.up)
            await node.until(lambda: link._untrusted or not node.acceptance.connected)
            assert [up for _, up in node.links] == [True, False], "it does not come back"
        else:
            await asyncio.sleep(0.2)  # ten ticks
            assert [up for _, up in node.links] == [True]
        await link.close()


async def test_a_link_is_made_anew_when_an_authority_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PING_EVERY", 0.02)
    async with world(tmp_path) as node:
        link = node.link()
        await node.until(lambda: link.up)
        both = node.authority.certificate + Authority("new").certificate
        (tmp_path / "node1.ca").write_bytes(both)
        await node.until(lambda: [up for _, up in node.links] == [True, False, True])
        # The node's own certificate is renewed: nobody has to connect for that.
        node.authority.issue([uri(name_of(1))]).write(tmp_path, "node1")
        await asyncio.sleep(0.2)
        assert link.up and len(node.links) == 3
        await link.close()


@pytest.mark.parametrize("end", ["of the link", "of the listener"])
async def test_what_is_connected_ends_with_the_other_sides_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(stream, "PING_EVERY", 0.02)
    async with world(tmp_path) as node:
        theirs = node.tls_of(2)
        link = node.link(2, theirs)
        await node.until(lambda: link.up)
        looks = theirs if end == "of the link" else node.tls
        later = time.time() + dt.timedelta(days=1, seconds=1).total_seconds()
        monkeypatch.setattr(looks, "_wall_clock", lambda: later)
        await node.until(lambda: not link.up)
        await link.close()


async def test_a_key_that_does_not_fit_is_not_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as node:
        before = node.tls.server_context()
        other = node.authority.issue([uri(name_of(1))])
        (tmp_path / "node1.crt").write_bytes(other.certificate)
        assert node.tls.server_context() is before
        assert node.tls.server_context() is before
        assert caplog.text.count("is not the key of the certificate") == 1
        (tmp_path / "node1.key").write_bytes(other.key)
        assert node.tls.server_context() is not before


async def test_handshakes_that_are_not_finished_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "MAX_HANDSHAKES", 8)
    async with world(tmp_path) as node:
        silent = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(100)]
        link = node.link()
        await node.until(lambda: link.up)
        assert len(node.listener._handshakes[0]._under_way) <= 8
        await link.close()
        for sock in silent:
            sock.close()


def test_a_node_refuses_certificates_that_are_not_its_own(tmp_path: Path) -> None:
    authority = Authority()

    def tls(pair: Pair, node: int = 1) -> PeerTls:
        certificate, key = pair.write(tmp_path, "own")
        ca = tmp_path / "ca"
        ca.write_bytes(authority.certificate)
        return PeerTls(Certificates(CertificateFiles("peer", certificate, key, ca)), CLUSTER, node)

    good = authority.issue([uri(name_of(1))])
    tls(good)
    with pytest.raises(ConfigError, match="peer_cert: is of node 1, and this is node 2"):
        tls(good, 2)
    with pytest.raises(
        ConfigError, match="peer_cert: 'oncelog://d/node/1' is not oncelog://c/node/ID"
    ):
        tls(authority.issue([uri(name_of(1, "d"))]))
    with pytest.raises(ConfigError, match=r"peer_key: .* is not the key of the certificate"):
        tls(replace(good, key=authority.issue([]).key))
    with pytest.raises(ConfigError, match=r"peer_cert: .* holds no certificate"):
        tls(replace(good, certificate=b"nothing"))
    certificate, key = good.write(tmp_path, "own")
    key.chmod(0o640)
    with pytest.raises(ConfigError, match=r"peer_key: .*others may use it \(mode 640\)"):
        CertificateFiles("peer", certificate, key, None).read()
    root, other = 0, 10_001
    assert not may_be_used_by_others(0o440, root, other), "as Kubernetes mounts Secrets"
    for mode, owner, user in ((0o440, other, other), (0o440, root, root), (0o460, root, other)):
        assert may_be_used_by_others(mode, owner, user)
    assert may_be_used_by_others(0o444, root, other)
