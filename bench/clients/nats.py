"""NATS' Python client under load: nats-py, asynchronous publishes with message ids."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import nats
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, Header

from bench.clients.common import (
    DRAIN_S,
    TICK_S,
    VALUES,
    Asked,
    Clock,
    Figures,
    main,
    percentiles,
    until_start,
)

FETCH = 1000  # messages requested at a time
STRIDE = 64  # messages between two looks at the clock


class Publisher:
    """Connection with message ids that no other run uses."""

    def __init__(self, client: Any, asked: Asked) -> None:
        self._asked = asked
        self.client = client
        # The pending window is JetStream's own flow control for publishers.
        self.stream = client.jetstream(publish_async_max_pending=asked.window, timeout=20)
        self._prefix = uuid.uuid4().hex
        self._subjects = [f"{asked.topic}.{n}" for n in range(asked.partitions)]
        self.sent = 0
        self._errors: list[BaseException] = []

    @classmethod
    async def connect(cls, asked: Asked) -> Publisher:
        client = await nats.connect(
            [f"nats://{one}" for one in asked.addresses],
            pending_size=64 * 1024 * 1024,
            **asked.settings,
        )
        publisher = cls(client, asked)
        for _ in publisher._subjects:
            await (await publisher.publish(b"first"))
        publisher.sent = 0
        return publisher

    async def publish(self, value: bytes) -> Any:
        """Publishes to the partitions in turn; returns the future of the acknowledgement."""
        self.sent += 1
        subject = self._subjects[self.sent % len(self._subjects)]
        headers = {Header.MSG_ID: f"{self._prefix}{self.sent}"}
        future = await self.stream.publish_async(subject, value, headers=headers)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: Any) -> None:
        error = future.exception()
        if error is not None:
            self._errors.append(error)

    async def drain(self) -> None:
        async with asyncio.timeout(DRAIN_S):
            await self.stream.publish_async_completed()
        if self._errors:
            raise SystemExit(f"{len(self._errors)} messages failed, first {self._errors[0]!r}")


async def produce(asked: Asked) -> Figures:
    values, publisher = asked.values(), await Publisher.connect(asked)
    clock = Clock()
    until = clock.started + asked.seconds
    while time.monotonic() < until and (not asked.records or publisher.sent < asked.records):
        for number in range(STRIDE):
            await publisher.publish(values[number % VALUES])
        # Lets the client write its buffer and take acknowledgements meanwhile.
        await asyncio.sleep(0)
    await publisher.drain()
    figures = clock.figures(publisher.sent, asked.size)
    await publisher.client.close()
    return figures


async def latency(asked: Asked) -> Figures:
    publisher = await Publisher.connect(asked)
    figures = await (at_rate if asked.rate else singly)(asked, publisher)
    await publisher.client.close()
    return figures


async def singly(asked: Asked, publisher: Publisher) -> Figures:
    value = asked.values()[0]
    times: list[float] = []
    clock = Clock()
    while time.monotonic() < clock.started + asked.seconds:
        started = time.perf_counter()
        await (await publisher.publish(value))
        times.append((time.perf_counter() - started) * 1e3)
    await publisher.drain()
    return clock.figures(len(times), asked.size) | percentiles(times)


async def producers(asked: Asked) -> Figures:
    """Runs `window` tasks on one connection, each with one message in flight."""
    value, publisher = asked.values()[0], await Publisher.connect(asked)
    times: list[float] = []
    await asyncio.sleep(until_start(asked))
    clock = Clock()

    async def run() -> None:
        while time.monotonic() < clock.started + asked.seconds:
            started = time.perf_counter()
            await (await publisher.publish(value))
            times.append((time.perf_counter() - started) * 1e3)

    await asyncio.gather(*(run() for _ in range(asked.window)))
    await publisher.drain()
    figures = clock.figures(len(times), asked.size) | percentiles(times)
    await publisher.client.close()
    return figures


async def at_rate(asked: Asked, publisher: Publisher) -> Figures:
    """Measures one message's latency in each tick, as `oncelog bench latency --rate` does."""
    values = asked.values()
    times: list[float] = []

    def sample(due: float) -> Any:
        return lambda _: times.append((time.monotonic() - due) * 1e3)

    clock, sent = Clock(), 0
    for tick in range(1, int(asked.seconds / TICK_S) + 1):
        due = clock.started + tick * TICK_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        target = int(asked.rate * tick * TICK_S)
        for number in range(sent, target):
            future = await publisher.publish(values[number % VALUES])
            if number == target - 1:
                future.add_done_callback(sample(due))
        sent = target
    await publisher.drain()
    figures = clock.figures(sent, asked.size) | percentiles(times)
    return figures | {"asked_records_per_s": asked.rate}


async def consume(asked: Asked) -> Figures:
    """Reads `records` messages of all partitions from the start."""
    client = await nats.connect([f"nats://{one}" for one in asked.addresses])
    stream = client.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    reader = [
        await stream.pull_subscribe(
            f"{asked.topic}.{n}", stream=f"{asked.topic}-{n}", config=config
        )
        for n in range(asked.partitions)
    ]
    early = len(await reader[0].fetch(1, timeout=10))
    clock, count, size = Clock(), 0, 0
    until = clock.started + asked.seconds * 4
    while (left := asked.records - early - count) > 0 and time.monotonic() < until:
        for one in reader:
            try:
                messages = await one.fetch(min(FETCH, left), timeout=2)
            except NatsTimeoutError:
                continue
            count += len(messages)
            size += sum(len(message.data) for message in messages)
    figures = clock.figures(count, 0)
    await client.close()
    figures["mb_per_s"] = size / figures["seconds"] / 1e6
    return figures


if __name__ == "__main__":
    main({"produce": produce, "latency": latency, "producers": producers, "consume": consume})
