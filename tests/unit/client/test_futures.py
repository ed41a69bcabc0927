"""Futures without state of their own behave as `concurrent.futures.Future` does."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    Future,
    InvalidStateError,
    as_completed,
    wait,
)
from typing import Any

import pytest

from oncelog import errors
from oncelog._engine.net.threads import engine_threads
from oncelog._engine.produce.futures import BatchFuture, Delivery, RecordFuture
from oncelog.types import TopicPartition

TP = TopicPartition("t", 3)
LOCK = threading.RLock()


def delivery(count: int = 3) -> Delivery:
    one = Delivery(TP, LOCK)
    one.record_count = count
    for i in range(count):
        one.timestamps.add(i, 1_000_000 * i)
    one.producer_id, one.epoch, one.base_sequence = 7, 2, 100
    return one


def test_metadata_of_each_record():
    one = delivery()
    futures = [RecordFuture.of(one, i) for i in range(3)]
    assert not any(f.done() for f in futures)
    assert all(f.running() for f in futures)
    one.succeed(50, False)
    last = futures[2].result()
    assert last == ("t", 3, 52, 2000, 7, 2, 102, False)
    assert (last.offset, last.sequence, last.timestamp) == (52, 102, 2000)
    assert isinstance(futures[0], Future)
    assert futures[0].exception() is None


def test_given_sequences_and_a_lost_offset():
    one = delivery()
    one.sequences = [5, 9, 12]
    one.succeed(-1, True)
    metadata = RecordFuture.of(one, 1).result()
    assert (metadata.offset, metadata.sequence, metadata.duplicate) == (-1, 9, True)
    batch = BatchFuture.of(one, -1).result()
    assert (batch.base_offset, batch.base_sequence, batch.last_sequence) == (-1, 100, 12)


def test_without_a_producer_id_there_is_no_sequence():
    one = delivery()
    one.producer_id = 0
    one.succeed(5, False)
    assert RecordFuture.of(one, 1).result().sequence == -1
    assert BatchFuture.of(one, -1).result().last_sequence == -1


def test_waiting_and_timing_out():
    one = delivery()
    future = RecordFuture.of(one, 0)
    with pytest.raises(TimeoutError):
        future.result(0.01)
    thread = threading.Timer(0.05, one.succeed, (9, False))
    thread.start()
    assert future.result(10).offset == 9
    thread.join()


def test_wait_and_as_completed():
    early, late = delivery(), delivery()
    futures = [RecordFuture.of(early, 0), RecordFuture.of(late, 0), RecordFuture.of(late, 1)]
    early.succeed(0, False)
    done, rest = wait(futures, timeout=0.01, return_when=FIRST_COMPLETED)
    assert (done, rest) == ({futures[0]}, set(futures[1:]))
    thread = threading.Timer(0.05, late.succeed, (5, False))
    thread.start()
    completed: list[Any] = list(as_completed(futures, timeout=10))  # type: ignore[arg-type]
    assert {f.result().offset for f in completed} == {0, 5, 6}
    thread.join()
    assert wait(futures, timeout=1).done == set(futures)


def test_wait_for_the_first_exception():
    good, bad = delivery(), delivery()
    futures = [RecordFuture.of(good, 0), RecordFuture.of(bad, 0)]
    thread = threading.Timer(0.05, bad.fail, (errors.InvalidBatchError("no"),))
    thread.start()
    done, _ = wait(futures, timeout=10, return_when=FIRST_EXCEPTION)
    assert done == {futures[1]}
    thread.join()
    good.succeed(0, False)


def test_many_threads_waiting_for_overlapping_sets_do_not_deadlock():
    deliveries = [delivery() for _ in range(20)]
    futures = [RecordFuture.of(d, i) for d in deliveries for i in range(3)]
    found: list[int] = []

    def waiting(start: int) -> None:
        some = futures[start:] + futures[:start]
        found.append(len(wait(some, timeout=30).done))

    threads = [threading.Thread(target=waiting, args=(7 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for number, one in enumerate(deliveries):
        one.succeed(number, False)
    for thread in threads:
        thread.join(30)
    assert found == [60] * 8


def test_asyncio_can_await_them():
    one = delivery()

    async def main() -> int:
        future = asyncio.wrap_future(RecordFuture.of(one, 2))
        asyncio.get_running_loop().run_in_executor(None, one.succeed, 10, False)
        return (await asyncio.wait_for(future, 10)).offset

    assert asyncio.run(main()) == 12


def test_cancel_after_send_does_nothing():
    one = delivery()
    future = RecordFuture.of(one, 0)
    assert not future.cancel()
    assert not future.cancelled()
    one.succeed(1, False)
    assert future.result().offset == 1


def test_done_callbacks_before_and_after():
    one = delivery()
    future = RecordFuture.of(one, 0)
    seen: list[tuple[str, int]] = []

    def bad(_: object) -> None:
        raise ValueError("the next callback must still run")

    future.add_done_callback(bad)
    future.add_done_callback(lambda f: seen.append(("before", f.result().offset)))
    one.succeed(4, False)
    future.add_done_callback(lambda f: seen.append(("after", f.result().offset)))
    future.add_done_callback(bad)
    assert seen == [("before", 4), ("after", 4)]


def test_failures():
    one = delivery()
    future = RecordFuture.of(one, 1)
    error = errors.FencedError("gone", current_epoch=3)
    one.fail(error)
    with pytest.raises(errors.FencedError) as first:
        future.result()
    with pytest.raises(errors.FencedError) as second:
        future.result()
    assert len(second.traceback) == len(first.traceback), "no traceback that grows"
    assert "failed" in repr(future)


def test_what_nobody_looked_at_is_counted():
    one = delivery(5)
    one.callbacks = [(4, lambda metadata, error: None)]
    one.fail(errors.InvalidBatchError("no"))
    assert one.unhandled == 4, "a callback was told about one"
    RecordFuture.of(one, 0).exception()
    RecordFuture.of(one, 0).exception()
    assert one.unhandled == 3
    BatchFuture.of(one, -1).exception()
    assert one.unhandled == 0
    good = delivery()
    good.succeed(0, False)
    assert good.unhandled == 0


def test_callbacks_get_metadata_or_error():
    seen: list[tuple] = []
    one, two = delivery(), delivery()
    one.callbacks = [(2, lambda metadata, error: seen.append((metadata, error)))]
    error = errors.InvalidBatchError("no")
    two.callbacks = [
        (0, lambda metadata, error: 1 / 0),
        (1, lambda metadata, error: seen.append((metadata, error))),
    ]
    one.succeed(10, False)
    two.fail(error)
    (metadata, nothing), failed = seen
    assert (metadata.offset, nothing) == (12, None)
    assert failed == (None, error)


def test_only_the_producer_settles():
    future = RecordFuture.of(delivery(), 0)
    for call in (
        future.set_running_or_notify_cancel,
        lambda: future.set_result(1),
        lambda: future.set_exception(ValueError()),
    ):
        with pytest.raises(InvalidStateError):
            call()


def test_a_wait_that_would_wait_for_itself_is_refused():
    one = delivery()
    engine_threads.add(threading.get_ident())
    try:
        with pytest.raises(RuntimeError, match="wait for itself"):
            RecordFuture.of(one, 0).result()
        one.succeed(0, False)
        assert RecordFuture.of(one, 0).result().offset == 0
    finally:
        engine_threads.discard(threading.get_ident())
