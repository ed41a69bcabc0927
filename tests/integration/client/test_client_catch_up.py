"""A consumer with a long way to go has the node send ahead, and loses nothing by it.

Limits are so small that a few hundred records are a long way.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer
from tests.integration.conftest import MakeCluster

TIMEOUT = 60.0
BATCH, BATCHES, PER_BATCH = 2000, 60, 10  # bytes, their number, records in each
LIMIT = 4 * BATCH
RECORDS = BATCHES * PER_BATCH


def fill(bootstrap: str, topic: str, partitions: int = 1, first: int = 0) -> None:
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        for number in range(first, first + BATCHES):
            values = [b"%d " % (number * PER_BATCH + i) + bytes(150) for i in range(PER_BATCH)]
            for partition in range(partitions):
                producer.send_batch(topic, partition, values)


class Watched:
    """A consumer with small limits, and how often it had a node send ahead."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.consumer = Consumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=LIMIT,
            fetch_max_bytes=LIMIT,
            **settings,
        )
        self.streams = 0
        self.most_buffered = 0
        catch_up = self.consumer._fetcher._catch_up
        run = catch_up.run

        async def counted(*arguments: Any) -> Any:
            self.streams += 1
            return await run(*arguments)

        catch_up.run = counted  # type: ignore[assignment]

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def until_each_waits(self) -> None:
        """Return when a batch of each partition lies in the buffer."""
        buffer = self.consumer._buffer
        with buffer._lock:
            assert buffer._condition.wait_for(
                lambda: all(cursor.chunks for cursor in buffer.cursors()), TIMEOUT
            )

    def read(self, count: int) -> list[tuple[int, int]]:
        """The next records' (partition, offset)."""
        found: list[tuple[int, int]] = []
        while len(found) < count:
            some = self.consumer.getmany(
                timeout_ms=int(TIMEOUT * 1000), max_records=count - len(found)
            )
            assert some, f"nothing more after {len(found)} of {count} records"
            buffered = [self.consumer._buffer.cursor(tp).buffered for tp in some]  # type: ignore[union-attr]
            self.most_buffered = max(self.most_buffered, *buffered)
            for records in some.values():
                found += [(record.partition, record.offset) for record in records]
                for record in records:
                    assert (record.value or b"").startswith(b"%d " % record.offset)
        return found


def offsets(found: list[tuple[int, int]], partition: int = 0) -> list[int]:
    return [offset for at, offset in found if at == partition]


@pytest.fixture
def full(cluster: LocalCluster, admin: Admin, topic: str) -> Iterator[Watched]:
    admin.create_topic(topic, 1, 3)
    fill(cluster.bootstrap, topic)
    with Watched(cluster.bootstrap, topic) as watched:
        yield watched


def test_all_is_read_in_order_and_no_more_than_the_limit_waits(full: Watched) -> None:
    assert offsets(full.read(RECORDS)) == list(range(RECORDS))
    assert full.streams == 1
    assert full.most_buffered < LIMIT + LIMIT + BATCH, "the limit, and one message"


def test_what_comes_later_is_read_too(full: Watched, cluster: LocalCluster, topic: str) -> None:
    start = full.read(RECORDS // 2)
    fill(cluster.bootstrap, topic, first=BATCHES)
    assert offsets(start + full.read(RECORDS + RECORDS // 2)) == list(range(2 * RECORDS))
    fill(cluster.bootstrap, topic, first=2 * BATCHES)
    assert offsets(full.read(RECORDS)) == list(range(2 * RECORDS, 3 * RECORDS))


def test_a_seek_ends_it(full: Watched, topic: str) -> None:
    full.read(100)
    full.consumer.seek((topic, 0), 30)
    assert offsets(full.read(200)) == list(range(30, 230))
    full.consumer.seek((topic, 0), RECORDS - 50)
    assert offsets(full.read(50)) == list(range(RECORDS - 50, RECORDS))


def test_batches_are_whole_whatever_arrived_with_them(full: Watched) -> None:
    """Columns lie anywhere in a message, and Arrow wants its numbers at multiples of 8."""
    for number, batch in enumerate(list(islice(full.consumer.batches(), BATCHES))):
        batch.validate(full=True)
        first = number * PER_BATCH
        assert batch.column("offset").to_pylist() == list(range(first, first + PER_BATCH))
        assert batch.column("value")[9].as_py().startswith(b"%d " % (first + 9))
        for column in batch.columns:
            for buffer in column.buffers()[1:2]:
                assert buffer is None or buffer.address % 8 == 0


def test_partitions_do_not_hold_up_each_other(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 6, 3)
    fill(cluster.bootstrap, topic, partitions=6)
    with Watched(cluster.bootstrap, topic) as watched:
        watched.until_each_waits()
        found = watched.read(6 * PER_BATCH)
        assert {partition for partition, _ in found} == set(range(6)), "they take turns"
        watched.consumer.pause((topic, 2))
        left = sum(RECORDS - len(offsets(found, number)) for number in range(6) if number != 2)
        rest = watched.read(left)
        assert 2 not in {partition for partition, _ in rest}
        watched.consumer.resume((topic, 2))
        rest += watched.read(6 * RECORDS - len(found) - left)
        for number in range(6):
            assert offsets(found + rest, number) == list(range(RECORDS))
        assert watched.streams > 1


def test_a_killed_leader(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    fill(cluster.bootstrap, topic)
    with Watched(cluster.bootstrap, topic, request_timeout_ms=2000) as watched:
        found = watched.read(RECORDS // 3)
        assert watched.streams == 1
        cluster.nodes[cluster.leader(topic, 0)].kill()
        found += watched.read(RECORDS - len(found))
    assert offsets(found) == list(range(RECORDS))
