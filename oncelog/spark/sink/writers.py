"""Writers for Spark, for a stream and for a batch job.

Place in the flow: `data_source` makes one in a planner process, for each micro-batch or job. A copy
runs in each task. A stream's `commit` runs on a new one, a job's on the tasks' own. So the tasks'
messages carry the data for a stream's driver, and a job's run is drawn when its writer is made.

`write` gets no batch id: it comes from the task's local properties in Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from oncelog.errors import NotSupportedError
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.rows import check_columns
from oncelog.spark.sink.writing import (
    SinkBatch,
    Staged,
    abort_batch,
    connected,
    end_batch,
    stage_rows,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY, BATCH, RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


@dataclass
class AttemptMessage(WriterCommitMessage):
    """Message of a task attempt to the driver."""

    staged: Staged


def refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise NotSupportedError(
            "a log is only ever added to: use mode append, and for a stream the output mode "
            "append, or update with foreachBatch; to begin anew, write into another topic"
        )


class StreamSink(DataSourceStreamArrowWriter):
    """Writer of a micro-batch of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options
        with connected(options) as sink:
            self._ticket = sink.draw_ticket(options.sink_id, jobs=False)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if not query or batch is None:
            raise NotSupportedError(f"this Spark does not tell its tasks {QUERY} and {BATCH}")
        run = context.getLocalProperty(RUN) or ""
        asked = SinkBatch(self._options.sink_id, False, query, run, self._ticket, int(batch))
        return AttemptMessage(stage_rows(self._options, asked, context.partitionId(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if not staged or any(one.asked.batch != batchId for one in staged):
            raise NotSupportedError(f"batch {batchId}: Spark brought {len(staged)} messages of it")
        end_batch(self._options, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if staged := _staged(messages):
            abort_batch(self._options, staged)


class JobSink(DataSourceArrowWriter):
    """Writer of a batch job. Without sinkId and batchId the job is never repeated."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options
        run = str(uuid.uuid4())
        self._asked = SinkBatch(f"job-{run}", True, "", run, 0, 0)
        if options.sink_id:
            with connected(options) as sink:
                ticket = sink.draw_ticket(options.sink_id, jobs=True)
            self._asked = SinkBatch(options.sink_id, True, "", run, ticket, options.batch_id)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        return AttemptMessage(
            stage_rows(self._options, self._asked, context.partitionId(), iterator)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        end_batch(self._options, _staged(messages) or [Staged(self._asked, 0)])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if staged := _staged(messages):
            abort_batch(self._options, staged)


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [one.staged for one in messages if isinstance(one, AttemptMessage)]
