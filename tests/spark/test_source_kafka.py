"""Topics with batches of Kafka's producers, read by the Arrow source: every codec, both formats."""

from __future__ import annotations

import json
import socket
import struct
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import Producer as KafkaProducer
from crc32c import crc32c

from harness.local_cluster import LocalCluster
from oncelog import Admin, Record, TopicConfig
from oncelog import Producer as OncelogProducer
from oncelog.types import TopicFormats
from tests.integration.waiting import TIMEOUT
from tests.spark.conftest import Read
from tests.spark.test_source_batch import pairs

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/kafka/batches.json").read_text())
Row = tuple[bytes | None, bytes | None, int, list[Any]]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


ROWS: list[Row] = [
    (
        unhex(one["key"]),
        unhex(one["value"]),
        one["timestamp_ms"] * 1000,
        [(name, unhex(value)) for name, value in one["headers"]],
    )
    for one in VECTORS["records"]
]


def anonymous(batch: bytes) -> bytes:
    """The batch without its producer, whose id is of another cluster."""
    body = batch[21:43] + b"\xff" * 14 + batch[57:]
    return batch[:17] + struct.pack(">I", crc32c(body)) + body


def produce(address: str, topic: str, batch: bytes) -> None:
    """Sends a batch as its client built it: Produce, version 3."""
    name = topic.encode()
    body = struct.pack(f">hhihhhiih{len(name)}siii", 0, 3, 7, -1, -1, -1, 10_000, 1,
                       len(name), name, 1, 0, len(batch))  # fmt: skip
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT) as connection:
        connection.sendall(struct.pack(">i", len(body) + len(batch)) + body + batch)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        # Correlation, one topic with its name, one partition with its number, the error.
        *_, error = struct.unpack_from(f">iih{len(name)}siih", answer.read(size))
    assert error == 0, f"the number of Kafka's error is {error}"


def test_rows_of_kafkas_producers_between_our_own(
    cluster: LocalCluster, admin: Admin, producer: OncelogProducer, read: Read, topic: str
) -> None:
    """The vectors are of aiokafka and kafka-python. Snappy of librdkafka is one block."""
    admin.create_topic(topic, 1, 3, config=TopicConfig(formats=TopicFormats.BOTH))
    first = Record(None, b"first", [], 7)  # once it is stored, the leader takes records
    producer.send_batch(topic, 0, [first]).result(TIMEOUT)
    address = cluster.kafka_addresses[cluster.leader(topic, 0)]
    assert {one["codec"] for one in VECTORS["batches"]} == {"none", "gzip", "snappy", "lz4", "zstd"}
    produced: list[Row] = [(first.key, first.value, first.timestamp_us, [])]
    for number, vector in enumerate(VECTORS["batches"]):
        produce(address, topic, anonymous(bytes.fromhex(vector["batch"])))
        mine = Record(b"%d" % number, None, [("own", None)], 1_000_000 + number)
        producer.send_batch(topic, 0, [mine]).result(TIMEOUT)
        produced += [*ROWS, (None, mine.value, mine.timestamp_us, [("own", None)])]
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        settings = {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 100}
        librdkafka = KafkaProducer(settings)
        value = codec.encode() * 100
        for milliseconds in range(3):
            librdkafka.produce(topic, value, b"k", 0, timestamp=1 + milliseconds)
            produced.append((b"k", value, 1000 + 1000 * milliseconds, []))
        assert librdkafka.flush(TIMEOUT) == 0

    frame = read(topic, includeHeaders=True)
    micros = frame.withColumn("timestamp", frame.timestamp.cast("decimal(20,6)") * 1_000_000)
    rows = sorted(micros.collect(), key=lambda row: row.offset)
    assert [row.offset for row in rows] == list(range(len(produced)))
    seen = [(row.key, row.value, int(row.timestamp), pairs(row.headers)) for row in rows]
    assert seen == produced
    # A range that begins and ends within batches of Kafka's.
    ends = {"startingOffsets": {topic: {"0": 2}}, "endingOffsets": {topic: {"0": 9}}}
    part = read(topic, **{name: json.dumps(value) for name, value in ends.items()})
    assert sorted((row.offset, row.value) for row in part.collect()) == [
        (offset, row[1]) for offset, row in islice(enumerate(produced), 2, 9)
    ]
