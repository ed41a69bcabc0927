"""Writer of a mirror's task attempt: the rows of one source partition go into the target.

Place in the flow: Spark's Python worker -> `data_source` hands over each Arrow batch -> here ->
producer. Nothing here needs Spark, and nothing is done record by record.

A record appears once, however the attempt ends:

- a record's sequence is its source offset, and records in the target are skipped. A replayed
  micro-batch, or a repeated task, writes the missing records and nothing else;
- an attempt with something to write opens the partition's named producer, which raises the
  epoch: an earlier attempt that still lives, stopped and resumed, is FENCED from then on;
- before that it only reads. An attempt that wakes up when all its rows are stored, by its
  successor or by the micro-batches after it, finds that and disturbs no other;
- `prev_sequence` chains each batch to the last stored one, so no part can be missing between
  two of them, filtered or not;
- without a filter, an offset is missing only if compaction has removed its record: where some are
  missing, the source's records are counted;
- it first checks that its run is still the latest and, once the producer is open, that the topic
  is still the claimed one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from oncelog.errors import InvalidRequestError, OutOfOrderError, ProducerExpiredError
from oncelog.producer import Producer
from oncelog.spark.mirroring.run import MirrorSettings, check_target, claims, last_stored
from oncelog.spark.source.offsets import OffsetRange
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.reading import BatchPart, read_stored
from oncelog.types import BatchMetadata, TopicPartition
from oncelog.wire.stored import StoredBatch

# Of a record; `offset` and `partition` give its source.
RECORD_COLUMNS = ("key", "value", "timestamp", "headers")
COLUMNS = (*RECORD_COLUMNS, "partition", "offset")
# Bytes of a batch of the copy, by Arrow's count, which is above the payload's.
_BATCH_BYTES = 1024 * 1024
_SLACK = 256  # in a payload, not counted by Arrow


class PartitionCopy:
    """Used by one thread. `take` each batch, then `finish`; or `abort`."""

    def __init__(self, settings: MirrorSettings, partition: int) -> None:
        """`partition` is the task's number, which must be the number of its rows' partition."""
        self._settings = settings
        self._partition = partition
        self._last_row = -1  # source offset of the last row
        self._stored = -1  # source offset of the last record known to be stored
        self._producer: Producer | None = None
        self._pending: deque[Future[BatchMetadata]] = deque()
        self.copied = 0  # records acknowledged, without those already there

    def take(self, batch: Any) -> None:
        """Copy the rows of a pyarrow.RecordBatch with the columns COLUMNS.

        Raises InvalidRequestError, before anything of the batch is sent, if its rows do not belong
        to this task; FencedError if another attempt or run has taken over.
        """
        if not batch.num_rows:
            return
        self._check_rows(batch)
        batch = self._without_stored(batch)
        if batch.num_rows and self._producer is None:
            batch = self._open(batch)
        if not batch.num_rows:
            return
        assert self._producer is not None
        offsets = batch.column("offset")
        self._check_next(offsets[0].as_py(), offsets[-1].as_py(), len(offsets))
        self._stored = offsets[-1].as_py()
        for start, stop in self._pieces(batch.select(list(RECORD_COLUMNS))):
            self._pending.append(
                self._producer.send_batch(
                    self._settings.target_topic,
                    self._partition,
                    batch.slice(start, stop - start).select(list(RECORD_COLUMNS)),
                    sequences=offsets.slice(start, stop - start),
                )
            )
        self._take_those_done()

    def take_stored(self, batch: StoredBatch) -> None:
        """Copy a batch as it is stored; raises as `take` does."""
        first, last = batch.base_offset, batch.last_offset
        fits = len(batch.payload) <= self._settings.max_batch_bytes
        if self._producer is None or first <= self._stored or not fits:
            # The first batch, a batch partly in the target, or one to be cut.
            return self.take(BatchPart(batch, batch.record_count).arrow().select(list(COLUMNS)))
        self._check_place(batch.partition, batch.partition, first > self._last_row)
        self._check_next(first, last, batch.record_count)
        self._last_row = self._stored = last
        self._pending.append(
            self._producer.send_stored_batch(
                self._settings.target_topic, self._partition, batch, base_sequence=first
            )
        )
        self._take_those_done()
        return None

    def finish(self) -> None:
        """Wait until all is stored; raises the error that prevented it."""
        while self._pending:
            self._take_acknowledged()
        if self._producer is not None:
            self._producer.close()

    def abort(self) -> None:
        """Free everything, without waiting."""
        if self._producer is not None:
            for future in self._pending:
                future.add_done_callback(lambda done: done.exception())  # retrieves the error
            self._producer.close(timeout_ms=0)

    def _take_those_done(self) -> None:
        while self._pending and self._pending[0].done():
            self._take_acknowledged()

    def _take_acknowledged(self) -> None:
        stored = self._pending.popleft().result()
        if not stored.duplicate:
            self.copied += stored.record_count

    # --- what the target has -----------------------------------------------------------

    def _open(self, batch: Any) -> Any:
        """Become the writer, if there is something to write; return the remaining rows."""
        settings, partition = self._settings, self._partition
        with settings.admin() as admin:
            claimed = claims(admin, settings)[partition]
            self._stored = max(
                claimed.begin - 1, last_stored(admin, settings, partition, claimed.producer_id)
            )
            batch = self._without_stored(batch)
            if not batch.num_rows:
                return batch
            self._producer = settings.producer(partition)
            stored = self._producer.position(settings.target_topic, partition)
            if self._producer.producer_id != claimed.producer_id:
                raise ProducerExpiredError(
                    f"the producer name {settings.producer_name(partition)!r} expired during "
                    "the run: the target has forgotten how far the copy is"
                )
            # In this order: if it is the right topic now, it was when the producer was opened.
            check_target(admin, settings)
            self._stored = max(claimed.begin - 1, stored)
        return self._without_stored(batch)

    def _without_stored(self, batch: Any) -> Any:
        offsets = batch.column("offset")
        there = bisect_right(range(len(offsets)), self._stored, key=lambda n: offsets[n].as_py())
        return batch.slice(there)

    # --- the rows ----------------------------------------------------------------------

    def _check_rows(self, batch: Any) -> None:
        """Check that a task's rows are of one partition and in order. A shuffle breaks that."""
        import pyarrow.compute as pc

        partition, offset = batch.column("partition"), batch.column("offset")
        if partition.null_count or offset.null_count:
            raise InvalidRequestError("mirror: a row without partition or offset", field="offset")
        low, high = pc.min_max(partition).values()
        rises = pc.all(pc.greater(offset[1:], offset[:-1])).as_py() in (True, None)
        follows = rises and offset[0].as_py() > self._last_row
        self._check_place(low.as_py(), high.as_py(), follows)
        self._last_row = offset[-1].as_py()

    def _check_place(self, low: int, high: int, follows: bool) -> None:
        """Check rows. `low`, `high`: of their partitions. `follows`: on the rows before."""
        if not low == high == self._partition:
            raise InvalidRequestError(
                f"mirror: task {self._partition} got rows of the partitions {low} to {high}: "
                "rows must stay in the task of their partition",
                field="partition",
            )
        if not follows:
            raise InvalidRequestError(
                f"mirror: partition {self._partition}: the offsets of its rows do not rise: "
                "a row must stay in its place, and be there once",
                field="offset",
            )

    def _check_next(self, first: int, last: int, count: int) -> None:
        """Check that, without a filter, no record of the source is missing: none but blanks."""
        if not self._settings.keeps_all:
            return
        offsets = last - self._stored
        if count != offsets and count != self._records(self._stored + 1, last + 1):
            raise OutOfOrderError(
                f"mirror: partition {self._partition}: after source offset {self._stored} come "
                f"{count} records from {first} to {last}, and no filter explains it",
                last_sequence=self._stored,
            )

    def _records(self, start: int, end: int) -> int:
        """Count the source's records from `start` to `end`, without blanks."""
        options = SourceOptions.parse(self._settings.source_options())
        tp = TopicPartition(self._settings.source_topic, self._partition)
        parts = read_stored(options, OffsetRange(tp, start, end))
        return sum(part.arrow().num_rows for part in parts)

    def _pieces(self, batch: Any) -> Iterator[tuple[int, int]]:
        """Cut into batches of the copy: rows start..stop. A record that is too large goes alone."""
        limit = min(_BATCH_BYTES, self._settings.max_batch_bytes - _SLACK)
        todo = [(0, batch.num_rows)]
        while todo:
            start, stop = todo.pop()
            if stop - start == 1 or batch.slice(start, stop - start).nbytes <= limit:
                yield start, stop
                continue
            middle = (start + stop) // 2
            todo += [(middle, stop), (start, middle)]
