"""librdkafka's producer with the face of ours, as far as the experiment uses it.

Place in the flow: `run` makes it instead of our producer; `client` sends by it. A thread of its
own polls, so that each record's future gets its result while `send` goes on.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from oncelog import DeliveryError

DELIVERY_MS = 120_000
POLL = 0.1  # seconds
FULL = 0.001  # seconds until a full queue is tried again
FLUSH_TIMEOUT = 150.0


class KafkaSender:
    """Sends records; each is acknowledged by its future."""

    def __init__(self, servers: str, *, idempotent: bool, linger_ms: int) -> None:
        self._acknowledged = 0
        self._closing = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": linger_ms,
                "retries": 2_147_483_647,
                "message.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.max.ms": 500,
                "queue.buffering.max.messages": 500_000,
                "log_level": 0,  # killed nodes are no news
            }
        )
        self._poller = threading.Thread(target=self._poll, name="librdkafka", daemon=True)
        self._poller.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._poller.join()
        self._producer.flush(FLUSH_TIMEOUT)

    def send(self, topic: str, value: bytes) -> Future[None]:
        """Sends a record; waits while librdkafka's queue is full."""
        future: Future[None] = Future()

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._acknowledged += 1
                future.set_result(None)
            else:
                future.set_exception(DeliveryError(str(error)))

        while True:
            try:
                self._producer.produce(topic, value, on_delivery=on_delivery)
            except BufferError:
                time.sleep(FULL)
            else:
                return future

    def metrics(self) -> dict[str, int]:
        """Counts under the names of our producer. It tells of no repeats."""
        return {"records_acked": self._acknowledged, "batches_retried": 0, "duplicates": 0}

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(POLL)
