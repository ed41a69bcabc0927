"""Reading what is already there: one stream from a node instead of question and answer.

Place in the flow: `fetcher` polls; where an answer was cut short because there is more, it
has this subscribe to the same partitions, and polls again when the stream has come to the
log's end, or something happened that a poll deals with. So at the end of the log, where a
node that hangs must be told from one that has nothing new, there are only polls.

The node sends ahead while the last message is being worked on; how far, gRPC's flow control
says. Nothing is read while the buffer is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio

from oncelog._engine.cluster import Cluster
from oncelog._engine.fetching import Added, FetchBuffer, Wanted
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.fetched import FetchedRecords, read_fetch_response

_METHOD = "/oncelog.v1.LogService/Subscribe"
# Enough that a message costs little beside its bytes, and no more, because a node sends
# one while it collects the next.
_MESSAGE_BYTES = 2 * 1024 * 1024


class CatchUp:
    def __init__(self, config: ConsumerConfig, cluster: Cluster, buffer: FetchBuffer) -> None:
        self._config = config
        self._cluster = cluster
        self._buffer = buffer
        self._room = asyncio.Event()

    def look_again(self) -> None:
        """There may be room in the buffer, or a partition be sought elsewhere."""
        self._room.set()

    def is_behind(self, answers: Iterable[FetchedRecords]) -> bool:
        """Whether a poll's answer was cut short, so that a stream is worth its beginning."""
        enough = min(self._config.max_partition_fetch_bytes, self._config.fetch_max_bytes) // 2
        return any(
            sum(len(batch.payload) for batch in records.batches) >= enough
            and records.end < records.meta.high_watermark
            for records in answers
        )

    async def run(
        self, address: str, partitions: Iterable[TopicPartition]
    ) -> tuple[Wanted, FetchedRecords] | None:
        """Fill the buffer; return what the node refused to send, if that ended it."""
        at = {tp: wanted for tp in partitions if (wanted := self._buffer.place(tp)) is not None}
        if not await self._wait_for_room(at.values()):
            return None
        subscribe: Any = self._cluster.channel(address).unary_stream(
            _METHOD, request_serializer=log_pb2.SubscribeRequest.SerializeToString
        )
        call = subscribe(self._request(at.values()))
        try:
            while await self._wait_for_room(at.values()):
                async with asyncio.timeout(self._config.fetch_max_wait_ms / 1000):
                    message = await call.read()
                if message is grpc.aio.EOF:
                    return None
                for records in read_fetch_response(message):
                    tp = TopicPartition(records.meta.topic, records.meta.partition)
                    added = self._buffer.add(at[tp], records)
                    if added is Added.ERROR:
                        return at[tp], records
                    if added is Added.STALE:
                        return None
                    at[tp] = Wanted(tp, records.end, at[tp].generation)
            return None
        except (TimeoutError, grpc.aio.AioRpcError):
            return None  # the log's end, or a poll will find out
        finally:
            call.cancel()

    def _request(self, partitions: Iterable[Wanted]) -> log_pb2.SubscribeRequest:
        config = self._config
        return log_pb2.SubscribeRequest(
            partitions=[
                log_pb2.PartitionFetch(
                    topic=w.tp.topic,
                    partition=w.tp.partition,
                    offset=w.offset,
                    max_bytes=config.max_partition_fetch_bytes,
                )
                for w in partitions
            ],
            max_bytes=min(config.fetch_max_bytes, _MESSAGE_BYTES),
            any_replica=config.any_replica,
        )

    async def _wait_for_room(self, partitions: Iterable[Wanted]) -> bool:
        """False if one of them is not to be read on as it was."""
        while True:
            self._room.clear()
            room = self._buffer.room(partitions)
            if room is not None:
                return room
            await self._room.wait()


__all__ = ["CatchUp"]
