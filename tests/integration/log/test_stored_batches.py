"""Batches that are copied as they are stored: byte for byte, by hand and by `Mirror`."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    BatchTooLargeError,
    InvalidBatchError,
    InvalidRequestError,
    Producer,
    Record,
    StoredBatch,
    TopicConfig,
)
from oncelog.mirror import Mirror
from oncelog.settings import CompressionType
from tests.integration.records import stored_batches

TIMEOUT = 30.0
CODECS: tuple[CompressionType, ...] = ("none", "zstd", "lz4")


def fill(cluster: LocalCluster, topic: str, codec: CompressionType, count: int, size: int) -> None:
    """One batch of records with keys, headers and holes."""
    rng = random.Random(count * size)  # does not get smaller when it is compressed
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type=codec) as producer:
        records = [
            Record(
                None if n % 7 == 3 else b"%06d" % n + rng.randbytes(size),
                b"key %d" % n if n % 3 else None,
                (("n", b"%d" % n), ("none", None)) if n % 4 == 1 else (),
                1_700_000_000_000_000 + n,
            )
            for n in range(count)
        ]
        producer.send_batch(topic, 0, records).result(TIMEOUT)


def stored(cluster: LocalCluster, topic: str, offset: int = 0) -> list[StoredBatch]:
    return stored_batches(cluster.bootstrap, topic, offset)


def contents(cluster: LocalCluster, topic: str) -> list[tuple[object, ...]]:
    """All fields of each record but its place."""
    return [record[:4] for batch in stored(cluster, topic) for record in batch.records()]


def make(cluster: LocalCluster, *topics: str, max_batch_bytes: int | None = None) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for topic in topics:
            admin.create_topic(topic, 1, 3, TopicConfig(max_batch_bytes=max_batch_bytes))


def test_what_is_sent_on_is_stored_as_it_was(cluster: LocalCluster, topic: str) -> None:
    copy = f"{topic}-copy"
    make(cluster, topic, copy)
    for codec in CODECS:
        fill(cluster, topic, codec, 50, 200)
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type="zstd") as producer:
        for batch in stored(cluster, topic):
            sent = producer.send_stored_batch(copy, 0, batch, base_sequence=10 + batch.base_offset)
            done = sent.result(TIMEOUT)
            assert (done.base_sequence, done.last_sequence) == (
                10 + batch.base_offset,
                10 + batch.last_offset,
            )
            assert (done.record_count, done.duplicate) == (50, False)
            assert done.timestamp == 1_700_000_000_000 and done.base_offset == batch.base_offset
        assert producer.position(copy, 0) == 159
    # The rest, from the topic's id on, is of the topic and the producer.
    same = StoredBatch._fields.index("topic_id")
    copied = [one._replace(topic=topic)[:same] for one in stored(cluster, copy)]
    assert copied == [one[:same] for one in stored(cluster, topic)]
    assert [batch.codec for batch in stored(cluster, copy)] == [0, 1, 2]
    assert contents(cluster, copy) == contents(cluster, topic)
    assert len(contents(cluster, copy)) == 150


def test_a_position_within_a_batch_is_said(cluster: LocalCluster, topic: str) -> None:
    make(cluster, topic)
    fill(cluster, topic, "lz4", 50, 10)
    (batch,) = stored(cluster, topic, offset=20)
    assert (batch.base_offset, batch.last_offset, batch.skip) == (0, 49, 20)
    assert [record.offset for record in batch.records()] == list(range(20, 50))
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        with pytest.raises(InvalidRequestError, match="its first 20 records") as caught:
            producer.send_stored_batch(topic, 0, batch)
        assert caught.value.details["field"] == "batch"
        producer.send_stored_batch(topic, 0, batch._replace(skip=0)).result(TIMEOUT)
    assert len(contents(cluster, topic)) == 100


def test_what_a_node_would_refuse(cluster: LocalCluster, topic: str) -> None:
    small = f"{topic}-small"
    make(cluster, topic)
    make(cluster, small, max_batch_bytes=2000)
    fill(cluster, topic, "none", 50, 100)
    (batch,) = stored(cluster, topic)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        with pytest.raises(BatchTooLargeError, match="max_batch_bytes is 2000"):
            producer.send_stored_batch(small, 0, batch)
        damaged = bytes(batch.payload[:-1]) + b"!"
        with pytest.raises(InvalidBatchError, match="crc32c"):
            producer.send_stored_batch(topic, 0, batch._replace(payload=damaged)).result(TIMEOUT)
    assert len(contents(cluster, topic)) == 50
    with Producer(bootstrap_servers=cluster.bootstrap, enable_idempotence=False) as producer:
        with pytest.raises(InvalidRequestError, match="enable_idempotence"):
            producer.send_stored_batch(topic, 0, batch, base_sequence=0)
        producer.send_stored_batch(topic, 0, batch).result(TIMEOUT)
    assert len(contents(cluster, topic)) == 100


@pytest.mark.parametrize("codec", CODECS)
def test_a_mirror_sends_large_batches_on_and_puts_small_ones_together(
    cluster: LocalCluster, topic: str, codec: CompressionType
) -> None:
    copy = f"{topic}-copy"
    make(cluster, topic, copy)
    for kind, count, size in [
        *[(codec, 5, 20)] * 30,  # small, 150 records
        (codec, 300, 1000),
        *[(codec, 5, 20)] * 3,
        *[(codec, 250, 1000)] * 2,
        ("none" if codec == "lz4" else "lz4", 400, 1000),  # a codec that the copy shall not have
        (codec, 3, 20),
    ]:
        fill(cluster, topic, kind, count, size)
    servers = cluster.bootstrap
    # Begins within a large batch, as after a run that was ended there.
    with Mirror(
        topic, copy, bootstrap_servers=servers, compression_type=codec, starting_offsets={0: 160}
    ) as mirror:
        (progress,) = mirror.run(exit_at_end=True).values()
    original = contents(cluster, topic)
    assert (progress.copied, progress.position) == (len(original) - 160, len(original) - 1)
    assert contents(cluster, copy) == original[160:]
    whole = Counter(
        batch.crc32c for batch in stored(cluster, topic, offset=465) if batch.record_count == 250
    )
    copied = Counter(batch.crc32c for batch in stored(cluster, copy))
    assert whole.total() == 2 and whole <= copied
    # From the start into another topic: the first 30 records become one batch.
    again = f"{topic}-again"
    with Mirror(topic, again, bootstrap_servers=servers, compression_type=codec) as mirror:
        mirror.run(exit_at_end=True)
    assert contents(cluster, again) == original
    assert [batch.record_count for batch in stored(cluster, again)][:2] == [150, 300]
