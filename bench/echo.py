"""gRPC server that ignores its input: `python -m bench.echo`.

Prints its port and serves until it is ended. Messages are raw bytes:

    Take   stream of messages -> their bytes, counted
    Give   "SIZE COUNT" -> that many messages of that size
    Echo   stream -> the same stream
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

SERVICE = "bench.Echo"
UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.lookahead_bytes", 1024 * 1024),
]


def _same(data: bytes) -> bytes:
    return data


async def _take(requests: AsyncIterator[bytes], context: Any) -> bytes:
    total = 0
    async for request in requests:
        total += len(request)
    return str(total).encode()


async def _give(request: bytes, context: Any) -> AsyncIterator[bytes]:
    size, count = map(int, request.split())
    message = b"x" * size
    for _ in range(count):
        yield message


async def _echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def serve() -> None:
    server = grpc.aio.server(options=UNLIMITED)
    methods = {
        "Take": grpc.stream_unary_rpc_method_handler(_take, _same, _same),
        "Give": grpc.unary_stream_rpc_method_handler(_give, _same, _same),
        "Echo": grpc.stream_stream_rpc_method_handler(_echo, _same, _same),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
