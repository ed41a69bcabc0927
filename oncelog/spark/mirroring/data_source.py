"""Data source of a mirror's query, both ends: `format("oncelog-mirror")`.

Place in the flow: `mirror` registers it for the session and uses it on both sides of the query; it
is not meant for other queries. The reader is that of `format("oncelog")` with other start offsets;
the writer hands each task's rows to `writer`.

Spark's checkpoint is not trusted as the query's progress: it may be lost, be older than the copy of
another run, or belong to another target. The first micro-batch of a run begins behind the last
record in the target, whatever the checkpoint says. Each later one begins at the end of the one
before, which has been written by then. If a filter dropped the records read last, they are read,
and dropped, again.

There is one task for each partition, even with nothing to read. So a task's number is that of its
partition, and the writer can detect misplaced rows.

Without a transformation no operator uses the rows between the two ends. A task's only row is then
the range for its writer to read: see `ranges`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from oncelog.admin import Admin
from oncelog.errors import ConfigError
from oncelog.spark.allocator import keep_large_buffers
from oncelog.spark.mirroring import ranges as mirror_ranges
from oncelog.spark.mirroring.run import OPTION, MirrorSettings, claims, keep_names
from oncelog.spark.mirroring.writer import COLUMNS, PartitionCopy
from oncelog.spark.source.offsets import OffsetRange, Offsets, StreamPosition
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import TopicGoneError, id_of
from oncelog.spark.source.reading import join
from oncelog.spark.source.schema import columns_as_types
from oncelog.spark.source.stream import OncelogStreamReader
from oncelog.types import TopicPartition
from oncelog.wire.stored import StoredBatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

# A name is forgotten after a week without a lease, by a cluster's default.
_KEEP_NAMES_S = 12 * 3600.0


class MirrorDataSource(DataSource):
    """Made with one option: the settings of a run."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._settings = MirrorSettings.from_option(options[OPTION])

    @classmethod
    def name(cls) -> str:
        return "oncelog-mirror"

    def schema(self) -> StructType | str:
        if self._settings.by_range:
            return mirror_ranges.RANGE_DDL
        return columns_as_types(include_headers=True)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return MirrorStreamReader(self._settings, schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return MirrorStreamWriter(self._settings)


class MirrorStreamReader(OncelogStreamReader):
    """Begins at the end of the target's copy."""

    def __init__(self, settings: MirrorSettings, schema: StructType) -> None:
        super().__init__(SourceOptions.parse(settings.source_options()), schema)
        self._settings = settings
        self._admin: Admin | None = None
        self._names_kept = time.monotonic()
        self._begin_at: Offsets | None = None  # all records before it are copied
        self._planned_to: Offsets | None = None  # the end of the last planned micro-batch

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return StreamPosition(self._claimed(), self._ids()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._keep_names()
        place = StreamPosition.from_json(start)
        claimed = self._claimed()
        ahead = {tp: max(at, claimed.get(tp, at)) for tp, at in place.offsets.items()}
        return super().latestOffset(StreamPosition(ahead, place.ids).to_json(), limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one for each partition of the topic, in their order; empty ones read nothing."""
        self._ids()
        # Asked for each time: a replaced run must not go on.
        claimed = self._claimed()
        begin = claimed if self._begin_at is None else self._begin_at
        first, last = StreamPosition.from_json(start).offsets, StreamPosition.from_json(end).offsets
        if first == self._planned_to:
            # Spark plans a micro-batch when all before it are written.
            begin = {tp: max(at, first[tp]) for tp, at in begin.items()}
        self._begin_at = begin
        self._planned_to = last
        ranges = [OffsetRange(tp, at, last[tp]) for tp, at in sorted(begin.items())]
        topic_id = id_of(self._settings.source_id)
        return [InputPartition((*one, topic_id) if one.size > 0 else None) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not self._settings.by_range:
            return super().read(partition)
        ranges = [] if partition.value is None else [OffsetRange(*partition.value[:-1])]
        return map(mirror_ranges.pack, ranges)

    def _columns(self) -> tuple[str, ...]:
        return COLUMNS if self._settings.by_range else super()._columns()

    def _ids(self) -> dict[str, str]:
        """Return the ids. Raises TopicGoneError for another topic, ConfigError if it has grown."""
        topic, known = self._settings.source_topic, self._settings.source_id
        place = self._ready().look(known=StreamPosition({}, {topic: known}))
        now = place.ids
        if now.get(topic) != known:
            raise TopicGoneError(
                f"source {topic!r} was deleted while it was copied; if there is one of that name, "
                "its offsets are others"
            )
        if len(place.offsets) > self._settings.partitions:
            raise ConfigError(
                f"source: topic {topic!r} has {len(place.offsets)} partitions by now, and "
                f"{self._settings.partitions} are copied: give the target as many and start again",
                "source",
            )
        return now

    def _claimed(self) -> Offsets:
        found = claims(self._target_client(), self._settings)
        topic = self._settings.source_topic
        return {TopicPartition(topic, p): one.begin for p, one in found.items()}

    def _keep_names(self) -> None:
        if time.monotonic() - self._names_kept > _KEEP_NAMES_S:
            self._claimed()
            keep_names(self._target_client(), self._settings)
            self._names_kept = time.monotonic()

    def _target_client(self) -> Admin:
        if self._admin is None:
            self._admin = self._settings.admin()
        return self._admin

    def stop(self) -> None:
        super().stop()
        if self._admin is not None:
            self._admin.close()
            self._admin = None


class MirrorStreamWriter(DataSourceStreamArrowWriter):
    """Each task writes and waits for its acknowledgements: nothing is left to commit."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        keep_large_buffers()
        copy = PartitionCopy(self._settings, context.partitionId())
        try:
            for batch in self._batches(iterator):
                if isinstance(batch, StoredBatch):
                    copy.take_stored(batch)
                else:
                    copy.take(batch)
            copy.finish()
        except BaseException:
            copy.abort()
            raise
        return WriterCommitMessage()

    def _batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        if self._settings.by_range:
            return mirror_ranges.read(self._settings, iterator)
        # Spark's own batches may be small, and each of the copy's waits for an acknowledgement.
        return join(iterator)
