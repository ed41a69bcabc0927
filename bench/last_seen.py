"""Last-seen map at size: memory per producer, the price of a batch, expiry, snapshots.

    python bench/last_seen.py [--producers 1000000] [--json]

Fills one partition's map with that many producers, each with its full window of recent batches,
and compares the cost of a batch in it with a map of ten. Each price is processor time, the best
of several rounds that take turns, because a busy machine only adds to it. Memory is the growth
of the resident set over the filling.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

if __name__ == "__main__":  # run as a file from a checkout, installed or not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cluster.dedup.in_flight import InFlight
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import WINDOW, BatchMeta, Kind

T = TypeVar("T")

RECORDS = 10
LIFETIME_MS = 24 * 3600 * 1000
ROUNDS = 7
BATCHES = 40_000


def resident_bytes() -> int:
    """Resident set now; without /proc, its highest value so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


class Filled:
    """Map of that many producers, ids from 1, with the end of its log."""

    def __init__(self, producers: int) -> None:
        self.map = LastSeen(capacity=2 * producers)
        self.next_offset = 0
        self.last: dict[int, int] = {}  # last sequences of the producers that go on
        for round_ in range(WINDOW + 1):
            first = round_ * RECORDS
            for pid in range(1, producers + 1):
                meta = BatchMeta(
                    pid, 0, first, first + RECORDS - 1, first - 1, RECORDS, pid & 0xFFFFFFFF
                )
                self.map.record(meta, self.next_offset, round_ * producers + pid)
                self.next_offset += RECORDS

    def batches(self, pids: list[int]) -> list[BatchMeta]:
        """Next batch of each of these producers, one after the other."""
        made = []
        for pid in pids:
            prev = self.last.get(pid, (WINDOW + 1) * RECORDS - 1)
            self.last[pid] = prev + RECORDS
            made.append(BatchMeta(pid, 0, prev + 1, prev + RECORDS, prev, RECORDS, pid))
        return made

    def apply(self, batches: list[BatchMeta]) -> float:
        """Does every replica's work for each batch; returns microseconds per batch."""
        last_seen, at = self.map, self.next_offset
        now = last_seen.clock_ms
        start = time.thread_time()
        for meta in batches:
            last_seen.advance(now, lifetime_ms=LIFETIME_MS)
            verdict = last_seen.check(meta, next_offset=at)
            assert verdict.kind is Kind.APPENDED
            last_seen.record(meta, at, now)
            at += RECORDS
        spent = time.thread_time() - start
        self.next_offset = at
        return spent / len(batches) * 1e6

    def lead(self, batches: list[BatchMeta], depth: int) -> float:
        """Does a leader's extra work, `depth` batches in flight; returns microseconds per batch."""
        last_seen, at = self.map, self.next_offset
        in_flight = InFlight(last_seen, next_offset=at)
        spent = 0.0
        for begin in range(0, len(batches), depth):
            some = batches[begin : begin + depth]
            start = time.thread_time()
            for token, meta in enumerate(some):
                assert in_flight.check(meta, next_offset_applied=at).kind is Kind.APPENDED
                in_flight.add(meta, token)
            spent += time.thread_time() - start
            for meta in some:
                last_seen.record(meta, at, last_seen.clock_ms)
                at += RECORDS
            start = time.thread_time()
            for token in range(len(some)):
                in_flight.applied(token, accepted=True)
            spent += time.thread_time() - start
        self.next_offset = at
        return spent / len(batches) * 1e6


def best_of(measures: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Smallest result of each measure; they take turns."""
    results: dict[str, list[float]] = {name: [] for name in measures}
    gc.disable()
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            results[name].append(measure())
    gc.enable()
    return {name: round(min(times), 3) for name, times in results.items()}


def prices(large: Filled, producers: int) -> dict[str, float]:
    rng = random.Random(1)
    small = Filled(10)
    ten = rng.sample(range(1, producers + 1), 10)
    hundreds = rng.sample(range(1, producers + 1), min(300, producers))

    def turns(pids: list[int]) -> list[int]:
        return [pids[i % len(pids)] for i in range(BATCHES)]

    def anyone() -> list[int]:
        return [rng.randrange(1, producers + 1) for _ in range(BATCHES)]

    def advance() -> float:
        last_seen, now = large.map, large.map.clock_ms
        start = time.thread_time()
        for _ in range(BATCHES):
            last_seen.advance(now, lifetime_ms=LIFETIME_MS)
        return (time.thread_time() - start) / BATCHES * 1e6

    return best_of(
        {
            "batch_us_map_of_10": lambda: small.apply(small.batches(turns(list(range(1, 11))))),
            "batch_us_10_active": lambda: large.apply(large.batches(turns(ten))),
            "batch_us_300_active": lambda: large.apply(large.batches(turns(hundreds))),
            "batch_us_any_active": lambda: large.apply(large.batches(anyone())),
            "advance_us": advance,
            "leader_us_10_active": lambda: large.lead(large.batches(turns(ten)), 50),
        }
    )


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Runs an action; returns (seconds, result)."""
    start = time.thread_time()
    result = action()
    return time.thread_time() - start, result


def expiry(last_seen: LastSeen, producers: int) -> Iterator[tuple[str, float]]:
    """Expires one idle producer at a time, then blocks of ids below the watermark, then all."""
    copy = LastSeen.load(last_seen.dump())
    oldest = copy._table.oldest
    alone = range(1, min(1000, producers) + 1)
    spent, gone = timed(
        lambda: sum(copy.advance(0, lifetime_ms=copy.clock_ms - oldest - n) for n in alone)
    )
    yield "expire_one_us", spent / gone * 1e6
    block = range(100, min(50_000, producers), 100)
    spent, _ = timed(
        lambda: [copy.advance(0, lifetime_ms=LIFETIME_MS, expired_below=b) for b in block]
    )
    yield "expire_block_of_100_us", spent / max(len(block), 1) * 1e6
    spent, _ = timed(lambda: copy.advance(copy.clock_ms + LIFETIME_MS + 1, lifetime_ms=LIFETIME_MS))
    assert len(copy) == 0
    yield "expire_all_s", spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--producers", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    producers: int = options.producers
    if producers < 10:
        parser.error(f"--producers: {producers} is below 10")

    gc.collect()
    before = resident_bytes()
    spent, large = timed(lambda: Filled(producers))
    gc.collect()
    found: dict[str, float] = {
        "producers": producers,
        "resident_bytes_per_producer": round((resident_bytes() - before) / producers, 1),
        "counted_bytes_per_producer": round(large.map.memory_bytes() / producers, 1),
        "fill_us": round(spent / producers / (WINDOW + 1) * 1e6, 3),
    }
    found |= prices(large, producers)
    spent, data = timed(large.map.dump)
    found["dump_s"] = round(spent, 3)
    found["load_s"] = round(timed(lambda: LastSeen.load(data))[0], 3)
    found["dump_bytes_per_producer"] = round(len(data) / producers, 1)
    found |= {name: round(value, 3) for name, value in expiry(large.map, producers)}
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:32} {value:>14,}")


if __name__ == "__main__":
    main()
