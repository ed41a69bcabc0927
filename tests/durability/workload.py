"""Producers that keep writing through every fault, and the check of the remaining records.

    Workload: one thread for each producer, one batch at a time, again until it is answered
              well --> acks: (topic, partition, producer, sequence) -> offset
    problems: every replica against the acks and against each other

A batch's payload follows from its producer and its sequence, so the check knows the record at
each place. It knows the protocol, nothing of the broker's code.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import grpc

from harness.api import Api, batch, verdict
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog.v1 import batch_pb2

TIMEOUT = 60.0  # seconds for one batch, and for a number of acknowledgements
CALL_TIMEOUT = 5.0
TRY_AGAIN = 0.05  # seconds; a node that is down answers at once
RECORDS = 2  # in each batch

Key = tuple[str, int, int, int]  # topic, partition, producer id, base sequence


def payload_of(producer_id: int, sequence: int, size: int) -> bytes:
    """Builds a payload, of varying size."""
    text = b"%d:%d:" % (producer_id, sequence)
    return text + bytes((producer_id * 31 + sequence + i) % 251 for i in range(size))


def size_of(sequence: int) -> int:
    return 20 + sequence * 397 % 3000


@dataclass(slots=True)
class Acks:
    """Acknowledged batches and their offsets."""

    offsets: dict[Key, int] = field(default_factory=dict)
    lock: threading.Condition = field(default_factory=threading.Condition)

    def note(self, key: Key, offset: int) -> None:
        with self.lock:
            self.offsets[key] = offset
            self.lock.notify_all()

    def of(self, topic: str | None) -> int:
        """Counts acknowledgements, of one topic or of all."""
        return sum(topic is None or key[0] == topic for key in self.offsets)

    def wait(self, count: int, topic: str | None) -> None:
        """Waits until there are `count` acknowledgements."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.of(topic) >= count, TIMEOUT), (
                f"{self.of(topic)} batches acknowledged after {TIMEOUT} s, {count} wanted"
            )


class Workload:
    """Writers, `producers` for each partition of each topic, until `stop`."""

    def __init__(
        self, cluster: LocalCluster, topics: Mapping[str, int], producers: int = 3
    ) -> None:
        self.acks = Acks()
        self.failures: list[str] = []
        self._addresses = dict(cluster.addresses)
        self._tokens = cluster.tokens
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(topic, partition, cluster.api(1).lease().producer_id),
                daemon=True,
            )
            for topic, partitions in topics.items()
            for partition in range(partitions)
            for _ in range(producers)
        ]

    def start(self) -> Workload:
        for thread in self._threads:
            thread.start()
        return self

    def more(self, count: int, topic: str | None = None) -> None:
        """Waits for `count` more acknowledgements than there are now, of a topic or of all."""
        with self.acks.lock:
            now = self.acks.of(topic)
        self.acks.wait(now + count, topic)

    def stop(self) -> None:
        """Lets each producer finish its batch. Raises AssertionError if one had to give up."""
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT + CALL_TIMEOUT)
        assert not self.failures, self.failures

    def _run(self, topic: str, partition: int, producer_id: int) -> None:
        apis = {node: Api(address, self._tokens) for node, address in self._addresses.items()}
        node, sequence = min(apis), 0
        try:
            while not self._stop.is_set():
                payload = payload_of(producer_id, sequence, size_of(sequence))
                one = batch(topic, partition, producer_id, sequence, payload, count=RECORDS)
                answer = self._send(apis, node, one)
                if answer is None:
                    return
                node, offset = answer
                self.acks.note((topic, partition, producer_id, sequence), offset)
                sequence += RECORDS
        finally:
            for api in apis.values():
                api.close()

    def _send(
        self, apis: Mapping[int, Api], node: int, one: batch_pb2.Batch
    ) -> tuple[int, int] | None:
        """Sends a batch until it is stored: (leader, offset or -1). None: refused or unanswered."""
        answered: str = "nothing"
        for _ in range(int(TIMEOUT / TRY_AGAIN)):
            try:
                (result,) = apis[node].produce(one, timeout_ms=2000, timeout=CALL_TIMEOUT)
            except grpc.RpcError as error:
                answered = str(error)
            else:
                answered = verdict(result)
                if answered in ("APPENDED", "DUPLICATE"):
                    return node, result.base_offset
                if answered not in ("NOT_LEADER", "NOT_READY", "TIMEOUT", "THROTTLED"):
                    self.failures.append(f"{one.header}: {result}")
                    return None
            node = node % len(apis) + 1
            threading.Event().wait(TRY_AGAIN)
        self.failures.append(f"{one.header}: last answer {answered}")
        return None


# -- the check ----------------------------------------------------------------------------


def problems(cluster: LocalCluster, topics: Mapping[str, int], acks: Acks) -> list[str]:
    """Finds records that are lost, doubled, disordered, changed, or unequal on replicas."""
    found: list[str] = []
    for topic, partitions in topics.items():
        cluster.wait_level(topic)
        for node in cluster.running:
            for partition in range(partitions):
                mine = {k: o for k, o in acks.offsets.items() if k[:2] == (topic, partition)}
                where = f"node {node}, {topic}-{partition}"
                stored = list(cluster.api(node).stored(topic, partition))
                start = cluster.api(node).offset(topic, partition, "earliest", any_replica=True)
                found += [f"{where}: {text}" for text in replica_problems(stored, start, mine)]
        apis = {node: cluster.api(node) for node in cluster.running}
        found += compare(apis, topic, range(partitions))
    return found


def replica_problems(
    stored: Iterable[batch_pb2.StoredBatch], start: int, acked: Mapping[Key, int]
) -> list[str]:
    """Checks one replica of one partition; `start`: its log start, nothing below is expected."""
    found: list[str] = []
    places: dict[tuple[int, int], int] = {}
    next_sequence: dict[int, int] = {}
    end = start
    for one in stored:
        pid, sequence = one.header.producer_id, one.header.base_sequence
        if (pid, sequence) in places:
            found.append(f"{pid}:{sequence} twice, {places[pid, sequence]} and {one.base_offset}")
        if sequence != next_sequence.get(pid, sequence):
            found.append(f"{pid}:{sequence} stored where {next_sequence[pid]} was due")
        if one.payload != payload_of(pid, sequence, size_of(sequence)):
            found.append(f"{pid}:{sequence} has another payload")
        places[pid, sequence] = one.base_offset
        next_sequence[pid] = sequence + RECORDS
        end = one.base_offset + RECORDS
    for (_, _, pid, sequence), offset in acked.items():
        place = places.get((pid, sequence))
        if place is None:
            # Below the start by retention, if its place is known or later ones are gone too.
            if start == 0 or offset >= start:
                found.append(f"{pid}:{sequence} acknowledged at {offset} is lost (end {end})")
        elif offset not in (-1, place):
            found.append(f"{pid}:{sequence} acknowledged at {offset} is at {place}")
    return found
