"""Picture of a cluster that `oncelog top` refreshes: its health, and tables with rates and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oncelog.lag import GroupLag
from oncelog.types import ClusterInfo, GroupInfo, NodeStatus, ProducerName, TopicInfo
from oncelog.views.cluster import find_problems
from oncelog.views.nodes import waiting
from oncelog.views.tables import Listing, group_rows, node_rows, producer_rows
from oncelog.views.words import plural, seconds


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a cluster. `at`: seconds of a monotonic clock; `refused`: parts not shown."""

    at: float
    cluster: ClusterInfo
    topics: Sequence[TopicInfo] = ()
    groups: Sequence[GroupInfo] = ()
    lags: Mapping[str, GroupLag] = field(default_factory=dict)
    nodes: Sequence[NodeStatus] = ()
    producers: Sequence[ProducerName] = ()
    refused: Sequence[str] = ()


def headline(look: Look) -> str:
    """Return the health and the changes in progress as a line."""
    facts = look.cluster
    problems = "; ".join(find_problems(facts))
    counts = ", ".join(
        (
            plural(len(facts.nodes), "node"),
            plural(facts.topics, "topic"),
            plural(facts.partitions, "partition"),
        )
    )
    lines = [f"not healthy: {problems}" if problems else "healthy", counts]
    return ". ".join([*lines, *waiting(look.nodes), *look.refused])


def _groups(look: Look) -> Listing:
    lags = [look.lags.get(one.group) for one in look.groups]
    return (
        group_rows(look.groups)
        .plus("lag", (one and one.lag for one in lags))
        .plus("behind", (one and seconds(one.lag_ms) for one in lags))
    )


def tables(look: Look, before: Look | None = None) -> dict[str, Listing]:
    """Return the tables by name. before: an earlier look, for the rates."""
    return {
        "topics": _topics(look, before),
        "groups": _groups(look),
        "nodes": node_rows(look.nodes),
        "producers": producer_rows(look.producers),
    }


def _topics(look: Look, before: Look | None) -> Listing:
    earlier = {} if before is None else {one.topic_id: one for one in before.topics}
    seconds = 0.0 if before is None else look.at - before.at
    return Listing(
        ("topic", "partitions", "replicas", "records", "records/s", "no leader", "moving"),
        [
            (
                info.name,
                info.partition_count,
                info.replica_count,
                _records(info),
                _rate(info, earlier.get(info.topic_id), seconds),
                sum(not one.leader_id for one in info.partitions),
                sum(bool(one.target) for one in info.partitions),
            )
            for info in look.topics
        ],
    )


def _records(info: TopicInfo) -> int | None:
    """Return the number of records; None: the answering node has not all partitions."""
    if any(one.high_watermark < 0 for one in info.partitions):
        return None
    return sum(one.high_watermark - one.log_start_offset for one in info.partitions)


def _rate(info: TopicInfo, earlier: TopicInfo | None, seconds: float) -> int | None:
    """Return the records per second, or None. Another node may be a little behind."""
    if earlier is None or seconds <= 0 or _records(info) is None or _records(earlier) is None:
        return None
    ends = [sum(one.high_watermark for one in topic.partitions) for topic in (info, earlier)]
    return max(0, round((ends[0] - ends[1]) / seconds))
