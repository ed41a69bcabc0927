"""Transactions of Kafka's clients while leaders and coordinators are killed: whole or not at all.

    Writer --transactions over all partitions, commits and aborts--> Session of a client
    Session --> nodes, killed again and again
    check --all that can be read--> torn, lost, twice, aborted, apart

Sessions have a writer's transactional id in turn. Each one ends in the middle of a transaction,
and the next one fences it.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from confluent_kafka import KafkaError, KafkaException, Producer

from harness.local_cluster import LocalCluster
from tests.chaos.kafka_producers import FLUSH_TIMEOUT, PARTITIONS
from tests.integration.kafka.kafka_rig import admin, create, read, servers

MORE = 10  # transactions of each writer between two faults
STEP_TIMEOUT = 60.0
MOST_RECORDS = 5  # of a transaction in a partition
COMMITTED, ABORTED, IN_DOUBT = "committed", "aborted", "in doubt"


@dataclass(frozen=True, slots=True)
class Read:
    """All transactions of a run, by their outcome, and what is wrong with the records read.

    clients: how many of the committed are whose.
    """

    committed: int
    clients: Mapping[str, int]
    aborted: int
    in_doubt: int
    faults: tuple[str, ...]


@dataclass(slots=True)
class Told:
    """A transaction as its writer knows it. values: of its records, by partition."""

    values: dict[int, list[bytes]]
    outcome: str = IN_DOUBT
    client: str = ""


class MustAbortError(Exception):
    """The transaction can only be aborted."""


class EndedError(Exception):
    """The session can do nothing more: a new one is the answer."""


class Session(ABC):
    """One transactional producer. Its calls raise MustAbortError or EndedError.

    Without a name it has no transactions, and is not idempotent: records are there at once.
    """

    client: ClassVar[str]

    @abstractmethod
    def __init__(self, cluster: LocalCluster, topic: str, name: str) -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, values: Mapping[int, Sequence[bytes]]) -> None:
        """Sends records, and waits for the answers."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def leave(self) -> None:
        """Ends it as it is: its transaction stays open."""


class LibrdkafkaSession(Session):
    client = "librdkafka"

    def __init__(self, cluster: LocalCluster, topic: str, name: str) -> None:
        self._topic, self._named = topic, bool(name)
        kind: dict[str, str | int | bool] = {"enable.idempotence": False}
        if name:
            kind = {"transactional.id": name, "transaction.timeout.ms": 30_000}
        self._producer = Producer(
            {"bootstrap.servers": servers(cluster), "linger.ms": 1, "log_level": 0,
             "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50,
             "topic.metadata.refresh.fast.interval.ms": 50, **kind}
        )  # fmt: skip
        self._call(self._producer.init_transactions, STEP_TIMEOUT)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, values: Mapping[int, Sequence[bytes]]) -> None:
        try:
            for partition, some in values.items():
                for value in some:
                    self._producer.produce(self._topic, value, partition=partition)
        except KafkaException as error:
            raise self._meaning(error.args[0]) from error
        self._producer.flush(FLUSH_TIMEOUT)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, STEP_TIMEOUT)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, STEP_TIMEOUT)

    def leave(self) -> None:
        """The producer goes with its last reference, and tells no node."""
        del self._producer

    def _call(self, call: Callable[..., None], *args: float) -> None:
        """Makes a call of transactions; a retriable error means: call it again."""
        while self._named:
            try:
                call(*args)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._meaning(error.args[0]) from error
            else:
                return

    @staticmethod
    def _meaning(error: KafkaError) -> Exception:
        if error.txn_requires_abort():
            return MustAbortError(str(error))
        ends = error.fatal() or error.retriable() or error.code() == KafkaError._STATE
        return EndedError(str(error)) if ends else KafkaException(error)


@dataclass(slots=True)
class Writer:
    """Writes one transaction after the other, by one session after the other.

    whole: with transactions.
    """

    cluster: LocalCluster
    topic: str
    kind: type[Session]
    name: str
    rng: random.Random
    stop: threading.Event
    progress: threading.Condition
    whole: bool = True
    told: list[Told] = field(default_factory=list)
    left: int = 0  # sessions that ended in the middle of a transaction
    error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                try:
                    self._session()
                except EndedError:
                    pass
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error
        finally:
            with self.progress:
                self.progress.notify_all()

    def _session(self) -> None:
        session = self.kind(self.cluster, self.topic, self.name if self.whole else "")
        try:
            for _ in range(self.rng.randint(3, 30)):
                self._transaction(session)
                if self.stop.is_set():
                    return
            session.begin()
            half = self._next().values
            session.send({partition: half[partition] for partition in (0, 1)})
            self.left += 1
        except MustAbortError:
            pass
        finally:
            session.leave()

    def _next(self) -> Told:
        number = len(self.told)
        values = {
            partition: [
                b"%s/%d/%d/%d" % (self.name.encode(), number, partition, record)
                for record in range(self.rng.randint(1, MOST_RECORDS))
            ]
            for partition in range(PARTITIONS)
        }
        self.told.append(Told(values, client=self.kind.client))
        return self.told[-1]

    def _transaction(self, session: Session) -> None:
        told = self._next()
        commits = not self.whole or self.rng.random() < 0.7
        session.begin()
        try:
            session.send(told.values)
            if commits:
                session.commit()
        except MustAbortError:
            if not self.whole:
                raise
            commits = False
        if not commits:
            session.abort()
        told.outcome = COMMITTED if commits else ABORTED
        with self.progress:
            self.progress.notify_all()


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


def run(
    cluster: LocalCluster,
    kinds: Sequence[type[Session]],
    topic: str,
    kills: int,
    *,
    whole: bool = True,
    seed: int = 1,
) -> Read:
    """Makes the topic, kills leaders and coordinators under load, and checks all that is read.

    whole: with transactions. Each writer leaves in the middle of one at least.
    """
    client = admin(cluster)
    create(client, topic, PARTITIONS)
    stop, progress = threading.Event(), threading.Condition()
    writers = [
        Writer(cluster, topic, kind, f"{topic}-{kind.client}", random.Random(seed + number),
               stop, progress, whole)
        for number, kind in enumerate(kinds)
    ]  # fmt: skip

    def wait_for(condition: Callable[[], bool]) -> None:
        with progress:
            assert progress.wait_for(
                lambda: condition() or any(writer.error for writer in writers), 4 * STEP_TIMEOUT
            ), "no transaction ends"

    def more() -> None:
        wanted = [len(writer.told) + MORE for writer in writers]
        wait_for(lambda: all(len(one.told) >= n for one, n in zip(writers, wanted, strict=True)))

    with running(writers, stop):
        for number in range(kills):
            more()
            killed = cluster.leader(topic, number % PARTITIONS)
            if number % 2:
                killed = client.list_topics(timeout=STEP_TIMEOUT).controller_id
            cluster.kill([killed])
            more()
            cluster.start_nodes([killed])
        more()
        wait_for(lambda: all(writer.left for writer in writers))
    for writer in writers if whole else ():  # a transaction in doubt ends
        LibrdkafkaSession(cluster, topic, writer.name)
    return check(
        [told for writer in writers for told in writer.told],
        {
            partition: [
                one.value() or b""
                for one in read(cluster, topic, partition, cluster.latest(topic, partition))
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
    clients = Counter(one.client for one in told if one.outcome == COMMITTED)
    return Read(counts[COMMITTED], dict(clients), counts[ABORTED], counts[IN_DOUBT], tuple(faults))
