"""Stream reader: the end of each trigger, and the query's progress.

Place in the flow: Spark keeps one reader for the life of a query, in a process of its own on the
driver. At each trigger it asks for the end (`latestOffset`), writes the answer to the checkpoint,
and asks for the tasks of that stretch (`partitions`). After a restart it asks for the tasks of a
stretch from the checkpoint again; they are the same records.

Needs PySpark 4.2: earlier versions ask without the stream's position, so that no trigger could be
limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from oncelog.spark.source.offsets import (
    LATEST,
    NEW,
    OffsetRange,
    Offsets,
    StreamPosition,
    admit,
    split,
)
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import Planner, TopicGoneError, gone, id_of, log
from oncelog.spark.source.schema import wanted_columns
from oncelog.spark.source.tasks import read_partition
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class OncelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads from the start in the options, and later from the checkpoint.

    Nothing is checked in the constructor: Spark 4.3 hides an error that is raised there behind one
    of its own.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: Planner | None = None
        self._target: StreamPosition | None = None  # Trigger.AvailableNow: the end of the query
        self._seen: StreamPosition | None = None  # the ends at the last look
        self._away: set[TopicPartition] = set()  # partitions without a leader at the last look

    # --- how far to read -------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start of a query without a checkpoint.

        Spark saves the end of a micro-batch, but not the start of the first one: it asks here again
        after a restart. If the answer could change (latest), the first micro-batch is an empty one
        that ends at its beginning. Without it, a restart would skip records that come before the
        query's first micro-batch is done.
        """
        planner = self._ready()
        now = planner.look()
        earliest = planner.earliest(now.offsets)
        starts = planner.starting(now, earliest, LATEST)
        begin = StreamPosition(planner.kept(starts, earliest, "startingOffsets"), now.ids).to_json()
        return {**begin, NEW: {}} if self._options.start_moves else begin

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of this trigger, from `start` on.

        A partition without a leader ends where it begins, so that the others go on. With
        Trigger.AvailableNow its end is known: its task waits for the leader.
        """
        planner = self._ready()
        place = StreamPosition.from_json(start)
        if NEW in start:
            return place.to_json()
        now = planner.look(known=place)
        for tp in sorted(place.offsets.keys() - now.offsets.keys()):
            planner.lost(
                TopicGoneError(
                    f"{tp} was read until offset {place.offsets[tp]} and is not there, or not "
                    "selected, any more"
                )
            )
        latest = planner.latest_led(now.offsets, self._away)
        self._note_away(now.offsets.keys() - latest.keys())
        # Asked many times a second while nothing comes: then the log's starts do not matter.
        same = now.ids == place.ids and now.offsets.keys() == place.offsets.keys()
        idle = same and all(latest.get(tp, at) <= at for tp, at in place.offsets.items())
        begin = place.offsets if idle else self._begin(planner, place, now)
        stop = self._target.offsets if self._target is not None else {}
        # An end before the beginning is that of a deposed leader: no news yet.
        ends = {tp: max(at, latest.get(tp, stop.get(tp, at))) for tp, at in begin.items()}
        self._seen = StreamPosition(ends, now.ids)
        if self._target is not None:
            ends = {tp: max(at, min(ends[tp], stop.get(tp, at))) for tp, at in begin.items()}
        if isinstance(limit, ReadMaxRows):
            ends = admit(begin, ends, limit.max_rows)
        return StreamPosition(ends, now.ids).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        planner = self._ready()
        now = planner.look()
        self._target = StreamPosition(planner.latest(now.offsets), now.ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of all partitions, for the query's progress."""
        return None if self._seen is None else self._seen.to_json()

    def _note_away(self, away: set[TopicPartition]) -> None:
        for tp in sorted(away - self._away):
            log.warning("%s has no leader: the query reads the other partitions until it has", tp)
        for tp in sorted(self._away - away):
            log.warning("%s has a leader again: the query reads it", tp)
        self._away = away

    def _begin(self, planner: Planner, place: StreamPosition, now: StreamPosition) -> Offsets:
        """Return the start of each of the partitions `now`.

        Without a leader only that of a partition which was read before is known.
        """
        earliest = planner.earliest(now.offsets.keys() - self._away)
        begin: Offsets = {
            tp: place.offsets[tp]
            for tp in self._away & now.offsets.keys() & place.offsets.keys()
            if place.ids.get(tp.topic) == now.ids[tp.topic]
        }
        for topic, known in sorted(now.ids.items()):
            if place.ids.get(topic, known) != known:
                planner.lost(gone(topic))
        for tp, first in earliest.items():
            same = place.ids.get(tp.topic) == now.ids[tp.topic]
            # A topic that came later (subscribePattern, or a longer list) is read in full.
            begin[tp] = place.offsets.get(tp, first) if same else first
        return begin | planner.kept({tp: begin[tp] for tp in earliest}, earliest, "checkpoint")

    # --- tasks -----------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planner = self._ready()
        first, last = StreamPosition.from_json(start), StreamPosition.from_json(end)
        now = planner.look(known=last)
        for topic, known in sorted(last.ids.items()):
            if now.ids.get(topic) != known:
                planner.lost(gone(topic))
        there = [
            tp
            for tp, at in last.offsets.items()
            if now.ids.get(tp.topic) == last.ids[tp.topic]
            and (first.offsets.get(tp), first.ids.get(tp.topic)) != (at, last.ids[tp.topic])
        ]
        selected = StreamPosition({tp: last.offsets[tp] for tp in there}, last.ids)
        self._away -= selected.offsets.keys()  # they have records to read: their tasks wait
        begin = self._begin(planner, first, selected)
        ranges = [OffsetRange(tp, begin[tp], last.offsets[tp]) for tp in sorted(there)]
        return [
            InputPartition((*one, id_of(last.ids[one.tp.topic])))
            for one in split(ranges, self._options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, partition, self._columns())

    # --- life ------------------------------------------------------------------------

    def _ready(self) -> Planner:
        if self._planner is None:
            self._options.for_stream()
            self._columns()
            self._planner = Planner(self._options)
        return self._planner

    def _columns(self) -> tuple[str, ...]:
        return wanted_columns(self._schema, self._options.include_headers)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None
