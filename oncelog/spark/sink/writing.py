"""Steps of a task and the driver for a batch: begin, stage, end. Nothing here needs Spark.

Place in the flow: `writers` (Spark's interface) -> `stage_rows` in each task attempt -> its
`Staged` goes to the driver -> `end_batch`. An attempt that fails just stops: its staged rows are
published only if the driver names it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncelog._engine.net import runtime
from oncelog._engine.net.cluster import Cluster
from oncelog._engine.produce.staged import EncodedBatch, Stager
from oncelog._engine.sinks import SinkCalls
from oncelog.config import AdminConfig
from oncelog.errors import OncelogError, TransactionError
from oncelog.spark.allocator import keep_large_buffers
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.rows import Rows
from oncelog.types import TopicPartition
from oncelog.v1 import sink_pb2
from oncelog.wire.arrow import encode_arrow
from oncelog.wire.compression import CODECS

BATCH_BYTES = 1024 * 1024
PENDING_BYTES = 32 * 1024 * 1024  # in all partitions
EMPTY, COMMITTED = -1, 0  # instead of a transaction


class SinkBatch(NamedTuple):
    """A batch of a sink, as requested by its tasks and its driver."""

    sink: str
    jobs: bool
    query: str
    run: str
    ticket: int
    batch: int


@dataclass(frozen=True)
class Staged:
    """Result of a task attempt. transaction: EMPTY without a row."""

    asked: SinkBatch
    task: int
    transaction: int = EMPTY
    producer_id: int = 0
    runs: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    records: int = 0
    digest: int = 0


class SinkConnection:
    """Connection of one process to its cluster, for one attempt or for the end of a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        config = AdminConfig.from_settings(
            {"bootstrap_servers": options.bootstrap_servers, **options.client_settings}
        )
        self.timeout_s = options.delivery_timeout_ms / 1000
        self.cluster: Cluster = runtime.run(_made(config))
        self._calls = SinkCalls(self.cluster, self.timeout_s)

    def close(self) -> None:
        if runtime.can_close():
            runtime.run(self.cluster.close())

    def draw_ticket(self, sink: str, jobs: bool) -> int:
        return runtime.run(self._calls.draw_ticket(sink, jobs))

    def begin(self, asked: SinkBatch) -> int:
        """Begin a batch; return the transaction, or COMMITTED."""
        request = sink_pb2.BeginBatchRequest(
            **asked._asdict(),
            reset=self.options.reset,
            total_timeout_ms=self.options.transaction_timeout_ms,
        )
        return runtime.run(self._calls.begin_batch(request))

    def end(self, request: sink_pb2.EndBatchRequest) -> bool:
        return runtime.run(self._calls.end_batch(request))

    def abort(self, sink: str, transaction: int) -> None:
        runtime.run(self._calls.abort_batch(sink, transaction))

    def partition_count(self, topic: str) -> int:
        leaders = self.cluster.leaders
        if topic not in leaders.topics:
            runtime.run(self.cluster.require_topic(topic, self.timeout_s))
        return len(leaders.topics[topic].partitions)


async def _made(config: AdminConfig) -> Cluster:
    return Cluster(config)


@contextmanager
def connected(options: SinkOptions) -> Iterator[SinkConnection]:
    sink = SinkConnection(options)
    try:
        yield sink
    finally:
        sink.close()


# -- a task -------------------------------------------------------------------------------


def stage_rows(options: SinkOptions, asked: SinkBatch, task: int, batches: Iterator[Any]) -> Staged:
    """Stage all rows of a task; its first row begins the batch, or joins it."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Staged(asked, task)
    keep_large_buffers()
    with connected(options) as sink:
        transaction = sink.begin(asked)
        rows = Rows(options.topic, sink.partition_count)
        if transaction == COMMITTED:
            for batch in _chain(first, batches):
                rows.digested(batch)
            return Staged(asked, task, COMMITTED, records=rows.records, digest=rows.digest)
        stager = Stager(sink.cluster, transaction, sink.timeout_s, CODECS[options.compression])
        try:
            runtime.run(stager.start())
            buffer = _Buffer(stager)
            for batch in _chain(first, batches):
                rows.digested(batch)
                for tp, piece in rows.pieces(batch):
                    buffer.add(tp, piece)
            runs = buffer.flush()
        finally:
            runtime.run(stager.close())
        return Staged(asked, task, transaction, stager.producer_id, runs, rows.records, rows.digest)


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    for batch in rest:
        if batch.num_rows:
            yield batch


class _Buffer:
    """Rows of each partition until they are a batch."""

    def __init__(self, stager: Stager) -> None:
        self._stager = stager
        self._waiting: dict[TopicPartition, list[Any]] = {}
        self._sizes: dict[TopicPartition, int] = {}

    def add(self, tp: TopicPartition, piece: Any) -> None:
        self._waiting.setdefault(tp, []).append(piece)
        self._sizes[tp] = self._sizes.get(tp, 0) + piece.nbytes
        if self._sizes[tp] >= BATCH_BYTES:
            self._put(tp)
        elif sum(self._sizes.values()) > PENDING_BYTES:
            self._put(max(self._sizes, key=lambda tp: self._sizes[tp]))

    def flush(self) -> dict[TopicPartition, tuple[int, int]]:
        for tp in list(self._waiting):
            self._put(tp)
        return runtime.run(self._stager.flush())

    def _put(self, tp: TopicPartition) -> None:
        import pyarrow as pa

        del self._sizes[tp]
        whole = pa.concat_batches(self._waiting.pop(tp))
        for piece in _cut(whole):
            encoded = EncodedBatch(*encode_arrow(piece, time.time_ns() // 1000))
            runtime.run(self._stager.put(tp, encoded))


def _cut(rows: Any) -> Iterator[Any]:
    """Cut into pieces of about BATCH_BYTES; a record that is larger goes alone."""
    if rows.num_rows == 1 or rows.nbytes <= 2 * BATCH_BYTES:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _cut(rows.slice(0, half))
    yield from _cut(rows.slice(half))


# -- the driver ---------------------------------------------------------------------------


def end_batch(options: SinkOptions, staged: Sequence[Staged]) -> bool:
    """Publish the tasks' staged rows, in their order; returns once they are readable.

    True: it was committed before.
    """
    asked = staged[0].asked
    transactions = {one.transaction for one in staged} - {EMPTY}
    if len(transactions) > 1:
        raise TransactionError(f"{asked}: its tasks were told of {sorted(transactions)}")
    with connected(options) as sink:
        transaction = transactions.pop() if transactions else sink.begin(asked)
        winners = [
            sink_pb2.Winner(
                producer_id=one.producer_id,
                topic=tp.topic,
                partition=tp.partition,
                record_count=count,
                last_sequence=last,
            )
            for one in sorted(staged, key=lambda one: one.task)
            for tp, (count, last) in one.runs.items()
        ]
        request = sink_pb2.EndBatchRequest(
            sink=asked.sink,
            jobs=asked.jobs,
            query=asked.query,
            batch=asked.batch,
            transaction_id=transaction,
            winners=winners,
            record_count=sum(one.records for one in staged),
            digest=sum(one.digest for one in staged) % 2**64,
        )
        return sink.end(request)


def abort_batch(options: SinkOptions, staged: Sequence[Staged]) -> None:
    """Drop the staged rows. A committed batch stays; other failures are left to the timeout."""
    transactions = {one.transaction for one in staged} - {EMPTY, COMMITTED}
    with connected(options) as sink:
        for transaction in transactions:
            try:
                sink.abort(staged[0].asked.sink, transaction)
            except OncelogError:
                return
