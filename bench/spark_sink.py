"""A query that maps and filters, into a topic through the sink and into Spark's `noop` sink.

    python -m bench.spark_sink [--rounds N] [--mib N] [--nodes N] [--json FILE]

Both read the same topic and make the same rows, in turn, in one session. A rate is that of the
micro-batches alone, as the queries' progress has it: rows over the time from trigger to commit.
The nodes run on the same machine. Also prints the most memory that a Python worker held.

Needs the extra `spark`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.spark import MIB, PARTITIONS, each_size, fill, options, session, worker_peaks_mb
from bench.spark_mirror import ALL_THAT_IS_THERE, finished
from oncelog import Admin, TopicConfig

SIZES = (100, 1024)


def rate(spark: Any, bootstrap: str, topic: str, target: str, directory: Path, rows: int) -> float:
    """`target` empty: into noop."""
    frame = (
        spark.readStream.format("oncelog")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .schema("value binary, offset bigint")
        .load()
        .where("offset >= 0")
        .selectExpr("concat(substring(value, 2), substring(value, 1, 1)) AS value")
    )
    notes = tempfile.mkdtemp(dir=directory)
    writer = frame.writeStream.trigger(**ALL_THAT_IS_THERE).option("checkpointLocation", notes)
    if not target:
        return finished(writer.format("noop").start(), rows)[0]
    writer = writer.format("oncelog").option("bootstrap.servers", bootstrap)
    with Admin(bootstrap) as admin:
        admin.create_topic(target, PARTITIONS, 1, TopicConfig(max_batch_bytes=4 * MIB))
        found = finished(writer.option("topic", target).option("sinkId", target).start(), rows)[0]
        admin.delete_topic(target)
    return found


def measure(
    spark: Any, bootstrap: str, directory: Path, size: int, rows: int, rounds: int
) -> dict[str, Any]:
    topic = f"from-{size}"
    fill(bootstrap, topic, size, rows)
    rates: dict[str, list[float]] = {"noop": [], "sink": []}
    # The first round is what is compiled and started once.
    for number in range(rounds + 1):
        for way in sorted(rates, reverse=bool(number % 2)):
            target = f"{topic}-into-{number}" if way == "sink" else ""
            found = rate(spark, bootstrap, topic, target, directory, rows)
            if number:
                rates[way].append(found)
    shares = [s / n for s, n in zip(rates["sink"], rates["noop"], strict=True)]
    return {
        "value_bytes": size,
        "rows": rows,
        **{f"{way}_rows_per_s": round(statistics.median(each)) for way, each in rates.items()},
        "share": round(statistics.median(shares), 3),
        "share_range": [round(min(shares), 3), round(max(shares), 3)],
        "worker_peak_mb": round(max(worker_peaks_mb(), default=0.0)),
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    given = options("Spark's rate into a topic and into nothing", mib=200).parse_args()
    spark = session()

    def one(bootstrap: str, directory: Path, size: int, rows: int) -> dict[str, Any]:
        return measure(spark, bootstrap, directory, size, rows, given.rounds)

    each_size(given, SIZES, one)
    spark.stop()


if __name__ == "__main__":
    main()
