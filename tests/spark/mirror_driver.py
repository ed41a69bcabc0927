"""A driver of its own, which a test can kill: copies a topic in both ways at the same time.

    python -m tests.spark.mirror_driver DIRECTORY BOOTSTRAP SOURCE MASTER [NAME=VALUE ...]

The copies are SOURCE-naive and SOURCE-mirror; checkpoints and traps lie in DIRECTORY, the
traps as `naive-rows`, `naive-commit`, `mirror-rows`, `mirror-commit`. What comes after MASTER
are settings of Spark. Prints a line when a copy is done.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.conftest import spark_builder
from tests.spark.traps import Trap
from tests.spark.ways import copy_naively, copy_with_mirror

# Several micro-batches, so that a sleeper wakes up in a later one's time.
RECORDS_PER_TRIGGER = 200


def main() -> None:
    directory, bootstrap, source, master = Path(sys.argv[1]), *sys.argv[2:5]
    builder = spark_builder(directory, master)
    for setting in sys.argv[5:]:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    queries = {}
    for way, start in (("naive", copy_naively), ("mirror", copy_with_mirror)):
        queries[way] = start(
            spark,
            bootstrap,
            source,
            f"{source}-{way}",
            Trap(directory / f"{way}-rows"),
            Trap(directory / f"{way}-commit"),
            checkpoint=str(directory / f"{way}-checkpoint"),
            max_offsets_per_trigger=RECORDS_PER_TRIGGER,
        )
    while queries:
        spark.streams.awaitAnyTermination()  # raises what made a query fail
        spark.streams.resetTerminated()
        for way in [way for way, query in queries.items() if not query.isActive]:
            print(way, flush=True)
            del queries[way]
    spark.stop()


if __name__ == "__main__":
    main()
