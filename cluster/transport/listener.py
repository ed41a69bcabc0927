"""Takes what peers send: frames from their streams, snapshots and commands over gRPC.

    PeerLink of a peer --frames--> PeerListener (one PeerStream for each) --> receive
                       --gRPC----> PeerService --> install, propose

The listener refuses another cluster, a wrong node id, a replaced data directory, and a
second process with an id that it is already connected to. Until a Hello was accepted, a
connection may hold little memory and not stay for long.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import cast

import grpc

from cluster.config import host_and_port
from cluster.consensus.message import Message, Snapshot
from cluster.errors import ListenError
from cluster.transport.frames import FrameError, decode_frame, encode_hello
from cluster.transport.link import (
    HELLO_TIMEOUT,
    MAX_HELLO_BYTES,
    PROTOCOL_VERSION,
    Identity,
)
from cluster.transport.stream import PING, FrameReader, Keepalive, StreamError, framed, tune
from cluster.v1 import peer_pb2 as pb
from cluster.v1 import peer_pb2_grpc as rpc

log = logging.getLogger(__name__)

MAX_SNAPSHOT_BYTES = 4 * 1024 * 1024 * 1024
MAX_STREAMS = 256  # a peer has one; what it gave up may linger for seconds


class PeerListener:
    """Listens for the peers' streams, and knows who is connected.

    peers:        node ids that may connect.
    receive:      messages of one peer, in order.
    directory_of: the id of a node's data directory as the cluster knows it, or 0.
    max_frame:    bytes of the largest frame that a peer may send.
    """

    def __init__(
        self,
        identity: Identity,
        peers: Mapping[int, str],
        receive: Callable[[int, list[Message]], None],
        directory_of: Callable[[int], int],
        max_frame: int,
    ) -> None:
        self.identity, self._peers, self.receive = identity, peers, receive
        self._directory_of, self.max_frame = directory_of, max_frame
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._streams: set[PeerStream] = set()
        # peer -> (incarnation, streams open)
        self._connected: dict[int, tuple[int, int]] = {}
        self._refused: dict[int, str] = {}  # the last refusal of each, logged once

    def bind(self, address: str) -> None:
        """Takes the port; connections wait until `start`. Raises ListenError."""
        host, port = host_and_port(address)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, at in sorted({(one[0], str(one[4][0])) for one in found}):
                # As with gRPC, "::" stands for all addresses of both families. The port is
                # not shared with another process: only what a last life left is ignored.
                both = at == "::" and socket.has_dualstack_ipv6()
                self._sockets.append(
                    socket.create_server(
                        (at, port), family=family, backlog=MAX_STREAMS, dualstack_ipv6=both
                    )
                )
        except OSError as error:
            self.stop()
            raise ListenError(
                f"peer_port_offset: peers' streams cannot be taken at {address}: {error}"
            ) from error

    async def start(self) -> None:
        assert self._sockets, "bind comes first"
        loop = asyncio.get_running_loop()
        while self._sockets:
            sock = self._sockets.pop()
            self._servers.append(
                await loop.create_server(lambda: PeerStream(self, loop), sock=sock)
            )

    def stop(self) -> None:
        """Ends all streams and gives the port back. May be called twice."""
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        for stream in list(self._streams):
            stream.close()

    # -- what the streams ask ---------------------------------------------------------------

    def opened(self, stream: PeerStream) -> bool:
        """Whether there is room for one more connection."""
        if len(self._streams) >= MAX_STREAMS:
            log.warning("refused a peer's stream: %d are open", len(self._streams))
            return False
        self._streams.add(stream)
        return True

    def closed(self, stream: PeerStream) -> None:
        self._streams.discard(stream)

    def refusal(self, hello: pb.Hello) -> str:
        """Why this peer may not connect, or nothing. Logs a new reason."""
        refused = self._why_not(hello)
        if not refused:
            self._refused.pop(hello.node_id, None)
        elif hello.node_id in self._peers and self._refused.get(hello.node_id) != refused:
            log.warning("refused node %d: %s", hello.node_id, refused)
            self._refused[hello.node_id] = refused
        return refused

    def join(self, hello: pb.Hello) -> None:
        streams = self._connected.get(hello.node_id, (0, 0))[1]
        self._connected[hello.node_id] = (hello.incarnation, streams + 1)

    def leave(self, hello: pb.Hello) -> None:
        incarnation, streams = self._connected.pop(hello.node_id)
        assert incarnation == hello.incarnation and streams > 0
        if streams > 1:
            self._connected[hello.node_id] = (incarnation, streams - 1)

    def _why_not(self, hello: pb.Hello) -> str:
        ours = self.identity
        if hello.cluster_id != ours.cluster_id:
            return f"cluster_id is {ours.cluster_id!r} here, the caller's is {hello.cluster_id!r}"
        if hello.protocol_version != PROTOCOL_VERSION:
            return f"protocol_version {hello.protocol_version} is not {PROTOCOL_VERSION}"
        if hello.node_id == ours.node_id:
            return f"node_id {hello.node_id} is this node's own: two nodes have the same id"
        if hello.node_id not in self._peers:
            return f"node_id {hello.node_id} is not in this node's list of nodes"
        directory = self._directory_of(hello.node_id)
        if directory and hello.directory_id != directory:
            return (
                f"node_id {hello.node_id} is registered with another data directory: one that was "
                "emptied or replaced has forgotten votes and acknowledgements"
            )
        known = self._connected.get(hello.node_id)
        if known is not None and known[0] != hello.incarnation:
            return f"node_id {hello.node_id} is connected already by another process"
        return ""


class PeerStream(asyncio.BufferedProtocol):
    """One connection of a peer: its Hello, ours, then its frames."""

    def __init__(self, listener: PeerListener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener, self._loop = listener, loop
        self._reader = FrameReader(self._received_hello, MAX_HELLO_BYTES)
        self._transport: asyncio.Transport | None = None
        self._hello: pb.Hello | None = None  # of a peer that was let in
        self._late: asyncio.TimerHandle | None = None
        self._keepalive: Keepalive | None = None
        self._received_since_tick = False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._listener.opened(self):
            self._transport.abort()
            return
        tune(transport.get_extra_info("socket"))
        self._late = self._loop.call_later(HELLO_TIMEOUT, self.close)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._received_since_tick = True
        try:
            self._reader.buffer_updated(nbytes)
        except (StreamError, FrameError) as error:
            who = "unknown" if self._hello is None else str(self._hello.node_id)
            log.warning("closed the stream of node %s: %s", who, error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        if self._keepalive is not None:
            self._keepalive.stop()
        if self._hello is not None:
            self._listener.leave(self._hello)
            self._hello = None
        self._listener.closed(self)

    # -- frames -----------------------------------------------------------------------------

    def _received_hello(self, frame: memoryview) -> None:
        """The first frame. Raises FrameError if it is no Hello."""
        head, _ = decode_frame(frame)
        if not head.HasField("hello"):
            raise FrameError("hello: must come first")
        assert self._transport is not None and self._late is not None
        refused = self._listener.refusal(head.hello)
        self._transport.write(framed(encode_hello(self._listener.identity.hello(refused))))
        if refused:
            self._reader.on_frame = self._ignored
            self._transport.close()
            return
        self._late.cancel()
        self._hello = head.hello
        self._listener.join(head.hello)
        self._reader.limit = self._listener.max_frame
        self._reader.on_frame = self._received
        self._keepalive = Keepalive(self._loop, self._tick, self._silent)

    def _received(self, frame: memoryview) -> None:
        assert self._hello is not None and self._transport is not None
        if frame:
            self._listener.receive(self._hello.node_id, decode_frame(frame)[1])
        else:
            self._transport.write(PING)

    def _tick(self) -> bool:
        received, self._received_since_tick = self._received_since_tick, False
        return received

    def _silent(self) -> None:
        assert self._hello is not None
        log.warning("closed the stream of node %d: it is silent", self._hello.node_id)
        self.close()

    def _ignored(self, frame: memoryview) -> None:
        """What follows a refusal."""


class PeerService(rpc.PeerServiceServicer):
    """What peers call over gRPC.

    install: takes a snapshot; returns the answer for its sender.
    propose: a metadata command that a peer sent on to this node.
    """

    def __init__(
        self,
        peers: Mapping[int, str],
        install: Callable[[int, Snapshot], Awaitable[pb.SnapshotResult]],
        propose: Callable[[bytes], Awaitable[pb.ProposeMetadataResponse]],
    ) -> None:
        self._peers, self._install, self._propose = peers, install, propose

    async def InstallSnapshot(
        self,
        request_iterator: AsyncIterator[pb.SnapshotChunk],
        context: grpc.aio.ServicerContext[pb.SnapshotChunk, pb.SnapshotResult],
    ) -> pb.SnapshotResult:
        chunks = aiter(request_iterator)
        first = await anext(chunks, None)
        if first is None or first.size > MAX_SNAPSHOT_BYTES or first.sender not in self._peers:
            return pb.SnapshotResult(refused="the first chunk does not describe a snapshot")
        parts: list[bytes] = []
        size = 0
        async for chunk in chunks:
            size += len(chunk.data)
            if size > first.size:
                return pb.SnapshotResult(refused=f"size: more than {first.size} bytes came")
            parts.append(chunk.data)
        state = b"".join(parts)
        if size != first.size:
            return pb.SnapshotResult(refused=f"size: {first.size} bytes were to come, not {size}")
        place = (first.group, first.term, first.index, first.index_term)
        snapshot = Snapshot(*place, state, first.crc32c)
        return await self._install(first.sender, snapshot)

    async def ProposeMetadata(
        self,
        request: pb.ProposeMetadataRequest,
        context: grpc.aio.ServicerContext[pb.ProposeMetadataRequest, pb.ProposeMetadataResponse],
    ) -> pb.ProposeMetadataResponse:
        return await self._propose(request.command)
