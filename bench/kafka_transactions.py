"""Kafka's transactions under the measurements of `bench/transactions.py`.

Three brokers as in `bench.systems.kafka`, clients of confluent-kafka in threads of this process.
A commit is librdkafka's `commit_transaction`: it returns once the coordinator has decided.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from bench.figures import Figures, percentiles
from bench.processes import usage
from bench.systems.kafka import THROUGHPUT, Kafka

TIMEOUT = 60.0
COMMIT_EVERY = 0.1
PARTITIONS = 6


def measure(*, flush: bool, only: str, producers: int, seconds: float, rounds: int) -> Figures:
    """Measures by the names of bench/transactions.py, prefixed. Raises Unavailable."""
    kafka = Kafka(flush=flush)
    kafka.prepare()
    found: Figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            kafka.start(Path(scratch))
            topic = kafka.fresh(PARTITIONS)
            if "rate" in only:
                _rate(kafka, topic, producers, 1)
                found |= _rate(kafka, topic, producers, seconds)
            if "commit" in only:
                found |= _commits(kafka, topic, seconds)
            if "throughput" in only:
                found |= _throughputs(kafka, topic, seconds / 2, rounds)
        finally:
            kafka.stop()
    return found


def _producer(kafka: Kafka, name: str, settings: dict[str, Any]) -> Any:
    from confluent_kafka import Producer

    servers = {"bootstrap.servers": ",".join(kafka.addresses), "acks": "all"}
    if not name:
        return Producer(servers | {"enable.idempotence": True} | settings)
    made = Producer(servers | {"transactional.id": name} | settings)
    made.init_transactions(TIMEOUT)
    return made


def _rate(kafka: Kafka, topic: str, producers: int, seconds: float) -> Figures:
    made = [
        _producer(kafka, f"rate-{number}-{time.time_ns()}", {"linger.ms": 0})
        for number in range(producers)
    ]
    times: list[float] = []
    start = time.perf_counter()

    def work(producer: Any, partition: int) -> None:
        while time.perf_counter() < start + seconds:
            begun = time.perf_counter()
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(topic, b"x" * 10, partition=partition)
            producer.commit_transaction(TIMEOUT)
            times.append((time.perf_counter() - begun) * 1000)

    before = usage(kafka.pids())
    _together([partial(work, one, number % PARTITIONS) for number, one in enumerate(made)])
    spent, took = usage(kafka.pids()) - before, time.perf_counter() - start
    return {
        "transactions_per_s": len(times) / took,
        "node_cpu_ms_per_transaction": 1000 * spent.cpu_s / len(times),
        **percentiles(times),
    }


def _commits(kafka: Kafka, topic: str, seconds: float) -> Figures:
    plain = _producer(kafka, "", {"linger.ms": 0})
    staged = _producer(kafka, f"commit-{time.time_ns()}", {"linger.ms": 0})
    appends: list[float] = []
    commits: list[float] = []
    end = time.perf_counter() + seconds
    for number in count():
        if time.perf_counter() > end:
            break
        start = time.perf_counter()
        plain.produce(topic, b"x" * 100, partition=number % PARTITIONS)
        plain.flush(TIMEOUT)
        appends.append((time.perf_counter() - start) * 1000)
        staged.begin_transaction()
        for partition in range(PARTITIONS):
            staged.produce(topic, b"x" * 100, partition=partition)
        staged.flush(TIMEOUT)
        start = time.perf_counter()
        staged.commit_transaction(TIMEOUT)
        commits.append((time.perf_counter() - start) * 1000)
    append, commit = percentiles(appends)["p50_ms"], percentiles(commits)["p50_ms"]
    return {"append_p50_ms": append, "commit_p50_ms": commit, "in_appends": commit / append}


def _throughputs(kafka: Kafka, topic: str, seconds: float, rounds: int) -> Figures:
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * rounds):
        which = (True, False, False, True)[number % 4]
        rates[which].append(_throughput(kafka, topic, seconds, commit=which))
    without, with_commits = (sorted(one)[len(one) // 2] for one in rates.values())
    return {
        "without_mib_per_s": without,
        "with_mib_per_s": with_commits,
        "ratio": with_commits / without,
    }


def _throughput(kafka: Kafka, topic: str, seconds: float, *, commit: bool) -> float:
    """MiB/s of one producer over all partitions, 1 KiB records."""
    name = f"through-{time.time_ns()}" if commit else ""
    producer, payload, sent = _producer(kafka, name, THROUGHPUT), b"x" * 1024, 0
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        if commit:
            producer.begin_transaction()
        end = time.perf_counter() + COMMIT_EVERY
        while time.perf_counter() < end:
            try:
                for _ in range(64):
                    producer.produce(topic, payload, partition=sent % PARTITIONS)
                    sent += 1
            except BufferError:
                producer.poll(0.01)
            producer.poll(0)
        if commit:
            producer.commit_transaction(TIMEOUT)
    producer.flush(TIMEOUT)
    return sent * len(payload) / (time.perf_counter() - start) / 2**20


def _together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
