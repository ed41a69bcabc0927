"""Broker that keeps nothing and acknowledges everything: `python -m bench.null_broker`.

A client's rate against it is the client's own limit. It prints its address and serves until it
is ended. Any topic exists, with one partition, or as many as its name ends in ("t-6").
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from bench.echo import UNLIMITED
from oncelog.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    log_pb2,
    producer_pb2,
    producer_pb2_grpc,
)
from oncelog.v1.batch_pb2 import Batch, BatchHeader

NODE = 1
LIFETIME_MS = 24 * 3600 * 1000
LENGTH_DELIMITED = 2
REQUEST_BATCHES = log_pb2.ProduceRequest.BATCHES_FIELD_NUMBER
BATCH_HEADER, BATCH_ID = Batch.HEADER_FIELD_NUMBER, Batch.ID_FIELD_NUMBER


class Metadata(cluster_pb2_grpc.ClusterServiceServicer):
    def __init__(self) -> None:
        self.address = ""

    async def DescribeTopics(
        self, request: cluster_pb2.DescribeTopicsRequest, context: Any
    ) -> cluster_pb2.DescribeTopicsResponse:
        node = cluster_pb2.NodeInfo(node_id=NODE, address=self.address, alive=True)
        return cluster_pb2.DescribeTopicsResponse(
            topics=[_topic(name) for name in request.names], nodes=[node]
        )


def _topic(name: str) -> cluster_pb2.TopicInfo:
    count = name.rpartition("-")[2]
    partitions = [
        cluster_pb2.PartitionInfo(
            partition=number, group_id=number + 1, leader_id=NODE, term=1, replicas=[NODE]
        )
        for number in range(int(count) if count.isdigit() else 1)
    ]
    config = cluster_pb2.TopicConfig(max_batch_bytes=64 * 1024 * 1024)
    return cluster_pb2.TopicInfo(name=name, topic_id=1, partitions=partitions, config=config)


class Producers(producer_pb2_grpc.ProducerServiceServicer):
    def __init__(self) -> None:
        self._last = 0

    async def LeaseProducer(
        self, request: producer_pb2.LeaseProducerRequest, context: Any
    ) -> producer_pb2.LeaseProducerResponse:
        self._last += 1
        return producer_pb2.LeaseProducerResponse(
            producer_id=self._last,
            expire_ms=int(time.time() * 1000) + LIFETIME_MS,
            lifetime_ms=LIFETIME_MS,
        )


class Log:
    """Service that takes requests as bytes: copying unused payloads would be its own limit."""

    def __init__(self) -> None:
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)

    async def produce_stream(
        self, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[log_pb2.ProduceResponse]:
        async for request in requests:
            response = log_pb2.ProduceResponse()
            for begin, end in fields(request, 0, len(request))[REQUEST_BATCHES]:
                batch = fields(request, begin, end)
                header = BatchHeader.FromString(request[slice(*batch[BATCH_HEADER][0])])
                where = (header.topic, header.partition)
                offset = self._next[where]
                self._next[where] = offset + header.record_count
                response.results.add(
                    id=varint(request, batch[BATCH_ID][0][0])[0],
                    verdict=log_pb2.VERDICT_APPENDED,
                    base_offset=offset,
                )
            yield response

    def add_to(self, server: grpc.aio.Server) -> None:
        handler = grpc.stream_stream_rpc_method_handler(
            self.produce_stream, None, log_pb2.ProduceResponse.SerializeToString
        )
        methods = {"ProduceStream": handler}
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("oncelog.v1.LogService", methods)]
        )


def fields(data: bytes, at: int, end: int) -> defaultdict[int, list[tuple[int, int]]]:
    """Places of a message's fields (protobuf.dev, "Encoding"): number -> (begin, end) of each."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    while at < end:
        tag, begin = varint(data, at)
        length, at = varint(data, begin)
        if tag & 7 == LENGTH_DELIMITED:
            begin, at = at, at + length
        else:
            assert tag & 7 == 0, "a client sends varints and what has a length"
        found[tag >> 3].append((begin, at))
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a varint; returns (the number, its end)."""
    number = shift = 0
    while data[at] > 0x7F:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return number | data[at] << shift, at + 1


async def serve() -> None:
    server = grpc.aio.server(options=UNLIMITED)
    metadata = Metadata()
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(metadata, server)
    producer_pb2_grpc.add_ProducerServiceServicer_to_server(Producers(), server)
    Log().add_to(server)
    metadata.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    print(metadata.address, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
