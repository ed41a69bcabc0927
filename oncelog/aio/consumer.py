"""The consumer for asyncio: `oncelog.Consumer`, awaited.

Place in the flow: a sync consumer holds the buffer and decodes. Waits for records or for an answer
of the cluster happen here.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, Self, TypeVar, Unpack

from oncelog import consumer as sync
from oncelog._engine.arguments import as_int, as_partition, as_times_us
from oncelog._engine.consume.fetch_buffer import Chunk
from oncelog.aio.bridge import Signal, on_engine
from oncelog.config import ConsumerConfig
from oncelog.dotted import settings_from_dotted
from oncelog.settings import ConsumerSettings
from oncelog.types import CommittedOffset, OffsetCommit, Record, TopicPartition
from oncelog.wire.stored import StoredBatch

T = TypeVar("T")


class Consumer:
    """Reads topics, or assigned partitions, from the start that `auto_offset_reset` sets.

    Arguments, settings and errors are those of `oncelog.Consumer`. `async with` or `start()` looks
    the topics up. Only one task reads at a time: a second one gets an InvalidRequestError.
    """

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self._topics = topics
        self._sync = sync.Consumer(**settings)
        self._signal: Signal | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, object], *topics: str) -> Self:
        """Build from dotted Kafka-style names: {"bootstrap.servers": ..., ...}."""
        return cls(*topics, **settings_from_dotted(ConsumerConfig, config))

    @property
    def config(self) -> ConsumerConfig:
        return self._sync.config

    async def start(self) -> None:
        """Subscribe to the topics given at construction; a second call does nothing."""
        if self._topics:
            await self.subscribe(self._topics)
            self._topics = ()

    # --- what to read ----------------------------------------------------------------

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics only; in a group, this member's share."""
        consumer = self._sync
        consumer._check_open()
        names = consumer._names(topics)
        await on_engine(consumer._learn(n for n in names if not n.startswith(sync.PATTERN)))
        if not consumer._shares:
            consumer._subscribe_known(names)
            return
        await on_engine(consumer._join(names, on_engine, _told))

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; partitions already assigned keep their position."""
        self._sync._check_open()
        self._sync._check_manual()
        tps = [as_partition(one) for one in partitions]
        await on_engine(self._sync._learn_partitions(tps))
        self._sync._assign_known(tps)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read."""
        return self._sync.assignment()

    def subscription(self) -> frozenset[str]:
        """Return the topics and patterns of `subscribe`; empty after `assign`."""
        return self._sync.subscription()

    async def unsubscribe(self) -> None:
        """Read nothing any more; a group member finishes its records (on_revoked) and leaves."""
        consumer = self._sync
        consumer._check_open()
        try:
            if consumer._rebalance is not None:
                await consumer._rebalance.leave(failed=False)
        finally:
            await on_engine(consumer._unsubscribed(), whole=True)

    # --- reading ---------------------------------------------------------------------

    def __aiter__(self) -> Feed[Record]:
        """Yield records, for ever or until `consumer_timeout_ms` passes without one."""
        records_of, check_crcs = self._sync._buffer.records_of, self.config.check_crcs
        return Feed(
            self, self.config.consumer_timeout_ms, lambda chunk: records_of(chunk, check_crcs)
        )

    async def getone(self) -> Record:
        """Wait for the next record and return it."""
        found = await self._taken(1, None)
        return next(records[0] for records in found.values())

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Return the available records, at most `max_records` (default `max_poll_records`).

        Waits up to `timeout_ms` for the first record; returns an empty dict if none came.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        return await self._taken(as_int("max_records", limit, 1, 2**63 - 1), timeout_ms)

    async def _taken(
        self, limit: int, timeout_ms: int | None
    ) -> dict[TopicPartition, list[Record]]:
        """Wait for records and take them; returns an empty dict if none came."""
        take, left = partial(self._sync._take, limit), timeout_ms
        end = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while (chunk := await self._next_chunk(left)) is not None:
            found = self._sync._read(partial(_same, chunk), take)
            if found:
                return found
            # Only blanks came so far.
            left = None if end is None else max(0, round(1000 * (end - time.monotonic())))
        return {}

    def batches(self, *, timeout_ms: int | None = None) -> Feed[Any]:
        """Yield a pyarrow.RecordBatch for each stored batch; see `oncelog.Consumer.batches`."""
        if timeout_ms is None:
            timeout_ms = self.config.consumer_timeout_ms
        return Feed(self, timeout_ms, self._arrow)

    def _arrow(self, chunk: Chunk) -> Iterator[Any]:
        batch = self._sync._read(lambda: chunk, self._sync._arrow)
        if batch is not None and batch.num_rows:  # else all are blanks
            yield batch

    async def stored_batch(self, *, timeout_ms: int = 0) -> StoredBatch | None:
        """Return the next batch as it is stored; see `oncelog.Consumer.stored_batch`."""
        chunk = await self._next_chunk(timeout_ms)
        return self._sync._read(lambda: chunk, self._sync._stored)

    async def _next_chunk(self, timeout_ms: int | None) -> Chunk | None:
        with self._sync._one.reading(asyncio.current_task()):
            return await self._wait_for_chunk(timeout_ms)

    async def _wait_for_chunk(self, timeout_ms: int | None) -> Chunk | None:
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        signal = self._listen()
        rebalance, buffer = self._sync._rebalance, self._sync._buffer
        while True:
            signal.clear()
            if rebalance is not None and rebalance.is_due:
                await rebalance.follow()
            chunk = self._sync._peek(0.0)
            if chunk is not None:
                return chunk
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if not buffer.interruptions:
                buffer.wait_elsewhere(True)
                try:
                    await signal.wait(left)
                finally:
                    buffer.wait_elsewhere(False)

    def _listen(self) -> Signal:
        """Return the signal that the buffer sets, on the running loop."""
        if self._signal is None:
            self._signal = Signal()
            self._sync._buffer.listener = self._signal.set
        return self._signal

    # --- positions -------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at `offset` in this partition."""
        self._sync.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        await self._seek_all(partitions, "earliest")

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        await self._seek_all(partitions, "latest")

    async def _seek_all(self, partitions: tuple[tuple[str, int], ...], where: str) -> None:
        self._sync._check_open()
        tps = [self._sync._assigned(p) for p in partitions] or sorted(self.assignment())
        await on_engine(self._sync._fetcher.seek_all(tps, where))

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record to be returned.

        Compaction may have removed the record there; then the next call returns a later one.
        Raises FencedMemberError if the group has just given the partition to another member, which
        the next call for records follows.
        """
        tp = self._sync._assigned(partition)
        deadline = time.monotonic() + self.config.request_timeout_ms / 1000
        signal = self._listen()
        while True:
            signal.clear()
            position = self._sync._buffer.wait_position(tp, 0.0)
            if position is not None:
                return position
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._sync._fetcher.not_located(tp)
            await signal.wait(left)

    async def lag(self, partition: tuple[str, int]) -> int:
        """Return the number of offsets between the position and the high watermark."""
        tp = self._sync._assigned(partition)
        return await on_engine(self._sync._lag(tp, await self.position(tp)))

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        return await self._list({as_partition(p): "earliest" for p in partitions})

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return each partition's high watermark: the next offset to be written.

        A leader that was replaced a moment ago, and does not know it yet, tells an older one.
        """
        return await self._list({as_partition(p): "latest" for p in partitions})

    async def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int]:
        """Return the start offsets that cover everything from these times on; -1: no record."""
        return await self._list(as_times_us(timestamps_ms))

    async def _list(self, queries: Mapping[TopicPartition, str | int]) -> dict[TopicPartition, int]:
        self._sync._check_open()
        return await on_engine(self._sync._list_offsets(queries))

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`."""
        self._sync.pause(*partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._sync.paused()

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._sync.resume(*partitions)

    # --- the group -------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[tuple[str, int], int | OffsetCommit] | None = None
    ) -> None:
        """Commit the group's next offsets; see `oncelog.Consumer.commit`."""
        commits = self._sync._commits(offsets)
        if commits:
            await on_engine(self._sync._stored_offsets(commits))

    async def committed(self, partition: tuple[str, int]) -> CommittedOffset | None:
        """Return the group's committed offset in a partition; None: none."""
        group, tp = self._sync._group(), as_partition(partition)
        return await on_engine(self._sync._fetcher.positions.groups.committed_now(group, tp))

    def metrics(self) -> dict[str, int | float]:
        """Return reading progress, by the last answers, and the state of the group."""
        return self._sync.metrics()

    # --- life ------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the consumer; a group member finishes its records (on_revoked) and leaves."""
        await self._close(failed=False)

    async def _close(self, failed: bool) -> None:
        consumer = self._sync
        if consumer._begin_to_close():
            try:
                if consumer._rebalance is not None:
                    await consumer._rebalance.leave(failed)
            finally:
                consumer._closing = False  # an interrupted close can be called again
                await on_engine(consumer._shut(), whole=True)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._close(failed=error is not None)


class Feed(Generic[T]):
    """Iterator over a consumer, by chunks. Not a generator: a cancelled generator ends for good,
    and the loop would end as if all records were read."""

    __slots__ = ("_consumer", "_items", "_left", "_timeout_ms")

    def __init__(
        self, consumer: Consumer, timeout_ms: int | None, items: Callable[[Chunk], Iterator[T]]
    ) -> None:
        self._consumer = consumer
        self._timeout_ms = timeout_ms
        self._items = items
        self._left: Iterator[T] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            for item in self._left:
                return item
            chunk = await self._consumer._next_chunk(self._timeout_ms)
            if chunk is None:
                raise StopAsyncIteration
            self._left = self._items(chunk)

    async def aclose(self) -> None:
        """Do nothing; `contextlib.aclosing` calls it."""


def _same(chunk: Chunk) -> Chunk:
    return chunk


async def _told(callback: Callable[..., Any], *arguments: Any) -> None:
    done = callback(*arguments)
    if inspect.isawaitable(done):
        await done


__all__ = ["Consumer"]
