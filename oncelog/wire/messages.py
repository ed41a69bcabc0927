"""Protobuf messages <-> the types of `oncelog.types`. Pure."""

from __future__ import annotations

from oncelog import types as t
from oncelog.errors import ConfigError
from oncelog.moves import Balance, PartitionMove, Resized
from oncelog.permissions import PermissionRule
from oncelog.v1 import cluster_pb2, log_pb2, producer_pb2, security_pb2, transaction_pb2

_EXPECTED = {
    t.ExpectedOffsets.CHECKED: cluster_pb2.EXPECTED_OFFSETS_CHECKED,
    t.ExpectedOffsets.IGNORED: cluster_pb2.EXPECTED_OFFSETS_IGNORED,
    t.ExpectedOffsets.REQUIRED: cluster_pb2.EXPECTED_OFFSETS_REQUIRED,
}
_EXPECTED_BACK: dict[int, t.ExpectedOffsets] = {number: name for name, number in _EXPECTED.items()}

_FORMATS = {
    t.TopicFormats.COLUMNAR: cluster_pb2.TOPIC_FORMATS_COLUMNAR,
    t.TopicFormats.KAFKA: cluster_pb2.TOPIC_FORMATS_KAFKA,
    t.TopicFormats.BOTH: cluster_pb2.TOPIC_FORMATS_BOTH,
}
_FORMATS_BACK: dict[int, t.TopicFormats] = {number: name for name, number in _FORMATS.items()}

_CLEANUPS = {
    t.CleanupPolicy.DELETE: cluster_pb2.CLEANUP_POLICY_DELETE,
    t.CleanupPolicy.COMPACT: cluster_pb2.CLEANUP_POLICY_COMPACT,
    t.CleanupPolicy.COMPACT_DELETE: cluster_pb2.CLEANUP_POLICY_COMPACT_DELETE,
}
_CLEANUPS_BACK: dict[int, t.CleanupPolicy] = {number: name for name, number in _CLEANUPS.items()}
# Fields of TopicConfig that are the same in the message.
_NUMBERS = (
    "retention_ms",
    "retention_bytes",
    "max_batch_bytes",
    "min_compaction_lag_ms",
    "max_compaction_lag_ms",
    "delete_retention_ms",
    "min_cleanable_dirty_ratio",
)

_RESOLUTIONS: dict[int, t.Resolution] = {
    log_pb2.RESOLUTION_UNSPECIFIED: t.Resolution.FORGOTTEN,
    log_pb2.RESOLUTION_COMMITTED: t.Resolution.COMMITTED,
    log_pb2.RESOLUTION_NEVER: t.Resolution.NEVER,
    log_pb2.RESOLUTION_NOT_YET: t.Resolution.NOT_YET,
}


def expected_offsets(name: object) -> t.ExpectedOffsets:
    """Parse a name. Raises ConfigError for any but the three."""
    try:
        return t.ExpectedOffsets(str(name))
    except ValueError:
        choices = ", ".join(t.ExpectedOffsets)
        raise ConfigError(
            f"expected_offsets must be one of {choices}, got {name!r}", "expected_offsets"
        ) from None


def formats(name: object) -> t.TopicFormats:
    """Parse a name. Raises ConfigError for any but the three."""
    try:
        return t.TopicFormats(str(name))
    except ValueError:
        choices = ", ".join(t.TopicFormats)
        raise ConfigError(f"formats must be one of {choices}, got {name!r}", "formats") from None


def cleanup_policy(name: object) -> t.CleanupPolicy:
    """Parse a name. Raises ConfigError for any but the three."""
    try:
        return t.CleanupPolicy(str(name))
    except ValueError:
        choices = ", ".join(t.CleanupPolicy)
        text = f"cleanup_policy must be one of {choices}, got {name!r}"
        raise ConfigError(text, "cleanup_policy") from None


def topic_config_to_message(config: t.TopicConfig) -> cluster_pb2.TopicConfig:
    message = cluster_pb2.TopicConfig()
    for name in _NUMBERS:
        value = getattr(config, name)
        if value is not None:
            setattr(message, name, value)
    if config.expected_offsets is not None:
        message.expected_offsets = _EXPECTED[expected_offsets(config.expected_offsets)]
    if config.formats is not None:
        message.formats = _FORMATS[formats(config.formats)]
    if config.cleanup_policy is not None:
        message.cleanup_policy = _CLEANUPS[cleanup_policy(config.cleanup_policy)]
    return message


def topic_config(message: cluster_pb2.TopicConfig) -> t.TopicConfig:
    given = {name: getattr(message, name) for name in _NUMBERS if message.HasField(name)}
    return t.TopicConfig(
        expected_offsets=_EXPECTED_BACK.get(message.expected_offsets, t.ExpectedOffsets.CHECKED),
        formats=_FORMATS_BACK.get(message.formats, t.TopicFormats.COLUMNAR),
        cleanup_policy=_CLEANUPS_BACK.get(message.cleanup_policy, t.CleanupPolicy.DELETE),
        **given,
    )


def topic_info(message: cluster_pb2.TopicInfo) -> t.TopicInfo:
    return t.TopicInfo(
        message.name,
        message.topic_id,
        tuple(
            t.PartitionInfo(
                p.partition,
                p.leader_id,
                p.term,
                tuple(p.replicas),
                p.log_start_offset,
                p.high_watermark,
                p.group_id,
                tuple(p.target),
                p.added_ms,
                p.cleaned_offset if p.HasField("cleaned_offset") else None,
            )
            for p in message.partitions
        ),
        topic_config(message.config),
        message.created_ms,
    )


def node_info(message: cluster_pb2.NodeInfo) -> t.NodeInfo:
    return t.NodeInfo(
        message.node_id,
        message.address,
        message.alive,
        message.clock_disagrees,
        message.release,
        (message.oldest_cluster_version, message.newest_cluster_version),
        tuple(message.features),
        message.insecure,
    )


def cluster_info(message: cluster_pb2.DescribeClusterResponse) -> t.ClusterInfo:
    return t.ClusterInfo(
        message.cluster_id,
        message.answering_node_id,
        message.controller_id,
        tuple(node_info(node) for node in message.nodes),
        message.topics,
        message.partitions,
        message.leaderless_partitions,
        message.under_replicated_partitions,
        message.max_message_bytes,
        upgrade_info(message.upgrade),
        {setting.name: setting.value for setting in message.settings},
        tuple(message.damaged_replicas),
        message.founding,
        tuple(message.crowded_partitions),
    )


def node_status(message: cluster_pb2.NodeStatus) -> t.NodeStatus:
    return t.NodeStatus(
        message.node_id,
        message.address,
        message.alive,
        message.expected,
        message.joining,
        message.leaving,
        message.drained,
        message.replicas,
        message.leaderships,
        message.coming,
        message.going,
        tuple(message.waits_for),
        message.coming_bytes,
        message.copied_bytes,
        message.rack,
        message.machine,
        message.metadata_learner,
    )


def partition_move(move: cluster_pb2.PartitionMove) -> PartitionMove:
    return PartitionMove(
        move.topic,
        move.partition,
        tuple(move.replicas),
        tuple(move.target),
        move.bytes,
        move.copied,
        move.waits_for,
    )


def resized(message: cluster_pb2.ResizeTopicResponse) -> Resized:
    moves = tuple(map(partition_move, message.moves))
    return Resized(topic_info(message.topic), moves, message.count)


def balance(message: cluster_pb2.BalanceClusterResponse) -> Balance:
    return Balance(
        message.balancing,
        tuple(map(partition_move, message.moves)),
        message.count,
        message.bytes,
        message.copied,
        tuple(message.waits_for),
    )


def upgrade_info(message: cluster_pb2.UpgradeInfo) -> t.UpgradeInfo:
    # A node of an older release omits it: its cluster was never upgraded.
    version = max(message.cluster_version, 1)
    return t.UpgradeInfo(
        version,
        tuple(message.features),
        max(message.target_version, version),
        tuple(message.target_features),
        tuple(message.hindered_by),
    )


def producer_lease(message: producer_pb2.LeaseProducerResponse) -> t.ProducerLease:
    return t.ProducerLease(
        message.producer_id,
        message.epoch,
        message.expire_ms,
        message.lifetime_ms,
        message.lease_token,
    )


def producer_state(message: producer_pb2.ProducerState) -> t.ProducerState:
    return t.ProducerState(
        message.producer_id,
        message.epoch,
        message.last_sequence,
        message.last_append_ms,
        tuple(
            t.RecentBatch(
                r.first_sequence, r.last_sequence, r.base_offset, r.record_count, r.crc32c
            )
            for r in message.recent
        ),
    )


def producer_name(message: producer_pb2.ProducerName) -> t.ProducerName:
    return t.ProducerName(message.name, message.producer_id, message.epoch, message.last_lease_ms)


def resolved(
    message: log_pb2.ResolveSequenceResponse, asked: int | None = None
) -> t.ResolvedSequence:
    """asked: epoch in the request, which a node of an older release does not repeat."""
    return t.ResolvedSequence(
        _RESOLUTIONS.get(message.resolution, t.Resolution.FORGOTTEN),
        message.offset,
        message.last_sequence,
        message.current_epoch,
        message.epoch if asked is None else asked,
    )


def permission_rule(message: security_pb2.PermissionRule) -> PermissionRule:
    return PermissionRule(
        principal=message.principal,
        operations=tuple(message.operations),
        kind=message.kind,
        name=message.name,
        prefix=message.prefix,
        deny=message.deny,
    )


def permission_rule_message(rule: PermissionRule) -> security_pb2.PermissionRule:
    return security_pb2.PermissionRule(
        principal=rule.principal,
        operations=rule.operations,
        kind=rule.kind,
        name=rule.name,
        prefix=rule.prefix,
        deny=rule.deny,
    )


def transaction(message: transaction_pb2.TransactionDescription) -> t.TransactionInfo:
    try:
        state = transaction_pb2.TransactionState.Name(message.state)
    except ValueError:  # of a later version
        state = str(message.state)
    return t.TransactionInfo(
        transaction_id=message.transaction_id,
        state=state.removeprefix("TRANSACTION_STATE_"),
        reason=message.reason,
        producer_name=message.producer_name,
        sink=message.sink,
        producer_id=message.producer_id,
        epoch=message.epoch,
        begun_ms=message.begun_ms,
        age_ms=message.age_ms,
        idle_timeout_ms=message.idle_timeout_ms,
        total_timeout_ms=message.total_timeout_ms,
        staged_bytes=message.staged_bytes,
        partitions=tuple(
            t.TransactionPart(
                part.topic,
                part.partition,
                part.ended,
                part.staged_records,
                part.staged_bytes,
                part.staged_offsets,
            )
            for part in message.partitions
        ),
    )
