"""Parser of the output of Kafka's own perf tools."""

from __future__ import annotations

import re

from bench.figures import Figures
from bench.processes import BenchError

_SUMMARY = re.compile(
    r"(?P<records>\d+) (?:steady state )?records sent, (?P<rate>[\d.]+) records/sec "
    r"\([\d.]+ MB/sec\), (?P<mean>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th"
)
_TIMES = ("mean", "max", "p50", "p99", "p999")


def parse_producer(text: str, size: int) -> Figures:
    """Parses the last line of ProducerPerformance, which leaves the warm-up out.

    size: of each record, in bytes. Raises BenchError if there is no summary.
    """
    found = list(_SUMMARY.finditer(text))
    if not found:
        raise BenchError(f"the perf tool printed no summary: {text[-300:]!r}")
    last = found[-1]
    rate = float(last["rate"])
    figures = {f"{name}_ms": float(last[name]) for name in _TIMES}
    return {
        "records": float(last["records"]),
        "records_per_s": rate,
        "mb_per_s": rate * size / 1e6,
        **figures,
    }


def parse_consumer(text: str) -> Figures:
    """Parses the line of ConsumerPerformance, by its heading; the time is that of fetching."""
    lines = [line.split(", ") for line in text.splitlines() if line.count(", ") >= 5]
    if len(lines) < 2:
        raise BenchError(f"the perf tool printed no figures: {text[-300:]!r}")
    row = dict(zip(lines[-2], lines[-1], strict=False))
    mib, records = float(row["data.consumed.in.MB"]), float(row["data.consumed.in.nMsg"])
    seconds = float(row["fetch.time.ms"]) / 1e3
    return {
        "seconds": seconds,
        "records": records,
        "records_per_s": records / seconds,
        "mb_per_s": mib * 1.048576 / seconds,
    }


__all__ = ["parse_consumer", "parse_producer"]
