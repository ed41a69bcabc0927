"""Metrics of a node's replicas: one row for each, or for each topic where there are many.

Node --PartitionSample--> partition_families --MetricFamily--> the page
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from cluster.metrics.text import COUNTER, GAUGE, MetricFamily, Row, labels
from oncelog.v1.log_pb2 import Verdict

MANY = 1000  # replicas; a page of more shows topics, unless it is asked for partitions
_NAMES = {number: name.removeprefix("VERDICT_") for name, number in Verdict.items()}


@dataclass(slots=True)
class PartitionSample:
    """One replica of this node at one moment. Counters run since the node started.

    batches, records, bytes: applied while this node led.
    verdicts: number of oncelog.v1.Verdict -> how often. `follower_lag`, of a
    leader only: node id -> entries that it is behind the leader's last one.
    under_replicated: this node leads and a follower is not in step.
    entries_behind: committed entries that this replica lacks, as far as it knows.
    """

    topic: str
    partition: int
    leads: bool = False
    failed: bool = False
    under_replicated: bool = False
    term: int = 0
    commit_index: int = 0
    applied_index: int = 0
    entries_behind: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    stored_bytes: int = 0
    producers: int = 0
    producers_throttled: int = 0
    batches_rebuilt: int = 0
    duplicates: int = 0
    staged_bytes: int = 0
    staged_groups: int = 0
    pinned_entries: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    verdicts: Mapping[int, int] = field(default_factory=dict)
    follower_lag: Mapping[int, int] = field(default_factory=dict)


class _Field(NamedTuple):
    """A family of one attribute. merge: makes one value of a topic's; None: only partitions."""

    name: str
    kind: str
    text: str
    attribute: str
    merge: Callable[[Iterable[int]], int] | None = sum


_FIELDS = (
    _Field("appended_batches_total", COUNTER, "Batches stored, at their leader", "batches"),
    _Field("appended_records_total", COUNTER, "Records stored, at their leader", "records"),
    _Field("appended_bytes_total", COUNTER, "Payload bytes stored, at their leader", "bytes"),
    _Field(
        "duplicates_answered_total",
        COUNTER,
        "Repeated batches answered with the offset they have",
        "duplicates",
    ),
    _Field(
        "batches_rebuilt_total",
        COUNTER,
        "Repeated batches with other bytes than the stored ones (Kafka's protocol)",
        "batches_rebuilt",
    ),
    _Field(
        "producers_throttled_total",
        COUNTER,
        "Batches and opens of new producers rejected because the last-seen map is full",
        "producers_throttled",
    ),
    _Field("partition_leader", GAUGE, "1 where this node leads the partition", "leads"),
    _Field("partition_failed", GAUGE, "1 where this replica has stopped after a fault", "failed"),
    _Field(
        "partition_under_replicated", GAUGE, "1 where a follower is not in step", "under_replicated"
    ),
    _Field("partition_term", GAUGE, "Raft term", "term", max),
    _Field("partition_commit_index", GAUGE, "Highest Raft index committed", "commit_index", None),
    _Field("partition_applied_index", GAUGE, "Highest Raft index applied", "applied_index", None),
    _Field(
        "replica_lag_entries",
        GAUGE,
        "Committed entries that this replica has not applied",
        "entries_behind",
        max,
    ),
    _Field("partition_log_start_offset", GAUGE, "First stored offset", "log_start_offset", None),
    _Field(
        "partition_high_watermark", GAUGE, "First offset not yet committed", "high_watermark", None
    ),
    _Field("partition_stored_bytes", GAUGE, "Stored payload bytes", "stored_bytes"),
    _Field("partition_producers", GAUGE, "Producers in the last-seen map", "producers", max),
    _Field("transaction_staged_bytes", GAUGE, "Bytes staged by open transactions", "staged_bytes"),
    _Field(
        "transaction_staged_offsets",
        GAUGE,
        "Groups with offsets of open transactions",
        "staged_groups",
    ),
    _Field(
        "transaction_pinned_entries",
        GAUGE,
        "Entries that the Raft log keeps for the oldest open transaction",
        "pinned_entries",
        max,
    ),
)


def partition_families(
    samples: Sequence[PartitionSample], *, by_topic: bool
) -> Iterator[MetricFamily]:
    """Yield all families of replicas. by_topic: one row for each topic."""
    if by_topic:
        topics: dict[str, list[PartitionSample]] = {}
        for sample in samples:
            topics.setdefault(sample.topic, []).append(sample)
        yield from _families([(labels(topic=name), rows) for name, rows in topics.items()])
    else:
        yield from _families(
            [(labels(topic=one.topic, partition=one.partition), [one]) for one in samples]
        )


def _families(parts: Sequence[tuple[str, list[PartitionSample]]]) -> Iterator[MetricFamily]:
    single = all(len(rows) == 1 for _, rows in parts)
    for name, kind, text, attribute, merge in _FIELDS:
        value = attrgetter(attribute)
        rows: list[Row] = []
        if single:
            rows = [(key, int(value(one[0]))) for key, one in parts]
        elif merge is not None:
            rows = [(key, int(merge(map(value, every)))) for key, every in parts]
        yield MetricFamily(f"oncelog_{name}", kind, text, rows)
    yield MetricFamily("oncelog_verdicts_total", COUNTER, "Batches by verdict", _verdicts(parts))
    yield MetricFamily(
        "oncelog_follower_lag_entries",
        GAUGE,
        "Entries that a follower is behind this leader",
        _follower_lags(parts),
    )


def _verdicts(parts: Sequence[tuple[str, list[PartitionSample]]]) -> list[Row]:
    rows: list[Row] = []
    for key, samples in parts:
        counts: dict[int, int] = {}
        for sample in samples:
            for number, count in [*sample.verdicts.items()]:
                counts[number] = counts.get(number, 0) + count
        for number, count in counts.items():
            verdict = _NAMES.get(number, str(number))
            rows.append((f'{key[:-1]},verdict="{verdict}"}}', count))
    return rows


def _follower_lags(parts: Sequence[tuple[str, list[PartitionSample]]]) -> list[Row]:
    rows: list[Row] = []
    for key, samples in parts:
        lags: dict[int, int] = {}
        for sample in samples:
            for node, lag in sample.follower_lag.items():
                lags[node] = max(lag, lags.get(node, 0))
        rows += [(f'{key[:-1]},node="{node}"}}', lag) for node, lag in lags.items()]
    return rows
