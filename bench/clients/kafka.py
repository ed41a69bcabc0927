"""Kafka's Python client under load: confluent-kafka, which is librdkafka in C.

`settings` are librdkafka's. Only failures are reported one by one, its cheapest way. After a
flush, an empty queue and no failure mean that all is acknowledged.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

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

FETCH = 10_000  # messages requested at a time
STRIDE = 256  # records between two looks at the clock


class Failures:
    """Delivery reports of messages that were not stored."""

    def __init__(self) -> None:
        self.errors: list[Any] = []

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)

    def check(self) -> None:
        if self.errors:
            raise SystemExit(f"{len(self.errors)} messages failed, the first: {self.errors[0]}")


def connect(asked: Asked, failures: Failures, **more: Any) -> Producer:
    producer = Producer({"bootstrap.servers": ",".join(asked.addresses), **asked.settings, **more})
    # The first message waits for connections, metadata and the producer id.
    producer.produce(asked.topic, b"first", on_delivery=failures)
    drain(producer)
    failures.check()
    return producer


def drain(producer: Producer) -> None:
    left = producer.flush(DRAIN_S)
    if left:
        raise SystemExit(f"{left} messages are not settled after {DRAIN_S:g} s")


def put(producer: Producer, topic: str, value: bytes, failures: Failures) -> None:
    while True:
        try:
            producer.produce(topic, value, on_delivery=failures)
        except BufferError:  # its queue is full
            producer.poll(0.05)
        else:
            return


def produce(asked: Asked) -> Figures:
    values, failures = asked.values(), Failures()
    # A queue of many large messages would take longer to drain than to fill.
    window = max(32, min(500_000, 64_000_000 // asked.size))
    producer = connect(
        asked,
        failures,
        **{"delivery.report.only.error": True, "queue.buffering.max.messages": window},
    )
    clock, sent = Clock(), 0
    until = clock.started + asked.seconds
    while time.monotonic() < until and (not asked.records or sent < asked.records):
        stride = min(STRIDE, asked.records - sent) if asked.records else STRIDE
        for number in range(stride):
            put(producer, asked.topic, values[number % VALUES], failures)
        producer.poll(0)
        sent += stride
    drain(producer)
    failures.check()
    return clock.figures(sent, asked.size)


def produce_batch(asked: Asked) -> Figures:
    """Produces lists of messages through `produce_batch`."""
    failures = Failures()
    producer = connect(asked, failures, **{"delivery.report.only.error": True})
    messages = [{"value": value} for value in asked.values()] * max(1, 1000 // VALUES)
    if asked.size * len(messages) > 16_000_000:
        messages = messages[: max(1, 16_000_000 // asked.size)]
    clock, sent = Clock(), 0
    until = clock.started + asked.seconds
    while time.monotonic() < until:
        taken = producer.produce_batch(asked.topic, messages, on_delivery=failures)
        producer.poll(0 if taken == len(messages) else 0.05)
        sent += taken
    drain(producer)
    failures.check()
    return clock.figures(sent, asked.size)


def latency(asked: Asked) -> Figures:
    return at_rate(asked) if asked.rate else singly(asked)


def singly(asked: Asked) -> Figures:
    values, failures = asked.values(), Failures()
    producer = connect(asked, failures)
    times: list[float] = []
    clock = Clock()
    while time.monotonic() < clock.started + asked.seconds:
        started = time.perf_counter()
        producer.produce(asked.topic, values[0], on_delivery=failures)
        drain(producer)
        times.append((time.perf_counter() - started) * 1e3)
    failures.check()
    return clock.figures(len(times), asked.size) | percentiles(times)


def producers(asked: Asked) -> Figures:
    """Runs `window` producers, each with a thread that sends again after each acknowledgement."""
    value, failures = asked.values()[0], Failures()
    with ThreadPoolExecutor(16) as pool:
        clients = list(pool.map(lambda _: connect(asked, failures), range(asked.window)))
    times: list[float] = []
    time.sleep(until_start(asked))
    clock = Clock()

    def run(client: Producer) -> None:
        while time.monotonic() < clock.started + asked.seconds:
            started = time.perf_counter()
            client.produce(asked.topic, value, on_delivery=failures)
            drain(client)
            times.append((time.perf_counter() - started) * 1e3)

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures.check()
    return clock.figures(len(times), asked.size) | percentiles(times)


def at_rate(asked: Asked) -> Figures:
    """Measures one record's latency in each tick, as `oncelog bench latency --rate` does."""
    values, failures = asked.values(), Failures()
    producer = connect(asked, failures)
    times: list[float] = []

    def sample(due: float) -> Any:
        def delivered(error: Any, message: Any) -> None:
            failures(error, message)
            times.append((time.monotonic() - due) * 1e3)

        return delivered

    clock, sent = Clock(), 0
    for tick in range(1, int(asked.seconds / TICK_S) + 1):
        due = clock.started + tick * TICK_S
        while (wait := due - time.monotonic()) > 0:
            producer.poll(wait)
        target = int(asked.rate * tick * TICK_S)
        for number in range(sent, target - 1):
            producer.produce(asked.topic, values[number % VALUES])
        if target > sent:
            producer.produce(asked.topic, values[0], on_delivery=sample(due))
        sent = target
    drain(producer)
    failures.check()
    figures = clock.figures(sent, asked.size) | percentiles(times)
    return figures | {"asked_records_per_s": asked.rate}


def consume(asked: Asked) -> Figures:
    """Reads `records` records from the start of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(asked.addresses),
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **asked.settings,
        }
    )
    consumer.subscribe([asked.topic])
    messages = consumer.consume(1, 30)
    if not messages:
        raise SystemExit("nothing to read after 30 s")
    clock, count, size = Clock(), 0, 0
    until = clock.started + asked.seconds * 4
    while (left := asked.records - 1 - count) > 0 and time.monotonic() < until:
        messages = consumer.consume(min(FETCH, left), 1.0)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            size += len(message.value() or b"")
        count += len(messages)
    figures = clock.figures(count, 0)
    consumer.close()
    figures["mb_per_s"] = size / figures["seconds"] / 1e6
    return figures


if __name__ == "__main__":
    main(
        {
            "produce": produce,
            "produce_batch": produce_batch,
            "latency": latency,
            "producers": producers,
            "consume": consume,
        }
    )
