"""Oncelog's port for Kafka's clients: three nodes with their default settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.processes import wait_until
from bench.systems.kafka import KAFKA, LIBRDKAFKA, START_S, THROUGHPUT, KafkaProtocol
from harness.local_cluster import LocalCluster


class KafkaPort(KafkaProtocol):
    name = "Oncelog, Kafka's port"
    durable = True

    def __init__(self) -> None:
        super().__init__()
        self._cluster: LocalCluster | None = None

    def prepare(self) -> None:
        """Does nothing: scripts/setup has installed it."""

    def start(self, directory: Path) -> None:
        self._cluster = LocalCluster(directory, settings={}, kafka=True)
        self._cluster.start()
        self.addresses[:] = self._cluster.kafka_addresses.values()
        wait_until("names of all nodes", self.names_all, START_S, [])

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def pids(self) -> list[int]:
        assert self._cluster is not None, "started"
        return [node.pid for node in self._cluster.nodes.values() if node.running]

    def clients(self, section: str) -> tuple[str, ...]:
        return (LIBRDKAFKA,) if section == KAFKA else ()

    def settings(self) -> Mapping[str, Any]:
        return {
            "nodes": "defaults: fsync on a majority before each acknowledgement",
            "settings librdkafka": THROUGHPUT,
            "settings librdkafka, latency and batches of one record": {"linger.ms": 0},
        }
