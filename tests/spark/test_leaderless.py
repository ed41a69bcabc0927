"""Partitions whose only replica is on a dead node: a batch query says which, a stream goes on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, NotReadyError, Producer, TopicPartition
from oncelog.spark.source.offsets import StreamPosition
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import Planner
from tests.integration.conftest import STEADY
from tests.integration.waiting import eventually
from tests.spark.conftest import Read
from tests.spark.test_source_batch import fill, spans
from tests.spark.test_source_stream import ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC, PARTITIONS, EACH, MORE = "orders", 6, 10, 3
WAIT_MS = 2000


@pytest.fixture(scope="module")
def one_down(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Six partitions of one replica each."""
    with LocalCluster(tmp_path_factory.mktemp("one-down"), settings=STEADY) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, PARTITIONS, 1)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            fill(producer, TOPIC, *[EACH] * PARTITIONS)
        yield cluster


def leaderless(cluster: LocalCluster) -> list[TopicPartition]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        partitions = admin.describe_topic(TOPIC).partitions
    return [TopicPartition(TOPIC, one.partition) for one in partitions if not one.leader_id]


def options(cluster: LocalCluster) -> SourceOptions:
    given = {"bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC}
    return SourceOptions.parse(
        {**given, "startingOffsets": "earliest", "pollTimeoutMs": str(WAIT_MS)}
    )


def test_a_stream_goes_on_with_the_other_partitions(
    one_down: LocalCluster, read_stream: Read, tmp_path: Path
) -> None:
    """The query lives through it, and reads each record once."""
    seen: list[tuple[int, int]] = []

    def collect(frame: DataFrame, number: int) -> None:
        seen.extend((row.partition, row.offset) for row in frame.collect())

    frame = read_stream(
        TOPIC, one_down.bootstrap, startingOffsets="earliest", pollTimeoutMs=WAIT_MS
    )
    writer = frame.select("partition", "offset").writeStream.foreachBatch(collect)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        one_down.kill([3])
        eventually(lambda: len(leaderless(one_down)) == 2, "two partitions have no leader")
        gone = {tp.partition for tp in leaderless(one_down)}
        led = [number for number in range(PARTITIONS) if number not in gone]
        with Producer(bootstrap_servers=one_down.bootstrap) as producer:
            for number in led * MORE:
                producer.send(TOPIC, b"new", partition=number)
        read = len(spans(*((number, 0, EACH) for number in range(PARTITIONS))))
        eventually(
            lambda: len(seen) >= read + len(led) * MORE or query.exception() is not None,
            "the records of the others are read",
        )
        assert query.exception() is None
        one_down.start_nodes([3])
        with Producer(bootstrap_servers=one_down.bootstrap) as producer:
            for number in [*gone] * MORE:
                producer.send(TOPIC, b"new", partition=number)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(seen) == spans(*((number, 0, EACH + MORE) for number in range(PARTITIONS)))


@pytest.fixture
def crippled(one_down: LocalCluster) -> list[TopicPartition]:
    """The partitions without a leader, while a node is down."""
    if len(leaderless(one_down)) != 2:
        one_down.kill([3])
        eventually(lambda: len(leaderless(one_down)) == 2, "two partitions have no leader")
    return leaderless(one_down)


def test_a_batch_query_names_the_partitions_and_the_option(
    one_down: LocalCluster, crippled: list[TopicPartition]
) -> None:
    says = f"no offsets of {crippled[0]}, {crippled[1]}: {crippled[0]} has no leader"
    with Planner(options(one_down)) as planner:
        with pytest.raises(NotReadyError, match=re.escape(f"{says}, for pollTimeoutMs={WAIT_MS}")):
            planner.batch()


def test_the_end_of_a_partition_without_a_leader_is_its_last_known(
    one_down: LocalCluster,
    crippled: list[TopicPartition],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import LongType, StructField, StructType

    from oncelog.spark.source.stream import OncelogStreamReader

    reader: Any = OncelogStreamReader(
        options(one_down), StructType([StructField("offset", LongType())])
    )
    with Planner(options(one_down)) as planner:
        now = planner.look()
    start = StreamPosition(dict.fromkeys(now.offsets, 5), now.ids).to_json()
    try:
        with caplog.at_level(logging.WARNING, "pyspark_oncelog"):
            end = reader.latestOffset(start, ReadAllAvailable())
            assert reader.latestOffset(start, ReadAllAvailable()) == end
        gone = {str(tp.partition) for tp in crippled}
        assert {number for number, at in end[TOPIC].items() if at == 5} == gone
        assert [message for message in caplog.messages if "has no leader" in message] == [
            f"{tp} has no leader: the query reads the other partitions until it has"
            for tp in crippled
        ], "once each"
        planned = {number for number, _, _ in ranges(reader.partitions(start, end))}
        assert planned == {*range(PARTITIONS)} - {tp.partition for tp in crippled}
        # A query that ends at what is there now is not complete without them.
        with pytest.raises(NotReadyError, match=f"pollTimeoutMs={WAIT_MS}"):
            reader.prepareForTriggerAvailableNow()
        # A partition that the query has not read yet begins when it has a leader.
        new = StreamPosition({tp: 5 for tp in now.offsets if tp not in crippled}, now.ids).to_json()
        assert reader.latestOffset(new, ReadAllAvailable())[TOPIC].keys().isdisjoint(gone)
    finally:
        reader.stop()
