"""A topic's records, as a client reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.local_cluster import LocalCluster
from oncelog import Consumer, Record, StoredBatch, TopicPartition

TIMEOUT = 30.0


def read_all(cluster: LocalCluster, topic: str, **settings: Any) -> list[Record]:
    """All records of a topic, from its start to its end now."""
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **settings
    ) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        found: list[Record] = []
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for records in consumer.getmany(timeout_ms=1000).values():
                found += records
        return found


def stored_batches(bootstrap: str, topic: str, offset: int = 0, part: int = 0) -> list[StoredBatch]:
    """A partition's batches from `offset` to its end now, as they are stored."""
    tp = TopicPartition(topic, part)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, offset)
        end = consumer.end_offsets([tp])[tp]
        found: list[StoredBatch] = []
        while consumer.position(tp) < end:
            batch = consumer.stored_batch(timeout_ms=1000)
            if batch is not None:
                found.append(batch._replace(payload=bytes(batch.payload)))
        assert consumer.stored_batch() is None
        return found


def by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    result: dict[int, list[Record]] = {}
    for record in records:
        result.setdefault(record.partition, []).append(record)
    return result
