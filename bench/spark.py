"""Reading topics with Spark, against an Arrow data source that holds its data in memory.

    python -m bench.spark [--tasks N] [--rounds N] [--mib N] [--nodes N] [--size N] [--json FILE]

The hop from a Python worker to the JVM limits any Python data source. The figure is therefore the
share of that limit that reading from real nodes reaches. Both sources yield the same columns in
batches of the same size, to the same sink (Spark's `noop`, which takes every column of every
row), in turn, in one session.

The nodes run on the same machine. If it has fewer cores than all of them together use, the share
also includes the cost of serving and receiving the records: --tasks 1 leaves more room for that
on two cores.

Needs the extra `spark`. Also prints the rate of a Consumer alone, without Spark, and the most
memory that a Python worker held.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, Record, TopicConfig
from oncelog.spark import ensure_java
from oncelog.spark.source.schema import ddl

MIB = 1024 * 1024
PARTITIONS = 2
SIZES = (100, 1000)
STORED_BATCH_BYTES = MIB
NAME = "arrow_in_memory"


class ArrowInMemory(DataSource):
    """Yields one batch again and again: the limit of the hop to the JVM."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl(include_headers=False)

    def reader(self, schema: Any) -> DataSourceReader:
        return ArrowInMemoryReader({name: int(self.options[name]) for name in ("rows", "size")})


class ArrowInMemoryReader(DataSourceReader):
    def __init__(self, options: dict[str, int]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        size, left = self._options["size"], self._options["rows"] // PARTITIONS
        batch = arrow_batch(size, partition.value)
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


def rows_per_batch(size: int) -> int:
    return STORED_BATCH_BYTES // (size + 16)


def arrow_batch(size: int, partition: int) -> Any:
    """Batch with the rows and columns of a stored batch of the topic."""
    import pyarrow as pa

    from oncelog.wire.arrow import schema

    n = rows_per_batch(size)
    columns = [
        pa.nulls(n, pa.binary()),
        pa.array([bytes(size)] * n, pa.binary()),
        pa.array(["bench"] * n, pa.string()),
        pa.array([partition] * n, pa.int32()),
        pa.array(range(n), pa.int64()),
        pa.array([1_700_000_000_000_000] * n, pa.timestamp("us", tz="UTC")),
    ]
    fields = [field for field in schema() if field.name != "headers"]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def fill(bootstrap: str, topic: str, size: int, rows: int) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 1, TopicConfig(max_batch_bytes=4 * MIB))
    with Producer(bootstrap_servers=bootstrap, buffer_memory=64 * MIB) as producer:
        for partition in range(PARTITIONS):
            left = rows // PARTITIONS
            some = [Record(bytes(size))] * rows_per_batch(size)
            while left > 0:
                producer.send_batch(topic, partition, some[:left])
                left -= len(some)
        producer.flush()


def timed(frame: Any) -> float:
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def consumer_alone(bootstrap: str, topic: str, rows: int) -> float:
    """Seconds to read all as Arrow batches in one process."""
    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        start, seen = time.perf_counter(), 0
        for batch in consumer.batches(timeout_ms=60_000):
            seen += batch.num_rows
            if seen >= rows:
                return time.perf_counter() - start
    raise RuntimeError(f"{topic} has {seen} records, not {rows}")


def worker_peaks_mb() -> list[float]:
    """Most memory that each of Spark's Python workers has held so far (VmHWM)."""
    peaks = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            status = (folder / "status").read_text()
        except OSError:
            continue  # the process has ended
        facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        ours = f"PYSPARK_BENCH={os.getpid()}".encode()
        if b"pyspark.daemon" in words and ours in (folder / "environ").read_bytes().split(b"\0"):
            peaks.append(int(facts["VmHWM"].split()[0]) / 1024)
    return sorted(peaks)


def measure(spark: Any, bootstrap: str, size: int, rows: int, rounds: int) -> dict[str, Any]:
    topic = f"bench-{size}"
    fill(bootstrap, topic, size, rows)
    ours = (
        spark.read.format("oncelog")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    memory = spark.read.format(NAME).option("rows", rows).option("size", size).load()
    alone = consumer_alone(bootstrap, topic, rows)
    for frame in (ours, memory):  # compile and start everything once
        timed(frame)
    times: dict[str, list[float]] = {"oncelog": [], "memory": []}
    for number in range(rounds):
        # Each goes first in turn: neither always has the warmer machine.
        for name, frame in sorted({"oncelog": ours, "memory": memory}.items(), reverse=number % 2):
            times[name].append(timed(frame))
    rates = {name: rows / statistics.median(each) for name, each in times.items()}
    ratios = [m / o for o, m in zip(times["oncelog"], times["memory"], strict=True)]
    return {
        "value_bytes": size,
        "rows": rows,
        "oncelog_rows_per_s": round(rates["oncelog"]),
        "memory_rows_per_s": round(rates["memory"]),
        "share": round(statistics.median(ratios), 3),
        "share_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "consumer_alone_rows_per_s": round(rows / alone),
        "worker_peak_mb": round(max(worker_peaks_mb(), default=0.0)),
        "load": round(os.getloadavg()[0], 2),
    }


def session(tasks: int = PARTITIONS, jars: Sequence[Path] = ()) -> Any:
    """SparkSession for a figure: `tasks` tasks at a time, and nothing printed."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_BENCH"] = str(os.getpid())  # Spark's workers inherit it
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{tasks}]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def options(description: str, *, mib: int) -> argparse.ArgumentParser:
    """Options common to the programs that measure Spark. mib: default volume."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=mib, help="of values, for each size")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--size", type=int, action="append", help="of a value; else all sizes")
    parser.add_argument("--json", type=Path, help="append the results to this file")
    return parser


def each_size(
    given: argparse.Namespace,
    sizes: Iterable[int],
    measure: Callable[[str, Path, int, int], dict[str, Any]],
) -> None:
    """Prints a line of figures for each size of a value.

    given: as `options` has it. measure(bootstrap, directory, size, rows): on one cluster.
    """
    with tempfile.TemporaryDirectory() as directory:
        with LocalCluster(Path(directory) / "nodes", given.nodes, settings={}) as cluster:
            for size in given.size or sizes:
                rows = given.mib * MIB // size // PARTITIONS * PARTITIONS
                line = json.dumps(measure(cluster.bootstrap, Path(directory), size, rows))
                print(line, flush=True)
                if given.json is not None:
                    with given.json.open("a") as file:
                        file.write(line + "\n")


def main() -> None:
    parser = options("Spark's rate with topics and with memory", mib=400)
    parser.add_argument("--tasks", type=int, default=PARTITIONS, help="of Spark, at the same time")
    given = parser.parse_args()
    spark = session(given.tasks)
    spark.dataSource.register(ArrowInMemory)

    def one(bootstrap: str, _: Path, size: int, rows: int) -> dict[str, Any]:
        return {"tasks": given.tasks, **measure(spark, bootstrap, size, rows, given.rounds)}

    each_size(given, SIZES, one)
    spark.stop()


if __name__ == "__main__":
    main()
