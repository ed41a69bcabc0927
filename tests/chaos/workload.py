"""Clients that write and read while faults happen, and note all answers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import grpc

from harness.api import Api
from harness.payload import decompress, values_and_keys
from oncelog import (
    BufferFullError,
    DeliveryTimeoutError,
    OncelogError,
    Producer,
    ProducerFatalError,
    RecordMetadata,
)
from tests.chaos.contests import Racer, Takeovers, is_refusal, told_of
from tests.chaos.history import History, Read, Told, Writes, value_of

TICK = 0.02  # seconds between a worker's bursts: its load is a fixed rate
READ_PAUSE = 0.05
READ_BYTES = 256 * 1024
STUCK = 30.0  # seconds a flush at the end may take for each worker


@dataclass(frozen=True, slots=True)
class Load:
    """rate: records per second of each worker; size: bytes of a record, about.

    Racers append to the last of the partitions, everybody else to the others.
    """

    topic: str
    partitions: int
    workers: int = 3
    rate: int = 400
    size: int = 100
    racers: int = 2

    @property
    def raced(self) -> int:
        return self.partitions - 1

    @property
    def plain(self) -> int:
        """Number of partitions without races: the first ones."""
        return self.partitions - 1


@dataclass(slots=True)
class Timeline:
    """Times of events, for the report. Times are seconds since the start."""

    started: float = field(default_factory=time.monotonic)
    acknowledged: dict[int, int] = field(default_factory=dict)  # tenth of a second -> records
    errors: list[tuple[float, str]] = field(default_factory=list)
    # partition -> tenths of a second in which something was acknowledged there
    served: dict[int, set[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    def acknowledge(self, partition: int) -> None:
        tenth = int(self.now * 10)
        with self._lock:
            self.acknowledged[tenth] = self.acknowledged.get(tenth, 0) + 1
            self.served.setdefault(partition, set()).add(tenth)

    def error(self, text: str) -> None:
        with self._lock:
            self.errors.append((self.now, text))


class Writer(threading.Thread):
    """One producer: a steady stream to all partitions in turn, for ever the same order."""

    def __init__(
        self,
        worker: int,
        bootstrap: str,
        load: Load,
        writes: Writes,
        timeline: Timeline,
        told: list[Told],
    ) -> None:
        super().__init__(name=f"writer-{worker}")
        self._worker, self._load, self._writes, self._timeline = worker, load, writes, timeline
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=2, batch_size=16 * 1024)
        self._told = told
        self._stop_asked = threading.Event()
        self.fatal = ""

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        per_tick = max(1, int(self._load.rate * TICK))
        try:
            while not self._stop_asked.wait(TICK):
                for _ in range(per_tick):
                    self._send()
        except ProducerFatalError as error:
            self.fatal = str(error)
            self._timeline.error(f"worker {self._worker}: {error}")

    def finish(self) -> None:
        """Waits for records on their way, and closes."""
        try:
            self._producer.flush(timeout_ms=1000 * STUCK)
        except OncelogError as error:
            self._timeline.error(f"worker {self._worker} at the end: {error}")
        try:
            self._producer.close()
        except OncelogError as error:
            self._timeline.error(f"worker {self._worker} at its close: {error}")

    def _send(self) -> None:
        number = self._writes.sent(-1)
        partition = number % self._load.plain
        self._writes.partitions[number] = partition
        value = value_of(self._worker, number, self._load.size)
        try:
            future = self._producer.send(self._load.topic, value, partition=partition)
        except (BufferFullError, ProducerFatalError):
            self._writes.refused(number)  # refused before it was queued
            raise
        future.add_done_callback(partial(self._done, number))

    def _done(self, number: int, future: Future[RecordMetadata]) -> None:
        error = future.exception()
        if error is None:
            metadata = future.result()
            self._told += told_of(metadata)
            self._writes.acknowledged(number, metadata.partition, metadata.offset)
            self._timeline.acknowledge(metadata.partition)
        else:
            # A refusal that the client is sure of is judged like an acknowledgement.
            if is_refusal(error):
                self._writes.refused(number)
            kind = "timed out" if isinstance(error, DeliveryTimeoutError) else "failed"
            self._timeline.error(f"worker {self._worker}: {kind}: {error}")


class Reader(threading.Thread):
    """A raw reader, without a client's help.

    leaders: each partition from start to end at its leader; else random places of random replicas.
    """

    def __init__(
        self,
        number: int,
        addresses: dict[int, str],
        load: Load,
        note: Callable[[Read], None],
        rng: random.Random,
        *,
        leaders: bool,
    ) -> None:
        super().__init__(name=f"reader-{number}")
        self._number, self._load, self._note, self._rng = number, load, note, rng
        self._apis = {node: Api(address) for node, address in addresses.items()}
        self._leaders = leaders
        self._positions = dict.fromkeys(range(load.partitions), 0)
        self._at = dict.fromkeys(range(load.partitions), min(addresses))
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        try:
            while not self._stop_asked.wait(READ_PAUSE):
                for partition in range(self._load.partitions):
                    try:
                        self._read(partition)
                    except grpc.RpcError:
                        self._at[partition] = self._rng.choice(list(self._apis))
        finally:
            for api in self._apis.values():
                api.close()

    def _read(self, partition: int) -> None:
        if self._leaders:
            node, asked = self._at[partition], self._positions[partition]
        else:
            node = self._rng.choice(list(self._apis))
            asked = self._rng.randint(0, self._positions[partition])
        records = self._apis[node].fetch(
            self._load.topic,
            partition,
            asked,
            any_replica=not self._leaders,
            max_bytes=READ_BYTES,
            timeout=1.0,
        )
        if records.error:
            if self._leaders:
                leads = records.leader_id in self._apis
                self._at[partition] = (
                    records.leader_id if leads else self._rng.choice(list(self._apis))
                )
            return
        values: list[bytes] = []
        for stored in records.batches:
            column, _ = values_and_keys(decompress(stored.header.codec, stored.payload))
            values += [value or b"" for value in column]
        first = records.batches[0].base_offset if records.batches else asked
        self._note(
            Read(
                self._number,
                node,
                partition,
                asked,
                first,
                records.high_watermark,
                self._leaders,
                tuple(values),
            )
        )
        end = first + len(values)
        self._positions[partition] = max(self._positions[partition], end)


class Workload:
    """All clients of one run."""

    def __init__(
        self, bootstrap: str, addresses: dict[int, str], load: Load, rng: random.Random
    ) -> None:
        self.load, self.history, self.timeline = load, History(), Timeline()
        self.writers = [
            Writer(
                worker, bootstrap, load, self.history.of(worker), self.timeline, self.history.told
            )
            for worker in range(load.workers)
        ]
        note = self.timeline.error
        self.racers = [
            Racer(
                bootstrap,
                load.topic,
                load.raced,
                load.size,
                self.history.of(load.workers + number, "conditional"),
                note,
                self.history.told,
            )
            for number in range(load.racers)
        ]
        self.takeovers = Takeovers(bootstrap, load.topic, load.plain, load.size, self.history, note)
        self.readers = [
            Reader(
                number,
                addresses,
                load,
                self.history.reads.append,
                random.Random(rng.random()),
                leaders=number == 0,
            )
            for number in range(2)
        ]

    def start(self) -> None:
        for thread in (*self._producing, *self.readers):
            thread.start()

    @property
    def _producing(self) -> list[Writer | Racer | Takeovers]:
        return [*self.writers, *self.racers, self.takeovers]

    def stop(self) -> None:
        """Ends all that write, waits for their acknowledgements, then ends the readers."""
        for writer in self._producing:
            writer.stop()
        for writer in self._producing:
            writer.join()
            writer.finish()
        for reader in self.readers:
            reader.stop()
        for reader in self.readers:
            reader.join()
