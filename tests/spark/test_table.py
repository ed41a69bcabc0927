"""`oncelog.spark.table`: table and topic in one query, each record once at the seam."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer, TopicConfig
from oncelog.spark import table
from oncelog.table.run import Archiver, TableSettings
from tests.spark.copies import TIMEOUT_S
from tests.spark.test_source_batch import delete_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake")


def archive(cluster: LocalCluster, topic: str, to: Path) -> None:
    settings = TableSettings(merge_below=0)
    Archiver([topic], str(to), bootstrap_servers=cluster.bootstrap, settings=settings).run(
        exit_at_end=True
    )


def send(producer: Producer, topic: str, numbers: range) -> None:
    for n in numbers:
        producer.send(topic, b"%d" % n, headers={"n": str(n)}, partition=n % 2)
    producer.flush()


def test_each_record_of_table_and_topic_is_there_once(
    spark: SparkSession,
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    topic: str,
    tmp_path: Path,
) -> None:
    """The log's head is deleted: only the table has those records."""
    admin.create_topic(topic, 2, 3)
    for numbers in (range(60), range(60, 100)):
        send(producer, topic, numbers)
        archive(cluster, topic, tmp_path)
    assert delete_below(cluster, admin, topic, 20) <= 50
    admin.alter_topic(topic, TopicConfig(retention_bytes=-1))
    send(producer, topic, range(100, 120))
    uri = str(tmp_path / topic)

    frame = table(spark, topic, uri, bootstrap_servers=cluster.bootstrap)
    rows = frame.collect()
    assert sorted(int(row.value) for row in rows) == list(range(120))
    assert len({(row.topic, row.partition, row.offset) for row in rows}) == 120
    assert all(row.headers[0].value == row.value for row in rows)
    plan = frame.select("offset")._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<offset:bigint>" in plan

    stream = table(
        spark,
        topic,
        uri,
        bootstrap_servers=cluster.bootstrap,
        streaming=True,
        options={"maxOffsetsPerTrigger": "30"},
    )
    for more in (range(0), range(120, 130)):
        send(producer, topic, more)
        query = (
            stream.selectExpr("cast(value as string) value", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "notes"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(TIMEOUT_S))
        # The table moves on between two runs of the query.
        archive(cluster, topic, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row.value) for row in found) == list(range(130))
