"""Oncelog itself: three nodes with their default settings, loaded by `oncelog bench`."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.processes import BenchError, run_json
from bench.systems.face import CLIENT_TIMEOUT, Figures, Load, System
from harness.local_cluster import LocalCluster
from oncelog import Admin, TopicConfig

RECORD_IN_BATCH = 1024 - 16  # with offset and timestamp: a batch of 1 MiB holds 1,024
# Batches in flight of one partition in tests of bytes: the default of 5 is Kafka's, and waits
# for round trips.
IN_FLIGHT = {"max.in.flight": 64}
READ_S = 30.0  # limit for reading the written records
BATCH_LIMIT = 8 * 1024 * 1024


class Oncelog(System):
    name = "Oncelog"
    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.cluster: LocalCluster | None = None

    def prepare(self) -> None:
        """Does nothing: scripts/setup has installed it."""

    def start(self, directory: Path) -> None:
        self.cluster = LocalCluster(directory, settings={})
        self.cluster.start()

    def stop(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
            self.cluster = None

    @property
    def running(self) -> LocalCluster:
        if self.cluster is None:
            raise BenchError("the cluster does not run")
        return self.cluster

    def pids(self) -> list[int]:
        return [node.pid for node in self.running.nodes.values() if node.running]

    def settings(self) -> Mapping[str, Any]:
        return {
            "version": importlib.metadata.version("oncelog"),
            "nodes": "defaults: fsync on a majority before each acknowledgement",
            "client": "defaults: idempotence on, acks=all, linger 5 ms, batches of 1 MiB",
            "client for bytes": IN_FLIGHT,
            "client for latency": {"linger.ms": 0},
        }

    def create(self, topic: str, partitions: int) -> None:
        config = TopicConfig(max_batch_bytes=BATCH_LIMIT)
        with Admin(bootstrap_servers=self.running.bootstrap, request_timeout_ms=60_000) as admin:
            admin.create_topic(topic, partitions=partitions, replicas=3, config=config)
        for partition in range(partitions):
            self.running.leader(topic, partition)

    def bench(
        self, what: str, topic: str, *options: object, seconds: float, bootstrap: str = ""
    ) -> Figures:
        """Runs `oncelog bench WHAT TOPIC` in a process of its own."""
        command = [sys.executable, "-m", "oncelog.cli", "bench", what, topic, "--format", "json"]
        command += ["--bootstrap", bootstrap or self.running.bootstrap, "--seconds", str(seconds)]
        command += [str(option) for option in options]
        timeout = CLIENT_TIMEOUT + 4 * seconds
        if bootstrap:
            return run_json(command, timeout)
        return self.measured(lambda: run_json(command, timeout))

    def produce(self, client: str, load: Load) -> Figures:
        topic = self.fresh(load.partitions)
        return self.bench("produce", topic, "--record-size", load.size, seconds=load.seconds)

    def produce_bytes(self, client: str, load: Load) -> Figures:
        topic = self.fresh(load.partitions)
        return self.bench(
            "produce", topic,
            "--record-size", RECORD_IN_BATCH,
            "--batch-bytes", load.size,
            *settings_words(IN_FLIGHT),
            seconds=load.seconds,
        )  # fmt: skip

    def latency(self, client: str, load: Load) -> Figures:
        topic = self.fresh(load.partitions)
        rate = ("--rate", load.rate) if load.rate else ()
        return self.bench("latency", topic, "--record-size", load.size, *rate, seconds=load.seconds)

    def producers(self, count: int, processes: int, seconds: float) -> Figures:
        addresses = list(self.running.addresses.values())
        return self.together("oncelog_many", addresses, count, processes, seconds, {})

    def consume(self, client: str, load: Load) -> Figures:
        topic = self.fill(load)
        return self.bench("consume", topic, seconds=READ_S)

    def fill(self, load: Load) -> str:
        """Makes a topic with `total_mb` of records of `size` in batches of 1 MiB."""
        topic = self.fresh(load.partitions)
        self.bench(
            "produce", topic,
            "--record-size", load.size,
            "--batch-bytes", 1024 * 1024,
            "--total-mb", load.total_mb,
            *settings_words(IN_FLIGHT),
            seconds=60,
        )  # fmt: skip
        return topic


def settings_words(given: Mapping[str, object]) -> list[str]:
    """Producer settings as options of `oncelog bench`."""
    return [word for name, value in given.items() for word in ("--setting", f"{name}={value}")]


__all__ = ["IN_FLIGHT", "RECORD_IN_BATCH", "Oncelog", "settings_words"]
