"""Failover time after the kill of a partition's leader: for the chaos tests and the benchmark."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.local_cluster import LocalCluster
from oncelog import Producer

ACKNOWLEDGE_TIMEOUT = 60.0  # seconds for one record


def kill_leader(cluster: LocalCluster, producer: Producer, topic: str) -> tuple[int, float]:
    """Kills partition 0's leader and sends a record at once; returns the node and the seconds.

    The seconds run from the node's end to the acknowledgement.
    """
    producer.send(topic, b"before", partition=0).result(ACKNOWLEDGE_TIMEOUT)
    leader = cluster.leader(topic, 0)
    cluster.kill([leader])
    started = time.monotonic()
    producer.send(topic, b"after", partition=0).result(ACKNOWLEDGE_TIMEOUT)
    return leader, time.monotonic() - started


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Percentile by nearest rank; 0 without values."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
