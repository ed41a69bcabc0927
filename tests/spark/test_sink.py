"""The sink with real PySpark over real nodes. Each fault is shown on a naive sink first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin
from oncelog._engine.produce.partitioners import murmur2
from tests.spark.naive_sink import NaiveSink
from tests.spark.sinks import FailsOnce, Lines, Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    made = Lines(tmp_path / "lines")
    made.add(2)
    return made


@pytest.fixture
def output(cluster: LocalCluster, admin: Admin, topic: str, tmp_path: Path) -> Output:
    admin.create_topic(topic, 2, 3)
    return Output(cluster.bootstrap, topic, tmp_path)


@pytest.fixture
def naive(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, topic: str, tmp_path: Path
) -> Output:
    spark.dataSource.register(NaiveSink)
    admin.create_topic(f"{topic}-naive", 2, 3)
    return Output(cluster.bootstrap, f"{topic}-naive", tmp_path, "naive")


# --- a job -----------------------------------------------------------------------------


def test_a_job_writes_all_columns_and_its_batch_id_once(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, topic: str, read: Read
) -> None:
    admin.create_topic(topic, 3, 3)
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "CAST(id AS STRING) AS value",
        "IF(id % 3 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS key",
        "IF(id % 5 = 0, CAST(id % 3 AS INT), NULL) AS partition",
        "TIMESTAMP_MILLIS(id) AS timestamp",
        "IF(id % 7 = 0, ARRAY(NAMED_STRUCT('key', 'h', 'value', CAST('x' AS BINARY))), NULL)"
        " AS headers",
        f"'{topic}' AS topic",
    )

    def write(**options: Any) -> None:
        writer = frame.write.format("oncelog").mode("append")
        for name, value in {"bootstrap.servers": cluster.bootstrap, **options}.items():
            writer = writer.option(name, value)
        writer.save()

    write(sinkId=f"{topic}-job", batchId=7)
    write(sinkId=f"{topic}-job", batchId=7)
    rows = read(topic, includeHeaders=True).collect()
    assert sorted(int(row.value) for row in rows) == list(range(1000))
    for row in rows:
        number = int(row.value)
        assert (row.key is None) == (number % 3 == 0)
        assert number % 5 or row.partition == number % 3
        assert row.timestamp.timestamp() * 1000 == number
        assert bool(row.headers) == (number % 7 == 0)
    info = admin.describe_sink(f"{topic}-job")
    assert info.jobs and info.committed == ((7, 7),) and info.record_count == 1000
    write(sinkId=f"{topic}-job", batchId=3)
    write()
    assert read(topic).count() == 3000


@pytest.mark.parametrize("kind", ["STRING", "BINARY"])
def test_a_key_decides_the_partition_in_whatever_layout_it_comes(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, topic: str, read: Read, kind: str
) -> None:
    admin.create_topic(topic, 3, 3)
    frame = spark.range(0, 200, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", f"CAST(CAST(id AS STRING) AS {kind}) AS key"
    )
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(setting, "true")
    try:
        writer = frame.write.format("oncelog").mode("append").option("topic", topic)
        writer.option("bootstrap.servers", cluster.bootstrap).save()
        rows = read(topic).collect()
    finally:
        spark.conf.unset(setting)
    assert sorted(int(row.value) for row in rows) == list(range(200))
    for row in rows:
        assert row.partition == (murmur2(bytes(row.key)) & 0x7FFFFFFF) % 3


def test_what_a_sink_does_not_take(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    def refusal(frame: Any, mode: str = "append", **options: Any) -> str:
        writer = frame.write.format("oncelog").mode(mode)
        given = {"bootstrap.servers": cluster.bootstrap, "topic": topic, **options}
        for name, value in given.items():
            writer = writer.option(name, value)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            writer.save()
        return str(caught.value)

    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    assert "only ever added to" in refusal(frame, "overwrite")
    assert "sinkId and batchId come together" in refusal(frame, sinkId="x")
    assert "did you mean sinkId" in refusal(frame, sinkID_="x")
    assert "column 'id'" in refusal(spark.range(3))
    assert "column 'value' is bigint" in refusal(spark.range(3).withColumnRenamed("id", "value"))


# --- a stream --------------------------------------------------------------------------


def test_a_replayed_batch_is_there_once(
    spark: SparkSession, lines: Lines, output: Output, naive: Output, admin: Admin
) -> None:
    """The driver died between the sink's commit and Spark's own: all of the batch comes again."""
    for one in (naive, output):
        one.run(lines.frame(spark))
        one.forget_last_commit()
    lines.add()
    for one in (naive, output):
        one.run(lines.frame(spark, tasks=3))
    assert output.numbers() == list(range(lines.count))
    assert len(naive.numbers()) > lines.count
    info = admin.describe_sink(output.sink)
    assert (info.query, info.committed_batch) == (output.query_id(), 2)


def test_what_a_failed_attempt_staged_is_dropped(
    spark: SparkSession, output: Output, naive: Output, tmp_path: Path
) -> None:
    """Records are so large that the writer has taken some when the task fails behind them."""
    lines = Lines(tmp_path / "large", rows=10_000)
    lines.add()
    for one in (naive, output):
        frame = lines.frame(spark).selectExpr("lpad(value, 1000, '0') AS value", "partition")
        fails = FailsOnce(tmp_path / one.format)
        one.run(frame.mapInArrow(fails.rows, frame.schema))
    assert output.numbers() == list(range(lines.count))
    assert len(naive.numbers()) > lines.count


def test_a_lost_checkpoint_is_noticed(
    spark: SparkSession, lines: Lines, output: Output, naive: Output, tmp_path: Path
) -> None:
    for one in (naive, output):
        one.run(lines.frame(spark))
        one.lose_checkpoint()
    naive.run(lines.frame(spark))
    assert len(naive.numbers()) == 2 * lines.count
    assert "belongs to query" in output.fails(lines.frame(spark))
    output.lose_checkpoint()
    rest = Lines(tmp_path / "rest")  # its user begins where the sink ends
    rest.count = lines.count
    rest.add()
    token = re.findall(r"sinkReset=(\S+)", output.fails(rest.frame(spark)))[0]
    output.run(rest.frame(spark), sinkReset=token)
    assert output.numbers() == list(range(rest.count))


def test_an_older_checkpoint_is_noticed(
    spark: SparkSession, lines: Lines, output: Output, naive: Output
) -> None:
    for one in (naive, output):
        one.run(lines.frame(spark))
    back = [one.copy_checkpoint() for one in (naive, output)]
    lines.add(2)
    for one, put_back in zip((naive, output), back, strict=True):
        one.run(lines.frame(spark))
        put_back()
    naive.run(lines.frame(spark))
    assert len(naive.numbers()) > lines.count
    assert "the checkpoint is older" in output.fails(lines.frame(spark))
    assert output.numbers() == list(range(lines.count))


def test_a_sink_is_of_one_query(spark: SparkSession, lines: Lines, output: Output) -> None:
    output.run(lines.frame(spark))
    output.sink += " renamed"
    lines.add()
    assert "writes into sink" in output.fails(lines.frame(spark))
    assert "sinkId must have" in output.fails(lines.frame(spark), sinkId="")


def test_a_batch_without_rows_counts(
    spark: SparkSession, lines: Lines, output: Output, admin: Admin
) -> None:
    """Its number is written down; otherwise the next batch would leave a gap."""
    output.run(lines.frame(spark).where("value < 0"))
    assert output.numbers() == []
    info = admin.describe_sink(output.sink)
    assert (info.committed_batch, info.record_count) == (1, 0)
    output.forget_last_commit()
    first = lines.count
    lines.add()
    output.run(lines.frame(spark).where(f"value >= {first}"))
    assert output.numbers() == list(range(first, lines.count))
    assert admin.describe_sink(output.sink).committed_batch == 2


@pytest.mark.slow
def test_two_hundred_tasks_and_64_partitions(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """Some 12,000 winners in one batch, which then comes again with another plan."""
    admin.create_topic(topic, 64, 3)
    output = Output(cluster.bootstrap, topic, tmp_path)
    lines = Lines(tmp_path / "many", rows=40_000)
    lines.add()

    def frame(tasks: int) -> DataFrame:
        everywhere = "CAST(CAST(value AS INT) % 64 AS INT) AS partition"
        return lines.frame(spark, tasks).selectExpr("value", everywhere)

    output.run(frame(200))
    output.forget_last_commit()
    lines.add()
    output.run(frame(7))
    assert output.numbers() == list(range(lines.count))
