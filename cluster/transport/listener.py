"""Listener for peers: takes messages and requests, in the frames of their streams.

    PeerLink of a peer --frames--> PeerListener (one PeerStream for each) --messages--> receive
                       <-answers-                                         --requests--> answer

`hellos` decides which peers are let in, and which are told a reason. Until a Hello is accepted, a
connection may hold little memory and not stay for long.

With certificates for the peers, TLS comes first (`handshakes`). A connection without a certificate
of the peers' CA gets no byte of ours, and a Hello must be of the node that the certificate names.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from cluster.config.addresses import ListenError, host_and_port
from cluster.consensus.message import Message
from cluster.security.handshakes import MAX_HANDSHAKES, Handshakes
from cluster.security.names import NamelessError
from cluster.security.peer_tls import Peer, PeerTls, listed
from cluster.transport.calls import MAX_REQUESTS
from cluster.transport.connecting import HELLO_TIMEOUT, MAX_HELLO_BYTES
from cluster.transport.frames import FrameError, decode_frame, encode_head, encode_hello
from cluster.transport.hellos import Acceptance, NotYetError
from cluster.transport.stream import PING, FrameReader, Keepalive, StreamError, framed, tune
from cluster.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

MAX_STREAMS = 256  # a peer has one; streams that it gave up may linger for seconds


class PeerListener:
    """Listener for the peers' streams.

    acceptance: decides about peers; replaced once the node knows its cluster.
    receive: messages of one peer, in order.
    answer: to a request of one peer.
    max_frame: bytes of the largest frame that a peer may send.
    tls: None if nodes connect without TLS.
    most: limit on open streams.
    """

    def __init__(
        self,
        acceptance: Acceptance,
        receive: Callable[[int, list[Message]], None],
        answer: Callable[[int, pb.Request], Awaitable[pb.Response]],
        max_frame: int,
        tls: PeerTls | None = None,
        most: int = MAX_STREAMS,
    ) -> None:
        self._most = most
        self.acceptance = acceptance
        self.tls = tls
        self.max_frame = max_frame
        self.receive = receive
        self.answer = answer
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._handshakes: list[Handshakes] = []
        self._streams: dict[PeerStream, None] = {}  # oldest first

    def bind(self, address: str) -> None:
        """Takes the port; connections wait until `start`. Raises ListenError."""
        host, port = host_and_port(address)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, at in sorted({(one[0], str(one[4][0])) for one in found}):
                # As with gRPC, "::" stands for all addresses of both families. The port is not
                # shared with another process: only leftovers of an earlier process are ignored.
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

    @property
    def is_bound(self) -> bool:
        return bool(self._sockets or self._servers or self._handshakes)

    async def start(self) -> None:
        """Takes streams at the bound sockets. May be called again."""
        loop = asyncio.get_running_loop()
        while self._sockets:
            sock = self._sockets.pop()
            if self.tls is not None:
                self._handshakes.append(
                    Handshakes(
                        sock,
                        self.tls.server_context,
                        lambda: PeerStream(self, loop),
                        HELLO_TIMEOUT,
                        min(MAX_HANDSHAKES, self._most // 4),
                    )
                )
                continue
            self._servers.append(
                await loop.create_server(lambda: PeerStream(self, loop), sock=sock)
            )

    def stop(self) -> None:
        """Ends all streams and gives the port back. May be called twice."""
        for server in self._servers:
            server.close()
        for handshakes in self._handshakes:
            handshakes.close()
        for sock in self._sockets:
            sock.close()
        for stream in list(self._streams):
            stream.close()

    # -- calls by the streams ---------------------------------------------------------------

    def opened(self, stream: PeerStream) -> bool:
        """Whether there is room for one more connection; it may take the oldest stranger's."""
        if len(self._streams) >= self._most:
            stranger = next((each for each in self._streams if each.is_strange), None)
            if stranger is None:
                log.warning("refused a peer's stream: %d are open", len(self._streams))
                return False
            stranger.close()
            self.closed(stranger)
        self._streams[stream] = None
        return True

    def closed(self, stream: PeerStream) -> None:
        self._streams.pop(stream, None)


class PeerStream(asyncio.BufferedProtocol):
    """One connection of a peer: its Hello, ours, then its frames."""

    def __init__(self, listener: PeerListener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._reader = FrameReader(self._received_hello, MAX_HELLO_BYTES)
        self._transport: asyncio.Transport | None = None
        self._certified: Peer | None = None  # None: there is no TLS
        self._hello: pb.Hello | None = None  # of a peer that was let in
        self._late: asyncio.TimerHandle | None = None
        self._keepalive: Keepalive | None = None
        self._received_since_tick = False
        self._answering: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_strange(self) -> bool:
        """Whether its Hello has not come, or was not accepted."""
        return self._hello is None

    # -- asyncio's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._listener.opened(self):
            self._transport.abort()
            return
        if self._listener.tls is not None:
            try:
                found = self._transport.get_extra_info("ssl_object")
                self._certified = self._listener.tls.peer(found)
            except NamelessError as error:
                log.warning("closed a peer's stream: its certificate %s", error)
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
        except NotYetError:
            self.close()
        except (StreamError, FrameError) as error:
            who = "unknown" if self._hello is None else str(self._hello.node_id)
            log.warning("closed the stream of node %s: %s", who, error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        if self._keepalive is not None:
            self._keepalive.stop()
        for task in self._answering:
            task.cancel()
        if self._hello is not None:
            self._listener.acceptance.end(self._hello)
            self._hello = None
        self._listener.closed(self)

    # -- frames -----------------------------------------------------------------------------

    def _received_hello(self, frame: memoryview) -> None:
        """Takes the first frame. Raises FrameError if it is not a Hello."""
        head, _ = decode_frame(frame)
        assert self._transport is not None and self._late is not None
        acceptance = self._listener.acceptance
        if head.HasField("join") and acceptance.welcomes:
            self._welcome(head.join)
            return
        if not head.HasField("hello"):
            raise FrameError("hello: must come first")
        self._check_certificate("hello", head.hello.node_id)
        answer = acceptance.answer(head.hello)
        self._transport.write(framed(encode_hello(answer)))
        if answer.refused:
            self._reader.on_frame = self._ignored
            self._transport.close()
            return
        self._late.cancel()
        self._hello = head.hello
        acceptance.begin(head.hello)
        self._reader.limit = self._listener.max_frame
        self._reader.on_frame = self._received
        self._keepalive = Keepalive(self._loop, self._tick, self._silent)

    def _welcome(self, join: pb.Join) -> None:
        """Answers a join. Raises FrameError if the joining node is not of this cluster."""
        assert self._transport is not None
        self._check_certificate("join", join.node_id)
        welcome = self._listener.acceptance.answer_join(join)
        self._reader.on_frame = self._ignored
        self._transport.write(framed(encode_head(pb.Frame(welcome=welcome))))
        self._transport.close()

    def _check_certificate(self, frame: str, node: int) -> None:
        """Raises FrameError if the certificate is another node's."""
        if self._certified is not None and node not in self._certified.nodes:
            named = listed(self._certified.nodes)
            raise FrameError(f"{frame}: of node {node} with the certificate of {named}")

    def _received(self, frame: memoryview) -> None:
        assert self._hello is not None and self._transport is not None
        if not frame:
            self._transport.write(PING)
            return
        head, messages = decode_frame(frame)
        if messages:
            self._listener.receive(self._hello.node_id, messages)
        if head.HasField("request"):
            if len(self._answering) >= MAX_REQUESTS:
                raise StreamError(f"{MAX_REQUESTS} requests wait for their answers")
            task = self._loop.create_task(self._answer(self._hello.node_id, head.request))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, peer: int, request: pb.Request) -> None:
        try:
            response = await self._listener.answer(peer, request)
        except Exception as error:
            log.exception("a request of node %d was not answered", peer)
            response = pb.Response(error=f"{type(error).__name__}: {error}")
        response.id = request.id
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(framed(encode_head(pb.Frame(response=response))))

    def _tick(self) -> bool:
        assert self._hello is not None
        # The peer may have been removed since, or the cluster upgraded.
        refused = self._listener.acceptance.refused_by_now(self._hello)
        if self._listener.tls is not None and self._certified is not None:
            refused = refused or self._listener.tls.distrust(self._certified)
        if refused:
            log.warning("closed the stream of node %d: %s", self._hello.node_id, refused)
            self.close()
        received, self._received_since_tick = self._received_since_tick, False
        return received

    def _silent(self) -> None:
        assert self._hello is not None
        log.warning("closed the stream of node %d: it is silent", self._hello.node_id)
        self.close()

    def _ignored(self, frame: memoryview) -> None:
        """Drops a frame that follows a refusal."""
