"""Many partitions on three nodes: their cost when idle, at the start, and under load."""

from __future__ import annotations

import statistics
import time

from bench.figures import Figures
from bench.processes import BenchError, resident_mb, usage, wait_until
from bench.systems.oncelog import Oncelog
from oncelog import Admin, OncelogError

TOPIC_SIZE = 100  # partitions of each idle topic
FEW, SOME = 6, 100
READY_S = 180.0
SETTLE_S = 3.0


def idle(oncelog: Oncelog, count: int, idle_s: float) -> Figures:
    """Makes `count` partitions in all; among them topics of 6 and of 100 to write to.

    create_s: until each has a leader. idle_share: processor time of the busiest node without any
    requests, of one core. node_mb: memory of the largest node.
    """
    started = time.monotonic()
    bootstrap = oncelog.running.bootstrap
    with Admin(bootstrap_servers=bootstrap, request_timeout_ms=int(READY_S * 1000)) as admin:
        admin.create_topic("six", partitions=FEW, replicas=3)
        admin.create_topic("hundred", partitions=SOME, replicas=3)
        left, number = count - FEW - SOME, 0
        while left > 0:
            admin.create_topic(f"idle{number}", partitions=min(TOPIC_SIZE, left), replicas=3)
            left, number = left - TOPIC_SIZE, number + 1
    _wait_led(oncelog, count)
    found: Figures = {"partitions": count, "create_s": time.monotonic() - started}
    time.sleep(SETTLE_S)
    pids = oncelog.pids()
    before = {pid: usage([pid]).cpu_s for pid in pids}
    time.sleep(idle_s)
    found["idle_share"] = max(usage([pid]).cpu_s - before[pid] for pid in pids) / idle_s
    found["node_mb"] = max(resident_mb(pid) for pid in pids)
    return found


def start(oncelog: Oncelog, count: int) -> Figures:
    """Kills and starts all nodes: serving_s until they serve, start_s until all is led."""
    cluster = oncelog.running
    cluster.kill(list(cluster.nodes))
    started = time.monotonic()
    cluster.start_nodes(list(cluster.nodes), wait=False)
    cluster.wait_serving(list(cluster.nodes), READY_S)
    found: Figures = {"serving_s": time.monotonic() - started}
    _wait_led(oncelog, count)
    found["start_s"] = time.monotonic() - started
    return found


def _wait_led(oncelog: Oncelog, count: int) -> None:
    """Waits until a node knows a leader of every partition."""

    def led() -> bool:
        try:
            with Admin(
                bootstrap_servers=oncelog.running.bootstrap, request_timeout_ms=5000
            ) as admin:
                facts = admin.describe_cluster()
        except OncelogError:
            return False
        return facts.partitions >= count and not facts.leaderless_partitions

    wait_until(f"leaders of {count} partitions", led, READY_S)


def spread(oncelog: Oncelog, seconds: float, rounds: int) -> Figures:
    """Measures hundred_to_six: records/s of a keyless producer, 100 partitions against 6.

    The two take turns. each_in_turn: the hard way, each record to the next partition, so
    that no batch fills.
    """
    rates: dict[str, list[float]] = {"six": [], "hundred": [], "each": []}
    for _ in range(rounds):
        rates["six"].append(_rate(oncelog, "six", seconds))
        rates["hundred"].append(_rate(oncelog, "hundred", seconds))
        rates["each"].append(_rate(oncelog, "hundred", seconds, "--spread", SOME))
    six, hundred, each = (statistics.median(one) for one in rates.values())
    if not six:
        raise BenchError("nothing was acknowledged on 6 partitions")
    return {
        "six_records_per_s": six,
        "hundred_records_per_s": hundred,
        "hundred_to_six": hundred / six,
        "each_in_turn_records_per_s": each,
    }


def _rate(oncelog: Oncelog, topic: str, seconds: float, *options: object) -> float:
    found = oncelog.bench("produce", topic, "--record-size", 1024, *options, seconds=seconds)
    return found["records_per_s"]
