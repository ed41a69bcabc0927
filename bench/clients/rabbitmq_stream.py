"""RabbitMQ's stream client for Python under load: rstream.

Messages go out by `send_batch`, which its documentation calls the fastest, in the binary
codec. They have a publisher name, by which the broker drops duplicates. One partition is one
stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from rstream import (
    ConfirmationStatus,
    Consumer,
    ConsumerOffsetSpecification,
    OffsetType,
    Producer,
)

from bench.clients.common import DRAIN_S, TICK_S, VALUES, Asked, Clock, Figures, main, percentiles

BATCH = 500  # messages in a frame at most
FRAME_BYTES = 1_000_000
FRAME_MAX = 8 * 1024 * 1024
CREDIT = 50  # chunks that the server may send ahead
OnConfirm = Callable[[ConfirmationStatus], None]
GUEST = "guest"  # name and password that a new broker takes from loopback


def streams(asked: Asked) -> list[str]:
    return [f"{asked.topic}.{n}" for n in range(asked.partitions)]


def connect(asked: Asked) -> Producer:
    host, port = asked.addresses[0].split(":")
    return Producer(host, int(port), frame_max=FRAME_MAX, username=GUEST, password=GUEST)


async def create(asked: Asked) -> Figures:
    async with connect(asked) as producer:
        for stream in streams(asked):
            await producer.create_stream(stream, {"initial-cluster-size": "3"})
    return {}


class Publisher:
    """Unconfirmed batches and their confirms."""

    def __init__(self, producer: Producer, asked: Asked) -> None:
        self._producer = producer
        self._streams = streams(asked)
        self._batches = 0
        self._moved = asyncio.Event()
        self._failed = 0
        self.sent = self.confirmed = 0
        self.times: list[float] = []
        # One callback for each stream: message ids are counted within a stream.
        self._callbacks = {stream: self._counter() for stream in self._streams}

    def _counter(self) -> OnConfirm:
        def confirmed(status: ConfirmationStatus) -> None:
            self.confirmed += 1
            if not status.is_confirmed:
                self._failed += 1
            self._moved.set()

        return confirmed

    def _timer(self, count: int, due: float) -> OnConfirm:
        """Counts too, and notes the confirm of the last of `count` messages."""
        left, counter = count, self._counter()

        def confirmed(status: ConfirmationStatus) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.times.append((time.monotonic() - due) * 1e3)
            counter(status)

        return confirmed

    async def send(self, values: list[bytes], due: float = 0.0) -> None:
        """Sends one frame to the next stream; timed from `due`, if that is given."""
        stream = self._streams[self._batches % len(self._streams)]
        self._batches += 1
        self.sent += len(values)
        await self._producer.send_batch(
            stream,
            values,
            publisher_name=f"bench-{stream}",
            on_publish_confirm=self._timer(len(values), due) if due else self._callbacks[stream],
        )

    async def until_open(self, most: int) -> None:
        """Waits until at most `most` messages are unconfirmed."""
        async with asyncio.timeout(DRAIN_S):
            while self.sent - self.confirmed > most:
                self._moved.clear()
                await self._moved.wait()
        if self._failed:
            raise SystemExit(f"{self._failed} messages were refused")


async def prepared(producer: Producer, asked: Asked) -> Publisher:
    """Declares a publisher at all streams."""
    publisher = Publisher(producer, asked)
    for _ in range(asked.partitions):
        await publisher.send([b"first"])
    await publisher.until_open(0)
    publisher.sent = publisher.confirmed = 0
    return publisher


async def produce(asked: Asked) -> Figures:
    async with connect(asked) as producer:
        publisher = await prepared(producer, asked)
        count = max(1, min(BATCH, FRAME_BYTES // asked.size, asked.window))
        values = (asked.values() * (count // VALUES + 1))[:count]
        clock = Clock()
        until = clock.started + asked.seconds
        while time.monotonic() < until and (not asked.records or publisher.sent < asked.records):
            await publisher.send(values)
            await asyncio.sleep(0)  # confirms are taken by another task
            await publisher.until_open(asked.window - count)
        await publisher.until_open(0)
        return clock.figures(publisher.sent, asked.size)


async def latency(asked: Asked) -> Figures:
    async with connect(asked) as producer:
        publisher = await prepared(producer, asked)
        return await (at_rate if asked.rate else singly)(asked, publisher)


async def singly(asked: Asked, publisher: Publisher) -> Figures:
    value = asked.values()[0]
    times: list[float] = []
    clock = Clock()
    while time.monotonic() < clock.started + asked.seconds:
        started = time.perf_counter()
        await publisher.send([value])
        await publisher.until_open(0)
        times.append((time.perf_counter() - started) * 1e3)
    return clock.figures(len(times), asked.size) | percentiles(times)


async def at_rate(asked: Asked, publisher: Publisher) -> Figures:
    """Sends a batch in each tick and measures the latency of its last message.

    As `oncelog bench latency --rate`.
    """
    values = asked.values()
    clock, sent = Clock(), 0
    for tick in range(1, int(asked.seconds / TICK_S) + 1):
        due = clock.started + tick * TICK_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        target = int(asked.rate * tick * TICK_S)
        if target > sent:
            await publisher.send([values[n % VALUES] for n in range(sent, target)], due)
        sent = target
    await publisher.until_open(0)
    figures = clock.figures(sent, asked.size) | percentiles(publisher.times)
    return figures | {"asked_records_per_s": asked.rate}


async def consume(asked: Asked) -> Figures:
    """Reads `records` messages of all streams from the start."""
    host, port = asked.addresses[0].split(":")
    consumer = Consumer(host, int(port), frame_max=FRAME_MAX, username=GUEST, password=GUEST)
    done = asyncio.Event()
    count = size = 0
    clock = Clock()

    def take(message: bytes, context: Any) -> None:
        nonlocal clock, count, size
        if not count:
            clock = Clock()
        count += 1
        size += len(message)
        if count >= asked.records:
            done.set()

    await consumer.start()
    for stream in streams(asked):
        await consumer.subscribe(
            stream,
            take,
            decoder=bytes,
            offset_specification=ConsumerOffsetSpecification(OffsetType.FIRST),
            initial_credit=CREDIT,
        )
    async with asyncio.timeout(asked.seconds * 4 + DRAIN_S):
        await done.wait()
    figures = clock.figures(count, 0)
    await consumer.close()
    figures["mb_per_s"] = size / figures["seconds"] / 1e6
    return figures


if __name__ == "__main__":
    main({"create": create, "produce": produce, "latency": latency, "consume": consume})
