"""Replica comparison: reads each replica of a partition by itself and lists differences.

The comparison covers each batch's header, payload, offset and time, and the last-seen map.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.api import Api


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica's copy of one partition."""

    node_id: int
    start: int
    high_watermark: int
    batches: int
    offsets: int  # that its batches hold, with the blanks of a compacted topic
    log_digest: str
    last_seen: Mapping[int, str]  # producer id -> its state as text


def view(api: Api, node_id: int, topic: str, partition: int) -> ReplicaView:
    """Reads the whole replica. Raises AssertionError if offsets have a hole or overlap."""
    digest = hashlib.sha256()
    start = api.offset(topic, partition, "earliest", any_replica=True)
    batches = offsets = 0
    position = -1
    for stored in api.stored(topic, partition, start=start):
        if position >= 0:
            assert stored.base_offset == position, (
                f"node {node_id}: {topic}-{partition}: after offset {position - 1} "
                f"comes {stored.base_offset}"
            )
        digest.update(stored.SerializeToString(deterministic=True))
        position = stored.base_offset + stored.header.record_count
        batches += 1
        offsets += stored.header.record_count
    return ReplicaView(
        node_id=node_id,
        start=start,
        high_watermark=max(position, start),
        batches=batches,
        offsets=offsets,
        log_digest=digest.hexdigest(),
        last_seen={state.producer_id: str(state) for state in api.last_seen(topic, partition)},
    )


def differences(views: Iterable[ReplicaView]) -> list[str]:
    """Differences from the first view; empty if all are equal."""
    first, *others = views
    found = []
    for other in others:
        pair = f"nodes {first.node_id} and {other.node_id}"
        for name in ("start", "high_watermark", "batches", "offsets", "log_digest"):
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                found.append(f"{pair}: {name} {mine} and {theirs}")
        for pid in sorted(first.last_seen.keys() | other.last_seen.keys()):
            a, b = first.last_seen.get(pid, "unknown"), other.last_seen.get(pid, "unknown")
            if a != b:
                found.append(f"{pair}: last seen of producer {pid}: {a} and {b}")
    return found


def compare(apis: Mapping[int, Api], topic: str, partitions: Iterable[int]) -> list[str]:
    """Reads all replicas of the partitions; returns the differences, each with its partition."""
    return [
        f"{topic}-{partition}: {difference}"
        for partition in partitions
        for difference in differences(
            [view(api, node, topic, partition) for node, api in apis.items()]
        )
    ]
