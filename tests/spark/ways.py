"""Two ways to copy a topic, with traps in them: ours, and a plain one.

Both read with the same source. The naive one appends its rows with a plain producer, as a function
for `foreachBatch` would: each of its batches is idempotent, its tasks are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyspark.sql.datasource import (
    DataSource,
    DataSourceRegistration,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from oncelog import Producer
from oncelog.spark import mirror
from oncelog.spark.mirroring.data_source import MirrorDataSource, MirrorStreamWriter
from oncelog.spark.mirroring.writer import RECORD_COLUMNS
from tests.spark.traps import Trap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def _trapped(writer: type[DataSourceStreamArrowWriter], rows: Trap, commit: Trap | None) -> Any:
    # A class of a function: it goes to the workers by value, its traps with it.
    class Trapped(writer):
        def _batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
            return rows.rows(super()._batches(iterator))

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            if commit is not None:
                commit.reach()

    return Trapped


def copy_with_mirror(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    rows: Trap,
    commit: Trap | None = None,
    *,
    checkpoint: str,
    max_offsets_per_trigger: int | None = None,
) -> StreamingQuery:
    """Runs `oncelog.spark.mirror` over the records that are there now."""
    writer = _trapped(MirrorStreamWriter, rows, commit)

    class Trapped(MirrorDataSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return writer(self._settings)

    register = DataSourceRegistration.register
    # Trapped replaces the mirror's own data source under the same name.
    with patch.object(DataSourceRegistration, "register", lambda own, _: register(own, Trapped)):
        return mirror(
            spark,
            source=source,
            target=target,
            bootstrap_servers=bootstrap,
            trigger={"availableNow": True},
            checkpoint=checkpoint,
            max_offsets_per_trigger=max_offsets_per_trigger,
        )


class NaiveWriter(DataSourceStreamArrowWriter):
    def __init__(self, bootstrap: str, target: str) -> None:
        self._bootstrap, self._target = bootstrap, target

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            for batch in self._batches(iterator):
                if batch.num_rows:
                    partition = batch.column("partition")[0].as_py()
                    records = batch.select(list(RECORD_COLUMNS))
                    producer.send_batch(self._target, partition, records).result(60)
        return WriterCommitMessage()

    def _batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        return iterator


def copy_naively(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    rows: Trap,
    commit: Trap | None = None,
    *,
    checkpoint: str,
    max_offsets_per_trigger: int | None = None,
) -> StreamingQuery:
    """The same with a plain producer in each task."""
    made = _trapped(NaiveWriter, rows, commit)

    class Naive(DataSource):
        @classmethod
        def name(cls) -> str:
            return "naive"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return made(bootstrap, target)

    spark.dataSource.register(Naive)
    reader = (
        spark.readStream.format("oncelog")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
    )
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_offsets_per_trigger))
    return (
        reader.load()
        .writeStream.format("naive")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
