"""librdkafka's producers while leaders are killed: each record once and in order, or not.

Load --numbers, one sequence a partition--> leaders, killed again and again
check --all that is stored--> lost, twice, out of order
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from harness.local_cluster import LocalCluster
from tests.integration.kafka.kafka_rig import admin, create, read, servers

PARTITIONS = 3
DELIVERY_MS = 120_000
FLUSH_TIMEOUT = 150.0
ROOM = 20_000  # records that wait for their acknowledgement
PER_TURN = 200  # records between two looks at the acknowledgements


@dataclass(frozen=True, slots=True)
class Found:
    """Records of a load, all partitions together. disordered: behind a later one."""

    sent: int
    lost: int
    twice: int
    disordered: int


class Load:
    """Sends numbers to each partition until it is stopped. Each is stored once, says librdkafka."""

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int, *, once: bool) -> None:
        self.topic, self.partitions = topic, partitions
        self.sent = [0] * partitions
        self.faults: list[KafkaError] = []
        self.delivered = 0
        self._stop = threading.Event()
        self._progress = threading.Condition()
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

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Sends during the body, and then until all is acknowledged."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(FLUSH_TIMEOUT)
        assert not self._producer.flush(FLUSH_TIMEOUT), "records are still on their way"
        assert not self.faults, self.faults[0]

    def wait_for(self, more: int, timeout: float = 30.0) -> None:
        """Waits until so many more records are acknowledged."""
        wanted = self.delivered + more
        with self._progress:
            assert self._progress.wait_for(
                lambda: self.delivered >= wanted or bool(self.faults), timeout
            ), f"{self.delivered} acknowledged, not {wanted}"

    def _run(self) -> None:
        while not self._stop.is_set():
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
        with self._progress:
            if error is not None:
                self.faults.append(error)
            self.delivered += 1
            self._progress.notify_all()


def kill_leaders(cluster: LocalCluster, load: Load, times: int) -> None:
    """Kills the leader of a partition with SIGKILL under load, and starts it again; in turn."""
    for number in range(times):
        load.wait_for(500)
        killed = cluster.leader(load.topic, number % load.partitions)
        cluster.kill([killed])
        load.wait_for(500)
        cluster.start_nodes([killed])


def run(cluster: LocalCluster, topic: str, kills: int, *, once: bool) -> Found:
    """Makes the topic, kills leaders under load, and checks it. once: idempotent producers."""
    create(admin(cluster), topic, PARTITIONS)
    with Load(cluster, topic, PARTITIONS, once=once).running() as load:
        kill_leaders(cluster, load, kills)
    return check(cluster, load)


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
