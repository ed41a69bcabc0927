"""Large data: steady speed, bytes written to disk, and time of a restart."""

from __future__ import annotations

import statistics
import time

from bench.figures import Figures
from bench.processes import resident_mb, usage
from bench.systems.oncelog import IN_FLIGHT, RECORD_IN_BATCH, Oncelog, settings_words

SLICES = 10
TOPIC, PARTITIONS = "data", 6
LEVEL_S = 120.0


def fill(oncelog: Oncelog, total_mb: int) -> tuple[Figures, list[float]]:
    """Fills the topic; returns (figures, MB/s of each tenth of the data).

    decay: speed of the last three tenths against the first three. written_per_byte: bytes
    that the node with the most writes sent to disk, for each byte accepted.
    """
    cluster, pids = oncelog.running, oncelog.pids()
    oncelog.create(TOPIC, PARTITIONS)
    before = {pid: usage([pid]).written_bytes for pid in pids}
    speeds, accepted, most_mb = [], 0.0, 0.0
    for _ in range(SLICES):
        found = oncelog.bench(
            "produce", TOPIC,
            "--record-size", RECORD_IN_BATCH,
            "--batch-bytes", 1024 * 1024,
            "--total-mb", total_mb // SLICES,
            *settings_words(IN_FLIGHT),
            seconds=60,
        )  # fmt: skip
        speeds.append(found["mb_per_s"])
        accepted += found["records"] * RECORD_IN_BATCH
        most_mb = max(most_mb, *(resident_mb(pid) for pid in pids))
    cluster.wait_level(TOPIC)
    written = max(usage([pid]).written_bytes - before[pid] for pid in pids)
    return {
        "accepted_mb": accepted / 1e6,
        "first_mb_per_s": statistics.mean(speeds[:3]),
        "last_mb_per_s": statistics.mean(speeds[-3:]),
        "decay": statistics.mean(speeds[-3:]) / statistics.mean(speeds[:3]),
        "written_per_byte": written / accepted,
        "node_mb_while_writing": most_mb,
    }, speeds


def restart(oncelog: Oncelog) -> Figures:
    """Kills a node and starts it.

    serving_s: until it serves; level_s: until its logs are level with the other nodes'.
    """
    cluster = oncelog.running
    node = max(cluster.nodes)
    cluster.kill([node])
    started = time.monotonic()
    cluster.start_nodes([node], wait=False)
    cluster.wait_serving([node], LEVEL_S)
    found: Figures = {"serving_s": time.monotonic() - started}
    cluster.wait_level(TOPIC, timeout=LEVEL_S)
    found["level_s"] = time.monotonic() - started
    found["node_mb_after_restart"] = resident_mb(cluster.nodes[node].pid)
    return found
