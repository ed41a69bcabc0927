"""Records between Python and another client, both ways: all fields, and each codec."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, Record, TopicPartition
from tests.clients.conftest import driver_command
from tests.clients.driver import Driver
from tests.clients.languages import every

CODECS = ["none", "lz4", "zstd"]
# Nulls and empty bytes differ; names of headers may repeat and need not be ASCII.
RECORDS = [
    Record(b"plain", timestamp_us=1_700_000_000_000_001),
    Record(None, b"tombstone", timestamp_us=1),
    Record(b"", b"", timestamp_us=0),
    Record(b"key is null", None, timestamp_us=-2),
    Record(b"h", b"k", [("trace", b"\x00\xff"), ("null", None), ("empty", b"")], timestamp_us=5),
    Record(b"h2", None, [("dépôt", "é".encode()), ("dépôt", b"again")], timestamp_us=6),
    Record(bytes(range(256)) * 40, b"long", timestamp_us=7),
]


def as_json(record: Record) -> dict[str, Any]:
    return {
        "value": hexed(record.value),
        "key": hexed(record.key),
        "headers": [[name, hexed(value)] for name, value in record.headers],
        "timestamp_us": record.timestamp_us,
    }


def hexed(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def without_place(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("value", "key", "headers", "timestamp_us")}


@pytest.fixture
def topic(cluster: LocalCluster, topic: str) -> str:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    return topic


@every()
def test_nodes_that_are_not_given_come_from_the_environment(
    cluster: LocalCluster, language: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", cluster.bootstrap)
    with Driver(driver_command(language, root), root) as driver:
        driver.ask("open_admin", "m", config={})
        nodes = driver.ask("describe_cluster", "m")["nodes"]
    assert {node["address"] for node in nodes} == set(cluster.bootstrap.split(","))


@every()
@pytest.mark.parametrize("codec", CODECS)
def test_it_writes_and_python_reads(
    cluster: LocalCluster, driver: Driver, topic: str, codec: str
) -> None:
    config = {"bootstrap_servers": cluster.bootstrap.split(","), "compression_type": codec}
    driver.ask("open_producer", "p", config=config)
    driver.ask(
        "send_batch", "p", tag="b", topic=topic, partition=0, records=list(map(as_json, RECORDS))
    )
    result = driver.ask("await", "p", timeout_ms=30_000)["results"]["b"]
    assert result["ok"]["offset"] == 0
    with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    ) as consumer:
        read = [as_json(record) for record in islice(consumer, len(RECORDS))]
        assert read == list(map(as_json, RECORDS))
        assert consumer.lag((topic, 0)) == 0


@every()
@pytest.mark.parametrize("codec", CODECS)
def test_python_writes_and_it_reads(
    cluster: LocalCluster, driver: Driver, topic: str, codec: Any
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type=codec) as producer:
        producer.send_batch(topic, 0, RECORDS).result(30)
    config = {"bootstrap_servers": cluster.bootstrap.split(","), "auto_offset_reset": "earliest"}
    driver.ask("open_consumer", "c", config=config)
    driver.ask("subscribe", "c", topics=[topic])
    records = driver.ask("poll", "c", timeout_ms=30_000)["records"]
    assert [without_place(record) for record in records] == list(map(as_json, RECORDS))
    assert [record["offset"] for record in records] == list(range(len(RECORDS)))


@every()
def test_each_goes_on_where_the_other_committed(
    cluster: LocalCluster, driver: Driver, topic: str
) -> None:
    group, tp = f"group {topic}"[:200].replace("_", "-"), TopicPartition(topic, 0)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    servers = cluster.bootstrap
    config = {
        "bootstrap_servers": servers.split(","),
        "group_id": group,
        "auto_offset_reset": "earliest",
    }
    driver.ask("open_consumer", "c", config=config)
    driver.ask("subscribe", "c", topics=[topic])
    first = driver.ask("poll", "c", timeout_ms=30_000, max_records=4)["records"]
    assert [record["offset"] for record in first] == [0, 1, 2, 3]
    driver.ask("commit", "c")
    with Consumer(topic, bootstrap_servers=servers, group_id=group) as consumer:
        assert [
            record.offset for record in consumer.getmany(timeout_ms=30_000, max_records=3)[tp]
        ] == [4, 5, 6]
        consumer.commit()
    driver.ask("open_consumer", "d", config=config)
    driver.ask("subscribe", "d", topics=[topic])
    last = driver.ask("poll", "d", timeout_ms=30_000)["records"]
    assert [record["offset"] for record in last] == [7, 8, 9]


@every()
def test_both_put_a_key_into_the_same_partition(
    cluster: LocalCluster, driver: Driver, topic: str
) -> None:
    topic += "-9"
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 9, 3)
    driver.ask("open_producer", "p", config={"bootstrap_servers": cluster.bootstrap.split(",")})
    keys = [bytes([n]) * (n % 9) for n in range(40)]
    for number, key in enumerate(keys):
        driver.ask("send", "p", tag=str(number), topic=topic, value="", key=key.hex())
    results = driver.ask("await", "p", timeout_ms=30_000)["results"]
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        own = [producer.send(topic, b"", key).result(30).partition for key in keys]
    assert [results[str(number)]["ok"]["partition"] for number in range(40)] == own
    assert len(set(own)) > 3
