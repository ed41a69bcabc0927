"""Topics and their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, with one row for each partition. problems: partitions that cannot be written now."""

    name: str
    topic_id: int
    created_ms: int
    config: dict[str, object]
    partitions: tuple[dict[str, object], ...]
    problems: tuple[str, ...]


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


def topic_view(info: TopicInfo) -> TopicDescription:
    lacking = [str(one.partition) for one in info.partitions if not one.leader_id]
    names = ", ".join(lacking)
    problems = [f"without a leader, so neither written nor read: partitions {names}"]
    is_compacted = info.config.cleanup_policy not in (None, CleanupPolicy.DELETE)
    return TopicDescription(
        info.name,
        info.topic_id,
        info.created_ms,
        settings_of(info.config),
        tuple(_partition(one, is_compacted) for one in info.partitions),
        tuple(problems if lacking else ()),
    )


def _partition(one: PartitionInfo, is_compacted: bool) -> dict[str, object]:
    """Return the row of a partition; None: there is none, or it is not known."""
    return {
        "partition": one.partition,
        "leader": one.leader_id or None,
        "term": one.term,
        "replicas": one.replicas,
        "moves_to": one.target or None,
        "start": None if one.log_start_offset < 0 else one.log_start_offset,
        "high_watermark": None if one.high_watermark < 0 else one.high_watermark,
        **({"compacted_to": one.cleaned_offset} if is_compacted else {}),
    }
