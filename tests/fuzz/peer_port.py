"""Peers' port as a stranger meets it: a real PeerStream, fed bytes as they come.

All input ends in a closed connection or in nothing, and a stranger that did not name the cluster
and one of its nodes has got no byte back.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine
from typing import Any, cast

from cluster.consensus.message import Message
from cluster.features import THIS_RELEASE, Finalized
from cluster.security.peer_tls import Peer
from cluster.transport.frames import FrameError, decode_frame, encode_head, encode_hello
from cluster.transport.hellos import Acceptance, NodeIdentity
from cluster.transport.listener import PeerListener, PeerStream
from cluster.transport.membership import Membership
from cluster.transport.stream import LENGTH
from cluster.transport.versions import PROTOCOL, PeerVersions
from cluster.v1 import peer_pb2 as pb

OURS = NodeIdentity(
    "oncelog",
    1,
    11,
    directory_id=111,
    membership=Membership((1, 2, 3), 7),
    versions=PeerVersions(THIS_RELEASE, Finalized),
)
LIMIT = 1 << 20
NODE_2 = Peer(frozenset({2}), float("inf"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


class _Later:
    """A loop's later calls, which are never made."""

    def cancel(self) -> None: ...
    def add_done_callback(self, callback: object) -> None: ...


class _Loop:
    def call_later(self, delay: float, callback: Callable[[], None]) -> _Later:
        return _Later()

    def create_task(self, work: Coroutine[Any, Any, None]) -> _Later:
        work.close()
        return _Later()


class _Socket:
    """A socket; also the TLS object of node 2's connection."""

    def setsockopt(self, *option: int) -> None: ...


class _Tls:
    """A TLS state: the handshake is done, and the certificate is node 2's."""

    def peer(self, found: object) -> Peer:
        return NODE_2

    def distrust(self, peer: Peer) -> str:
        return ""


class _Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def get_extra_info(self, name: str) -> _Socket:
        return _Socket()

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    abort = close


async def _never(peer: int, request: pb.Request) -> pb.Response:
    raise AssertionError("the loop here does nothing later")


def run(data: bytes) -> None:
    """Feeds the input; its first byte says how the rest is cut up."""
    _run(data, None, (1, 2, 3))


def run_behind_tls(data: bytes) -> None:
    """Does the same over a connection with node 2's certificate: nobody else gets a byte."""
    _run(data, _Tls(), (2,))


def _run(data: bytes, tls: _Tls | None, members: tuple[int, ...]) -> None:
    received: list[Message] = []
    acceptance = Acceptance(OURS, {1: "", 2: "", 3: ""}, lambda peer, instance: 0)
    listener = PeerListener(
        acceptance, lambda peer, messages: received.extend(messages), _never, LIMIT, cast(Any, tls)
    )
    stream, transport = PeerStream(listener, cast(Any, _Loop())), _Transport()
    stream.connection_made(cast(Any, transport))
    cut, rest = data[0] + 1 if data else 1, data[1:]
    at = 0
    while at < len(rest) and not transport.closed:
        room = stream.get_buffer(-1)
        size = min(len(room), len(rest) - at, cut)
        room[:size] = rest[at : at + size]
        stream.buffer_updated(size)
        at += size
    assert not (transport.written or received) or _is_member(rest, members)
    stream.connection_lost(None)
    assert not acceptance.connected and not listener._streams


def _is_member(rest: bytes, members: tuple[int, ...]) -> bool:
    """Tells whether the first frame is the Hello of one of these nodes of the cluster."""
    (length,) = LENGTH.unpack_from(rest)
    try:
        head, _ = decode_frame(rest[LENGTH.size : LENGTH.size + length])
    except FrameError:
        return False
    return head.hello.cluster_id == OURS.cluster_id and head.hello.node_id in members


def seeds() -> list[bytes]:
    def hello(cluster_id: str, node_id: int) -> bytes:
        return encode_hello(
            pb.Hello(
                cluster_id=cluster_id,
                node_id=node_id,
                incarnation=99,
                directory_id=5,
                protocol_version=PROTOCOL.oldest,
                members=(1, 2, 3),
                founding=7,
            )
        )

    propose = pb.ProposeMetadataRequest(command=b"x")
    part = pb.SnapshotPart(group=0, term=1, index=9, index_term=1, size=3, data=b"abc")
    after = (
        encode_head(pb.Frame(request=pb.Request(id=1, propose_metadata=propose))),
        encode_head(pb.Frame(request=pb.Request(id=2, snapshot_part=part))),
        b"",
    )
    hellos = (hello("oncelog", 2), hello("other", 2), hello("oncelog", 9), hello("oncelog", 1))
    wires = [b"".join(LENGTH.pack(len(one)) + one for one in (first, *after)) for first in hellos]
    return [bytes([cut]) + wire for cut in (0, 40, 255) for wire in wires]
