"""Audit run: counts the faults of a topic, and of its copy, for topics of any size.

    report = oncelog.spark.audit(spark, "orders", copy="orders-eu", bootstrap_servers="a:7001",
                                 identity=["key", "value"], path="audit")
    assert report.clean, report

Place in the flow: reads each side once (`records`), looks for faults (`checks`), writes Parquet
(`tables`) and a page (`page`). PySpark is imported when an audit begins. docs/spark.md explains the
counts.

    PATH/records     a small row for each record; side=topic and side=copy
    PATH/findings    a row for each fault: its kind, its place, its producer
    PATH/partitions, PATH/producers, PATH/times      records and faults of each kind
    PATH/summary.json, PATH/index.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oncelog.config import parse_bootstrap
from oncelog.errors import ConfigError
from oncelog.spark.auditing.page import render
from oncelog.spark.auditing.report import AuditReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def audit(
    spark: SparkSession,
    topic: str | DataFrame,
    *,
    path: str,
    bootstrap_servers: str | Sequence[str] | None = None,
    identity: Sequence[str] = ("key", "value"),
    producer: str | None = None,
    sequence: str | None = None,
    copy: str | DataFrame | None = None,
    copy_bootstrap_servers: str | Sequence[str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
) -> AuditReport:
    """Audit a topic, and compare it with `copy` if there is one; write the report to `path`.

    `topic` and `copy` are names, or DataFrames with the columns partition, offset, timestamp and
    those of your expressions. A topic that is still being written is compared as it is when it is
    read, the copy first.
    `identity`: SQL expressions that identify a record; two records with one identity are a
    duplicate. By default records with equal keys and values are equal.
    `producer` and `sequence`: SQL expressions for a record's producer and its number, such as
    "get(split(cast(value as string), ':'), 0)". With them gaps and order are checked. They may give
    null, but must not fail: use get, try_cast and the like.
    `transform`: the transformation of the copy, as given to `mirror`.
    `path`: a new folder, on any file system that Spark writes to.

    Raises ConfigError that names the argument, and Spark's errors if it cannot read a topic.
    """
    if (producer is None) != (sequence is None):
        raise ConfigError("producer and sequence must be given together", "producer", "sequence")
    if isinstance(identity, str) or not identity:
        raise ConfigError("identity must be a list of at least one SQL expression", "identity")
    if copy is None and (transform or copy_bootstrap_servers):
        raise ConfigError("transform and copy_bootstrap_servers need a copy", "copy")
    if _exists(spark, path):
        raise ConfigError(f"path: {path} exists already", "path")
    from oncelog.spark.auditing.records import small_rows

    frame = _frame(spark, "topic", topic, bootstrap_servers)
    rows = small_rows(transform(frame) if transform else frame, identity, producer, sequence)
    sides = {"topic": rows}
    if copy is not None:
        there = _frame(spark, "copy", copy, copy_bootstrap_servers or bootstrap_servers)
        # First: records that arrive in between are in the topic then, and the copy only lags
        # behind.
        sides = {"copy": small_rows(there, identity, producer, sequence), **sides}
    for side, one in sides.items():
        one.write.parquet(f"{path}/records/side={side}")
    return _report(
        spark, path, _name(topic), None if copy is None else _name(copy), producer is not None
    )


def _name(given: str | DataFrame) -> str:
    return given if isinstance(given, str) else "a DataFrame"


def _frame(
    spark: SparkSession,
    argument: str,
    given: str | DataFrame,
    servers: str | Sequence[str] | None,
) -> DataFrame:
    if not isinstance(given, str):
        return given
    if servers is None:
        raise ConfigError(f"bootstrap_servers is missing: {argument} {given!r} needs it", argument)
    return (
        spark.read.format("oncelog")
        .option("bootstrap.servers", ",".join(parse_bootstrap(servers)))
        .option("subscribe", given)
        .option("includeHeaders", "true")
        .load()
    )


# --- files ---------------------------------------------------------------------------


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context = spark.sparkContext
    where = context._jvm.org.apache.hadoop.fs.Path(path)
    return where.getFileSystem(context._jsc.hadoopConfiguration()), where


def _exists(spark: SparkSession, path: str) -> bool:
    system, where = _file_system(spark, path)
    return bool(system.exists(where))


def _write_text(spark: SparkSession, path: str, text: str) -> None:
    system, where = _file_system(spark, path)
    stream = system.create(where)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


# --- the report ----------------------------------------------------------------------


def _report(
    spark: SparkSession, path: str, topic: str, copy: str | None, numbered: bool
) -> AuditReport:
    """Make one report from the rows."""
    from oncelog.spark.auditing.checks import findings, kinds, pairs, ranked
    from oncelog.spark.auditing.tables import AuditTables

    rows = spark.read.parquet(f"{path}/records")
    # Sorted by identity once, and used several times; on disk if memory is short.
    ranks = ranked(rows).persist()
    paired = None if copy is None else pairs(ranks).persist()
    findings(ranks, paired, numbered).write.parquet(f"{path}/findings")
    for table in (ranks, paired):
        if table is not None:
            table.unpersist()
    found = spark.read.parquet(f"{path}/findings")
    looked_for = kinds(numbered, copy is not None)
    tables = AuditTables(rows, found, list(looked_for))
    written = tables.all()
    for name, table in written.items():
        table.write.parquet(f"{path}/{name}")
        written[name] = spark.read.parquet(f"{path}/{name}")
    seen, faults = tables.seen(), tables.faults()
    report = AuditReport(
        path=path,
        topic=topic,
        copy=copy,
        records=seen["topic"],
        distinct=seen["topic"] - faults["duplicate"],
        copy_records=seen["copy"],
        producers=seen["producers"],
        faults=faults,
    )
    _write_text(spark, f"{path}/summary.json", json.dumps(asdict(report), indent=2) + "\n")
    _write_text(spark, f"{path}/index.html", render(report, looked_for, tables.drawn(written)))
    return report
