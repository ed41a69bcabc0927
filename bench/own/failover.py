"""Time from the SIGKILL of a partition's leader to the next acknowledgement.

One producer with default settings but no linger writes to one partition. After each kill
it sends a record at once; the node comes back, and is level, before the next kill.
"""

from __future__ import annotations

from bench.figures import Figures
from bench.systems.oncelog import Oncelog
from harness.failover import kill_leader, percentile
from oncelog import Producer


def failover(oncelog: Oncelog, kills: int) -> tuple[Figures, list[float]]:
    """Returns (p50_s, p99_s, max_s and kills; all times in seconds in the order of the kills)."""
    cluster, topic = oncelog.running, oncelog.fresh(1)
    times = []
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        for _ in range(kills):
            leader, seconds = kill_leader(cluster, producer, topic)
            times.append(seconds)
            cluster.start_nodes([leader])
            cluster.wait_level(topic)
    ordered = sorted(times)
    return {
        "p50_s": percentile(ordered, 50),
        "p99_s": percentile(ordered, 99),
        "max_s": percentile(ordered, 100),
        "kills": kills,
    }, times
