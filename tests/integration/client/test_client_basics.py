"""Producer and Consumer against three real nodes, no faults: each record comes out once."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    Consumer,
    InternalError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    Producer,
    Record,
    TopicPartition,
)
from oncelog._engine.consume.fetch_buffer import Added, Wanted
from oncelog.wire.fetched import FetchedRecords
from tests.integration.records import TIMEOUT, read_all

# --- round trips -------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_round_trip(cluster: LocalCluster, admin: Admin, topic: str, codec: Any) -> None:
    admin.create_topic(topic, 3, 3)
    sent: dict[tuple[int, int], tuple[Any, ...]] = {}
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type=codec) as producer:
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
            stored = future.result(TIMEOUT)
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
    producer.send(topic, "grüße", "schlüssel", headers={"a": "b", "c": None}).result(TIMEOUT)
    batch = producer.send_batch(
        topic, 0, [b"plain", (b"k", b"pair"), Record(None, b"r", [("h", b"1")], 5_000)]
    ).result(TIMEOUT)
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
    producer.send_batch(topic, 0, rows).result(TIMEOUT)
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        read = next(consumer.batches(timeout_ms=60_000))
    assert read.column("value").to_pylist() == [b"a", None, b"c"]
    assert read.column("key").to_pylist() == [b"1", b"2", None]
    assert read.column("offset").to_pylist() == [0, 1, 2]


def test_a_producer_that_is_not_idempotent(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(bootstrap_servers=cluster.bootstrap, enable_idempotence=False) as producer:
        stored = [producer.send(topic, b"%d" % n) for n in range(100)]
        first = stored[0].result(TIMEOUT)
        assert (first.producer_id, first.sequence) == (0, -1)
        assert producer.producer_id is None
    # A batch that was sent again is there twice.
    assert {r.value for r in read_all(cluster, topic)} == {b"%d" % n for n in range(100)}


# --- reading -----------------------------------------------------------------------------


def test_seek_position_lag_and_times(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 2, 3)
    for n in range(10):
        producer.send(topic, b"%d" % n, partition=0, timestamp_ms=1000 + n).result(TIMEOUT)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap_servers=cluster.bootstrap, consumer_timeout_ms=60_000) as consumer:
        consumer.assign([tp, empty])
        assert consumer.beginning_offsets([tp, empty]) == {tp: 0, empty: 0}
        assert consumer.end_offsets([tp, empty]) == {tp: 10, empty: 0}
        assert consumer.offsets_for_times({tp: 1004, empty: 0}) == {tp: 4, empty: -1}
        consumer.seek(tp, 7)
        assert (consumer.position(tp), consumer.lag(tp)) == (7, 3)
        assert [r.offset for r in islice(consumer, 3)] == [7, 8, 9]
        assert (consumer.position(tp), consumer.lag(tp)) == (10, 0)
        consumer.seek_to_beginning(tp)
        assert next(iter(consumer)).offset == 0
        assert consumer.position(tp) == 1
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert consumer.getmany(timeout_ms=50) == {}
        consumer.resume(tp)
        assert consumer.paused() == frozenset()
        assert [r.offset for r in consumer.getmany(timeout_ms=5000, max_records=2)[tp]] == [1, 2]
        consumer.seek_to_end(tp)
        assert consumer.getmany(timeout_ms=50) == {}
        assert consumer.subscription() == frozenset()
        consumer.subscribe([topic])
        assert consumer.subscription() == {topic}
        consumer.unsubscribe()
        assert (consumer.subscription(), consumer.assignment()) == (frozenset(), frozenset())


def test_a_consumer_follows_what_comes(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send(topic, b"before").result(TIMEOUT)
    with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        assert consumer.position((topic, 0)) == 1  # the default is "latest"
        for n in range(5):
            producer.send(topic, b"%d" % n).result(TIMEOUT)
            assert next(iter(consumer)).value == b"%d" % n


def test_out_of_range_with_and_without_a_reset(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send(topic, b"only").result(TIMEOUT)
    with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="none") as consumer:
        with pytest.raises(OffsetOutOfRangeError, match="seek first"):
            consumer.getmany(timeout_ms=5000)
        consumer.seek((topic, 0), 99)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            consumer.getmany(timeout_ms=5000)
        assert (caught.value.offset, caught.value.high_watermark) == (99, 1)
        consumer.seek((topic, 0), 0)
        assert [r.value for r in consumer.getmany(timeout_ms=5000)[TopicPartition(topic, 0)]] == [
            b"only"
        ]
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.seek((topic, 0), 99)
        assert next(iter(consumer)).offset == 0


def test_numbers_that_no_partition_can_have_are_refused_by_the_call(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send(topic, b"only").result(TIMEOUT)
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        for offset in (-1, 2**63, True, 0.5):
            with pytest.raises(InvalidRequestError, match="offset must be an integer from 0 to"):
                consumer.seek((topic, 0), offset)  # type: ignore[arg-type]
        for time_ms in (-(2**63), 2**63, 0.5):
            with pytest.raises(InvalidRequestError, match="timestamp_ms must be an integer"):
                consumer.offsets_for_times({(topic, 0): time_ms})  # type: ignore[dict-item]
        assert next(iter(consumer)).value == b"only"


def test_a_partition_that_cannot_be_read_fails_alone(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each read of it raises the error of its partition, also a fault of the client's own code."""
    count, sick = 9, TopicPartition(topic, 4)  # three at each node, asked for together
    admin.create_topic(topic, count, 1)
    for number in range(count):
        producer.send(topic, b"v", partition=number).result(TIMEOUT)
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        buffer = consumer._fetcher.buffer
        add = buffer.add

        def fail_one(wanted: Wanted, records: FetchedRecords) -> Added:
            if wanted.tp == sick:
                raise ValueError("out of range")
            return add(wanted, records)

        monkeypatch.setattr(buffer, "add", fail_one)
        came: set[TopicPartition] = set()
        failed: list[str] = []
        while len(came) < count - 1 or len(failed) < 2:
            try:
                found = consumer.getmany(timeout_ms=10_000)
            except InternalError as error:
                failed.append(error.message)
            else:
                assert found, f"{came} and nothing more for so long"
                came |= found.keys()
        assert sick not in came
        assert failed == [f"{sick}: a bug in the client: ValueError('out of range')"] * len(failed)


def test_any_replica_can_be_read(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    for n in range(20):
        producer.send(topic, b"%d" % n)
    producer.flush(timeout_ms=1000 * TIMEOUT)
    cluster.wait_level(topic)
    for node in cluster.nodes:
        read = read_all(cluster, topic, any_replica=True, replica_node_id=node)
        assert [r.value for r in read] == [b"%d" % n for n in range(20)]
