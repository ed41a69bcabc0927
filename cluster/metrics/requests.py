"""Counts and durations of clients' calls, by protocol, method and code.

rpc, kafka --done--> Requests <--families-- the page
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.metrics.text import COUNTER, HISTOGRAM, Histogram, MetricFamily, labels

OK = "OK"
CANCELLED = "CANCELLED"
FAILED = "FAILED"
# Calls take from 0.2 ms to as long as a client waits for records.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Requests:
    """Calls of one node's clients since it started."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], Histogram] = {}

    def count(self, protocol: str, method: str, code: str) -> None:
        """Count a call without its duration: streams last as long as their clients want."""
        key = (protocol, method, code)
        self._counts[key] = self._counts.get(key, 0) + 1

    def done(self, protocol: str, method: str, code: str, seconds: float) -> None:
        """Count a call that was answered. seconds: with the wait that its client asked for."""
        self.count(protocol, method, code)
        histogram = self._seconds.get((protocol, method))
        if histogram is None:
            histogram = self._seconds[protocol, method] = Histogram(BOUNDS)
        histogram.observe(seconds)

    def families(self) -> Iterator[MetricFamily]:
        yield MetricFamily(
            "oncelog_requests_total",
            COUNTER,
            "Calls of clients by protocol, method and code; streams count when they end",
            [
                (labels(protocol=protocol, method=method, code=code), count)
                for (protocol, method, code), count in [*self._counts.items()]
            ],
        )
        yield MetricFamily(
            "oncelog_requests_seconds",
            HISTOGRAM,
            "Time from a call to its answer, without streams; Fetch with its wait for records",
            [
                row
                for (protocol, method), histogram in [*self._seconds.items()]
                for row in histogram.rows(labels(protocol=protocol, method=method))
            ],
        )
