"""What a topic holds, as a client reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncelog import Consumer, Record
from tests.harness.local_cluster import LocalCluster

PATIENCE = 30.0


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
