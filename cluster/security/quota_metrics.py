"""Delays of principals for their quotas, in Prometheus's form: by quota, never by principal."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from cluster.security.quotas import Quotas


def quota_families(quotas: Quotas) -> Iterator[Metric]:
    delayed = CounterMetricFamily(
        "oncelog_quota_delay_seconds",
        "Time that calls and streams waited for a rate of their principal",
        labels=("quota",),
    )
    for name, seconds in quotas.delayed.items():
        delayed.add_metric([name], seconds)
    yield delayed
    refused = CounterMetricFamily(
        "oncelog_quota_refused", "Calls THROTTLED by a quota of their principal",
        labels=("quota",),
    )  # fmt: skip
    for name, count in quotas.refused.items():
        refused.add_metric([name], count)
    yield refused
