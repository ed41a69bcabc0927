"""A driver of its own, which a test can kill: queries into sinks that have traps.

    python -m tests.spark.sink_driver DIRECTORY BOOTSTRAP MASTER [NAME=VALUE ...]

`plan.json` in DIRECTORY has the queries. Each reads the lines in DIRECTORY/NAME-lines that are
there when it begins, and writes them into the topic NAME; its traps are DIRECTORY/NAME-trap-0 and
so on. Prints NAME when it has ended. One that is stopped by a file NAME-stop begins again; so does
one whose commit was killed, and one with two runs, at a file NAME-again: their plan says so.
Arguments after MASTER are settings of Spark.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.conftest import spark_builder
from tests.spark.mirror_driver import TOO_LATE
from tests.spark.places import register
from tests.spark.sinks import Output, lines_in
from tests.spark.traps import Trap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S = 0.2  # each look asks the JVM for each query


@dataclass(frozen=True)
class Planned:
    """A query. held: attempts of a task that are caught. fails: once, and is started again."""

    way: str  # sink, naive
    place: str
    label: str = ""
    held: int = 1
    again: bool = False
    fails: bool = False

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.way, self.place, self.label)))

    def traps(self, directory: Path) -> list[Trap]:
        paths = (directory / f"{self.name}-trap-{number}" for number in range(self.held))
        return [Trap(path, partition=None) for path in paths]

    def lines(self, directory: Path) -> Path:
        return directory / f"{self.name}-lines"


def write_plan(directory: Path, plan: Iterable[Planned]) -> None:
    (directory / "plan.json").write_text(json.dumps([asdict(one) for one in plan]))


class Run:
    """One of the queries, with its restarts."""

    def __init__(self, spark: SparkSession, directory: Path, bootstrap: str, one: Planned) -> None:
        self._spark, self._directory, self.planned = spark, directory, one
        register(spark, one.way, one.name, one.place, one.traps(directory))
        self._output = Output(bootstrap, one.name, directory, one.name)
        self._may_fail, self._runs_again = one.fails, one.again
        self._waits = False
        self._query = self._start()

    def _start(self) -> StreamingQuery:
        frame = lines_in(self._spark, self.planned.lines(self._directory), tasks=1)
        sink = {"sinkId": self.planned.name} if self.planned.way == "sink" else {}
        return self._output.start(frame, **sink)

    def _asked(self, what: str) -> bool:
        path = self._directory / f"{self.planned.name}-{what}"
        if not path.exists():
            return False
        path.unlink()
        return True

    def ended(self) -> bool:
        if self._asked("stop"):
            self._query.stop()
            self._query = self._start()
        if self._query.isActive:
            return False
        error = self._query.exception()
        if error is None:
            if not self._runs_again:
                return True
            if not self._waits:
                self._waits = True
                print(f"{self.planned.name} waits", flush=True)
            if not self._asked("again"):
                return False
            self._runs_again = False
        # Spark's error for a process that took more than ten seconds is no fault of a test.
        elif TOO_LATE not in str(error):
            if not self._may_fail:
                raise error
            self._may_fail = False
        self._query = self._start()
        return False


def main() -> None:
    directory, bootstrap, master = Path(sys.argv[1]), *sys.argv[2:4]
    builder = spark_builder(directory, master)
    for setting in sys.argv[4:]:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    plan = [Planned(**one) for one in json.loads((directory / "plan.json").read_text())]
    running = [Run(spark, directory, bootstrap, one) for one in plan]
    while running:
        for one in [one for one in running if one.ended()]:
            running.remove(one)
            print(one.planned.name, flush=True)
        time.sleep(LOOK_EVERY_S)
    spark.stop()


if __name__ == "__main__":
    main()
