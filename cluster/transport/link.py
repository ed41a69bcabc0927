"""Link to a peer: one ordered stream of frames per peer and direction.

    Driver --messages--> PeerLink --frames--> (TCP) --> PeerListener --messages--> Driver
             --requests (see `calls`)-------------------------'

All groups of a node share the stream. Messages that queue up while a frame is being sent go out
together in the next one, small messages first (`send_queue`). If a link's queue is full, new
entries are dropped: Raft sends lost messages again.

A stream begins with a Hello each way (`hellos`; `listener` has the other side). If the node has
certificates for its peers, TLS comes first, and the certificate must be of that peer. An empty
frame is answered with an empty frame, so that each side notices when the other is gone. A node that
the listener does not know as a member gets no Hello: the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable

from cluster.consensus.message import Message
from cluster.security.names import NamelessError
from cluster.security.peer_tls import Peer, PeerTls
from cluster.transport.calls import Calls, NotSentError
from cluster.transport.connecting import (
    HELLO_TIMEOUT,
    StrangerError,
    connect,
    first_frame,
)
from cluster.transport.connection import PeerConnection, Writer
from cluster.transport.frames import decode_frame, encode_frame, encode_head, encode_hello
from cluster.transport.hellos import Answers, NodeIdentity
from cluster.transport.send_queue import SendQueue
from cluster.transport.stream import (
    FrameReader,
    Keepalive,
    StreamError,
    framed,
)
from cluster.transport.versions import MESSAGES, PROTOCOL
from cluster.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 8 * 1024 * 1024  # accepted by a listener, beside one message of any size
MAX_ANSWER_BYTES = 1024 * 1024
RECONNECT_WAIT = 0.2  # seconds between attempts to reach a peer
ANSWER_PIECE = 64 * 1024  # bytes of answers taken at a time


class PeerLink:
    """Stream from this node to one peer; connects again forever.

    hello: the peer's, while the link is up.
    version: of the protocol on the link.
    address: "host:port" of the peer's listener.
    on_link(peer, up): called when the stream is established or broke.
    on_refusal(peer, reason, mutual): see Answers.
    """

    def __init__(
        self,
        identity: NodeIdentity,
        peer: int,
        address: str,
        on_link: Callable[[int, bool], None],
        on_refusal: Callable[[int, str, bool], None],
        tls: PeerTls | None = None,
    ) -> None:
        self.peer = peer
        self.address = address
        self.up = False
        self.hello: pb.Hello | None = None
        self.version = 0
        self._identity = identity
        self._on_link = on_link
        self._answers = Answers(identity, peer, on_refusal)
        self._tls = tls
        self._certified: Peer | None = None
        self._queue = SendQueue()
        self._loop = asyncio.get_running_loop()
        self._writer: Writer | None = None
        self._ping_due = self._ping_sent = False
        self._sent_at_tick = 0
        self._calls = Calls()
        self._call_is_next = False
        self._task = asyncio.create_task(self._run(), name=f"peer-{peer}")
        self._unanswered = False
        self._untrusted = ""

    async def ask(self, request: pb.Request) -> pb.Response:
        """Sends a request and waits for its answer. Raises PeerCallError."""
        if not self.up:
            raise NotSentError("there is no connection")
        self._loop.call_soon(self._send_next)
        return await self._calls.ask(request)

    def send(self, messages: list[Message]) -> None:
        """Queues the messages; they leave when the event loop has its next turn."""
        if not self.up:
            return
        if self.version < PROTOCOL.newest:
            messages = [one for one in messages if MESSAGES[type(one)] <= self.version]
        if not self._queue:
            # Not at once: the caller may begin an fsync first, which then runs meanwhile.
            self._loop.call_soon(self._send_next)
        self._queue.put(messages)

    @property
    def queued(self) -> int:
        """Returns how many messages wait to be sent."""
        return len(self._queue)

    def stop(self) -> None:
        """Begins to end; `close` waits for it."""
        self._task.cancel()

    @property
    def is_closed(self) -> bool:
        return self._task.done()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._converse()
            except StrangerError as error:
                if not self._unanswered:
                    log.warning("link down peer=%d: %s", self.peer, error)
                self._unanswered = True
            except (ssl.SSLError, NamelessError) as error:
                if self._untrusted != str(error):
                    log.warning("link down peer=%d: TLS: %s", self.peer, error)
                self._untrusted = str(error)
            except (OSError, StreamError, ValueError) as error:
                log.debug("link down peer=%d: %s", self.peer, error)
            finally:
                self._set_up(False)
            # Nothing announces that a peer is back, so keep trying.
            await asyncio.sleep(RECONNECT_WAIT)

    async def _converse(self) -> None:
        """Runs one connection, from its first to its last byte. Raises the error that ended it."""
        connection, self._certified = await connect(self.address, self._tls, self.peer)
        with contextlib.closing(connection):
            async with asyncio.timeout(HELLO_TIMEOUT):
                answer = await self._exchange_hellos(connection)
            self._unanswered = False
            self._untrusted = ""
            if not self._answers.accepts(answer):
                return
            self.hello = answer
            self.version = self._identity.versions.common(answer)
            await self._send_until_lost(connection)

    async def _send_until_lost(self, connection: PeerConnection) -> None:
        """Sends while the connection lasts. Raises the error that broke it."""
        lost: asyncio.Future[Exception] = self._loop.create_future()

        def lose(error: Exception) -> None:
            if not lost.done():
                lost.set_result(error)

        writer = connection.writer(self._on_free, lose)
        self._writer = writer
        self._sent_at_tick = 0
        self._ping_due = self._ping_sent = False

        def tick() -> bool:
            # The cluster may have been upgraded since the link came up.
            assert self.hello is not None
            refused = self._identity.versions.refusal(self.hello)
            if self._tls is not None and self._certified is not None:
                refused = refused or self._tls.distrust(self._certified)
            if refused:
                log.info("link ends peer=%d: %s", self.peer, refused)
                lose(StreamError(refused))
            return self._tick()

        keepalive = Keepalive(self._loop, tick, lambda: lose(StreamError("the peer is silent")))
        end = asyncio.ensure_future(self._read_answers(connection))
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

    async def _read_answers(self, connection: PeerConnection) -> None:
        """Reads answers, which are all that the listener sends; returns when it closes."""
        reader = FrameReader(self._on_answer, MAX_ANSWER_BYTES)
        while data := await connection.receive(min(ANSWER_PIECE, len(reader.get_buffer()))):
            reader.get_buffer()[: len(data)] = data
            reader.buffer_updated(len(data))

    def _on_answer(self, frame: memoryview) -> None:
        """Takes the answer to a ping or a request. Raises StreamError, FrameError."""
        if not frame:
            self._ping_sent = False
            return
        head, messages = decode_frame(frame)
        if messages or not head.HasField("response"):
            raise StreamError("the peer sends more than answers")
        self._calls.answered(head.response)

    def _tick(self) -> bool:
        """Sends a ping if the last one was answered, and tells so. See Keepalive."""
        writer = self._writer
        assert writer is not None
        stuck = not writer.free and writer.sent == self._sent_at_tick
        self._sent_at_tick = writer.sent
        if self._ping_sent or stuck:
            return False
        self._ping_due = True
        self._loop.call_soon(self._send_next)
        return True

    async def _exchange_hellos(self, connection: PeerConnection) -> pb.Hello:
        await connection.send(framed(encode_hello(self._identity.hello())))
        answer = await first_frame(connection)
        if not answer.HasField("hello"):
            raise StreamError("the peer did not answer with a Hello")
        return answer.hello

    def _on_free(self) -> None:
        if self._queue or self._calls or self._ping_due:
            self._loop.call_soon(self._send_next)  # others have their turn between frames

    def _send_next(self) -> None:
        # The link may have broken since, or one frame is still being sent.
        if self._writer is None or not self._writer.free:
            return
        if self._ping_due:
            self._ping_due = False
            self._ping_sent = True
            self._writer.write([])
        elif self._calls and (self._call_is_next or not self._queue):
            self._call_is_next = False
            self._writer.write([encode_head(pb.Frame(request=self._calls.pop()))])
        elif self._queue:
            self._call_is_next = True  # messages and requests take turns
            self._writer.write(encode_frame(self._queue.next_frame()))

    def _set_up(self, up: bool) -> None:
        if self.up == up:
            return
        self.up = up
        if not up:
            self.hello = None
        self._queue.clear()
        self._calls.lost()
        log.info("link %s peer=%d address=%s", "up" if up else "down", self.peer, self.address)
        self._on_link(self.peer, up)
