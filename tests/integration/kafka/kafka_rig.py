"""Kafka's own clients against nodes of a cluster with Kafka ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from harness.local_cluster import LocalCluster
from tests.integration.waiting import TIMEOUT, eventually

PAGE = Path(__file__).parents[3] / "docs" / "kafka.md"


def servers(cluster: LocalCluster) -> str:
    return ",".join(cluster.kafka_addresses.values())


def admin(cluster: LocalCluster) -> AdminClient:
    """An admin client, once each node names every other to Kafka's clients."""
    for address in cluster.kafka_addresses.values():
        every = partial(_names_all, cluster, address)
        eventually(every, f"{address} names all nodes")
    return AdminClient({"bootstrap.servers": servers(cluster)})


def _names_all(cluster: LocalCluster, address: str) -> bool:
    client = AdminClient({"bootstrap.servers": address})
    return len(client.list_topics(timeout=TIMEOUT).brokers) == len(cluster.nodes)


def typed(label: str, cluster: LocalCluster, topic: str) -> tuple[Any, Any]:
    """The producer and the consumer that the lines below a bold label of docs/kafka.md make."""
    made: dict[str, Any] = {}
    exec(lines_of(label, "python", cluster, topic), made)
    return made["producer"], made["consumer"]


def lines_of(label: str, language: str, cluster: LocalCluster, topic: str) -> str:
    """The lines below a bold label of docs/kafka.md, for this cluster and topic."""
    _, text = PAGE.read_text("utf-8").split(f"**{label}**")
    lines = text.split(f"```{language}\n")[1].split("```")[0]
    return lines.replace("127.0.0.1:9092", servers(cluster)).replace("payments", topic)


def done(futures: dict[Any, Any]) -> None:
    """Waits for an admin client's changes. Raises KafkaException."""
    for future in futures.values():
        future.result(TIMEOUT)


def create(
    client: AdminClient, topic: str, partitions: int = 1, replicas: int = 3, **config: str
) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    done(client.create_topics([NewTopic(topic, partitions, replicas, config=settings)]))


def idempotent(settings: Mapping[str, Any]) -> Producer:
    """A producer that writes each record once also when it must repeat a request.

    librdkafka's own default repeats it anew: a leader that moves may leave a record there twice.
    """
    return Producer({**settings, "enable.idempotence": True})


def send(producer: Producer, topic: str, values: Iterable[bytes], partition: int = 0) -> list[int]:
    """Produces the values to a partition; returns their offsets. Raises KafkaException."""
    found: list[int] = []
    faults: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            faults.append(error)
        else:
            found.append(message.offset() or 0)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(TIMEOUT) == 0
    assert not faults, faults[0]
    return found


def read(
    cluster: LocalCluster, topic: str, partition: int, count: int, start: int = 0
) -> Sequence[Message]:
    """Reads `count` records from an offset on. Fails if they do not come."""
    return read_with({"bootstrap.servers": servers(cluster)}, topic, partition, count, start)


def read_with(
    settings: Mapping[str, Any], topic: str, partition: int, count: int, start: int = 0
) -> Sequence[Message]:
    """`read` by a client with these settings."""
    consumer = Consumer({**settings, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        found: list[Message] = []
        while len(found) < count:
            more = consumer.consume(count - len(found), TIMEOUT)
            assert more, f"{len(found)} of {count} records came"
            for message in more:
                assert message.error() is None, message.error()
            found += more
        return found
    finally:
        consumer.close()
