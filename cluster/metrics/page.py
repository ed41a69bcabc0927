"""Figures of a node for Prometheus. One `Metrics` per node, passed in; nothing global.

The hot path only adds to plain integers: to a partition's own counters, and to the histograms
here. They become text when the page is asked for, in a thread of its server. So `source` must
hand out figures that it has copied, without waiting for anything.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Protocol

from cluster.events.recorder import KINDS, Recorder
from cluster.metrics.groups import GroupSample, group_families
from cluster.metrics.http import Page, PageAnswer, serve_pages
from cluster.metrics.partitions import MANY, PartitionSample, partition_families
from cluster.metrics.process import process_families
from cluster.metrics.requests import Requests
from cluster.metrics.text import (
    CONTENT,
    COUNTER,
    GAUGE,
    Histogram,
    MetricFamily,
    counter,
    gauge,
    labels,
    render,
)
from cluster.metrics.transactions import TransactionSample, transaction_families
from cluster.security.quotas import Quotas
from storage.errors import StorageError
from storage.metrics import EngineStats

logger = logging.getLogger(__name__)

DETAIL = "detail=partition"

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
    parts: further families of the node's parts.
    """

    def __init__(self) -> None:
        self.elections = 0  # won by this node
        self.leases = 0
        self.records_read = 0
        self.bytes_read = 0
        self.commit_latency = Histogram()  # a batch: from its proposal to its answer
        self.fsync_latency = Histogram()
        self.loop_delay = Histogram()
        self.transaction_commit = Histogram()  # from a commit's call to its answer
        self.requests = Requests()
        self.events = Recorder()
        self.transactions: Callable[[], TransactionSample] | None = None
        self.sync_watch: SyncState | None = None
        self.memory: Memory | None = None
        self.quotas: Quotas | None = None
        self.source: Source = tuple
        self.groups: GroupSource = tuple
        self.groups_left_out: Callable[[], int] = int
        self.storage: StorageSource = lambda: None
        self.clocks: Clocks | None = None
        self.upgrades: UpgradePlans | None = None
        self.parts: list[Callable[[], Iterable[MetricFamily]]] = []

    def start_http(
        self,
        address: str,
        context: Callable[[], ssl.SSLContext] | None = None,
        others: Mapping[str, Page] = MappingProxyType({}),
    ) -> Callable[[], None]:
        """Serve the page at http://ADDRESS/metrics, "host:port"; returns a function that stops it.

        context: of TLS, asked for each connection; then it is https. others: pages by path.
        Raises ListenError.
        """
        return serve_pages("metrics_listen", address, {"/metrics": self._page, **others}, context)

    def _page(self, query: str) -> PageAnswer:
        return PageAnswer(HTTPStatus.OK, self.page(query), CONTENT)

    def page(self, query: str = "") -> str:
        """Return the page. query: DETAIL for each partition, however many there are."""
        samples = list(self.source())
        by_topic = len(samples) > MANY and DETAIL not in query.split("&")
        head = f"# {len(samples)} replicas, by topic; with ?{DETAIL} by partition\n"
        partitions = partition_families(samples, by_topic=by_topic)
        return (head if by_topic else "") + render((*partitions, *self._families()))

    def _families(self) -> Iterator[MetricFamily]:
        yield from group_families(list(self.groups()))
        yield gauge(
            "oncelog_groups_not_shown",
            "Groups with offsets here beyond those that the page shows",
            self.groups_left_out(),
        )
        yield counter("oncelog_elections_total", "Elections that this node won", self.elections)
        yield counter(
            "oncelog_producer_leases_total", "Producer ids leased by this node", self.leases
        )
        yield counter("oncelog_read_records_total", "Records sent to readers", self.records_read)
        yield counter("oncelog_read_bytes_total", "Payload bytes sent to readers", self.bytes_read)
        yield from self.requests.families()
        yield MetricFamily(
            "oncelog_events_total",
            COUNTER,
            "Events of the flight recorder by kind, repeats counted",
            [(labels(kind=kind), self.events.totals[kind]) for kind in KINDS],
        )
        yield self.commit_latency.family(
            "oncelog_commit_latency_seconds", "From proposing a batch to answering it"
        )
        yield self.fsync_latency.family(
            "oncelog_fsync_latency_seconds", "Time to make written data durable"
        )
        yield self.loop_delay.family(
            "oncelog_loop_delay_seconds", "Delay of due work on the event loop"
        )
        yield self.transaction_commit.family(
            "oncelog_transaction_commit_seconds", "From the call of a commit to its answer"
        )
        yield from self._optional()
        yield from process_families()
        for part in self.parts:
            yield from part()
        try:
            stats = self.storage()
        except StorageError as error:
            logger.debug("the store gives no figures: %s", error)
            return
        if stats is not None:
            yield from _storage_families(stats)

    def _optional(self) -> Iterator[MetricFamily]:
        """Yield families of parts that come while the node starts, and not in each test."""
        if self.sync_watch is not None:
            yield gauge(
                "oncelog_fsync_under_way_seconds",
                "Duration of the fsync in progress",
                self.sync_watch.under_way,
            )
            yield counter(
                "oncelog_fsyncs_hung_total",
                "Fsyncs that took longer than three election timeouts",
                self.sync_watch.hung,
            )
        if self.memory is not None:
            yield gauge(
                "oncelog_client_memory_bytes",
                "Memory of clients' requests and answers in progress, as counted",
                self.memory.used,
            )
            yield gauge(
                "oncelog_client_memory_limit_bytes",
                "Memory at which clients get THROTTLED",
                self.memory.limit,
            )
        yield from _quota_families(self.quotas)
        if self.clocks is not None:
            yield from _clock_families(self.clocks)
        if self.transactions is not None:
            yield from transaction_families(self.transactions())
        if self.upgrades is not None:
            yield from _upgrade_families(self.upgrades.plan())


def _quota_families(quotas: Quotas | None) -> Iterator[MetricFamily]:
    """Yield delays of principals for their quotas: by quota, never by principal."""
    delayed, refused = (quotas.delayed, quotas.refused) if quotas else ({}, {})
    yield MetricFamily(
        "oncelog_quota_delay_seconds_total",
        COUNTER,
        "Time that calls and streams waited for a rate of their principal",
        [(labels(quota=name), seconds) for name, seconds in delayed.items()],
    )
    yield MetricFamily(
        "oncelog_quota_refused_total",
        COUNTER,
        "Calls THROTTLED by a quota of their principal",
        [(labels(quota=name), count) for name, count in refused.items()],
    )


def _clock_families(clocks: Clocks) -> Iterator[MetricFamily]:
    yield gauge(
        "oncelog_clock_agreed",
        "1 while a majority of nodes shares this node's wall clock; else it does not lead",
        int(clocks.agreed),
    )
    yield MetricFamily(
        "oncelog_clock_ahead_seconds",
        GAUGE,
        "How far a node's wall clock is ahead of this node's",
        [(labels(node=node_id), seconds) for node_id, seconds in clocks.offsets().items()],
    )


def _upgrade_families(plan: UpgradePlan) -> Iterator[MetricFamily]:
    yield gauge("oncelog_cluster_version", "Finalized version of the cluster", plan.finalized[0])
    yield gauge(
        "oncelog_upgrade_pending",
        "1 while a node runs a newer release than the finalized version",
        int(plan.is_pending),
    )


def _storage_families(stats: EngineStats) -> Iterator[MetricFamily]:
    for name, text, value in (
        ("disk_bytes", "Bytes used in the node's store directory", stats.disk_bytes),
        ("free_disk_bytes", "Bytes free on the store's file system", stats.free_disk_bytes),
        ("disk_size_bytes", "Size of the store's file system", stats.disk_size_bytes),
        ("replay_bytes", "Bytes of the commit log that a restart replays", stats.replay_bytes),
        ("memtable_bytes", "Memory of writes that are not in tables yet", stats.memtable_bytes),
        ("block_cache_bytes", "Memory of the block cache", stats.cache_bytes),
        ("log_bytes", "Bytes of the commit log", stats.log_bytes),
        ("log_garbage_bytes", "Dropped bytes of it, not reclaimed yet", stats.log_garbage_bytes),
        ("flushes_pending", "Families with rows being written out", stats.flushes_pending),
        (
            "compaction_pending_bytes",
            "Estimated bytes that compaction has to rewrite",
            stats.compaction_pending_bytes,
        ),
        ("writes_stopped", "1 while RocksDB rejects writes", int(stats.stalled)),
    ):
        yield gauge(f"oncelog_storage_{name}", text, value)
    yield counter(
        "oncelog_storage_background_errors_total",
        "Flushes and compactions that failed",
        stats.background_errors,
    )
