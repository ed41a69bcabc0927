"""Prometheus' text format, written directly: a page of 1,000 partitions takes a few milliseconds.

    parts of the node --MetricFamily--> render --> the page

A family's rows have the text behind its name as key: nothing, or labels in braces.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# Seconds; a local fsync takes 0.1 to 10 ms, a commit that waits for an election seconds.
LATENCY_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
)  # fmt: skip
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Row = tuple[str, float]


class MetricFamily(NamedTuple):
    """A metric with all its rows. name: in full, of a counter with _total."""

    name: str
    kind: str
    text: str
    rows: Sequence[Row]


def counter(name: str, text: str, value: float) -> MetricFamily:
    return MetricFamily(name, COUNTER, text, (("", value),))


def gauge(name: str, text: str, value: float) -> MetricFamily:
    return MetricFamily(name, GAUGE, text, (("", value),))


def labels(**values: object) -> str:
    """Return the text of labels, to put behind a family's name."""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in values.items()) + "}"


def escaped(value: object) -> str:
    return str(value).translate(_ESCAPED)


def render(families: Iterable[MetricFamily]) -> str:
    """Return a page."""
    lines: list[str] = []
    for name, kind, text, rows in families:
        lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}")
        lines += [f"{name}{key} {value}" for key, value in rows]
    return "\n".join((*lines, ""))


class Histogram:
    """Counts of seconds in fixed ranges."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        # A bound belongs to the range below it, as Prometheus has it ("le").
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def family(self, name: str, text: str) -> MetricFamily:
        return MetricFamily(name, HISTOGRAM, text, [*self.rows()])

    def rows(self, labelled: str = "") -> Iterator[Row]:
        """Yield the rows. labelled: the text of further labels, as `labels` returns it."""
        inner = labelled[1:-1] + "," if labelled else ""
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), list(self._counts), strict=True):
            total += count
            yield f'_bucket{{{inner}le="{bound}"}}', total
        yield f"_count{labelled}", total
        yield f"_sum{labelled}", self._sum
