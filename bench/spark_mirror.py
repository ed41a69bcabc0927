"""Copying a topic with `oncelog.spark.mirror`, against only reading it the same way.

    python -m bench.spark_mirror [--rounds N] [--mib N] [--nodes N] [--size N] [--json FILE]

All are streaming queries over the same topic, in turn, in one session: the mirror, the mirror
with a transformation (a filter that keeps everything), and the same columns of the same
records into Spark's `noop` sink. A rate is that of the micro-batches alone, by the queries'
progress: records over the time from trigger to commit. The start time of a query is printed
beside it. The nodes run on the same machine.

Needs the extra `spark`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.spark import MIB, PARTITIONS, SIZES, each_size, fill, options, session
from oncelog import Admin, TopicConfig
from oncelog.spark import mirror
from oncelog.spark.mirroring.writer import COLUMNS

ALL_THAT_IS_THERE = {"availableNow": True}


def finished(query: Any, records: int) -> tuple[float, float]:
    """Waits for the query; returns (records/s of its micro-batches, seconds beside them)."""
    start = time.perf_counter()
    query.awaitTermination()
    took = time.perf_counter() - start
    busy = sum(one.durationMs["triggerExecution"] for one in query.recentProgress) / 1000
    return records / busy, took - busy


def read_only(spark: Any, bootstrap: str, topic: str, directory: Path, rows: int) -> float:
    frame = (
        spark.readStream.format("oncelog")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
        .select(*COLUMNS)
    )
    writer = frame.writeStream.format("noop").trigger(**ALL_THAT_IS_THERE)
    notes = tempfile.mkdtemp(dir=directory)
    return finished(writer.option("checkpointLocation", notes).start(), rows)[0]


def measure(
    spark: Any, bootstrap: str, directory: Path, size: int, rows: int, rounds: int
) -> dict[str, Any]:
    topic = f"mirrored-{size}"
    fill(bootstrap, topic, size, rows)
    rates: dict[str, list[float]] = {"read": [], "mirror": [], "transformed": []}
    starts = []
    transforms = {"mirror": None, "transformed": lambda frame: frame.where("offset >= 0")}
    # The first round compiles and starts everything once.
    for number in range(rounds + 1):
        found = {"read": read_only(spark, bootstrap, topic, directory, rows)}
        for way, transform in transforms.items():
            target = f"{topic}-{way}-{number}"
            with Admin(bootstrap_servers=bootstrap) as admin:
                admin.create_topic(target, PARTITIONS, 1, TopicConfig(max_batch_bytes=4 * MIB))
                query = mirror(
                    spark, source=topic, target=target, bootstrap_servers=bootstrap,
                    trigger=ALL_THAT_IS_THERE, transform=transform,
                )  # fmt: skip
                found[way], beside = finished(query, rows)
                admin.delete_topic(target)
        if number:
            for way, rate in found.items():
                rates[way].append(rate)
            starts.append(beside)
    shares = {
        way: [m / r for r, m in zip(rates["read"], rates[way], strict=True)] for way in transforms
    }
    return {
        "value_bytes": size,
        "records": rows,
        **{f"{way}_per_s": round(statistics.median(each)) for way, each in rates.items()},
        **{f"{way}_share": round(statistics.median(each), 3) for way, each in shares.items()},
        "mirror_share_range": [round(pick(shares["mirror"]), 3) for pick in (min, max)],
        "start_s": round(statistics.median(starts), 2),
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    given = options("Spark's rate of copying and of reading", mib=200).parse_args()
    spark = session()

    def one(bootstrap: str, directory: Path, size: int, rows: int) -> dict[str, Any]:
        return measure(spark, bootstrap, directory, size, rows, given.rounds)

    each_size(given, SIZES, one)
    spark.stop()


if __name__ == "__main__":
    main()
