"""List-append over transactions while faults happen; then every replica is read and judged.

    scripts/chaos transactions --minutes N --faults LIST --seed S

Workers append records to several partitions in one transaction, and commit it, abort it, or
are taken over by a successor of their name and try to commit all the same. Readers look at
leaders and at random replicas all the while.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from harness.api import Api
from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from harness.payload import decompress, values_and_keys
from oncelog import (
    CommitTimeoutError,
    OncelogError,
    Producer,
    ProducerFatalError,
    Transaction,
    TransactionError,
)
from tests.chaos.faults import FAULTS
from tests.chaos.run import inject_each
from tests.chaos.transaction_checker import NO, UNKNOWN, YES, Check, History, Id, Seen, Txn, check

READ_PAUSE = 0.03
RETRY_PAUSE = 0.2
STUCK = 60.0  # seconds that a worker may take for its last transaction
ABORTS, TAKEOVERS = 0.12, 0.05  # of all transactions


@dataclass(frozen=True, slots=True)
class Load:
    """unprotected: the same without transactions, to show that the checker notices."""

    topic: str
    partitions: int = 4
    workers: int = 4
    unprotected: bool = False


@dataclass(slots=True)
class Result:
    seed: int
    seconds: float
    history: History
    checks: list[Check]
    events: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        return all(one.holds for one in self.checks)


class Worker(threading.Thread):
    """One producer name: one transaction after the other."""

    def __init__(
        self, number: int, bootstrap: str, load: Load, rng: random.Random, counts: Counter[str]
    ) -> None:
        super().__init__(name=f"appender-{number}")
        self._number, self._servers, self._load, self._rng = number, bootstrap, load, rng
        self._counts = counts
        self._stop_asked = threading.Event()
        self._producer = self._made()
        self.txns: list[Txn] = []
        self.ended_well = False  # else a bug, of ours or of the client

    def _made(self) -> Producer:
        # Short times, so that their ends are seen, too.
        patient = self._number % 2 == 0
        return Producer(
            bootstrap_servers=self._servers,
            producer_name=None if self._load.unprotected else f"appender-{self._number}",
            linger_ms=self._rng.choice((0, 2)),
            batch_size=self._rng.choice((256, 16_384)),
            request_timeout_ms=10_000 if patient else 2_000,
            delivery_timeout_ms=60_000 if patient else 4_000,
        )

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._transact()
            self.ended_well = True
        finally:
            with suppress(OncelogError):
                self._producer.close(timeout_ms=1000 * STUCK)

    def _transact(self) -> None:
        txn = Txn(self._number, len(self.txns))
        self.txns.append(txn)
        try:
            self._play(txn)
        except ProducerFatalError as error:
            # Before a commit call the outcome is certain after any error.
            txn.outcome = NO if error.outcome != "unknown" else txn.outcome
            self._renew()
        except (CommitTimeoutError, TransactionError) as error:
            txn.outcome = NO if error.outcome == "not_stored" else UNKNOWN
            self._counts[type(error).__name__] += 1
        except OncelogError as error:
            self._counts[type(error).__name__] += 1
            if not txn.appends:
                txn.outcome = NO
            time.sleep(RETRY_PAUSE)
        self._counts[txn.outcome] += 1

    def _renew(self) -> None:
        self._counts["new producers"] += 1
        with suppress(OncelogError):
            self._producer.close(timeout_ms=0)
        self._producer = self._made()

    def _play(self, txn: Txn) -> None:
        rng, plan = self._rng, self._rng.random()
        sends = [rng.randrange(self._load.partitions) for _ in range(rng.randint(1, 8))]
        if self._load.unprotected:
            self._append(txn, sends, self._producer)
            self._producer.flush(timeout_ms=1000 * STUCK)
            txn.outcome = NO if plan < ABORTS else YES
            return
        handle = self._producer.transaction(idle_timeout_ms=15_000).begin()
        try:
            futures = self._append(txn, sends, handle)
            if plan < ABORTS:
                # Nobody asked to commit: it is never readable, even if the abort fails.
                txn.outcome = NO
                handle.abort()
                return
            if plan < ABORTS + TAKEOVERS:
                self._take_over()
            self._commit(txn, handle)
        except BaseException:
            self._give_up(txn, handle)
            raise
        for future in futures:
            txn.offsets.append(future.result(0).offset)

    def _append(self, txn: Txn, sends: Sequence[int], to: Any) -> list[Any]:
        futures = []
        for position, partition in enumerate(sends):
            txn.appends.append(partition)
            value = Id(txn.worker, txn.number, position).value
            futures.append(to.send(self._load.topic, value, partition=partition))
            if self._rng.random() < 0.2:
                time.sleep(self._rng.uniform(0, 0.03))  # a transaction takes its time
        return futures

    def _take_over(self) -> None:
        """Has a successor lease the name and begin; the zombie tries to commit all the same."""
        self._counts["takeovers"] += 1
        zombie, self._producer = self._producer, self._made()
        threading.Timer(STUCK / 4, lambda: _closed(zombie)).start()
        self._producer.transaction().begin().abort()

    def _commit(self, txn: Txn, handle: Transaction) -> None:
        deadline = time.monotonic() + STUCK
        while True:
            try:
                answer = handle.commit()
            except CommitTimeoutError:
                self._counts["commits without an answer"] += 1
                if time.monotonic() > deadline:
                    raise
                continue  # not known yet: the same call again
            txn.outcome = YES
            txn.places = {tp.partition: tuple(run) for tp, run in answer.runs.items()}  # type: ignore[misc]
            return

    def _give_up(self, txn: Txn, handle: Transaction) -> None:
        """Gives a transaction up after an error: without a commit call it is not there."""
        if handle.state == "open":
            txn.outcome = NO
            with suppress(OncelogError):
                handle.abort()
        elif handle.state == "aborted":
            txn.outcome = NO


def _closed(producer: Producer) -> None:
    with suppress(OncelogError):
        producer.close(timeout_ms=0)


class Auditor(threading.Thread):
    """A raw reader: leaders from start to end, or random places of random replicas."""

    def __init__(
        self,
        addresses: dict[int, str],
        load: Load,
        seen: dict[int, Seen],
        rng: random.Random,
        *,
        leaders: bool,
    ) -> None:
        super().__init__(name="auditor")
        self._load, self._seen, self._rng, self._leaders = load, seen, rng, leaders
        self._apis = {node: Api(address) for node, address in addresses.items()}
        self._positions = dict.fromkeys(range(load.partitions), 0)
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        try:
            while not self._stop_asked.wait(READ_PAUSE):
                for partition in range(self._load.partitions):
                    with suppress(grpc.RpcError):
                        self._read(partition)
        finally:
            for api in self._apis.values():
                api.close()

    def _read(self, partition: int) -> None:
        position = self._positions[partition]
        start = position if self._leaders else self._rng.randint(0, position)
        found = self._apis[self._rng.choice(list(self._apis))].fetch(
            self._load.topic,
            partition,
            start,
            any_replica=not self._leaders,
            max_bytes=64 * 1024,
            timeout=1.0,
        )
        if found.error:
            return
        values: list[bytes] = []
        for stored in found.batches:
            column, _ = values_and_keys(decompress(stored.header.codec, stored.payload))
            values += [value or b"" for value in column]
        first = found.batches[0].base_offset if found.batches else start
        self._seen[partition].note(first, values, found.high_watermark)
        self._positions[partition] = max(position, first + len(values))


def run(
    cluster: LocalCluster,
    *,
    seconds: float,
    faults: Sequence[str],
    seed: int,
    load: Load,
    say: Callable[[str], None],
) -> Result:
    """Runs for `seconds` at least, and until each fault was there once. The cluster must serve."""
    rng = random.Random(seed)
    cluster.api(cluster.running[0]).create_topic(load.topic, load.partitions, 0)
    kinds = [FAULTS[name](cluster, load.topic, load.partitions) for name in faults]
    counts: Counter[str] = Counter()
    seen = [{partition: Seen() for partition in range(load.partitions)} for _ in range(2)]
    workers = [
        Worker(number, cluster.bootstrap, load, random.Random(rng.random()), counts)
        for number in range(load.workers)
    ]
    auditors = [
        Auditor(cluster.addresses, load, seen[n], random.Random(rng.random()), leaders=n == 0)
        for n in range(2)
    ]
    started = time.monotonic()
    for thread in (*workers, *auditors):
        thread.start()
    try:
        events = inject_each(kinds, seconds, rng, say)
    finally:
        for thread in workers:
            thread.stop()
        for thread in workers:
            thread.join()
        for auditor in auditors:
            auditor.stop()
        for auditor in auditors:
            auditor.join()
    if not all(worker.ended_well for worker in workers):
        raise HarnessError("a worker died; its traceback is above")
    say("reading all replicas")
    cluster.wait_level(load.topic)
    history = History([txn for worker in workers for txn in worker.txns], _joined(seen))
    history.logs = {
        (node, partition): _values(cluster.api(node), load.topic, partition)
        for node in cluster.nodes
        for partition in range(load.partitions)
    }
    return Result(seed, time.monotonic() - started, history, check(history), events, counts)


def _joined(seen: Sequence[dict[int, Seen]]) -> dict[int, Seen]:
    """Joins the views of all readers."""
    joined = seen[0]
    for other in seen[1:]:
        for partition, one in other.items():
            for offset, value in one.values.items():
                joined[partition].note(offset, [value], 0)
            joined[partition].ends |= one.ends
            joined[partition].changed += one.changed
    return joined


def _values(api: Api, topic: str, partition: int) -> list[bytes]:
    values: list[bytes] = []
    for stored in api.stored(topic, partition):
        column, _ = values_and_keys(decompress(stored.header.codec, stored.payload))
        values += [value or b"" for value in column]
    return values


def lines(result: Result) -> list[str]:
    """Builds the report, for people."""
    counts = ", ".join(f"{count} {what}" for what, count in sorted(result.counts.items()))
    records = {key[1]: len(values) for key, values in result.history.logs.items()}
    looks = sum(len(seen.ends) for seen in result.history.seen.values())
    said = [
        f"seed {result.seed}, {result.seconds:.0f} s, {len(result.events)} faults",
        f"{len(result.history.txns)} transactions: {counts}",
        f"{sum(records.values())} records in {len(records)} partitions, {looks} ends were seen",
    ]
    for one in result.checks:
        said.append(f"{'holds' if one.holds else 'BROKEN':8} {one.name:10} {one.says}")
        said += [f"           {text}" for text in one.anomalies[:5]]
    return said
