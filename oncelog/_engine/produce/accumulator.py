"""Accumulator of records, per partition, until they form a batch that can be sent.

Place in the flow: `Producer.send` appends under the lock, on the user's thread; the sender takes
batches out on the engine's thread. Pure but for the lock: clock and wake-up are passed in. A batch
keeps growing after its linger time until the sender has room for it, so slow acknowledgements make
batches larger and not more.

Memory: `buffer_memory` counts payload bytes of all unsettled batches, in flight included. A batch
reserves room in steps, so the check costs nothing per record.

The lock: a thread that holds it may lose the interpreter, and the other thread then waits for both.
So no code under it calls out, the engine is woken after it is released, and the engine takes closed
batches without it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from oncelog._engine.net import threads
from oncelog._engine.produce.batches import (
    SHUT,
    OpenBatch,
    PartitionQueue,
    check_condition,
    check_fits,
)
from oncelog._engine.produce.futures import BatchFuture, Delivery, OnDelivery, RecordFuture
from oncelog._engine.produce.interruption import take_back_in
from oncelog._engine.produce.stickiness import Stickiness
from oncelog._engine.produce.transaction import ProducerTransaction
from oncelog.errors import (
    BatchTooLargeError,
    BufferFullError,
    ClientClosedError,
    OncelogError,
)
from oncelog.types import Header, TopicPartition
from oncelog.wire.batch import BATCH_OVERHEAD, HEADER_OVERHEAD, RECORD_OVERHEAD

_FIRST_RESERVE = 4096
_NEVER = float("inf")


class Accumulator:
    """Waiting records of a producer."""

    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        linger_s: float,
        max_block_s: float,
        delivery_timeout_s: float,
        clock: Callable[[], float],
        is_available: Callable[[TopicPartition], bool],
    ) -> None:
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.linger_s = linger_s
        self.max_block_s = max_block_s
        self.delivery_timeout_s = delivery_timeout_s
        self.clock = clock
        self.wake: Callable[[], None] = lambda: None  # until there is a sender
        self.lock = threads.shared_lock()
        # A record is being added under the lock: a signal handler must not add another.
        self.busy = False
        self._space = threads.SharedCondition(self.lock)
        self._waiting = 0
        self._space_watchers: list[Callable[[], None]] = []
        self._delivery_lock = threads.shared_lock()
        self._lanes: dict[TopicPartition, PartitionQueue] = {}
        self.stickiness = Stickiness(is_available)
        self._ready: dict[TopicPartition, None] = {}
        self._lingering: deque[OpenBatch] = deque()
        self._linger_ends = _NEVER  # at or before the first lingering batch's end
        self._flushing = 0
        self._wake_wanted = False
        self.used = 0
        self.incomplete: set[Delivery] = set()
        self.failure: OncelogError | None = None
        # Reason why no batch may begin now: a transaction begins or ends.
        self.paused: OncelogError | None = None
        self.transaction: ProducerTransaction | None = None
        # Numbering of each lane before the transaction: by the producer or the application.
        self._numbered_before: dict[PartitionQueue, tuple[bool, int | None]] = {}
        self.stopped = False

    def lane(self, tp: TopicPartition) -> PartitionQueue:
        lane = self._lanes.get(tp)
        return lane if lane is not None else self._lanes.setdefault(tp, PartitionQueue(tp))

    # --- the user's threads ----------------------------------------------------------

    def append(
        self,
        lane: PartitionQueue,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header],
        timestamp_us: int | None,
        sequence: int | None,
        expected_offset: int,
        on_delivery: OnDelivery | None,
        max_batch_bytes: int,
        others: Sequence[PartitionQueue],
    ) -> RecordFuture:
        """Add a record to its partition's open batch; blocks while the buffer is full.

        `timestamp_us` None: now. `expected_offset` -1: none. `others`: further lanes it may go to.
        """
        size = RECORD_OVERHEAD + (len(value) if value else 0) + (len(key) if key else 0)
        for name, content in headers:
            size += HEADER_OVERHEAD + len(name.encode()) + (len(content) if content else 0)
        if alone := expected_offset >= 0:
            check_condition(expected_offset, self.transaction)
        now = time.time()
        future = RecordFuture()
        if self.busy and self.lock._is_owned():
            threads.refuse_to_wait("send")
        keyed = key is not None and sequence is None and timestamp_us is None
        keyed = keyed and not headers and on_delivery is None
        batch, before = None, None
        try:
            self.lock.acquire()
            before = lane.last_given
            self.busy = True
            batch = lane.open
            given = sequence is not None or before is not None
            if batch is None or alone or given or batch.size + size > batch.limit:
                lane = self._lane_with_room(lane, size, max_batch_bytes, others)
                self._number(lane, sequence, sequence)
                batch = self._room(lane, size, min(self.batch_size, max_batch_bytes), alone)
            if others and self.stickiness.batches.get(lane.tp.topic) is not batch:
                self.stickiness.opened(batch)
            if keyed and batch.keys is not None and not batch.headers and now < batch.tick_at:
                # Inlined `add`, without a call.
                future._delivery = batch.delivery
                future._index = len(batch.values)
                batch.size += size
                batch.keys.append(key)
                batch.values.append(value)
            else:
                batch.add(future, value, key, headers, timestamp_us, now, sequence, size)
                if on_delivery is not None:
                    batch.delivery.call_for(future._index, on_delivery)
                batch.limit = batch.room
            if alone:
                batch.expected_offset = expected_offset
                self._close(batch)
                self._wake_wanted = True
        except BaseException:
            take_back_in(self, lane, batch, future, before, sequence)
            raise
        self.busy = False
        self.lock.release()
        if self._wake_wanted:
            self._wake_wanted = False
            self.wake()
        return future

    def _lane_with_room(
        self,
        lane: PartitionQueue,
        size: int,
        max_batch_bytes: int,
        others: Sequence[PartitionQueue],
    ) -> PartitionQueue:
        check_fits(size + BATCH_OVERHEAD, max_batch_bytes, self.buffer_memory)
        batch = lane.open
        if others and batch is not None and batch.size + size > batch.cap:
            self._close(batch)
            self._wake_wanted = True
            return self.stickiness.any_lane(others)
        return lane

    def append_payload(
        self,
        lane: PartitionQueue,
        payload: bytes | memoryview,
        record_count: int,
        max_timestamp_us: int,
        sequences: list[int] | None,
        expected_offset: int,
        max_batch_bytes: int,
        stored_as: tuple[int, int] | None = None,
    ) -> BatchFuture:
        """Add an encoded batch; it is sent as one, after the records that wait now.

        `stored_as`: codec and checksum of a payload that is already compressed.
        """
        size = len(payload)
        check_fits(size, max_batch_bytes, self.buffer_memory)
        if expected_offset >= 0:
            check_condition(expected_offset, self.transaction)
        if self.busy and self.lock._is_owned():
            threads.refuse_to_wait("send")
        base_sequence, last_sequence = None, None
        if sequences:
            base_sequence, last_sequence = sequences[0], sequences[-1]
        cap = size + BATCH_OVERHEAD
        before = None
        try:
            self.lock.acquire()
            before = lane.last_given
            self.busy = True
            self._number(lane, base_sequence, last_sequence)
            batch = self._room(lane, size, cap, True)
            batch.fill(payload, record_count, max_timestamp_us, sequences, stored_as)
            batch.expected_offset = expected_offset
            self._close(batch)
        except BaseException:
            take_back_in(self, lane, lane.open, None, before, last_sequence)
            raise
        self.busy = False
        self.lock.release()
        self._wake_wanted = False
        self.wake()
        return BatchFuture.of(batch.delivery, -1)

    def _number(self, lane: PartitionQueue, first: int | None, last: int | None) -> None:
        if self.transaction is not None:
            self._numbered_before.setdefault(lane, (lane.counted, lane.last_given))
        lane.check_sequences(first, last)

    def _room(self, lane: PartitionQueue, size: int, cap: int, alone: bool) -> OpenBatch:
        """Return an open batch with room for `size` bytes. Called with the lock held."""
        deadline: float | None = None
        while True:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            if self.stopped:
                raise ClientClosedError("the producer is closed")
            if self.transaction is not None and self.transaction.failure is not None:
                raise self.transaction.refusal()
            batch = lane.open
            if batch is not None:
                if not alone and batch.size + size <= batch.limit:
                    return batch
                if alone or batch.size + size > batch.cap:
                    self._close(batch)
                    self._wake_wanted = True
                    continue
                more = max(batch.reserved, batch.size + size - batch.reserved)
                more = min(more, batch.cap - batch.reserved)
                if self.used + more <= self.buffer_memory:
                    self.used += more
                    batch.reserved += more
                    batch.limit = batch.room
                    return batch
            elif self.paused is not None:
                raise self.paused.with_traceback(None)
            else:
                need = BATCH_OVERHEAD + size
                reserve = need if alone else max(need, min(_FIRST_RESERVE, cap))
                if self.used + reserve <= self.buffer_memory:
                    return self._start(lane, reserve, max(cap, need))
                if need > self.buffer_memory:  # only by the overhead
                    raise BatchTooLargeError(
                        f"{need} bytes do not fit into buffer_memory={self.buffer_memory}"
                    )
            if deadline is None:
                threads.refuse_on_engine_thread("send into a full buffer")
                deadline = self.clock() + self.max_block_s
            self._wait_for_space(deadline)

    def _start(self, lane: PartitionQueue, reserve: int, cap: int) -> OpenBatch:
        delivery = Delivery(lane.tp, self._delivery_lock)
        batch = OpenBatch(lane, delivery, self.clock(), reserve, cap, self.transaction)
        if self.linger_s <= 0 or self._flushing:
            batch.due = True
            self._ready[lane.tp] = None
            self._wake_wanted = True
        else:
            if not self._lingering:
                self._linger_ends = batch.created + self.linger_s
                self._wake_wanted = True
            self._lingering.append(batch)
        # Signals are handled after a call: these three lines are one step.
        self.used += reserve
        lane.open = batch
        self.incomplete.add(delivery)
        return batch

    def _wait_for_space(self, deadline: float) -> None:
        # Lingering batches hold the room that is waited for.
        self._make_all_due()
        self.wake()
        remaining = deadline - self.clock()
        if remaining <= 0:
            raise BufferFullError(
                f"buffer_memory={self.buffer_memory} stayed full for "
                f"max_block_ms={int(self.max_block_s * 1000)}"
            )
        self._waiting += 1
        try:
            self._space.wait(min(remaining, threads.SLICE_S))
        finally:
            self._waiting -= 1
            self.busy = True  # others were added in the meantime
        threads.check()

    def watch_space(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called once when there may be room; on any thread."""
        with self.lock:
            self._space_watchers.append(watcher)

    def _notify_space(self) -> None:
        if self._waiting:
            self._space.notify_all()
        if self._space_watchers:
            watchers, self._space_watchers = self._space_watchers, []
            for watcher in watchers:
                watcher()

    def _close(self, batch: OpenBatch) -> None:
        lane, tp, closed = batch.lane, batch.tp, batch.lane.closed
        batch.limit = SHUT
        self.stickiness.closed(batch)
        batch.close()
        # Signals are handled after a call: from here to the last line, all is one step.
        self.used -= batch.reserved - batch.size
        batch.reserved = batch.size
        self._ready[tp] = None
        lane.open = None
        closed.append(batch)

    def drop_empty(self) -> None:
        """Drop batches begun for a record that did not come."""
        for lane in self._lanes.values():
            batch = lane.open
            if batch is not None and not batch.values:
                lane.open = None
                self.used -= batch.reserved
                self.incomplete.discard(batch.delivery)
                self.stickiness.closed(batch)

    def _make_all_due(self) -> None:
        for lane in self._lanes.values():
            if lane.open is not None:
                lane.open.due = True
                self._ready[lane.tp] = None
        self._lingering.clear()
        self._linger_ends = _NEVER

    def begin_flush(self) -> list[Delivery]:
        """Make everything due at once; return the unsettled deliveries."""
        with self.lock:
            self._flushing += 1
            self._make_all_due()
            waiting = list(self.incomplete)
        self.wake()
        return waiting

    def end_flush(self) -> None:
        with self.lock:
            self._flushing -= 1

    def abandon(self, failure: OncelogError) -> None:
        """Drop records in a forked child: the parent sends them, and may hold the lock."""
        self.lock = threads.shared_lock()
        self.busy = False
        self._space = threads.SharedCondition(self.lock)
        self.failure = failure
        self.stickiness.clear()
        for lane in self._lanes.values():
            lane.open = None
            lane.closed.clear()

    # --- transactions, on the engine's thread ----------------------------------------

    def pause(self, why: OncelogError) -> None:
        """Begin no further batch until `resume`; open batches still fill."""
        with self.lock:
            self.paused = why

    def resume(self, transaction: ProducerTransaction | None) -> None:
        """Go on; later records belong to this transaction, or to none."""
        with self.lock:
            unchanged = transaction is self.transaction
            assert unchanged or not self.incomplete, "a transaction begins and ends without batches"
            self.transaction = transaction
            self._numbered_before.clear()
            self.paused = None

    def fail_transaction(self, transaction: ProducerTransaction, error: OncelogError) -> None:
        """Accept no further records for a transaction that cannot be committed any more."""
        with self.lock:
            transaction.fail(error)
            self._space.notify_all()

    @property
    def failed_transaction(self) -> ProducerTransaction | None:
        failed = self.transaction is not None and self.transaction.failure is not None
        return self.transaction if failed else None

    def drop_transaction(self) -> list[OpenBatch]:
        """Take out the waiting batches; their sequences may be given again."""
        left: list[OpenBatch] = []
        with self.lock:
            for lane in self._lanes.values():
                if lane.open is not None:
                    self._close(lane.open)
                left += lane.closed
                lane.closed.clear()
            for lane, (counted, last_given) in self._numbered_before.items():
                lane.counted, lane.last_given = counted, last_given
            self._ready.clear()
        return left

    # --- the engine's thread ---------------------------------------------------------

    @property
    def waits(self) -> bool:
        """True if there is or will be something to send: a signal may have ended the wake-up."""
        return bool(self._ready) or self._linger_ends != _NEVER

    def ready(self, now: float) -> tuple[list[TopicPartition], float | None]:
        """Return the partitions that may have something to send, and the time to look again."""
        if now >= self._linger_ends:
            with self.lock:
                self._end_lingering(now)
        ends = self._linger_ends
        return list(self._ready), None if ends == _NEVER else ends

    def _end_lingering(self, now: float) -> None:
        lingering = self._lingering
        while lingering:
            batch = lingering[0]
            if not batch.closed:
                if batch.created + self.linger_s > now:
                    self._linger_ends = batch.created + self.linger_s
                    return
                batch.due = True
                self._ready[batch.lane.tp] = None
            lingering.popleft()
        self._linger_ends = _NEVER

    def take(self, tp: TopicPartition) -> OpenBatch | None:
        """Return the partition's oldest batch that is due, closed."""
        lane = self.lane(tp)
        try:
            return lane.closed.popleft()
        except IndexError:
            pass
        with self.lock:
            if not lane.closed:
                self._ready.pop(tp, None)
                if lane.open is None or not lane.open.due:
                    return None
                self._close(lane.open)
                del self._ready[tp]
            return lane.closed.popleft()

    def expire(self, now: float) -> list[OpenBatch]:
        """Take out the batches with an expired delivery timeout; none has been sent."""
        limit = now - self.delivery_timeout_s
        # A record has its batch's time: an old batch accepts no more records (ADR 89).
        old = now - self.delivery_timeout_s / 4
        expired: list[OpenBatch] = []
        with self.lock:
            for lane in self._lanes.values():
                batch = lane.open
                if batch is not None and batch.created <= (old if batch.due else limit):
                    self._close(batch)
                while lane.closed and lane.closed[0].created <= limit:
                    expired.append(lane.closed.popleft())
        return expired

    def refuse(self, failure: OncelogError) -> None:
        """Reject further records for this reason."""
        with self.lock:
            if self.failure is None:
                self.failure = failure

    def stop(self, failure: OncelogError | None) -> list[OpenBatch]:
        """Reject further records; return all waiting batches."""
        left: list[OpenBatch] = []
        with self.lock:
            self.stopped = True
            if self.failure is None:
                self.failure = failure
            for lane in self._lanes.values():
                if lane.open is not None:
                    self._close(lane.open)
                left += lane.closed
                lane.closed.clear()
            self._ready.clear()
            self._notify_space()
        return left

    def free(self, batch: OpenBatch) -> None:
        """Free the room of a settled batch."""
        batch.values = []
        batch.keys = batch.headers = batch.payload = None
        with self.lock:
            self.used -= batch.reserved
            batch.reserved = 0
            self.incomplete.discard(batch.delivery)
            self._notify_space()
