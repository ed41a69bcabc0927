"""Reader of offset ranges as Arrow batches, in Spark's Python workers.

Place in the flow: node -> `Consumer.stored_batch()` -> cut to the range -> an Arrow batch over each
one's own memory, small ones joined, large ones split -> Spark, which copies them to the JVM. No
record is touched in Python.

A consumer is made when a task begins to read, never earlier: workers are forked. It then stays with
its process for the next task, like Spark's workers; connecting again would cost more than a small
micro-batch.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from oncelog.consumer import Consumer
from oncelog.errors import (
    InvalidBatchError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    UnknownTopicOrPartitionError,
)
from oncelog.spark.allocator import keep_large_buffers
from oncelog.spark.source.offsets import OffsetRange
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import CLIENT_ID, TopicGoneError, log
from oncelog.wire.arrow import rows_between, to_arrow
from oncelog.wire.stored import StoredBatch

# Bytes handed to Spark at once: below, the cost of each batch shows; above, memory does.
JOIN_BYTES = 1024 * 1024
SPLIT_BYTES = 4 * 1024 * 1024
# Bytes of a consumer's fetch, and of its buffer.
FETCH_BYTES = 4 * 1024 * 1024
_RETRY_S = 0.1


class BatchPart(NamedTuple):
    """Part of a stored batch that is in the range: the `rows` offsets behind its `skip`."""

    batch: StoredBatch
    rows: int

    @property
    def is_whole(self) -> bool:
        return self.rows == self.batch.record_count

    def arrow(self) -> Any:
        """Return its records as a pyarrow.RecordBatch, over the batch's memory if it has no blanks.

        Raises CorruptLogError.
        """
        batch = self.batch
        decoded = batch.decoded()
        try:
            found = to_arrow(decoded, batch.topic, batch.partition, batch.base_offset, batch.skip)
        except InvalidBatchError as error:
            raise batch.corrupt(error) from error
        if batch.carried:
            start = batch.base_offset + batch.skip
            return rows_between(found, start, start + self.rows)
        return found.slice(0, self.rows)


def read_range(options: SourceOptions, one: OffsetRange, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the range's records as pyarrow.RecordBatches with these columns.

    Raises OffsetOutOfRangeError if retention has deleted some (failOnDataLoss=false skips
    them and logs it), RequestTimeoutError if none came for pollTimeoutMs, TopicGoneError,
    CorruptLogError.
    """
    return join(part.arrow().select(columns) for part in read_stored(options, one))


def read_stored(options: SourceOptions, one: OffsetRange) -> Iterator[BatchPart]:
    """Yield the range's batches as they are stored. Raises as `read_range` does."""
    consumer = _take(options)
    finished = False
    try:
        yield from _stored(options, consumer, one)
        finished = True
    finally:
        if finished:
            _give_back(options, consumer)
        else:
            consumer.close()


# --- consumers that wait for the next task ---------------------------------------------

_Kind = tuple[int, tuple[str, ...], tuple[tuple[str, object], ...]]
_idle: dict[_Kind, list[Consumer]] = {}


def _kind(options: SourceOptions) -> _Kind:
    return os.getpid(), options.bootstrap_servers, tuple(options.client_settings.items())


def _take(options: SourceOptions) -> Consumer:
    idle = _idle.get(_kind(options))
    if idle:
        return idle.pop()
    keep_large_buffers()
    return Consumer(
        bootstrap_servers=options.bootstrap_servers,
        client_id=CLIENT_ID,
        **options.client_settings,
        # The planner has set the start; any other would be wrong.
        auto_offset_reset="none",
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_max_bytes=FETCH_BYTES,
    )


def _give_back(options: SourceOptions, consumer: Consumer) -> None:
    consumer.assign([])  # records fetched ahead are dropped
    _idle.setdefault(_kind(options), []).append(consumer)


@atexit.register
def _close_idle() -> None:
    """A worker of Spark ends without this; a process that reads by itself ends in order."""
    for kind in [one for one in _idle if one[0] == os.getpid()]:
        for consumer in _idle.pop(kind):
            consumer.close()


# --- reading ---------------------------------------------------------------------------


def _stored(options: SourceOptions, consumer: Consumer, one: OffsetRange) -> Iterator[BatchPart]:
    at = one.start
    timeout_s = options.poll_timeout_ms / 1000
    last_read = time.monotonic()
    while True:
        try:
            consumer.assign([one.tp])
            consumer.seek(one.tp, at)
            while (batch := consumer.stored_batch(timeout_ms=options.poll_timeout_ms)) is not None:
                # Offsets have no holes, which the consumer checks.
                assert at == batch.base_offset + batch.skip
                rows = min(batch.last_offset + 1, one.end) - at
                at += rows
                yield BatchPart(batch, rows)
                if at >= one.end:
                    return
                last_read = time.monotonic()
            raise _nothing_comes(one, at, options)
        except UnknownTopicOrPartitionError as error:
            raise TopicGoneError(f"{one.tp} was deleted while it was read") from error
        except OffsetOutOfRangeError as error:
            if error.offset <= error.high_watermark:
                _note_loss(options, one, error)
                at = error.log_start_offset
                if at >= one.end:
                    return
            elif time.monotonic() - last_read > timeout_s:
                raise _nothing_comes(one, at, options) from error
            else:
                # The planner saw these records: a deposed leader does not know of them.
                time.sleep(_RETRY_S)  # no event: a node does not say that it was deposed


def _nothing_comes(one: OffsetRange, at: int, options: SourceOptions) -> RequestTimeoutError:
    return RequestTimeoutError(
        f"{one.tp}: no record at offset {at} for pollTimeoutMs={options.poll_timeout_ms}, of "
        f"the range {one.start} to {one.end - 1}"
    )


def _note_loss(options: SourceOptions, one: OffsetRange, error: OffsetOutOfRangeError) -> None:
    """Raises if skipping deleted records is not allowed."""
    text = (
        f"{one.tp} begins at offset {error.log_start_offset} now: {error.offset} to "
        f"{min(error.log_start_offset, one.end) - 1} were deleted by retention before they "
        "were read"
    )
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(
            f"{text} (failOnDataLoss=false goes on without)", **error.details
        ) from None
    log.warning("failOnDataLoss=false: %s", text)


# --- sizes -----------------------------------------------------------------------------


def join(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the same rows in batches of about JOIN_BYTES to SPLIT_BYTES.

    Joining copies, which costs less than Spark's overhead for each small batch.
    """
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue  # all are blanks
        own = batch.nbytes
        if waiting and size + own > SPLIT_BYTES:
            yield _one(waiting)
            waiting, size = [], 0
        if own > SPLIT_BYTES:
            yield from _slices(batch, own)
            continue
        waiting.append(batch)
        size += own
        if size >= JOIN_BYTES:
            yield _one(waiting)
            waiting, size = [], 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    import pyarrow

    return pyarrow.concat_batches(batches)


def _slices(batch: Any, size: int) -> Iterator[Any]:
    """Yield equal numbers of rows; a single record is never cut."""
    rows = max(1, batch.num_rows * SPLIT_BYTES // size)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
