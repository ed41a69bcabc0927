"""LogService: limits of requests and answers, work in slices, errors that name field and limit."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest

from cluster.rpc.services import writer
from cluster.services.fair_turns import SLICE_BATCHES
from cluster.services.log import fetch as reading
from cluster.services.log.fetch import Reader
from cluster.services.log.produce import MAX_BATCHES, MAX_RESULTS, ProduceCall
from oncelog import errors
from oncelog.v1 import log_pb2
from oncelog.wire.batch import encode_payload
from storage.errors import CorruptionError
from tests.unit.services.log_rig import PAYLOAD, TOPIC, LogNode, batch, fetch, header, serving
from tests.unit.small_node import refused

MANY = 20 * SLICE_BATCHES
SMALL = batch()


@pytest.fixture
def node() -> LogNode:
    return LogNode()


async def fill(node: LogNode, count: int, payload: bytes = PAYLOAD) -> None:
    for _ in range(count):
        await node.send(header(payload), payload)


async def turns_of_others(work: Awaitable[Any]) -> tuple[Any, int]:
    """The result of `work`, and how often another task ran meanwhile."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    try:
        return await work, turns
    finally:
        task.cancel()


# -- a request of many batches ----------------------------------------------------------------


async def test_a_stream_works_off_a_request_in_slices(node):
    """Before, 300,000 tiny batches in one message held the loop for two seconds."""

    async def requests() -> AsyncIterator[log_pb2.ProduceRequest]:
        yield log_pb2.ProduceRequest(batches=[SMALL] * MANY)

    stream = ProduceCall(node.appender)
    _, turns = await turns_of_others(stream.read(requests()))
    assert turns >= MANY // SLICE_BATCHES - 1
    results: list[Any] = []
    while some := await stream.next_results():
        assert len(some) <= MAX_RESULTS
        results += some
    assert len(results) == MANY


async def test_a_unary_request_is_worked_off_in_slices(node):
    request = log_pb2.ProduceRequest(batches=[SMALL] * MANY)
    results, turns = await turns_of_others(node.appender.all_of(request))
    assert turns >= MANY // SLICE_BATCHES - 1
    assert [result.base_offset for result in results] == list(range(MANY))


async def test_large_payloads_make_a_slice_sooner(node):
    large = batch(encode_payload([b"x" * 1_000_000], [1]))
    request = log_pb2.ProduceRequest(batches=[large] * 8)
    _, turns = await turns_of_others(node.appender.all_of(request))
    _, few = await turns_of_others(
        node.appender.all_of(log_pb2.ProduceRequest(batches=[SMALL] * 8))
    )
    assert turns >= few + 2


async def test_too_many_batches_are_refused(node):
    async with serving(node) as (stub, _):
        request = log_pb2.ProduceRequest(batches=[SMALL] * (MAX_BATCHES + 1))
        error = await refused(stub.Produce(request))
        assert (error.reason, error.field) == ("INVALID_REQUEST", "batches")
        assert error.limit == f"0..{MAX_BATCHES}"
    assert node.part.high_watermark == 0


async def test_a_stream_that_is_refused_answers_what_came_before(node):
    async with serving(node) as (stub, _):
        call = stub.ProduceStream()
        await call.write(log_pb2.ProduceRequest(batches=[SMALL]))
        await call.write(log_pb2.ProduceRequest(timeout_ms=600_001))
        (result,) = (await call.read()).results
        assert result.verdict == log_pb2.VERDICT_APPENDED
        error = await refused(call.read())
    assert (error.field, error.limit) == ("timeout_ms", "0..600000")


# -- an answer of many batches ----------------------------------------------------------------


def batches_of(answer: bytes) -> list[list[int]]:
    """The offsets in each section."""
    response = log_pb2.FetchResponse.FromString(answer)
    return [[one.base_offset for one in part.batches] for part in response.partitions]


async def test_an_answer_has_a_limit_of_batches_and_is_read_in_slices(node):
    """Before, a fetch of one-byte batches held the loop for a second, and a leader lost its term.

    It does not wait for `min_bytes` that the limit would never let come.
    """
    await fill(node, 1500)
    request = fetch(max_wait_ms=60_000, min_bytes=1 << 30)
    answer, turns = await turns_of_others(Reader(node).fetch(request))
    assert batches_of(answer) == [list(range(1000))]
    assert turns >= 1000 // SLICE_BATCHES - 1


async def test_partitions_share_the_limit_and_what_others_leave(node):
    await fill(node, 1500)
    request = fetch()
    for offset in (1500, 700):
        request.partitions.add(topic=TOPIC, offset=offset)
    first, idle, second = batches_of(await Reader(node).fetch(request))
    assert idle == []
    assert len(first) + len(second) == 1000
    assert min(len(first), len(second)) >= 333
    assert second[0] == 700


async def test_a_subscription_goes_on_behind_the_limit(node):
    await fill(node, 1500)
    request = log_pb2.SubscribeRequest(partitions=fetch().partitions)
    async with serving(node) as (stub, _):
        call = stub.Subscribe(request)
        seen: list[int] = []
        while len(seen) < 1500:
            message = await call.read()
            seen += [one.base_offset for part in message.partitions for one in part.batches]
        call.cancel()
    assert seen == list(range(1500))


@pytest.mark.parametrize("budget", [1, 500, 1000, 5000, 100_000])
async def test_slices_do_not_change_what_is_read(node, monkeypatch, budget):
    for size in (100, 900, 100, 2000, 50, 50, 50):
        await fill(node, 1, encode_payload([b"x" * size], [1]))
    request = fetch(max_bytes=budget)
    whole = await Reader(node).fetch(request)
    monkeypatch.setattr(reading, "SLICE_BYTES", 1)
    assert await Reader(node).fetch(request) == whole
    assert batches_of(whole)[0], "the first batch comes whatever its size"


async def test_what_is_appended_between_slices_is_below_the_high_watermark_of_the_answer(node):
    """A chaos run found records at and above the high watermark that the first slice announced."""
    await fill(node, 300)
    task = asyncio.create_task(Reader(node).fetch(fetch()))
    await asyncio.sleep(0)
    await fill(node, 300)
    (part,) = log_pb2.FetchResponse.FromString(await task).partitions
    assert part.batches[-1].base_offset > 300, "the read went on into what came meanwhile"
    assert part.high_watermark > part.batches[-1].base_offset


async def test_a_replica_that_stops_between_slices_gives_what_was_read(node, monkeypatch):
    await fill(node, 1000)
    monkeypatch.setattr(reading, "MAX_BATCHES", 900)
    reader = Reader(node)
    task = asyncio.create_task(reader.fetch(fetch()))
    await asyncio.sleep(0)
    node.log.is_leader = False
    node.leaders.clear()
    (read,) = batches_of(await task)
    assert 0 < len(read) < 900
    response = log_pb2.FetchResponse.FromString(await reader.fetch(fetch()))
    assert response.partitions[0].error == log_pb2.PARTITION_ERROR_NOT_LEADER


# -- records that are not in memory -------------------------------------------------------------


async def test_a_disk_that_takes_its_time_holds_up_only_who_reads_from_it(node):
    await fill(node, 20)
    node.log.memory_from = 11  # the batch at offset 10
    go_on = threading.Event()

    def slow(index):
        assert go_on.wait(10), "the event loop waits for the disk"
        return node.log.entries[index - 1]

    node.log.from_disk = slow
    reader = Reader(node)
    old = asyncio.create_task(reader.fetch(fetch()))
    recent = log_pb2.FetchRequest(partitions=[log_pb2.PartitionFetch(topic=TOPIC, offset=10)])
    assert batches_of(await reader.fetch(recent)) == [list(range(10, 20))]
    assert not old.done()
    go_on.set()
    assert batches_of(await old) == [list(range(20))]


async def test_retention_that_is_faster_than_a_read_is_no_damage(node):
    await fill(node, 20)
    node.log.memory_from = 100

    def gone(index):
        node.log.base_index = 15
        node.log.partition.machine.stored.log_start = 15
        raise CorruptionError("entry is missing", group=1, index=index)

    node.log.from_disk = gone
    (part,) = log_pb2.FetchResponse.FromString(await Reader(node).fetch(fetch())).partitions
    assert part.error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
    assert part.log_start_offset == 15
    assert node.log.failed is None


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("max_wait_ms", [-1, 60_001])
async def test_max_wait_ms_beyond_its_limit(node, max_wait_ms):
    """Before, it was cut to the limit without a word."""
    async with serving(node) as (stub, _):
        error = await refused(stub.Fetch(fetch(max_wait_ms=max_wait_ms)))
    assert (error.reason, error.field, error.limit) == (
        "INVALID_REQUEST",
        "max_wait_ms",
        "0..60000",
    )


@pytest.mark.parametrize("timeout_ms", [-1, 600_001])
async def test_timeout_ms_beyond_its_limit(node, timeout_ms):
    async with serving(node) as (stub, _):
        request = log_pb2.ProduceRequest(batches=[SMALL], timeout_ms=timeout_ms)
        error = await refused(stub.Produce(request))
    assert (error.field, error.limit) == ("timeout_ms", "0..600000")


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_fetch_of_no_or_too_many_partitions(node, count):
    request = log_pb2.FetchRequest(partitions=list(fetch().partitions) * count)
    async with serving(node) as (stub, _):
        error = await refused(stub.Fetch(request))
    assert (error.field, error.limit) == ("partitions", "1..1000")


async def test_a_message_that_cannot_be_decoded(node, caplog):
    """Before, it was UNKNOWN, with a traceback in the node's log."""
    garbage = b"\xff\xff\xff"
    path = "/oncelog.v1.LogService/"
    with caplog.at_level(logging.WARNING):
        async with serving(node) as (_, channel):
            raw: Any = channel
            calls = [
                raw.unary_unary(path + "Fetch")(garbage),
                raw.unary_unary(path + "Produce")(garbage),
                raw.unary_stream(path + "Subscribe")(garbage).read(),
                raw.stream_stream(path + "ProduceStream")(iter([garbage])).read(),
            ]
            for call in calls:
                error = await refused(call)
                assert isinstance(error, errors.InvalidRequestError)
                assert error.field == "message"
    assert not caplog.records


async def test_a_client_that_has_gone_ends_its_stream_like_a_cancelled_one():
    """Before, gRPC logged the failed write of each cancelled stream as a fault of the node."""

    class Gone:
        async def write(self, message: bytes) -> None:
            raise grpc.aio.InternalError("Failed execute_batch")

    node = LogNode()
    with pytest.raises(asyncio.CancelledError):
        await writer(Gone(), node)(b"message")
