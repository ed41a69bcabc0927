"""Consumer: records in offset order per partition, each once per consumer.

Place in the flow: `_engine/consume/fetcher` polls the leaders and fills a buffer; reading calls
take from it and decode, on the user's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from oncelog import errors
from oncelog._engine.arguments import as_commits, as_int, as_partition, as_times_us
from oncelog._engine.consume.fetch_buffer import Chunk, Starts
from oncelog._engine.consume.fetcher import Fetcher, end_reading
from oncelog._engine.consume.member import GroupSession
from oncelog._engine.consume.one_reader import OneReader, check_free
from oncelog._engine.consume.positions import partition_gone
from oncelog._engine.consume.rebalance import (
    Ask,
    Rebalance,
    Tell,
    ask_at_once,
    at_once,
    tell_at_once,
)
from oncelog._engine.consume.taking import take_records
from oncelog._engine.net import runtime
from oncelog._engine.net.cluster import Cluster
from oncelog._engine.net.threads import refuse_on_engine_thread
from oncelog.config import ConsumerConfig
from oncelog.dotted import settings_from_dotted
from oncelog.lag import records_behind
from oncelog.settings import ConsumerSettings
from oncelog.types import CommittedOffset, OffsetCommit, Record, TopicPartition
from oncelog.wire.stored import StoredBatch

log = logging.getLogger("oncelog.consumer")

T = TypeVar("T")
PATTERN = "^"  # at the start of a topic's name


class Consumer:
    """Reads topics, or assigned partitions, from the start that `auto_offset_reset` sets.

    `settings`: see `ConsumerConfig`. The consumer survives leader changes and restarts. Only one
    thread reads at a time: a second one gets an InvalidRequestError.

    With a `group_id`, reading starts at the group's committed offset, if there is one. The topics
    (or patterns of topics, "^..."), given here or to `subscribe`, are shared out among the group's
    consumers. Partitions are assigned and revoked while you read, within the calls that return
    records: on_assigned, on_revoked, on_lost. With membership="manual", or `assign` instead of
    topics, the group only keeps offsets. Only `commit` commits, unless enable_auto_commit is set.

    Raises, from reading calls: OffsetOutOfRangeError, UnknownTopicOrPartitionError,
    CorruptLogError; reading can go on after them, for instance after a seek. An error that ends the
    membership for good, such as FencedMemberError, is raised by each call.
    """

    _closed = True  # until `__init__` is done

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self.config = ConsumerConfig.from_settings(settings)
        self._closing = False
        self._why_closed = "the consumer is closed"
        self._cluster, self._fetcher = runtime.run(self._build())
        self._buffer = self._fetcher.buffer
        self._one = OneReader()
        self._member: GroupSession | None = None
        self._rebalance: Rebalance | None = None
        self._subscribed: frozenset[str] = frozenset()
        self._closed = False
        runtime.register(self)
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:
                self.close()
                raise

    @classmethod
    def from_config(cls, config: Mapping[str, object], *topics: str) -> Self:
        """Build from dotted Kafka-style names: {"bootstrap.servers": ..., ...}."""
        return cls(*topics, **settings_from_dotted(ConsumerConfig, config))

    async def _build(self) -> tuple[Cluster, Fetcher]:
        cluster = Cluster(self.config)
        return cluster, Fetcher(self.config, cluster)

    # --- what to read ----------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics only; in a group, this member's share."""
        self._check_open()
        names = self._names(topics)
        runtime.run(self._learn(name for name in names if not name.startswith(PATTERN)))
        if not self._shares:
            self._subscribe_known(names)
            return
        runtime.run(self._join(names, ask_at_once, tell_at_once))

    def _names(self, topics: Iterable[str]) -> list[str]:
        names = [topics] if isinstance(topics, str) else list(topics)
        if not self._shares and any(name.startswith(PATTERN) for name in names):
            text = "patterns of topics are for members of a group"
            raise errors.InvalidRequestError(text, field="topics")
        return names

    # --- membership ------------------------------------------------------------------

    @property
    def _shares(self) -> bool:
        return self.config.group_id is not None and self.config.membership == "assigned"

    async def _join(self, names: Sequence[str], ask: Ask, tell: Tell) -> None:
        """Join the group and wait for its answer; on the engine's loop."""
        if self._member is not None:
            await self._member.subscribe(names)
            self._subscribed = frozenset(names)
            return
        positions = self._fetcher.positions
        member = GroupSession(self.config, self._cluster, positions, self._buffer, names)
        try:
            await member.joined(self._request_s)
        except BaseException:
            await member.leave()
            raise
        # Here, not in the caller: a cancelled caller must not leave the wake-up undone.
        wake = self._fetcher.wake
        self._rebalance = Rebalance(self.config, self._buffer, member, wake, ask, tell)
        self._member = member
        self._subscribed = frozenset(names)

    def _subscribe_known(self, names: Sequence[str]) -> None:
        topics = self._cluster.leaders.topics
        counts = {name: len(topics[name].partitions) for name in names}
        self._assign_known(
            [TopicPartition(name, p) for name in names for p in range(counts[name])], names
        )

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; partitions already assigned keep their position.

        Raises InvalidRequestError for a group member: the nodes assign its partitions.
        """
        self._check_open()
        self._check_manual()
        tps = [as_partition(one) for one in partitions]
        runtime.run(self._learn_partitions(tps))
        self._assign_known(tps)

    def _check_manual(self) -> None:
        if self._member is not None:
            text = "the group assigns the partitions; make the consumer with membership='manual'"
            raise errors.InvalidRequestError(text, field="partitions")

    def _assign_known(self, tps: list[TopicPartition], follow: Sequence[str] = ()) -> None:
        for tp in tps:
            if self._cluster.leaders.leader(tp) is None:
                raise partition_gone(tp)
        self._fetcher.new_partitions.assign(tps, follow)
        self._subscribed = frozenset(follow)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read."""
        return frozenset(self._buffer.assignment())

    def subscription(self) -> frozenset[str]:
        """Return the topics and patterns of `subscribe`; empty after `assign`."""
        return self._subscribed

    def unsubscribe(self) -> None:
        """Read nothing any more; a group member finishes its records (on_revoked) and leaves."""
        self._check_open()
        try:
            if self._rebalance is not None:
                at_once(self._rebalance.leave(failed=False))
        finally:
            runtime.run(self._unsubscribed(), whole=True)

    async def _unsubscribed(self) -> None:
        member, self._member, self._rebalance = self._member, None, None
        self._assign_known([])
        if member is not None:
            await member.leave()
            self._fetcher.positions.end_membership()
            self._buffer.end_membership()

    async def _learn(self, topics: Iterable[str]) -> None:
        for topic in dict.fromkeys(topics):
            if topic not in self._cluster.leaders.topics:
                await self._cluster.require_topic(topic, self._request_s)

    async def _learn_partitions(self, tps: Sequence[TopicPartition]) -> None:
        await self._learn(tp.topic for tp in tps)
        await self._fetcher.positions.known(tps, limit_s=0.5)

    @property
    def _request_s(self) -> float:
        return self.config.request_timeout_ms / 1000

    # --- reading ---------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """Yield records, for ever or until `consumer_timeout_ms` passes without one."""
        timeout = self.config.consumer_timeout_ms
        while True:
            with self._one.reading():
                chunk = self._next_chunk(None if timeout is None else timeout / 1000)
            if chunk is None:
                return
            yield from self._buffer.records_of(chunk, self.config.check_crcs)

    def getone(self) -> Record:
        """Wait for the next record and return it."""
        found = None
        while not found:
            found = self._read(partial(self._next_chunk, None), partial(self._take, 1))
        return next(records[0] for records in found.values())

    def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Return the available records, at most `max_records` (default `max_poll_records`).

        Waits up to `timeout_ms` for the first record; returns an empty dict if none came.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        take = partial(self._take, as_int("max_records", limit, 1, 2**63 - 1))
        end = time.monotonic() + timeout_ms / 1000
        found: dict[TopicPartition, list[Record]] | None = {}
        while found == {}:  # only blanks came so far
            left = max(0.0, end - time.monotonic())
            found = self._read(partial(self._next_chunk, left), take)
        return found or {}

    def _read(
        self, next_chunk: Callable[[], Chunk | None], take: Callable[[Chunk, Starts], T]
    ) -> T | None:
        """Return what `take` reads from the next chunk; None: there is none.

        `take` notes the positions it has found: a signal handler that raises gets them back.
        """
        starts: Starts = {}
        try:
            with self._one.reading():  # its end can be interrupted, too
                return None if (chunk := next_chunk()) is None else take(chunk, starts)
        except BaseException:
            for tp, offset in starts.items():
                self._buffer.seek(tp, offset)
            raise

    def _take(self, limit: int, chunk: Chunk, starts: Starts) -> dict[TopicPartition, list[Record]]:
        return take_records(self._buffer, chunk, limit, self.config.check_crcs, starts)

    def batches(self, *, timeout_ms: int | None = None) -> Iterator[Any]:
        """Yield a pyarrow.RecordBatch for each stored batch, over its own memory.

        Columns: key, value, topic, partition, offset, timestamp, headers. Ends after
        `timeout_ms` (default `consumer_timeout_ms`) without a batch; None: never.
        """
        if timeout_ms is None:
            timeout_ms = self.config.consumer_timeout_ms
        timeout = None if timeout_ms is None else timeout_ms / 1000
        while (batch := self._read(partial(self._next_chunk, timeout), self._arrow)) is not None:
            if batch.num_rows:  # else all are blanks
                yield batch

    def _arrow(self, chunk: Chunk, starts: Starts) -> Any:
        batch = chunk.arrow(self.config.check_crcs)
        self._buffer.move(chunk, chunk.end_offset, starts)
        return batch

    def stored_batch(self, *, timeout_ms: int = 0) -> StoredBatch | None:
        """Return the next batch as it is stored, for `Producer.send_stored_batch`.

        Waits up to `timeout_ms`; returns None if none came. Its checksum was compared, nothing was
        decoded. If the position is within it, its `skip` is the number of records before it.
        """
        return self._read(partial(self._next_chunk, timeout_ms / 1000), self._stored)

    def _stored(self, chunk: Chunk, starts: Starts) -> StoredBatch:
        stored = chunk.stored(self.config.check_crcs)
        self._buffer.move(chunk, chunk.end_offset, starts)
        return stored

    def _next_chunk(self, timeout: float | None) -> Chunk | None:
        refuse_on_engine_thread("read records")
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._rebalance is not None and self._rebalance.is_due:
                at_once(self._rebalance.follow())
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            chunk = self._peek(left)
            if chunk is not None:
                check_free(chunk)
            if chunk is not None or left == 0.0:
                return chunk

    def _peek(self, timeout: float | None) -> Chunk | None:
        while True:
            self._check_open()
            try:
                chunk = self._buffer.peek(timeout)
            except (errors.UnknownTopicOrPartitionError, errors.FencedMemberError) as error:
                if self._rebalance is None:
                    raise
                log.debug("the group will take it away: %s", error)
                timeout = 0.0  # it hides no records of other partitions
                continue
            if chunk is None:
                self._check_open()
            return chunk

    # --- positions -------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at `offset` in this partition."""
        tp = self._assigned(partition)
        self._buffer.seek(tp, as_int("offset", offset, 0, 2**63 - 1))

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        self._seek_all(partitions, "earliest")

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        self._seek_all(partitions, "latest")

    def _seek_all(self, partitions: tuple[tuple[str, int], ...], where: str) -> None:
        self._check_open()
        tps = [self._assigned(p) for p in partitions] or self._buffer.assignment()
        runtime.run(self._fetcher.seek_all(tps, where))

    def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record to be returned.

        Compaction may have removed the record there; then the next call returns a later one.
        Raises FencedMemberError if the group has just given the partition to another member, which
        the next call for records follows.
        """
        tp = self._assigned(partition)
        position = self._buffer.wait_position(tp, self._request_s)
        if position is None:
            raise self._fetcher.not_located(tp)
        return position

    def lag(self, partition: tuple[str, int]) -> int:
        """Return the number of offsets between the position and the high watermark.

        These are the readable records, and those that compaction has removed.
        """
        tp = self._assigned(partition)
        return runtime.run(self._lag(tp, self.position(tp)))

    async def _lag(self, tp: TopicPartition, position: int) -> int:
        end = (await self._list_offsets({tp: "latest"}))[tp]
        return records_behind(position, (await self._list_offsets({tp: "earliest"}))[tp], end)

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        return self._list({as_partition(p): "earliest" for p in partitions})

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return each partition's high watermark: the next offset to be written.

        A leader that was replaced a moment ago, and does not know it yet, tells an older one.
        """
        return self._list({as_partition(p): "latest" for p in partitions})

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int]:
        """Return the start offsets that cover everything from these times on; -1: no record.

        It is the first offset of the first batch with a record at or after the time.
        """
        return self._list(as_times_us(timestamps_ms))

    def _list(self, queries: Mapping[TopicPartition, str | int]) -> dict[TopicPartition, int]:
        self._check_open()
        return runtime.run(self._list_offsets(queries))

    async def _list_offsets(
        self, queries: Mapping[TopicPartition, str | int]
    ) -> dict[TopicPartition, int]:
        await self._learn(tp.topic for tp in queries)
        return await self._fetcher.positions.list_offsets(dict(queries))

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`."""
        for partition in partitions:
            self._buffer.pause(self._assigned(partition), True)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._buffer.paused()

    def resume(self, *partitions: tuple[str, int]) -> None:
        for partition in partitions:
            self._buffer.pause(self._assigned(partition), False)
        self._fetcher.wake()

    def _assigned(self, partition: tuple[str, int]) -> TopicPartition:
        tp = as_partition(partition)
        if self._buffer.cursor(tp) is None:
            raise errors.InvalidRequestError(f"{tp} is not assigned", field="partition")
        return tp

    # --- the group -------------------------------------------------------------------

    def commit(self, offsets: Mapping[tuple[str, int], int | OffsetCommit] | None = None) -> None:
        """Commit the group's next offsets; by default, the positions of all partitions.

        Returns when they are stored on a majority. Raises FencedError, OutOfOrderError or
        SequenceConflictError for an OffsetCommit with a producer id, UnknownTopicOrPartitionError,
        and InvalidRequestError without a `group_id`. In a group with members it raises
        FencedMemberError if another member owns the partition now, and GroupHasMembersError if this
        consumer is no member. It raises NotReadyError while an open transaction has staged one of
        these offsets.
        """
        commits = self._commits(offsets)
        if commits:
            runtime.run(self._stored_offsets(commits))

    def _stored_offsets(
        self, commits: Mapping[TopicPartition, OffsetCommit]
    ) -> Coroutine[Any, Any, dict[TopicPartition, bool]]:
        if self._member is not None and self._rebalance is not None:
            return self._member.commit(commits, dict(self._rebalance.numbers))
        return self._fetcher.positions.groups.commit(self._group(), commits)

    def _commits(
        self, offsets: Mapping[tuple[str, int], int | OffsetCommit] | None
    ) -> dict[TopicPartition, OffsetCommit]:
        self._group()
        if offsets is not None:
            return as_commits(offsets)
        positions = {tp: self._buffer.position(tp) for tp in self.assignment()}
        return {tp: OffsetCommit(at) for tp, at in positions.items() if at is not None}

    def committed(self, partition: tuple[str, int]) -> CommittedOffset | None:
        """Return the group's committed offset in a partition; None: none."""
        group, tp = self._group(), as_partition(partition)
        return runtime.run(self._fetcher.positions.groups.committed_now(group, tp))

    def _group(self) -> str:
        self._check_open()
        if self.config.group_id is None:
            raise errors.InvalidRequestError("the consumer has no group_id", field="group_id")
        return self.config.group_id

    def metrics(self) -> dict[str, int | float]:
        """Return reading progress, by the last answers, and the state of the group."""
        lags, rebalance, member = self._buffer.lags(), self._rebalance, self._member
        return {
            "partitions": len(self.assignment()),
            "records_lag": sum(lags.values()),
            "records_lag_max": max(lags.values(), default=0),
            "rebalances": 0 if rebalance is None else rebalance.count,
            "seconds_since_progress": 0.0 if member is None else member.idle_s(),
            **self._cluster.metrics(),
        }

    # --- life ------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ClientClosedError(self._why_closed)

    def close(self) -> None:
        """Close the consumer; a group member finishes its records (on_revoked) and leaves."""
        self._close(failed=False)

    def _close(self, failed: bool) -> None:
        if runtime.can_close() and self._begin_to_close():
            try:
                if self._rebalance is not None:
                    at_once(self._rebalance.leave(failed))
            finally:
                self._closing = False  # an interrupted close can be called again
                runtime.run(self._shut(), whole=True)

    def _begin_to_close(self) -> bool:
        """Return False if close has begun before. A member that leaves can still commit."""
        begun, self._closing = self._closed or self._closing, True
        return not begun

    async def _shut(self) -> None:
        if self._closed:
            return  # an interrupted close goes on
        self._closed = True
        self._buffer.close()
        await end_reading(self._fetcher, self._member, self._cluster)

    def __del__(self) -> None:
        if not self._closed:
            parts = self._fetcher, self._member, self._cluster
            runtime.end_dropped("a consumer", lambda: end_reading(*parts))

    def _forked(self) -> None:
        """Called in a forked child: the engine's thread stayed with the parent."""
        self._closed = True
        self._why_closed = "the consumer was made before a fork: make one in each process"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._close(failed=error is not None)


__all__ = ["Consumer"]
