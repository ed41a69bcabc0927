"""A sink as people write it without transactions: each task just sends its rows.

The tests show with it that their faults bite: here they leave rows twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage


class NaiveSink(DataSource):
    """`format("naive")`, with the sink's options."""

    @classmethod
    def name(cls) -> str:
        return "naive"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return NaiveWriter(dict(self.options))


class NaiveWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self._servers, self._topic = options["bootstrap.servers"], options["topic"]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from oncelog import Producer

        with Producer(bootstrap_servers=self._servers) as producer:
            for batch in iterator:
                rows = batch.to_pydict()
                for value, partition in zip(rows["value"], rows["partition"], strict=True):
                    producer.send(self._topic, value, partition=partition)
                producer.flush()
        return WriterCommitMessage()
