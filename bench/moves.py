"""Producers while partitions move: their rate and p99, without and with a limit for learners.

    python -m bench.moves --gb 2 --limits 0,20 [--replace]

Three nodes hold a topic. For each limit (MB/s, 0: none) a fourth node joins, gets a replica of
each partition, and leaves again. With --replace a node loses its disk instead and is filled
again; the measurement begins at its start, since its death is another figure (`scripts/chaos
failover`). Figures during the move are compared with the same producer's seconds before and
after it: a producer at full speed gets slower by itself while the machine's caches fill.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from bench.answers import Answers
from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer, RecordMetadata, TopicConfig

TOPIC = "moved"
MB = 1_000_000
VALUE_BYTES = 1000
RETENTION_BYTES = 500 * MB  # of a partition, at least, so that no rate fills the disk
CALM = 10.0  # seconds measured before each move, and after it
LOOK = 0.25


class Load:
    """One producer at full speed, or at a rate (MB/s)."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=5)
        self._rate = rate * MB
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._answers = Answers()
        self._thread.start()

    def _send(self) -> None:
        value, began, sent = os.urandom(VALUE_BYTES), time.monotonic(), 0
        while not self._stop.is_set():
            now = time.monotonic()
            if self._rate and sent > (now - began) * self._rate:
                time.sleep(0.001)
                continue
            future = self._producer.send(TOPIC, value)
            future.add_done_callback(partial(self._done, now))
            sent += VALUE_BYTES

    def _done(self, at: float, future: Future[RecordMetadata]) -> None:
        future.result()
        self._answers.add(at)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()

    def between(self, start: float, end: float) -> dict[str, float]:
        waits = self._answers.waits(start, end)
        p99 = statistics.quantiles(waits, n=100)[98] if len(waits) > 1 else 0.0
        return {
            "mb_s": round(len(waits) * VALUE_BYTES / MB / (end - start), 2),
            "p99_ms": round(1000 * p99, 1),
            "seconds": round(end - start, 1),
        }


def until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(LOOK)


def fill(bootstrap: str, gigabytes: float) -> None:
    value = os.urandom(VALUE_BYTES)
    with Producer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=1024 * 1024) as producer:
        for _ in range(int(gigabytes * 1000 * MB / VALUE_BYTES)):
            producer.send(TOPIC, value)


def settled(admin: Admin, node: int) -> bool:
    return any(one.node_id == node and one.alive and one.settled for one in admin.list_nodes())


def move(cluster: LocalCluster, admin: Admin, spare: int, *, back: bool) -> None:
    """Moves one replica of each partition to the spare node, or back."""
    for part in admin.describe_topic(TOPIC).partitions:
        goes = spare if back else part.replicas[-1]
        comes = next(n for n in cluster.nodes if n not in part.replicas) if back else spare
        wanted = [comes if node == goes else node for node in part.replicas]
        admin.reassign_partition(TOPIC, part.partition, wanted)
    until(lambda: admin.describe_balance().settled)


def replace(cluster: LocalCluster, admin: Admin) -> float:
    """Deletes node 3's data and starts it; returns the time of the start."""
    node = cluster.nodes[3]
    cluster.kill([3])
    for path in sorted(node.spec.data_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    until(lambda: not any(one.node_id == 3 and one.alive for one in admin.list_nodes()))
    admin.replace_node(3)
    started = time.monotonic()
    node.start()
    until(lambda: settled(admin, 3))
    return started


def measure(options: argparse.Namespace, root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with (
        LocalCluster(root / "cluster", settings={"retention_check_ms": 1000}) as cluster,
        Admin(bootstrap_servers=[cluster.addresses[1]]) as admin,
        cluster.spare() as spare,
    ):
        kept = max(RETENTION_BYTES, int(1000 * MB * options.gb / options.partitions))
        admin.create_topic(TOPIC, options.partitions, 3, TopicConfig(retention_bytes=kept))
        fill(cluster.bootstrap, options.gb)
        if not options.replace:
            admin.add_node(spare)
            until(lambda: settled(admin, spare))
        for limit in options.limits:
            admin.set_cluster_setting("learner_bytes_per_s", int(limit * MB))
            load = Load(cluster.bootstrap, options.rate)
            time.sleep(2 + CALM)
            calm = begun = time.monotonic()
            if options.replace:
                begun = replace(cluster, admin)
            else:
                move(cluster, admin, spare, back=False)
            ended = time.monotonic()
            time.sleep(CALM)
            load.close()
            parts = {
                "before": load.between(calm - CALM, calm),
                "during": load.between(begun, ended),
                "after": load.between(ended, ended + CALM),
            }
            calm_rate = (parts["before"]["mb_s"] + parts["after"]["mb_s"]) / 2
            ratio = round(parts["during"]["mb_s"] / calm_rate, 2)
            found.append({"limit_mb_s": limit, **parts, "ratio": ratio})
            print(json.dumps(found[-1]), flush=True)
            if not options.replace:
                move(cluster, admin, spare, back=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gb", type=float, default=1.0, help="that the topic holds")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=float, default=0.0, help="MB/s; 0: as fast as it goes")
    parser.add_argument("--replace", action="store_true", help="a node loses its disk")
    parser.add_argument(
        "--limits", type=lambda text: [float(one) for one in text.split(",")], default=[0.0, 20.0]
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        measure(options, Path(root))


if __name__ == "__main__":
    main()
