"""Lakehouse example: log -> Delta table -> log, each record once, despite killed drivers.

    python -m examples.lakehouse to-table --bootstrap localhost:7001 orders ./orders-table
    python -m examples.lakehouse to-log --bootstrap localhost:7001 ./orders-table orders-again

Needs the extras `spark` and `lakehouse`. Both commands process the present records, and continue
there next time. Lost checkpoints do no harm.

**To a table.** Each commit of the table stores the progress in the same atomic step: for every
partition of the topic a transaction of the table (Delta's `SetTransaction`) with the next offset as
version. Records below it are in the table already, and left out. So the table alone decides;
Spark's checkpoint may be lost. Offsets have no holes, so a batch that does not begin at the table's
end is an error, not a loss.

**To a log.** Each version of the table is a job of the sink, with the version as its `batchId`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from oncelog import Admin
from oncelog.errors import OncelogError
from oncelog.spark import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
AT_ONCE = 100_000  # records of a micro-batch: all of it passes through the driver
KEPT, REWRITTEN = ("CREATE TABLE", "WRITE"), ("OPTIMIZE", "VACUUM START", "VACUUM END")


class LakehouseError(Exception):
    """The table and the log do not fit together."""


# --- log -> table --------------------------------------------------------------------------


def opened(path: str) -> DeltaTable:
    """Return the table; create it if it is missing."""
    if not DeltaTable.is_deltatable(path):
        DeltaTable.create(path, SCHEMA, mode="ignore")
    return DeltaTable(path)


def position(table: DeltaTable, topic: str, partitions: int) -> dict[int, int]:
    """Return the next offset of each partition, as stored in the table."""
    return {p: table.transaction_version(_app(topic, p)) or 0 for p in range(partitions)}


def _app(topic: str, partition: int) -> str:
    return f"oncelog/{topic}/{partition}"


def append(path: str, topic: str, partitions: int, rows: pa.Table) -> int:
    """Append the table's missing rows; return their number. Raises LakehouseError."""
    # Position and commit use one version of the table. If another writer came in between, both have
    # changed the same transactions, and Delta rejects the second.
    table = opened(path)
    at = position(table, topic, partitions)
    new, ends = [], []
    for partition, begin in at.items():
        own = rows.filter(pc.equal(rows["partition"], partition)).sort_by("offset")
        own = own.filter(pc.greater_equal(own["offset"], begin))
        if not own.num_rows:
            continue
        first, last = own["offset"][0].as_py(), own["offset"][-1].as_py()
        if (first, last - first + 1) != (begin, own.num_rows):
            raise LakehouseError(
                f"{topic}/{partition}: {own.num_rows} rows from offset {first} to {last} do not "
                f"follow the table, which ends before {begin}"
            )
        new.append(own)
        ends.append(Transaction(_app(topic, partition), last + 1))
    if not new:
        return 0
    whole = pa.concat_tables(new).select(COLUMNS).cast(SCHEMA)
    properties = CommitProperties(app_transactions=ends)
    write_deltalake(table, whole, mode="append", commit_properties=properties)
    return int(whole.num_rows)


def to_table(
    spark: SparkSession, bootstrap: str, topic: str, path: str, checkpoint: str
) -> StreamingQuery:
    """Append the topic's present records; a new checkpoint begins at the table's end."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        partitions = len(admin.describe_topic(topic).partitions)
    at = position(opened(path), topic, partitions)
    frame = (
        spark.readStream.format("oncelog")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: {str(p): n for p, n in at.items()}}))
        .option("maxOffsetsPerTrigger", AT_ONCE)
        .load()
        .select(*COLUMNS)
    )

    def batch(rows: DataFrame, number: int) -> None:
        append(path, topic, partitions, rows.toArrow())

    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


# --- table -> log --------------------------------------------------------------------------


def to_log(
    spark: SparkSession,
    bootstrap: str,
    path: str,
    topic: str,
    sink: str,
    before: Callable[[int], None] = lambda version: None,
) -> list[int]:
    """Write the rows of all versions that the sink lacks; return these versions.

    `before` is called with each of them. Raises LakehouseError if rows were changed or deleted.
    """
    operations = {one["version"]: one["operation"] for one in DeltaTable(path).history()}
    written = _written(bootstrap, sink)
    done = []
    for version, operation in sorted(operations.items()):
        if any(first <= version <= last for first, last in written):
            continue
        if added := _added(path, version, operation):
            before(version)
            (
                spark.read.parquet(*added)
                .select("key", "value", "timestamp")
                .write.format("oncelog")
                .mode("append")
                .option("bootstrap.servers", bootstrap)
                .option("topic", topic)
                .option("sinkId", sink)
                .option("batchId", version)
                .save()
            )
            done.append(version)
    return done


def _written(bootstrap: str, sink: str) -> tuple[tuple[int, int], ...]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        known = [one for one in admin.list_sinks() if one.sink == sink]
    return known[0].committed if known else ()


def _added(path: str, version: int, operation: str) -> list[str]:
    """Return the files with the rows that a version has added."""
    if operation in REWRITTEN:
        return []  # the same rows in other files
    before = set(DeltaTable(path, version=version - 1).file_uris()) if version else set()
    now = set(DeltaTable(path, version=version).file_uris())
    if operation not in KEPT or before - now:
        raise LakehouseError(
            f"version {version} of {path}: {operation} changed rows, not only added"
        )
    return sorted(now - before)


# --- the program ---------------------------------------------------------------------------


def session() -> SparkSession:
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").appName("lakehouse")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.lakehouse")
    directions = parser.add_subparsers(dest="direction", required=True)
    for name, places in (("to-table", ("topic", "table")), ("to-log", ("table", "topic"))):
        one = directions.add_parser(name)
        one.add_argument("--bootstrap", required=True)
        for place in places:
            one.add_argument(place)
    given: Any = parser.parse_args()
    path = str(Path(given.table).resolve())
    spark = session()
    try:
        if given.direction == "to-table":
            query = to_table(spark, given.bootstrap, given.topic, path, f"{path}-checkpoint")
            query.awaitTermination()
            print(f"the table has version {DeltaTable(path).version()}")
        else:
            done = to_log(spark, given.bootstrap, path, given.topic, f"{path} to {given.topic}")
            print(f"{len(done)} versions written")
    except (OncelogError, LakehouseError) as error:
        print(f"lakehouse: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
