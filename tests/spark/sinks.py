"""Queries that write into a sink, and the tests' faults in them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.copies import TIMEOUT_S, contents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS = 40  # of a file


class Lines:
    """A stream of files: each is a micro-batch of numbered lines, split among tasks."""

    def __init__(self, directory: Path, rows: int = ROWS) -> None:
        self._directory, self._rows = directory, rows
        directory.mkdir(parents=True)
        self.count = 0

    def add(self, files: int = 1) -> None:
        for _ in range(files):
            number = self.count // self._rows
            lines = "".join(f"{n}\n" for n in range(self.count, self.count + self._rows))
            (self._directory / f"{number:04}.txt").write_text(lines)
            self.count += self._rows

    def frame(self, spark: SparkSession, tasks: int = 2) -> DataFrame:
        return lines_in(spark, self._directory, tasks)


def lines_in(spark: SparkSession, directory: Path, tasks: int) -> DataFrame:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory))
    return lines.repartition(tasks).selectExpr(
        "value", "CAST(CAST(value AS INT) % 2 AS INT) AS partition"
    )


class Output:
    """One query's output: started again and again over one checkpoint, until it is lost."""

    def __init__(self, bootstrap: str, topic: str, directory: Path, name: str = "oncelog") -> None:
        self.bootstrap, self.topic, self.format = bootstrap, topic, name
        self.checkpoint = directory / f"checkpoint-{topic}"
        self.sink = f"sink of {topic}"

    def start(self, frame: DataFrame, **options: Any) -> StreamingQuery:
        writer = (
            frame.writeStream.format(self.format)
            .option("bootstrap.servers", self.bootstrap)
            .option("topic", self.topic)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
        )
        if self.format == "oncelog":
            options = {"sinkId": self.sink, **options}
        for name, value in options.items():
            writer = writer.option(name, value)
        return writer.start()

    def run(self, frame: DataFrame, **options: Any) -> None:
        query = self.start(frame, **options)
        try:
            assert query.awaitTermination(int(TIMEOUT_S)), "the query ends"
        finally:
            query.stop()

    def fails(self, frame: DataFrame, **options: Any) -> str:
        """The error of a query that fails."""
        from pyspark.errors import StreamingQueryException

        try:
            self.run(frame, **options)
        except StreamingQueryException as error:
            return str(error)
        raise AssertionError("the query went on")

    # -- faults -------------------------------------------------------------------------

    def forget_last_commit(self) -> None:
        """Puts the state back to a driver's death between the sink's commit and Spark's."""
        newest = max(self.checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)

    def copy_checkpoint(self) -> Callable[[], None]:
        """Keeps the checkpoint; the returned function puts it back."""
        kept = self.checkpoint.with_name("kept-" + self.checkpoint.name)
        shutil.copytree(self.checkpoint, kept)

        def put_back() -> None:
            shutil.rmtree(self.checkpoint)
            shutil.copytree(kept, self.checkpoint)

        return put_back

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def query_id(self) -> str:
        found: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return found

    # -- results ------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """All lines that are readable, sorted."""
        stored = contents(self.bootstrap, self.topic)
        return sorted(int(row[0] or b"") for rows in stored.values() for row in rows)


class FailsOnce:
    """For `mapInArrow`: the first attempt of a task fails behind its rows, once."""

    def __init__(self, directory: Path) -> None:
        self._marks = directory / "failed"
        self._marks.mkdir(parents=True)

    def rows(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        mark = self._marks / f"{context.partitionId()}"
        if not mark.exists():
            mark.touch()
            raise RuntimeError("this attempt fails")
