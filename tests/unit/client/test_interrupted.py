"""A signal handler raises within a call that adds or reads records, wherever one can run.

Python runs handlers after a call of C code and at the begin of a Python function: there a
profile function raises in the handler's place.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog._engine.consume.one_reader import OneReader
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.sealing import _encoded
from oncelog._engine.produce.sender import Sender
from oncelog.config import ConsumerConfig
from oncelog.consumer import Consumer
from oncelog.producer import Producer
from oncelog.types import TopicPartition
from oncelog.wire.batch import decode_payload, encode_payload
from tests.unit.client.test_fetching import Rig as Buffered
from tests.unit.client.test_fetching import stored

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FULL = 400  # bytes of a value after which the next one begins another batch
CLIENT = (str(Path(oncelog.__file__).parent), contextlib.__file__)
CLOSED = ("__del__", "<genexpr>")  # they are called, too, when they are collected
PAYLOAD = encode_payload([b"p"], b"\1\0\0\0\0\0\0\0")


class HandlerError(Exception):
    pass


class Rig:
    def __init__(self) -> None:
        self.accumulator = Accumulator(
            batch_size=600,
            buffer_memory=100_000,
            linger_s=1.0,
            max_block_s=0.0,
            delivery_timeout_s=50.0,
            clock=lambda: 0.0,
            is_available=lambda tp: True,
        )
        self.lane = self.accumulator.lane(TP)
        # The part of a producer that `send` needs.
        self.producer = producer = Producer.__new__(Producer)
        producer._accumulator = self.accumulator
        producer._sticky = self.accumulator.stickiness.batches
        producer._acquire = self.accumulator.lock.acquire
        producer._release = self.accumulator.lock.release
        producer._send = lambda topic, value, *_: self.add(value, others=(self.lane,))  # type: ignore[method-assign]

    def add(self, value: bytes, key: bytes | None = None, **more: Any) -> Any:
        return self.accumulator.append(
            self.lane, value, key, more.get("headers", ()), more.get("timestamp_us"),
            more.get("sequence"), more.get("expected", -1), more.get("on_delivery"), 100_000,
            more.get("others", ()),
        )  # fmt: skip


ADDS: dict[str, Callable[[Rig, bytes], object]] = {
    "send": lambda rig, value: rig.producer.send("t", value),
    "key": lambda rig, value: rig.add(value, value),
    "headers": lambda rig, value: rig.add(value, value, headers=(("h", value),)),
    "timestamp": lambda rig, value: rig.add(value, timestamp_us=7, on_delivery=print),
    "alone": lambda rig, value: rig.add(value, expected=3),
    "full": lambda rig, value: rig.add(value + bytes(FULL), value),
    "sequence": lambda rig, value: rig.add(value, sequence=int(value) if value.isdigit() else 99),
    "payload": lambda rig, value: rig.accumulator.append_payload(
        rig.lane, PAYLOAD, 1, 1, None, -1, 100_000
    ),
}


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Interrupts the call at the place with this number; returns whether it was reached."""
    left = at

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal left
        code = frame.f_code
        mine = code.co_filename.startswith(CLIENT) and code.co_name not in CLOSED
        if mine and event in ("call", "c_return"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise HandlerError

    sys.setprofile(profile)
    try:
        call()
    except HandlerError:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize("name", ADDS)
def test_an_interrupted_record_leaves_all_others_as_they_are(name: str):
    add, places = ADDS[name], 0
    numbered = name == "sequence"
    first = [b"1", b"2"] if numbered else [b"a", b"b"]
    was_interrupted = True
    while was_interrupted:
        rig = Rig()
        for value in first:
            add(rig, value) if numbered else rig.add(value, value)
        call = partial(add, rig, b"3" if numbered else b"c")
        was_interrupted = interrupted(call, places)
        check(rig, add, first, numbered)
        places += 1
    assert places > 5, "a call has more places"


def check(
    rig: Rig, add: Callable[[Rig, bytes], object], first: list[bytes], numbered: bool
) -> None:
    accumulator = rig.accumulator
    assert not accumulator.lock._is_owned() and not accumulator.busy
    last = b"4" if numbered else b"d"
    add(rig, last) if numbered else rig.add(last, last)
    accumulator.begin_flush()
    found, deliveries = [], set()
    while (batch := accumulator.take(TP)) is not None:
        deliveries.add(batch.delivery)
        records = decode_payload(_encoded(batch), batch.record_count).records("t", 0, 0)
        found += records
        for record in records:
            value = (record.value or b"").rstrip(b"\0")
            assert record.key in (None, value)
            assert [content for _, content in record.headers] in ([], [value])
            assert value in (b"c", b"p") or batch.expected_offset == -1
        if batch.sequences is not None:
            assert len(batch.sequences) == batch.record_count
        for index, _ in batch.delivery.callbacks or ():
            assert (records[index].value or b"").startswith(b"c")
        accumulator.free(batch)
    values = [(record.value or b"").rstrip(b"\0") for record in found]
    assert values in (
        [*first, last],
        [*first, b"c", last],
        [*first, b"3", last],
        [*first, b"p", last],
    )
    assert accumulator.used == 0 and not accumulator.incomplete
    # A record that an interrupted call left behind is complete.
    if b"c" in values and len(deliveries) > 1:
        assert values.count(b"c") == 1


def test_an_interrupted_wake_up_is_not_taken_for_one():
    scheduled: list[Any] = []

    class Loop:
        def call_soon_threadsafe(self, callback: Any) -> None:
            scheduled.append(callback)
            if len(scheduled) == 1:
                raise HandlerError

    sender: Any = Sender.__new__(Sender)
    sender._looks, sender._woken_at, sender._loop = 0, -1, Loop()
    with pytest.raises(HandlerError):
        sender.wake()
    sender.wake()
    sender.wake()
    assert len(scheduled) == 2


def test_a_handler_below_a_wake_up_wakes_the_sender_itself():
    """A handler that flushes waits for a wake-up, and the call that it interrupted cannot go on."""
    scheduled: list[Any] = []

    class Loop:
        def call_soon_threadsafe(self, callback: Any) -> None:
            if not within:
                within.append("handler")
                sender.wake()
                assert len(scheduled) == 1
            scheduled.append(callback)

    within: list[str] = []
    sender: Any = Sender.__new__(Sender)
    sender._looks, sender._woken_at, sender._stopped, sender._loop = 0, -1, True, Loop()
    sender.wake()
    sender.wake()
    assert len(scheduled) == 2
    sender._pump()
    sender.wake()
    assert len(scheduled) == 3


def test_what_waits_is_seen_without_a_wake_up():
    rig = Rig()
    assert not rig.accumulator.waits
    rig.add(b"v")
    assert rig.accumulator.waits


READS: dict[str, Callable[[Consumer], Callable[[], object]]] = {
    "getmany": lambda consumer: partial(consumer.getmany, timeout_ms=0, max_records=3),
    "batches": lambda consumer: partial(next, consumer.batches(timeout_ms=0), None),
    "stored_batch": lambda consumer: partial(consumer.stored_batch, timeout_ms=0),
    "iteration": lambda consumer: partial(next, iter(consumer), None),
}


@pytest.mark.parametrize("name", READS)
def test_an_interrupted_read_loses_no_records(name: str) -> None:
    places, was_interrupted = 0, True
    positions: list[int | None] = []
    while was_interrupted:
        buffered = Buffered(TP, OTHER)
        for tp in (TP, OTHER):
            buffered.add(stored(0, 2), stored(2, 2), tp=tp)
        consumer: Any = Consumer.__new__(Consumer)
        consumer._buffer, consumer._one, consumer._rebalance = buffered.buffer, OneReader(), None
        consumer.config = ConsumerConfig(bootstrap_servers=("h:1",), consumer_timeout_ms=0)
        consumer._closed = False
        read = READS[name](consumer)
        was_interrupted = interrupted(read, places)
        positions = [buffered.buffer.position(tp) for tp in (TP, OTHER)]
        consumer._closed = True
        assert not was_interrupted or positions == [0, 0], places
        assert consumer._one._reader == {} and not buffered.buffer._lock._is_owned()
        places += 1
    assert positions != [0, 0]
    assert places > 5, "a call has more places"
