"""Frames over one TCP connection, in one direction, without avoidable copies.

    FrameWriter --u32 length | frame--> (kernel) --> FrameReader --> on_frame(bytes so far)

`frames` knows the content of a frame; `link` and `listener` send and receive them. Both sides
belong to the event loop, which calls them when the socket has room, or has bytes. docs/adr/0012
says why this is not gRPC, as everywhere else.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence

LENGTH = struct.Struct("<I")
# Frames up to this size are read many at a time, larger ones up to their own end.
STAGING_BYTES = 64 * 1024
# A buffer that grew for frames beyond this size is released after them.
KEPT_BYTES = 16 * 1024 * 1024
MAX_PIECES = 512  # of one system call; Linux takes 1,024
# If bytes stay unacknowledged for so long, the kernel gives the connection up.
UNACKNOWLEDGED_MS = 3_000
# In the kernel beside bytes in flight; nothing can overtake them there.
UNSENT_BYTES = 1024 * 1024
# A proxy's kernel acknowledges even if the peer is gone, so peers answer pings as well.
PING_EVERY = 2.0  # seconds
MISSED_PINGS = 4  # in a row without a sign of the other side, and the connection is over

Piece = bytes | memoryview


def framed(frame: bytes) -> bytes:
    """Returns a small frame as it goes over the connection."""
    return LENGTH.pack(len(frame)) + frame


PING = framed(b"")


class StreamError(Exception):
    """The received bytes are not an allowed frame."""


def tune(sock: socket.socket) -> None:
    """Makes small frames leave at once, and a stuck peer noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)


class Keepalive:
    """Watch over the other side: tells when it has been silent for too long.

    on_tick() -> whether there was a sign of it since the last tick, or none was due.
    on_silence(): none came for MISSED_PINGS ticks in a row; nothing is called after that.

    It counts ticks, not seconds: a node that stood still itself has one late tick, and then reads
    the bytes that arrived meanwhile.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_tick: Callable[[], bool],
        on_silence: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._on_tick = on_tick
        self._on_silence = on_silence
        self._missed = 0
        self._timer = loop.call_later(PING_EVERY, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        self._missed = 0 if self._on_tick() else self._missed + 1
        if self._missed >= MISSED_PINGS:
            self._on_silence()
        else:
            self._timer = self._loop.call_later(PING_EVERY, self._tick)


class FrameWriter:
    """Writes one frame after the other to a connected, non-blocking socket.

    on_free():      the frame given last is with the kernel; the next may be given.
    on_lost(error): the connection broke; nothing more is called after that.

    Frames are given as pieces, which are not joined. They must not change until `on_free`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_free: Callable[[], None],
        on_lost: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._on_free = on_free
        self._on_lost = on_lost
        self._pieces: list[Piece] = []
        self._waiting = False
        self.sent = 0  # bytes so far
        self.closed = False

    @property
    def free(self) -> bool:
        return not self._pieces and not self.closed

    def write(self, frame: Sequence[Piece]) -> None:
        """Begins with a frame; only while `free`. `on_free` may be called before it returns."""
        assert self.free, "one frame at a time"
        self._pieces = [LENGTH.pack(sum(map(len, frame))), *frame]
        self._push()

    def close(self) -> None:
        if self._waiting:
            self._loop.remove_writer(self._sock)
        self._waiting = False
        self.closed = True
        self._pieces = []

    def _push(self) -> None:
        while self._pieces:
            try:
                sent = self._sock.sendmsg(self._pieces[:MAX_PIECES])
            except (BlockingIOError, InterruptedError):
                if not self._waiting:
                    self._loop.add_writer(self._sock, self._push)
                    self._waiting = True
                return
            except OSError as error:
                self.close()
                self._on_lost(error)
                return
            self.sent += sent
            self._drop(sent)
        if self._waiting:
            self._loop.remove_writer(self._sock)
            self._waiting = False
        self._on_free()

    def _drop(self, sent: int) -> None:
        """Drops the bytes that the kernel took."""
        whole = 0
        for piece in self._pieces:
            if len(piece) > sent:
                break
            sent -= len(piece)
            whole += 1
        del self._pieces[:whole]
        assert not sent or self._pieces, "more was sent than was given"
        if sent:
            self._pieces[0] = memoryview(self._pieces[0])[sent:]


class FrameReader:
    """Takes frames out of a stream of bytes: the buffer of an asyncio.BufferedProtocol.

    on_frame(view): one frame; the view is valid until it returns.
    limit:          bytes of the largest frame that may come now. Both may change.

    The buffer is kept from frame to frame: the kernel copies into memory that is in the processor's
    cache, and no memory has to be allocated and cleared.
    """

    def __init__(self, on_frame: Callable[[memoryview], None], limit: int) -> None:
        self.on_frame = on_frame
        self.limit = limit
        self._buffer = bytearray(STAGING_BYTES)
        self._have = 0  # bytes in the buffer, of which the first begin a frame
        self._wanted = STAGING_BYTES  # where reading stops

    def get_buffer(self) -> memoryview:
        """Returns room for the next bytes; never empty."""
        assert self._have < self._wanted <= len(self._buffer)
        return memoryview(self._buffer)[self._have : self._wanted]

    def buffer_updated(self, count: int) -> None:
        """Takes `count` bytes in the buffer, and hands over whole frames.

        Raises StreamError if a frame is too long, and the errors of `on_frame`.
        """
        self._have += count
        assert count > 0 and self._have <= self._wanted
        at = 0
        size = self._size(at)
        view = memoryview(self._buffer)
        while size and self._have - at >= size:
            self.on_frame(view[at + LENGTH.size : at + size])
            at += size
            size = self._size(at)
        view.release()
        self._keep_rest(at, size)

    def _size(self, at: int) -> int:
        """Returns the size of the frame at `at`, its length field included; 0: not known yet."""
        if self._have - at < LENGTH.size:
            return 0
        (length,) = LENGTH.unpack_from(self._buffer, at)
        if length > self.limit:
            raise StreamError(f"a frame of {length} bytes, at most {self.limit} may come")
        return LENGTH.size + int(length)

    def _keep_rest(self, at: int, size: int) -> None:
        """Moves the frame at `at` to the front, with room for all of its `size`."""
        rest = self._have - at
        room = max(size, STAGING_BYTES)
        if room > len(self._buffer) or (len(self._buffer) > KEPT_BYTES >= room):
            grown = bytearray(room)
            grown[:rest] = memoryview(self._buffer)[at : self._have]
            self._buffer = grown
        elif at and rest:
            self._buffer[:rest] = self._buffer[at : self._have]
        self._have = rest
        self._wanted = room
        assert self._have < self._wanted
