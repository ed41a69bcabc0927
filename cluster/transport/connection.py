"""Connection that this node opened to a peer: plain TCP, or TLS over it.

    PeerLink --hello, frames--> PeerConnection --(TCP | TLS)--> PeerListener of the peer

Plain frames go from their pieces to the kernel without a copy (`stream.FrameWriter`). TLS copies
everything it encrypts, so there the event loop's transport does the sending.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from cluster.transport.stream import LENGTH, UNSENT_BYTES, FrameWriter, Piece

MAX_UNREAD_BYTES = 2 * 1024 * 1024  # received and not taken: beyond that, nothing more is read

RECORD_BYTES = 16 * 1024  # the most that TLS seals at once
MAX_JOINED_BYTES = 256 * 1024


class Writer(Protocol):
    """See FrameWriter."""

    @property
    def free(self) -> bool: ...
    @property
    def sent(self) -> int: ...
    def write(self, frame: Sequence[Piece]) -> None: ...
    def close(self) -> None: ...


class PeerConnection(Protocol):
    """Both directions. `receive` returns nothing at the end."""

    async def send(self, data: bytes) -> None: ...
    async def receive(self, most: int) -> bytes: ...
    def writer(self, on_free: Callable[[], None], on_lost: Callable[[OSError], None]) -> Writer: ...
    def close(self) -> None: ...


class PlainConnection:
    """A connected socket as it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self._sock = sock

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def receive(self, most: int) -> bytes:
        return await self._loop.sock_recv(self._sock, most)

    def writer(self, on_free: Callable[[], None], on_lost: Callable[[OSError], None]) -> Writer:
        return FrameWriter(self._loop, self._sock, on_free, on_lost)

    def close(self) -> None:
        self._sock.close()


class TlsConnection(asyncio.Protocol):
    """TLS connection as the client; also the Writer of its frames. `open` makes one."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._news = asyncio.Event()
        self._ended = False
        self._error: OSError | None = None
        self._blocked = False
        self._given = 0
        self._on_free: Callable[[], None] = _nothing
        self._on_lost: Callable[[OSError], None] = _ignored

    @classmethod
    async def open(
        cls, sock: socket.socket, context: ssl.SSLContext, host: str, timeout: float
    ) -> TlsConnection:
        """Takes over the connected socket. Raises OSError, ssl.SSLError, TimeoutError."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                cls,
                sock=sock,
                ssl=context,
                server_hostname=host,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=timeout,
            )
        except BaseException:
            sock.close()
            raise
        return connection

    @property
    def handshake(self) -> ssl.SSLObject:
        """The result of the handshake, which verified the peer's certificate."""
        assert self._transport is not None
        return cast(ssl.SSLObject, self._transport.get_extra_info("ssl_object"))

    # -- Connection -------------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def receive(self, most: int) -> bytes:
        assert self._transport is not None
        while not self._received and not self._ended:
            self._news.clear()
            await self._news.wait()
        if self._error is not None and not self._received:
            raise self._error
        data = bytes(self._received[:most])
        del self._received[:most]
        if not self._received:
            self._transport.resume_reading()
        return data

    def writer(self, on_free: Callable[[], None], on_lost: Callable[[OSError], None]) -> Writer:
        self._on_free = on_free
        self._on_lost = on_lost
        return self

    def close(self) -> None:
        self._on_free = _nothing
        self._on_lost = _ignored
        if self._transport is not None:
            self._transport.abort()

    # -- Writer -----------------------------------------------------------------------------

    @property
    def free(self) -> bool:
        return not self._blocked and not self._ended

    @property
    def sent(self) -> int:
        assert self._transport is not None
        return self._given - self._transport.get_write_buffer_size()

    def write(self, frame: Sequence[Piece]) -> None:
        assert self.free and self._transport is not None, "one frame at a time"
        size = sum(map(len, frame))
        self._given += LENGTH.size + size
        self._transport.writelines(joined([LENGTH.pack(size), *frame]))
        if self.free:
            self._on_free()

    # -- asyncio's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        if len(self._received) > MAX_UNREAD_BYTES:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        self._ended = True
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._error = exc if isinstance(exc, OSError) else None
        self._news.set()
        self._on_lost(self._error or ConnectionResetError("the connection ended"))

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._on_free()


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Joins small pieces: TLS would seal each in a record of its own. Large ones are not copied."""
    found: list[Piece] = []
    small: list[Piece] = []
    size = 0
    for piece in pieces:
        if len(piece) >= RECORD_BYTES or size + len(piece) > MAX_JOINED_BYTES:
            if small:
                found.append(b"".join(small))
            small, size = [], 0
        if len(piece) >= RECORD_BYTES:
            found.append(piece)
        else:
            small.append(piece)
            size += len(piece)
    if small:
        found.append(b"".join(small))
    return found


def _nothing() -> None:
    pass


def _ignored(error: OSError) -> None:
    pass
