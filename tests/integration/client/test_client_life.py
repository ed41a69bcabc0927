"""A producer's life: threads, back-pressure, callbacks, rejected calls, and deleted topics."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import grpc
import numpy as np
import pytest

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    BatchTooLargeError,
    BufferFullError,
    ClientClosedError,
    Consumer,
    DeliveryTimeoutError,
    InvalidRequestError,
    OffsetMismatchError,
    OncelogError,
    Producer,
    RecordMetadata,
    TopicConfig,
    TopicPartition,
    UndeliveredRecordsError,
    UnknownTopicOrPartitionError,
)
from oncelog._engine.net import runtime
from tests.integration.records import TIMEOUT, by_partition, read_all
from tests.integration.waiting import eventually


def test_twenty_threads_through_one_producer(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 4, 3)
    threads, each = 20, 500
    with Producer(bootstrap_servers=cluster.bootstrap, batch_size=8192) as producer:

        def run(number: int) -> None:
            key = b"thread %d" % number
            for n in range(each):
                producer.send(topic, b"%d %d" % (number, n), key)

        workers = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.flush(timeout_ms=1000 * TIMEOUT)
        assert producer.metrics()["records_acked"] == threads * each
    records = read_all(cluster, topic)
    counts = Counter(r.value for r in records)
    assert len(counts) == threads * each
    assert set(counts.values()) == {1}
    for part in by_partition(records).values():
        last: dict[bytes | None, int] = {}
        for record in part:
            assert record.value is not None
            n = int(record.value.split()[1])
            assert n == last.get(record.key, -1) + 1, "a thread's records are in its order"
            last[record.key] = n


def test_a_full_buffer_holds_senders_back(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=cluster.bootstrap, buffer_memory=64 * 1024, batch_size=16 * 1024
    ) as producer:
        most = 0
        futures = []
        for n in range(400):
            futures.append(producer.send(topic, n.to_bytes(4, "big") * 1024))
            most = max(most, int(producer.metrics()["buffer_used_bytes"]))
        assert not wait(futures, TIMEOUT).not_done
        assert most <= 64 * 1024
        with pytest.raises(BatchTooLargeError, match="buffer_memory"):
            producer.send(topic, bytes(65 * 1024))
    values = [r.value for r in read_all(cluster, topic)]
    assert values == [n.to_bytes(4, "big") * 1024 for n in range(400)]


def test_a_buffer_that_stays_full_is_an_error(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=cluster.bootstrap,
        buffer_memory=1000,
        batch_size=1000,
        max_block_ms=50,
        linger_ms=0,
        # Nothing can leave: the producer may have one request in flight, and that waits.
        max_in_flight=1,
    ) as producer:
        # Not by `partitions_for`, for which max_block_ms is the limit too.
        runtime.run(producer._cluster.require_topic(topic, TIMEOUT))
        accumulator = producer._accumulator
        with accumulator.lock:
            accumulator.used += 1000  # as if other records held the room
        with pytest.raises(BufferFullError, match="max_block_ms=50"):
            producer.send(topic, bytes(100))
        with accumulator.lock:
            accumulator.used -= 1000
        assert producer.send(topic, bytes(100)).result(TIMEOUT).offset == 0


def test_a_context_manager_raises_on_undelivered_records(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with pytest.raises(UndeliveredRecordsError) as caught:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send(topic, b"x", expected_offset=5)
    assert (caught.value.count, caught.value.outcome) == (1, "not_stored")
    assert isinstance(caught.value.__cause__, OffsetMismatchError)
    # A failure that the caller has read is the caller's to handle.
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        assert producer.send(topic, b"x", expected_offset=5).exception(TIMEOUT)
        seen: list[Any] = []
        producer.send(topic, b"x", expected_offset=5, on_delivery=lambda m, e: seen.append(e))
        producer.flush(timeout_ms=1000 * TIMEOUT)
        assert isinstance(seen[0], OffsetMismatchError)
        unseen = producer.send(topic, b"x", expected_offset=5)
        with pytest.raises(UndeliveredRecordsError, match="1 records"):
            producer.flush(timeout_ms=1000 * TIMEOUT)
        assert unseen.done()

    # The body's own error wins, and notes the other failure.
    def fails() -> None:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send(topic, b"x", expected_offset=5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as other:
        fails()
    assert "1 records were not delivered" in other.value.__notes__[0]


def test_callbacks_flush_and_use_after_close(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    offsets: list[int] = []

    def stored(metadata: RecordMetadata | None, error: OncelogError | None) -> None:
        assert metadata is not None, error
        offsets.append(metadata.offset)

    producer = Producer(
        bootstrap_servers=cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=200_000
    )
    for n in range(50):
        producer.send(topic, b"%d" % n, on_delivery=stored)
    assert offsets == []
    producer.flush(timeout_ms=1000 * TIMEOUT)
    assert offsets == list(range(50))
    assert producer.send(topic, b"x").cancel() is False, "what was taken cannot be recalled"
    producer.close(timeout_ms=1000 * TIMEOUT)
    producer.close()
    assert [r.value for r in read_all(cluster, topic)][-1] == b"x"
    with pytest.raises(ClientClosedError):
        producer.send(topic, b"late")
    with pytest.raises(ClientClosedError):
        producer.flush()


def test_refused_before_anything_is_queued(admin: Admin, producer: Producer, topic: str) -> None:
    admin.create_topic(topic, 2, 3, TopicConfig(max_batch_bytes=2000))
    with pytest.raises(BatchTooLargeError, match="max_batch_bytes is 2000"):
        producer.send(topic, bytes(2000))
    with pytest.raises(UnknownTopicOrPartitionError, match="does not exist"):
        producer.send("no-such-topic", b"x")
    with pytest.raises(UnknownTopicOrPartitionError, match="0 to 1"):
        producer.send(topic, b"x", partition=2)
    with pytest.raises(InvalidRequestError, match="expected_offset"):
        producer.send(topic, b"x", partition=0, expected_offset=-1)
    with pytest.raises(TypeError, match="value must be bytes"):
        producer.send(topic, 5)  # type: ignore[arg-type]
    assert producer.metrics()["records_sent"] == 0


def test_integers_of_numpy(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 2, 1)
    one: Any = np.int64(1)
    stamp: Any = np.int64(1_700_000_000_000)
    producer.send(topic, b"v", partition=one, sequence=one, timestamp_ms=stamp).result(TIMEOUT)
    producer.send_batch(topic, one, [b"w"], sequences=np.array([7])).result(TIMEOUT)
    with pytest.raises(InvalidRequestError, match="partition must be an integer, got True"):
        producer.send(topic, b"v", partition=True)
    with pytest.raises(InvalidRequestError, match="of type float"):
        producer.send(topic, b"v", timestamp_ms=1.7e12)  # type: ignore[arg-type]
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([(topic, one)])
        consumer.seek((topic, one), one - one)
        assert next(iter(consumer)).value == b"v"
        assert consumer.end_offsets([(topic, one)]) == {(topic, 1): 2}


def test_a_topic_that_is_deleted_while_a_producer_holds_it(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=cluster.bootstrap,
        linger_ms=0,
        request_timeout_ms=3000,
        delivery_timeout_ms=6000,
    ) as producer:
        assert producer.send(topic, b"x").result(TIMEOUT).offset == 0
        admin.delete_topic(topic)
        eventually(lambda: not any(knows(cluster, n, topic) for n in cluster.nodes), "it is gone")
        error = producer.send(topic, b"y").exception(TIMEOUT)
    assert isinstance(error, DeliveryTimeoutError), error
    assert error.outcome in ("unknown", "never_sent")


def test_a_topic_that_is_deleted_while_a_consumer_reads_it(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with (
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
        Consumer(
            topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.send(topic, b"x").result(TIMEOUT)
        assert next(iter(consumer)).value == b"x"
        admin.delete_topic(topic)
        with pytest.raises(UnknownTopicOrPartitionError, match="does not exist"):
            consumer.getmany(timeout_ms=int(TIMEOUT * 1000))
        with pytest.raises(UnknownTopicOrPartitionError, match="does not exist"):
            consumer.end_offsets([(topic, 0)])


def knows(cluster: LocalCluster, node: int, topic: str) -> bool:
    try:
        cluster.api(node).topic(topic)
    except grpc.RpcError:
        return False
    return True


def test_sequences_and_offsets_of_a_long_run(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(bootstrap_servers=cluster.bootstrap, batch_size=2048, linger_ms=1) as producer:
        futures = [producer.send(topic, b"%d" % n) for n in range(5000)]
        stored = [future.result(TIMEOUT) for future in futures]
        assert {(m.producer_id, m.epoch) for m in stored} == {(producer.producer_id, 0)}
    assert [m.offset for m in stored] == list(range(5000))
    assert [m.sequence for m in stored] == list(range(5000))
    assert all(b.offset == a.offset + 1 for a, b in pairwise(read_all(cluster, topic)))


# --- one reader at a time ------------------------------------------------------------------


def test_a_second_thread_is_refused_while_one_waits_for_records(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with (
        Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        assert consumer.position((topic, 0)) == 0
        waiting = pool.submit(consumer.getmany, timeout_ms=int(TIMEOUT * 1000))
        eventually(lambda: consumer._buffer.is_waited_for, "the thread waits")
        for read in (
            consumer.getmany,
            consumer.stored_batch,
            lambda: next(iter(consumer)),
            lambda: next(consumer.batches(timeout_ms=0)),
        ):
            with pytest.raises(InvalidRequestError, match="in use by another thread or task"):
                read()
        assert consumer.metrics()["partitions"] == 1, "who only looks may do so"
        producer.send(topic, b"one").result(TIMEOUT)
        assert [r.value for r in waiting.result(TIMEOUT)[TopicPartition(topic, 0)]] == [b"one"]
        producer.send(topic, b"two").result(TIMEOUT)
        assert next(iter(consumer)).value == b"two", "one after the other may read"


def test_a_second_thread_is_refused_while_one_is_within_a_loop(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send_batch(topic, 0, [b"%d" % n for n in range(5)]).result(TIMEOUT)
    within, go_on = threading.Event(), threading.Event()
    with (
        Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as one,
        ThreadPoolExecutor(1) as pool,
    ):

        def loop() -> list[bytes | None]:
            values = []
            for record in one:
                values.append(record.value)
                within.set()
                go_on.wait(TIMEOUT)
                if len(values) == 3:
                    break
            return values

        looping = pool.submit(loop)
        assert within.wait(TIMEOUT)
        with pytest.raises(InvalidRequestError, match="in use by another thread or task"):
            one.getmany(timeout_ms=1000)
        go_on.set()
        assert looping.result(TIMEOUT) == [b"0", b"1", b"2"]
        assert [r.value for some in one.getmany(timeout_ms=1000).values() for r in some] == [
            b"3",
            b"4",
        ]


def test_threads_that_get_in_each_others_way_lose_nothing(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    count, partitions = 3000, 3
    admin.create_topic(topic, partitions, 3)
    for number in range(0, count, 10):
        values = [b"%d" % one for one in range(number, number + 10)]
        producer.send_batch(topic, number // 10 % partitions, values)
    producer.flush(timeout_ms=1000 * TIMEOUT)
    found: list[int] = []
    with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as one:

        def read() -> None:
            while len(found) < count:
                try:
                    some = one.getmany(timeout_ms=100, max_records=7)
                except InvalidRequestError:
                    continue
                found.extend(int(r.value or b"") for part in some.values() for r in part)

        with ThreadPoolExecutor(4) as pool:
            for reading in [pool.submit(read) for _ in range(4)]:
                reading.result(TIMEOUT)
    assert sorted(found) == list(range(count))
