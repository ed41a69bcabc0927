"""Nodes talk to each other: one ordered gRPC stream per peer and direction.

    Driver --messages--> PeerLink --Frame--> (network) --> PeerService --> Driver

All groups of a node share the stream, so what piles up while a frame is being
sent goes out together in the next one. Raft takes care of what is lost: when a
link's queue is full, new messages are dropped rather than held.

A stream begins with a Hello each way. The callee refuses another cluster, a
wrong node id, and a second process with an id that it is already connected to.
Snapshots use a call of their own, so that they do not hold up heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import crc32c
import grpc

from cluster.consensus.message import Message, Snapshot
from cluster.frames import decode_frame, encode_frame, encode_hello, size_of
from cluster.v1 import peer_pb2 as pb
from cluster.v1 import peer_pb2_grpc as rpc

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 8 * 1024 * 1024
MAX_QUEUE_BYTES = 128 * 1024 * 1024
SNAPSHOT_CHUNK_BYTES = 1024 * 1024
MAX_SNAPSHOT_BYTES = 4 * 1024 * 1024 * 1024
RECONNECT_WAIT = 0.2  # seconds between attempts to reach a peer
HELLO_PATIENCE = 2.0

CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A peer's name may be gone while its container restarts; gRPC's default is 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


EXCHANGE = "/cluster.v1.PeerService/Exchange"


def _same(frame: bytes) -> bytes:
    return frame


def add_peer_service(service: PeerService, server: grpc.aio.Server) -> None:
    """Registers the service, with frames handed over as bytes."""
    rpc.add_PeerServiceServicer_to_server(service, server)
    exchange = grpc.stream_stream_rpc_method_handler(
        service.Exchange,
        request_deserializer=_same,
        response_serializer=pb.Hello.SerializeToString,
    )
    server.add_registered_method_handlers("cluster.v1.PeerService", {"Exchange": exchange})


# -- outgoing -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is, as it tells its peers."""

    cluster_id: str
    node_id: int
    incarnation: int
    directory_id: int

    def hello(self, refused: str = "") -> pb.Hello:
        return pb.Hello(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            protocol_version=PROTOCOL_VERSION,
            incarnation=self.incarnation,
            directory_id=self.directory_id,
            refused=refused,
        )


class PeerLink:
    """The stream from this node to one peer; connects again for ever.

    on_link(peer, up): called when the stream is established or broke.
    on_refusal(peer, reason): called at each attempt that the peer refused.
    """

    def __init__(
        self,
        identity: Identity,
        peer: int,
        address: str,
        on_link: Callable[[int, bool], None],
        on_refusal: Callable[[int, str], None],
    ) -> None:
        self.peer, self.address, self.up = peer, address, False
        self._identity, self._on_link, self._on_refusal = identity, on_link, on_refusal
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._news = asyncio.Event()
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.stub = rpc.PeerServiceStub(self._channel)
        # Frames are bytes already: see frames.py.
        self._exchange = self._channel.stream_stream(
            EXCHANGE,
            request_serializer=_same,
            response_deserializer=pb.Hello.FromString,
        )
        self._task = asyncio.create_task(self._run(), name=f"peer-{peer}")
        self._refusal = ""

    def send(self, messages: list[Message]) -> None:
        if not self.up or self._queued_bytes > MAX_QUEUE_BYTES:
            return
        self._queue.extend(messages)
        self._queued_bytes += sum(map(size_of, messages))
        self._news.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._converse()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
                log.debug("link down peer=%d: %s", self.peer, error)
            finally:
                self._set_up(False)
            # Nobody tells when a peer may be back; asking again is all there is.
            await asyncio.sleep(RECONNECT_WAIT)

    async def _converse(self) -> None:
        call = self._exchange()
        try:
            async with asyncio.timeout(HELLO_PATIENCE):
                await call.write(encode_hello(self._identity.hello()))
                answer = await call.read()
            if not isinstance(answer, pb.Hello):
                return
            if answer.refused:
                if answer.refused != self._refusal:
                    log.error("refused by peer=%d: %s", self.peer, answer.refused)
                self._refusal = answer.refused
                self._on_refusal(self.peer, answer.refused)
                return
            self._refusal = ""
            self._set_up(True)
            end = asyncio.ensure_future(call.read())
            send = asyncio.ensure_future(self._send_frames(call))
            try:
                # The callee sends nothing more: a finished read is a broken link.
                await asyncio.wait((end, send), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (end, send):
                    task.cancel()
                await asyncio.gather(end, send, return_exceptions=True)
        finally:
            call.cancel()

    async def _send_frames(self, call: grpc.aio.StreamStreamCall[bytes, pb.Hello]) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue:
                await call.write(self._next_frame())

    def _next_frame(self) -> bytes:
        messages: list[Message] = []
        size = 0
        while self._queue and size < MAX_FRAME_BYTES:
            message = self._queue.popleft()
            size += size_of(message)
            messages.append(message)
        self._queued_bytes -= size
        return encode_frame(messages)

    def _set_up(self, up: bool) -> None:
        if self.up == up:
            return
        self.up = up
        self._queue.clear()
        self._queued_bytes = 0
        log.info("link %s peer=%d address=%s", "up" if up else "down", self.peer, self.address)
        self._on_link(self.peer, up)

    async def send_snapshot(self, snapshot: Snapshot) -> pb.SnapshotResult:
        """Transfers a snapshot. Raises grpc.aio.AioRpcError."""

        state = snapshot.state

        async def chunks() -> AsyncIterator[pb.SnapshotChunk]:
            yield pb.SnapshotChunk(
                group=snapshot.group,
                term=snapshot.term,
                index=snapshot.index,
                index_term=snapshot.index_term,
                size=len(state),
                crc32c=crc32c.crc32c(state),
                sender=self._identity.node_id,
            )
            for start in range(0, len(state), SNAPSHOT_CHUNK_BYTES):
                yield pb.SnapshotChunk(data=state[start : start + SNAPSHOT_CHUNK_BYTES])

        result: pb.SnapshotResult = await self.stub.InstallSnapshot(chunks())
        return result


# -- incoming ---------------------------------------------------------------------------


class PeerService(rpc.PeerServiceServicer):
    """Takes what peers send.

    receive:  messages of one peer, in order.
    install:  takes a snapshot; returns the answer for its sender.
    propose:  a metadata command that a peer sent on to this node.
    directory_of: the id of a node's data directory as the cluster knows it, or 0.
    """

    def __init__(
        self,
        identity: Identity,
        peers: dict[int, str],
        receive: Callable[[int, list[Message]], None],
        install: Callable[[int, Snapshot], Awaitable[pb.SnapshotResult]],
        propose: Callable[[bytes], Awaitable[pb.ProposeMetadataResponse]],
        directory_of: Callable[[int], int],
    ) -> None:
        self._identity, self._peers = identity, peers
        self._receive, self._install, self._propose = receive, install, propose
        self._directory_of = directory_of
        # peer -> (incarnation, streams open)
        self._connected: dict[int, tuple[int, int]] = {}
        self._refused: dict[int, str] = {}  # the last refusal of each, said once

    def _refusal(self, hello: pb.Hello) -> str:
        ours = self._identity
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

    async def Exchange(
        self,
        request_iterator: AsyncIterator[bytes],
        context: grpc.aio.ServicerContext[bytes, pb.Hello],
    ) -> AsyncIterator[pb.Hello]:
        frames = aiter(request_iterator)
        raw = await anext(frames, None)
        try:
            first, _ = decode_frame(raw or b"")
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if not first.HasField("hello"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hello: must come first")
        refused = self._refusal(first.hello)
        yield self._identity.hello(refused)
        if refused:
            if self._refused.get(first.hello.node_id) != refused:
                log.warning("refused node %d: %s", first.hello.node_id, refused)
            self._refused[first.hello.node_id] = refused
            return
        self._refused.pop(first.hello.node_id, None)
        peer, incarnation = first.hello.node_id, first.hello.incarnation
        streams = self._connected.get(peer, (incarnation, 0))[1]
        self._connected[peer] = (incarnation, streams + 1)
        try:
            async for frame in frames:
                self._receive(peer, decode_frame(frame)[1])
        finally:
            streams = self._connected[peer][1] - 1
            if streams:
                self._connected[peer] = (incarnation, streams)
            else:
                del self._connected[peer]

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
        if size != first.size or crc32c.crc32c(state) != first.crc32c:
            return pb.SnapshotResult(refused="crc32c: the snapshot was damaged on its way")
        snapshot = Snapshot(first.group, first.term, first.index, first.index_term, state)
        return await self._install(first.sender, snapshot)

    async def ProposeMetadata(
        self,
        request: pb.ProposeMetadataRequest,
        context: grpc.aio.ServicerContext[pb.ProposeMetadataRequest, pb.ProposeMetadataResponse],
    ) -> pb.ProposeMetadataResponse:
        return await self._propose(request.command)
