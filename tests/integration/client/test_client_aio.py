"""The asyncio clients against real nodes: the same contract, and a loop that never blocks."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from typing import Any

import pytest

import oncelog
import oncelog.aio
from harness.local_cluster import LocalCluster
from oncelog import (
    BufferFullError,
    ClientClosedError,
    InvalidRequestError,
    OffsetMismatchError,
    RequestTimeoutError,
    Resolution,
    TopicPartition,
    UndeliveredRecordsError,
    UnknownTopicOrPartitionError,
)
from oncelog.aio import Admin, Consumer, Producer
from oncelog.aio.bridge import on_engine

TIMEOUT = 30.0


async def create(cluster: LocalCluster, topic: str, partitions: int = 1) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topic(topic, partitions, 3)


async def read_all(cluster: LocalCluster, topic: str) -> list[oncelog.Record]:
    async with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        found: list[oncelog.Record] = []
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += records
        return found


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_the_twins_have_the_same_names_and_arguments(name: str) -> None:
    sync, aio = getattr(oncelog, name), getattr(oncelog.aio, name)
    public = {n for n in dir(sync) if not n.startswith("_")}
    assert public <= {n for n in dir(aio) if not n.startswith("_")}
    for method in public:
        if inspect.isfunction(getattr(sync, method)):
            expected = inspect.signature(getattr(sync, method)).parameters
            found = inspect.signature(getattr(aio, method)).parameters
            assert list(expected) == list(found), method
            assert [p.default for p in expected.values()] == [p.default for p in found.values()]


async def test_send_and_read(cluster: LocalCluster, topic: str) -> None:
    await create(cluster, topic, 2)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        pending = [await producer.send(topic, b"%d" % n, b"k%d" % (n % 9)) for n in range(500)]
        stored = await asyncio.gather(*pending)
        assert pending[0].done()
        assert await pending[0] == stored[0], "it can be awaited again"
        batch = await (await producer.send_batch(topic, 1, [b"x", b"y"]))
        assert batch.record_count == 2
        assert await producer.position(topic, 1) == batch.last_sequence
        assert await producer.partitions_for(topic) == 2
        found = await producer.resolve(pending[7])
        assert (found.resolution, found.offset) == (Resolution.COMMITTED, stored[7].offset)
    counts = Counter(r.value for r in await read_all(cluster, topic))
    assert counts == Counter([b"%d" % n for n in range(500)] + [b"x", b"y"])


async def test_iteration_seek_lag_and_arrow(cluster: LocalCluster, topic: str) -> None:
    await create(cluster, topic)
    tp = TopicPartition(topic, 0)
    async with (
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
        Consumer(
            topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer,
        Consumer(topic, bootstrap_servers=cluster.bootstrap, consumer_timeout_ms=100) as brief,
    ):
        assert [record async for record in brief] == [], "it ends without records"
        reading = aiter(consumer)
        waiting = asyncio.create_task(anext(reading))
        await (await producer.send(topic, b"0"))
        assert (await waiting).value == b"0"
        for n in range(1, 4):
            await (await producer.send(topic, b"%d" % n))
        assert [(await anext(reading)).offset for _ in range(3)] == [1, 2, 3]
        consumer.seek(tp, 2)
        assert (await consumer.position(tp), await consumer.lag(tp)) == (2, 2)
        assert [r.offset for r in (await consumer.getmany(timeout_ms=5000, max_records=1))[tp]] == [
            2
        ]
        await consumer.seek_to_beginning()
        rows, batches = list[bytes](), aiter(consumer.batches())
        while len(rows) < 4:
            rows += (await anext(batches)).column("value").to_pylist()
        assert rows == [b"0", b"1", b"2", b"3"]
        assert await consumer.getmany(timeout_ms=10) == {}


async def test_a_full_buffer_does_not_block_the_loop(cluster: LocalCluster, topic: str) -> None:
    await create(cluster, topic)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with Producer(
        bootstrap_servers=cluster.bootstrap, buffer_memory=16 * 1024, batch_size=8 * 1024
    ) as producer:
        ticking = asyncio.create_task(tick())
        pending = [await producer.send(topic, bytes(2000)) for _ in range(200)]
        ticking.cancel()
        offsets = [(await one).offset for one in pending]
    assert offsets == list(range(200))
    assert ticks > 200, "others ran while senders waited for room"


async def test_a_buffer_that_stays_full(cluster: LocalCluster, topic: str) -> None:
    await create(cluster, topic)
    async with Producer(
        bootstrap_servers=cluster.bootstrap, buffer_memory=1000, batch_size=1000, max_block_ms=50
    ) as producer:
        # Not by `partitions_for`, for which max_block_ms is the limit too.
        await on_engine(producer._sync._cluster.require_topic(topic, TIMEOUT))
        accumulator = producer._sync._accumulator
        with accumulator.lock:
            accumulator.used += 1000  # as if other records held the room
        with pytest.raises(BufferFullError, match="max_block_ms=50"):
            await producer.send(topic, bytes(100), sequence=4)
        with accumulator.lock:
            accumulator.used -= 1000
        again = await (await producer.send(topic, bytes(100), sequence=4))
        assert again.sequence == 4, "nothing was queued, so the sequence is still free"


async def test_errors_and_cancelling(cluster: LocalCluster, topic: str) -> None:
    await create(cluster, topic)
    with pytest.raises(UnknownTopicOrPartitionError):
        async with Consumer("no-such-topic", bootstrap_servers=cluster.bootstrap):
            pass
    producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=200)
    refused = await producer.send(topic, b"x", expected_offset=9)
    with pytest.raises(OffsetMismatchError):
        await refused
    sent = await producer.send(topic, b"kept")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await sent
    assert (await sent).offset == 0, "to stop waiting does not recall the record"
    await producer.send(topic, b"x", expected_offset=9)
    with pytest.raises(UndeliveredRecordsError, match="1 records"):
        await producer.close()
    with pytest.raises(ClientClosedError):
        await producer.send(topic, b"late")
    assert [r.value for r in await read_all(cluster, topic)] == [b"kept"]


async def test_admin(cluster: LocalCluster, topic: str) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        info = await admin.create_topic(topic, 2, 3)
        assert info.partition_count == 2
        assert topic in await admin.list_topics()
        assert (await admin.describe_cluster()).healthy
        lease = await admin.lease_producer()
        with pytest.raises(oncelog.OncelogError):
            await admin.create_topic(topic)
        found = await admin.resolve_sequence(topic, 0, lease.producer_id, lease.epoch, 0)
        assert found.resolution is Resolution.NOT_YET
        await admin.delete_topic(topic)
    with pytest.raises(ClientClosedError):
        await admin.list_topics()


def test_several_loops_one_after_the_other(cluster: LocalCluster, topic: str) -> None:
    async def once(value: bytes) -> Any:
        async with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
            return await (await producer.send(topic, value))

    asyncio.run(create(cluster, topic))
    assert [asyncio.run(once(value)).offset for value in (b"a", b"b")] == [0, 1]


async def test_stored_batches_are_sent_on(cluster: LocalCluster, topic: str) -> None:
    copy = f"{topic}-copy"
    await create(cluster, topic)
    await create(cluster, copy)
    async with Producer(bootstrap_servers=cluster.bootstrap, compression_type="lz4") as producer:
        values = [b"%d" % n for n in range(100)]
        await (await producer.send_batch(topic, 0, values))
        async with Consumer(
            topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            batch = await consumer.stored_batch(timeout_ms=30_000)
            assert batch is not None
            assert (batch.record_count, batch.codec) == (100, 2)
            assert await consumer.stored_batch() is None
        sent = await (await producer.send_stored_batch(copy, 0, batch, base_sequence=7))
        assert (sent.base_sequence, sent.last_sequence) == (7, 106)
    assert [record.value for record in await read_all(cluster, copy)] == values


async def test_a_second_task_is_refused_while_one_waits_for_records(
    cluster: LocalCluster, topic: str
) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topic(topic, 1, 3)
    async with (
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
        Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as one,
    ):
        waiting = asyncio.create_task(one.getmany(timeout_ms=60_000))
        await asyncio.sleep(0)
        for second in (one.getmany(timeout_ms=0), anext(aiter(one)), one.stored_batch()):
            with pytest.raises(InvalidRequestError, match="in use by another thread or task"):
                await second
        await (await producer.send(topic, b"one"))
        assert [r.value for some in (await waiting).values() for r in some] == [b"one"]
        assert await one.getmany(timeout_ms=0) == {}


async def test_flush_waits_for_callbacks(cluster: LocalCluster, topic: str) -> None:
    await create(cluster, topic)
    begun, may_end = threading.Event(), threading.Event()
    told: list[oncelog.RecordMetadata | None] = []

    def slow(metadata: oncelog.RecordMetadata | None, error: object) -> None:
        begun.set()
        may_end.wait(TIMEOUT)
        told.append(metadata)

    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        sent = await producer.send(topic, b"v", on_delivery=slow)
        assert await asyncio.to_thread(begun.wait, TIMEOUT)
        try:
            assert sent.done(), "it is settled; its callback runs"
            with pytest.raises(RequestTimeoutError, match="1 batches are not settled"):
                await producer.flush(timeout_ms=100)
        finally:
            may_end.set()
        await producer.flush(timeout_ms=TIMEOUT * 1000)
        assert told == [await sent]
