"""Producer and Consumer against three real nodes, no faults: what goes in comes out, once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import wait
from itertools import pairwise
from typing import Any

import grpc
import pytest

from oncelog import (
    Admin,
    BatchTooLargeError,
    BufferFullError,
    ClientClosedError,
    Consumer,
    DeliveryTimeoutError,
    ExpectedOffsets,
    FencedError,
    InvalidBatchError,
    InvalidRequestError,
    OffsetMismatchError,
    OffsetOutOfRangeError,
    OncelogError,
    Producer,
    ProducerIdentity,
    Record,
    RecordMetadata,
    SequenceConflictError,
    TopicConfig,
    TopicPartition,
    UndeliveredRecordsError,
    UnknownTopicOrPartitionError,
)
from tests.harness.local_cluster import LocalCluster
from tests.integration.waiting import eventually

PATIENCE = 30.0


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as one:
        yield one


@pytest.fixture
def producer(cluster: LocalCluster) -> Iterator[Producer]:
    with Producer(cluster.bootstrap, linger_ms=0) as one:
        yield one


def read_all(cluster: LocalCluster, topic: str, **settings: Any) -> list[Record]:
    """All records of a topic, from its start to its end now."""
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **settings
    ) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        found: list[Record] = []
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for records in consumer.getmany(1000).values():
                found += records
        return found


def by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    result: dict[int, list[Record]] = {}
    for record in records:
        result.setdefault(record.partition, []).append(record)
    return result


# --- round trips -------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_round_trip(cluster: LocalCluster, admin: Admin, topic: str, codec: Any) -> None:
    admin.create_topic(topic, 3, 3)
    sent: dict[tuple[int, int], tuple[Any, ...]] = {}
    with Producer(cluster.bootstrap, compression_type=codec) as producer:
        futures = []
        for n in range(600):
            value = None if n % 7 == 0 else b"value %d " % n * (n % 5)
            key = None if n % 3 == 0 else b"key %d" % (n % 40)
            headers = [("n", b"%d" % n), ("n", None)] if n % 4 == 0 else []
            future = producer.send(
                topic, value, key, headers=headers, timestamp_ms=1_700_000_000_000 + n
            )
            futures.append((future, (value, key, tuple(headers), 1_700_000_000_000 + n)))
        for future, content in futures:
            stored = future.result(PATIENCE)
            assert not stored.duplicate
            sent[stored.partition, stored.offset] = content
    found = {
        (r.partition, r.offset): (r.value, r.key, tuple(r.headers), r.timestamp)
        for r in read_all(cluster, topic)
    }
    assert found == sent
    assert len(found) == 600
    # A key stays in one partition.
    places = {(key, partition) for (partition, _), (_, key, _, _) in found.items() if key}
    assert len(places) == len({key for key, _ in places})


def test_strings_headers_as_mapping_and_batches(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send(topic, "grüße", "schlüssel", headers={"a": "b", "c": None}).result(PATIENCE)
    batch = producer.send_batch(
        topic, 0, [b"plain", (b"k", b"pair"), Record(None, b"r", [("h", b"1")], 5_000)]
    ).result(PATIENCE)
    assert (batch.base_offset, batch.record_count, batch.base_sequence) == (1, 3, 1)
    assert [(r.value, r.key, list(r.headers)) for r in read_all(cluster, topic)] == [
        ("grüße".encode(), "schlüssel".encode(), [("a", b"b"), ("c", None)]),
        (b"plain", None, []),
        (b"pair", b"k", []),
        (None, b"r", [("h", b"1")]),
    ]


def test_arrow_in_and_out(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    admin.create_topic(topic, 1, 3)
    rows = pyarrow.record_batch({"value": [b"a", None, b"c"], "key": [b"1", b"2", None]})
    producer.send_batch(topic, 0, rows).result(PATIENCE)
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        (read,) = list(consumer.batches(500))
    assert read.column("value").to_pylist() == [b"a", None, b"c"]
    assert read.column("key").to_pylist() == [b"1", b"2", None]
    assert read.column("offset").to_pylist() == [0, 1, 2]


def test_a_producer_that_is_not_idempotent(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(cluster.bootstrap, enable_idempotence=False) as producer:
        stored = [producer.send(topic, b"%d" % n) for n in range(100)]
        first = stored[0].result(PATIENCE)
        assert (first.producer_id, first.sequence) == (0, -1)
        assert producer.producer_id is None
    assert [r.value for r in read_all(cluster, topic)] == [b"%d" % n for n in range(100)]


# --- reading -----------------------------------------------------------------------------


def test_seek_position_lag_and_times(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 2, 3)
    for n in range(10):
        producer.send(topic, b"%d" % n, partition=0, timestamp_ms=1000 + n).result(PATIENCE)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap_servers=cluster.bootstrap, consumer_timeout_ms=300) as consumer:
        consumer.assign([tp, empty])
        assert consumer.beginning_offsets([tp, empty]) == {tp: 0, empty: 0}
        assert consumer.end_offsets([tp, empty]) == {tp: 10, empty: 0}
        assert consumer.offsets_for_times({tp: 1004, empty: 0}) == {tp: 4, empty: -1}
        consumer.seek(tp, 7)
        assert (consumer.position(tp), consumer.lag(tp)) == (7, 3)
        assert [r.offset for r in consumer] == [7, 8, 9]
        assert (consumer.position(tp), consumer.lag(tp)) == (10, 0)
        consumer.seek_to_beginning(tp)
        assert next(iter(consumer)).offset == 0
        assert consumer.position(tp) == 1
        consumer.pause(tp)
        assert consumer.getmany(50) == {}
        consumer.resume(tp)
        assert [r.offset for r in consumer.getmany(5000, 2)[tp]] == [1, 2]
        consumer.seek_to_end(tp)
        assert consumer.getmany(50) == {}


def test_a_consumer_follows_what_comes(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send(topic, b"before").result(PATIENCE)
    with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        assert consumer.position((topic, 0)) == 1  # the default is "latest"
        for n in range(5):
            producer.send(topic, b"%d" % n).result(PATIENCE)
            assert next(iter(consumer)).value == b"%d" % n


def test_out_of_range_with_and_without_a_reset(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send(topic, b"only").result(PATIENCE)
    with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="none") as consumer:
        with pytest.raises(OffsetOutOfRangeError, match="seek first"):
            consumer.getmany(5000)
        consumer.seek((topic, 0), 99)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            consumer.getmany(5000)
        assert (caught.value.offset, caught.value.high_watermark) == (99, 1)
        consumer.seek((topic, 0), 0)
        assert [r.value for r in consumer.getmany(5000)[TopicPartition(topic, 0)]] == [b"only"]
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.seek((topic, 0), 99)
        assert next(iter(consumer)).offset == 0


def test_any_replica_can_be_read(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    for n in range(20):
        producer.send(topic, b"%d" % n)
    producer.flush(PATIENCE)
    cluster.wait_level(topic)
    for node in cluster.nodes:
        read = read_all(cluster, topic, any_replica=True, replica_node_id=node)
        assert [r.value for r in read] == [b"%d" % n for n in range(20)]


# --- conditional publish, application-controlled sequences -----------------------------------


def test_conditional_publish(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    first = producer.send(topic, b"0", partition=0, expected_offset=0)
    # In flight before the first is acknowledged: the log's end counts what is under way.
    second = producer.send(topic, b"1", partition=0, expected_offset=1)
    assert (first.result(PATIENCE).offset, second.result(PATIENCE).offset) == (0, 1)
    with pytest.raises(OffsetMismatchError) as caught:
        producer.send(topic, b"stale", partition=0, expected_offset=1).result(PATIENCE)
    assert (caught.value.next_offset, caught.value.outcome) == (2, "not_stored")
    late = producer.send_batch(topic, 0, [b"2", b"3"], expected_offset=2).result(PATIENCE)
    assert late.base_offset == 2
    refused = producer.send_batch(topic, 0, [b"x", b"y"], expected_offset=3)
    assert isinstance(refused.exception(PATIENCE), OffsetMismatchError)
    # The refused ones consumed no sequence.
    assert producer.send(topic, b"4", partition=0).result(PATIENCE).sequence == 4
    assert [r.value for r in read_all(cluster, topic)] == [b"%d" % n for n in range(5)]


def test_a_refused_batch_in_the_middle_of_five_in_flight(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    futures = [
        producer.send_batch(topic, 0, [b"%d" % n], expected_offset=99 if n == 2 else None)
        for n in range(5)
    ]
    assert isinstance(futures[2].exception(PATIENCE), OffsetMismatchError)
    good = [futures[n].result(PATIENCE) for n in (0, 1, 3, 4)]
    assert [m.base_offset for m in good] == [0, 1, 2, 3]
    assert [r.value for r in read_all(cluster, topic)] == [b"0", b"1", b"3", b"4"]


def test_expected_offsets_required_and_ignored(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    required = TopicConfig(expected_offsets=ExpectedOffsets.REQUIRED)
    admin.create_topic(topic, 1, 3, required)
    error = producer.send(topic, b"without").exception(PATIENCE)
    assert isinstance(error, InvalidBatchError), error
    assert "expected_offset" in str(error)
    assert producer.send(topic, b"with", expected_offset=0).result(PATIENCE).offset == 0
    admin.alter_topic(topic, TopicConfig(expected_offsets=ExpectedOffsets.IGNORED))
    # The leader hears of it a moment later than the node that was asked.
    eventually(
        lambda: producer.send(topic, b"any", expected_offset=77).exception(PATIENCE) is None,
        "expected offsets are ignored",
    )
    assert [r.value for r in read_all(cluster, topic)] == [b"with", b"any"]


def test_conditional_publish_without_idempotence(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(cluster.bootstrap, enable_idempotence=False, linger_ms=0) as producer:
        assert producer.send(topic, b"0", expected_offset=0).result(PATIENCE).offset == 0
        error = producer.send(topic, b"0", expected_offset=0).exception(PATIENCE)
        assert isinstance(error, OffsetMismatchError)
        assert error.next_offset == 1


def test_application_controlled_sequences(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2, 3)
    lease = admin.lease_producer()
    tp = TopicPartition(topic, 0)

    def identity(start: int) -> ProducerIdentity:
        return ProducerIdentity(lease.producer_id, lease.epoch, {tp: start})

    numbers = [10, 20, 21, 40]
    with Producer(cluster.bootstrap, initial=identity(0), linger_ms=0) as producer:
        assert producer.position(topic, 0) == -1
        for number in numbers:
            stored = producer.send(
                topic, b"%d" % number, partition=0, sequence=number, timestamp_ms=number
            )
            assert stored.result(PATIENCE).sequence == number
        assert producer.position(topic, 0) == 40
        with pytest.raises(InvalidRequestError, match="not above the last one"):
            producer.send(topic, b"back", partition=0, sequence=40)
        with pytest.raises(InvalidRequestError, match="sequence is missing"):
            producer.send(topic, b"none", partition=0)
        assert producer.send(topic, b"own", partition=1).result(PATIENCE).sequence == 0
    # A second run sends the last one again, the same to the byte, so with its timestamp:
    # recognised, the original's offset told.
    with Producer(cluster.bootstrap, initial=identity(22)) as producer:
        again = producer.send(topic, b"40", partition=0, sequence=40, timestamp_ms=40).result(
            PATIENCE
        )
        assert (again.duplicate, again.offset) == (True, 3)
        ahead = producer.send_batch(topic, 0, [b"41", b"60"], sequences=[41, 60]).result(PATIENCE)
        assert (ahead.base_sequence, ahead.last_sequence, ahead.base_offset) == (41, 60, 4)
    with Producer(cluster.bootstrap, initial=identity(41), linger_ms=0) as producer:
        error = producer.send_batch(topic, 0, [b"4!", b"60"], sequences=[41, 60])
        assert isinstance(error.exception(PATIENCE), SequenceConflictError)
        with pytest.raises(SequenceConflictError):  # it says so again: the producer is done
            producer.send(topic, b"after", partition=0, sequence=61)
    values = [r.value for r in read_all(cluster, topic) if r.partition == 0]
    assert values == [b"10", b"20", b"21", b"40", b"41", b"60"]


# --- names -------------------------------------------------------------------------------


def test_a_name_goes_on_where_it_stopped(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2, 3)
    identities = []
    for run in range(3):
        with Producer(cluster.bootstrap, producer_name=topic, linger_ms=0) as producer:
            assert producer.position(topic, 0) == run * 10 - 1
            assert producer.position(topic, 1) == -1
            stored = [producer.send(topic, b"%d" % n, partition=0) for n in range(10)]
            assert [f.result(PATIENCE).sequence for f in stored] == list(
                range(run * 10, run * 10 + 10)
            )
            identities.append((producer.producer_id, producer.epoch))
    assert len({pid for pid, _ in identities}) == 1
    epochs = [epoch for _, epoch in identities]
    assert epochs == [epochs[0], (epochs[0] or 0) + 1, (epochs[0] or 0) + 2]
    assert len(read_all(cluster, topic)) == 30


def test_of_two_instances_with_one_name_the_later_one_goes_on(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    earlier = Producer(cluster.bootstrap, producer_name=topic, linger_ms=0)
    first = earlier.send(topic, b"earlier").result(PATIENCE)
    with Producer(cluster.bootstrap, producer_name=topic, linger_ms=0) as later:
        # It has written nothing yet, and the other one is fenced all the same.
        assert later.position(topic, 0) == first.sequence
        error = earlier.send(topic, b"zombie").exception(PATIENCE)
        assert isinstance(error, FencedError), error
        assert error.current_epoch == later.epoch == first.epoch + 1
        assert "another producer has taken over" in str(error)
        with pytest.raises(FencedError):
            earlier.send(topic, b"zombie")
        assert later.send(topic, b"later").result(PATIENCE).sequence == first.sequence + 1
    earlier.close()
    assert [r.value for r in read_all(cluster, topic)] == [b"earlier", b"later"]


def test_a_name_that_is_fenced_by_hand(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1, 3)
    producer = Producer(cluster.bootstrap, producer_name=topic, linger_ms=0)
    stored = producer.send(topic, b"before").result(PATIENCE)
    assert admin.fence_producer(topic) == (stored.producer_id, stored.epoch + 1)

    def fenced() -> bool:
        try:
            return isinstance(producer.send(topic, b"x").exception(PATIENCE), FencedError)
        except FencedError:
            return True

    eventually(fenced, "the partition's leader has heard of it")
    producer.close()


# --- many threads, back-pressure, life ---------------------------------------------------


def test_twenty_threads_through_one_producer(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 4, 3)
    threads, each = 20, 500
    with Producer(cluster.bootstrap, batch_size=8192) as producer:

        def run(number: int) -> None:
            key = b"thread %d" % number
            for n in range(each):
                producer.send(topic, b"%d %d" % (number, n), key)

        workers = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.flush(PATIENCE)
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
    with Producer(cluster.bootstrap, buffer_memory=64 * 1024, batch_size=16 * 1024) as producer:
        most = 0
        futures = []
        for n in range(400):
            futures.append(producer.send(topic, n.to_bytes(4, "big") * 1024))
            most = max(most, int(producer.metrics()["buffer_used_bytes"]))
        assert not wait(futures, PATIENCE).not_done
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
        cluster.bootstrap,
        buffer_memory=1000,
        batch_size=1000,
        max_block_ms=50,
        linger_ms=0,
        # Nothing can leave: the producer may have one request only, and it waits.
        max_in_flight=1,
    ) as producer:
        producer.partitions_for(topic)
        accumulator = producer._accumulator
        with accumulator.lock:
            accumulator.used += 1000  # as if other records held the room
        with pytest.raises(BufferFullError, match="max_block_ms=50"):
            producer.send(topic, bytes(100))
        with accumulator.lock:
            accumulator.used -= 1000
        assert producer.send(topic, bytes(100)).result(PATIENCE).offset == 0


def test_a_context_manager_raises_on_undelivered_records(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with pytest.raises(UndeliveredRecordsError) as caught:
        with Producer(cluster.bootstrap) as producer:
            producer.send(topic, b"x", expected_offset=5)
    assert (caught.value.count, caught.value.outcome) == (1, "not_stored")
    assert isinstance(caught.value.__cause__, OffsetMismatchError)
    # A failure that somebody looked at is his to handle.
    with Producer(cluster.bootstrap) as producer:
        assert producer.send(topic, b"x", expected_offset=5).exception(PATIENCE)
        seen: list[Any] = []
        producer.send(topic, b"x", expected_offset=5, on_delivery=lambda m, e: seen.append(e))
        producer.flush(PATIENCE)
        assert isinstance(seen[0], OffsetMismatchError)
        unseen = producer.send(topic, b"x", expected_offset=5)
        with pytest.raises(UndeliveredRecordsError, match="1 records"):
            producer.flush(PATIENCE)
        assert unseen.done()

    # The body's own error wins, and says what else went wrong.
    def fails() -> None:
        with Producer(cluster.bootstrap) as producer:
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

    producer = Producer(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=200_000)
    for n in range(50):
        producer.send(topic, b"%d" % n, on_delivery=stored)
    assert offsets == []
    producer.flush(PATIENCE)
    assert offsets == list(range(50))
    assert producer.send(topic, b"x").cancel() is False, "what was taken cannot be recalled"
    producer.close(PATIENCE)
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


def test_a_topic_that_is_deleted_while_a_producer_holds_it(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(
        cluster.bootstrap, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=2000
    ) as producer:
        assert producer.send(topic, b"x").result(PATIENCE).offset == 0
        admin.delete_topic(topic)
        eventually(lambda: not any(knows(cluster, n, topic) for n in cluster.nodes), "it is gone")
        error = producer.send(topic, b"y").exception(PATIENCE)
    assert isinstance(error, DeliveryTimeoutError), error
    assert error.outcome in ("unknown", "never_sent")


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
    with Producer(cluster.bootstrap, batch_size=2048, linger_ms=1) as producer:
        futures = [producer.send(topic, b"%d" % n) for n in range(5000)]
        stored = [future.result(PATIENCE) for future in futures]
        assert {(m.producer_id, m.epoch) for m in stored} == {(producer.producer_id, 0)}
    assert [m.offset for m in stored] == list(range(5000))
    assert [m.sequence for m in stored] == list(range(5000))
    assert all(b.offset == a.offset + 1 for a, b in pairwise(read_all(cluster, topic)))
