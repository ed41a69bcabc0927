"""A driver of its own, which a test can kill: copies a topic in both ways at the same time.

    python -m tests.spark.mirror_driver DIRECTORY BOOTSTRAP SOURCE MASTER [NAME=VALUE ...]

The copies are SOURCE-naive and SOURCE-mirror; checkpoints and traps lie in DIRECTORY, the traps as
`naive-rows`, `naive-commit`, `mirror-rows`, `mirror-commit`. Arguments after MASTER are settings of
Spark. Prints a line when a copy is done.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from tests.integration.waiting import eventually
from tests.spark.conftest import spark_builder
from tests.spark.copies import TIMEOUT_S
from tests.spark.traps import Trap
from tests.spark.ways import copy_naively, copy_with_mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Several micro-batches, so that a sleeper wakes up during a later one.
RECORDS_PER_TRIGGER = 200
# Spark's error for a process that took more than ten seconds, which no setting changes.
TOO_LATE = "Python worker failed to connect back"


def is_ready(query: StreamingQuery) -> bool:
    """True if its source is there, or if it has failed."""
    return not query.isActive or not query.status["message"].startswith("Initializing")


class Copies:
    """Both ways' queries, each begun again if Spark did not wait for its first process."""

    def __init__(self, spark: SparkSession, directory: Path, bootstrap: str, source: str) -> None:
        self._spark, self._directory = spark, directory
        self._bootstrap, self._source = bootstrap, source
        self.running: dict[str, StreamingQuery] = {}

    def begin(self, way: str) -> None:
        start = {"naive": copy_naively, "mirror": copy_with_mirror}[way]
        query = self.running[way] = start(
            self._spark,
            self._bootstrap,
            self._source,
            f"{self._source}-{way}",
            Trap(self._directory / f"{way}-rows"),
            Trap(self._directory / f"{way}-commit"),
            checkpoint=str(self._directory / f"{way}-checkpoint"),
            max_offsets_per_trigger=RECORDS_PER_TRIGGER,
        )
        # In sequence: each first Python process has ten seconds to appear.
        eventually(partial(is_ready, query), f"{way} begins", TIMEOUT_S)

    def ended(self) -> list[str]:
        """The ways whose copy is complete by now. Raises any other error that ended a query."""
        done = []
        for way, query in list(self.running.items()):
            if query.isActive:
                continue
            error = query.exception()
            if error is None:
                done.append(way)
                del self.running[way]
            elif TOO_LATE in str(error):
                self.begin(way)
            else:
                raise error
        return done


def main() -> None:
    directory, bootstrap, source, master = Path(sys.argv[1]), *sys.argv[2:5]
    builder = spark_builder(directory, master)
    for setting in sys.argv[5:]:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    copies = Copies(spark, directory, bootstrap, source)
    copies.begin("naive")
    copies.begin("mirror")
    while copies.running:
        with suppress(StreamingQueryException):  # `ended` looks at each query's
            spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
        for way in copies.ended():
            print(way, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
