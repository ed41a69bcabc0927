"""Naive job without a sink: each task sends its rows with a producer.

Not to copy. `scripts/flights` runs it beside the job: after a task, an executor or the driver was
killed, Spark repeats a micro-batch, and the records sent before are there twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

NAME = "naive"


class NaiveSink(DataSource):
    """`format("naive")`, with the options `bootstrap.servers` and `topic`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return NaiveWriter(self.options["bootstrap.servers"], self.options["topic"])

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return NaiveJob(self.options["bootstrap.servers"], self.options["topic"])


class _Naive:
    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from oncelog import Producer

        with Producer(bootstrap_servers=self._servers) as producer:
            for batch in iterator:
                for row in batch.to_pylist():
                    key = None if row["key"] is None else row["key"].encode()
                    producer.send(self._topic, row["value"].encode(), key)
        return WriterCommitMessage()


class NaiveWriter(_Naive, DataSourceStreamArrowWriter):
    """Writer of a stream."""


class NaiveJob(_Naive, DataSourceArrowWriter):
    """Writer of a micro-batch in `foreachBatch`."""


__all__ = ["NAME", "NaiveSink"]
