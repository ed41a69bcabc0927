"""Lists of topics, groups, nodes and producer names as tables, and names that match a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from oncelog.lag import GroupLag
from oncelog.types import GroupInfo, NodeStatus, ProducerName, TopicInfo
from oncelog.views.nodes import state_of
from oncelog.views.words import copied, when

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing:
    """A table. A row has one value for each column; None: there is none, or it is not known."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


def topic_rows(topics: Iterable[TopicInfo]) -> Listing:
    return Listing(
        ("topic", "partitions", "replicas", "created"),
        [(i.name, i.partition_count, i.replica_count, when(i.created_ms)) for i in topics],
    )


def group_rows(groups: Iterable[GroupInfo], lags: Mapping[str, GroupLag] | None = None) -> Listing:
    """lags: of some groups, for a column."""
    columns = ("group", "partitions", "last commit", "members", "protocol")
    rows = [
        (one.group, one.offsets, when(one.last_commit_ms), one.members, one.protocol or None)
        for one in groups
    ]
    if lags is None:
        return Listing(columns, [*rows])
    known = {name: lag.lag for name, lag in lags.items()}
    return Listing((*columns, "lag"), [(*row, known.get(row[0])) for row in rows])


def node_rows(nodes: Iterable[NodeStatus]) -> Listing:
    """Return nodes in their order, with columns for the labels that any of them has."""
    nodes = list(nodes)
    labels = [name for name in ("rack", "machine") if any(getattr(one, name) for one in nodes)]
    counts = ("replicas", "leads", "coming", "going", "copied")
    return Listing(
        ("node", "address", *labels, "alive", "state", *counts),
        [
            (
                one.node_id,
                one.address or None,
                *(getattr(one, name) or None for name in labels),
                one.alive,
                state_of(one),
                one.replicas,
                one.leaderships,
                one.coming,
                one.going,
                copied(one.copied_bytes, one.coming_bytes),
            )
            for one in nodes
        ],
    )


def producer_rows(names: Iterable[ProducerName]) -> Listing:
    return Listing(
        ("name", "producer id", "epoch", "last lease"),
        [(n.name, n.producer_id, n.epoch, when(n.last_lease_ms)) for n in names],
    )


def matching(things: Iterable[T], patterns: Sequence[str], name_of: Callable[[T], str]) -> list[T]:
    """Return things with a name like a pattern such as "orders-*"; all without patterns."""
    return [
        one
        for one in things
        if not patterns or any(fnmatchcase(name_of(one), pattern) for pattern in patterns)
    ]
