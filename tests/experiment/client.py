"""Sender of the integers 0 to N-1, one `send` each; notes which were acknowledged.

Place in the flow: `run` makes the producer and calls `send_integers`. Futures are looked at in the
order of sending and no more than WINDOW wait, so memory grows with N by one byte per record, which
says whether it was acknowledged.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from oncelog import DeliveryError

PACK = struct.Struct(">q").pack  # a record's value: 8 bytes, big-endian
WINDOW = 200_000  # records on their way
BURST = 1000  # records between looks at the clock
PACE = 0.02  # seconds: a burst holds no more than the records due in that time
RESULT_TIMEOUT = 180.0  # seconds, above the producer's own delivery timeout
EXAMPLES = 5


class Sender(Protocol):
    """A producer: ours, or librdkafka's. A record's future is done when it is acknowledged."""

    def send(self, topic: str, value: bytes, /) -> Future[Any]: ...

    def metrics(self) -> Any: ...


@dataclass(slots=True)
class Sent:
    """acknowledged: a byte for each integer, 1 if its future said so."""

    acknowledged: bytearray
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    def collect(self, first: int, futures: list[Future[Any]]) -> None:
        """Waits for the futures of `first` and those behind it."""
        acknowledged = self.acknowledged
        for number, future in enumerate(futures, first):
            error = future.exception(RESULT_TIMEOUT)
            if error is None:
                acknowledged[number] = 1
            elif not isinstance(error, DeliveryError):
                raise error
            elif len(self.errors) < EXAMPLES:
                self.errors.append(f"{number}: {error}")


def send_integers(
    producer: Sender, topic: str, records: int, rate: float, stop: threading.Event
) -> Sent:
    """Sends 0..records-1, at most `rate` a second; returns when each has its result.

    Raises any error of `send` and TimeoutError; InterruptedError if `stop` is set: a fault could
    not be injected as planned.
    """
    sent = Sent(bytearray(records))
    burst = max(1, min(BURST, int(rate * PACE)))
    waiting: deque[tuple[int, list[Future[Any]]]] = deque()
    send, pack = producer.send, PACK
    started = time.monotonic()
    for first in range(0, records, burst):
        early = started + first / rate - time.monotonic()
        if stop.wait(early) if early > 0 else stop.is_set():
            raise InterruptedError("the run was stopped")
        numbers = range(first, min(first + burst, records))
        waiting.append((first, [send(topic, pack(number)) for number in numbers]))
        while len(waiting) * burst > WINDOW:
            sent.collect(*waiting.popleft())
    while waiting:
        sent.collect(*waiting.popleft())
    sent.seconds = time.monotonic() - started
    return sent
