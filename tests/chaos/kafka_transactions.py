"""librdkafka's transactions while leaders and coordinators are killed: whole, once, or not at all.

    Writer --transactions over all partitions, commits and aborts--> nodes, killed again and again
    check --all that can be read--> torn, lost, twice, aborted, apart

Two writers share each transactional id in turn: a new instance fences the one before, whose last
transaction is then in doubt.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.local_cluster import LocalCluster
from tests.chaos.kafka_producers import FLUSH_TIMEOUT, PARTITIONS
from tests.integration.kafka.kafka_rig import admin, create, read, servers

WRITERS = 2
STEP_TIMEOUT = 60.0
MOST_RECORDS = 5  # of a transaction in a partition
TOPIC = "transactions"
COMMITTED, ABORTED, IN_DOUBT = "committed", "aborted", "in doubt"


@dataclass(frozen=True, slots=True)
class Read:
    """All transactions of a run, by their outcome, and what is wrong with the records read."""

    committed: int
    aborted: int
    in_doubt: int
    faults: tuple[str, ...]


@dataclass(slots=True)
class Told:
    """A transaction as its writer knows it. values: of its records, by partition."""

    values: dict[int, list[bytes]]
    outcome: str = IN_DOUBT


@dataclass(slots=True)
class Writer:
    """Writes one transaction after the other; after a fatal error by a new instance."""

    cluster: LocalCluster
    name: str
    rng: random.Random
    stop: threading.Event
    progress: threading.Condition
    told: list[Told] = field(default_factory=list)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                try:
                    self._instance()
                except KafkaException as error:
                    if not self._goes_on(error.args[0]):
                        raise
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    @staticmethod
    def _goes_on(error: KafkaError) -> bool:
        """Whether a new instance is the answer, as it is to a client's fatal errors."""
        return bool(error.fatal() or error.retriable() or error.code() == KafkaError._STATE)

    def _instance(self) -> None:
        producer = Producer(
            {"bootstrap.servers": servers(self.cluster), "transactional.id": self.name,
             "transaction.timeout.ms": 30_000, "linger.ms": 1, "log_level": 0,
             "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50,
             "topic.metadata.refresh.fast.interval.ms": 50}
        )  # fmt: skip
        producer.init_transactions(STEP_TIMEOUT)
        for _ in range(self.rng.randint(5, 60)):
            if self.stop.is_set():
                return
            self._transaction(producer)

    def _transaction(self, producer: Producer) -> None:
        number = len(self.told)
        told = Told(
            {
                partition: [
                    b"%s/%d/%d/%d" % (self.name.encode(), number, partition, record)
                    for record in range(self.rng.randint(1, MOST_RECORDS))
                ]
                for partition in range(PARTITIONS)
            }
        )
        self.told.append(told)
        commits = self.rng.random() < 0.7
        producer.begin_transaction()
        try:
            self._produce(producer, told)
            if commits:
                self._end(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            commits = False
        if not commits:
            self._end(producer.abort_transaction)
        told.outcome = COMMITTED if commits else ABORTED
        with self.progress:
            self.progress.notify_all()

    def _produce(self, producer: Producer, told: Told) -> None:
        faults: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                faults.append(error)

        for partition, values in told.values.items():
            for value in values:
                producer.produce(TOPIC, value, partition=partition, on_delivery=on_delivery)
        producer.flush(FLUSH_TIMEOUT)

    @staticmethod
    def _end(end: object) -> None:
        """Commit or abort; a retriable error means: call it again."""
        assert callable(end)
        while True:
            try:
                end(STEP_TIMEOUT)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


@contextmanager
def running(writers: list[Writer], stop: threading.Event) -> Iterator[None]:
    """Writes during the body."""
    threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
    with ExitStack() as ends:
        for thread in threads:
            thread.start()
            ends.callback(thread.join, 4 * STEP_TIMEOUT)
        ends.callback(stop.set)
        yield
    assert not any(thread.is_alive() for thread in threads)
    for writer in writers:
        if writer.error is not None:
            raise writer.error


def run(cluster: LocalCluster, kills: int, seed: int = 1) -> Read:
    """Makes the topic, kills leaders and coordinators under load, and checks all that is read."""
    client = admin(cluster)
    create(client, TOPIC, PARTITIONS)
    stop, progress = threading.Event(), threading.Condition()
    writers = [
        Writer(cluster, f"writer-{number}", random.Random(seed + number), stop, progress)
        for number in range(WRITERS)
    ]

    def more(count: int) -> None:
        wanted = sum(len(writer.told) for writer in writers) + count
        with progress:
            assert progress.wait_for(
                lambda: (
                    sum(len(writer.told) for writer in writers) >= wanted
                    or any(writer.error for writer in writers)
                ),
                4 * STEP_TIMEOUT,
            ), "no transaction ends"

    with running(writers, stop):
        for number in range(kills):
            more(20)
            killed = cluster.leader(TOPIC, number % PARTITIONS)
            if number % 2:
                killed = client.list_topics(timeout=STEP_TIMEOUT).controller_id
            cluster.kill([killed])
            more(20)
            cluster.start_nodes([killed])
        more(20)
    for writer in writers:  # a transaction in doubt ends
        last = Producer({"bootstrap.servers": servers(cluster), "transactional.id": writer.name})
        last.init_transactions(STEP_TIMEOUT)
    return check(
        [told for writer in writers for told in writer.told],
        {
            partition: [
                one.value() or b""
                for one in read(cluster, TOPIC, partition, cluster.latest(TOPIC, partition))
            ]
            for partition in range(PARTITIONS)
        },
    )


def check(told: list[Told], found: dict[int, list[bytes]]) -> Read:
    """Compares each transaction with the records of each partition. Pure."""
    places: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for partition, values in found.items():
        for offset, value in enumerate(values):
            places[value].append((partition, offset))
    faults = [f"twice: {value!r} at {at}" for value, at in places.items() if len(at) > 1]
    for one in told:
        every = [value for values in one.values.values() for value in values]
        there = [value for value in every if value in places]
        if one.outcome == ABORTED and there:
            faults.append(f"aborted, and can be read: {there}")
        elif one.outcome == COMMITTED and there != every:
            faults.append(f"lost: {sorted(set(every) - set(there))}")
        elif there not in ([], every):
            faults.append(f"torn: only {there} of {every}")
        for partition, values in one.values.items() if there == every else ():
            first = places[values[0]][0][1]
            if [places[value][0] for value in values] != [
                (partition, first + at) for at in range(len(values))
            ]:
                faults.append(f"apart: {values} at {[places[value] for value in values]}")
    known = {value for one in told for values in one.values.values() for value in values}
    faults += [f"from nowhere: {value!r}" for value in places.keys() - known]
    counts = Counter(one.outcome for one in told)
    return Read(counts[COMMITTED], counts[ABORTED], counts[IN_DOUBT], tuple(faults))
