"""Transaction metrics for Prometheus, in the form of its page. See `cluster.metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cluster.metrics.text import COUNTER, MetricFamily, gauge, labels


@dataclass(frozen=True, slots=True)
class TransactionSample:
    """The coordinator at one moment, by this node's copy of the metadata.

    aborts: by reason, as this node has applied them since it started.
    orphaned: runs of partitions led here whose transaction has ended everywhere: damage.
    """

    open: int = 0
    ending: int = 0  # decided; some partitions do not know it yet
    oldest_open_s: float = 0.0
    remembered: int = 0  # numbers from the oldest one that has not ended to the newest
    aborts: Mapping[str, int] = field(default_factory=dict)
    orphaned: int = 0


def transaction_families(sample: TransactionSample) -> Iterator[MetricFamily]:
    gauges = (
        ("open", "Open transactions of the cluster", sample.open),
        ("ending", "Decided transactions with markers to write", sample.ending),
        ("oldest_open_seconds", "Age of the oldest open transaction", sample.oldest_open_s),
        ("remembered", "Transactions since the oldest one that has not ended", sample.remembered),
        (
            "orphaned_runs",
            "Runs here of ended transactions; 0 without a bug",
            sample.orphaned,
        ),
    )
    for name, text, value in gauges:
        yield gauge(f"oncelog_transactions_{name}", text, value)
    yield MetricFamily(
        "oncelog_transactions_aborted_total",
        COUNTER,
        "Aborted ones by reason, as this node has applied them since it started",
        [
            (labels(reason=reason.replace(" ", "_")), count)
            for reason, count in sorted(sample.aborts.items())
        ],
    )
