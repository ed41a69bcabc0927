"""Frames over a connection: whole, in order, however the bytes are cut up."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.transport.stream import (
    KEPT_BYTES,
    LENGTH,
    MAX_PIECES,
    STAGING_BYTES,
    FrameReader,
    FrameWriter,
    StreamError,
    tune,
)

MIB = 1024 * 1024
# Empty, small, around the staging buffer's size, and far beyond it.
SIZES = [0, 1, 17, 4096, STAGING_BYTES - 5, STAGING_BYTES - 4, STAGING_BYTES, 3 * STAGING_BYTES]


def on_wire(frames: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)


def feed(reader: FrameReader, raw: bytes, cuts: list[int]) -> None:
    """Feeds bytes as the event loop does: as much as the reader has room for, or less."""
    at = 0
    while at < len(raw):
        room = reader.get_buffer()
        size = min(len(room), len(raw) - at, cuts[at % len(cuts)])
        room[:size] = raw[at : at + size]
        reader.buffer_updated(size)
        at += size


@given(
    st.lists(st.sampled_from(SIZES), max_size=8),
    st.lists(st.sampled_from([1, 3, 4, 5, 1000, STAGING_BYTES, MIB]), min_size=1, max_size=5),
)
def test_frames_come_out_as_they_went_in(sizes: list[int], cuts: list[int]) -> None:
    if max(cuts) < 1000:
        sizes = [size for size in sizes if size <= 4096]  # byte by byte takes its time
    sent = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    received: list[bytes] = []
    feed(FrameReader(lambda view: received.append(bytes(view)), MIB), on_wire(sent), cuts)
    assert received == sent


def test_a_frame_beyond_the_limit_gets_no_memory() -> None:
    received: list[bytes] = []
    reader = FrameReader(lambda view: received.append(bytes(view)), 4096)
    feed(reader, on_wire([b"x" * 4096]), [MIB])
    with pytest.raises(StreamError, match="4097 bytes, at most 4096"):
        feed(reader, LENGTH.pack(4097), [MIB])
    assert received == [b"x" * 4096]
    assert len(reader.get_buffer()) <= STAGING_BYTES


def test_the_limit_may_rise_with_the_first_frame() -> None:
    received: list[int] = []

    def first(view: memoryview) -> None:
        reader.limit, reader.on_frame = MIB, lambda later: received.append(len(later))

    reader = FrameReader(first, 10)
    feed(reader, on_wire([b"hello", b"x" * 100_000]), [MIB])
    assert received == [100_000]


def test_memory_of_an_unusual_frame_is_given_back() -> None:
    reader = FrameReader(lambda view: None, 2 * KEPT_BYTES)
    feed(reader, on_wire([bytes(KEPT_BYTES + 1)]), [2 * KEPT_BYTES])
    assert len(reader.get_buffer()) == STAGING_BYTES
    assert len(reader._buffer) == STAGING_BYTES


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    here.setblocking(False)
    there.setblocking(False)
    tune(here)
    return here, there


async def read_all(sock: socket.socket, count: int) -> bytes:
    loop, parts = asyncio.get_running_loop(), bytearray()
    while len(parts) < count:
        part = await loop.sock_recv(sock, MIB)
        assert part, "closed too early"
        parts += part
    return bytes(parts)


def test_the_writer_sends_all_pieces_in_order() -> None:
    frames = [
        [b"a"],
        [b"", b"bc", b""],
        [b"%d," % number for number in range(3 * MAX_PIECES)],
        [bytes([number]) * MIB for number in range(24)],  # more than the kernel takes at once
        [b"end"],
    ]

    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        here, there = pair()
        waiting = list(frames)
        done = asyncio.Event()

        def more() -> None:
            if waiting:
                loop.call_soon(lambda: writer.write(waiting.pop(0)))
            else:
                done.set()

        writer = FrameWriter(loop, here, more, lambda error: pytest.fail(str(error)))
        assert writer.free
        writer.write(waiting.pop(0))
        raw = await read_all(there, len(wanted))
        await done.wait()
        assert writer.free
        writer.close()
        here.close()
        there.close()
        return raw

    wanted = on_wire([b"".join(frame) for frame in frames])
    assert asyncio.run(run()) == wanted


def test_the_writer_says_once_that_the_connection_broke() -> None:
    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        here, there = pair()
        told: list[str] = []
        lost = asyncio.Event()

        def on_lost(error: OSError) -> None:
            told.append(type(error).__name__)
            lost.set()

        writer = FrameWriter(loop, here, lambda: told.append("free"), on_lost)
        writer.write([bytes(32 * MIB)])  # nobody reads: it cannot be with the kernel yet
        assert not writer.free and not told
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        there.close()
        await lost.wait()
        assert not writer.free
        writer.close()
        here.close()
        return told

    (told,) = asyncio.run(run())
    assert told in ("ConnectionResetError", "BrokenPipeError")
