"""The first frames between nodes: large enough for a cluster of 100, and no larger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.transport.connecting import MAX_HELLO_BYTES, ask
from cluster.transport.frames import encode_head
from cluster.transport.stream import StreamError, framed
from cluster.v1 import peer_pb2 as pb


@asynccontextmanager
async def answering(welcome: pb.Welcome) -> AsyncIterator[str]:
    """The address of a node that gives every caller this answer."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(encode_head(pb.Frame(welcome=welcome))))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


def of(nodes: int) -> pb.Welcome:
    name = "oncelog-{0}.oncelog-headless.a-namespace.svc.cluster.local:17001"
    return pb.Welcome(peers={node: name.format(node) for node in range(1, nodes + 1)})


async def test_a_node_that_joins_is_told_where_a_hundred_others_are() -> None:
    async with answering(of(100)) as address:
        assert len((await ask(address, pb.Join(), None)).peers) == 100


async def test_a_frame_beyond_the_limit_is_refused_before_it_is_read() -> None:
    async with answering(of(MAX_HELLO_BYTES // 50)) as address:
        with pytest.raises(StreamError, match=r"a Hello of \d+ bytes"):
            await ask(address, pb.Join(), None)
