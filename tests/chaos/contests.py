"""Clients that compete: racing conditional appends, and two instances of one producer name.

    Racer, Racer      both want the next offset of one partition: one gets it
    Takeovers         an instance writes, another of the same name comes: one goes on

Their answers go into the history; the checker judges them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from oncelog import (
    DeliveryError,
    FencedError,
    OffsetMismatchError,
    OncelogError,
    Producer,
    ProducerFatalError,
    RecordMetadata,
)
from tests.chaos.history import Contest, History, Told, Writes, value_of

RACE_PAUSE = 0.05  # seconds between a racer's attempts
PEACE = 1.0  # seconds between takeovers
EXCHANGES = 20  # records of each instance before it is clear that nobody is fenced
ANSWER_TIMEOUT = 90.0  # seconds for one record; then its outcome is unknown
FIRST_INSTANCE = 1000  # workers from here on are instances of the name
WENT_ON, FENCED, UNKNOWN = "went on", "fenced", "unknown"

Note = Callable[[str], None]


def is_refusal(error: BaseException) -> bool:
    """Tells whether the client is sure that the record is not stored, and never will be.

    It is sure when a node answers FENCED to the only attempt: the epoch of a partition never falls.
    An earlier attempt without an answer may have been stored before it rose; then nobody knows.
    """
    return isinstance(error, DeliveryError) and error.outcome != "unknown"


def told_of(metadata: RecordMetadata) -> list[Told]:
    """Returns the note of a record that was stored by an earlier attempt."""
    if not metadata.duplicate:
        return []
    return [
        Told(
            time.monotonic(),
            "DUPLICATE",
            metadata.partition,
            metadata.producer_id,
            metadata.epoch,
            metadata.sequence,
        )
    ]


def fence_of(error: BaseException, partition: int) -> list[Told]:
    """Returns the note of a record that was sent and fenced."""
    if not isinstance(error, FencedError) or not error.producer_id:
        return []
    return [
        Told(time.monotonic(), "FENCED", partition, error.producer_id, error.epoch, error.sequence)
    ]


class Racer(threading.Thread):
    """Appends to one partition, each record for the offset that it believes comes next."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        size: int,
        writes: Writes,
        note: Note,
        told: list[Told],
    ) -> None:
        super().__init__(name=f"racer-{writes.worker}")
        self._topic, self._partition, self._size = topic, partition, size
        self._writes, self._note, self._told = writes, note, told
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=0)
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        expected = 0
        try:
            while not self._stop_asked.wait(RACE_PAUSE):
                expected = self._append(expected)
        except ProducerFatalError as error:
            self._note(f"racer {self._writes.worker}: {error}")

    def finish(self) -> None:
        _close(self._producer, self._note)

    def _append(self, expected: int) -> int:
        """Makes one attempt; returns the offset to try next."""
        number = self._writes.sent(self._partition, expected)
        value = value_of(self._writes.worker, number, self._size)
        try:
            metadata = self._producer.send(
                self._topic, value, partition=self._partition, expected_offset=expected
            ).result(ANSWER_TIMEOUT)
        except OffsetMismatchError as error:
            if is_refusal(error):
                self._writes.refused(number)
            return error.next_offset
        except (DeliveryError, TimeoutError) as error:
            # The next attempt is told whether this one is there. To the checker, "refused" means
            # that the offset was taken.
            self._note(f"racer {self._writes.worker}: {error}")
            return expected
        self._told += told_of(metadata)
        self._writes.acknowledged(number, metadata.partition, metadata.offset)
        return expected + 1


class Instance:
    """One producer with the name, for as long as it is accepted."""

    def __init__(
        self, bootstrap: str, name: str, topic: str, writes: Writes, size: int, told: list[Told]
    ) -> None:
        self._topic, self._writes, self._size, self._told = topic, writes, size, told
        self._producer = Producer(bootstrap_servers=bootstrap, producer_name=name, linger_ms=0)
        self.end = ""  # how it ended, as far as it has

    @property
    def worker(self) -> int:
        return self._writes.worker

    def send(self, partition: int) -> tuple[int, Future[RecordMetadata] | None]:
        """Sends a record: (the write's number, its future: none if the producer had stopped)."""
        number = self._writes.sent(partition)
        value = value_of(self.worker, number, self._size)
        try:
            return number, self._producer.send(self._topic, value, partition=partition)
        except ProducerFatalError as error:
            self._writes.refused(number)  # before it was queued
            self._ended(error)
            return number, None

    def wait(self, number: int, future: Future[RecordMetadata] | None, note: Note) -> None:
        """Notes the outcome of a write."""
        if future is None:
            return
        try:
            metadata = future.result(ANSWER_TIMEOUT)
        except (OncelogError, TimeoutError) as error:
            if is_refusal(error):
                self._writes.refused(number)
            self._told += fence_of(error, self._writes.partitions[number])
            self._ended(error)
            if self.end != FENCED:
                note(f"named worker {self.worker}: {error}")
            return
        self._told += told_of(metadata)
        self._writes.producer_id, self._writes.epoch = metadata.producer_id, metadata.epoch
        self._writes.acknowledged(number, metadata.partition, metadata.offset)

    def _ended(self, error: Exception) -> None:
        self.end = FENCED if isinstance(error, FencedError) else UNKNOWN
        pid, epoch = self._producer.producer_id, self._producer.epoch
        if pid is not None and epoch is not None:
            self._writes.producer_id, self._writes.epoch = pid, epoch

    def close(self, note: Note) -> None:
        _close(self._producer, note)


class Takeovers(threading.Thread):
    """Takeovers: again and again a new instance of the name meets the older one."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, size: int, history: History, note: Note
    ) -> None:
        super().__init__(name="takeovers")
        self._servers, self._topic, self._partitions = bootstrap, topic, partitions
        self._size, self._history, self._note = size, history, note
        self._stop_asked = threading.Event()
        self._instances = 0
        self._left: Instance | None = None

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        while not self._stop_asked.wait(PEACE):
            earlier = self._left or self._open()
            later = self._open()
            self._left = self._contest(earlier, later, self._instances % self._partitions)

    def finish(self) -> None:
        if self._left is not None:
            self._left.close(self._note)

    def _open(self) -> Instance:
        writes = self._history.of(FIRST_INSTANCE + self._instances, "named")
        self._instances += 1
        name, told = f"{self._topic}-name", self._history.told
        return Instance(self._servers, name, self._topic, writes, self._size, told)

    def _contest(self, earlier: Instance, later: Instance, partition: int) -> Instance | None:
        """Lets both write until one is told to stop; returns the one that goes on, if any."""
        both = (earlier, later)
        for _ in range(EXCHANGES):
            sent = [(one, one.send(partition)) for one in both]
            for one, write in sent:
                one.wait(*write, self._note)
            if earlier.end or later.end:
                break
        for one in both:  # also to the end that the other has had
            if not one.end:
                one.wait(*one.send(partition), self._note)
        ends = (earlier.end or WENT_ON, later.end or WENT_ON)
        self._history.contests.append(Contest((earlier.worker, later.worker), ends))
        left = [one for one in both if not one.end]
        for one in both if len(left) != 1 else [one for one in both if one.end]:
            one.close(self._note)
        return left[0] if len(left) == 1 else None


def _close(producer: Producer, note: Note) -> None:
    try:
        producer.close()
    except OncelogError as error:
        note(f"at its close: {error}")
