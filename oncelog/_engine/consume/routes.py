"""Routes: the node to ask for a partition, and the time to ask it.

Place in the flow: `fetcher` and `positions` ask here for a node and report the result. It is the
leader or, if any replica will do, a replica not known to be damaged. A failure is followed by a
growing pause; after several failures the cluster's metadata is refreshed.
"""

from __future__ import annotations

import time

from oncelog._engine.net.cluster import Cluster
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2


class Routes:
    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._not_before: dict[TopicPartition, float] = {}
        self._failures: dict[TopicPartition, int] = {}
        # Replicas that cannot read their log, if another may be asked.
        self._damaged: set[tuple[TopicPartition, str]] = set()

    def not_before(self, tp: TopicPartition) -> float:
        """The time (monotonic) from which the partition may be asked for."""
        return self._not_before.get(tp, 0.0)

    def address(self, tp: TopicPartition) -> str:
        leader = self._cluster.leaders.leader(tp)
        if leader is None:
            return ""
        if not self._config.any_replica:
            return leader.address
        nodes = self._cluster.leaders.nodes
        chosen = self._config.replica_node_id
        if chosen is not None:
            return nodes.get(chosen, "") if chosen in leader.replicas else ""
        # Spread over replicas, but constant for a partition until it fails.
        turn = tp.partition + self._failures.get(tp, 0)
        replicas = [nodes[r] for r in leader.replicas if r in nodes]
        replicas = [one for one in replicas if (tp, one) not in self._damaged] or replicas
        return replicas[turn % len(replicas)] if replicas else ""

    def answered(self, tp: TopicPartition) -> None:
        self._failures.pop(tp, None)

    def failed(self, tp: TopicPartition, address: str) -> None:
        """Note a failure of this node: ask for the leader, after a growing pause."""
        failures = self._failures[tp] = self._failures.get(tp, 0) + 1
        self._not_before[tp] = time.monotonic() + self._cluster.backoff.delay(failures - 1)
        self._cluster.leaders.forget(tp, address)
        self._cluster.leader_failed(address, failures)

    def leads_elsewhere(
        self, tp: TopicPartition, address: str, leader_id: int, leader_address: str
    ) -> None:
        """Note that the node rejected, and perhaps named the leader."""
        self.failed(tp, address)
        if leader_address and leader_address != address:
            self._cluster.leaders.hint(tp, leader_id, leader_address)

    def damaged(self, tp: TopicPartition, address: str, error: int) -> bool:
        """Tell whether the error shows a damaged replica, and a sound one may be asked instead."""
        if error == log_pb2.PARTITION_ERROR_STORAGE and self._config.any_replica:
            self._damaged.add((tp, address))
        return (tp, address) in self._damaged and (tp, self.address(tp)) not in self._damaged


__all__ = ["Routes"]
