"""Topic -> Spark -> topic -> table: the delays of each airport and hour, each there once.

The part to copy. It does not depend on the source of the records, nor on faults of nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.flights.data import LATE_MINUTES, UNKNOWN, VISIBILITY, WIND, table
from oncelog.spark import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.streaming.query import StreamingQuery

# Spark's own connector for Kafka, and where it and ours look for the nodes.
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
SERVERS = {"oncelog": "bootstrap.servers", "kafka": "kafka.bootstrap.servers"}
FLIGHT = "carrier string, flight int, origin string, dest string, dep_delay int"


def session(master: str = "local[*]", packages: str = "") -> SparkSession:
    """Return Spark in this process, with as many tasks at a time as there are cores.

    packages: to fetch from Maven Central, such as CONNECTOR.
    """
    ensure_java()
    # The workers use this program's Python, with oncelog installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("flights")
    if packages:
        builder = builder.config("spark.jars.packages", packages)
    spark = (
        builder.config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # One file for each task of the aggregation and trigger: the default of 200 is too many.
        .config("spark.sql.shuffle.partitions", "2")
        # The page shows all triggers of the run, not the last hundred.
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        # Each partition has its watermark, and the slowest one counts (see `departures`). It is the
        # default, and the result depends on it.
        .config("spark.sql.streaming.multipleWatermarkPolicy", "min")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def departures(
    spark: SparkSession, bootstrap: str, topic: str, partitions: int, source: str = "oncelog"
) -> DataFrame:
    """Return the topic as a stream of flights, with a watermark.

    source: "oncelog", or "kafka" for Spark's connector.

    A watermark says: no older record comes any more. With one for the whole topic it would run
    ahead with the fastest partition, and flights of a partition that waits for its new leader would
    be dropped as late. So there is one for each partition. It needs no allowance for late records,
    because Oncelog keeps a partition in its producer's order, and Spark goes by the slowest of
    them. (An allowance for the longest stall is simpler with many partitions, or if event time
    passes no faster than time.)
    """

    def one(partition: int) -> DataFrame:
        reader = (
            spark.readStream.format(source)
            .option(SERVERS[source], bootstrap)
            .option("assign", json.dumps({topic: [partition]}))
            .option("startingOffsets", "earliest")
        )
        if source == "oncelog":  # the other columns stay in Python
            reader = reader.schema("value binary, timestamp timestamp")
        return reader.load().select("value", "timestamp").withWatermark("timestamp", "0 seconds")

    records = reduce(DataFrame.union, [one(partition) for partition in range(partitions)])
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    return records.select("timestamp", flight.alias("flight")).select("timestamp", "flight.*")


def with_tables(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """Join the flights with the names of airline and airports, and the weather of the hour."""

    def read(name: str) -> DataFrame:
        # Cached, because a query reads its tables again in each micro-batch.
        return spark.read.csv(str(table(name)), header=True, nullValue="NA").cache()

    airlines = read("airlines").select("carrier", F.col("name").alias("airline"))
    airports = read("airports")
    origins = airports.select(F.col("faa").alias("origin"), F.col("name").alias("airport"))
    dests = airports.select(F.col("faa").alias("dest"), F.col("name").alias("destination"))
    weather = read("weather").select(
        "origin",
        F.to_timestamp("time_hour").alias("weather_hour"),
        _class(F.col("wind_speed").cast("double"), WIND).alias("wind"),
        _class(F.col("visib").cast("double"), VISIBILITY).alias("visibility"),
    )
    return (
        # Left joins: a flight is counted, though a table may not know its airport or weather.
        flights.withColumn("weather_hour", F.date_trunc("hour", "timestamp"))
        .join(F.broadcast(airlines), "carrier", "left")
        .join(F.broadcast(origins), "origin", "left")
        .join(F.broadcast(dests), "dest", "left")
        .join(F.broadcast(weather), ["origin", "weather_hour"], "left")
        .fillna(UNKNOWN, ["wind", "visibility"])
        .withColumn("destination", F.coalesce("destination", "dest"))
    )


def _class(value: Column, classes: tuple[tuple[float, str], ...]) -> Column:
    names = [F.when(value < end, F.lit(name)) for end, name in classes]
    return F.coalesce(*names, F.lit(UNKNOWN))


def delays(flights: DataFrame) -> DataFrame:
    """Return a row for each airport and hour: number of flights, delays, and the worst of them."""
    delay = F.col("dep_delay")
    number = F.concat_ws(" ", "carrier", "flight")
    # The largest delay decides, then the names: the result does not depend on the order of rows.
    worst = F.max(
        F.when(
            delay.isNotNull(),
            F.struct(
                delay.alias("delay"),
                number.alias("flight"),
                F.col("airline"),
                F.col("destination"),
            ),
        )
    )
    return (
        flights.groupBy(F.window("timestamp", "1 hour"), "origin", "airport", "wind", "visibility")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(delay.isNull()).alias("cancelled"),
            F.avg(delay).alias("mean_delay"),
            F.avg((delay > LATE_MINUTES).cast("double")).alias("late_share"),
            worst.alias("worst"),
        )
        .select(
            "origin",
            F.col("window.start").alias("hour"),
            "airport",
            "wind",
            "visibility",
            "flights",
            "cancelled",
            "mean_delay",
            "late_share",
            *(F.col(f"worst.{name}").alias(f"worst_{name}") for name in _WORST),
        )
    )


_WORST = ("delay", "flight", "airline", "destination")


def start(
    rows: DataFrame,
    directory: Path,
    bootstrap: str,
    topic: str,
    mode: str = "append",
    sink: str = "oncelog",
) -> StreamingQuery:
    """Write each row into a topic: when the watermark has passed its hour, or at each change."""
    # All rows of an airport are in one partition, so those of an hour stay in their order.
    records = rows.select(
        F.col("origin").alias("key"),
        F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
    )
    options = {SERVERS.get(sink, SERVERS["oncelog"]): bootstrap, "topic": topic}
    if sink == "oncelog":
        # The cluster keeps the written micro-batches under this name.
        options["sinkId"] = topic

    def batch(rows: DataFrame, number: int) -> None:
        job = rows.write.format(sink).mode("append").options(**options)
        (job.option("batchId", number) if sink == "oncelog" else job).save()

    query = records.writeStream.outputMode(mode)
    # In update mode Spark gives no Python sink a stream; each micro-batch as a job it does.
    query = query.foreachBatch(batch) if mode == "update" else query.format(sink).options(**options)
    return (
        # A query that is restarted here goes on at its last position.
        query.option("checkpointLocation", str(directory / f"checkpoint-{topic}"))
        .trigger(processingTime="2 seconds")
        .start()
    )


def archive(bootstrap: str, topic: str, directory: Path) -> Path:
    """Write the topic into a table of Parquet files; return the table's directory."""
    words = ["table", "run", topic, "--to", str(directory), "--exit-at-end", "-b", bootstrap]
    subprocess.run([sys.executable, "-m", "oncelog.cli", *words], check=True)
    return directory / topic


def results(table: Path) -> Any:
    """Return the rows of a table that `archive` made, by a plain reader of Parquet.

    Without those of the end of the stream, which update mode writes, too. A filter in the query
    would be moved below the watermark, which then never saw the end of the stream.
    """
    stored = pd.read_parquet(table, columns=["key", "value"])  # each partition in offset order
    rows = [json.loads(value) for value in stored["value"][stored["key"].notna()]]
    found = pd.DataFrame(rows)
    found["hour"] = pd.to_datetime(found["hour"], utc=True)
    return found


__all__ = ["archive", "delays", "departures", "results", "session", "start", "with_tables"]
