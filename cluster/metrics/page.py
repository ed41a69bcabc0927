"""Figures of a node for Prometheus. One `Metrics` per node, passed in; nothing global.

The hot path only adds to plain integers: to a partition's own counters, and to
the two histograms here. They are put into Prometheus's form when the page is
asked for, by `_NodeCollector`. That happens in a thread of the page's server, so
`source` must hand out figures that it has copied, without waiting for anything.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import ssl
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cluster.metrics.http import PageAnswer, serve_pages
from cluster.metrics.transactions import TransactionSample, transaction_families
from cluster.security.quota_metrics import quota_families
from cluster.security.quotas import Quotas
from oncelog.v1.log_pb2 import Verdict
from storage.errors import StorageError
from storage.metrics import EngineStats

logger = logging.getLogger(__name__)

# Seconds; a local fsync takes 0.1 to 10 ms, a commit that waits for an election seconds.
LATENCY_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
)  # fmt: skip
_STATM = Path("/proc/self/statm")


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

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        total = 0
        buckets = []
        labels = [str(bound) for bound in self._bounds] + ["+Inf"]
        for label, count in zip(labels, list(self._counts), strict=True):
            total += count
            buckets.append((label, float(total)))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """One replica of this node at one moment. Counters run since the node started.

    `verdicts`: number of oncelog.v1.Verdict -> how often. `follower_lag`, of a
    leader only: node id -> entries that it is behind the leader's last one.
    `under_replicated`: this node leads and a follower is not in step.
    """

    topic: str
    partition: int
    leads: bool = False
    failed: bool = False
    under_replicated: bool = False
    term: int = 0
    commit_index: int = 0
    applied_index: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    stored_bytes: int = 0
    producers: int = 0
    producers_throttled: int = 0
    batches_rebuilt: int = 0
    staged_bytes: int = 0
    staged_groups: int = 0
    pinned_entries: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    verdicts: Mapping[int, int] = dataclasses.field(default_factory=dict)
    follower_lag: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One consumer group with its offsets on this node, at one moment. Seconds.

    rebalances:   of this leader's term. since_commit: -1 if nothing was committed.
    idle:         of the member that has not come back for records for longest.
    lag:          topic -> records behind the group's offsets.
    """

    group: str
    members: int = 0
    rebalances: int = 0
    idle: float = 0.0
    since_commit: float = -1.0
    lag: Mapping[str, int] = dataclasses.field(default_factory=dict)


Source = Callable[[], Iterable[PartitionSample]]
GroupSource = Callable[[], Iterable[GroupSample]]


class Clocks(Protocol):
    """A node's comparison of wall clocks. `ClockAgreement` is one."""

    @property
    def agreed(self) -> bool: ...
    def offsets(self) -> dict[int, float]: ...


class UpgradePlan(Protocol):
    """See `metadata.upgrade.Plan`."""

    @property
    def finalized(self) -> tuple[int, frozenset[str]]: ...
    @property
    def is_pending(self) -> bool: ...


class UpgradePlans(Protocol):
    """Possible upgrades of the cluster. `node.upgrades.Upgrades` is one."""

    def plan(self) -> UpgradePlan: ...


StorageSource = Callable[[], EngineStats | None]


class Memory(Protocol):
    """Memory held for clients. `Budget` is one."""

    used: int
    limit: int


class SyncState(Protocol):
    """State of the running fsync. `node.sync_watch.SyncWatch` is one."""

    hung: int

    @property
    def under_way(self) -> float: ...


class Metrics:
    """A node's own figures; set `source`, `groups` and `storage` for those of its parts.

    They are called in a thread of the page's server; `storage` may raise StorageError.
    """

    def __init__(self) -> None:
        self.elections = 0  # won by this node
        self.leases = 0
        self.commit_latency = Histogram()  # a batch: from its proposal to its answer
        self.fsync_latency = Histogram()
        self.loop_delay = Histogram()
        self.transaction_commit = Histogram()  # from a commit's call to its answer
        self.transactions: Callable[[], TransactionSample] | None = None
        self.sync_watch: SyncState | None = None
        self.memory: Memory | None = None
        self.quotas: Quotas | None = None
        self.source: Source = tuple
        self.groups: GroupSource = tuple
        self.storage: StorageSource = lambda: None
        self.clocks: Clocks | None = None
        self.upgrades: UpgradePlans | None = None
        self.repairs: Callable[[], Iterable[Metric]] = tuple
        self.machine: Callable[[], Iterable[Metric]] = tuple  # limits of the system
        self.registry = CollectorRegistry()
        self.registry.register(_NodeCollector(self))

    def start_http(
        self, address: str, context: Callable[[], ssl.SSLContext] | None = None
    ) -> Callable[[], None]:
        """Serve the page at http://ADDRESS/metrics, "host:port"; returns a function that stops it.

        context: of TLS, asked for each connection; then it is https. Raises ListenError.
        """
        return serve_pages("metrics_listen", address, {"/metrics": self._page}, context)

    def _page(self, query: str) -> PageAnswer:
        body = generate_latest(self.registry).decode()
        return PageAnswer(HTTPStatus.OK, body, CONTENT_TYPE_LATEST)


class _NodeCollector(Collector):
    """Puts the plain figures into Prometheus's form."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not ask a node that is not up yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield from _partition_families(list(metrics.source()))
        yield from _group_families(list(metrics.groups()))
        yield CounterMetricFamily(
            "oncelog_elections", "Elections that this node won", metrics.elections
        )
        yield CounterMetricFamily(
            "oncelog_producer_leases", "Producer ids leased by this node", metrics.leases
        )
        yield metrics.commit_latency.family(
            "oncelog_commit_latency_seconds", "From proposing a batch to answering it"
        )
        yield metrics.fsync_latency.family(
            "oncelog_fsync_latency_seconds", "Time to make written data durable"
        )
        yield metrics.loop_delay.family(
            "oncelog_loop_delay_seconds", "Delay of due work on the event loop"
        )
        if metrics.sync_watch is not None:
            yield GaugeMetricFamily(
                "oncelog_fsync_under_way_seconds",
                "Duration of the fsync in progress",
                metrics.sync_watch.under_way,
            )
            yield CounterMetricFamily(
                "oncelog_fsyncs_hung",
                "Fsyncs that took longer than three election timeouts",
                metrics.sync_watch.hung,
            )
        if metrics.memory is not None:
            yield GaugeMetricFamily(
                "oncelog_client_memory_bytes",
                "Memory of clients' requests and answers in progress, as counted",
                metrics.memory.used,
            )
            yield GaugeMetricFamily(
                "oncelog_client_memory_limit_bytes",
                "Memory at which clients get THROTTLED",
                metrics.memory.limit,
            )
        if metrics.quotas is not None:
            yield from quota_families(metrics.quotas)
        if metrics.clocks is not None:
            yield from _clock_families(metrics.clocks)
        yield metrics.transaction_commit.family(
            "oncelog_transaction_commit_seconds", "From the call of a commit to its answer"
        )
        if metrics.transactions is not None:
            yield from transaction_families(metrics.transactions())
        if metrics.upgrades is not None:
            yield from _upgrade_families(metrics.upgrades.plan())
        yield from metrics.repairs()
        yield from metrics.machine()
        yield GaugeMetricFamily(
            "oncelog_resident_memory_bytes", "Resident memory of the node", resident_bytes()
        )
        try:
            stats = metrics.storage()
        except StorageError as error:
            logger.debug("the store gives no figures: %s", error)
            return
        if stats is not None:
            yield from _storage_families(stats)


def _clock_families(clocks: Clocks) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "oncelog_clock_agreed",
        "1 while a majority of nodes shares this node's wall clock; else it does not lead",
        float(clocks.agreed),
    )
    ahead = GaugeMetricFamily(
        "oncelog_clock_ahead_seconds",
        "How far a node's wall clock is ahead of this node's",
        labels=("node",),
    )
    for node_id, seconds in clocks.offsets().items():
        ahead.add_metric([str(node_id)], seconds)
    yield ahead


def _upgrade_families(plan: UpgradePlan) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "oncelog_cluster_version", "Finalized version of the cluster", plan.finalized[0]
    )
    yield GaugeMetricFamily(
        "oncelog_upgrade_pending",
        "1 while a node runs a newer release than the finalized version",
        float(plan.is_pending),
    )


def _storage_families(stats: EngineStats) -> Iterator[Metric]:
    gauges = (
        ("disk_bytes", "Bytes used in the node's store directory", stats.disk_bytes),
        ("free_disk_bytes", "Bytes free on the store's file system", stats.free_disk_bytes),
        ("replay_bytes", "Bytes of the commit log that a restart replays", stats.replay_bytes),
        ("memtable_bytes", "Memory of writes that are not in tables yet", stats.memtable_bytes),
        ("block_cache_bytes", "Memory of the block cache", stats.cache_bytes),
        ("log_bytes", "Bytes of the commit log", stats.log_bytes),
        (
            "log_garbage_bytes",
            "Dropped bytes of it, not reclaimed yet",
            stats.log_garbage_bytes,
        ),
        ("flushes_pending", "Families with rows being written out", stats.flushes_pending),
        (
            "compaction_pending_bytes",
            "Estimated bytes that compaction has to rewrite",
            stats.compaction_pending_bytes,
        ),
        ("writes_stopped", "1 while RocksDB rejects writes", float(stats.stalled)),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"oncelog_storage_{name}", text, value)
    yield CounterMetricFamily(
        "oncelog_storage_background_errors",
        "Flushes and compactions that failed",
        stats.background_errors,
    )


def _partition_families(partitions: Sequence[PartitionSample]) -> Iterator[Metric]:
    labels = ("topic", "partition")
    counters = (
        ("batches", "Batches appended and applied", "batches"),
        ("records", "Records appended and applied", "records"),
        ("bytes", "Payload bytes appended and applied", "bytes"),
        (
            "producers_throttled",
            "Batches and opens of new producers rejected because the last-seen map is full",
            "producers_throttled",
        ),
        (
            "batches_rebuilt",
            "Repeated batches with other bytes than the stored ones (Kafka's protocol)",
            "batches_rebuilt",
        ),
    )
    for name, text, attribute in counters:
        counter = CounterMetricFamily(f"oncelog_{name}", text, labels=labels)
        for one in partitions:
            counter.add_metric(_labels(one), getattr(one, attribute))
        yield counter
    gauges = (
        ("partition_leader", "1 where this node leads the partition", "leads"),
        ("partition_failed", "1 where this replica has stopped after a fault", "failed"),
        ("partition_under_replicated", "1 where a follower is not in step", "under_replicated"),
        ("partition_term", "Raft term", "term"),
        ("partition_commit_index", "Highest Raft index known to be committed", "commit_index"),
        ("partition_applied_index", "Highest Raft index applied", "applied_index"),
        ("partition_log_start_offset", "First stored offset", "log_start_offset"),
        ("partition_high_watermark", "First offset not yet committed", "high_watermark"),
        ("partition_stored_bytes", "Stored payload bytes", "stored_bytes"),
        ("partition_producers", "Producers in the last-seen map", "producers"),
        ("transaction_staged_bytes", "Bytes staged by open transactions", "staged_bytes"),
        ("transaction_staged_offsets", "Groups with offsets of open transactions", "staged_groups"),
        (
            "transaction_pinned_entries",
            "Entries that the Raft log keeps for the oldest open transaction",
            "pinned_entries",
        ),
    )
    for name, text, attribute in gauges:
        gauge = GaugeMetricFamily(f"oncelog_{name}", text, labels=labels)
        for one in partitions:
            gauge.add_metric(_labels(one), float(getattr(one, attribute)))
        yield gauge
    yield from _lags(partitions)
    yield from _verdicts(partitions)


def _group_families(groups: Sequence[GroupSample]) -> Iterator[Metric]:
    labels = ("group",)
    members = GaugeMetricFamily("oncelog_group_members", "Members of a group", labels=labels)
    rebalances = CounterMetricFamily(
        "oncelog_group_rebalances",
        "Rebalances of a group since this node leads it",
        labels=labels,
    )
    idle = GaugeMetricFamily(
        "oncelog_group_idle_seconds",
        "Longest time since a member asked for records",
        labels=labels,
    )
    commit = GaugeMetricFamily(
        "oncelog_group_commit_age_seconds", "Time since the last commit of a group", labels=labels
    )
    lag = GaugeMetricFamily(
        "oncelog_group_lag_records",
        "Records behind a group's offsets, where this node has all of the partitions",
        labels=("group", "topic"),
    )
    for one in groups:
        members.add_metric([one.group], one.members)
        rebalances.add_metric([one.group], one.rebalances)
        idle.add_metric([one.group], one.idle)
        if one.since_commit >= 0:
            commit.add_metric([one.group], one.since_commit)
        for topic, records in one.lag.items():
            lag.add_metric([one.group, topic], records)
    yield from (members, rebalances, idle, commit, lag)


def _lags(partitions: Sequence[PartitionSample]) -> Iterator[Metric]:
    apply_lag = GaugeMetricFamily(
        "oncelog_replica_apply_lag_entries",
        "Committed entries that this replica has not applied",
        labels=("topic", "partition"),
    )
    follower_lag = GaugeMetricFamily(
        "oncelog_follower_lag_entries",
        "Entries that a follower is behind this leader",
        labels=("topic", "partition", "node"),
    )
    for one in partitions:
        apply_lag.add_metric(_labels(one), max(0, one.commit_index - one.applied_index))
        for node_id, lag in one.follower_lag.items():
            follower_lag.add_metric([*_labels(one), str(node_id)], lag)
    yield apply_lag
    yield follower_lag


def _verdicts(partitions: Sequence[PartitionSample]) -> Iterator[Metric]:
    verdicts = CounterMetricFamily(
        "oncelog_verdicts",
        "Batches by verdict",
        labels=("topic", "partition", "verdict"),
    )
    duplicates = CounterMetricFamily(
        "oncelog_duplicates_refused",
        "Batches that were stored before and were not stored again",
        labels=("topic", "partition"),
    )
    names = {number: name.removeprefix("VERDICT_") for name, number in Verdict.items()}
    for one in partitions:
        for number, count in one.verdicts.items():
            verdicts.add_metric([*_labels(one), names.get(number, str(number))], count)
        duplicates.add_metric(_labels(one), one.verdicts.get(Verdict.VERDICT_DUPLICATE, 0))
    yield verdicts
    yield duplicates


def _labels(one: PartitionSample) -> list[str]:
    return [one.topic, str(one.partition)]


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not show it this way."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
