"""Sender: takes due batches, finds leaders, keeps a stream to each node.

Place in the flow: `accumulator` (users' threads) -> here -> `stream` -> node, and back: answers ->
`partition`, which decides -> deliveries. Runs on the engine's loop; other threads call `wake` and
`ask` only. `leader_watch` finds the leaders, `identities` the producer ids.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque

from oncelog import errors
from oncelog._engine.net.attempts import tells
from oncelog._engine.net.backoff import Backoff
from oncelog._engine.net.cluster import Cluster
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.batches import OpenBatch
from oncelog._engine.produce.futures import Delivery
from oncelog._engine.produce.identities import ProducerIdentities
from oncelog._engine.produce.leader_watch import LeaderWatch
from oncelog._engine.produce.outcomes import (
    Reaction,
    Stats,
    lost_with_topic,
    of_batch,
    with_outcome,
)
from oncelog._engine.produce.partition import PartitionSender
from oncelog._engine.produce.sealing import NO_IDENTITY, LeasedIdentity, SealedBatch
from oncelog._engine.produce.sharing import Connections
from oncelog._engine.produce.shrinking import give_up
from oncelog._engine.produce.standstill import postpone
from oncelog._engine.produce.stream import Lane
from oncelog._engine.produce.transaction import ProducerTransaction
from oncelog.config import ProducerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.compression import CODECS
from oncelog.wire.verdicts import RETRIABLE, answer_text

log = logging.getLogger("oncelog.producer")

# A batch unanswered for so long makes the client ask for the leader: a frozen node does not report
# itself. It asks often during an election, then once a second: it may only be slow.
_STALL_S = 1.0
_STALL_PAUSES = Backoff(0.25, 1.0)
_MAX_FAILED_KEPT = 1000
_SEARCH_PAUSES = Backoff(0.5, 5.0)


class Sender:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        loop: asyncio.AbstractEventLoop,
        connections: Connections,
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.accumulator = accumulator
        self.stats = Stats()
        self.identities = ProducerIdentities(config, cluster)
        # Failed batches that flush and close have not reported yet.
        self.failed: deque[Delivery] = deque()
        self.failed_dropped = 0
        self._loop = loop
        self._partitions: dict[TopicPartition, PartitionSender] = {}
        self._busy: dict[TopicPartition, PartitionSender] = {}
        # Nothing is sent to these: they wait for a producer id, or for news of their topic.
        self._identifying: set[TopicPartition] = set()
        self._connections = connections
        self._alone = False  # after a rejection that another producer may have caused
        self._streams: dict[str, Lane] = {}
        self._sent_to: dict[TopicPartition, str] = {}
        # A look is due while these are equal; no flag that a signal handler could find half set.
        self._looks = 0
        self._woken_at = -1
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._watch = LeaderWatch(
            cluster, loop, wanted=lambda: self._busy, is_open=self._is_open, on_round=self._asked
        )
        self.ask = self._watch.ask  # asks for a topic's leaders soon
        # Topics with stalled partitions: leader questions so far, and the time of the next one.
        self._stalls: dict[str, tuple[int, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.settled = asyncio.Event()  # some batch was
        self._stopped = False

    # --- from other threads ----------------------------------------------------------

    def wake(self) -> None:
        """Look for work soon. Cheap when a look is already due."""
        look = self._looks
        if self._woken_at != look:
            self._loop.call_soon_threadsafe(self._pump)
            self._woken_at = look

    # --- life ------------------------------------------------------------------------

    def start(self) -> None:
        self.accumulator.wake = self.wake
        self._spawn(self._tick(), "tick")
        self._spawn(self._watch.run(), "metadata")

    def _spawn(self, coroutine: object, name: str) -> None:
        task: asyncio.Task[None] = self._loop.create_task(coroutine, name=name)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("engine task %s died", task.get_name(), exc_info=error)
            self.fail(errors.ProducerFatalError(f"a bug in the client: {error!r}"))

    async def stop(self) -> None:
        """End all IO; unacknowledged records fail, with their outcomes."""
        if not self._stopped:
            error = errors.DeliveryTimeoutError("the producer was closed before an acknowledgement")
            self._fail_everything(error, errors.ClientClosedError("the producer is closed"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lanes = list(self._streams.values())
        for lane in lanes:
            lane.leave("producer closed")
        for lane in lanes:
            await lane.wait_left()

    def fail(self, error: errors.ProducerFatalError) -> None:
        """Fail all pending records and reject further ones: the producer cannot go on."""
        if self._stopped:
            return
        log.error("producer stops: %s", error)
        self._fail_everything(error, error)
        for lane in list(self._streams.values()):
            lane.leave("producer failed")

    def _fail_everything(self, error: errors.OncelogError, later: errors.OncelogError) -> None:
        self._stopped = True
        if self.accumulator.transaction is not None:
            self.accumulator.fail_transaction(self.accumulator.transaction, error)
        self._fail_batches(self.accumulator.stop(later), error)

    def _fail_batches(self, unsent: list[OpenBatch], error: errors.OncelogError) -> None:
        for batch in unsent:
            batch.delivery.fail(of_batch(with_outcome(error, "never_sent"), batch.delivery))
            self.stats.records_failed += batch.record_count
            self._batch_done(batch)
        for partition in self._partitions.values():
            partition.fail_all(error)
        self._busy.clear()

    def _batch_done(self, batch: OpenBatch) -> None:
        self.accumulator.free(batch)
        self.settled.set()
        if batch.delivery.error is None or batch.transaction is not None:
            return  # the transaction's end reports the failure
        self.failed.append(batch.delivery)
        if len(self.failed) > _MAX_FAILED_KEPT:
            self.failed_dropped += self.failed.popleft().unhandled

    # --- sending ---------------------------------------------------------------------

    def _asked(self) -> None:
        """Handle new leader answers: a partition may have lost its leader, or be gone."""
        self._leave_unavailable()
        for tp in self.cluster.leaders.gone(self._busy):
            self._react(self._busy[tp], give_up(self.accumulator, self._busy[tp]))
        self._soon()

    def _leave_unavailable(self) -> None:
        with self.accumulator.lock:
            self.accumulator.stickiness.leave_unavailable()

    def _soon(self) -> None:
        if self._woken_at != self._looks:
            self._woken_at = self._looks
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send everything that can be sent now."""
        self._looks += 1
        if self._stopped:
            return
        now = time.monotonic()
        if (transaction := self.accumulator.failed_transaction) is not None:
            self.drop(transaction, transaction.refusal())
        ready, wake_at = self.accumulator.ready(now)
        for tp in ready:
            if tp not in self._busy:
                self._busy[tp] = self._partition(tp)
        for tp, partition in list(self._busy.items()):
            self._feed(tp, partition, now)
            if self._was_stopped():  # by a fatal answer to an earlier step
                return
            if partition.idle and tp not in ready:
                del self._busy[tp]
            elif partition.retry_at > now:
                wake_at = min(wake_at or partition.retry_at, partition.retry_at)
        if wake_at is not None:
            self._wake_at(wake_at)

    def _was_stopped(self) -> bool:
        return self._stopped

    def _feed(self, tp: TopicPartition, partition: PartitionSender, now: float) -> None:
        if tp in self._identifying:
            return
        transaction = self.accumulator.transaction
        if transaction is not None and not self._may_stage(partition, transaction, now):
            return
        if partition.needs_identity(now, self.identities.current):
            self._identifying.add(tp)
            partition.obstacles.met("no producer id yet")
            self._spawn(self._identify(tp, partition), f"identify {tp}")
            return
        address = self.cluster.leaders.address(tp)
        if not address:
            self._note_no_leader(partition)
            self._watch.mark_stale(tp.topic)
            return
        if self._sent_to.get(tp) != address:
            self._sent_to[tp] = address
            partition.obstacles.met(f"{address}: no answer yet")
            partition.on_leader_changed(now)
        stream = self._stream(address)
        if not stream.opened:
            # It may be down, and another node lead by now.
            self._watch.mark_stale(tp.topic)
            return
        while stream.has_room:
            sealed = partition.next(now, self.identities.current)
            if isinstance(sealed, Reaction):
                self._react(partition, sealed)
                return
            stream.send(partition, sealed, now)

    def _note_no_leader(self, partition: PartitionSender) -> None:
        failure = self._watch.failure
        if failure is not None:
            text = f"no metadata: {failure.message}"
            partition.obstacles.met(text, told=tells(failure))
        elif not partition.obstacles.last:
            partition.obstacles.met("no leader is known")

    def _may_stage(
        self, partition: PartitionSender, transaction: ProducerTransaction, now: float
    ) -> bool:
        """Tell whether it goes on. It ends with its lease: a new one would fence it."""
        current = self.identities.current
        if current is None or now >= current.expire_at or partition.has_used_up(current):
            text = f"{partition.tp}: the lease of {self.config.producer_name!r} cannot be used on"
            self.accumulator.fail_transaction(transaction, errors.ProducerExpiredError(text))
            self._soon()
        return transaction.failure is None

    def drop(self, transaction: ProducerTransaction, error: errors.OncelogError) -> None:
        """Drop a transaction that cannot be committed: its unstaged records fail now."""
        self.accumulator.fail_transaction(transaction, error)
        self._fail_batches(self.accumulator.drop_transaction(), error)

    def roll_back(self, transaction: ProducerTransaction) -> None:
        for partition in self._partitions.values():
            partition.roll_back(transaction)

    def has_used_up(self, one: LeasedIdentity) -> bool:
        return any(partition.has_used_up(one) for partition in self._partitions.values())

    def _partition(self, tp: TopicPartition) -> PartitionSender:
        partition = self._partitions.get(tp)
        if partition is None:
            config = self.config
            partition = self._partitions[tp] = PartitionSender(
                tp,
                self.accumulator,
                idempotent=config.enable_idempotence,
                leased=config.resume_from is None,
                max_in_flight=config.max_in_flight,
                retries=config.retries,
                codec=CODECS[config.compression_type],
                level=config.compression_level,
                backoff=self.cluster.backoff,
                stats=self.stats,
                on_done=self._batch_done,
            )
        return partition

    async def _identify(self, tp: TopicPartition, partition: PartitionSender) -> None:
        try:
            if partition.was_reset and self.config.resume_from is not None:
                raise errors.ProducerFatalError(
                    f"{tp}: after a batch of unknown outcome the given producer id cannot go on"
                )
            identity, last_sequence = await self.identities.acquire(tp, partition.identity)
        except errors.OncelogError as error:
            self.fail(_fatal(error))
            return
        finally:
            self._identifying.discard(tp)
        if self.config.producer_name and last_sequence < partition.stored_given:
            self.fail(lost_with_topic(tp, partition.stored_given))
            return
        partition.obstacles.clear()
        partition.adopt(identity, last_sequence, self._topic_id(tp.topic))
        self._soon()

    def _topic_id(self, topic: str) -> int:
        view = self.cluster.leaders.topics.get(topic)
        return view.topic_id if view is not None else 0

    async def position(self, tp: TopicPartition) -> int:
        """Ask the partition for this producer's last stored sequence; -1: none."""
        partition = self._partition(tp)
        while partition.identity is NO_IDENTITY and not self._stopped:
            if tp in self._identifying:
                await asyncio.sleep(0.01)
            else:
                self._identifying.add(tp)
                await self._identify(tp, partition)
        return await self.identities.last_stored(tp, partition.identity)

    # --- streams ---------------------------------------------------------------------

    def _stream(self, address: str) -> Lane:
        lane = self._streams.get(address)
        if lane is None:
            lane = self._streams[address] = Lane(
                self._connections.stream(address, self.cluster.founding, alone=self._alone),
                on_open=lambda: self._connected(address),
                on_room=self._soon,
                on_result=self._answered,
                on_close=self._stream_closed,
            )
            if lane.opened:
                self._connected(address)
        return lane

    def _connected(self, address: str) -> None:
        self.cluster.leaders.unreachable.discard(address)
        self._soon()

    def _is_open(self, address: str) -> bool:
        stream = self._streams.get(address)
        return stream is not None and stream.opened

    def _stream_closed(self, lane: Lane, why: str) -> None:
        address, stream = lane.address, lane.stream
        if self._streams.get(address) is lane:
            del self._streams[address]
        if self._stopped:
            return
        log.debug("produce stream to %s broke: %s", address, why)
        if stream.refused is not None:
            if not stream.was_shared:
                self.fail(errors.ProducerFatalError(f"the producer cannot go on: {stream.refused}"))
                return
            self._alone = True
        now = time.monotonic()
        self.cluster.avoid(address)
        self.cluster.leaders.unreachable.add(address)
        self._leave_unavailable()
        for tp, partition in self._busy.items():
            if self._sent_to.get(tp) == address:
                partition.obstacles.met(f"{address}: {why}", told=stream.told_why)
                partition.on_connection_lost(now)
                self.cluster.leaders.forget(tp, address)
                self._watch.mark_stale(tp.topic)
        self._soon()

    def _answered(
        self, partition: PartitionSender, sealed: SealedBatch, result: log_pb2.BatchResult
    ) -> None:
        self._soon()  # first: records sent by its callbacks need not wake the loop
        reaction = partition.on_result(sealed, result.id, result, time.monotonic())
        if result.verdict in RETRIABLE:
            at = self._sent_to.get(partition.tp, "")
            partition.obstacles.met(f"{at}: {answer_text(result)}", told=True)
        else:
            self._watch.leads(partition.tp)
            partition.obstacles.clear()
        self._react(partition, reaction)

    def _react(self, partition: PartitionSender, reaction: Reaction) -> None:
        tp = partition.tp
        if reaction.fatal is not None:
            self.fail(reaction.fatal)
        elif reaction.fatal_unless_recreated is not None:
            if tp not in self._identifying:  # else it is being looked into
                self._identifying.add(tp)
                self._spawn(
                    self._find_topic(partition, reaction.fatal_unless_recreated), f"find {tp.topic}"
                )
        elif reaction.leader_hint is not None:
            self.cluster.leaders.hint(tp, *reaction.leader_hint)
        elif reaction.leader_lost:
            self._watch.suspect(tp, self._sent_to.get(tp, ""))

    async def _find_topic(
        self, partition: PartitionSender, error: errors.UnknownProducerError
    ) -> None:
        """Find out why a leader does not know the producer: all is lost, or the topic is new."""
        tp = partition.tp
        try:
            # Only the node that leads the topic surely knows it.
            await self.cluster.refresh_at(self._sent_to[tp], tp.topic)
        except errors.OncelogError as problem:
            log.debug("no metadata: %s", problem)
            partition.send_again(time.monotonic())
        else:
            if partition.is_of(self._topic_id(tp.topic)):
                self.fail(error)
            else:
                log.warning("%s was deleted and created anew", tp.topic)
                self._react(partition, partition.on_topic_created_anew())
        finally:
            self._identifying.discard(tp)
        self._soon()

    # --- time ------------------------------------------------------------------------

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer_at <= when and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._pump()

    async def _tick(self) -> None:
        metadata_at = search_at = before = time.monotonic()
        searches = 0
        while True:
            await asyncio.sleep(tick_s := self._connections.tick_s)
            now = time.monotonic()
            if (lost_s := now - before - 2 * tick_s) > 0:
                postpone(self.accumulator, self._partitions.values(), lost_s, now)
            before = now
            self._expire(now)
            self._check_stalls(now)
            if now >= search_at:
                searches = searches + 1 if self._search() else 0
                search_at = now + _SEARCH_PAUSES.delay(searches)
            try:
                if self.accumulator.transaction is None and self.accumulator.paused is None:
                    await self.identities.renew_if_due(now)
            except errors.OncelogError as error:
                # Most likely another instance has taken over: to go on would be to fight it.
                self.fail(_fatal(error))
            if now - metadata_at > self.config.metadata_max_age_ms / 1000:
                metadata_at = now
                for topic in self.cluster.leaders.topics:
                    self._watch.mark_stale(topic)

    def _search(self) -> bool:
        """Look for missing leaders, since no batch may wait for them; False: none is missing."""
        topics, addresses = self.cluster.leaders.lacking()
        for topic in topics:
            self._watch.mark_stale(topic)
        for address in addresses:
            self._stream(address)
        return bool(topics or addresses)

    def _expire(self, now: float) -> None:
        if (why := self.identities.attempts.telling) is not None:
            for tp in self._identifying:
                text = f"no producer id yet: {why}"
                self._partitions[tp].obstacles.met(text, told=tells(why))
        for batch in self.accumulator.expire(now):
            partition = self._partition(batch.tp)
            self._react(partition, partition.expire_unsent(batch))
        for partition in list(self._busy.values()):
            self._react(partition, partition.expire(now))
        if self._busy or self.accumulator.waits:
            self._soon()

    def _check_stalls(self, now: float) -> None:
        stalled: dict[str, set[str]] = {}  # topic -> nodes that do not answer
        for tp, partition in list(self._busy.items()):
            oldest = partition.oldest_attempt()
            if oldest is None:
                continue
            stream = self._streams.get(self._sent_to.get(tp, ""))
            if now - oldest > self.config.request_timeout_ms / 1000 and stream is not None:
                stream.close("no answer within request_timeout_ms")
            elif now - oldest > _STALL_S:
                stalled.setdefault(tp.topic, set()).add(self._sent_to.get(tp, ""))
        self._stalls = {topic: self._stalls.get(topic, (0, now)) for topic in stalled}
        for topic, (asked, due) in self._stalls.items():
            if now >= due:
                self._stalls[topic] = (asked + 1, now + _STALL_PAUSES.delay(asked + 1))
                for address in stalled[topic]:
                    self.cluster.avoid(address)
                self._watch.mark_stale(topic)


def _fatal(error: errors.OncelogError) -> errors.ProducerFatalError:
    """Return the error that stops a producer without a producer id."""
    if isinstance(error, errors.ProducerFatalError):
        return error
    return errors.ProducerFatalError(f"no producer id: {error}")
