"""Records wait here, per partition, until they form a batch that can be sent.

Place in the flow: `Producer.send` appends under the lock, on the user's thread; the
sender takes batches out on the engine's thread. Pure but for the lock: clock and wake-up
are passed in. A batch keeps growing after its linger time until the sender has room for
it, so slow acknowledgements make batches larger and not more.

Memory: `buffer_memory` counts payload bytes of everything that is not yet settled, in
flight included. A batch reserves room in steps, so the check costs nothing per record.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from oncelog._engine.futures import (
    BatchFuture,
    Delivery,
    OnDelivery,
    RecordFuture,
    refuse_on_engine_thread,
)
from oncelog.errors import (
    BatchTooLargeError,
    BufferFullError,
    ClientClosedError,
    InvalidRequestError,
    OncelogError,
)
from oncelog.types import Header, TopicPartition
from oncelog.wire.batch import BATCH_OVERHEAD, HEADER_OVERHEAD, RECORD_OVERHEAD

_FIRST_RESERVE = 4096


class OpenBatch:
    """Records of one partition that will be one batch. Columns, as the payload has them."""

    __slots__ = (
        "cap",
        "closed",
        "created",
        "delivery",
        "due",
        "expected_offset",
        "headers",
        "keys",
        "limit",
        "max_timestamp_us",
        "payload",
        "record_count",
        "reserved",
        "sequences",
        "size",
        "timestamps",
        "tp",
        "values",
    )

    def __init__(
        self, tp: TopicPartition, delivery: Delivery, created: float, reserved: int, cap: int
    ) -> None:
        self.tp = tp
        self.delivery = delivery
        self.created = created
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.timestamps: list[int] = []
        self.headers: list[Sequence[Header]] | None = None
        self.sequences: list[int] | None = None
        self.expected_offset = -1
        self.size = BATCH_OVERHEAD
        self.cap = cap  # never larger than this with more than one record
        self.reserved = reserved
        self.limit = min(reserved, cap)  # above it, ask again
        self.due = False
        self.closed = False
        # Set for a batch that came encoded.
        self.payload: bytes | None = None
        self.record_count = 0
        self.max_timestamp_us = 0

    def close(self) -> None:
        assert not self.closed, "a batch is closed once"
        self.closed = True
        if self.payload is None:
            self.record_count = len(self.values)
            self.max_timestamp_us = max(self.timestamps)
        self.delivery.count = self.record_count
        self.delivery.timestamps = self.timestamps
        self.delivery.sequences = self.sequences


class Accumulator:
    """All waiting records of a producer."""

    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        linger_s: float,
        max_block_s: float,
        delivery_timeout_s: float,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.linger_s = linger_s
        self.max_block_s = max_block_s
        self.delivery_timeout_s = delivery_timeout_s
        self.clock = clock
        self.wake = wake
        self.lock = threading.Lock()
        self._space = threading.Condition(self.lock)
        self._waiting = 0
        self._space_watchers: list[Callable[[], None]] = []
        self._settle_lock = threading.RLock()
        self.open: dict[TopicPartition, OpenBatch] = {}
        # Of the open batches, the one of each topic that keyless records go to.
        self.sticky: dict[str, OpenBatch] = {}
        self._closed: dict[TopicPartition, deque[OpenBatch]] = {}
        self._ready: dict[TopicPartition, None] = {}
        self._lingering: deque[OpenBatch] = deque()
        self._last_given: dict[TopicPartition, int] = {}
        self._auto: set[TopicPartition] = set()
        self._flushing = 0
        self.used = 0
        self.incomplete: set[Delivery] = set()
        self.failure: OncelogError | None = None
        self.stopped = False

    # --- the user's threads ----------------------------------------------------------

    def append(
        self,
        tp: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header],
        timestamp_us: int,
        sequence: int | None,
        expected_offset: int,
        on_delivery: OnDelivery | None,
        max_batch_bytes: int,
        sticky: bool,
    ) -> RecordFuture:
        """Add a record to its partition's open batch; blocks while the buffer is full."""
        size = RECORD_OVERHEAD + (len(value) if value else 0) + (len(key) if key else 0)
        for name, content in headers:
            size += HEADER_OVERHEAD + len(name.encode()) + (len(content) if content else 0)
        self.check_fits(size + BATCH_OVERHEAD, max_batch_bytes)
        with self.lock:
            alone = expected_offset >= 0
            cap = min(self.batch_size, max_batch_bytes)
            batch = self._numbered_room(tp, sequence, sequence, size, cap, alone)
            if sticky:
                self.sticky[tp.topic] = batch
            index = len(batch.values)
            if key is not None and batch.keys is None:
                batch.keys = [None] * index
            if batch.keys is not None:
                batch.keys.append(key)
            if headers and batch.headers is None:
                batch.headers = [()] * index
            if batch.headers is not None:
                batch.headers.append(headers)
            if sequence is not None:
                if batch.sequences is None:
                    batch.sequences = []
                batch.sequences.append(sequence)
            batch.values.append(value)
            batch.timestamps.append(timestamp_us)
            batch.size += size
            if on_delivery is not None:
                delivery = batch.delivery
                if delivery.callbacks is None:
                    delivery.callbacks = []
                delivery.callbacks.append((index, on_delivery))
            if alone:
                batch.expected_offset = expected_offset
                self._close(batch)
                self.wake()
            return RecordFuture(batch.delivery, index)

    def append_payload(
        self,
        tp: TopicPartition,
        payload: bytes,
        record_count: int,
        max_timestamp_us: int,
        sequences: list[int] | None,
        expected_offset: int,
        max_batch_bytes: int,
    ) -> BatchFuture:
        """Add a batch that is already encoded; it is sent as it is, after what waits now."""
        self.check_fits(len(payload), max_batch_bytes)
        with self.lock:
            first, last = (sequences[0], sequences[-1]) if sequences else (None, None)
            size = len(payload)
            batch = self._numbered_room(tp, first, last, size, size + BATCH_OVERHEAD, True)
            batch.payload = payload
            batch.size = size
            batch.record_count = record_count
            batch.timestamps = [max_timestamp_us]
            batch.max_timestamp_us = max_timestamp_us
            batch.sequences = sequences
            batch.expected_offset = expected_offset
            self._close(batch)
            self.wake()
            return BatchFuture(batch.delivery, -1)

    def check_fits(self, size: int, max_batch_bytes: int) -> None:
        if size > max_batch_bytes:
            raise BatchTooLargeError(
                f"{size} bytes with overhead, the topic's max_batch_bytes is {max_batch_bytes}"
            )
        if size > self.buffer_memory:
            raise BatchTooLargeError(
                f"{size} bytes do not fit into buffer_memory={self.buffer_memory}"
            )

    def _numbered_room(
        self,
        tp: TopicPartition,
        first: int | None,
        last: int | None,
        size: int,
        cap: int,
        alone: bool,
    ) -> OpenBatch:
        before = self._last_given.get(tp)
        self._check_sequences(tp, first, last)
        try:
            return self._room(tp, size, cap, alone)
        except OncelogError:
            # Nothing was queued: the sequence may be used again.
            if last is not None and self._last_given.get(tp) == last:
                del self._last_given[tp]
                if before is not None:
                    self._last_given[tp] = before
            raise

    def _check_sequences(self, tp: TopicPartition, first: int | None, last: int | None) -> None:
        if first is None or last is None:
            if tp in self._last_given:
                raise InvalidRequestError(
                    f"sequence is missing: {tp} has application-controlled sequences",
                    field="sequence",
                )
            self._auto.add(tp)
            return
        if tp in self._auto:
            raise InvalidRequestError(
                f"sequence={first}: {tp} already has sequences that the producer counts",
                field="sequence",
            )
        before = self._last_given.get(tp, -1)
        if first <= before:
            raise InvalidRequestError(
                f"sequence={first} is not above the last one of {tp}, {before}",
                field="sequence",
                limit=f"> {before}",
            )
        self._last_given[tp] = last

    def _room(self, tp: TopicPartition, size: int, cap: int, alone: bool) -> OpenBatch:
        """Return an open batch with room for `size` bytes. Called with the lock held."""
        deadline: float | None = None
        while True:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            if self.stopped:
                raise ClientClosedError("the producer is closed")
            batch = self.open.get(tp)
            if batch is not None:
                if not alone and batch.size + size <= batch.limit:
                    return batch
                if alone or batch.size + size > batch.cap:
                    self._close(batch)
                    self.wake()
                    continue
                more = max(batch.reserved, batch.size + size - batch.reserved)
                more = min(more, batch.cap - batch.reserved)
                if self.used + more <= self.buffer_memory:
                    self.used += more
                    batch.reserved += more
                    batch.limit = min(batch.reserved, batch.cap)
                    return batch
            else:
                need = BATCH_OVERHEAD + size
                reserve = need if alone else max(need, min(_FIRST_RESERVE, cap))
                if self.used + reserve <= self.buffer_memory:
                    return self._start(tp, reserve, max(cap, need))
                if need > self.buffer_memory:  # only by the overhead
                    raise BatchTooLargeError(
                        f"{need} bytes do not fit into buffer_memory={self.buffer_memory}"
                    )
            if deadline is None:
                refuse_on_engine_thread("send into a full buffer")
                deadline = self.clock() + self.max_block_s
            self._wait_for_space(deadline)

    def _start(self, tp: TopicPartition, reserve: int, cap: int) -> OpenBatch:
        self.used += reserve
        delivery = Delivery(tp, self._settle_lock)
        batch = OpenBatch(tp, delivery, self.clock(), reserve, cap)
        self.open[tp] = batch
        self.incomplete.add(delivery)
        if self.linger_s <= 0 or self._flushing:
            batch.due = True
            self._ready[tp] = None
        else:
            self._lingering.append(batch)
        self.wake()
        return batch

    def _wait_for_space(self, deadline: float) -> None:
        # What lingers holds the room that is waited for.
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
            self._space.wait(remaining)
        finally:
            self._waiting -= 1

    def watch_space(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called, once, when there may be room; on whatever thread."""
        with self.lock:
            self._space_watchers.append(watcher)

    def _tell_space(self) -> None:
        if self._waiting:
            self._space.notify_all()
        if self._space_watchers:
            watchers, self._space_watchers = self._space_watchers, []
            for watcher in watchers:
                watcher()

    def _close(self, batch: OpenBatch) -> None:
        batch.close()
        del self.open[batch.tp]
        if self.sticky.get(batch.tp.topic) is batch:
            del self.sticky[batch.tp.topic]
        self.used -= batch.reserved - batch.size
        batch.reserved = batch.size
        self._closed.setdefault(batch.tp, deque()).append(batch)
        self._ready[batch.tp] = None

    def _make_all_due(self) -> None:
        for batch in self.open.values():
            batch.due = True
            self._ready[batch.tp] = None
        self._lingering.clear()

    def begin_flush(self) -> list[Delivery]:
        """Make everything due at once; return what is not yet settled."""
        with self.lock:
            self._flushing += 1
            self._make_all_due()
            waiting = list(self.incomplete)
        self.wake()
        return waiting

    def end_flush(self) -> None:
        with self.lock:
            self._flushing -= 1

    # --- the engine's thread ---------------------------------------------------------

    def ready(self, now: float) -> tuple[list[TopicPartition], float | None]:
        """Return the partitions with something to send, and when the next linger ends."""
        with self.lock:
            lingering = self._lingering
            while lingering:
                batch = lingering[0]
                if batch.closed:
                    lingering.popleft()
                elif batch.created + self.linger_s <= now:
                    lingering.popleft()
                    batch.due = True
                    self._ready[batch.tp] = None
                else:
                    return list(self._ready), batch.created + self.linger_s
            return list(self._ready), None

    def take(self, tp: TopicPartition) -> OpenBatch | None:
        """Return the partition's oldest batch that is due, closed."""
        with self.lock:
            closed = self._closed.get(tp)
            if not closed:
                batch = self.open.get(tp)
                if batch is None or not batch.due:
                    self._ready.pop(tp, None)
                    return None
                self._close(batch)
                closed = self._closed[tp]
            batch = closed.popleft()
            if not closed and not (tp in self.open and self.open[tp].due):
                self._ready.pop(tp, None)
            return batch

    def expire(self, now: float) -> list[OpenBatch]:
        """Take out the batches whose delivery timeout is over; none has been sent."""
        limit = now - self.delivery_timeout_s
        expired: list[OpenBatch] = []
        with self.lock:
            for closed in self._closed.values():
                while closed and closed[0].created <= limit:
                    expired.append(closed.popleft())
            for batch in [b for b in self.open.values() if b.created <= limit]:
                self._close(batch)
                expired.append(self._closed[batch.tp].pop())
        return expired

    def stop(self, failure: OncelogError | None) -> list[OpenBatch]:
        """Refuse further records; return all waiting batches."""
        with self.lock:
            self.stopped = True
            if self.failure is None:
                self.failure = failure
            for batch in list(self.open.values()):
                self._close(batch)
            left = [batch for closed in self._closed.values() for batch in closed]
            self._closed.clear()
            self._ready.clear()
            self._tell_space()
        return left

    def settled(self, batch: OpenBatch) -> None:
        """The batch's delivery is settled: its room is free."""
        batch.values = []
        batch.keys = batch.headers = batch.payload = None
        with self.lock:
            self.used -= batch.reserved
            batch.reserved = 0
            self.incomplete.discard(batch.delivery)
            self._tell_space()


__all__ = ["Accumulator", "OpenBatch"]
