"""A group: its members, partitions and lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oncelog.lag import GroupLag, PartitionLag
from oncelog.types import GroupMember, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group, with one row for each member and for each partition.

    `lag`: the sum of the known ones. `lag_ms`: the largest of the known ones, in time.
    """

    group: str
    coordinator_id: int
    epoch: int
    assignor: str
    protocol: str
    last_commit_ms: int
    lag: int
    lag_ms: int | None
    members: tuple[dict[str, Any], ...]
    offsets: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]


def group_view(progress: GroupLag) -> GroupView:
    found = progress.group
    owners = {tp: one for one in found.members for tp in one.owned}
    warnings = [f"{tp}: its lag is not known: {e.message}" for tp, e in progress.errors.items()]
    rows = [_row(tp, one, owners.get(tp)) for tp, one in progress.partitions.items()]
    return GroupView(
        found.group,
        found.coordinator_id,
        found.epoch,
        found.assignor,
        found.protocol,
        found.last_commit_ms,
        progress.lag,
        progress.lag_ms,
        tuple(_member(one, progress) for one in found.members),
        tuple(rows),
        tuple(warnings),
    )


def _member(one: GroupMember, progress: GroupLag) -> dict[str, Any]:
    return {
        "member_id": one.member_id,
        "instance_id": one.instance_id,
        "host": one.client_host,
        "owned": len(one.owned),
        "revoking": len(one.revoking),
        "idle_ms": one.idle_ms,
        "connected": one.connected,
        "lag": sum(progress.partitions[tp].lag or 0 for tp in one.owned),
    }


def _row(tp: TopicPartition, one: PartitionLag, owner: GroupMember | None) -> dict[str, Any]:
    """Return one partition's row; null: not committed, or not known because no leader answers."""
    at = one.committed
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": None if at is None else at.offset,
        "high_watermark": one.high_watermark,
        "lag": one.lag,
        "lag_ms": one.lag_ms,
        "owner": "" if owner is None else owner.member_id,
        "ownership": 0 if owner is None else owner.owned[tp],
        "metadata": "" if at is None else at.metadata,
        "producer_id": 0 if at is None else at.producer_id,
        "epoch": 0 if at is None else at.epoch,
        "sequence": 0 if at is None else at.sequence,
        "commit_ms": 0 if at is None else at.commit_ms,
    }
