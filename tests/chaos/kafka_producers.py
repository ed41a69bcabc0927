"""Producers of Kafka's clients while leaders are killed: each record once and in order, or not.

Load --numbers, one sequence a partition--> leaders, killed again and again
check --all that is stored--> lost, twice, out of order
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from confluent_kafka import KafkaError, Message, Producer

from harness.local_cluster import LocalCluster
from tests.integration.kafka.kafka_rig import admin, create, read, servers

PARTITIONS = 3
DELIVERY_MS = 120_000
FLUSH_TIMEOUT = 150.0
PATIENCE = 60.0
ROOM = 5_000  # records that wait for their acknowledgement
PER_TURN = 50  # records between two looks at the acknowledgements


@dataclass(frozen=True, slots=True)
class Found:
    """Records of a load, all partitions together. disordered: behind a later one."""

    sent: int
    lost: int
    twice: int
    disordered: int


class Load(ABC):
    """Sends numbers to each partition until it is stopped. Each is stored once, says the client."""

    client: ClassVar[str]

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int, *, once: bool) -> None:
        self.cluster, self.once = cluster, once
        self.topic, self.partitions = topic, partitions
        self.sent = [0] * partitions
        self.faults: list[str] = []
        self.delivered = 0
        self._progress = threading.Condition()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def hold(self) -> None:
        """Stops to send until `go`."""

    @abstractmethod
    def go(self) -> None: ...

    @abstractmethod
    def finish(self) -> None:
        """Stops to send, and waits until all is acknowledged."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sends during the body, and then until all is acknowledged."""
        self.start()
        try:
            yield
        finally:
            self.finish()
        assert not self.faults, self.faults[0]

    def wait_for(self, more: int) -> None:
        """Waits until so many more records are acknowledged."""
        wanted = self.delivered + more
        with self._progress:
            assert self._progress.wait_for(
                lambda: self.delivered >= wanted or bool(self.faults), PATIENCE
            ), f"{self.delivered} of {self.client}'s records are acknowledged, not {wanted}"

    def note(self, delivered: int, fault: str = "") -> None:
        """Counts records that are acknowledged, or were given up."""
        with self._progress:
            if fault:
                self.faults.append(fault)
            self.delivered += delivered
            self._progress.notify_all()


class LibrdkafkaLoad(Load):
    """A load of librdkafka's producer, in a thread."""

    client = "librdkafka"

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int, *, once: bool) -> None:
        super().__init__(cluster, topic, partitions, once=once)
        self._stop, self._flowing = threading.Event(), threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers(cluster),
                "enable.idempotence": once,
                "acks": "all",
                "linger.ms": 2,
                "retries": 2_147_483_647,
                "retry.backoff.ms": 50,
                "message.timeout.ms": DELIVERY_MS,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # killed nodes are no news
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._flowing.set()
        self._thread.start()

    def hold(self) -> None:
        self._flowing.clear()

    def go(self) -> None:
        self._flowing.set()

    def finish(self) -> None:
        self._stop.set()
        self._flowing.set()
        self._thread.join(FLUSH_TIMEOUT)
        assert not self._producer.flush(FLUSH_TIMEOUT), "records are still on their way"

    def _run(self) -> None:
        while not self._stop.is_set():
            while not self._flowing.is_set():
                self._producer.poll(0.05)
            for _ in range(PER_TURN):
                for partition in range(self.partitions):
                    value = b"%d" % self.sent[partition]
                    self.sent[partition] += 1
                    self._producer.produce(
                        self.topic, value, partition=partition, on_delivery=self._on_delivery
                    )
            self._producer.poll(0)
            while len(self._producer) > ROOM and not self._stop.is_set():
                self._producer.poll(0.05)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        self.note(1, "" if error is None else str(error))


def kill_leaders(cluster: LocalCluster, loads: Sequence[Load], times: int) -> None:
    """Kills the leader of a partition with SIGKILL under load, and starts it again; in turn.

    The node has the processors for itself when it starts.
    """
    for number in range(times):
        _wait_for_all(loads)
        load = loads[number % len(loads)]
        killed = cluster.leader(load.topic, number % load.partitions)
        cluster.kill([killed])
        _wait_for_all(loads)
        for load in loads:
            load.hold()
        cluster.start_nodes([killed])
        for load in loads:
            load.go()


def _wait_for_all(loads: Sequence[Load]) -> None:
    for load in loads:
        load.wait_for(500)


def run(
    cluster: LocalCluster, topic: str, kills: int, kinds: Sequence[type[Load]], *, once: bool
) -> dict[str, Found]:
    """Kills leaders under a load of each kind, and checks what is stored of each client.

    topic: prefix of the loads' topics, which it makes. once: idempotent producers.
    """
    client = admin(cluster)
    loads = [kind(cluster, f"{topic}-{kind.client}", PARTITIONS, once=once) for kind in kinds]
    with ExitStack() as ends:
        for load in loads:
            create(client, load.topic, PARTITIONS)
            ends.enter_context(load.running())
        kill_leaders(cluster, loads, kills)
    return {load.client: check(cluster, load) for load in loads}


def check(cluster: LocalCluster, load: Load) -> Found:
    """Reads all that is stored, and compares it with the records that were sent."""
    lost = twice = disordered = 0
    for partition, sent in enumerate(load.sent):
        count = cluster.latest(load.topic, partition)
        numbers = [int(one.value() or b"") for one in read(cluster, load.topic, partition, count)]
        lost += sent - len(set(numbers))
        twice += len(numbers) - len(set(numbers))
        disordered += _behind(numbers)
    return Found(sum(load.sent), lost, twice, disordered)


def _behind(numbers: Sequence[int]) -> int:
    """How many numbers stand behind a higher one."""
    count, highest = 0, -1
    for number in numbers:
        count += number < highest
        highest = max(highest, number)
    return count
