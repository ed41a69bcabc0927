"""RabbitMQ's Python client under load: pika, quorum queues, publisher confirms.

SelectConnection, since the blocking one waits for each confirm. One partition is one queue.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pika  # type: ignore[import-untyped]

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

STRIDE = 100  # messages published before the connection gets its turn
PREFETCH, ACK_EVERY = 2000, 500
PERSISTENT = pika.BasicProperties(delivery_mode=2)
QUORUM = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}


def parameters(asked: Asked) -> pika.ConnectionParameters:
    host, port = asked.addresses[0].split(":")
    return pika.ConnectionParameters(host, int(port), heartbeat=0)


def queues(asked: Asked) -> list[str]:
    return [f"{asked.topic}.{n}" for n in range(asked.partitions)]


def create(asked: Asked) -> Figures:
    with pika.BlockingConnection(parameters(asked)) as connection:
        channel = connection.channel()
        for queue in queues(asked):
            channel.queue_declare(queue, durable=True, arguments=QUORUM)
    return {}


class Session:
    """Connection with one channel; runs until `finish`."""

    def __init__(self, asked: Asked, begin: Callable[[], None]) -> None:
        self.asked = asked
        self._begin = begin
        self._failure = ""
        self.connection: Any = pika.SelectConnection(
            parameters(asked),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda _, error: self.finish(repr(error)),
            on_close_callback=lambda _, reason: self.connection.ioloop.stop(),
        )
        self.channel: Any = None

    def _opened(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(lambda _, reason: self._closed(reason))
        self._begin()

    def _closed(self, reason: BaseException) -> None:
        if not isinstance(reason, pika.exceptions.ChannelClosedByClient):
            self.finish(repr(reason))

    def run(self, timeout: float) -> None:
        self.connection.ioloop.call_later(timeout, lambda: self.finish("not done in time"))
        self.connection.ioloop.start()
        if self._failure:
            raise SystemExit(self._failure)

    def finish(self, failure: str = "") -> None:
        self._failure = self._failure or failure
        self.connection.ioloop.stop()


class Publisher:
    """Unconfirmed messages and their confirms. Subclasses choose messages and times."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.values = asked.values()
        self.times: list[float] = []
        self._tag = self._confirmed = 0
        # Unconfirmed delivery tags in the order of publishing -> due time of the message; 0.0 if
        # its latency is not measured.
        self._open: dict[int, float] = {}
        self._stopped = False
        self._figures: Figures = {}
        self._queues = queues(asked)
        self._session = Session(asked, self._begin)
        self.clock = Clock()

    def run(self) -> Figures:
        self._session.run(self.asked.seconds * 5 + DRAIN_S)
        return self._figures

    def _begin(self) -> None:
        self._session.channel.confirm_delivery(self._confirm, callback=lambda _: self._start())

    def _start(self) -> None:
        self.clock = Clock()
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def on_confirm(self) -> None:
        raise NotImplementedError

    @property
    def room(self) -> int:
        return self.asked.window - len(self._open)

    @property
    def over(self) -> bool:
        """Whether enough has been sent."""
        enough = self.asked.records and self._tag >= self.asked.records
        return bool(enough) or time.monotonic() >= self.clock.started + self.asked.seconds

    def publish(self, due: float = 0.0) -> None:
        self._tag += 1
        self._open[self._tag] = due
        queue = self._queues[self._tag % len(self._queues)]
        value = self.values[self._tag % VALUES]
        self._session.channel.basic_publish("", queue, value, PERSISTENT)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._session.connection.ioloop.call_later(seconds, action)

    def stop(self) -> None:
        """Stops sending; ends after the last confirm."""
        self._stopped = True
        if not self._open:
            self._finish()

    def _finish(self) -> None:
        found = self.clock.figures(self._confirmed, self.asked.size)
        self._figures = found | percentiles(self.times)
        self._session.finish()

    def _confirm(self, frame: Any) -> None:
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            self._session.finish("a message was refused")
            return
        tag = method.delivery_tag
        confirmed = [tag]
        if method.multiple:
            confirmed = list(itertools.takewhile(lambda one: one <= tag, self._open))
        now = time.monotonic()
        for one in confirmed:
            due = self._open.pop(one)
            if due:
                self.times.append((now - due) * 1e3)
        self._confirmed += len(confirmed)
        if not self._stopped:
            self.on_confirm()
        elif not self._open:
            self._finish()


class Flood(Publisher):
    """Publisher that fills the window."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self._waiting = False

    def begin(self) -> None:
        self._pump()

    def on_confirm(self) -> None:
        if self._waiting:
            self._waiting = False
            self._pump()

    def _pump(self) -> None:
        if self.over:
            self.stop()
            return
        for _ in range(min(STRIDE, self.room)):
            self.publish()
        if self.room:
            self.later(0, self._pump)  # after the connection has had its turn
        else:
            self._waiting = True


class Singly(Publisher):
    """Publisher with one message in flight."""

    def begin(self) -> None:
        self.publish(time.monotonic())

    def on_confirm(self) -> None:
        if self.over:
            self.stop()
        else:
            self.publish(time.monotonic())


class Steady(Publisher):
    """Publisher of one timed message in each tick, as `oncelog bench latency --rate`."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self._ticks = self._sent = 0

    def begin(self) -> None:
        self._tick()

    def on_confirm(self) -> None:
        return

    def _tick(self) -> None:
        while True:
            due = self.clock.started + (self._ticks + 1) * TICK_S
            wait = due - time.monotonic()
            if wait > 0:
                self.later(wait, self._tick)
                return
            self._ticks += 1
            if self._ticks * TICK_S > self.asked.seconds:
                self.stop()
                return
            target = int(self.asked.rate * self._ticks * TICK_S)
            for number in range(self._sent, target):
                self.publish(due if number == target - 1 else 0.0)
            self._sent = target


def produce(asked: Asked) -> Figures:
    return Flood(asked).run()


def producers(asked: Asked) -> Figures:
    return Many(asked).run()


def latency(asked: Asked) -> Figures:
    if not asked.rate:
        return Singly(asked).run()
    return Steady(asked).run() | {"asked_records_per_s": asked.rate}


class Many:
    """Publisher on `window` channels of one connection, one message in flight in each."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._value = asked.values()[0]
        self._queues = itertools.cycle(queues(asked))
        self._times: list[float] = []
        self._channels: list[Any] = []
        self._under_way = 0
        self._figures: Figures = {}
        self._session = Session(asked, self._more)
        self._clock = Clock()

    def run(self) -> Figures:
        self._session.run(self._asked.seconds * 5 + DRAIN_S)
        return self._figures

    def _more(self) -> None:
        """Opens the channels one after the other, then begins."""
        if len(self._channels) < self._asked.window:
            self._session.connection.channel(on_open_callback=self._opened)
        else:
            wait = until_start(self._asked)
            self._session.connection.ioloop.call_later(wait, self._start)

    def _opened(self, channel: Any) -> None:
        self._channels.append(channel)
        started: list[float] = []

        def send(_: Any = None) -> None:
            if started:
                self._times.append((time.monotonic() - started.pop()) * 1e3)
                self._under_way -= 1
            if time.monotonic() < self._clock.started + self._asked.seconds:
                started.append(time.monotonic())
                self._under_way += 1
                channel.basic_publish("", next(self._queues), self._value, PERSISTENT)
            elif not self._under_way:
                found = self._clock.figures(len(self._times), self._asked.size)
                self._figures = found | percentiles(self._times)
                self._session.finish()

        def confirmed(frame: Any) -> None:
            if isinstance(frame.method, pika.spec.Basic.Nack):
                self._session.finish("a message was refused")
            else:
                send()

        channel.begin = send
        channel.confirm_delivery(confirmed, callback=lambda _: self._more())

    def _start(self) -> None:
        self._clock = Clock()
        for channel in self._channels:
            channel.begin()


class Reader:
    """Takes `records` messages from all queues."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._count = self._size = 0
        self._figures: Figures = {}
        self._session = Session(asked, self._begin)
        self._clock = Clock()

    def run(self) -> Figures:
        self._session.run(self._asked.seconds * 5 + DRAIN_S)
        return self._figures

    def _begin(self) -> None:
        channel = self._session.channel
        channel.basic_qos(prefetch_count=PREFETCH)
        for queue in queues(self._asked):
            channel.basic_consume(queue, self._take)

    def _take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if not self._count:
            self._clock = Clock()
        self._count += 1
        self._size += len(body)
        if self._count == self._asked.records:
            channel.basic_ack(method.delivery_tag, multiple=True)
            self._figures = self._clock.figures(self._count, 0)
            self._figures["mb_per_s"] = self._size / self._figures["seconds"] / 1e6
            self._session.finish()
        elif self._count % ACK_EVERY == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)


def consume(asked: Asked) -> Figures:
    return Reader(asked).run()


if __name__ == "__main__":
    main(
        {
            "create": create,
            "produce": produce,
            "latency": latency,
            "producers": producers,
            "consume": consume,
        }
    )
