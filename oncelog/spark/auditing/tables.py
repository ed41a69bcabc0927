"""Tables of an audit: its findings, counted by partition, by producer and over time.

Place in the flow: `run` writes the tables as Parquet; the page gets the small part of them that it
can show, as plain Python values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from oncelog.spark.auditing.checks import PLACED_IN_COPY
from oncelog.spark.auditing.page import CELLS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMES = 120  # stretches of time
PARTITIONS, PRODUCERS, EXAMPLES = 64, 30, 200  # on a page


class AuditTables:
    """`rows`: those of both sides, with the column `side`; `found`: the findings."""

    def __init__(self, rows: DataFrame, found: DataFrame, kinds: list[str]) -> None:
        self._rows = rows
        self._found = found
        self._kinds = kinds

    def seen(self) -> dict[str, int]:
        """Count the records of each side, and the producers of the topic."""
        row = self._rows.agg(
            f.count_if(f.col("side") == "topic").alias("topic"),
            f.count_if(f.col("side") == "copy").alias("copy"),
            f.count_distinct(f.when(f.col("side") == "topic", f.col("producer"))).alias(
                "producers"
            ),
        ).collect()[0]
        return dict(row.asDict())

    def faults(self) -> dict[str, int]:
        """Return kind -> number of records or numbers."""
        sums = self._found.groupBy("kind").agg(f.sum("amount").alias("n")).collect()
        amounts = {row["kind"]: int(row["n"]) for row in sums}
        return {kind: amounts.get(kind, 0) for kind in self._kinds}

    # --- Parquet -----------------------------------------------------------------------

    def all(self) -> dict[str, DataFrame]:
        return {
            "partitions": self._partitions(),
            "producers": self._producers(),
            "times": self._times(),
        }

    def _partitions(self) -> DataFrame:
        records = self._rows.groupBy("side", "partition").agg(
            f.count("*").alias("records"),
            f.min("offset").alias("first_offset"),
            f.max("offset").alias("last_offset"),
            f.sum("bytes").alias("bytes"),
            f.min("timestamp").alias("first_timestamp"),
            f.max("timestamp").alias("last_timestamp"),
        )
        placed = self._found.where("partition is not null").withColumn(
            "side", f.when(f.col("kind").isin(*PLACED_IN_COPY), "copy").otherwise("topic")
        )
        return self._with_faults(records, placed, ["side", "partition"])

    def _producers(self) -> DataFrame:
        records = (
            self._rows.where("side = 'topic' and producer is not null")
            .groupBy("producer")
            .agg(
                f.count("*").alias("records"),
                f.min("sequence").alias("first_sequence"),
                f.max("sequence").alias("last_sequence"),
            )
        )
        return self._with_faults(records, self._found.where("producer is not null"), ["producer"])

    def _times(self) -> DataFrame:
        """Count records and faults in equal stretches of the records' own time."""
        ends = self._rows.agg(
            f.unix_micros(f.min("timestamp")).alias("low"),
            f.unix_micros(f.max("timestamp")).alias("high"),
        ).collect()[0]
        low = ends["low"] or 0
        width = max(1, -(-((ends["high"] or 0) - low + 1) // TIMES))

        def stretch() -> Any:
            since = f.floor((f.unix_micros("timestamp") - f.lit(low)) / f.lit(width))
            return f.timestamp_micros(f.lit(low) + since * f.lit(width)).alias("time")

        records = (
            self._rows.where("timestamp is not null")
            .groupBy(stretch())
            .agg(
                f.count_if(f.col("side") == "topic").alias("records"),
                f.count_if(f.col("side") == "copy").alias("copied"),
            )
        )
        timed = self._found.where("timestamp is not null").withColumn("time", stretch())
        return self._with_faults(records, timed, ["time"]).orderBy("time")

    def _with_faults(self, records: DataFrame, found: DataFrame, keys: list[str]) -> DataFrame:
        counted = found.groupBy(*keys).pivot("kind", self._kinds).agg(f.sum("amount"))
        return records.join(counted, keys, "full").fillna(0, ["records", *self._kinds])

    # --- what is drawn -----------------------------------------------------------------

    def drawn(self, tables: dict[str, DataFrame]) -> dict[str, list[dict[str, Any]]]:
        """Return rows for the page; `tables`: the result of `all`, read back."""
        bad = sum((f.col(kind) for kind in self._kinds), f.lit(0))
        partitions = tables["partitions"].orderBy(bad.desc(), "partition").limit(2 * PARTITIONS)
        shown = {
            "partitions": partitions.orderBy("partition", f.col("side").desc()),
            "producers": tables["producers"].orderBy(bad.desc(), "producer").limit(PRODUCERS),
            "times": tables["times"].orderBy("time"),
            "cells": self._cells(tables["partitions"]),
            "examples": self._examples(),
        }
        return {name: [row.asDict() for row in table.collect()] for name, table in shown.items()}

    def _examples(self) -> DataFrame:
        """Return examples in the order of the kinds, and of the log."""
        rank = f.array_position(f.lit(self._kinds), f.col("kind"))
        return self._found.orderBy(rank, "partition", "offset", "sequence").limit(EXAMPLES)

    def _cells(self, partitions: DataFrame) -> DataFrame:
        """Count the faults of a kind in each stretch of a partition's offsets."""
        side = f.when(f.col("kind").isin(*PLACED_IN_COPY), "copy").otherwise("topic")
        ranges = partitions.select("side", "partition", "first_offset", "last_offset")
        placed = self._found.where("offset is not null").withColumn("side", side)
        along = (f.col("offset") - f.col("first_offset")) * CELLS
        span = f.col("last_offset") - f.col("first_offset") + 1
        return (
            placed.join(ranges, ["side", "partition"])
            .groupBy("side", "partition", f.floor(along / span).alias("cell"), "kind")
            .agg(f.sum("amount").alias("amount"))
            .limit(100_000)
        )
