"""Client of some microseconds a record: many producers that share a stream to each node.

Each producer has one batch of one record in flight. An answer's producers send their next
batches in one request. Batches are built once; only the sequence in them changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import crc32c
import grpc.aio

from oncelog.v1 import batch_pb2, log_pb2, producer_pb2, producer_pb2_grpc
from oncelog.wire.batch import encode_payload

METHOD = "/oncelog.v1.LogService/ProduceStream"
AT_ONCE = 50  # leases that are asked for at the same time
DRAIN_S = 60.0  # limit for the last acknowledgements


class CheapProducers:
    """Producers of one node. Call `lease` first, then `run` as often as you like."""

    def __init__(self, address: str, topic: str, partitions: Sequence[int], size: int) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._topic = topic
        self._partitions = partitions
        self._payload = encode_payload([b"v" * size], [time.time_ns() // 1000])
        self._batches: list[batch_pb2.Batch] = []
        self._tokens: list[bytes] = []

    async def lease(self, count: int) -> None:
        """Makes so many producers, in turns on the partitions."""
        stub: Any = producer_pb2_grpc.ProducerServiceStub(self._channel)
        crc = crc32c.crc32c(self._payload)
        for begin in range(0, count, AT_ONCE):
            asked = [
                stub.LeaseProducer(producer_pb2.LeaseProducerRequest())
                for _ in range(min(AT_ONCE, count - begin))
            ]
            for lease in [await each for each in asked]:
                number = len(self._batches)
                header = batch_pb2.BatchHeader(
                    topic=self._topic,
                    partition=self._partitions[number % len(self._partitions)],
                    producer_id=lease.producer_id,
                    record_count=1,
                    crc32c=crc,
                )
                self._batches.append(
                    batch_pb2.Batch(header=header, payload=self._payload, id=number)
                )
                self._tokens.append(lease.lease_token)

    async def run(self, count: int, until: float) -> int:
        """Sends by the first `count` producers until then; returns the acknowledged records."""
        make = self._channel.stream_stream(
            METHOD,
            request_serializer=log_pb2.ProduceRequest.SerializeToString,
            response_deserializer=log_pb2.ProduceResponse.FromString,
        )
        call: Any = make()
        first = self._batches[:count]
        for batch, token in zip(first, self._tokens, strict=False):
            batch.lease_token = token
        await call.write(log_pb2.ProduceRequest(batches=first))
        for batch in first:
            batch.ClearField("lease_token")
        under_way, done = count, 0
        async with asyncio.timeout(until - time.monotonic() + DRAIN_S):
            while under_way:
                results = (await call.read()).results
                under_way -= len(results)
                done += len(results)
                following = [self._following(result) for result in results]
                if time.monotonic() < until:
                    under_way += len(following)
                    await call.write(log_pb2.ProduceRequest(batches=following))
        call.cancel()
        return done

    def _following(self, result: log_pb2.BatchResult) -> batch_pb2.Batch:
        batch = self._batches[result.id]
        if result.verdict != log_pb2.VERDICT_APPENDED:
            raise RuntimeError(f"producer {batch.header.producer_id}: {result}")
        batch.header.base_sequence += 1
        return batch

    async def close(self) -> None:
        await self._channel.close()
