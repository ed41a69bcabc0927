"""A producer that writes while nodes come and go, and the count of its records afterwards."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import Self

from oncelog import Admin, Consumer, Producer, RecordMetadata
from tests.integration.background import Background
from tests.integration.waiting import eventually

TOPIC = "counted"
PARTITIONS = 6
TIMEOUT = 60.0


class CountedLoad(Background):
    """Writes to all partitions of a topic of its own within the `with` block."""

    def __init__(self, admin: Admin, bootstrap: str) -> None:
        super().__init__()
        self.sent: list[Future[RecordMetadata]] = []
        self._acked: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
        self._admin = admin
        self._bootstrap = bootstrap

    def __enter__(self) -> Self:
        self._admin.create_topic(TOPIC, PARTITIONS, 3)
        super().__enter__()
        eventually(lambda: len(self.sent) > 200 and self.sent[200].done(), "it writes")
        return self

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap, linger_ms=0) as producer:
            while not self._stop.wait(0.005):
                number = len(self.sent) % PARTITIONS
                found = producer.send(TOPIC, b"%d" % len(self.sent), partition=number)
                found.add_done_callback(partial(self._answered, number))
                self.sent.append(found)

    def _answered(self, number: int, found: Future[RecordMetadata]) -> None:
        self._acked[number].append(time.monotonic())

    def silence(self, begin: float, end: float) -> float:
        """The longest time in which a partition acknowledged nothing, in seconds."""
        longest = 0.0
        for times in self._acked.values():
            seen = [begin, *(at for at in times if begin <= at <= end)]
            gaps = [after - before for before, after in pairwise(seen)]
            longest = max([longest, *gaps])
        return longest

    def check(self) -> None:
        """After the block: each record is stored once, in order, and can be read."""
        found = [future.result(TIMEOUT) for future in self.sent]
        for number in range(PARTITIONS):
            offsets = [one.offset for one in found if one.partition == number]
            assert offsets == list(range(len(offsets))), "each record once, in order"
        with Consumer(
            TOPIC, bootstrap_servers=self._bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            values = {record.value for _, record in zip(found, consumer, strict=False)}
        assert values == {b"%d" % row for row in range(len(found))}
