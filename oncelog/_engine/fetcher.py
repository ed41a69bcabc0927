"""The consumer's IO: long polls to each leader, start positions, leader changes.

Place in the flow: node -> here -> `fetching.FetchBuffer` -> the user's thread. One poll is
on its way per node; it covers the partitions that node leads and that have room. Leader
changes, restarts and broken connections are handled here and never reach the user.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

import grpc.aio

from oncelog import errors
from oncelog._engine.catch_up import CatchUp
from oncelog._engine.cluster import OLD_NEWS, Cluster, log_stub
from oncelog._engine.fetching import Added, FetchBuffer, Wanted
from oncelog._engine.groups import Groups
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.fetched import DecodeError, read_fetch_response

log = logging.getLogger("oncelog.consumer")

# How long an offset above a leader's high watermark may last: a new leader learns how far
# the log is committed a moment after its election.
_AHEAD_GRACE_S = 10.0


class Fetcher:
    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.groups = Groups(cluster)
        self.buffer = FetchBuffer(config.max_partition_fetch_bytes, self.wake)
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._polled: dict[str, set[tuple[TopicPartition, int]]] = {}  # with the generation
        self._locating: set[TopicPartition] = set()
        self._reset: set[TopicPartition] = set()
        self._not_before: dict[TopicPartition, float] = {}
        self._failures: dict[TopicPartition, int] = {}
        self._ahead_since: dict[TopicPartition, float] = {}
        # Replicas that cannot read their log, where another may be asked.
        self._damaged: set[tuple[TopicPartition, str]] = set()
        self._catch_up = CatchUp(config, cluster, self.buffer)
        self._task = self._loop.create_task(self._run(), name="fetch")
        self._side_tasks: set[asyncio.Task[None]] = set()

    def wake(self, _tp: TopicPartition | None = None) -> None:
        """Look again what is wanted; from any thread."""
        self._loop.call_soon_threadsafe(self._look_again)

    def _look_again(self) -> None:
        self._event.set()
        self._catch_up.look_again()

    async def stop(self) -> None:
        tasks = [self._task, *self._polls.values(), *self._side_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what to ask whom ------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._event.clear()
            try:
                pause = await self._dispatch()
            except errors.OncelogError as error:
                log.debug("fetching: %s", error)
                pause = 0.1
            try:
                async with asyncio.timeout(pause):
                    await self._event.wait()
            except TimeoutError:
                pass

    async def _dispatch(self) -> float | None:
        """Start polls where there is something to ask; return when to look again."""
        now = time.monotonic()
        missing = [t for t in self.buffer.without_position() if t[0] not in self._locating]
        if missing:
            self._locating.update(tp for tp, _ in missing)
            self._side(self._locate(missing))
        by_node: dict[str, list[Wanted]] = {}
        lost: set[str] = set()
        pause: float | None = None
        for wanted in self.buffer.wanted():
            wait = self._not_before.get(wanted.tp, 0.0) - now
            if wait > 0:
                pause = wait if pause is None else min(pause, wait)
                continue
            address = self._address(wanted.tp)
            if address:
                by_node.setdefault(address, []).append(wanted)
            else:
                lost.add(wanted.tp.topic)
        for address, partitions in by_node.items():
            running = self._polls.get(address)
            asked = {(w.tp, w.generation) for w in partitions}
            if running is not None:
                if asked <= self._polled[address]:
                    continue
                # A partition has room again, or was sought elsewhere: do not let it wait
                # for the poll that is on its way.
                running.cancel()
            self._polled[address] = asked
            task = self._loop.create_task(self._poll(address, partitions))
            self._polls[address] = task
            task.add_done_callback(lambda done, a=address: self._poll_done(a, done))  # type: ignore[misc]
        if lost:
            await self.cluster.refresh(lost)
            pause = 0.05 if pause is None else min(pause, 0.05)
        return pause

    def _poll_done(self, address: str, task: asyncio.Task[None]) -> None:
        if self._polls.get(address) is task:
            del self._polls[address]
            self._event.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a poll died", exc_info=error)

    def _side(self, coroutine: object) -> None:
        task: asyncio.Task[None] = self._loop.create_task(coroutine)  # type: ignore[arg-type]
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    def _address(self, tp: TopicPartition) -> str:
        leader = self.cluster.leaders.leader(tp)
        if leader is None:
            return ""
        if not self.config.any_replica:
            return leader.address
        nodes = self.cluster.leaders.nodes
        chosen = self.config.replica_node_id
        if chosen is not None:
            return nodes.get(chosen, "") if chosen in leader.replicas else ""
        # Spread, but always the same for a partition until it fails.
        turn = tp.partition + self._failures.get(tp, 0)
        replicas = [nodes[r] for r in leader.replicas if r in nodes]
        replicas = [one for one in replicas if (tp, one) not in self._damaged] or replicas
        return replicas[turn % len(replicas)] if replicas else ""

    # --- asking ----------------------------------------------------------------------

    async def _poll(self, address: str, partitions: list[Wanted]) -> None:
        config = self.config
        request = log_pb2.FetchRequest(
            partitions=[
                log_pb2.PartitionFetch(
                    topic=w.tp.topic,
                    partition=w.tp.partition,
                    offset=w.offset,
                    max_bytes=config.max_partition_fetch_bytes,
                )
                for w in partitions
            ],
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            any_replica=config.any_replica,
        )
        try:
            answer = await self.cluster.call(_fetch_bytes, request, address=address)
            answers = read_fetch_response(answer)
        except (errors.RetriableError, DecodeError) as error:
            log.debug("fetch from %s: %s", address, error)
            for wanted in partitions:
                self._failed(wanted.tp, address)
            return
        except errors.OncelogError as error:
            for wanted in partitions:
                self.buffer.fail(wanted.tp, wanted.generation, error)
            return
        for wanted, records in zip(partitions, answers, strict=True):
            added = self.buffer.add(wanted, records)
            if added is Added.ERROR:
                self._refused(wanted, records.meta, address)
            elif added is Added.OK:
                self._failures.pop(wanted.tp, None)
                self._ahead_since.pop(wanted.tp, None)
        if self._catch_up.is_behind(answers):
            refused = await self._catch_up.run(address, [wanted.tp for wanted in partitions])
            if refused is not None:
                self._refused(refused[0], refused[1].meta, address)

    def _failed(self, tp: TopicPartition, address: str) -> None:
        """Nothing from this node: ask who leads, after a pause that grows."""
        failures = self._failures[tp] = self._failures.get(tp, 0) + 1
        self._not_before[tp] = time.monotonic() + self.cluster.backoff.delay(failures - 1)
        self.cluster.leaders.forget(tp, address)
        self.cluster.avoid(address)
        if failures % OLD_NEWS == 0:
            self.cluster.ask_another()

    def _refused(self, wanted: Wanted, records: log_pb2.PartitionRecords, address: str) -> None:
        tp = wanted.tp
        error = records.error
        if error == log_pb2.PARTITION_ERROR_NOT_LEADER:
            self._failed(tp, address)
            if records.leader_address and records.leader_address != address:
                self.cluster.leaders.hint(tp, records.leader_id, records.leader_address)
        elif error in (
            log_pb2.PARTITION_ERROR_NOT_READY,
            log_pb2.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION,
        ):
            self._failed(tp, address)
            if error == log_pb2.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION:
                self._side(self._confirm_unknown(wanted))
        elif error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE:
            self._out_of_range(wanted, records, address)
        elif self._turns_away(tp, address, error):
            self._failed(tp, address)
        else:
            message = records.message or log_pb2.PartitionError.Name(error)
            self.buffer.fail(
                tp,
                wanted.generation,
                errors.CorruptLogError(
                    f"{tp}: {message}",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=wanted.offset,
                ),
            )

    def _turns_away(self, tp: TopicPartition, address: str, error: int) -> bool:
        """Whether this replica is damaged, and a sound one may be asked instead."""
        if error == log_pb2.PARTITION_ERROR_STORAGE and self.config.any_replica:
            self._damaged.add((tp, address))
        return (tp, address) in self._damaged and (tp, self._address(tp)) not in self._damaged

    async def _confirm_unknown(self, wanted: Wanted) -> None:
        """A topic may vanish from one node's view for a moment; really gone is an error."""
        try:
            await self.cluster.require_topic(wanted.tp.topic, 5.0)
            await self.cluster.refresh([wanted.tp.topic])
        except errors.UnknownTopicOrPartitionError as error:
            self.buffer.fail(wanted.tp, wanted.generation, error)
        except errors.OncelogError as error:
            log.debug("%s: %s", wanted.tp, error)

    def _out_of_range(
        self, wanted: Wanted, records: log_pb2.PartitionRecords, address: str
    ) -> None:
        tp = wanted.tp
        cursor = self.buffer.cursor(tp)
        ahead = wanted.offset > records.high_watermark
        if ahead and cursor is not None and (cursor.by_reading or self.config.any_replica):
            # These records were read once, so they exist: the node lags, wait for it.
            since = self._ahead_since.setdefault(tp, time.monotonic())
            if time.monotonic() - since < _AHEAD_GRACE_S:
                self._failed(tp, address)
                return
        elif self.config.auto_offset_reset != "none":
            log.warning(
                "%s: offset %d is out of range [%d, %d], reset to %s",
                tp, wanted.offset, records.log_start_offset, records.high_watermark,
                self.config.auto_offset_reset,
            )  # fmt: skip
            self._reset.add(tp)
            self.buffer.seek(tp, None)
            return
        self.buffer.fail(
            tp,
            wanted.generation,
            errors.OffsetOutOfRangeError(
                f"{tp}: offset {wanted.offset} is out of range, the log has "
                f"{records.log_start_offset} to {records.high_watermark}",
                topic=tp.topic,
                partition=tp.partition,
                offset=wanted.offset,
                log_start_offset=records.log_start_offset,
                high_watermark=records.high_watermark,
            ),
        )

    # --- positions -------------------------------------------------------------------

    async def _locate(self, missing: list[tuple[TopicPartition, int]]) -> None:
        """Find out where to start partitions without a position."""
        policy = self.config.auto_offset_reset
        tps = [tp for tp, _ in missing]
        try:
            for tp, offset in (await self._committed(tps)).items():
                generation = dict(missing)[tp]
                self.buffer.found(tp, generation, offset)
                missing = [one for one in missing if one[0] != tp]
            if not missing:
                return
            if policy == "none":
                raise errors.OffsetOutOfRangeError(
                    "no position, and auto_offset_reset is 'none': seek first"
                )
            offsets = await self.list_offsets(dict.fromkeys((tp for tp, _ in missing), policy))
            for tp, generation in missing:
                self.buffer.found(tp, generation, offsets[tp])
        except errors.OncelogError as error:
            for tp, generation in missing:
                self.buffer.fail(tp, generation, error)
        finally:
            self._locating.difference_update(tps)
            self._event.set()

    async def _committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group stands, if there is one."""
        if self.config.group_id is None:
            return {}
        # After an offset that is out of range the group's own would lead there again.
        fresh = [tp for tp in tps if tp not in self._reset]
        self._reset.difference_update(tps)
        if not fresh:
            return {}
        found = await self.groups.committed(self.config.group_id, fresh)
        return {tp: known.offset for tp, known in found.items() if known is not None}

    async def list_offsets(
        self, queries: dict[TopicPartition, str | int], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return offsets: "earliest", "latest" or a timestamp (µs) for each partition.

        Follows leader changes for `timeout_s` (default request_timeout_ms, but at least as
        long as an election takes), then raises the last error. -1: no such record.
        """
        limit = max(timeout_s or self.config.request_timeout_ms / 1000, 0.1)
        deadline = time.monotonic() + limit
        found: dict[TopicPartition, int] = {}
        failures = 0
        while True:
            open_queries = {tp: what for tp, what in queries.items() if tp not in found}
            try:
                await self._list_once(open_queries, found)
            except errors.RetriableError as error:
                failures += 1
                if time.monotonic() >= deadline:
                    raise
                log.debug("list offsets: %s", error)
            if len(found) == len(queries):
                return found
            await asyncio.sleep(self.cluster.backoff.delay(failures))
            await self._refresh_or_raise({tp.topic for tp in open_queries}, deadline)

    async def _refresh_or_raise(self, topics: set[str], deadline: float) -> None:
        for topic in topics:
            left = max(0.1, deadline - time.monotonic())
            await self.cluster.require_topic(topic, left)

    async def _list_once(
        self, queries: dict[TopicPartition, str | int], found: dict[TopicPartition, int]
    ) -> None:
        by_node: dict[str, list[TopicPartition]] = {}
        for tp in queries:
            address = self._address(tp)
            if not address:
                raise errors.NotReadyError(f"{tp} has no leader")
            by_node.setdefault(address, []).append(tp)
        problems: list[errors.OncelogError] = []
        for address, tps in by_node.items():
            request = log_pb2.ListOffsetsRequest(
                queries=[_query(tp, queries[tp]) for tp in tps],
                any_replica=self.config.any_replica,
            )
            try:
                answer: log_pb2.ListOffsetsResponse = await self.cluster.call(
                    lambda channel: log_stub(channel).ListOffsets, request, address=address
                )
            except errors.RetriableError as error:
                problems.append(error)
                for tp in tps:
                    self._failed(tp, address)
                continue
            problems += self._take_offsets(tps, answer.results, address, found)
        if problems:
            raise problems[0]

    def _take_offsets(
        self,
        tps: list[TopicPartition],
        results: Iterable[log_pb2.OffsetResult],
        address: str,
        found: dict[TopicPartition, int],
    ) -> list[errors.OncelogError]:
        problems: list[errors.OncelogError] = []
        for tp, result in zip(tps, results, strict=True):
            if result.error == log_pb2.PARTITION_ERROR_NONE:
                found[tp] = result.offset
                continue
            self._failed(tp, address)
            if result.leader_address and result.leader_address != address:
                self.cluster.leaders.hint(tp, result.leader_id, result.leader_address)
            name = log_pb2.PartitionError.Name(result.error)
            text = f"{tp}: {result.message or name}"
            if result.error == log_pb2.PARTITION_ERROR_STORAGE and not self._turns_away(
                tp, address, result.error
            ):
                raise errors.CorruptLogError(text, topic=tp.topic, partition=tp.partition)
            problems.append(errors.NotReadyError(text))
        return problems


def _fetch_bytes(channel: grpc.aio.Channel) -> Any:
    """The method Fetch, which returns the answer as it came."""
    return channel.unary_unary(
        "/oncelog.v1.LogService/Fetch",
        request_serializer=log_pb2.FetchRequest.SerializeToString,
    )


def _query(tp: TopicPartition, what: str | int) -> log_pb2.OffsetQuery:
    query = log_pb2.OffsetQuery(topic=tp.topic, partition=tp.partition)
    if what == "earliest":
        query.earliest = True
    elif what == "latest":
        query.latest = True
    else:
        assert isinstance(what, int)
        query.timestamp_us = what
    return query


__all__ = ["Fetcher"]
