"""Connections to other nodes, and the request of a new data directory to join.

PeerLink --connect--> PeerConnection --first_frame--> the other's Hello
a joining node --ask--> Welcome
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from cluster.config.addresses import host_and_port
from cluster.security.names import NamelessError
from cluster.security.peer_tls import Peer, PeerTls, listed
from cluster.transport.connection import PeerConnection, PlainConnection, TlsConnection
from cluster.transport.frames import decode_frame, encode_head
from cluster.transport.stream import LENGTH, StreamError, framed, tune
from cluster.v1 import peer_pb2 as pb

CONNECT_TIMEOUT = 1.0  # seconds; after the second SYN, should the first be lost
HELLO_TIMEOUT = 2.0
MAX_HELLO_BYTES = 64 * 1024  # a Welcome names every node


class StrangerError(Exception):
    """The peer closed the connection without its Hello."""

    def __init__(self) -> None:
        super().__init__(
            "it does not answer: is its cluster_id another, or is this node not among its nodes?"
        )


async def connect(
    address: str, tls: PeerTls | None, peer: int = 0
) -> tuple[PeerConnection, Peer | None]:
    """Connects; with TLS, also returns the peer. peer: the required node; 0: any.

    Raises OSError, ssl.SSLError, and NamelessError if it is another node.
    """
    sock = await _connect_tcp(address)
    if tls is None:
        return PlainConnection(asyncio.get_running_loop(), sock), None
    host, _ = host_and_port(address)
    connection = await TlsConnection.open(sock, tls.client_context(), host, HELLO_TIMEOUT)
    try:
        found = tls.peer(connection.handshake)
        if peer and peer not in found.nodes:
            raise NamelessError(f"the certificate is of {listed(found.nodes)}, not {peer}")
    except NamelessError:
        connection.close()
        raise
    return connection, found


async def first_frame(connection: PeerConnection) -> pb.Frame:
    """Receives the first frame. Raises StrangerError, StreamError, FrameError, OSError."""
    (length,) = LENGTH.unpack(await _receive(connection, LENGTH.size))
    if length > MAX_HELLO_BYTES:
        raise StreamError(f"a Hello of {length} bytes")
    return decode_frame(await _receive(connection, length))[0]


async def ask(address: str, join: pb.Join, tls: PeerTls | None) -> pb.Welcome:
    """Asks the node at `address` to join.

    Raises the errors of `connect` and `first_frame`, and TimeoutError.
    """
    async with asyncio.timeout(CONNECT_TIMEOUT + 2 * HELLO_TIMEOUT):
        connection, _ = await connect(address, tls)
        with contextlib.closing(connection):
            await connection.send(framed(encode_head(pb.Frame(join=join))))
            answer = await first_frame(connection)
    if not answer.HasField("welcome"):
        raise StreamError("the node did not answer with a Welcome")
    return answer.welcome


async def _connect_tcp(address: str) -> socket.socket:
    host, port = host_and_port(address)
    # No limit for the look-up alone: it would go on in its thread after the limit.
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, at in found[:-1]:
        # A name may have several addresses, and the peer may listen at only one.
        with contextlib.suppress(OSError):
            return await _connect_to(socket.socket(family, kind, protocol), at)
    family, kind, protocol, _, at = found[-1]
    return await _connect_to(socket.socket(family, kind, protocol), at)


async def _connect_to(sock: socket.socket, address: Any) -> socket.socket:
    try:
        sock.setblocking(False)
        tune(sock)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _receive(connection: PeerConnection, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = await connection.receive(size - len(received))
        if not part:
            raise StrangerError
        received += part
    return received
