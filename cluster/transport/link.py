"""Nodes talk to each other: one ordered stream of frames per peer and direction.

    Driver --messages--> PeerLink --frames--> (TCP) --> PeerListener --messages--> Driver
                            |
                            +--- gRPC ---> PeerService: snapshots, metadata commands

All groups of a node share the stream, so what piles up while a frame is being
sent goes out together in the next one. Raft takes care of what is lost: when a
link's queue is full, new messages are dropped rather than held.

A stream begins with a Hello each way (`listener` has the other side). An empty frame
is answered with one, so that each side notices when the other is gone.
Snapshots use a call of their own, so that they do not hold up heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import crc32c
import grpc

from cluster.config import host_and_port
from cluster.consensus.message import Message, Snapshot
from cluster.transport.frames import decode_frame, encode_frame, encode_hello, size_of
from cluster.transport.stream import LENGTH, PING, FrameWriter, Keepalive, StreamError, framed, tune
from cluster.v1 import peer_pb2 as pb
from cluster.v1 import peer_pb2_grpc as rpc

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 3
MAX_FRAME_BYTES = 8 * 1024 * 1024  # of a frame with more than one message, about
MAX_HELLO_BYTES = 4096
ANSWERS_BYTES = 64  # of answers to pings that are read at once
MAX_QUEUE_BYTES = 128 * 1024 * 1024
SNAPSHOT_CHUNK_BYTES = 1024 * 1024
RECONNECT_WAIT = 0.2  # seconds between attempts to reach a peer
CONNECT_TIMEOUT = 1.0  # after the second SYN, should the first be lost
HELLO_TIMEOUT = 2.0

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


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is, as its Hello says."""

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

    address:        of the peer's gRPC server, "host:port".
    stream_address: where it takes streams of frames.
    on_link(peer, up): called when the stream is established or broke.
    on_refusal(peer, reason): called at each attempt that the peer refused.
    """

    def __init__(
        self,
        identity: Identity,
        peer: int,
        address: str,
        stream_address: str,
        on_link: Callable[[int, bool], None],
        on_refusal: Callable[[int, str], None],
    ) -> None:
        self.peer, self.address, self.up = peer, stream_address, False
        self._identity, self._on_link, self._on_refusal = identity, on_link, on_refusal
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._writer: FrameWriter | None = None
        self._ping_due = self._ping_sent = False
        self._sent_at_tick = 0
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.stub = rpc.PeerServiceStub(self._channel)
        self._task = asyncio.create_task(self._run(), name=f"peer-{peer}")
        self._refusal = ""

    def send(self, messages: list[Message]) -> None:
        """Queues the messages; they leave when the event loop has its next turn."""
        if not self.up or self._queued_bytes > MAX_QUEUE_BYTES:
            return
        if not self._queue:
            # Not at once: the caller may have an fsync to begin, which can go on meanwhile.
            self._loop.call_soon(self._send_next)
        self._queue.extend(messages)
        self._queued_bytes += sum(map(size_of, messages))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._converse()
            except (OSError, StreamError, ValueError) as error:
                log.debug("link down peer=%d: %s", self.peer, error)
            finally:
                self._set_up(False)
            # Nothing announces that a peer is back; asking again is all there is.
            await asyncio.sleep(RECONNECT_WAIT)

    async def _converse(self) -> None:
        """One connection, from its first to its last byte. Raises what ended it."""
        with await self._connect() as sock:
            async with asyncio.timeout(HELLO_TIMEOUT):
                answer = await self._exchange_hellos(sock)
            if answer.refused:
                if answer.refused != self._refusal:
                    log.error("refused by peer=%d: %s", self.peer, answer.refused)
                self._refusal = answer.refused
                self._on_refusal(self.peer, answer.refused)
                return
            self._refusal = ""
            await self._send_until_lost(sock)

    async def _send_until_lost(self, sock: socket.socket) -> None:
        """The link is up until the connection breaks. Raises what broke it."""
        lost: asyncio.Future[Exception] = self._loop.create_future()

        def lose(error: Exception) -> None:
            if not lost.done():
                lost.set_result(error)

        writer = FrameWriter(self._loop, sock, self._on_free, lose)
        self._writer, self._sent_at_tick = writer, 0
        self._ping_due = self._ping_sent = False
        keepalive = Keepalive(
            self._loop, self._tick, lambda: lose(StreamError("the peer is silent"))
        )
        end = asyncio.ensure_future(self._read_answers(sock))
        try:
            self._set_up(True)
            await asyncio.wait((end, lost), return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                raise lost.result()
            end.result()
        finally:
            keepalive.stop()
            writer.close()
            self._writer = None
            end.cancel()
            await asyncio.gather(end, return_exceptions=True)

    async def _read_answers(self, sock: socket.socket) -> None:
        """The listener says nothing but answers to pings; returns when it closes."""
        while answers := await self._loop.sock_recv(sock, ANSWERS_BYTES):
            if answers.strip(PING):
                raise StreamError("the peer sends more than answers to pings")
            self._ping_sent = False

    def _tick(self) -> bool:
        """Asks for a sign of the peer, if the last one came. See Keepalive."""
        writer = self._writer
        assert writer is not None
        stuck = not writer.free and writer.sent == self._sent_at_tick
        self._sent_at_tick = writer.sent
        if self._ping_sent or stuck:
            return False
        self._ping_due = True
        self._loop.call_soon(self._send_next)
        return True

    async def _connect(self) -> socket.socket:
        host, port = host_and_port(self.address)
        # Without a limit of its own: one that was given up would go on in its thread.
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found[:-1]:
            # A name may have several addresses, of which the peer listens at one.
            with contextlib.suppress(OSError):
                return await self._connect_to(socket.socket(family, kind, protocol), address)
        family, kind, protocol, _, address = found[-1]
        return await self._connect_to(socket.socket(family, kind, protocol), address)

    async def _connect_to(self, sock: socket.socket, address: Any) -> socket.socket:
        try:
            sock.setblocking(False)
            tune(sock)
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _exchange_hellos(self, sock: socket.socket) -> pb.Hello:
        await self._loop.sock_sendall(sock, framed(encode_hello(self._identity.hello())))
        (length,) = LENGTH.unpack(await self._receive(sock, LENGTH.size))
        if length > MAX_HELLO_BYTES:
            raise StreamError(f"a Hello of {length} bytes")
        answer, _ = decode_frame(await self._receive(sock, length))
        if not answer.HasField("hello"):
            raise StreamError("the peer did not answer with a Hello")
        return answer.hello

    async def _receive(self, sock: socket.socket, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = await self._loop.sock_recv(sock, size - len(received))
            if not part:
                raise ConnectionResetError("closed before its Hello")
            received += part
        return received

    def _on_free(self) -> None:
        if self._queue or self._ping_due:
            self._loop.call_soon(self._send_next)  # others have their turn between frames

    def _send_next(self) -> None:
        # The link may have broken since, and one frame may still be on its way.
        if self._writer is None or not self._writer.free:
            return
        if self._ping_due:
            self._ping_due, self._ping_sent = False, True
            self._writer.write([])
        elif self._queue:
            self._writer.write(self._next_frame())

    def _next_frame(self) -> list[bytes]:
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
