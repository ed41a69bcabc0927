"""Lists as tables, facts of one thing, and names that match a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from oncelog.permissions import PermissionRule, Quota
from oncelog.types import (
    GroupInfo,
    NodeStatus,
    ProducerName,
    SinkInfo,
    TopicInfo,
    TransactionInfo,
)
from oncelog.views.nodes import state_of, vote_of
from oncelog.views.words import copied, seconds, when

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing:
    """A table. A row has one value for each column; None: there is none, or it is not known."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]

    def plus(self, column: str, values: Iterable[object]) -> Listing:
        """Return the table with one more column."""
        rows = [(*row, value) for row, value in zip(self.rows, values, strict=True)]
        return Listing((*self.columns, column), rows)


def headings(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names of rows' fields as words."""
    return [name.replace("_", " ") for name in rows[0]] if rows else []


def topic_rows(topics: Iterable[TopicInfo]) -> Listing:
    return Listing(
        ("topic", "partitions", "replicas", "created"),
        [(i.name, i.partition_count, i.replica_count, when(i.created_ms)) for i in topics],
    )


def group_rows(groups: Iterable[GroupInfo]) -> Listing:
    return Listing(
        ("group", "partitions", "last commit", "members", "protocol"),
        [
            (one.group, one.offsets, when(one.last_commit_ms), one.members, one.protocol or None)
            for one in groups
        ],
    )


def node_rows(nodes: Iterable[NodeStatus]) -> Listing:
    """Return nodes in their order.

    With columns for the labels that any of them has, and for votes if not all nodes vote.
    """
    nodes = list(nodes)
    votes = ("metadata",) if any(one.metadata_learner for one in nodes) else ()
    labels = [name for name in ("rack", "machine") if any(getattr(one, name) for one in nodes)]
    counts = ("replicas", "leads", "coming", "going", "copied")
    return Listing(
        ("node", "address", *labels, "alive", "state", *votes, *counts),
        [
            (
                one.node_id,
                one.address or None,
                *(getattr(one, name) or None for name in labels),
                one.alive,
                state_of(one),
                *(vote_of(one) or None for _ in votes),
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


def transaction_rows(found: Iterable[TransactionInfo]) -> Listing:
    return Listing(
        ("transaction", "state", "owner", "age", "partitions", "staged bytes"),
        [
            (
                one.transaction_id,
                state_of_transaction(one),
                owner_of(one),
                seconds(one.age_ms),
                len(one.partitions),
                one.staged_bytes,
            )
            for one in found
        ],
    )


def transaction_facts(one: TransactionInfo) -> list[tuple[str, str | int | None]]:
    return [
        ("transaction", one.transaction_id),
        ("state", state_of_transaction(one)),
        ("owner", owner_of(one)),
        ("producer id", one.producer_id or None),
        ("epoch", one.epoch if one.producer_id else None),
        ("begun", when(one.begun_ms)),
        ("age", seconds(one.age_ms)),
        ("idle limit", seconds(one.idle_timeout_ms)),
        ("total limit", seconds(one.total_timeout_ms)),
        ("staged bytes", one.staged_bytes),
    ]


def part_rows(one: TransactionInfo) -> Listing:
    """Return a transaction's partitions."""
    return Listing(
        ("topic", "partition", "knows the end", "staged records", "staged bytes", "offsets"),
        [
            (
                part.topic or "(deleted)",
                part.partition,
                part.ended,
                "?" if part.staged_records < 0 else part.staged_records,
                "?" if part.staged_records < 0 else part.staged_bytes,
                part.staged_offsets,
            )
            for part in one.partitions
        ],
    )


def state_of_transaction(one: TransactionInfo) -> str:
    return f"{one.state} ({one.reason})" if one.reason else one.state


def owner_of(one: TransactionInfo) -> str:
    return f"sink {one.producer_name}" if one.sink else one.producer_name


def sink_rows(sinks: Iterable[SinkInfo]) -> Listing:
    return Listing(
        ("sink", "of", "last batch", "records", "open batch"),
        [
            (
                one.sink,
                "jobs" if one.jobs else one.query or None,
                batch_of(one.committed_batch),
                one.record_count,
                batch_of(one.open_batch),
            )
            for one in sinks
        ],
    )


def sink_facts(found: SinkInfo) -> list[tuple[str, str | int | None]]:
    facts: list[tuple[str, str | int | None]] = [
        ("sink", found.sink),
        ("of", "batch jobs" if found.jobs else "a streaming query"),
        ("query", found.query or None),
        ("run", found.run or None),
        ("last batch", batch_of(found.committed_batch)),
        ("records in it", found.record_count),
        ("open batch", batch_of(found.open_batch)),
        ("open transaction", found.open_transaction_id or None),
    ]
    if found.jobs:
        ranges = [
            f"{first}..{last}" if first != last else str(first) for first, last in found.committed
        ]
        facts.append(("batches", ", ".join(ranges) or None))
    if found.before is not None:
        query, batch, records = found.before
        facts.append(("before the reset", f"query {query}, batch {batch}, {records} records"))
    return facts


def batch_of(number: int) -> int | None:
    return None if number < 0 else number


def quota_rows(quotas: Iterable[Quota]) -> Listing:
    return Listing(
        ("principal", "name", "value"),
        [(one.principal, one.name, one.value or "no limit") for one in quotas],
    )


def rule_rows(rules: Iterable[PermissionRule]) -> Listing:
    return Listing(
        ("effect", "principal", "operations", "kind", "name"),
        [
            (
                "deny" if rule.deny else "allow",
                rule.principal,
                rule.operations,
                rule.kind,
                f"{rule.name}..." if rule.prefix else rule.name or None,
            )
            for rule in rules
        ],
    )


def matching(things: Iterable[T], patterns: Sequence[str], name_of: Callable[[T], str]) -> list[T]:
    """Return things with a name like a pattern such as "orders-*"; all without patterns."""
    return [
        one
        for one in things
        if not patterns or any(fnmatchcase(name_of(one), pattern) for pattern in patterns)
    ]
