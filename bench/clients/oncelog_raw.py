"""Small batches over plain gRPC streams: the cluster's rate without our client's cost.

`window` producers, each with an id, a stream and one batch of one record in flight.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import crc32c
import grpc.aio

from bench.clients.common import DRAIN_S, Asked, Clock, Figures, main, percentiles
from oncelog.v1 import (
    batch_pb2,
    cluster_pb2,
    cluster_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    producer_pb2,
    producer_pb2_grpc,
)
from oncelog.wire.batch import encode_payload


async def produce(asked: Asked) -> Figures:
    channels = {address: grpc.aio.insecure_channel(address) for address in asked.addresses}
    first = channels[asked.addresses[0]]
    leaders = await _leaders(first, asked.topic)
    times: list[float] = []
    ids = [await _lease(first) for _ in range(asked.window)]
    clock = Clock()
    until = clock.started + asked.seconds
    async with asyncio.timeout(asked.seconds + DRAIN_S):
        await asyncio.gather(
            *(
                _one(
                    channels[leaders[n % len(leaders)]], asked, n % len(leaders), pid, until, times
                )
                for n, pid in enumerate(ids)
            )
        )
    figures = clock.figures(len(times), asked.size) | percentiles(times)
    for channel in channels.values():
        await channel.close()
    return figures | {"batches": figures["records"], "batches_per_s": figures["records_per_s"]}


async def _leaders(channel: grpc.aio.Channel, topic: str) -> list[str]:
    """Address of each partition's leader."""
    answer = await cluster_pb2_grpc.ClusterServiceStub(channel).DescribeTopics(
        cluster_pb2.DescribeTopicsRequest(names=[topic])
    )
    addresses = {node.node_id: node.address for node in answer.nodes}
    return [addresses[one.leader_id] for one in answer.topics[0].partitions]


async def _lease(channel: grpc.aio.Channel) -> producer_pb2.LeaseProducerResponse:
    stub: Any = producer_pb2_grpc.ProducerServiceStub(channel)
    answer: producer_pb2.LeaseProducerResponse = await stub.LeaseProducer(
        producer_pb2.LeaseProducerRequest()
    )
    return answer


async def _one(
    channel: grpc.aio.Channel,
    asked: Asked,
    partition: int,
    lease: producer_pb2.LeaseProducerResponse,
    until: float,
    times: list[float],
) -> None:
    payload = encode_payload([os.urandom(asked.size)], [time.time_ns() // 1000])
    header = batch_pb2.BatchHeader(
        topic=asked.topic,
        partition=partition,
        producer_id=lease.producer_id,
        record_count=1,
        crc32c=crc32c.crc32c(payload),
    )
    call: Any = log_pb2_grpc.LogServiceStub(channel).ProduceStream()
    sequence = 0
    while time.monotonic() < until:
        header.base_sequence = sequence
        batch = batch_pb2.Batch(header=header, payload=payload, id=sequence)
        if not sequence:
            batch.lease_token = lease.lease_token
        started = time.monotonic()
        await call.write(log_pb2.ProduceRequest(batches=[batch]))
        (result,) = (await call.read()).results
        if result.verdict != log_pb2.VERDICT_APPENDED:
            raise SystemExit(f"producer {lease.producer_id}: {result}")
        times.append((time.monotonic() - started) * 1e3)
        sequence += 1
    call.cancel()


if __name__ == "__main__":
    main({"produce": produce})
