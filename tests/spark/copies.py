"""A copy compared with its source, in tests: plain reading, record by record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oncelog import Consumer, Producer, StoredBatch
from oncelog.wire.batch import encode_payload
from oncelog.wire.compression import checksum
from tests.integration.records import stored_batches
from tests.integration.waiting import eventually

Row = tuple[Any, ...]
_LONG_AGO_US = 1_000_000_000_000_000
TIMEOUT_S = 300.0  # a busy machine starts a JVM and its Python workers slowly


def contents(bootstrap: str, topic: str) -> dict[int, list[Row]]:
    """(value, key, headers, timestamp) of all records, by partition, in order."""
    found: dict[int, list[Row]] = {}
    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for tp, records in consumer.getmany(timeout_ms=1000).items():
                found.setdefault(tp.partition, []).extend(
                    (r.value, r.key, tuple(r.headers), r.timestamp_us) for r in records
                )
    return found


def put(producer: Producer, topic: str, numbers: range, partitions: int = 2) -> None:
    """Records of every shape; record n goes into partition n modulo `partitions`."""
    for n in numbers:
        producer.send(
            topic,
            None if n % 7 == 0 else b"value %d" % n,
            None if n % 5 == 0 else b"key %d" % (n % 11),
            headers={"n": str(n), "none": None} if n % 3 == 0 else None,
            partition=n % partitions,
        )
    producer.flush()


def put_large(producer: Producer, topic: str, partition: int, numbers: range) -> None:
    """Sends a batch of 3 KB records that are one microsecond older than its header says.

    A program that decodes it and makes a batch of its records again makes another header.
    """
    values = [b"%d" % n + bytes(3000) for n in numbers]
    payload = encode_payload(values, [_LONG_AGO_US] * len(values), [b"key"] * len(values))
    batch = StoredBatch(
        topic, partition, 0, len(values), 0, checksum(payload), _LONG_AGO_US + 1, payload
    )
    producer.send_stored_batch(topic, partition, batch).result(TIMEOUT_S)


def sent_on_unseen(bootstrap: str, topic: str, partition: int) -> int:
    """Number of those batches that kept their header."""
    found = stored_batches(bootstrap, topic, part=partition)
    return sum(batch.max_timestamp_us == _LONG_AGO_US + 1 for batch in found)


def stored(bootstrap: str, topic: str, partition: int) -> int:
    """Number of records of a partition."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        (end,) = consumer.end_offsets([(topic, partition)]).values()
        return end


def wait_stored(bootstrap: str, topic: str, partition: int, count: int) -> None:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        eventually(
            lambda: consumer.end_offsets([(topic, partition)])[topic, partition] >= count,  # type: ignore[index]
            f"{topic}-{partition} has {count} records",
            timeout=TIMEOUT_S,
        )


@contextmanager
def records_keep_coming(bootstrap: str, topic: str, partitions: int = 2) -> Iterator[None]:
    """Some hundred records a second, for as long as it takes."""
    stop = threading.Event()

    def run() -> None:
        n = 0
        with Producer(bootstrap_servers=bootstrap) as producer:
            while not stop.wait(0.02):
                put(producer, topic, range(n, n + 10), partitions)
                n += 10

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
