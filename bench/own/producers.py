"""Many small producers at once, and a map of many past producers."""

from __future__ import annotations

import statistics
import sys

from bench.clients.common import command
from bench.figures import Figures
from bench.processes import ROOT, BenchError, run_json
from bench.systems.face import CLIENT_TIMEOUT, SMALL
from bench.systems.face import SMALL_PARTITIONS as PARTITIONS
from bench.systems.oncelog import Oncelog, settings_words

LAST_SEEN_S = 300.0


def many(oncelog: Oncelog, producers: int, depth: int, seconds: float) -> Figures:
    """Runs `producers` of the Python client in one process, single-record batches."""
    return oncelog.bench(
        "producers", oncelog.fresh(PARTITIONS),
        "--record-size", SMALL,
        "--count", producers,
        "--depth", depth,
        seconds=seconds,
    )  # fmt: skip


def raw(oncelog: Oncelog, producers: int, seconds: float) -> Figures:
    """Does the same over plain gRPC streams: the cluster's share, without the client's."""
    asked = {
        "addresses": list(oncelog.running.addresses.values()),
        "topic": oncelog.fresh(PARTITIONS),
        "seconds": seconds,
        "size": SMALL,
        "partitions": PARTITIONS,
        "window": producers,
    }
    words = [sys.executable, *command("oncelog_raw", "produce", asked)]
    return oncelog.measured(lambda: run_json(words, CLIENT_TIMEOUT + 4 * seconds))


def idempotence(oncelog: Oncelog, seconds: float, rounds: int) -> Figures:
    """Measures on_to_off: records/s with idempotence on against off; the two take turns."""
    topic = oncelog.fresh(PARTITIONS)
    rates: dict[str, list[float]] = {"true": [], "false": []}
    for number in range(2 * rounds):
        # on, off, off, on: changes over time weigh on both.
        which = ("true", "false", "false", "true")[number % 4]
        found = oncelog.bench(
            "produce", topic,
            "--record-size", 1024,
            *settings_words({"enable.idempotence": which}),
            seconds=seconds,
        )  # fmt: skip
        rates[which].append(found["records_per_s"])
    on, off = (statistics.median(one) for one in rates.values())
    if not off:
        raise BenchError("nothing was acknowledged without idempotence")
    return {"on_records_per_s": on, "off_records_per_s": off, "on_to_off": on / off}


def last_seen(producers: int) -> Figures:
    """Runs bench/last_seen.py: memory per producer and the price of a batch in a large map."""
    script = ROOT / "bench" / "last_seen.py"
    words = [sys.executable, str(script), "--producers", str(producers), "--json"]
    found = run_json(words, LAST_SEEN_S)
    found["large_to_small"] = found["batch_us_10_active"] / found["batch_us_map_of_10"]
    return found
