"""Frames of one client's connection: requests in, answers in the order of the requests.

    TCP --length, request--> Connection --Exchange--> Session --answer, in any order--> Connection

A frame is a length (int32) and a request. The length is checked before a byte of the request is
kept. Requests are worked on at once; an answer waits for those before it, since a client matches
them by their order.

A connection is not read while it has MAX_REQUESTS or MAX_BYTES in work, while its client does not
read its answers, while something holds it (`Connection.hold`: a login, its quotas), or
while it has more than its share of the node's memory. All that it has is in its account of the
node's one budget.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, cast

from cluster.access.budget import Account, Budget
from cluster.kafka.codec import CodecError

log = logging.getLogger(__name__)

MAX_REQUESTS = 64  # in work at a time
MAX_BYTES = 64 * 1024 * 1024  # of requests in work
REQUEST_BYTES = 4096  # of memory that a request takes beside its bytes
WRITE_BYTES = 64 * 1024  # of answers until the client's pace is looked at
LENGTH = struct.Struct(">i")
Parts = Sequence[bytes | bytearray | memoryview]


class Exchange:
    """One request and the place of its answer.

    A call answers by `answer`, once. Nothing is sent for an empty answer.
    charge: counts an answer of so many bytes for quotas, and returns the client's wait in
    milliseconds; None: nothing limits the client.
    """

    __slots__ = ("_connection", "charge", "parts", "request", "size")

    def __init__(self, connection: Connection, request: memoryview) -> None:
        self._connection = connection
        self.request = request
        self.size = len(request)
        self.parts: Parts | None = None
        self.charge: Callable[[int], int] | None = None

    def wait_ms(self, size: int) -> int:
        """Count an answer's bytes; returns the wait to tell the client."""
        return 0 if self.charge is None else self.charge(size)

    def answer(self, parts: Parts) -> None:
        """Send the answer, its length aside, when all before it are sent."""
        assert self.parts is None, "a request has one answer"
        self.parts = parts
        self.request = _NOTHING
        self._connection.send_soon()

    @property
    def software(self) -> str:
        """Return the name of the client's software, if it gave one (KIP-511)."""
        return self._connection.software

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


_NOTHING = memoryview(b"")


class Client(Protocol):
    """The other side of a connection's requests."""

    def made(self, connection: Connection) -> None:
        """The connection is there."""

    def begin(self, connection: Connection, exchange: Exchange) -> None:
        """Begin to work on a request. Raises CodecError if it is none."""

    def refused(self, connection: Connection, reason: str) -> None:
        """The connection ends for its bytes."""

    def ended(self, connection: Connection) -> None:
        """The connection is gone. Called once."""


class Connection(asyncio.Protocol):
    """One connection. limit: bytes of a request. tls: None without TLS."""

    def __init__(self, memory: Budget, limit: int, client: Client) -> None:
        self._memory = memory
        self.limit = limit
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._account: Account | None = None
        self._exchanges: deque[Exchange] = deque()  # in the order of their requests
        self._received: bytes | bytearray = b""  # behind the requests in work
        self._needed = LENGTH.size  # bytes of `_received` that make a frame
        self._in_work = 0  # bytes
        self._unsent = 0  # bytes of answers that the client has not taken
        self._is_sending_soon = False
        self._holds = set[asyncio.Task[None]]()
        self._is_ending = False  # no more requests are begun
        self._is_blocked = False  # the client does not read
        self._is_paused = False  # the client is not read
        self._waits_for_room: asyncio.Task[None] | None = None
        self.software = ""
        self.address = ""
        self.tls: ssl.SSLObject | None = None

    # -- the transport's calls ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.address = name_of(transport.get_extra_info("peername"))
        self.tls = transport.get_extra_info("ssl_object")
        self._account = self._memory.open(self, self.address)
        self._client.made(self)

    def data_received(self, data: bytes) -> None:
        assert self._account is not None
        self._account.take(len(data))
        if not self._received:
            self._received = data
        else:
            if isinstance(self._received, bytes):
                self._received = bytearray(self._received)
            self._received += data
        if len(self._received) >= self._needed:
            self._parse()

    def pause_writing(self) -> None:
        assert self._account is not None
        self._is_blocked = True
        self._account.blocked_since = self._loop.time()
        self._pace()

    def resume_writing(self) -> None:
        assert self._account is not None
        self._is_blocked = False
        self._account.blocked_since = None
        self._account.release(self._unsent)
        self._unsent = 0
        self.send()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._received = b""
        if self._waits_for_room is not None:
            self._waits_for_room.cancel()
        for task in self._holds:
            task.cancel()
        self._memory.close(self)
        self._account = None
        self._client.ended(self)

    # -- requests -----------------------------------------------------------------------

    @property
    def certificate(self) -> bytes:
        """Return the client's certificate in PEM; empty if it showed none."""
        der = None if self.tls is None else self.tls.getpeercert(binary_form=True)
        return ssl.DER_cert_to_PEM_cert(der).encode() if der else b""

    def hold(self, until: Coroutine[Any, Any, None]) -> None:
        """Begin no more requests until that is done. It ends with the connection."""
        task = self._loop.create_task(until)
        self._holds.add(task)
        task.add_done_callback(self._released)
        self._pace()

    def _released(self, task: asyncio.Task[None]) -> None:
        self._holds.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a Kafka client's wait failed", exc_info=task.exception())
            self.close()
        self._pace()

    def finish(self) -> None:
        """Begin no more requests, and end the connection once its answers are sent."""
        self._is_ending = True
        self._pace()
        self.send()

    def close(self) -> None:
        """End the connection; answers not sent yet are dropped."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def _parse(self) -> None:
        """Begin the requests that are complete, as far as there is room for them."""
        view, at = memoryview(self._received), 0
        end, needed = len(view), LENGTH.size
        while self._transport is not None and not self._is_full():
            if end - at < LENGTH.size:
                break
            (size,) = LENGTH.unpack_from(view, at)
            if not 0 < size <= self.limit:
                self.refuse(f"a request of {size} bytes; the limit is {self.limit}")
                return
            if end - at < LENGTH.size + size:
                needed = LENGTH.size + size
                break
            at += LENGTH.size
            self._begin(view[at : at + size])
            at += size
        if self._transport is None:
            return
        # Requests in work keep views of these bytes.
        self._received = bytearray(view[at:]) if at < end else b""
        self._needed = needed
        self._pace()

    def _begin(self, request: memoryview) -> None:
        assert self._account is not None
        exchange = Exchange(self, request)
        self._account.take(REQUEST_BYTES)
        self._in_work += exchange.size
        self._exchanges.append(exchange)
        try:
            self._client.begin(self, exchange)
        except CodecError as error:
            self.refuse(str(error))
        except Exception:  # the last stop: its answer would hold up all behind it
            log.exception("a Kafka request failed client=%s", self.address)
            self.close()

    def refuse(self, reason: str) -> None:
        """End the connection, as Kafka does: nothing after this can be understood."""
        self._client.refused(self, reason)
        self.close()

    # -- answers ------------------------------------------------------------------------

    def send(self) -> None:
        """Send the answers that have their turn."""
        transport, account = self._transport, self._account
        self._is_sending_soon = False
        if transport is None or account is None:
            return
        while not self._is_blocked and (parts := self._next_parts(account)):
            transport.writelines(parts)
        if not self._is_blocked and self._unsent:
            account.release(self._unsent)
            self._unsent = 0
        if self._is_ending and not self._exchanges:
            transport.close()
        if self._is_paused:
            self._pace()

    def send_soon(self) -> None:
        """Send after the callbacks of this turn: one commit often answers several requests."""
        if not self._is_sending_soon:
            self._is_sending_soon = True
            self._loop.call_soon(self.send)

    def _next_parts(self, account: Account) -> list[bytes | bytearray | memoryview]:
        """Take answers that have their turn, to be written at once."""
        parts, written = list[bytes | bytearray | memoryview](), 0
        exchanges = self._exchanges
        while exchanges and exchanges[0].parts is not None and written < WRITE_BYTES:
            exchange = exchanges.popleft()
            self._in_work -= exchange.size
            account.release(exchange.size + LENGTH.size + REQUEST_BYTES)
            if exchange.parts:
                size = sum(map(len, exchange.parts))
                written += size
                parts.append(LENGTH.pack(size))
                parts += exchange.parts
        self._unsent += written
        account.take(written)
        return parts

    # -- pace ---------------------------------------------------------------------------

    def _is_full(self) -> bool:
        waiting = len(self._exchanges) >= MAX_REQUESTS or self._in_work >= MAX_BYTES
        return waiting or self._is_blocked or bool(self._holds) or self._is_ending

    def _pace(self) -> None:
        """Read the client, or leave its bytes to TCP's flow control."""
        transport, account = self._transport, self._account
        if transport is None or account is None:
            return
        if self._is_full():
            self._pause(transport)
        elif account.must_wait and self._exchanges:
            self._pause(transport)
            if self._waits_for_room is None:
                self._waits_for_room = self._loop.create_task(self._room(account))
        elif self._is_paused:
            self._is_paused = False
            transport.resume_reading()
            if len(self._received) >= self._needed:
                self._loop.call_soon(self._parse_again)

    def _pause(self, transport: asyncio.Transport) -> None:
        if not self._is_paused:
            self._is_paused = True
            transport.pause_reading()

    async def _room(self, account: Account) -> None:
        await account.room()
        self._waits_for_room = None
        self._pace()

    def _parse_again(self) -> None:
        if len(self._received) >= self._needed:
            self._parse()


def name_of(peer: Any) -> str:
    """Return a client's name as gRPC gives it: ipv4:HOST:PORT, ipv6:%5BHOST%5D:PORT."""
    if not isinstance(peer, tuple):
        return ""
    host, port = peer[:2]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
