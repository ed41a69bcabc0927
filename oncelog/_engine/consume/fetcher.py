"""Fetcher: long polls to each leader, streams for partitions that are behind.

Place in the flow: node -> here -> `fetch_buffer` -> the user's thread. Each node has one poll in
flight; it covers the node's partitions that have room and no stream (`catch_up`). Leader changes,
restarts and broken connections are handled here and never reach the user.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

import grpc.aio

from oncelog import errors
from oncelog._engine.consume.catch_up import MOST_STREAMS, CatchUp
from oncelog._engine.consume.fetch_buffer import Added, FetchBuffer, Wanted
from oncelog._engine.consume.member import GroupSession
from oncelog._engine.consume.new_partitions import NewPartitions
from oncelog._engine.consume.positions import Positions, partition_gone
from oncelog._engine.consume.routes import Routes
from oncelog._engine.net.attempts import Attempts
from oncelog._engine.net.cluster import MAX_LEADER_FAILURES, Cluster, check_answers
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.fetched import DecodeError, read_fetch_response
from oncelog.wire.verdicts import partition_error_name

log = logging.getLogger("oncelog.consumer")

# Time for an offset above a leader's high watermark: a new leader learns the committed end a moment
# after its election.
_AHEAD_GRACE_S = 10.0
EARLIEST = "earliest"
_ELECTION_S = 2.0  # a seek's longest wait for a leader
_MOST_WAIT_MS = 60_000  # the nodes' limit
# A poll that is so late: other nodes are asked for the leader.
_STALL_S = 1.0


class Fetcher:
    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self._routes = Routes(config, cluster)
        self.positions = Positions(config, cluster, self._routes)
        self.buffer = FetchBuffer(config.max_partition_fetch_bytes, self.wake)
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._polled: dict[str, set[tuple[TopicPartition, int]]] = {}  # with the generation
        self._locating: set[TopicPartition] = set()
        # Partitions that restart here, without a look at the group's committed offsets, with the
        # generation of the restart.
        self._reset: dict[TopicPartition, tuple[str, int]] = {}
        # Failed searches for the start of partitions without a position.
        self._unlocated: dict[TopicPartition, Attempts] = {}
        self._searches = 0
        self._searching = False  # leader searches since all partitions had one
        self._ahead_since: dict[TopicPartition, float] = {}
        self._catch_up = CatchUp(config, cluster, self.buffer)
        # Partitions with a stream instead of polls, with the generation of its start.
        self._streams: dict[TopicPartition, tuple[int, asyncio.Task[None]]] = {}
        self._task = self._loop.create_task(self._run(), name="fetch")
        self._side_tasks: set[asyncio.Task[None]] = set()
        self.new_partitions = NewPartitions(config, cluster, self.buffer, self.wake)
        self._side(self.new_partitions.look())

    def wake(self, _tp: TopicPartition | None = None) -> None:
        """Compute the wanted partitions again; from any thread."""
        self._loop.call_soon_threadsafe(self._recheck)

    def _recheck(self) -> None:
        self._event.set()
        self._catch_up.recheck()

    async def stop(self) -> None:
        streams = [task for _, task in self._streams.values()]
        tasks = [self._task, *self._polls.values(), *streams, *self._side_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- polls and streams -----------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._event.clear()
            try:
                pause = self._dispatch()
            except Exception as error:  # noqa: BLE001  # as that of a poll
                for one in self.buffer.cursors():
                    self._fail(one.tp, one.generation, error)
                pause = 1.0
            try:
                async with asyncio.timeout(pause):
                    await self._event.wait()
            except TimeoutError:
                pass

    def _dispatch(self) -> float | None:
        """Start polls that are due; return when to look again."""
        now = time.monotonic()
        missing = [t for t in self.buffer.without_position() if t[0] not in self._locating]
        if missing:
            self._locating.update(tp for tp, _ in missing)
            self._side(self._locate(missing))
        by_node: dict[str, list[Wanted]] = {}
        lost = set() if self._searching else self._routes.take_outdated()
        pause: float | None = None
        for wanted in self.buffer.wanted():
            if self._is_streamed(wanted):
                continue
            wait = self._routes.not_before(wanted.tp) - now
            if wait > 0:
                pause = wait if pause is None else min(pause, wait)
                continue
            address = self._routes.address(wanted.tp)
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
                # A partition has room again, or was seeked: do not let it wait for the poll in
                # flight.
                running.cancel()
            self._polled[address] = asked
            task = self._loop.create_task(self._poll(address, partitions))
            self._polls[address] = task
            task.add_done_callback(lambda done, a=address: self._poll_done(a, done))  # type: ignore[misc]
        if not lost:
            self._searches = 0
        elif not self._searching:
            self._searching = True
            self._side(self._search(lost))
        return pause

    def _drop_gone(self) -> None:
        assigned = {one.tp: one.generation for one in self.buffer.cursors()}
        for tp in self.cluster.leaders.gone(assigned):
            if not self.new_partitions.drop(tp):
                self.buffer.fail(tp, assigned[tp], partition_gone(tp))

    async def _search(self, topics: set[str]) -> None:
        """Ask for leaders, less and less often; partitions with a leader are read meanwhile."""
        try:
            await asyncio.sleep(self.cluster.backoff.delay(self._searches))
            self._searches += 1
            if self._searches % MAX_LEADER_FAILURES == 0:
                self.cluster.prefer_another()  # it may be cut off, and know of no leader
            await self.cluster.refresh(topics)
            self._drop_gone()
        except errors.OtherClusterError as error:
            for one in self.buffer.cursors():
                if one.tp.topic in topics:
                    self._fail(one.tp, one.generation, error)
        except errors.OncelogError as error:
            log.debug("no metadata: %s", error)
        finally:
            self._searching = False
            self._event.set()

    def _is_streamed(self, wanted: Wanted) -> bool:
        generation, task = self._streams.get(wanted.tp, (-1, None))
        if task is not None and generation != wanted.generation:
            task.cancel()
            del self._streams[wanted.tp]
        return generation == wanted.generation

    def _poll_done(self, address: str, task: asyncio.Task[None]) -> None:
        if self._polls.get(address) is task:
            del self._polls[address]
            self._event.set()

    def _side(self, coroutine: object) -> None:
        task: asyncio.Task[None] = self._loop.create_task(coroutine)  # type: ignore[arg-type]
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    # --- asking ----------------------------------------------------------------------

    async def _poll(self, address: str, partitions: list[Wanted], wait: bool = True) -> None:
        try:
            await self._poll_once(address, partitions, wait)
        except Exception as error:  # noqa: BLE001  # it must not stop the other partitions
            if len(partitions) == 1:
                self._fail(partitions[0].tp, partitions[0].generation, error)
                return
            middle = len(partitions) // 2
            for some in (partitions[:middle], partitions[middle:]):
                await self._poll(address, some, wait=False)

    def _fail(self, tp: TopicPartition, generation: int, error: Exception) -> None:
        if not isinstance(error, errors.OncelogError):
            log.error("%s cannot be read", tp, exc_info=error)
            error = errors.InternalError(f"{tp}: a bug in the client: {error!r}")
        self.buffer.fail(tp, generation, error)

    async def _poll_once(self, address: str, partitions: list[Wanted], wait: bool) -> None:
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
            max_wait_ms=min(config.fetch_max_wait_ms, _MOST_WAIT_MS) if wait else 0,
            max_bytes=config.fetch_max_bytes,
            any_replica=config.any_replica,
            near=config.rack is not None,
        )
        try:
            answers = read_fetch_response(await self._answer(address, request, partitions))
            check_answers(len(partitions), len(answers))
        except (errors.RetriableError, DecodeError) as error:
            log.debug("fetch from %s: %s", address, error)
            for wanted in partitions:
                self._routes.failed(wanted.tp, address)
                if isinstance(error, errors.OtherClusterError):
                    self._fail(wanted.tp, wanted.generation, error)
            return
        for wanted, records in zip(partitions, answers, strict=True):
            added = self.buffer.add(wanted, records)
            if added is Added.ERROR:
                self._refused(wanted, records.meta, address)
            elif added is Added.ANEW:
                log.warning("%s: the topic was deleted and created anew", wanted.tp)
                self.new_partitions.made_anew(wanted.tp)
                self._ahead_since.pop(wanted.tp, None)
                self.buffer.seek(wanted.tp, None, wanted.generation)
            elif added is Added.BEHIND:
                self._routes.failed(wanted.tp, address)
            elif added is Added.OK:
                self._routes.answered(wanted.tp, address)
                self._ahead_since.pop(wanted.tp, None)
                if len(self._streams) < MOST_STREAMS and self._catch_up.is_worth_it(records):
                    following = Wanted(wanted.tp, records.end_offset, wanted.generation)
                    self._start_stream(address, following)

    async def _answer(
        self, address: str, request: log_pb2.FetchRequest, partitions: list[Wanted]
    ) -> bytes:
        """Return the node's answer, unless it is silent and another node leads by now.

        A hanging node keeps its connections, so the request would time out first. Raises
        OncelogError.
        """
        topics = {wanted.tp.topic for wanted in partitions}
        call: asyncio.Task[bytes] = self._loop.create_task(
            self.cluster.call(_fetch_bytes, request, address=address)
        )
        limit = request.max_wait_ms / 1000 + _STALL_S
        try:
            while not (await asyncio.wait({call}, timeout=limit))[0]:
                limit = _STALL_S
                self.cluster.avoid(address)
                await self.cluster.refresh(topics)
                if any(self._is_elsewhere(wanted.tp, address) for wanted in partitions):
                    raise errors.BrokerUnavailableError(f"{address}: silent, and no longer leads")
            return call.result()
        finally:
            call.cancel()

    def _is_elsewhere(self, tp: TopicPartition, address: str) -> bool:
        """Tell whether to ask another node than this silent one: the leader, if it is only near."""
        return self._routes.address(tp) != address or self._routes.is_near(tp, address)

    def _start_stream(self, address: str, wanted: Wanted) -> None:
        task = self._loop.create_task(self._stream(address, wanted))
        self._streams[wanted.tp] = (wanted.generation, task)
        task.add_done_callback(lambda done: self._stream_done(wanted.tp, done))

    async def _stream(self, address: str, wanted: Wanted) -> None:
        try:
            refused = await self._catch_up.run(address, wanted)
            if refused is not None:
                self._refused(*refused, address)
        except Exception as error:  # noqa: BLE001  # as that of a poll
            self._fail(wanted.tp, wanted.generation, error)

    def _stream_done(self, tp: TopicPartition, task: asyncio.Task[None]) -> None:
        # Unless a seek has already replaced it by polls, or by another stream.
        if tp in self._streams and self._streams[tp][1] is task:
            del self._streams[tp]
            self._event.set()

    def _refused(self, wanted: Wanted, records: log_pb2.PartitionRecords, address: str) -> None:
        tp = wanted.tp
        error = records.error
        if error == log_pb2.PARTITION_ERROR_NOT_LEADER:
            self._routes.leads_elsewhere(tp, address, records.leader_id, records.leader_address)
        elif error in (
            log_pb2.PARTITION_ERROR_NOT_READY,
            log_pb2.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION,
        ):
            self._routes.failed(tp, address)
            if error == log_pb2.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION:
                self._side(self._confirm_unknown(wanted))
        elif error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE:
            self._out_of_range(wanted, records, address)
        elif self._routes.damaged(tp, address, error):
            self._routes.failed(tp, address)
        else:
            message = records.message or partition_error_name(error)
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

    async def _confirm_unknown(self, wanted: Wanted) -> None:
        """Confirm that a topic is gone: one node may miss it for a moment; gone is an error."""
        try:
            await self.cluster.require_topic(wanted.tp.topic, 5.0)
            await self.cluster.refresh([wanted.tp.topic])
            self._drop_gone()
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
        followed = self.config.any_replica or self.config.rack is not None
        if ahead and cursor is not None and (cursor.by_reading or followed):
            # These records were read once, so they exist: the node lags, wait for it.
            since = self._ahead_since.setdefault(tp, time.monotonic())
            if time.monotonic() - since < _AHEAD_GRACE_S:
                self._routes.failed(tp, address)
                return
        elif self.config.auto_offset_reset != "none":
            log.warning(
                "%s: offset %d is out of range [%d, %d], reset to %s",
                tp, wanted.offset, records.log_start_offset, records.high_watermark,
                self.config.auto_offset_reset,
            )  # fmt: skip
            self._seek_when_known(tp, self.config.auto_offset_reset, wanted.generation)
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

    async def seek_all(self, tps: Iterable[TopicPartition], where: str) -> None:
        """Go on at "earliest" or "latest". Leaderless partitions delay the others for a moment."""
        generations = {tp: self._seek_when_known(tp, where) for tp in tps}
        self._locating.update(generations)
        limit = min(self._request_s, _ELECTION_S)
        try:
            queries: dict[TopicPartition, str | int] = dict.fromkeys(generations, where)
            found, problems = await self.positions.find_offsets(queries, limit)
            for tp, offset in found.items():
                self.buffer.found(tp, generations[tp], offset)  # a seek in the meantime wins
        finally:
            self._locating.difference_update(generations)
            self._event.set()
        for tp, error in problems.items():
            if not error.retriable:
                raise error
            log.warning("%s: not at its %s offset yet: %s", tp, where, error)

    def _seek_when_known(self, tp: TopicPartition, where: str, since: int | None = None) -> int:
        """Restart there, unless there was a seek after `since`; returns the new generation."""
        if generation := self.buffer.seek(tp, None, since):
            self._reset[tp] = where, generation
        return generation

    async def _locate(self, missing: list[tuple[TopicPartition, int]]) -> None:
        """Find the start of partitions without a position; each is set as soon as it is known."""
        generations = dict(missing)
        try:
            await self._locate_all(generations)
        except Exception as error:  # noqa: BLE001  # as that of a poll
            for tp, generation in generations.items():
                self._fail(tp, generation, error)
            if isinstance(error, errors.FencedMemberError):
                # The group soon tells their new owners.
                await asyncio.sleep(self.config.retry_backoff_max_ms / 1000)
        finally:
            self._locating.difference_update(tp for tp, _ in missing)
            self._event.set()

    async def _locate_all(self, generations: dict[TopicPartition, int]) -> None:
        """Find starts. `generations`: of partitions not located yet; located ones are removed."""
        # After an offset out of range, the group's committed offset would lead there again.
        resets = {tp: self._reset.get(tp, ("", 0)) for tp in generations}
        where = {tp: place for tp, (place, at) in resets.items() if at == generations[tp]}
        fresh = [tp for tp in generations if tp not in where]
        self._located(generations, await self.positions.committed(fresh))
        fresh = [tp for tp in fresh if tp in generations]
        if fresh and self.config.auto_offset_reset == "none":
            raise errors.OffsetOutOfRangeError(
                f"{', '.join(map(str, fresh))}: no position, and auto_offset_reset is 'none': "
                "seek first"
            )
        failures = 0
        while generations:
            found: dict[TopicPartition, int] = {}
            queries: dict[TopicPartition, str | int] = {
                tp: where.get(tp) or self._start_of(tp) for tp in generations
            }
            problems = await self.positions.find_now(queries, found)
            for tp, error in problems.items():
                self._unlocated.setdefault(tp, Attempts()).failed(error)
            self._located(generations, found)
            final = {tp: error for tp, error in problems.items() if not error.retriable}
            if len(final) < len(problems):
                failures += 1
                await asyncio.sleep(self.cluster.backoff.delay(failures))
                deadline = time.monotonic() + self._request_s
                final |= await self.positions.ask_again(list(problems), failures, deadline)
            for tp, error in final.items():
                generation = generations.pop(tp)
                if not self.cluster.leaders.gone([tp]) or not self.new_partitions.drop(tp):
                    self.buffer.fail(tp, generation, error)
            for tp in [tp for tp, one in generations.items() if not self.buffer.is_at(tp, one)]:
                del generations[tp]

    def not_located(self, tp: TopicPartition) -> errors.OncelogError:
        """Return the error of a partition whose start position is not known in time."""
        attempts = self._unlocated.get(tp, Attempts())
        return attempts.late(f"{tp}: the start position is not known yet")

    def _start_of(self, tp: TopicPartition) -> str:
        at_start = self.new_partitions.begins_at_start(tp)
        return EARLIEST if at_start else self.config.auto_offset_reset

    def _located(
        self, generations: dict[TopicPartition, int], found: dict[TopicPartition, int]
    ) -> None:
        for tp, offset in found.items():
            self._unlocated.pop(tp, None)
            self.buffer.found(tp, generations.pop(tp), offset)
        if found:
            self._event.set()

    @property
    def _request_s(self) -> float:
        return self.config.request_timeout_ms / 1000


async def end_reading(fetcher: Fetcher, member: GroupSession | None, cluster: Cluster) -> None:
    """Free everything. `member` leaves its group, without a callback and without a commit."""
    if member is not None:
        await member.leave()
    await fetcher.stop()
    await cluster.close()


def _fetch_bytes(channel: grpc.aio.Channel) -> Any:
    """Return the method Fetch with the raw bytes as answer."""
    return channel.unary_unary(
        "/oncelog.v1.LogService/Fetch",
        request_serializer=log_pb2.FetchRequest.SerializeToString,
    )
