"""Query that maps and filters, into a topic through the sink and into Spark's `noop` sink.

    python -m bench.spark_sink [--kafka] [--rounds N] [--mib N] [--nodes N] [--size N] [--json FILE]

Both read the same topic and make the same rows, in turn, in one session. A rate is that of the
micro-batches alone, by the queries' progress: rows over the time from trigger to commit. The
nodes run on the same machine. Also prints the most memory that a Python worker held, and the
rate of a Python sink that drops its rows: the way to it alone (`drop`).

With --kafka the same query also goes through Spark's own Kafka sink into Kafka as it is shipped,
three brokers on the same machine. Records then have three replicas on both sides.

Needs the extra `spark`.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from bench.fetch import maven
from bench.spark import MIB, PARTITIONS, each_size, fill, options, session, worker_peaks_mb
from bench.spark_mirror import ALL_THAT_IS_THERE, finished
from bench.systems.kafka import Kafka
from oncelog import Admin, TopicConfig

SIZES = (100, 1024)
# The newest available. Its interfaces of Spark are those of the installed Spark.
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
NOOP, DROP, SINK, KAFKA = "noop", "drop", "sink", "kafka"


class Dropping(DataSource):
    """Takes batches of Arrow in Spark's Python workers, as the sink does, and drops them."""

    @classmethod
    def name(cls) -> str:
        return DROP

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return DroppingWriter()


class DroppingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def connector() -> list[Path]:
    """Jars of Spark's Kafka sink that Spark does not bring itself. Raises Unavailable."""
    there = Path(pyspark.__file__).parent / "jars"
    names = {jar: re.sub(r"-\d[\d.]*\.jar$", "", jar.name) for jar in _jars()}
    return [jar for jar, name in names.items() if not list(there.glob(f"{name}-[0-9]*.jar"))]


def _jars() -> list[Path]:
    return sorted(maven(CONNECTOR.replace(":", "-"), [CONNECTOR]).glob("*.jar"))


@dataclass
class Query:
    """Query with its targets. kafka: None without it."""

    spark: Any
    bootstrap: str
    directory: Path
    kafka: Kafka | None
    rates: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rates = {way: [] for way in (NOOP, DROP, SINK, *([KAFKA] if self.kafka else []))}

    def rate(self, way: str, topic: str, target: str, rows: int) -> float:
        if way in (NOOP, DROP):
            return finished(self._writer(topic).format(way).start(), rows)[0]
        return {SINK: self._sink, KAFKA: self._kafka}[way](topic, target, rows)

    def _sink(self, topic: str, target: str, rows: int) -> float:
        writer = self._writer(topic).format("oncelog").option("bootstrap.servers", self.bootstrap)
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            config = TopicConfig(max_batch_bytes=4 * MIB)
            admin.create_topic(target, PARTITIONS, 3 if self.kafka else 1, config)
            query = writer.option("topic", target).option("sinkId", target).start()
            found = finished(query, rows)[0]
            admin.delete_topic(target)
        return found

    def _kafka(self, topic: str, target: str, rows: int) -> float:
        assert self.kafka is not None
        self.kafka.create(target, PARTITIONS)
        writer = self._writer(topic).format("kafka").option("topic", target)
        servers = ",".join(self.kafka.addresses)
        return finished(writer.option("kafka.bootstrap.servers", servers).start(), rows)[0]

    def _writer(self, topic: str) -> Any:
        frame = (
            self.spark.readStream.format("oncelog")
            .option("bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .schema("value binary, offset bigint")
            .load()
            .where("offset >= 0")
            .selectExpr("concat(substring(value, 2), substring(value, 1, 1)) AS value")
        )
        notes = tempfile.mkdtemp(dir=self.directory)
        return frame.writeStream.trigger(**ALL_THAT_IS_THERE).option("checkpointLocation", notes)


def measure(query: Query, size: int, rows: int, rounds: int) -> dict[str, Any]:
    topic, rates = f"from-{size}", query.rates
    fill(query.bootstrap, topic, size, rows)
    # The first round compiles and starts everything once.
    for number in range(rounds + 1):
        for way in sorted(rates, reverse=bool(number % 2)):
            found = query.rate(way, topic, f"{topic}-into-{number}", rows)
            if number:
                rates[way].append(found)

    def share(way: str, of: str) -> dict[str, Any]:
        found = [one / other for one, other in zip(rates[way], rates[of], strict=True)]
        return {
            f"{way}_of_{of}": round(statistics.median(found), 3),
            f"{way}_of_{of}_range": [round(min(found), 3), round(max(found), 3)],
        }

    return {
        "value_bytes": size,
        "rows": rows,
        **{f"{way}_rows_per_s": round(statistics.median(each)) for way, each in rates.items()},
        **share(DROP, NOOP),
        **share(SINK, NOOP),
        **(share(SINK, KAFKA) if query.kafka else {}),
        "worker_peak_mb": round(max(worker_peaks_mb(), default=0.0)),
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = options("Spark's rate into a topic and into nothing", mib=200)
    parser.add_argument("--kafka", action="store_true", help="and into Kafka by Spark's own sink")
    given = parser.parse_args()
    with ExitStack() as stack:
        kafka = Kafka(flush=False) if given.kafka else None
        if kafka is not None:
            kafka.prepare()
            stack.callback(kafka.stop)
            kafka.start(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        spark = session(jars=connector() if given.kafka else ())
        spark.dataSource.register(Dropping)

        def one(bootstrap: str, directory: Path, size: int, rows: int) -> dict[str, Any]:
            return measure(Query(spark, bootstrap, directory, kafka), size, rows, given.rounds)

        each_size(given, SIZES, one)
        spark.stop()


if __name__ == "__main__":
    main()
