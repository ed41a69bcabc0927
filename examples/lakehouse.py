"""Lakehouse example: each version of a Delta table into a topic, each row once.

    python -m examples.lakehouse --bootstrap localhost:7001 ./orders-table orders-again

Needs the extra `lakehouse`. `oncelog table run` is the other direction (docs/tables.md).

Each version of the table is a job of the sink, with the version as its `batchId`. The cluster keeps
the versions that are written, so the command may be killed and called again. It processes the
present versions, and goes on there next time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from oncelog import Admin
from oncelog.errors import OncelogError
from oncelog.spark import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT, REWRITTEN = ("CREATE TABLE", "WRITE"), ("OPTIMIZE", "VACUUM START", "VACUUM END")


class LakehouseError(Exception):
    """A version of the table did more than add rows."""


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
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("table")
    parser.add_argument("topic")
    given = parser.parse_args()
    path = str(Path(given.table).resolve())
    spark = session()
    try:
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
