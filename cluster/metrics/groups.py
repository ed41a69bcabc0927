"""Metrics of the consumer groups with offsets on this node.

Node --GroupSample--> group_families --MetricFamily--> the page
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.metrics.text import COUNTER, GAUGE, MetricFamily, labels


@dataclass(slots=True)
class TopicLag:
    """Lag of a group in a topic: records of all partitions, seconds of the worst one.

    uncommitted: partitions without a committed offset. unknown: of those without a leader, or
    whose leader did not answer. Neither is part of `records` and `seconds`.
    """

    records: int = 0
    seconds: float = 0.0
    uncommitted: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One consumer group with its offsets on this node, at one moment. Seconds.

    rebalances:   of this leader's term. since_commit: -1 if nothing was committed.
    idle:         of the member that has not come back for records for longest.
    lag:          by topic.
    """

    group: str
    members: int = 0
    rebalances: int = 0
    idle: float = 0.0
    since_commit: float = -1.0
    lag: Mapping[str, TopicLag] = field(default_factory=dict)


_FIELDS: tuple[tuple[str, str, str, Callable[[GroupSample], float]], ...] = (
    ("members", GAUGE, "Members of a group", lambda one: one.members),
    (
        "rebalances_total",
        COUNTER,
        "Rebalances of a group since this node leads it",
        lambda one: one.rebalances,
    ),
    ("idle_seconds", GAUGE, "Longest time since a member asked for records", lambda one: one.idle),
)


_LAGS: tuple[tuple[str, str, Callable[[TopicLag], float]], ...] = (
    ("lag_records", "Records behind a group's offsets in a topic", lambda lag: lag.records),
    (
        "lag_seconds",
        "Append time of a partition's newest batch minus that at the group's offset; the largest",
        lambda lag: lag.seconds,
    ),
    (
        "uncommitted_partitions",
        "Partitions of the topic without an offset of the group; not part of the lag",
        lambda lag: lag.uncommitted,
    ),
    (
        "unknown_partitions",
        "Partitions without a leader that answers; not part of the lag",
        lambda lag: lag.unknown,
    ),
)


def group_families(groups: Sequence[GroupSample]) -> Iterator[MetricFamily]:
    keys = [labels(group=one.group) for one in groups]
    for name, kind, text, value in _FIELDS:
        rows = [(key, value(one)) for key, one in zip(keys, groups, strict=True)]
        yield MetricFamily(f"oncelog_group_{name}", kind, text, rows)
    yield MetricFamily(
        "oncelog_group_commit_age_seconds",
        GAUGE,
        "Time since the last commit of a group",
        [
            (key, one.since_commit)
            for key, one in zip(keys, groups, strict=True)
            if one.since_commit >= 0
        ],
    )
    topics = [
        (labels(group=one.group, topic=topic), lag)
        for one in groups
        for topic, lag in one.lag.items()
    ]
    for name, text, of in _LAGS:
        yield MetricFamily(
            f"oncelog_group_{name}", GAUGE, text, [(key, of(lag)) for key, lag in topics]
        )
