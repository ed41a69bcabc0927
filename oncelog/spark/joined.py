"""Table and topic as one DataFrame: history from files, newer records from the topic.

    orders = oncelog.spark.table(spark, "orders", "s3://bucket/tables/orders",
                                 bootstrap_servers="localhost:7001")

Place in the flow: one version of the table (`oncelog.table`) gives the files and the positions. A
batch query reads the files natively, with Spark's own pruning and filters, and the topic from the
positions on. A stream reads ranges of offsets, of which `source.history` takes the older ones from
the files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncelog.admin import Admin
from oncelog.config import bootstrap_of
from oncelog.spark.source.offsets import EARLIEST
from oncelog.spark.source.schema import columns_as_types
from oncelog.table.delta import DeltaTopic
from oncelog.table.files import TablePartition, owner_of, table_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(
    spark: SparkSession,
    topic: str,
    uri: str,
    *,
    bootstrap_servers: str | Sequence[str] | None = None,
    streaming: bool = False,
    options: dict[str, str] | None = None,
) -> DataFrame:
    """Return all records of a topic, each once: those of its table, then the topic's newer ones.

    `uri`: of the table, as `oncelog table run` made it. Columns: those of `format("oncelog")`.
    `options`: more options of the source. `streaming`: a stream from the first record on. Raises
    TableError.
    """
    bootstrap = bootstrap_of(bootstrap_servers)
    folder, _, name = uri.rstrip("/").rpartition("/")
    url = table_url(folder, name)
    more = {
        **(options or {}),
        "bootstrap.servers": ",".join(bootstrap),
        "subscribe": topic,
        "includeHeaders": "true",
    }
    if streaming:
        reader = spark.readStream.format("oncelog").options(**more)
        return reader.option("table", url).option("startingOffsets", "earliest").load()
    with Admin(bootstrap_servers=bootstrap) as admin:
        opened = DeltaTopic.open(url, owner_of(admin.describe_cluster()), topic)
        info = admin.describe_topic(topic)
    places = [TablePartition(info.topic_id, number) for number in range(info.partition_count)]
    positions = {str(place.partition): opened.position(place) for place in places}
    starts = {number: EARLIEST if at is None else at for number, at in positions.items()}
    newer = (
        spark.read.format("oncelog")
        .options(**more)
        .option("startingOffsets", json.dumps({topic: starts}))
        .load()
    )
    files = [opened.spark_path(file.path) for place in places for file in opened.files(place)]
    return _history(spark, topic, opened.spark_path(""), files).unionByName(newer)


def _history(spark: SparkSession, topic: str, root: str, files: list[str]) -> DataFrame:
    from pyspark.sql import functions as sql
    from pyspark.sql.types import IntegerType, LongType, StructType

    columns = columns_as_types(include_headers=True)
    stored = StructType([one for one in columns.fields if one.name not in ("topic", "partition")])
    stored = stored.add("topic_id", LongType()).add("partition", IntegerType())
    if not files:
        return spark.createDataFrame([], columns)
    read = spark.read.schema(stored).option("basePath", root).parquet(*files)
    return read.withColumn("topic", sql.lit(topic)).select(*columns.fieldNames())
