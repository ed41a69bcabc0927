"""Oncelog's port for Kafka's clients: three nodes, or one, with their default settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.goals import ALONE, PORT
from bench.processes import wait_until
from bench.systems.kafka import KAFKA, LIBRDKAFKA, START_S, THROUGHPUT, KafkaProtocol
from harness.local_cluster import LocalCluster


class KafkaPort(KafkaProtocol):
    """nodes: with one, its processor time for a record is that of no replica and no heartbeat."""

    durable = True

    def __init__(self, nodes: int = 3) -> None:
        super().__init__()
        self.name = PORT if nodes > 1 else ALONE
        self.nodes = nodes
        self._cluster: LocalCluster | None = None

    def prepare(self) -> None:
        """Does nothing: scripts/setup has installed it."""

    def start(self, directory: Path) -> None:
        self._cluster = LocalCluster(directory, self.nodes, settings={}, kafka=True)
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
            "nodes": f"{self.nodes}, defaults: fsync on a majority before each acknowledgement",
            "settings librdkafka": THROUGHPUT,
            "settings librdkafka, latency and batches of one record": {"linger.ms": 0},
        }
