"""LogService: reads and writes of records, each by the module that knows how.

Produce, ProduceStream           --> producing   --> admission, Partition.append
Fetch, Subscribe, ListOffsets    --> reading     --> Partition.read
ResolveSequence                  --> resolving
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from cluster.services.context import NodeContext
from cluster.services.log.fetch import HELD_TWICE, Reader
from cluster.services.log.produce import Appender, ProduceCall
from cluster.services.log.resolve import Resolver
from cluster.services.partition_events import Listening
from cluster.services.requests import Write, count_in_range, in_range
from oncelog.v1 import log_pb2 as pb

MAX_PARTITIONS = 1000  # in one fetch
MAX_WAIT_MS = 60_000


class LogService:
    """The LogService of one node."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node
        self._resolver = Resolver(node)
        self._appender = Appender(node, self._resolver)
        self._reader = Reader(node)

    async def Produce(self, request: pb.ProduceRequest) -> pb.ProduceResponse:
        return pb.ProduceResponse(results=await self._appender.all_of(request))

    async def ProduceStream(self, requests: AsyncIterator[pb.ProduceRequest], write: Write) -> None:
        stream = ProduceCall(self._appender)
        reader = asyncio.create_task(stream.read(requests))
        try:
            while answers := await stream.next_results():
                results = [self._appender.result(*answer) for answer in answers]
                await write(pb.ProduceResponse(results=results))
                stream.taken(len(results))
            await reader
        finally:
            reader.cancel()
            stream.close()

    async def Fetch(self, request: pb.FetchRequest) -> bytes:
        """Return a serialized FetchResponse."""
        count_in_range("partitions", len(request.partitions), 1, MAX_PARTITIONS)
        in_range("max_wait_ms", request.max_wait_ms, 0, MAX_WAIT_MS)
        return await self._reader.fetch(request)

    async def Subscribe(self, request: pb.SubscribeRequest, write: Write) -> None:
        """Send serialized FetchResponses. One is read while another is sent."""
        count_in_range("partitions", len(request.partitions), 1, MAX_PARTITIONS)
        wanted = [pb.PartitionFetch() for _ in request.partitions]
        for mine, theirs in zip(wanted, request.partitions, strict=True):
            mine.CopyFrom(theirs)
        account = self.node.memory.of_call()
        with Listening(self._reader.replicas(wanted)) as listening:
            reading = partial(self._reader.next_message, wanted, request, listening, account)
            more = asyncio.create_task(reading())
            try:
                while True:
                    message, is_last = await more
                    if not is_last:
                        more = asyncio.create_task(reading())
                    await write(message)
                    account.release(HELD_TWICE * len(message))
                    if is_last:
                        return
            finally:
                more.cancel()

    async def ListOffsets(self, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        return await self._reader.list_offsets(request)

    async def ResolveSequence(
        self, request: pb.ResolveSequenceRequest
    ) -> pb.ResolveSequenceResponse:
        return await self._resolver.answer(request)
