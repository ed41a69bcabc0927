"""Batch queries over real nodes: the rows, ranges of them, and every refusal."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from harness.local_cluster import LocalCluster
from harness.ports import free_ports
from oncelog import Admin, Consumer, Header, Producer, Record, TopicConfig
from oncelog.errors import ConfigError, OffsetOutOfRangeError, RequestTimeoutError
from oncelog.spark.source import planning
from oncelog.spark.source.offsets import OffsetRange, StreamPosition
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import Planner
from oncelog.spark.source.reading import JOIN_BYTES, SPLIT_BYTES, read_range
from oncelog.spark.source.schema import COLUMNS as TYPES
from oncelog.spark.source.schema import HEADERS
from oncelog.types import TopicPartition
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually
from tests.spark.conftest import SETTINGS, Read
from tests.spark.gates import Gate, in_background

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MIB = 1024 * 1024
TIMEOUT = 60.0
# Records and their bytes: three times the data between a reader and a gate (30 MB were measured:
# two sockets of Spark's, records fetched ahead, the batch that is being joined).
AHEAD = (40_000, 2_500)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
Span = tuple[int, int, int]  # partition, first offset, offset after the last


def fill(producer: Producer, topic: str, *counts: int, size: int = 10, per_batch: int = 10) -> None:
    """Writes so many records into each partition, in stored batches of `per_batch`."""
    for partition, count in enumerate(counts):
        for start in range(0, count, per_batch):
            rows = range(start, min(start + per_batch, count))
            some = [Record(value_of(partition, n, size), timestamp_us=n * 1000) for n in rows]
            producer.send_batch(topic, partition, some)
    producer.flush()


def value_of(partition: int, number: int, size: int = 10) -> bytes:
    return (b"%d-%d" % (partition, number)).ljust(size, b".")


def places(frame: DataFrame) -> list[tuple[int, int]]:
    """(partition, offset) of all rows, in the order they come."""
    return [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()]


def spans(*ranges: Span) -> list[tuple[int, int]]:
    """The result of `places` for these ranges."""
    return [(partition, n) for partition, start, end in ranges for n in range(start, end)]


def refusal(action: Any, error: type[BaseException] | None = None) -> str:
    """The line of ours in the error that Spark raises: `ConfigError: option: what is wrong`."""
    from pyspark.errors import AnalysisException

    with pytest.raises(error or AnalysisException) as caught:
        action()
    lines = re.findall(r"^oncelog\.\S*?(\w+Error: .*)$", str(caught.value), re.M)
    assert lines, caught.value
    return str(lines[-1])


# --- rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_rows_equal_what_was_produced(
    cluster: LocalCluster, admin: Admin, read: Read, topic: str, codec: Any
) -> None:
    admin.create_topic(topic, 3, 3)
    many: list[Header] = [("a", b"1"), ("a", None), ("ö", b""), ("b", b"\x00\xff")]
    records = [
        Record(b"value", b"key", many, 1_700_000_000_123_456),
        Record(None, None, [], 0),
        Record(b"", b"", [("", b"x")], 1_000_001),
        Record(bytes(range(256)) * 100, None, [], 4_102_444_800_000_000),
        Record(None, b"only a key", many[:1], 1),
    ]
    produced = []
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type=codec) as producer:
        for partition in range(3):
            for turn in range(3):
                some = records[turn:] + records[:turn]
                base = producer.send_batch(topic, partition, some).result(20).base_offset
                produced += [
                    (topic, partition, base + i, r.key, r.value, r.timestamp_us, list(r.headers))
                    for i, r in enumerate(some)
                ]
    frame = read(topic, includeHeaders=True)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    micros = frame.withColumn("timestamp", frame.timestamp.cast("decimal(20,6)") * 1_000_000)
    seen = [
        (r.topic, r.partition, r.offset, r.key, r.value, int(r.timestamp), pairs(r.headers))
        for r in micros.collect()
    ]
    assert sorted(seen, key=lambda row: row[1:3]) == produced


def pairs(headers: Any) -> list[Header]:
    return [(header.key, header.value) for header in headers or ()]


def test_headers_are_left_out_unless_asked_for(
    admin: Admin, producer: Producer, read: Read, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    producer.send(topic, b"x", headers=[("a", b"b")]).result(20)
    frame = read(topic)
    assert frame.columns == list(COLUMNS)
    assert places(frame) == [(0, 0)]


def test_a_timestamp_has_its_zone_whatever_the_session_says(
    spark: Any, admin: Admin, producer: Producer, read: Read, topic: str
) -> None:
    """spark.sql.timestampType is for the user's own DDL."""
    admin.create_topic(topic, 1, 3)
    producer.send(topic, b"x", headers=[("a", b"b")], timestamp_ms=1500).result(20)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = read(topic, includeHeaders=True)
        assert dict(frame.dtypes) == {**TYPES, **HEADERS}
        (row,) = frame.collect()
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert row.timestamp.timestamp() == 1.5


def test_a_schema_names_the_columns_that_are_wanted(
    spark: Any, cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 15, 5)

    def with_schema(schema: str) -> DataFrame:
        reader = spark.read.format("oncelog").schema(schema)
        reader = reader.option("bootstrap.servers", cluster.bootstrap)
        frame: DataFrame = reader.option("subscribe", topic).load()
        return frame

    rows = with_schema("offset bigint, value binary").collect()
    wanted = [(n, value_of(part, n)) for part, count in ((0, 15), (1, 5)) for n in range(count)]
    assert [tuple(row) for row in rows] == wanted
    for schema, says in [
        ("value string", "schema: value is binary, not string"),
        ("val binary", "schema: there is no column val"),
        ("value binary, headers array<struct<key:string,value:binary>>", "includeHeaders=true"),
        ("offset int, key bigint", "offset is bigint, not int; key is binary, not bigint"),
    ]:
        assert says in refusal(with_schema(schema).collect)


def test_an_empty_topic_and_empty_partitions(
    admin: Admin, producer: Producer, read: Read, topic: str
) -> None:
    admin.create_topic(topic, 3, 3)
    assert places(read(topic)) == []
    fill(producer, topic, 0, 3, 0)
    assert places(read(topic)) == spans((1, 0, 3))


def test_a_data_frame_keeps_the_ranges_of_its_first_action(
    admin: Admin, producer: Producer, read: Read, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 5)
    frame = read(topic)
    assert frame.count() == 5
    fill(producer, topic, 5)
    assert frame.count() == 5
    assert read(topic).count() == 10


def test_a_query_that_stops_early_leaves_the_next_one_alone(
    admin: Admin, producer: Producer, read: Read, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 3000, size=4000, per_batch=100)
    assert places(read(topic).limit(3)) == spans((0, 0, 3))
    assert read(topic).count() == 3000


# --- which part of it --------------------------------------------------------------------


def test_offsets_of_both_ends(admin: Admin, producer: Producer, read: Read, topic: str) -> None:
    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 35, 20)

    def named(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    # Stored batches hold ten: all edges lie inside of a batch, or at its edge.
    cases: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
        ({"startingOffsets": "earliest"}, spans((0, 0, 35), (1, 0, 20))),
        ({"startingOffsets": named(13, -2)}, spans((0, 13, 35), (1, 0, 20))),
        ({"startingOffsets": named(35, 10)}, spans((1, 10, 20))),
        ({"endingOffsets": "latest"}, spans((0, 0, 35), (1, 0, 20))),
        ({"endingOffsets": named(7, -1)}, spans((0, 0, 7), (1, 0, 20))),
        (
            {"startingOffsets": named(11, 19), "endingOffsets": named(12, 20)},
            spans((0, 11, 12), (1, 19, 20)),
        ),
        ({"startingOffsets": named(5, 5), "endingOffsets": named(5, 5)}, []),
    ]
    for options, wanted in cases:
        assert places(read(topic, **options)) == wanted, options


def test_times_of_both_ends(admin: Admin, producer: Producer, read: Read, topic: str) -> None:
    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 40, 20)  # record n has the time n ms; batches of ten are found whole

    def times(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    cases: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
        ({"startingTimestamp": 15}, spans((0, 10, 40), (1, 10, 20))),
        ({"startingOffsetsByTimestamp": times(30, 0)}, spans((0, 30, 40), (1, 0, 20))),
        ({"endingTimestamp": 10}, spans((0, 0, 10), (1, 0, 10))),
        ({"endingOffsetsByTimestamp": times(25, 99)}, spans((0, 0, 20), (1, 0, 20))),
        ({"startingTimestamp": 10, "endingTimestamp": 30}, spans((0, 10, 30), (1, 10, 20))),
        (
            {"startingTimestamp": 25, "startingOffsetsByTimestampStrategy": "latest"},
            spans((0, 20, 40)),
        ),
    ]
    for options, wanted in cases:
        assert places(read(topic, **options)) == wanted, options
    said = refusal(read(topic, startingTimestamp=25).collect)
    assert f"startingTimestamp: no record at or after this time in {topic}-1 (25 ms)" in said


def test_a_record_that_comes_while_times_are_looked_up_is_not_skipped(
    admin: Admin,
    producer: Producer,
    cluster: LocalCluster,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is behind a start without records, and not before an end that is older than it."""
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 10)
    look_up = Consumer.offsets_for_times

    def look_up_before_a_record(*asked: Any) -> Any:
        found = look_up(*asked)
        producer.send(topic, b"meanwhile", partition=0, timestamp_ms=99).result(TIMEOUT)
        return found

    monkeypatch.setattr(Consumer, "offsets_for_times", look_up_before_a_record)
    given = {"bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    place = StreamPosition({TopicPartition(topic, 0): 0})
    late = {"startingTimestamp": "99", "startingOffsetsByTimestampStrategy": "latest"}
    with Planner(SourceOptions.parse({**given, **late})) as planner:
        assert set(planner.starting(place, place.offsets, 0).values()) == {10}
    with Planner(SourceOptions.parse({**given, "endingTimestamp": "100"})) as planner:
        assert set(planner.ending(place).values()) == {11}


def test_which_topics(admin: Admin, producer: Producer, read: Read, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b", f"x-{topic}-a"]
    for name in names:
        admin.create_topic(name, 2, 3)
        fill(producer, name, 2, 3)

    def counts(**options: object) -> list[tuple[str, int]]:
        rows = read(None, **options).groupBy("topic").count().collect()
        return sorted((row[0], row[1]) for row in rows)

    assert counts(subscribe=f"{names[0]}, {names[2]}") == [(names[0], 5), (names[2], 5)]
    assert counts(assign=json.dumps({names[0]: [1], names[1]: [0, 1]})) == [
        (names[0], 3),
        (names[1], 5),
    ]
    assert counts(subscribePattern=f"{topic}-.*") == [(names[0], 5), (names[1], 5)]


def test_min_partitions_cuts_large_ranges(
    admin: Admin, producer: Producer, read: Read, topic: str
) -> None:
    admin.create_topic(topic, 3, 3)
    fill(producer, topic, 75, 25, 0)
    whole = read(topic)
    assert whole.rdd.getNumPartitions() == 2
    cut = read(topic, minPartitions=4)
    assert cut.rdd.getNumPartitions() == 4
    assert places(cut) == places(whole) == spans((0, 0, 75), (1, 0, 25))
    assert read(topic, minPartitions=1).rdd.getNumPartitions() == 2
    assert read(topic, minPartitions=1000).rdd.getNumPartitions() == 100


# --- refusals ----------------------------------------------------------------------------


def test_a_wrong_option_is_refused_by_load(read: Read) -> None:
    said = refusal(lambda: read("t", failOnDataLoss="perhaps"))
    assert said == "ConfigError: failOnDataLoss must be true or false, got 'perhaps'"
    said = refusal(lambda: read("t", startingOffset="latest"))
    assert said.endswith("did you mean startingOffsets?")


def test_what_does_not_fit_the_topic_is_refused_when_it_is_planned(
    admin: Admin, producer: Producer, read: Read, topic: str
) -> None:
    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 10, 10)
    said = refusal(read(f"{topic}-none").collect)
    assert said == f"ConfigError: subscribe: topic '{topic}-none' does not exist"
    said = refusal(read(topic, startingOffsets=json.dumps({topic: {"0": 5}})).collect)
    assert said.startswith(f"ConfigError: startingOffsets misses {topic}-1: it must name all")
    said = refusal(read(topic, startingOffsets="latest").collect)
    assert said.startswith("ConfigError: startingOffsets: a batch query cannot start at latest")


def test_every_refusal_of_a_plan(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plans in this process: Spark's readers ask the same planner."""
    # An offset past the end is believed at once: no leader was deposed.
    monkeypatch.setattr(planning, "_DEPOSED_S", 0.0)
    admin.create_topic(topic, 2, 3)
    fill(producer, topic, 10, 10)
    missing = f"{topic}-none"

    def offsets(*numbers: int, **more: object) -> str:
        each = {str(partition): number for partition, number in enumerate(numbers)}
        return json.dumps({topic: each, **more})

    one_missing = json.dumps({topic: [2]})
    cases: list[tuple[dict[str, str], str]] = [
        ({"subscribePattern": f"{missing}.*"}, "subscribePattern: no topic matches"),
        ({"assign": json.dumps({missing: [0]})}, f"assign: topic '{missing}' does not exist"),
        ({"assign": one_missing}, f"assign: topic '{topic}' has the partitions 0 to 1, not 2"),
        (
            {"startingOffsets": offsets(1, 1, 1)},
            f"startingOffsets names {topic}-2, not selected or not there",
        ),
        (
            {"startingOffsets": offsets(11, 0)},
            f"startingOffsets: offset 11 of {topic}-0 is past its end, 10",
        ),
        (
            {"endingOffsets": offsets(10, 12)},
            f"endingOffsets: offset 12 of {topic}-1 is past its end, 10",
        ),
        (
            {"startingOffsets": offsets(5, 5), "endingOffsets": offsets(5, 4)},
            f"endingOffsets and startingOffsets: {topic}-1 would end at 4, before its start 5",
        ),
        (
            {"startingOffsets": offsets(1, 1, **{"@id": {topic: "1-1"}})},
            f"startingOffsets: these are offsets of another topic '{topic}'",
        ),
        ({"startingTimestamp": "99"}, "startingTimestamp: no record at or after this time"),
    ]
    for options, says in cases:
        chosen = {} if options.keys() & {"subscribePattern", "assign"} else {"subscribe": topic}
        parsed = SourceOptions.parse({"bootstrap.servers": cluster.bootstrap, **chosen, **options})
        with Planner(parsed) as planner, pytest.raises(ConfigError, match=re.escape(says)):
            planner.batch()


def test_nodes_that_cannot_be_reached(read: Read) -> None:
    (port,) = free_ports(1)
    frame = read("t", bootstrap=f"127.0.0.1:{port}", pollTimeoutMs=1000)
    assert f"127.0.0.1:{port}" in refusal(frame.collect)


# --- how it is read: in this process, as a worker does it -------------------------------


def options_for(cluster: LocalCluster, topic: str, **options: str) -> SourceOptions:
    return SourceOptions.parse(
        {"bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options}
    )


def test_small_batches_are_joined_and_large_ones_split(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 3, 3, TopicConfig(max_batch_bytes=10 * MIB))
    fill(producer, topic, 5000, size=1000, per_batch=10)
    large = [Record(value_of(1, n, 1000)) for n in range(9000)]
    producer.send_batch(topic, 1, large).result(20)
    producer.send_batch(topic, 2, [Record(bytes(6 * MIB)), Record(b"x")]).result(20)

    def sizes(partition: int, count: int) -> list[int]:
        one = OffsetRange(TopicPartition(topic, partition), 0, count)
        batches = list(read_range(options_for(cluster, topic), one, COLUMNS))
        offsets = [n for batch in batches for n in batch.column("offset").to_pylist()]
        assert offsets == list(range(count))
        return [batch.nbytes for batch in batches]

    joined = sizes(0, 5000)
    assert all(JOIN_BYTES <= size <= SPLIT_BYTES for size in joined[:-1])
    assert len(joined) <= 6, "500 stored batches"
    cut = sizes(1, 9000)
    assert len(cut) == 3 and max(cut) <= SPLIT_BYTES
    assert len(sizes(2, 2)) == 2, "a single record stays whole"


def test_a_record_that_never_comes_is_a_timeout(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 5)
    one = OffsetRange(TopicPartition(topic, 0), 3, 6)  # the log ends at 5
    batches = read_range(options_for(cluster, topic, pollTimeoutMs="1000"), one, COLUMNS)
    with pytest.raises(
        RequestTimeoutError,
        match=f"{topic}-0: no record at offset [35] for .*=1000, of the range 3 to 5",
    ):
        list(batches)


# --- faults ------------------------------------------------------------------------------


def delete_below(cluster: LocalCluster, admin: Admin, topic: str, offset: int) -> int:
    """Have retention delete at least the records of partition 0 below it; the new log start."""
    admin.alter_topic(topic, TopicConfig(retention_bytes=1))
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        start = 0

        def deleted() -> bool:
            nonlocal start
            (start,) = consumer.beginning_offsets([(topic, 0)]).values()
            return start >= offset

        eventually(deleted, f"the log of {topic} begins at {offset} or later")
    return start


def test_offsets_below_the_start_of_the_log(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    read: Read,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin.create_topic(topic, 1, 3)
    fill(producer, topic, 100)
    start = delete_below(cluster, admin, topic, 50)
    admin.alter_topic(topic, TopicConfig(retention_bytes=-1))
    fill(producer, topic, 20)
    from_20 = json.dumps({topic: {"0": 20}})
    said = refusal(read(topic, startingOffsets=from_20).collect)
    assert said == (
        f"OffsetOutOfRangeError: startingOffsets: {topic}-0 begins at offset {start}: 20 to "
        f"{start - 1} are deleted by retention (failOnDataLoss=false goes on without)"
    )
    skipping = read(topic, startingOffsets=from_20, failOnDataLoss=False)
    assert places(skipping) == spans((0, start, 120))
    assert places(read(topic)) == spans((0, start, 120)), "earliest is what is there"

    # The same error after the plan, as a worker meets it.
    one = OffsetRange(TopicPartition(topic, 0), 20, 110)
    with pytest.raises(OffsetOutOfRangeError, match=f"begins at offset {start} now: 20 to"):
        list(read_range(options_for(cluster, topic), one, COLUMNS))
    with caplog.at_level(logging.WARNING):
        batches = list(
            read_range(options_for(cluster, topic, failOnDataLoss="false"), one, COLUMNS)
        )
    assert [n for b in batches for n in b.column("offset").to_pylist()] == list(range(start, 110))
    assert f"failOnDataLoss=false: {topic}-0 begins at offset {start} now" in caplog.text
    nothing_left = OffsetRange(one.tp, 20, start)
    skipping_options = options_for(cluster, topic, failOnDataLoss="false")
    assert list(read_range(skipping_options, nothing_left, COLUMNS)) == []


def test_a_leader_is_killed_in_the_middle_of_a_read(
    make_cluster: MakeCluster, read: Read, topic: str, tmp_path: Path
) -> None:
    cluster = make_cluster(settings=SETTINGS)
    count, size = AHEAD
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        admin.create_topic(topic, 1, 3)
        fill(producer, topic, count, size=size, per_batch=200)
    gate = Gate(tmp_path)
    frame = read(topic, bootstrap=cluster.bootstrap).select("partition", "offset", "value")
    rows = in_background(lambda: frame.mapInArrow(gate.hold, frame.schema).collect())
    gate.wait_reached(1)
    leader = cluster.leader(topic, 0)
    cluster.kill([leader])
    with pytest.raises(grpc.RpcError):
        cluster.api(leader).fetch(topic, 0, count - 1)  # a reader of it gets nothing
    gate.open()
    seen = [(row.partition, row.offset, row.value) for row in rows.result(TIMEOUT)]
    assert seen == [(0, n, value_of(0, n, size)) for n in range(count)]
    assert cluster.leader(topic, 0) != leader


def test_a_topic_is_deleted_in_the_middle_of_a_read(
    cluster: LocalCluster, admin: Admin, producer: Producer, read: Read, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import PythonException

    admin.create_topic(topic, 1, 3)
    count, size = AHEAD
    fill(producer, topic, count, size=size, per_batch=200)
    gate = Gate(tmp_path)
    frame = read(topic).select("offset", "value")
    rows = in_background(lambda: frame.mapInArrow(gate.hold, frame.schema).collect())
    gate.wait_reached(1)
    admin.delete_topic(topic)
    gate.open()
    said = refusal(lambda: rows.result(TIMEOUT), PythonException)
    assert said == f"TopicGoneError: {topic}-0 was deleted while it was read"
