"""Streams for stored records: replace polls while a reader is behind.

Place in the flow: `fetcher` polls. If a partition's answer was cut short because there is more, the
fetcher subscribes to the partition here. It polls again when the stream is at the end, or after an
event that a poll handles. So at the end of the log, where a node may be silent for long and lose
its leadership, there are only polls.

The node sends ahead while the client works on the last message; gRPC's flow control limits it.
Nothing is read while the partition's buffer is full.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from oncelog._engine.consume.fetch_buffer import Added, FetchBuffer, Wanted
from oncelog._engine.net.cluster import Cluster
from oncelog.config import ConsumerConfig
from oncelog.v1 import log_pb2
from oncelog.wire.fetched import DecodeError, FetchedRecords, read_fetch_response

_METHOD = "/oncelog.v1.LogService/Subscribe"
# Large enough that a message costs little beside its bytes. No larger, because a node sends one
# message while it collects the next.
_MESSAGE_BYTES = 2 * 1024 * 1024
# If there is more to read, silence calls for a poll, which finds the present leader.
_SILENCE_S = 2.0
# At the same time; further partitions are polled until a stream is done.
MOST_STREAMS = 8


class CatchUp:
    def __init__(self, config: ConsumerConfig, cluster: Cluster, buffer: FetchBuffer) -> None:
        self._config = config
        self._cluster = cluster
        self._buffer = buffer
        self._changed = asyncio.Event()

    def recheck(self) -> None:
        """Look again: the buffer may have room, or a seek may have moved the partition."""
        self._changed.set()

    def is_worth_it(self, records: FetchedRecords) -> bool:
        """Tell whether a poll's answer was cut short because there is more."""
        enough = min(self._config.max_partition_fetch_bytes, self._config.fetch_max_bytes) // 2
        size = sum(len(batch.payload) for batch in records.batches)
        return 0 < size >= enough and records.end_offset < records.meta.high_watermark

    async def run(
        self, address: str, wanted: Wanted
    ) -> tuple[Wanted, log_pb2.PartitionRecords] | None:
        """Fill the buffer; return the node's rejection and its reason, if that ended it."""
        call: Any = None
        try:
            # The buffer is probably full: only active readers get a stream.
            while await self._has_room(wanted):
                if call is None:
                    call = self._subscribe(address, wanted)
                async with asyncio.timeout(_SILENCE_S):
                    message = await call.read()
                if message is grpc.aio.EOF:
                    return None
                for records in read_fetch_response(message):
                    added = self._buffer.add(wanted, records)
                    if added is Added.ERROR:
                        return wanted, records.meta
                    if added is not Added.OK:
                        return None
                    wanted = Wanted(wanted.tp, records.end_offset, wanted.generation)
                    if wanted.offset >= records.meta.high_watermark:
                        return None
            return None
        except (TimeoutError, grpc.aio.AioRpcError, DecodeError):
            return None  # a poll finds the reason
        finally:
            if call is not None:
                call.cancel()

    def _subscribe(self, address: str, wanted: Wanted) -> Any:
        subscribe: Any = self._cluster.channel(address).unary_stream(
            _METHOD, request_serializer=log_pb2.SubscribeRequest.SerializeToString
        )
        config = self._config
        limit = min(config.max_partition_fetch_bytes, config.fetch_max_bytes, _MESSAGE_BYTES)
        fetch = log_pb2.PartitionFetch(
            topic=wanted.tp.topic, partition=wanted.tp.partition, offset=wanted.offset
        )
        return subscribe(
            log_pb2.SubscribeRequest(
                partitions=[fetch],
                max_bytes=limit,
                any_replica=config.any_replica,
                near=config.rack is not None,
            ),
            metadata=self._cluster.founding.metadata,
        )

    async def _has_room(self, wanted: Wanted) -> bool:
        """Wait for room in the buffer; False if the partition is not to be read on here."""
        while True:
            self._changed.clear()
            room = self._buffer.room(wanted)
            if room is not None:
                return room
            await self._changed.wait()
