"""Records before they are sent: batches, lingering, and a full buffer."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from oncelog import errors
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.batches import OpenBatch
from oncelog._engine.produce.futures import RecordFuture
from oncelog.types import TopicPartition
from oncelog.wire.batch import BATCH_OVERHEAD, RECORD_OVERHEAD

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT = 20.0
ROOM = BATCH_OVERHEAD + RECORD_OVERHEAD  # of a batch with one empty record


class Rig:
    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        self.wakes = 0
        self.unavailable: set[TopicPartition] = set()
        given: dict[str, Any] = {
            "batch_size": 1000,
            "buffer_memory": 10_000,
            "linger_s": 1.0,
            "max_block_s": WAIT,
            "delivery_timeout_s": 50.0,
            "clock": lambda: self.now,
            "is_available": lambda tp: tp not in self.unavailable,
        }
        self.accumulator = Accumulator(**{**given, **settings})
        self.accumulator.wake = self.wake

    def wake(self) -> None:
        self.wakes += 1

    def append(self, size: int = 0, tp: TopicPartition = A, **more: Any) -> RecordFuture:
        return self.accumulator.append(
            self.accumulator.lane(tp), bytes(size), more.get("key"), more.get("headers", ()),
            more.get("timestamp_us", 7), more.get("sequence"), more.get("expected", -1), None,
            100_000, more.get("others", ()),
        )  # fmt: skip

    def ready(self) -> list[TopicPartition]:
        return self.accumulator.ready(self.now)[0]

    def take(self, tp: TopicPartition = A) -> OpenBatch:
        batch = self.accumulator.take(tp)
        assert batch is not None
        return batch

    def settle(self, batch: OpenBatch) -> None:
        batch.delivery.succeed(0, False)
        self.accumulator.free(batch)


class Blocked:
    """A call on a thread of its own that is expected to wait."""

    def __init__(self, rig: Rig, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        accumulator = rig.accumulator
        while True:  # it holds the lock until it waits
            with accumulator.lock:
                if accumulator._waiting:
                    return
            assert self.thread.is_alive(), self.error

    def _run(self) -> None:
        try:
            self.result = self._call()
        except errors.OncelogError as error:
            self.error = error

    def join(self) -> None:
        self.thread.join(WAIT)
        assert not self.thread.is_alive()


# --- forming batches -------------------------------------------------------------------------


def test_a_batch_lingers_and_grows_until_it_is_taken() -> None:
    rig = Rig()
    rig.append(10)
    assert rig.accumulator.ready(0.5) == ([], 1.0)
    rig.now = 1.0
    assert rig.ready() == [A]
    rig.append(20)  # there was no room to send the batch: it still grows
    batch = rig.take()
    assert [len(v or b"") for v in batch.values] == [10, 20]
    assert (batch.closed, batch.record_count, rig.ready()) == (True, 2, [])
    assert rig.accumulator.take(A) is None


def test_a_full_batch_is_closed_and_the_next_one_lingers() -> None:
    rig = Rig(batch_size=ROOM + 100)
    rig.append(90)
    rig.append(50)
    assert rig.ready() == [A]
    assert len(rig.take().values) == 1
    assert rig.accumulator.take(A) is None, "the second one lingers"
    rig.now = 1.0
    assert rig.ready() == [A]
    assert len(rig.take().values) == 1


def test_keys_and_headers_appear_in_the_middle_of_a_batch() -> None:
    rig = Rig(linger_s=0)
    rig.append()
    rig.append(key=b"k")
    rig.append(headers=(("h", None),))
    batch = rig.take()
    assert batch.keys == [None, b"k", None]
    assert batch.headers == [(), (), (("h", None),)]


def test_a_conditional_record_is_a_batch_of_its_own() -> None:
    rig = Rig()
    rig.append(1)
    rig.append(2, expected=9)
    rig.append(3)
    first, second = rig.take(), rig.take()
    assert [len(first.values), len(second.values)] == [1, 1]
    assert (first.expected_offset, second.expected_offset) == (-1, 9)
    assert rig.accumulator.take(A) is None, "the third lingers"


def test_a_flush_makes_everything_due_until_it_ends() -> None:
    rig = Rig()
    rig.append(1)
    assert [d.tp for d in rig.accumulator.begin_flush()] == [A]
    rig.append(1, B)
    assert rig.ready() == [A, B]
    rig.take(A)
    rig.take(B)
    rig.accumulator.end_flush()
    rig.append(1)
    assert rig.ready() == []


def test_the_sticky_batch_is_forgotten_when_it_is_closed() -> None:
    rig = Rig(linger_s=0)
    rig.append(1, others=[rig.accumulator.lane(A)])
    assert rig.accumulator.stickiness.batches["t"].tp == A
    rig.take()
    assert rig.accumulator.stickiness.batches == {}


def test_keyless_records_go_to_another_partition_when_a_batch_is_full() -> None:
    """Also while the sender takes nothing: waiting records must not pile up in one partition."""
    rig = Rig(batch_size=ROOM + 10)
    elsewhere = [rig.accumulator.lane(B)]
    rig.append(10, others=elsewhere)
    assert rig.accumulator.stickiness.batches["t"].tp == A
    rig.append(10, others=elsewhere)
    assert rig.accumulator.stickiness.batches["t"].tp == B
    assert rig.ready() == [A]
    assert len(rig.take(A).values) == 1


def test_expired_batches_leave_whether_closed_or_open() -> None:
    rig = Rig(batch_size=ROOM + 10)
    rig.append(10)
    rig.append(10)  # closes the first
    rig.append(10, B)
    assert rig.accumulator.expire(49.9) == []
    expired = rig.accumulator.expire(50.0)
    assert [batch.tp for batch in expired] == [A, A, B]
    assert (rig.accumulator.take(A), rig.accumulator.take(B), rig.ready()) == (None, None, [])


def test_only_values_keep_a_batch_plain() -> None:
    for more in ({"key": b"k"}, {"headers": (("h", None),)}):
        rig = Rig(linger_s=0)
        rig.append()
        assert rig.accumulator.lane(A).open.plain  # type: ignore[union-attr]
        rig.append(**more)
        rig.append()
        batch = rig.take()
        assert not batch.plain
        columns = [column for column in (batch.keys, batch.headers) if column is not None]
        assert [len(column) for column in columns] == [3]


def test_records_of_one_millisecond_share_its_first_timestamp() -> None:
    rig = Rig(linger_s=0)
    rig.append(timestamp_us=7)
    batch = rig.take()
    assert batch.timestamps[0] == batch.max_timestamp_us == 7
    rig.append(timestamp_us=5_000)
    batch = rig.accumulator.lane(A).open  # type: ignore[assignment]
    expected = [5_000]
    for now in (9.0001, 9.00015, 9.0009, 9.001, 9.0025, 8.0):
        if now >= batch.tick_at:
            batch.tick(now)
            expected.append(int(now * 1e6))
        else:
            expected.append(expected[-1])
        batch.values.append(b"")
    batch.stamp(3)  # the application's timestamp holds for its record only
    batch.values.append(b"")
    assert batch.tick_at == 0.0
    expected.append(3)
    # 8.0: a clock that is set back is followed by the next batch.
    assert expected == [5_000, 9_000_100, 9_000_100, 9_000_100, 9_001_000, 9_002_500, 9_002_500, 3]
    assert [batch.timestamps[n] for n in range(8)] == expected
    assert batch.timestamps.highest == 9_002_500
    assert batch.timestamps.encode(8) == struct.pack("<8q", *expected)


def test_without_a_timestamp_the_clock_is_read() -> None:
    rig = Rig(linger_s=0)
    before = time.time_ns() // 1000
    for _ in range(5):
        rig.append(timestamp_us=None)
    after = time.time_ns() // 1000
    batch = rig.take()
    # A float holds microseconds of our time with an error below one.
    assert all(before - 1 <= batch.timestamps[n] <= after + 1 for n in range(5))


# --- sequences that the application controls --------------------------------------------------


def test_given_sequences_rise_and_do_not_mix_with_counted_ones() -> None:
    rig = Rig()
    rig.append(sequence=5)
    for sequence in (5, 4):
        with pytest.raises(errors.InvalidRequestError, match="not above"):
            rig.append(sequence=sequence)
    with pytest.raises(errors.InvalidRequestError, match="missing"):
        rig.append()
    rig.append(tp=B)
    with pytest.raises(errors.InvalidRequestError, match="the producer counts"):
        rig.append(tp=B, sequence=1)
    rig.append(sequence=9)
    rig.accumulator.begin_flush()
    assert rig.take().sequences == [5, 9]


# --- a full buffer ---------------------------------------------------------------------------


def test_memory_is_counted_until_a_batch_is_settled() -> None:
    rig = Rig(linger_s=0)
    rig.append(500)
    assert rig.accumulator.used >= ROOM + 500
    batch = rig.take()
    assert rig.accumulator.used == ROOM + 500, "a closed batch gives back what it did not use"
    rig.settle(batch)
    assert rig.accumulator.used == 0
    assert not rig.accumulator.incomplete


def test_a_sender_waits_for_room_and_then_goes_on() -> None:
    rig = Rig(buffer_memory=2 * ROOM + 200, batch_size=2 * ROOM)
    rig.append(200)
    blocked = Blocked(rig, lambda: rig.append(150, B))
    assert rig.ready() == [A], "what lingers holds the room, so it is due"
    rig.settle(rig.take())
    blocked.join()
    assert isinstance(blocked.result, RecordFuture)
    assert rig.accumulator.used >= ROOM + 150


def test_a_batch_that_grows_waits_for_room_too() -> None:
    rig = Rig(buffer_memory=1000, batch_size=1000)
    rig.append(300)
    other = 1000 - rig.accumulator.used
    if other:
        rig.accumulator.used += other
    blocked = Blocked(rig, lambda: rig.append(600))
    assert rig.ready() == [A]
    taken = rig.take()
    rig.accumulator.used -= other
    rig.settle(taken)
    blocked.join()
    rig.accumulator.begin_flush()
    assert [len(v or b"") for v in rig.take().values] == [600]


def test_a_stop_ends_the_wait() -> None:
    for failure, kind in [
        (None, errors.ClientClosedError),
        (errors.FencedError("gone", current_epoch=3), errors.FencedError),
    ]:
        rig = Rig(buffer_memory=ROOM + 200, batch_size=ROOM)
        rig.append(150)
        blocked = Blocked(rig, lambda rig=rig: rig.append(150, B))  # type: ignore[misc]
        assert len(rig.accumulator.stop(failure)) == 1
        blocked.join()
        assert isinstance(blocked.error, kind)
        with pytest.raises(kind):
            rig.append()


def test_refused_but_not_yet_stopped() -> None:
    rig = Rig(linger_s=0)
    rig.append()
    rig.accumulator.refuse(errors.FencedError("gone", current_epoch=3))
    rig.accumulator.refuse(errors.InvalidBatchError("a later reason"))
    assert len(rig.take().values) == 1, "what was taken before is still the sender's"
    with pytest.raises(errors.FencedError):
        rig.append()


def test_a_forked_child_sends_nothing_of_its_parents() -> None:
    rig = Rig(linger_s=0)
    rig.append(others=[rig.accumulator.lane(A)])
    accumulator = rig.accumulator
    with accumulator.lock:  # as if a thread of the parent held it at the fork
        accumulator.abandon(errors.ClientClosedError("made before a fork"))
        with pytest.raises(errors.ClientClosedError, match="before a fork"):
            rig.append()
    assert (accumulator.stickiness.batches, accumulator.take(A)) == ({}, None)


def test_the_wait_ends_after_max_block_ms() -> None:
    rig = Rig(buffer_memory=ROOM + 200, batch_size=ROOM, max_block_s=0.0)
    rig.append(150)
    with pytest.raises(errors.BufferFullError, match="max_block_ms=0") as caught:
        rig.append(150, B)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.retriable


def test_what_can_never_fit_is_refused_at_once() -> None:
    rig = Rig(buffer_memory=1000)
    with pytest.raises(errors.BatchTooLargeError, match="buffer_memory=1000"):
        rig.append(1000)
    with pytest.raises(errors.BatchTooLargeError, match="max_batch_bytes is 100000"):
        rig.append(100_000)
    assert rig.accumulator.used == 0


def test_an_encoded_batch_keeps_its_place_in_the_order() -> None:
    rig = Rig()
    rig.append(1)
    rig.accumulator.append_payload(rig.accumulator.lane(A), b"x" * 50, 3, 77, None, 6, 1000)
    rig.append(2)
    first, second = rig.take(), rig.take()
    assert first.payload is None
    assert (second.payload, second.record_count, second.expected_offset) == (b"x" * 50, 3, 6)
    assert second.max_timestamp_us == 77
