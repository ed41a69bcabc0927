"""The producer for asyncio: `oncelog.Producer`, awaited.

Place in the flow: a sync producer that never waits does the work. Waits (for an unknown topic, a
full buffer, a flush) happen here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Self, TypeVar, Unpack

from oncelog import errors
from oncelog import producer as sync
from oncelog._engine.arguments import Bytes, Headers
from oncelog._engine.produce.futures import DeliveryFuture, OnDelivery
from oncelog.aio.bridge import Signal, on_engine, wait_done, wait_told
from oncelog.aio.transaction import Transaction
from oncelog.config import ProducerConfig
from oncelog.dotted import settings_from_dotted
from oncelog.settings import ProducerSettings
from oncelog.types import BatchMetadata, RecordMetadata, ResolvedSequence
from oncelog.wire.stored import StoredBatch

T = TypeVar("T")


class Acknowledgement(Generic[T]):
    """Result of `send`: awaited, it returns the metadata or raises the DeliveryError.

    It may be awaited any number of times. Cancelling an await does not recall the record.
    """

    __slots__ = ("future",)

    def __init__(self, future: Future[T]) -> None:
        assert isinstance(future, DeliveryFuture)
        self.future: DeliveryFuture[T] = future

    def __await__(self) -> Generator[Any, None, T]:
        yield from wait_done(self.future.delivery).__await__()
        return self.future.result(0)

    def done(self) -> bool:
        return self.future.done()


class _NeverWaits(sync.Producer):
    """Raises BufferFullError at once instead of waiting for room."""

    def _max_block_s(self) -> float:
        return 0.0


class Producer:
    """Sends records; each is stored once, in order per partition, whichever failures occur.

    Arguments, settings and errors are those of `oncelog.Producer`. As an async context manager it
    flushes at the end and raises UndeliveredRecordsError as `oncelog.Producer` does.
    """

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._sync = _NeverWaits(**settings)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Build from dotted names, as `oncelog.Producer.from_config` does."""
        return cls(**settings_from_dotted(ProducerConfig, config))

    @property
    def config(self) -> ProducerConfig:
        return self._sync.config

    # --- sending ---------------------------------------------------------------------

    async def send(
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
    ) -> Acknowledgement[RecordMetadata]:
        """Send one record; returns its Acknowledgement when it is queued.

        `on_delivery` is called on the client's own thread, not on the loop's.
        """
        return await self._queued(
            topic,
            lambda: self._sync.send(
                topic,
                value,
                key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
                sequence=sequence,
                expected_offset=expected_offset,
                on_delivery=on_delivery,
            ),
        )

    async def send_batch(
        self,
        topic: str,
        partition: int,
        batch: Any,
        *,
        sequences: Sequence[int] | Any | None = None,
        expected_offset: int | None = None,
    ) -> Acknowledgement[BatchMetadata]:
        """Send many records as exactly one batch; see `oncelog.Producer.send_batch`."""
        return await self._queued(
            topic,
            lambda: self._sync.send_batch(
                topic, partition, batch, sequences=sequences, expected_offset=expected_offset
            ),
        )

    async def send_stored_batch(
        self,
        topic: str,
        partition: int,
        batch: StoredBatch,
        *,
        base_sequence: int | None = None,
        expected_offset: int | None = None,
    ) -> Acknowledgement[BatchMetadata]:
        """Send a batch as it is stored; see `oncelog.Producer.send_stored_batch`."""
        return await self._queued(
            topic,
            lambda: self._sync.send_stored_batch(
                topic,
                partition,
                batch,
                base_sequence=base_sequence,
                expected_offset=expected_offset,
            ),
        )

    async def _queued(self, topic: str, send: Callable[[], Future[T]]) -> Acknowledgement[T]:
        if topic not in self._sync._topics:
            await self._require_topic(topic)
        try:
            return Acknowledgement(send())
        except errors.BufferFullError:
            return Acknowledgement(await self._when_there_is_room(send))

    async def _when_there_is_room(self, send: Callable[[], Future[T]]) -> Future[T]:
        limit = self.config.max_block_ms / 1000
        deadline = time.monotonic() + limit
        signal = Signal()
        while True:
            signal.clear()
            # Watch first, then try: room that appears between the two sets the signal.
            self._sync._accumulator.watch_space(signal.set)
            try:
                return send()
            except errors.BufferFullError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise errors.BufferFullError(
                        f"buffer_memory={self.config.buffer_memory} stayed full for "
                        f"max_block_ms={self.config.max_block_ms}"
                    ) from None
                await signal.wait(left)

    async def _require_topic(self, topic: str) -> None:
        producer = self._sync
        producer._check_open()
        if isinstance(topic, str) and topic and topic not in producer._cluster.leaders.topics:
            await on_engine(producer._learn(topic))

    def transaction(self, *, idle_timeout_ms: int = 0, total_timeout_ms: int = 0) -> Transaction:
        """Return a transaction, begun by `async with` or `begin`; see `oncelog.Producer`."""
        return Transaction(self, idle_timeout_ms, total_timeout_ms)

    # --- waiting, asking -------------------------------------------------------------

    async def flush(self, *, timeout_ms: float | None = None) -> None:
        """Send lingering records and wait, at most `timeout_ms`, until all are settled.

        All callbacks have returned by then. Raises as `oncelog.Producer.flush` does.
        """
        self._sync._check_open()
        await self._flush(sync._seconds(timeout_ms))
        self._sync._raise_undelivered()

    async def _flush(self, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        accumulator = self._sync._accumulator
        waiting = accumulator.begin_flush()
        try:
            for position, delivery in enumerate(waiting):
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not await wait_told(delivery, left):
                    raise errors.RequestTimeoutError(
                        f"{len(waiting) - position} batches are not settled after {timeout_s:g} s"
                    )
        finally:
            accumulator.end_flush()

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Flush, then free everything; raises as `oncelog.Producer.close` does."""
        producer = self._sync
        if producer._closed:
            return
        try:
            await on_engine(producer._transactions.close(sync._seconds(timeout_ms)))
            await self._flush(sync._seconds(timeout_ms))
        except errors.RequestTimeoutError:
            pass  # the rest fails below, and is reported with its outcome
        finally:
            producer._closed = True
            await on_engine(producer._shut(), whole=True)
        producer._raise_undelivered()

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions; raises UnknownTopicOrPartitionError."""
        await self._require_topic(topic)
        return self._sync.partitions_for(topic)

    async def position(self, topic: str, partition: int) -> int:
        """Return the last sequence of this producer that is stored there; -1: none.

        Raises RequestTimeoutError if the partition has no leader for max_block_ms.
        """
        await self._require_topic(topic)
        tp = self._sync._tp(topic, partition)
        return await on_engine(self._sync._position(tp))

    async def resolve(
        self,
        record: Acknowledgement[RecordMetadata]
        | Acknowledgement[BatchMetadata]
        | RecordMetadata
        | BatchMetadata,
    ) -> ResolvedSequence:
        """Resolve the outcome of a record after a timeout; see `oncelog.Producer.resolve`."""
        self._sync._check_open()
        what: Any = record.future if isinstance(record, Acknowledgement) else record
        return await on_engine(self._sync._resolve(*self._sync._identity_of(what)))

    @property
    def producer_id(self) -> int | None:
        """The producer id in use; None before the first record is in flight."""
        return self._sync.producer_id

    @property
    def epoch(self) -> int | None:
        return self._sync.epoch

    def metrics(self) -> dict[str, int | float]:
        """Return counters since the start, as `oncelog.Producer.metrics` does."""
        return self._sync.metrics()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        except errors.UndeliveredRecordsError as undelivered:
            if error is None:
                raise
            # The body's own error is raised; this one is added as a note.
            error.add_note(str(undelivered))


__all__ = ["Acknowledgement", "Producer"]
