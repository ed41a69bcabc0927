"""The harm that many or greedy clients do to others: counted in batches, not in seconds."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import grpc

from harness.api import CHANNEL_OPTIONS, batch, verdict
from harness.local_cluster import LocalCluster
from oncelog import Admin
from oncelog.v1 import log_pb2, log_pb2_grpc
from oncelog.wire.batch import encode_payload
from tests.integration.conftest import MakeCluster

SMALL = encode_payload([b"value"], [1])
STREAMS, IN_REQUEST = 10, 5000
# A node takes 2,048 batches of clients with more to send, and a slice of each of their streams.
AHEAD = 3 * (2048 + STREAMS * 128)


def _log(cluster: LocalCluster) -> log_pb2_grpc.LogServiceStub:
    return log_pb2_grpc.LogServiceStub(
        grpc.insecure_channel(cluster.bootstrap, options=CHANNEL_OPTIONS)
    )


def _for_ever(request: log_pb2.ProduceRequest) -> Iterator[log_pb2.ProduceRequest]:
    while True:
        yield request


def _count(answers: Iterator[log_pb2.ProduceResponse], done: threading.Semaphore) -> None:
    try:
        for answer in answers:
            done.release(len(answer.results))
    except grpc.RpcError:
        return  # cancelled at the end


def test_a_flood_of_small_batches_lets_others_in(make_cluster: MakeCluster, topic: str) -> None:
    """Before, a batch of another client waited behind 200,000 of the flood, for 11 s."""
    cluster = make_cluster(1)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=1, replicas=1)
    one = batch(topic, 0, 0, 0, SMALL, codec=0)
    flood, victim = _log(cluster), _log(cluster)
    request = log_pb2.ProduceRequest(batches=[one] * IN_REQUEST)
    calls = [flood.ProduceStream(_for_ever(request)) for _ in range(STREAMS)]
    flooded = threading.Semaphore(0)
    for call in calls:
        threading.Thread(target=_count, args=(call, flooded), daemon=True).start()
    for _ in range(AHEAD):
        assert flooded.acquire(timeout=60), "the flood flows"
    offsets = []
    for _ in range(10):
        (result,) = victim.Produce(log_pb2.ProduceRequest(batches=[one]), timeout=60).results
        assert verdict(result) == "APPENDED"
        offsets.append(result.base_offset)
    for call in calls:
        call.cancel()
    between = [later - earlier for earlier, later in pairwise(offsets)]
    assert max(between) <= AHEAD, between
    assert max(between) > 1, "there was a flood"


async def test_many_streams_at_once_are_all_answered(make_cluster: MakeCluster, topic: str) -> None:
    """Before, a tenth of 3,000 and a third of 6,000 were cancelled without a word why."""
    cluster = make_cluster(1)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=1, replicas=1)
    request = log_pb2.ProduceRequest(batches=[batch(topic, 0, 0, 0, SMALL, codec=0)])

    async def one(log: Any) -> str:
        call = log.ProduceStream()
        try:
            await call.write(request)
            answer = await call.read()
            await call.done_writing()
        except grpc.aio.AioRpcError as error:
            return error.code().name
        assert isinstance(answer, log_pb2.ProduceResponse)
        return verdict(answer.results[0])

    async with grpc.aio.insecure_channel(cluster.bootstrap) as channel:
        log: Any = log_pb2_grpc.LogServiceStub(channel)  # the stub's type is the synchronous one
        found = Counter(await asyncio.gather(*(one(log) for _ in range(3000))))
    assert found == {"APPENDED": 3000}
