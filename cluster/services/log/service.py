"""LogService: decode, call, encode; nothing else.

Produce, ProduceStream           --> producing   --> admission, Partition.append
Fetch, Subscribe, ListOffsets    --> reading     --> Partition.read
ResolveSequence                  --> resolving
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from cluster.services.context import NodeContext
from cluster.services.errors import public_errors, write
from cluster.services.log.fetch import HELD_TWICE, Reader
from cluster.services.log.produce import Appender, ProduceStream
from cluster.services.log.resolve import Resolver
from cluster.services.partition_events import Listening
from cluster.services.requests import count_in_range, in_range
from oncelog.v1 import log_pb2 as pb
from oncelog.v1 import log_pb2_grpc as rpc

MAX_PARTITIONS = 1000  # in one fetch
MAX_WAIT_MS = 60_000


def add_log_service(service: LogService, server: grpc.aio.Server) -> None:
    """Register the service; answers to fetches are handed over as bytes."""
    rpc.add_LogServiceServicer_to_server(service, server)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Fetch": grpc.unary_unary_rpc_method_handler(
            service.Fetch, pb.FetchRequest.FromString, _same
        ),
        "Subscribe": grpc.unary_stream_rpc_method_handler(
            service.Subscribe, pb.SubscribeRequest.FromString, _same
        ),
    }
    server.add_registered_method_handlers("oncelog.v1.LogService", handlers)


def _same(answer: bytes) -> bytes:
    return answer


class LogService(rpc.LogServiceServicer):
    """The LogService of one node."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node
        self._resolver = Resolver(node)
        self._appender = Appender(node, self._resolver)
        self._reader = Reader(node)

    @public_errors
    async def Produce(self, request: pb.ProduceRequest, context: Any) -> pb.ProduceResponse:
        return pb.ProduceResponse(results=await self._appender.all_of(request, context.peer()))

    @public_errors
    async def ProduceStream(
        self, request_iterator: AsyncIterator[pb.ProduceRequest], context: Any
    ) -> None:
        account = self.node.memory.of_call(context.peer())
        stream = ProduceStream(self._appender, context.peer())
        reader = asyncio.create_task(stream.read(request_iterator))
        try:
            while answers := await stream.next_results():
                results = [self._appender.result(*answer) for answer in answers]
                await write(context, pb.ProduceResponse(results=results), account)
                stream.taken(len(results))
            await reader
        finally:
            reader.cancel()
            stream.close()

    @public_errors
    async def Fetch(self, request: pb.FetchRequest, context: Any) -> bytes:
        """Return a serialized FetchResponse."""
        count_in_range("partitions", len(request.partitions), 1, MAX_PARTITIONS)
        in_range("max_wait_ms", request.max_wait_ms, 0, MAX_WAIT_MS)
        return await self._reader.fetch(request)

    @public_errors
    async def Subscribe(self, request: pb.SubscribeRequest, context: Any) -> None:
        """Send serialized FetchResponses. One is read while another is sent."""
        count_in_range("partitions", len(request.partitions), 1, MAX_PARTITIONS)
        wanted = [pb.PartitionFetch() for _ in request.partitions]
        for mine, theirs in zip(wanted, request.partitions, strict=True):
            mine.CopyFrom(theirs)
        account = self.node.memory.of_call(context.peer())
        with Listening(self._reader.replicas(wanted)) as listening:
            reading = partial(self._reader.next_message, wanted, request, listening, account)
            more = asyncio.create_task(reading())
            try:
                while True:
                    message, is_last = await more
                    if not is_last:
                        more = asyncio.create_task(reading())
                    await write(context, message, account)
                    account.release(HELD_TWICE * len(message))
                    if is_last:
                        return
            finally:
                more.cancel()

    @public_errors
    async def ListOffsets(
        self, request: pb.ListOffsetsRequest, context: Any
    ) -> pb.ListOffsetsResponse:
        return await self._reader.list_offsets(request)

    @public_errors
    async def ResolveSequence(
        self, request: pb.ResolveSequenceRequest, context: Any
    ) -> pb.ResolveSequenceResponse:
        return await self._resolver.answer(request)
