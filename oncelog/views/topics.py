"""Topics and their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.types import (
    CleanupPolicy,
    ExpectedOffsets,
    PartitionInfo,
    TopicConfig,
    TopicFormats,
    TopicInfo,
)

# Settings that have words as values.
CHOICES: Mapping[str, type[ExpectedOffsets | TopicFormats | CleanupPolicy]] = {
    "expected_offsets": ExpectedOffsets,
    "formats": TopicFormats,
    "cleanup_policy": CleanupPolicy,
}


def summary(info: TopicInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "partitions": info.partition_count,
        "replicas": info.replica_count,
        "created_ms": info.created_ms,
    }


def settings_of(config: TopicConfig) -> dict[str, object]:
    """Return the settings by name; None: the cluster's default."""
    compaction = {
        "min_compaction_lag_ms": config.min_compaction_lag_ms,
        "max_compaction_lag_ms": config.max_compaction_lag_ms,
        "delete_retention_ms": config.delete_retention_ms,
        "min_cleanable_dirty_ratio": config.min_cleanable_dirty_ratio,
    }
    return {
        "retention_ms": config.retention_ms,
        "retention_bytes": config.retention_bytes,
        "max_batch_bytes": config.max_batch_bytes,
        "expected_offsets": config.expected_offsets,
        "formats": config.formats,
        "cleanup_policy": config.cleanup_policy,
        **{name: value for name, value in compaction.items() if value is not None},
    }


def partition_rows(info: TopicInfo) -> list[dict[str, object]]:
    """Return the rows of a topic's partitions, with one column more if it is compacted."""
    is_compacted = info.config.cleanup_policy not in (None, CleanupPolicy.DELETE)
    return [partition_row(one, is_compacted=is_compacted) for one in info.partitions]


def partition_row(one: PartitionInfo, *, is_compacted: bool = False) -> dict[str, object]:
    """Return the row of a partition; None: there is none, or it is not known."""
    return {
        "partition": one.partition,
        "leader": one.leader_id or None,
        "term": one.term,
        "replicas": one.replicas,
        "moves to": one.target or None,
        "start": None if one.log_start_offset < 0 else one.log_start_offset,
        "high watermark": None if one.high_watermark < 0 else one.high_watermark,
        **({"compacted to": one.cleaned_offset} if is_compacted else {}),
    }


def find_lacking(info: TopicInfo) -> list[str]:
    """Return a sentence for partitions that nobody can write to now."""
    leaderless = [str(one.partition) for one in info.partitions if not one.leader_id]
    if not leaderless:
        return []
    return [f"without a leader, so neither written nor read: partitions {', '.join(leaderless)}"]
