"""Outcome of a batch, and the futures of its records.

Place in the flow: `accumulator` makes one `Delivery` for each batch, `send()` returns a
`RecordFuture` that points to it, `partition` settles it. A million `Future` objects, each with a
lock of its own, would cost more than the rest of a send. So the state is kept once per batch, and a
future is a pair (delivery, index) until a caller waits for it. Metadata is made on demand.

All deliveries of a producer share one lock (their conditions are built on it), so
`concurrent.futures.wait`, which takes the locks of many futures at once, cannot deadlock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

from oncelog._engine.net import threads
from oncelog._engine.produce.timestamps import Timestamps
from oncelog._engine.produce.transaction import StagedRun
from oncelog.errors import OncelogError
from oncelog.types import BatchMetadata, RecordMetadata, TopicPartition

T = TypeVar("T")

log = logging.getLogger("oncelog.producer")

# Called with (metadata, None) or (None, error), on the engine's thread.
OnDelivery = Callable[[RecordMetadata | None, OncelogError | None], object]


def report_callback(what: str, error: BaseException) -> None:
    """Log an error of a user's callback: the first of its kind in full."""
    kind = (what, type(error))
    times = _reported[kind] = _reported.get(kind, 0) + 1
    if times == 1:
        log.error("%s raised", what, exc_info=error)
    elif times in (10, 100, 1000) or times % 10_000 == 0:
        log.error("%s raised %d times: %r", what, times, error)


_reported: dict[tuple[str, type[BaseException]], int] = {}


class Watcher(Protocol):
    """Waits for a delivery to be settled."""

    def release(self) -> None:
        """Called with the lock held."""

    def call_back(self) -> None:
        """Called after `release`, without the lock."""


class Delivery:
    """Shared outcome of all records of one batch. Settled exactly once."""

    __slots__ = (
        "base_offset",
        "base_sequence",
        "callbacks",
        "condition",
        "done",
        "duplicate",
        "epoch",
        "error",
        "handled",
        "lock",
        "producer_id",
        "record_count",
        "run",
        "sequences",
        "timestamps",
        "tp",
        "watched",
    )

    def __init__(self, tp: TopicPartition, lock: threading.RLock) -> None:
        self.tp = tp
        # Taken itself, not by the condition: a signal between two lines of Python code would leave
        # it taken.
        self.lock = lock
        self.condition = threads.SharedCondition(lock)
        self.done = False
        self.error: OncelogError | None = None
        self.record_count = 0
        self.base_offset = -1  # in a transaction, within its records in the partition
        self.run: StagedRun | None = None
        self.base_sequence = -1
        self.producer_id = 0
        self.epoch = 0
        self.duplicate = False
        self.timestamps = Timestamps()
        self.sequences: Sequence[int] | None = None
        self.callbacks: list[tuple[int, OnDelivery]] | None = None
        self.watched: list[Watcher] | None = None
        # Indexes of records with a failure that the application has seen; -1: the whole batch.
        self.handled: set[int] = set()

    def succeed(self, base_offset: int, duplicate: bool) -> None:
        with self.lock:
            assert not self.done, "a delivery is settled once"
            self.base_offset = base_offset
            self.duplicate = duplicate
            self._finish()
        self._call_back()

    def fail(self, error: OncelogError) -> None:
        with self.lock:
            assert not self.done, "a delivery is settled once"
            self.error = error
            self._finish()
        self._call_back()

    def _finish(self) -> None:
        self.done = True
        self.condition.notify_all()
        for future in self.watched or ():
            future.release()

    def _call_back(self) -> None:
        """Call back outside the lock: a callback may send."""
        for index, callback in self.callbacks or ():
            try:
                if self.error is not None:
                    self.handled.add(index)
                    callback(None, self.error)
                else:
                    callback(self.record(index), None)
            except BaseException as error:  # noqa: BLE001  # a user's callback must not stop the engine
                report_callback("on_delivery", error)
        if self.callbacks is not None:
            with self.lock:
                self.callbacks = None
                self.condition.notify_all()
        watched, self.watched = self.watched, None
        for future in watched or ():
            future.call_back()

    def call_for(self, index: int, callback: OnDelivery) -> None:
        """Call this for a record, once it is settled."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, callback))

    def watch(self, watcher: Watcher, *, told: bool = False) -> bool:
        """Have `watcher` called when it is settled; False if it is already.

        It is called after the callbacks. told: False only if they have returned already.
        """
        with self.lock:
            if self.told if told else self.done:
                return False
            if self.watched is None:
                self.watched = []
            self.watched.append(watcher)
            return True

    def wait(self, timeout: float | None) -> bool:
        return self.done or threads.wait(self._wait, timeout, "wait for a record")

    def _wait(self, seconds: float) -> bool:
        with self.lock:
            return self.condition.wait_for(lambda: self.done, seconds)

    def wait_told(self, timeout: float | None) -> bool:
        """Wait until it is settled and its callbacks have been called."""
        return self.told or threads.wait(self._wait_told, timeout, "wait for records")

    @property
    def told(self) -> bool:
        """Whether it is settled and its callbacks have returned."""
        return self.done and self.callbacks is None

    def _wait_told(self, seconds: float) -> bool:
        with self.lock:
            return self.condition.wait_for(lambda: self.told, seconds)

    @property
    def unhandled(self) -> int:
        """Number of failed records that the application has not seen."""
        if self.error is None or -1 in self.handled:
            return 0
        return self.record_count - len(self.handled)

    @property
    def first_offset(self) -> int:
        """First offset; -1 if it is not known: in a transaction, until that is committed."""
        if self.run is None or self.base_offset < 0:
            return self.base_offset
        return self.run.base_offset + self.base_offset if self.run.base_offset >= 0 else -1

    def record(self, index: int) -> RecordMetadata:
        sequence = self.base_sequence + index if self.producer_id else -1
        if self.sequences is not None:
            sequence = self.sequences[index]
        topic, partition = self.tp
        base_offset = self.first_offset
        offset = base_offset + index if base_offset >= 0 else -1
        timestamp = self.timestamps[index] // 1000
        # tuple.__new__: no Python frame for each record.
        return tuple.__new__(
            RecordMetadata,
            (
                topic, partition, offset, timestamp,
                self.producer_id, self.epoch, sequence, self.duplicate,
            ),
        )  # fmt: skip

    def batch(self) -> BatchMetadata:
        last_sequence = self.base_sequence + self.record_count - 1 if self.producer_id else -1
        return BatchMetadata(
            self.tp.topic,
            self.tp.partition,
            self.first_offset,
            self.record_count,
            self.timestamps.highest // 1000,
            self.producer_id,
            self.epoch,
            self.base_sequence if self.producer_id else -1,
            self.sequences[-1] if self.sequences else last_sequence,
            self.duplicate,
        )


class _Watched:
    """State that `concurrent.futures` needs of a future, made on demand."""

    __slots__ = ("callbacks", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Any] = []
        self.callbacks: list[Callable[[Any], object]] = []


class DeliveryFuture(Future[T]):
    """A `concurrent.futures.Future` without state of its own.

    `cancel()` returns False: a record that was accepted for sending cannot be recalled.
    """

    __slots__ = ("_delivery", "_index", "_watch")
    _delivery: Delivery
    _index: int
    _watch: _Watched

    if not TYPE_CHECKING:
        # Not Future's, which would make the lock that this class avoids. And none of its own:
        # calling one would be a tenth of the cost of a send.
        __init__ = object.__init__

    @classmethod
    def of(cls, delivery: Delivery, index: int) -> Self:
        future = cls()
        future._delivery = delivery
        future._index = index
        return future

    @property
    def delivery(self) -> Delivery:
        return self._delivery

    def _value(self) -> T:
        raise NotImplementedError

    def metadata(self) -> T:
        """Return the metadata known now, its identity at least, after any outcome."""
        return self._value()

    def _watched(self) -> _Watched:
        """Return the state for `concurrent.futures`. Called with the lock held."""
        try:
            watch = self._watch
        except AttributeError:
            watch = self._watch = _Watched()
            self._delivery.watch(self)
        return watch

    def release(self) -> None:
        """Note that the delivery is settled; called with the lock held."""
        for waiter in self._watched().waiters:
            if self._delivery.error is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)

    def call_back(self) -> None:
        watch = self._watched()
        callbacks, watch.callbacks = watch.callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except BaseException as error:  # noqa: BLE001  # a user's callback must not stop the engine
                report_callback("a done callback", error)

    # Attributes that concurrent.futures.wait and as_completed read.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._delivery.condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self._delivery.done else "PENDING"

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._watched().waiters

    # Public interface of Future.

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self._delivery.done

    def done(self) -> bool:
        return self._delivery.done

    def result(self, timeout: float | None = None) -> T:
        error = self.exception(timeout)
        if error is not None:
            # One error object serves all records of a batch: no growing traceback.
            raise error.with_traceback(None)
        return self._value()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        delivery = self._delivery
        if not delivery.done:
            threads.refuse_on_engine_thread("wait for a record")
            if not delivery.wait(timeout):
                raise TimeoutError
        if delivery.error is not None:
            delivery.handled.add(self._index)
        return delivery.error

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        delivery = self._delivery
        with delivery.lock:
            if not delivery.done:
                self._watched().callbacks.append(fn)
                return
        try:
            fn(self)
        except Exception as error:  # noqa: BLE001  # as Future does
            report_callback("a done callback", error)

    def set_running_or_notify_cancel(self) -> NoReturn:
        raise InvalidStateError("the producer settles this future")

    def set_result(self, result: Any) -> NoReturn:
        raise InvalidStateError("the producer settles this future")

    def set_exception(self, exception: BaseException | None) -> NoReturn:
        raise InvalidStateError("the producer settles this future")

    def __repr__(self) -> str:
        state = "pending" if not self._delivery.done else "stored"
        if self._delivery.error is not None:
            state = f"failed: {self._delivery.error!r}"
        return f"<{type(self).__name__} {self._delivery.tp} {state}>"


class RecordFuture(DeliveryFuture[RecordMetadata]):
    """The future of one record: a pair (delivery, index)."""

    __slots__ = ()

    def _value(self) -> RecordMetadata:
        return self._delivery.record(self._index)


class BatchFuture(DeliveryFuture[BatchMetadata]):
    """The future of a batch that was sent as one."""

    __slots__ = ()

    def _value(self) -> BatchMetadata:
        return self._delivery.batch()
