"""Producer: `send` on any thread, one engine thread behind it.

Place in the flow: user -> here (partition, back-pressure) -> `_engine/produce`, accumulator and
sender -> nodes. `send` does no IO. Once a topic is known it does not wait, unless `buffer_memory`
is full.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, Unpack

from oncelog import errors
from oncelog._engine.admin import AdminCore
from oncelog._engine.arguments import (
    Bytes,
    Headers,
    as_bytes,
    as_headers,
    as_index,
    as_int,
    as_time_us,
    encode_list,
    rising_sequences,
)
from oncelog._engine.net import runtime
from oncelog._engine.net.cluster import Cluster
from oncelog._engine.net.leaders import TopicView
from oncelog._engine.produce import leaving
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.futures import DeliveryFuture, OnDelivery, RecordFuture
from oncelog._engine.produce.interruption import take_back
from oncelog._engine.produce.placement import Placement
from oncelog._engine.produce.sender import Sender
from oncelog._engine.produce.sharing import Connections
from oncelog._engine.produce.transactions import ProducerTransactions
from oncelog.config import ProducerConfig
from oncelog.dotted import settings_from_dotted
from oncelog.settings import ProducerSettings
from oncelog.transaction import Transaction
from oncelog.types import BatchMetadata, RecordMetadata, ResolvedSequence, TopicPartition
from oncelog.wire.batch import MAX_PAYLOAD_BYTES, RECORD_OVERHEAD
from oncelog.wire.stored import StoredBatch

Resolvable = Future[RecordMetadata] | Future[BatchMetadata] | RecordMetadata | BatchMetadata


class Producer:
    """Sends records; each is stored once, in order per partition, whichever failures occur.

    `settings`: see `ProducerConfig`. Raises ConfigError for settings that are unknown, out of range
    or contradict each other. Thread-safe. As a context manager it flushes at the end. It raises
    UndeliveredRecordsError if records failed and the application has seen no error. A producer that
    is open when the program ends is flushed for 5 s at most; undelivered records are logged.
    """

    _closed = True  # until `__init__` is done

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self.config = ProducerConfig.from_settings(settings)
        self._why_closed = "the producer is closed"
        self._cluster, self._sender, self._accumulator = runtime.run(self._build())
        self._transactions = ProducerTransactions(self._sender)
        self._topics = self._cluster.leaders.topics
        self._placement = Placement(self._accumulator, self.config.partitioner, self._sender.ask)
        # For `send`: one attribute instead of three.
        self._sticky = self._accumulator.stickiness.batches
        self._acquire = self._accumulator.lock.acquire
        self._release = self._accumulator.lock.release
        self._closed = False
        leaving.opened(self._sender)
        runtime.register(self)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Build from dotted Kafka-style names: {"bootstrap.servers": ..., "linger.ms": 5}."""
        return cls(**settings_from_dotted(ProducerConfig, config))

    async def _build(self) -> tuple[Cluster, Sender, Accumulator]:
        config = self.config
        cluster = Cluster(config, (shared := Connections.of(config)).pool)
        accumulator = Accumulator(
            batch_size=config.batch_size,
            buffer_memory=config.buffer_memory,
            linger_s=config.linger_ms / 1000,
            max_block_s=self._max_block_s(),
            delivery_timeout_s=config.delivery_timeout_ms / 1000,
            clock=time.monotonic,
            is_available=cluster.leaders.is_available,
        )
        sender = Sender(config, cluster, accumulator, runtime.loop(), shared)
        sender.start()
        return cluster, sender, accumulator

    def _max_block_s(self) -> float:
        return self.config.max_block_ms / 1000

    # --- sending ---------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Bytes | None = None,
        key: Bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        sequence: int | None = None,
        expected_offset: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Send one record; returns at once with a future of its RecordMetadata.

        Without a partition the key decides (Kafka's murmur2). Without a key, records stick to one
        partition until its batch is full or it got 16 KiB. `sequence`: the application's own
        number, rising per partition. It makes the record recognisable across restarts if you send
        it again with the same bytes, including `timestamp_ms`. `expected_offset`: store the record
        only if it gets exactly this offset. Without `timestamp_ms` a record has the time of the
        call, to the millisecond. `on_delivery(metadata, error)` is called on the client's own
        thread: be brief.

        Raises, before anything is queued: UnknownTopicOrPartitionError, BatchTooLargeError,
        InvalidRequestError, BufferFullError (the buffer stayed full for `max_block_ms`),
        ClientClosedError, or the ProducerFatalError that stopped the producer. The future raises
        DeliveryError and its subclasses.
        """
        # Fast path for bytes without a key and with room in the open batch: no further Python call,
        # no clock, no object made under the lock. `Accumulator.append` does the same for all cases.
        if (
            key is None
            and partition is None
            and headers is None
            and on_delivery is None
            and timestamp_ms is None
            and sequence is None
            and expected_offset is None
            and type(value) is bytes
        ):
            now = time.time()
            future = RecordFuture()
            try:
                self._acquire()
                batch = self._sticky[topic]
                size = batch.size + len(value) + RECORD_OVERHEAD
                if size <= batch.limit and batch.plain:
                    if now < batch.tick_at or batch.tick(now):
                        batch.size = size
                        values = batch.values
                        future._delivery = batch.delivery
                        future._index = len(values)
                        values.append(value)
                        self._release()
                        return future
            except KeyError:
                pass  # no batch is open for keyless records
            except BaseException:  # of a signal handler
                take_back(self._accumulator, self._sticky.get(topic), future)
                raise
            self._release()
        return self._send(
            topic, value, key, headers, partition, timestamp_ms, sequence, expected_offset,
            on_delivery,
        )  # fmt: skip

    def _send(
        self,
        topic: str,
        value: Bytes | None,
        key: Bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        sequence: int | None,
        expected_offset: int | None,
        on_delivery: OnDelivery | None,
    ) -> Future[RecordMetadata]:
        if type(value) is not bytes:
            value = as_bytes("value", value)
        if key is not None and type(key) is not bytes:
            key = as_bytes("key", key)
        timestamp_us = None
        if timestamp_ms is not None:
            timestamp_us = as_time_us(timestamp_ms)
        if sequence is not None:
            sequence = self._sequence(sequence)
        if partition is not None and type(partition) is not int:
            partition = as_index("partition", partition)
        view = self._topics.get(topic) or self._topic(topic)
        lane, others = self._placement.lane(view, key, partition)
        return self._accumulator.append(
            lane,
            value,
            key,
            as_headers(headers) if headers else (),
            timestamp_us,
            sequence,
            -1 if expected_offset is None else _expected(expected_offset),
            on_delivery,
            self._max_batch(view),
            # A record with a sequence or expected offset does not move the sticky partition.
            others if sequence is None and expected_offset is None else (),
        )

    def send_batch(
        self,
        topic: str,
        partition: int,
        batch: Any,
        *,
        sequences: Sequence[int] | Any | None = None,
        expected_offset: int | None = None,
    ) -> Future[BatchMetadata]:
        """Send many records as exactly one batch; returns a future of its BatchMetadata.

        `batch`: a pyarrow.RecordBatch with the column `value` and optionally `key`,
        `timestamp`, `headers`; or a list of bytes, (key, value) pairs or Records.
        `sequences`: one for each record, rising; also an Arrow array of integers. Raises as
        `send` does.
        """
        view = self._topic(topic)
        lane, _ = self._placement.lane(view, None, as_index("partition", partition))
        expected = _expected(expected_offset)
        now_us = time.time_ns() // 1000
        if hasattr(batch, "schema"):
            from oncelog.wire.arrow import encode_arrow

            payload, count, max_timestamp = encode_arrow(batch, now_us)
        else:
            payload, count, max_timestamp = encode_list(batch, now_us)
        given = None if sequences is None else self._check_sequences(sequences, count)
        return self._accumulator.append_payload(
            lane,
            payload,
            count,
            max_timestamp,
            given,
            expected,
            self._max_batch(view),
        )

    def send_stored_batch(
        self,
        topic: str,
        partition: int,
        batch: StoredBatch,
        *,
        base_sequence: int | None = None,
        expected_offset: int | None = None,
    ) -> Future[BatchMetadata]:
        """Forward a batch as it is stored elsewhere; returns a future of its BatchMetadata.

        The batch keeps its codec, regardless of `compression_type`. `base_sequence`: the sequence
        of its first record; each further one has the next. Raises as `send` does, and
        InvalidRequestError for a batch with records to be skipped, or that compaction made.
        """
        if batch.carried:
            raise errors.InvalidRequestError(
                "batch: compaction has removed records of it, which would be sent as records "
                "without key and value; send its records() instead",
                field="batch",
            )
        if batch.skip:
            raise errors.InvalidRequestError(
                f"batch: its first {batch.skip} records are before the consumer's position and "
                "would be sent too",
                field="batch",
            )
        view = self._topic(topic)
        lane, _ = self._placement.lane(view, None, as_index("partition", partition))
        expected = _expected(expected_offset)
        given = None
        if base_sequence is not None:
            base_sequence = self._sequence(base_sequence)
            given = [base_sequence, base_sequence + batch.record_count - 1]
        return self._accumulator.append_payload(
            lane,
            batch.payload,
            batch.record_count,
            batch.max_timestamp_us,
            given,
            expected,
            view.max_batch_bytes,
            (batch.codec, batch.crc32c),
        )

    def _check_sequences(self, sequences: Any, count: int) -> list[int]:
        given = rising_sequences(sequences, count)
        self._sequence(given[0] if given else 0)
        return given

    def _sequence(self, sequence: int) -> int:
        sequence = as_int("sequence", sequence, 0, 2**63 - 1)
        if not self.config.enable_idempotence:
            raise errors.InvalidRequestError(
                "sequence needs enable_idempotence=True", field="sequence"
            )
        return sequence

    def _max_batch(self, view: TopicView) -> int:
        # The node checks the size of a compressed batch as sent, not that of its records.
        if self.config.compression_type == "none":
            return view.max_batch_bytes
        return MAX_PAYLOAD_BYTES

    def _topic(self, topic: str) -> TopicView:
        view = self._topics.get(topic)
        if view is None:
            self._check_open()
            if not isinstance(topic, str) or not topic:
                raise errors.InvalidRequestError(
                    f"topic must be a non-empty string, got {topic!r}", field="topic"
                )
            runtime.run(self._learn(topic))
            view = self._topics[topic]
        return view

    async def _learn(self, topic: str) -> None:
        await self._cluster.require_topic(topic, self.config.max_block_ms / 1000)

    def _tp(self, topic: str, partition: int) -> TopicPartition:
        return self._placement.lane(self._topic(topic), None, as_index("partition", partition))[
            0
        ].tp

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ClientClosedError(self._why_closed)

    # --- transactions ----------------------------------------------------------------

    def transaction(self, *, idle_timeout_ms: int = 0, total_timeout_ms: int = 0) -> Transaction:
        """Return a transaction, begun by `with` or `begin`; see `Transaction`.

        It is aborted after `idle_timeout_ms` (60 s) without a sign of this process, and after
        `total_timeout_ms` (15 min). Needs a `producer_name`.
        """
        return Transaction(self, idle_timeout_ms, total_timeout_ms)

    # --- waiting, asking -------------------------------------------------------------

    def flush(self, *, timeout_ms: float | None = None) -> None:
        """Send lingering records and wait, at most `timeout_ms`, until all are settled.

        All callbacks have returned by then. Raises RequestTimeoutError if some are not settled, and
        UndeliveredRecordsError for failures since the last flush that the application has not seen.
        It has seen a failure through the future's `result` or `exception`, or `on_delivery`.
        """
        self._check_open()
        self._flush(_seconds(timeout_ms))
        self._raise_undelivered()

    def _flush(self, timeout_s: float | None) -> None:
        leaving.flush(self._accumulator, timeout_s)

    def _raise_undelivered(self) -> None:
        leaving.raise_undelivered(self._sender)

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Flush, then free everything; records not settled in `timeout_ms` fail.

        An open transaction is aborted. Raises UndeliveredRecordsError as `flush` does. A second
        close does nothing.
        """
        if self._closed or not runtime.can_close():
            return
        try:
            runtime.run(self._transactions.close(_seconds(timeout_ms)))
            self._flush(_seconds(timeout_ms))
        except errors.RequestTimeoutError:
            pass  # the rest fails below, and is reported with its outcome
        finally:
            runtime.run(self._shut(), whole=True)
        self._raise_undelivered()

    async def _shut(self) -> None:
        self._closed = True
        await leaving.end(self._sender, self._cluster)

    def __del__(self) -> None:
        if not self._closed:
            parts = self._sender, self._transactions, self._cluster
            runtime.end_dropped("a producer", lambda: leaving.end_dropped(*parts))

    def _forked(self) -> None:
        """Called in a forked child: the engine's thread stayed with the parent."""
        self._closed = True
        self._why_closed = "the producer was made before a fork: make one in each process"
        self._accumulator.abandon(errors.ClientClosedError(self._why_closed))
        self._acquire = self._accumulator.lock.acquire
        self._release = self._accumulator.lock.release

    def partitions_for(self, topic: str) -> int:
        """Return the number of partitions; raises UnknownTopicOrPartitionError."""
        return len(self._topic(topic).partitions)

    def position(self, topic: str, partition: int) -> int:
        """Return the last sequence of this producer that is stored there; -1: none.

        Raises RequestTimeoutError if the partition has no leader for max_block_ms.
        """
        self._check_open()
        return runtime.run(self._position(self._tp(topic, partition)))

    async def _position(self, tp: TopicPartition) -> int:
        limit_ms = self.config.max_block_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._sender.position(tp)
        except TimeoutError:
            address = self._cluster.leaders.address(tp)
            why = f"its leader {address} did not answer" if address else "it has no leader"
            problem = self._sender.identities.attempts.telling
            why += f": {problem}" if problem is not None else ""
            raise errors.RequestTimeoutError(
                f"{tp}: no position within max_block_ms={limit_ms}: {why}"
            ) from None

    def resolve(
        self,
        record: Future[RecordMetadata] | Future[BatchMetadata] | RecordMetadata | BatchMetadata,
    ) -> ResolvedSequence:
        """Resolve the outcome of a record (or a batch, by its last record) after a timeout.

        Takes the future that `send` returned, failed or not, or its metadata. NOT_YET: the record
        may still be stored. Raises InvalidRequestError for a record that cannot be resolved: one
        without idempotence, or one that was never sent.
        """
        self._check_open()
        return runtime.run(self._resolve(*self._identity_of(record)))

    def _identity_of(self, record: Resolvable) -> tuple[TopicPartition, int, int, int]:
        what = record.metadata() if isinstance(record, DeliveryFuture) else record
        if not isinstance(what, RecordMetadata | BatchMetadata):
            raise errors.InvalidRequestError(
                "resolve takes a future of this producer, or its metadata", field="record"
            )
        last = what.sequence if isinstance(what, RecordMetadata) else what.last_sequence
        if not what.producer_id or last < 0:
            raise errors.InvalidRequestError(
                "the record has no sequence: it was never sent, or not with idempotence",
                field="record",
            )
        tp = TopicPartition(what.topic, what.partition)
        return tp, what.producer_id, what.epoch, last

    async def _resolve(
        self, tp: TopicPartition, producer_id: int, epoch: int, sequence: int
    ) -> ResolvedSequence:
        core = AdminCore(self._cluster)
        return await core.resolve_sequence(tp, producer_id, epoch, sequence)

    @property
    def producer_id(self) -> int | None:
        """The producer id in use; None before the first record is in flight."""
        identity = self._sender.identities.current
        return identity.producer_id if identity else None

    @property
    def epoch(self) -> int | None:
        identity = self._sender.identities.current
        return identity.epoch if identity else None

    def metrics(self) -> dict[str, int | float]:
        """Return counters since the start; `max_ack_latency_ms` counts from the first attempt."""
        used = {"buffer_used_bytes": self._accumulator.used}
        return {**self._sender.stats.as_dict(), **used, **self._cluster.metrics()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except errors.UndeliveredRecordsError as undelivered:
            if error is None:
                raise
            # The body's own error is raised; this one is added as a note.
            error.add_note(str(undelivered))


def _seconds(timeout_ms: float | None) -> float | None:
    return None if timeout_ms is None else timeout_ms / 1000


def _expected(offset: int | None) -> int:
    """Encode an expected offset as batches carry it: -1 for none."""
    if offset is None:
        return -1
    return as_int("expected_offset", offset, 0, 2**63 - 1)


__all__ = ["Producer"]
