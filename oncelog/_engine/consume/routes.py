"""Routes: the node to ask for a partition, and the time to ask it.

Place in the flow: `fetcher` and `positions` ask here for a node and report the result. It is the
leader, a near replica or, if any replica will do, a replica not known to be damaged. A failure is
followed by a growing pause; after several failures the cluster's metadata is refreshed.
"""

from __future__ import annotations

import time

from oncelog._engine.net.cluster import Cluster
from oncelog._engine.net.leaders import KnownLeader
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2

# Seconds for which a near replica is left out after a failure; doubled by each further one.
_FAR_S = 10.0
_MOST_FAR_S = 60.0


class Routes:
    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._not_before: dict[TopicPartition, float] = {}
        self._failures: dict[TopicPartition, int] = {}
        # Replicas that cannot read their log, if another may be asked.
        self._damaged: set[tuple[TopicPartition, str]] = set()
        # Near replicas that have failed: when to ask them again, and the pause before that.
        self._far: dict[tuple[TopicPartition, str], tuple[float, float]] = {}
        self._outdated: set[str] = set()

    def not_before(self, tp: TopicPartition) -> float:
        """The time (monotonic) from which the partition may be asked for."""
        return self._not_before.get(tp, 0.0)

    def address(self, tp: TopicPartition, *, for_records: bool = True) -> str:
        """Return the node to ask for records, or for an offset; "": not known."""
        leader = self._cluster.leaders.leader(tp)
        if leader is None:
            return ""
        if not self._config.any_replica:
            near = self._near(tp, leader) if for_records and self._config.rack else ""
            return near or leader.address
        nodes = self._cluster.leaders.nodes
        chosen = self._config.replica_node_id
        if chosen is not None:
            return nodes.get(chosen, "") if chosen in leader.replicas else ""
        # Spread over replicas, but constant for a partition until it fails.
        turn = tp.partition + self._failures.get(tp, 0)
        replicas = [nodes[r] for r in leader.replicas if r in nodes]
        replicas = [one for one in replicas if (tp, one) not in self._damaged] or replicas
        return replicas[turn % len(replicas)] if replicas else ""

    def _near(self, tp: TopicPartition, leader: KnownLeader) -> str:
        """Return a replica in the client's rack; "": the leader is to be asked."""
        leaders, rack = self._cluster.leaders, self._config.rack
        near = [one for one in leader.replicas if leaders.racks.get(one) == rack]
        if not near or leader.node_id in near:
            return ""
        turn, now = tp.partition % len(near), time.monotonic()
        for address in (leaders.nodes[one] for one in near[turn:] + near[:turn]):
            if self._far.get((tp, address), (0.0, 0.0))[0] <= now:
                return address
        return ""

    def is_near(self, tp: TopicPartition, address: str) -> bool:
        """Tell whether this node is asked because it is near, not because it leads."""
        return self._config.rack is not None and self._cluster.leaders.address(tp) != address

    def answered(self, tp: TopicPartition, address: str) -> None:
        self._failures.pop(tp, None)
        self._far.pop((tp, address), None)

    def take_outdated(self) -> set[str]:
        """Return topics to ask for again: a near replica has failed, and may have moved."""
        topics, self._outdated = self._outdated, set()
        return topics

    def failed(self, tp: TopicPartition, address: str) -> None:
        """Note a failure of this node: ask for the leader, after a growing pause."""
        failures = self._failures[tp] = self._failures.get(tp, 0) + 1
        now = time.monotonic()
        self._not_before[tp] = now + self._cluster.backoff.delay(failures - 1)
        if self.is_near(tp, address):
            _, before = self._far.get((tp, address), (0.0, _FAR_S / 2))
            pause = min(2 * before, _MOST_FAR_S)
            self._far[tp, address] = now + pause, pause
            self._outdated.add(tp.topic)
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
        if error == log_pb2.PARTITION_ERROR_STORAGE and self.is_near(tp, address):
            return True
        if error == log_pb2.PARTITION_ERROR_STORAGE and self._config.any_replica:
            self._damaged.add((tp, address))
        return (tp, address) in self._damaged and (tp, self.address(tp)) not in self._damaged
