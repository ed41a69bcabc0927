"""Sinks with a trap at one place of the protocol: ours, and the naive one where it has that place.

    draw    the driver has drawn its ticket         flush   a task has staged all of its rows
    begin   a task has the batch's transaction      end     the driver is about to end the batch
    some    a task has handed on half of its rows   ended   it has, and Spark does not know

With several traps at a place, each catches another attempt of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource

from oncelog.errors import OncelogError
from oncelog.spark.sink import writing
from oncelog.spark.sink.data_source import OncelogDataSource
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.writers import StreamSink
from tests.spark.naive_sink import NaiveSink, NaiveWriter
from tests.spark.traps import Trap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AFTER = {
    "draw": (writing.SinkConnection, "draw_ticket"),
    "begin": (writing.SinkConnection, "begin"),
    "flush": (writing._Buffer, "flush"),
    "ended": (writing.SinkConnection, "end"),
}
PLACES = (*AFTER, "some", "end")


Traps = Sequence[Trap]


def _reach(traps: Traps) -> None:
    """Stops this process at the first empty trap."""
    any(trap.reach() for trap in traps)


@contextmanager
def _trapped(place: str, traps: Traps) -> Iterator[None]:
    if place not in AFTER:
        yield
        return
    owner, name = AFTER[place]
    real = getattr(owner, name)

    def call(*args: Any, **named: Any) -> Any:
        answer = real(*args, **named)
        _reach(traps)
        return answer

    with patch.object(owner, name, call):
        yield


def _rows(place: str, traps: Traps, iterator: Iterator[Any]) -> Iterator[Any]:
    context = TaskContext.get()
    assert context is not None
    attempt = context.attemptNumber()
    if place == "some" and attempt < len(traps):
        trap: Trap = traps[attempt]
        return trap.rows(iterator)
    return iterator


def _add_and_flush(buffer: writing._Buffer, tp: Any, piece: Any) -> None:
    """Stages each piece at once, not when the buffer is a megabyte."""
    _add(buffer, tp, piece)
    buffer.flush()


_add = writing._Buffer.add


# Classes of functions go to the workers by value, their traps with them.


def _sink(name: str, place: str, traps: Traps) -> type[DataSource]:
    class Writer(StreamSink):
        def write(self, iterator: Iterator[Any]) -> Any:
            at_once = patch.object(writing._Buffer, "add", _add_and_flush)
            try:
                with at_once, _trapped(place, traps):
                    return super().write(_rows(place, traps, iterator))
            except OncelogError:
                for trap in traps:
                    trap.refused_here()
                raise

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            if place == "end":
                _reach(traps)
            with _trapped(place, traps):
                super().commit(messages, batchId)

    class Source(OncelogDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            with _trapped(place, traps):
                return Writer(SinkOptions.parse(self.options), schema)

    return Source


def _naive(name: str, place: str, traps: Traps) -> type[DataSource]:
    class Writer(NaiveWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            message = super().write(_rows(place, traps, iterator))
            if place == "flush":
                _reach(traps)
            return message

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            if place in ("end", "ended"):
                _reach(traps)

    class Source(NaiveSink):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return Writer(dict(self.options))

    return Source


def register(spark: SparkSession, way: str, name: str, place: str, traps: Traps) -> None:
    """`format(name)`, with the sink's options; `way` is `sink` or `naive`."""
    assert place in PLACES
    spark.dataSource.register({"sink": _sink, "naive": _naive}[way](name, place, traps))
