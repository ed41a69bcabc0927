"""Streaming queries over real nodes: each record once, at any fault in between."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, TopicConfig
from oncelog.errors import ConfigError, OffsetOutOfRangeError
from oncelog.spark import lag
from oncelog.spark.source.offsets import OffsetRange, StreamPosition
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import TopicGoneError
from oncelog.spark.source.reading import read_range
from oncelog.types import TopicPartition
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually
from tests.spark.conftest import SETTINGS, Read
from tests.spark.gates import in_background
from tests.spark.test_source_batch import delete_below, fill, refusal, spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMEOUT = 120


class Stream:
    """A query from one topic into Parquet files, that can be stopped and started again."""

    def __init__(self, frame: Callable[[], DataFrame], directory: Path) -> None:
        self._frame, self._directory = frame, directory

    def start(self, **trigger: Any) -> Any:
        writer = self._frame().select("partition", "offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        writer = writer.option("path", str(self._directory / "out"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self) -> list[Any]:
        """All that is there now; the progress of each micro-batch."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(TIMEOUT), "the query did not end"
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> list[tuple[int, int]]:
        """(partition, offset) of written rows, from the files that Spark says are committed."""
        log = self._directory / "out" / "_spark_metadata"
        names = [
            json.loads(line)["path"].removeprefix("file://")
            for commit in log.glob("[0-9]*")
            for line in commit.read_text().splitlines()[1:]
        ]
        tables = [pq.read_table(name).to_pydict() for name in names]
        return sorted(
            pair for t in tables for pair in zip(t["partition"], t["offset"], strict=True)
        )


@pytest.fixture
def stream(read_stream: Read, topic: str, tmp_path: Path) -> Callable[..., Stream]:
    """`stream(option=value, ...)` over the test's topic, from its beginning."""

    def make(**options: object) -> Stream:
        given = {"startingOffsets": "earliest", **options}
        return Stream(lambda: read_stream(topic, **given), tmp_path / "stream")

    return make


def ends(progress: Any, topic: str) -> dict[str, int]:
    """End of a micro-batch, by partition."""
    return dict(json.loads(progress.sources[0].endOffset)[topic])


# --- how far -----------------------------------------------------------------------------


def test_a_stream_goes_on_from_its_checkpoint(
    admin: Admin, producer: Producer, stream: Callable[..., Stream], topic: str
) -> None:
    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 25, 7)
    one = stream(maxOffsetsPerTrigger=16)
    first = one.run()
    assert [progress.numInputRows for progress in first] == [16, 16]
    assert [ends(progress, topic) for progress in first] == [{"0": 13, "1": 3}, {"0": 25, "1": 7}]
    assert one.rows() == spans((0, 0, 25), (1, 0, 7))
    # The lag when the query began the first of them, and when it was done.
    t0, t1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert lag(first[0]) == {t0: 12, t1: 4}
    assert lag(first[1]) == {t0: 0, t1: 0}

    assert one.run() == [], "there is nothing new"
    fill(producer, topic, 5, 5)
    assert [progress.numInputRows for progress in one.run()] == [10]
    assert one.rows() == spans((0, 0, 30), (1, 0, 12))


def test_available_now_ends_where_the_log_ended_when_it_began(
    admin: Admin, producer: Producer, read_stream: Read, topic: str, tmp_path: Path
) -> None:
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 30)
    seen: list[int] = []

    def more_comes(frame: DataFrame, number: int) -> None:
        fill(producer, topic, 10)
        seen.extend(row.offset for row in frame.select("offset").collect())

    frame = read_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    writer = frame.writeStream.foreachBatch(more_comes).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(TIMEOUT)
    assert seen == list(range(30))
    last = [progress for progress in query.recentProgress if progress.numInputRows][-1]
    assert lag(last) == {TopicPartition(topic, 0): 10}, "what came since"


def test_a_stream_that_goes_on_for_ever(
    spark: Any, admin: Admin, producer: Producer, read_stream: Read, topic: str
) -> None:
    """Latest is the default; a topic that comes later and matches is read in full."""
    admin.create_topic(f"{topic}-a", 1, 3)
    fill(producer, f"{topic}-a", 5)
    frame = read_stream(None, subscribePattern=f"{topic}-.*").select("topic", "offset")
    name = "seen_" + str(abs(hash(topic)))
    query = frame.writeStream.format("memory").queryName(name).start()

    def seen() -> list[tuple[str, int]]:
        return sorted(tuple(row) for row in spark.table(name).collect())

    try:
        query.processAllAvailable()
        assert seen() == []
        fill(producer, f"{topic}-a", 2)
        query.processAllAvailable()
        assert seen() == [(f"{topic}-a", 5), (f"{topic}-a", 6)]
        admin.create_topic(f"{topic}-b", 1, 3)
        fill(producer, f"{topic}-b", 2)
        query.processAllAvailable()
        assert seen()[2:] == [(f"{topic}-b", 0), (f"{topic}-b", 1)]
    finally:
        query.stop()


def test_where_a_query_began_is_kept_though_nothing_came(
    admin: Admin, producer: Producer, stream: Callable[..., Stream], topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 5)
    one = stream(startingOffsets="latest")
    assert one.run() == []
    fill(producer, topic, 5)
    assert [progress.numInputRows for progress in one.run()] == [5]
    assert one.rows() == spans((0, 5, 10))


def test_the_example_of_the_documentation(
    spark: Any, cluster: LocalCluster, admin: Admin, producer: Producer, topic: str, tmp_path: Path
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    (example, *_) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    for old, new in (
        ("localhost:7001", cluster.bootstrap),
        ('"orders"', repr(topic)),
        ("/tmp/orders", str(tmp_path / "orders")),
    ):
        assert old in example
        example = example.replace(old, new)
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 12)
    exec(example, {})
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 12


# --- faults ------------------------------------------------------------------------------


def test_leaders_are_killed_between_and_in_micro_batches(
    make_cluster: MakeCluster, read_stream: Read, topic: str, tmp_path: Path
) -> None:
    cluster = make_cluster(settings=SETTINGS)
    seen: list[tuple[int, int]] = []
    killed: list[int] = []

    def kill_in_the_second(frame: DataFrame, number: int) -> None:
        # The plan of this micro-batch is made; its records are read below.
        if number == 1:
            killed.append(cluster.leader(topic, 0))
            cluster.kill(killed)
        seen.extend((row.partition, row.offset) for row in frame.collect())

    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        admin.create_topic(topic, 2, 3)
        fill(producer, topic, 50, 50)
        frame = read_stream(
            topic, cluster.bootstrap, startingOffsets="earliest", maxOffsetsPerTrigger=20
        )
        writer = frame.select("partition", "offset").writeStream.foreachBatch(kill_in_the_second)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            assert cluster.leader(topic, 0) not in killed
            fill(producer, topic, 5, 5)
            query.processAllAvailable()
        finally:
            query.stop()
    assert sorted(seen) == spans((0, 0, 55), (1, 0, 55))


def test_a_topic_is_deleted_while_a_query_reads_it(
    admin: Admin, producer: Producer, read_stream: Read, topic: str
) -> None:
    from pyspark.errors import StreamingQueryException

    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 5)
    query = read_stream(topic, startingOffsets="earliest").writeStream.format("noop").start()
    query.processAllAvailable()
    admin.delete_topic(topic)
    said = refusal(lambda: query.awaitTermination(TIMEOUT), StreamingQueryException)
    assert said == f"TopicGoneError: topic '{topic}' was deleted while the query read it"


def test_a_topic_is_deleted_and_made_again_while_a_query_is_down(
    cluster: LocalCluster, admin: Admin, stream: Callable[..., Stream], topic: str
) -> None:
    from pyspark.errors import StreamingQueryException

    admin.create_topic(topic, 1, 3)
    fill_anew(cluster, topic, 5)
    one = stream()
    one.run()
    admin.delete_topic(topic)
    make_again(admin, topic)
    fill_anew(cluster, topic, 20)  # by its offset alone the query would go on at 5
    said = refusal(one.run, StreamingQueryException)
    assert f"TopicGoneError: topic '{topic}' was deleted while the query read it" in said
    assert "failOnDataLoss=false goes on without" in said
    stream(failOnDataLoss=False).run()
    assert one.rows() == sorted(spans((0, 0, 5)) + spans((0, 0, 20)))


def fill_anew(cluster: LocalCluster, topic: str, *counts: int) -> None:
    """With a producer of its own: a deleted topic takes its producers' sequences with it."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        fill(producer, topic, *counts)


def make_again(admin: Admin, topic: str) -> None:
    """Creates the topic again, as soon as the old one's last replica is gone."""
    from oncelog.errors import OncelogError

    def made() -> bool:
        try:
            admin.create_topic(topic, 1, 3)
        except OncelogError:
            return False
        return True

    eventually(made, f"{topic} is made again")


def test_a_checkpoint_below_the_start_of_the_log(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    stream: Callable[..., Stream],
    topic: str,
) -> None:
    from pyspark.errors import StreamingQueryException

    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 10)
    one = stream()
    one.run()
    fill(producer, topic, 50)
    start = delete_below(cluster, admin, topic, 30)
    admin.alter_topic(topic, TopicConfig(retention_bytes=-1))
    fill(producer, topic, 20)
    said = refusal(one.run, StreamingQueryException)
    assert said == (
        f"OffsetOutOfRangeError: checkpoint: {topic}-0 begins at offset {start}: 10 to "
        f"{start - 1} are deleted by retention (failOnDataLoss=false goes on without)"
    )
    # Lost records take no part in the limit: no micro-batch is empty.
    done = stream(failOnDataLoss=False, maxOffsetsPerTrigger=15).run()
    assert sum(progress.numInputRows for progress in done) == 80 - start
    assert one.rows() == spans((0, 0, 10), (0, start, 80))


# --- Spark's questions, in this process --------------------------------------------------


@pytest.fixture
def reader(cluster: LocalCluster, topic: str) -> Any:
    """`reader(option=value)`: makes the reader that Spark makes in a process of its own."""
    from pyspark.sql.types import LongType, StructField, StructType

    from oncelog.spark.source.stream import OncelogStreamReader

    made = []

    def make(schema: Any = None, **options: str) -> OncelogStreamReader:
        chosen = {} if options.keys() & {"assign", "subscribePattern"} else {"subscribe": topic}
        if not any(name.startswith("starting") for name in options):
            chosen["startingOffsets"] = "earliest"
        given = {"bootstrap.servers": cluster.bootstrap, **chosen, **options}
        parsed = SourceOptions.parse(given)
        schema = schema or StructType([StructField("offset", LongType())])
        made.append(OncelogStreamReader(parsed, schema))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def ranges(partitions: list[Any]) -> list[tuple[int, int, int]]:
    return [(one.value[0].partition, *one.value[1:3]) for one in partitions]


def test_tasks_of_a_stretch(admin: Admin, producer: Producer, reader: Any, topic: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 30, 10)
    plain, limited = reader(), reader(maxOffsetsPerTrigger="8", minPartitions="5")
    assert plain.getDefaultReadLimit() == ReadAllAvailable()
    assert limited.getDefaultReadLimit() == ReadMaxRows(8)
    start = plain.initialOffset()
    assert plain.reportLatestOffset() is None
    end = plain.latestOffset(start, ReadAllAvailable())
    assert ranges(plain.partitions(start, end)) == [(0, 0, 30), (1, 0, 10)]
    assert plain.latestOffset(end, ReadAllAvailable()) == end
    assert plain.partitions(end, end) == []
    some = limited.latestOffset(start, ReadMaxRows(8))
    assert some[topic] == {"0": 6, "1": 2}
    assert limited.reportLatestOffset()[topic] == {"0": 30, "1": 10}
    assert limited.latestOffset(start, ReadAllAvailable()) == end, "Trigger.Once has no limit"
    assert ranges(limited.partitions(start, some)) == [
        (0, 0, 1), (0, 1, 3), (0, 3, 4), (0, 4, 6), (1, 0, 2)
    ]  # fmt: skip
    # The offsets of a query's progress are startingOffsets for the next query.
    pasted = reader(startingOffsets=json.dumps(some))
    assert pasted.initialOffset() == some


@pytest.mark.parametrize("start", ["latest", "later than all"])
def test_a_restart_in_the_first_micro_batch(
    admin: Admin, producer: Producer, reader: Any, topic: str, start: str
) -> None:
    """Spark has written down where it ends, and asks again where the query begins."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 5)
    chosen: dict[str, str] = {"startingOffsets": "latest"}
    if start != "latest":
        chosen = {"startingTimestamp": "99", "startingOffsetsByTimestampStrategy": "latest"}
    first, again = reader(**chosen), reader(**chosen)
    begin = first.initialOffset()
    fill(producer, topic, 5)
    end = first.latestOffset(begin, ReadAllAvailable())
    assert end[topic] == begin[topic] == {"0": 5}
    assert json.dumps(end) != json.dumps(begin), "or Spark would not write it down"
    fill(producer, topic, 5)
    assert again.initialOffset()[topic] == {"0": 15}, "the beginning as such moves"
    assert again.partitions(again.initialOffset(), end) == []
    rest = again.latestOffset(end, ReadAllAvailable())
    assert ranges(again.partitions(end, rest)) == [(0, 5, 15)]


def test_what_only_a_batch_query_can_have(reader: Any, admin: Admin, topic: str) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    admin.create_topic(topic, 1, 3)
    with pytest.raises(ConfigError, match="endingOffsets is for batch queries"):
        reader(endingOffsets="latest").initialOffset()
    with pytest.raises(ConfigError, match="schema: value is binary, not string"):
        reader(StructType([StructField("value", StringType())])).initialOffset()


def test_a_query_that_spark_refuses_names_the_option(read_stream: Read) -> None:
    from pyspark.errors import StreamingQueryException

    query = read_stream("t", endingOffsets="latest").writeStream.format("noop").start()
    said = refusal(lambda: query.awaitTermination(TIMEOUT), StreamingQueryException)
    assert said.startswith("ConfigError: endingOffsets is for batch queries")


def test_partitions_that_are_not_selected_any_more(
    admin: Admin, producer: Producer, reader: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 5, 5)
    one = {"assign": json.dumps({topic: [1]})}
    start = reader().initialOffset()
    with pytest.raises(TopicGoneError, match=f"{topic}-0 was read until offset 0"):
        reader(**one).latestOffset(start, ReadAllAvailable())
    less = reader(**one, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = less.latestOffset(start, ReadAllAvailable())
    assert "failOnDataLoss=false: " in caplog.text
    assert end[topic] == {"1": 5}
    assert ranges(less.partitions(start, end)) == [(1, 0, 5)]


def test_partitions_that_the_topic_gets_are_read_from_their_start(
    admin: Admin, producer: Producer, reader: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions once seen stay: a node that is behind, and names fewer, is no loss."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 5)
    one = reader()
    before = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    old = admin.describe_topic(topic)
    admin.resize_topic(topic, partitions=3)
    with Producer(bootstrap_servers=admin.config.bootstrap_servers) as new:
        fill(new, topic, 1, 4, 2)
    again = one.latestOffset(before, ReadAllAvailable())
    assert again[topic] == {"0": 6, "1": 4, "2": 2}
    assert ranges(one.partitions(before, again)) == [(0, 5, 6), (1, 0, 4), (2, 0, 2)]
    monkeypatch.setattr(one._planner, "_describe", lambda names, known: [old])
    assert one.latestOffset(again, ReadAllAvailable()) == again
    assert ranges(one.partitions(before, again)) == [(0, 5, 6), (1, 0, 4), (2, 0, 2)]


def test_a_stretch_of_which_retention_took_a_part(
    cluster: LocalCluster, admin: Admin, producer: Producer, reader: Any, topic: str
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 50)
    strict, lax = reader(), reader(failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    first = delete_below(cluster, admin, topic, 20)
    # As after a restart: the stretch is in the checkpoint, and Spark asks for its tasks again.
    with pytest.raises(OffsetOutOfRangeError, match=f"begins at offset {first}: 0 to {first - 1}"):
        strict.partitions(start, end)
    assert ranges(lax.partitions(start, end)) == ([(0, first, 50)] if first < 50 else [])


def test_a_stretch_of_a_topic_that_was_made_again(
    cluster: LocalCluster, admin: Admin, reader: Any, topic: str
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    admin.create_topic(topic, 1, 3)
    fill_anew(cluster, topic, 5)
    strict, lax = reader(), reader(failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    admin.delete_topic(topic)
    make_again(admin, topic)
    fill_anew(cluster, topic, 50)
    with pytest.raises(TopicGoneError, match="was deleted while the query read it"):
        strict.partitions(start, end)
    assert lax.partitions(start, end) == [], "none of the records that it was to read are there"
    again = lax.latestOffset(end, ReadAllAvailable())
    assert ranges(lax.partitions(end, again)) == [(0, 0, 50)]


def test_a_leader_that_knows_less_than_the_query(
    cluster: LocalCluster, admin: Admin, producer: Producer, reader: Any, topic: str
) -> None:
    """A deposed leader that has not heard of it knows less: the query waits for it."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 5)
    place = TopicPartition(topic, 0)
    ids = reader().initialOffset()["@id"]
    ahead = StreamPosition({place: 8}, ids).to_json()
    assert reader().latestOffset(ahead, ReadAllAvailable()) == ahead, "no news, and no error"

    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        consumer.seek(place, 7)
        with pytest.raises(OffsetOutOfRangeError):
            next(consumer.batches(timeout_ms=20_000))
    options = SourceOptions.parse({"bootstrap.servers": cluster.bootstrap, "subscribe": topic})
    batches = in_background(lambda: list(read_range(options, OffsetRange(place, 7, 9), ["offset"])))
    fill(producer, topic, 5)
    assert [n for b in batches.result(TIMEOUT) for n in b.column(0).to_pylist()] == [7, 8]
