"""Kafka's own clients, unchanged, against three nodes: librdkafka, aiokafka, kafka-python."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

import oncelog
from harness.local_cluster import LocalCluster
from oncelog.types import Header
from tests.integration.conftest import STEADY
from tests.integration.kafka.kafka_rig import (
    admin,
    create,
    done,
    idempotent,
    read,
    send,
    servers,
    typed,
)
from tests.integration.waiting import TIMEOUT, eventually

RECORDS = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TEXT = b"some words that repeat themselves, " * 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("kafka")
    with LocalCluster(root, settings=STEADY, kafka=True) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> AdminClient:
    return admin(cluster)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_writes_and_reads(
    cluster: LocalCluster, client: AdminClient, topic: str, codec: str
) -> None:
    name = f"{topic}-{codec}".replace("[", "").replace("]", "")
    create(client, name, partitions=3)
    producer = idempotent(
        {"bootstrap.servers": servers(cluster), "compression.type": codec, "linger.ms": 5}
    )
    for partition in range(3):
        values = [b"%d-%d" % (partition, number) for number in range(RECORDS)]
        assert send(producer, name, values, partition) == list(range(RECORDS))
        found = read(cluster, name, partition, RECORDS)
        assert [one.value() for one in found] == values
        assert [one.offset() for one in found] == list(range(RECORDS))


def test_a_record_comes_back_whole(cluster: LocalCluster, client: AdminClient, topic: str) -> None:
    create(client, topic)
    producer = idempotent({"bootstrap.servers": servers(cluster)})
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    producer.produce(topic, b"v", b"k", headers=headers, timestamp=1_234_567_890_123)
    producer.produce(topic, None, None, timestamp=1_234_567_890_124)
    assert producer.flush(TIMEOUT) == 0
    first, second = read(cluster, topic, 0, 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp()[1] == 1_234_567_890_123
    assert (second.key(), second.value(), second.headers()) == (None, None, None)


def test_offsets_by_time_name_the_record(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer = idempotent(
        {"bootstrap.servers": servers(cluster), "linger.ms": 200, "compression.type": "gzip"}
    )
    for number in range(10):
        producer.produce(topic, b"v", timestamp=1000 + 10 * number)
    assert producer.flush(TIMEOUT) == 0
    consumer = Consumer({"bootstrap.servers": servers(cluster), "group.id": "times"})
    wanted = [(0, 0), (1000, 0), (1001, 1), (1055, 6), (1090, 9)]
    for time_ms, offset in wanted:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], TIMEOUT)
        assert (found.offset, found.error) == (offset, None), time_ms
    (none,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1091)], TIMEOUT)
    assert none.offset == -1
    place = TopicPartition(topic, 0)
    (newest,) = client.list_offsets({place: OffsetSpec.max_timestamp()}).values()
    assert (newest.result(TIMEOUT).offset, newest.result().timestamp) == (9, 1090)
    assert consumer.get_watermark_offsets(place, TIMEOUT) == (0, 10)
    consumer.close()


def test_a_group_without_members_keeps_its_offsets(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=2)
    settings = {"bootstrap.servers": servers(cluster), "group.id": f"g-{topic}"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    parts = [TopicPartition(topic, 0, 7, metadata="here"), TopicPartition(topic, 1)]
    consumer.commit(offsets=parts[:1], asynchronous=False)
    consumer.close()
    again = Consumer(settings)
    first, second = again.committed(parts, TIMEOUT)
    assert (first.offset, first.metadata) == (7, "here")
    assert second.offset < 0
    again.close()


def test_topics_are_made_described_changed_and_deleted(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, partitions=2, retention_ms="60000", cleanup_policy="delete")
    found = client.list_topics(topic, TIMEOUT).topics[topic]
    assert sorted(found.partitions) == [0, 1]
    for partition in found.partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3] and partition.leader in (1, 2, 3)
    done(client.create_partitions([NewPartitions(topic, 4)]))
    assert len(client.list_topics(topic, TIMEOUT).topics[topic].partitions) == 4

    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert values(client, topic)["retention.ms"] == "60000"
    assert values(client, topic)["oncelog.formats"] == "kafka"
    change = ConfigResource(
        ResourceType.TOPIC, topic, incremental_configs=[
            ConfigEntry("retention.ms", "70000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("max.message.bytes", "2048", incremental_operation=AlterConfigOpType.SET),
        ],
    )  # fmt: skip
    done(client.incremental_alter_configs([change]))
    assert values(client, topic)["retention.ms"] == "70000"
    resource.set_config("retention.bytes", "1000000")
    done(client.alter_configs([resource]))
    changed = values(client, topic)
    assert (changed["retention.ms"], changed["retention.bytes"]) == ("604800000", "1000000")

    done(client.delete_topics([topic]))
    eventually(lambda: topic not in client.list_topics(timeout=TIMEOUT).topics, "it is gone")


def test_records_are_deleted_and_directories_described(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer = idempotent({"bootstrap.servers": servers(cluster), "linger.ms": 0})
    for number in range(10):
        assert send(producer, topic, [b"%d" % number]) == [number]
    (future,) = client.delete_records([TopicPartition(topic, 0, 7)]).values()
    assert future.result(TIMEOUT).low_watermark == 7
    consumer = Consumer({"bootstrap.servers": servers(cluster), "group.id": "starts"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT) == (7, 10)
    consumer.close()
    assert [one.value() for one in read(cluster, topic, 0, 3, start=7)] == [b"7", b"8", b"9"]
    other = kafka.KafkaAdminClient(bootstrap_servers=servers(cluster).split(","))
    found = other.describe_log_dirs()
    other.close()
    assert topic in str(found)


def test_the_cluster_is_named_with_its_founding(cluster: LocalCluster, client: AdminClient) -> None:
    with oncelog.Admin(bootstrap_servers=cluster.bootstrap) as native:
        founding = native.describe_cluster().founding
    name = f"oncelog-{founding}"
    assert client.list_topics(timeout=TIMEOUT).cluster_id == name
    assert client.describe_cluster().result(TIMEOUT).cluster_id == name


def values(client: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (future,) = client.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(TIMEOUT).items()}


def error_of(call: Any, *arguments: Any) -> KafkaError:
    """The error that a call raises."""
    with pytest.raises(KafkaException) as raised:
        call(*arguments)
    (found,) = raised.value.args
    assert isinstance(found, KafkaError)
    return found


REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"topic": "__hidden"}, KafkaError.TOPIC_EXCEPTION),
    ({"topic": "a topic"}, KafkaError.TOPIC_EXCEPTION),
    ({"topic": "t", "num_partitions": 1001}, KafkaError.INVALID_PARTITIONS),
    ({"topic": "t", "replication_factor": 7}, KafkaError.INVALID_REPLICATION_FACTOR),
    ({"topic": "t", "config": {"cleanup.policy": "purge"}}, KafkaError.INVALID_CONFIG),
    ({"topic": "t", "config": {"min.insync.replicas": "2"}}, KafkaError.INVALID_CONFIG),
    ({"topic": "t", "config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG),
    ({"topic": "t", "config": {"retention.ms": "-7"}}, KafkaError.INVALID_CONFIG),
]


@pytest.mark.parametrize(("wanted", "number"), REFUSED, ids=str)
def test_a_topic_that_cannot_be_is_refused(
    client: AdminClient, wanted: dict[str, Any], number: int
) -> None:
    topic = NewTopic(**{"num_partitions": 1, "replication_factor": 3, **wanted})
    error = error_of(done, client.create_topics([topic]))
    assert error.code() == number and ": " in error.str(), error


def test_a_topic_of_the_other_format_takes_no_batch(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """A Kafka client reads it all the same: its batches are converted."""
    with oncelog.Admin(bootstrap_servers=cluster.bootstrap) as ours:
        ours.create_topic(topic, partitions=1)
    with oncelog.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        sent = [(b"k%d" % number, b"v%d" % number) for number in range(100)]
        for key, value in sent:
            producer.send(topic, value, key=key, headers=[("h", b"x")])
        producer.flush()
    found = read(cluster, topic, 0, 100)
    assert [(one.key(), one.value()) for one in found] == sent
    assert [one.offset() for one in found] == list(range(100))
    assert found[0].headers() == [("h", b"x")]

    refused = Producer({"bootstrap.servers": servers(cluster), "message.timeout.ms": 5000})
    errors: list[KafkaError] = []
    refused.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    refused.flush(TIMEOUT)
    assert [error.code() for error in errors] == [KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT]


def test_each_reader_gets_the_records_of_both(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, oncelog_formats="both")
    headers: list[Header] = [("a", b"1"), ("a", None), ("", b"")]
    expected: list[tuple[bytes | None, bytes | None, list[Header]]] = []
    for number, codec in enumerate(CODECS):
        producer = idempotent(
            {"bootstrap.servers": servers(cluster), "compression.type": codec, "linger.ms": 20}
        )
        for row in range(50):
            value = None if row == 7 else b"%d/%d " % (number, row) + TEXT
            producer.produce(
                topic, value, b"k" if row % 2 else None, headers=headers, timestamp=1 + row
            )
            expected.append((value, b"k" if row % 2 else None, headers))
        assert producer.flush(TIMEOUT) == 0
        compression: Any = codec if codec in ("zstd", "lz4") else "none"
        with oncelog.Producer(
            bootstrap_servers=cluster.bootstrap, compression_type=compression
        ) as native:
            for row in range(50):
                tombstone, key = row == 7, b"k" if row % 2 else None
                value = None if tombstone else b"native %d/%d " % (number, row) + TEXT
                native.send(topic, value, key, headers=headers, partition=0, timestamp_ms=1 + row)
                expected.append((value, key, headers))
    count = len(expected)
    by_kafka = read(cluster, topic, 0, count)
    found = [(one.value(), one.key(), one.headers()) for one in by_kafka]
    assert found == expected
    assert [one.offset() for one in by_kafka] == list(range(count))
    with oncelog.Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([oncelog.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        records = list(islice(consumer, count))
    assert [(one.value, one.key, list(one.headers)) for one in records] == expected
    assert [one.offset for one in records] == list(range(count))
    assert [one.timestamp_us for one in records] == [1000 + row % 50 * 1000 for row in range(count)]


def test_arrow_has_the_records_of_a_kafka_producer(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer = idempotent({"bootstrap.servers": servers(cluster), "compression.type": "snappy"})
    for row in range(1000):
        producer.produce(topic, b"%d" % row, timestamp=row)
    assert producer.flush(TIMEOUT) == 0
    values, offsets = list[bytes](), list[int]()
    with oncelog.Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([oncelog.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        for batch in consumer.batches():
            values += batch.column("value").to_pylist()
            offsets += batch.column("offset").to_pylist()
            if len(values) == 1000:
                break
    assert values == [b"%d" % row for row in range(1000)]
    assert offsets == list(range(1000))


def test_a_batch_that_is_too_large_is_refused(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic, max_message_bytes="2000")
    producer = Producer({"bootstrap.servers": servers(cluster)})
    errors: list[KafkaError] = []
    producer.produce(topic, bytes(3000), on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_the_pages_lines_for_confluent_kafka(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer, consumer = typed("confluent-kafka", cluster, topic)
    assert send(producer, topic, [b"42 EUR"]) == [0]
    consumer.subscribe([topic])
    assert consumer.poll(TIMEOUT).value() == b"42 EUR"
    consumer.close()


async def test_the_pages_lines_for_aiokafka(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer, consumer = typed("Python, aiokafka", cluster, topic)
    async with producer, consumer:
        assert (await producer.send_and_wait(topic, b"42 EUR")).offset == 0
        assert (await consumer.getone()).value == b"42 EUR"


def test_the_pages_lines_for_kafka_python(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer, consumer = typed("Python, kafka-python", cluster, topic)
    with closing(producer), closing(consumer):
        assert producer.send(topic, b"42 EUR").get(TIMEOUT).offset == 0
        assert next(consumer).value == b"42 EUR"


async def test_aiokafka_writes_and_reads(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    part = aiokafka.TopicPartition(topic, 0)
    wanted = [b"%d" % number for number in range(RECORDS)]
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers(cluster), enable_idempotence=True, compression_type="gzip"
    ) as producer:
        sent = [await producer.send(topic, value, partition=0) for value in wanted]
        assert [(await one).offset for one in sent] == list(range(RECORDS))
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers(cluster), group_id=f"g-{topic}", enable_auto_commit=False
    ) as consumer:
        consumer.assign([part])
        consumer.seek(part, 0)
        assert [(await consumer.getone()).value for _ in wanted] == wanted
        await consumer.commit({part: 40})
        assert await consumer.committed(part) == 40
        assert await consumer.end_offsets([part]) == {part: RECORDS}


def test_kafka_python_writes_and_reads(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    part = kafka.TopicPartition(topic, 0)
    wanted = [b"%d" % number for number in range(RECORDS)]
    producer = kafka.KafkaProducer(bootstrap_servers=servers(cluster), enable_idempotence=True)
    sent = [producer.send(topic, value, partition=0) for value in wanted]
    assert [one.get(TIMEOUT).offset for one in sent] == list(range(RECORDS))
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers(cluster), group_id=f"g-{topic}", enable_auto_commit=False
    )
    consumer.assign([part])
    consumer.seek(part, 0)
    assert [next(consumer).value for _ in wanted] == wanted
    consumer.commit({part: kafka.structs.OffsetAndMetadata(40, "", -1)})
    assert consumer.committed(part) == 40
    consumer.close()


def test_a_leader_that_moves_is_followed(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """Also by the epoch: a request with the old leader's is refused, and the client looks anew."""
    create(client, topic)
    producer = idempotent({"bootstrap.servers": servers(cluster)})
    assert send(producer, topic, [b"a", b"b"]) == [0, 1]
    leader = cluster.leader(topic, 0)
    other = next(node for node in cluster.nodes if node != leader)
    with oncelog.Admin(bootstrap_servers=cluster.bootstrap) as ours:
        ours.transfer_leadership(topic, 0, other)
    assert send(producer, topic, [b"c"]) == [2]
    assert [one.value() for one in read(cluster, topic, 0, 3)] == [b"a", b"b", b"c"]


def test_a_version_of_api_versions_that_is_not_known_is_answered_in_the_oldest_form(
    cluster: LocalCluster,
) -> None:
    """KIP-511: a newer client then asks again, with a version of the one call that is told."""
    host, _, port = next(iter(cluster.kafka_addresses.values())).rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT) as connection:
        request = struct.pack(">hhi", 18, 99, 7) + b"\xff\xff anything"
        connection.sendall(struct.pack(">i", len(request)) + request)
        reader = connection.makefile("rb")
        (size,) = struct.unpack(">i", reader.read(4))
        answer = reader.read(size)
    correlation, error, count, key, oldest, newest = struct.unpack(">ihihhh", answer)
    assert (correlation, error) == (7, 35)
    assert (count, key, oldest, newest) == (1, 18, 0, 3)
