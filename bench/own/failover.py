"""From the SIGKILL of a partition's leader to the next acknowledgement.

One producer with default settings but no linger writes to one partition. After each kill
it sends a record at once; the node comes back, and is level, before the next kill.
"""

from __future__ import annotations

import time

from bench.figures import Figures
from bench.systems.oncelog import Oncelog
from oncelog import Producer

PATIENCE_S = 60.0


def failover(oncelog: Oncelog, kills: int) -> tuple[Figures, list[float]]:
    """(p50_s, p99_s, max_s, ...; all times in seconds in the order of the kills)."""
    cluster, topic = oncelog.running, oncelog.fresh(1)
    times = []
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for _ in range(kills):
            producer.send(topic, b"before", partition=0).result(PATIENCE_S)
            leader = cluster.leader(topic, 0)
            cluster.kill([leader])
            started = time.monotonic()
            producer.send(topic, b"after", partition=0).result(PATIENCE_S)
            times.append(time.monotonic() - started)
            cluster.start_nodes([leader])
            cluster.wait_level(topic)
    ordered = sorted(times)
    return {
        "p50_s": ordered[len(ordered) // 2],
        "p99_s": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "max_s": ordered[-1],
        "kills": kills,
    }, times
