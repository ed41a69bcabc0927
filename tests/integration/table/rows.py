"""Rows of a table, as any reader of Delta or Parquet has them, beside the topic's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.local_cluster import LocalCluster
from oncelog import Producer
from oncelog.table.delta import storage_options
from oncelog.table.iceberg import NAMESPACE
from tests.integration.records import read_all

Row = tuple[Any, ...]


def send(
    producer: Producer, topic: str, numbers: range, partitions: int = 3, size: int = 0
) -> None:
    for n in numbers:
        producer.send(topic, b"%d" % n + bytes(size), b"key %d" % (n % 7), partition=n % partitions)
    producer.flush()


def in_table(url: str) -> list[Row]:
    """The rows, sorted by partition and offset."""
    from deltalake import DeltaTable

    table = DeltaTable(url, storage_options=storage_options(url))
    return _sorted(table.to_pyarrow_table())


def in_iceberg(catalog: Any, name: str) -> list[Row]:
    """The rows of an Iceberg table, by pyiceberg's own reader."""
    return _sorted(catalog.load_table((NAMESPACE, name)).scan().to_arrow())


def _sorted(table: Any) -> list[Row]:
    found = [
        (
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            int(row["timestamp"].timestamp() * 1_000_000 + 0.5),
            _headers(row["headers"]),
        )
        for row in table.to_pylist()
    ]
    return sorted(found, key=lambda row: row[:2])


def in_topic(cluster: LocalCluster, topic: str) -> list[Row]:
    found = [
        (one.partition, one.offset, one.key, one.value, one.timestamp_us, _pairs(one.headers))
        for one in read_all(cluster, topic)
    ]
    return sorted(found, key=lambda row: row[:2])


def places(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [row[:2] for row in rows]


def _headers(value: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(one["key"], one["value"]) for one in value or ()]


def _pairs(value: Any) -> list[tuple[str, bytes | None]]:
    return [tuple(one) for one in value or ()]
