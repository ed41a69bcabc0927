"""Arithmetic on measured times.

Separate from the same code in `oncelog.cli.load`, because a peer's client should not load
Oncelog's client into its process.
"""

from __future__ import annotations

from collections.abc import Sequence

Figures = dict[str, float]


def percentiles(times_ms: Sequence[float]) -> Figures:
    """p50, p99, p99.9, mean and max by nearest rank; empty without times."""
    if not times_ms:
        return {}
    ordered = sorted(times_ms)

    def rank(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return {
        "p50_ms": rank(0.50),
        "p99_ms": rank(0.99),
        "p999_ms": rank(0.999),
        "mean_ms": sum(ordered) / len(ordered),
        "max_ms": ordered[-1],
        "samples": len(ordered),
    }


__all__ = ["Figures", "percentiles"]
