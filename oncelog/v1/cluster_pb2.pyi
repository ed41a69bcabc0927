from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExpectedOffsets(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPECTED_OFFSETS_CHECKED: _ClassVar[ExpectedOffsets]
    EXPECTED_OFFSETS_IGNORED: _ClassVar[ExpectedOffsets]
    EXPECTED_OFFSETS_REQUIRED: _ClassVar[ExpectedOffsets]

class TopicFormats(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_FORMATS_COLUMNAR: _ClassVar[TopicFormats]
    TOPIC_FORMATS_KAFKA: _ClassVar[TopicFormats]
    TOPIC_FORMATS_BOTH: _ClassVar[TopicFormats]

class CleanupPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLEANUP_POLICY_DELETE: _ClassVar[CleanupPolicy]
    CLEANUP_POLICY_COMPACT: _ClassVar[CleanupPolicy]
    CLEANUP_POLICY_COMPACT_DELETE: _ClassVar[CleanupPolicy]

class NodeAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_ACTION_UNSPECIFIED: _ClassVar[NodeAction]
    NODE_ACTION_ADD: _ClassVar[NodeAction]
    NODE_ACTION_REPLACE: _ClassVar[NodeAction]
    NODE_ACTION_REMOVE: _ClassVar[NodeAction]
    NODE_ACTION_KEEP: _ClassVar[NodeAction]
    NODE_ACTION_DRAIN: _ClassVar[NodeAction]
    NODE_ACTION_UNDRAIN: _ClassVar[NodeAction]

class BalanceAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BALANCE_ACTION_UNSPECIFIED: _ClassVar[BalanceAction]
    BALANCE_ACTION_DESCRIBE: _ClassVar[BalanceAction]
    BALANCE_ACTION_PLAN: _ClassVar[BalanceAction]
    BALANCE_ACTION_START: _ClassVar[BalanceAction]
    BALANCE_ACTION_CANCEL: _ClassVar[BalanceAction]
EXPECTED_OFFSETS_CHECKED: ExpectedOffsets
EXPECTED_OFFSETS_IGNORED: ExpectedOffsets
EXPECTED_OFFSETS_REQUIRED: ExpectedOffsets
TOPIC_FORMATS_COLUMNAR: TopicFormats
TOPIC_FORMATS_KAFKA: TopicFormats
TOPIC_FORMATS_BOTH: TopicFormats
CLEANUP_POLICY_DELETE: CleanupPolicy
CLEANUP_POLICY_COMPACT: CleanupPolicy
CLEANUP_POLICY_COMPACT_DELETE: CleanupPolicy
NODE_ACTION_UNSPECIFIED: NodeAction
NODE_ACTION_ADD: NodeAction
NODE_ACTION_REPLACE: NodeAction
NODE_ACTION_REMOVE: NodeAction
NODE_ACTION_KEEP: NodeAction
NODE_ACTION_DRAIN: NodeAction
NODE_ACTION_UNDRAIN: NodeAction
BALANCE_ACTION_UNSPECIFIED: BalanceAction
BALANCE_ACTION_DESCRIBE: BalanceAction
BALANCE_ACTION_PLAN: BalanceAction
BALANCE_ACTION_START: BalanceAction
BALANCE_ACTION_CANCEL: BalanceAction

class NodeInfo(_message.Message):
    __slots__ = ("node_id", "address", "alive", "clock_disagrees", "release", "oldest_cluster_version", "newest_cluster_version", "features", "insecure", "rack")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_DISAGREES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    INSECURE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    address: str
    alive: bool
    clock_disagrees: bool
    release: str
    oldest_cluster_version: int
    newest_cluster_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    insecure: bool
    rack: str
    def __init__(self, node_id: _Optional[int] = ..., address: _Optional[str] = ..., alive: _Optional[bool] = ..., clock_disagrees: _Optional[bool] = ..., release: _Optional[str] = ..., oldest_cluster_version: _Optional[int] = ..., newest_cluster_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., insecure: _Optional[bool] = ..., rack: _Optional[str] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("ask_leaders",)
    ASK_LEADERS_FIELD_NUMBER: _ClassVar[int]
    ask_leaders: bool
    def __init__(self, ask_leaders: _Optional[bool] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("cluster_id", "answering_node_id", "controller_id", "nodes", "topics", "partitions", "leaderless_partitions", "under_replicated_partitions", "max_message_bytes", "limits", "upgrade", "settings", "damaged_replicas", "crowded_partitions", "founding")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWERING_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LEADERLESS_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CROWDED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FOUNDING_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    answering_node_id: int
    controller_id: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    topics: int
    partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    max_message_bytes: int
    limits: RequestLimits
    upgrade: UpgradeInfo
    settings: _containers.RepeatedCompositeFieldContainer[ClusterSetting]
    damaged_replicas: _containers.RepeatedScalarFieldContainer[str]
    crowded_partitions: _containers.RepeatedScalarFieldContainer[str]
    founding: str
    def __init__(self, cluster_id: _Optional[str] = ..., answering_node_id: _Optional[int] = ..., controller_id: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., leaderless_partitions: _Optional[int] = ..., under_replicated_partitions: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., limits: _Optional[_Union[RequestLimits, _Mapping]] = ..., upgrade: _Optional[_Union[UpgradeInfo, _Mapping]] = ..., settings: _Optional[_Iterable[_Union[ClusterSetting, _Mapping]]] = ..., damaged_replicas: _Optional[_Iterable[str]] = ..., crowded_partitions: _Optional[_Iterable[str]] = ..., founding: _Optional[str] = ...) -> None: ...

class ClusterSetting(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class SetClusterSettingRequest(_message.Message):
    __slots__ = ("setting",)
    SETTING_FIELD_NUMBER: _ClassVar[int]
    setting: ClusterSetting
    def __init__(self, setting: _Optional[_Union[ClusterSetting, _Mapping]] = ...) -> None: ...

class SetClusterSettingResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[ClusterSetting]
    def __init__(self, settings: _Optional[_Iterable[_Union[ClusterSetting, _Mapping]]] = ...) -> None: ...

class UpgradeInfo(_message.Message):
    __slots__ = ("cluster_version", "features", "target_version", "target_features", "hindered_by")
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    TARGET_VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FEATURES_FIELD_NUMBER: _ClassVar[int]
    HINDERED_BY_FIELD_NUMBER: _ClassVar[int]
    cluster_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    target_version: int
    target_features: _containers.RepeatedScalarFieldContainer[str]
    hindered_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., target_version: _Optional[int] = ..., target_features: _Optional[_Iterable[str]] = ..., hindered_by: _Optional[_Iterable[str]] = ...) -> None: ...

class FinalizeUpgradeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinalizeUpgradeResponse(_message.Message):
    __slots__ = ("upgrade",)
    UPGRADE_FIELD_NUMBER: _ClassVar[int]
    upgrade: UpgradeInfo
    def __init__(self, upgrade: _Optional[_Union[UpgradeInfo, _Mapping]] = ...) -> None: ...

class RequestLimits(_message.Message):
    __slots__ = ("produce_batches", "fetch_partitions", "fetch_wait_ms", "producer_partitions", "produce_timeout_ms", "stream_waiting_bytes", "fetch_bytes", "message_bytes")
    PRODUCE_BATCHES_FIELD_NUMBER: _ClassVar[int]
    FETCH_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FETCH_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PRODUCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STREAM_WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    produce_batches: int
    fetch_partitions: int
    fetch_wait_ms: int
    producer_partitions: int
    produce_timeout_ms: int
    stream_waiting_bytes: int
    fetch_bytes: int
    message_bytes: int
    def __init__(self, produce_batches: _Optional[int] = ..., fetch_partitions: _Optional[int] = ..., fetch_wait_ms: _Optional[int] = ..., producer_partitions: _Optional[int] = ..., produce_timeout_ms: _Optional[int] = ..., stream_waiting_bytes: _Optional[int] = ..., fetch_bytes: _Optional[int] = ..., message_bytes: _Optional[int] = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("retention_ms", "retention_bytes", "max_batch_bytes", "expected_offsets", "formats", "cleanup_policy", "min_compaction_lag_ms", "max_compaction_lag_ms", "delete_retention_ms", "min_cleanable_dirty_ratio")
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    CLEANUP_POLICY_FIELD_NUMBER: _ClassVar[int]
    MIN_COMPACTION_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_COMPACTION_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_CLEANABLE_DIRTY_RATIO_FIELD_NUMBER: _ClassVar[int]
    retention_ms: int
    retention_bytes: int
    max_batch_bytes: int
    expected_offsets: ExpectedOffsets
    formats: TopicFormats
    cleanup_policy: CleanupPolicy
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    def __init__(self, retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., expected_offsets: _Optional[_Union[ExpectedOffsets, str]] = ..., formats: _Optional[_Union[TopicFormats, str]] = ..., cleanup_policy: _Optional[_Union[CleanupPolicy, str]] = ..., min_compaction_lag_ms: _Optional[int] = ..., max_compaction_lag_ms: _Optional[int] = ..., delete_retention_ms: _Optional[int] = ..., min_cleanable_dirty_ratio: _Optional[float] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "replicas", "config", "timeout_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replicas: int
    config: TopicConfig
    timeout_ms: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replicas: _Optional[int] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicInfo
    def __init__(self, topic: _Optional[_Union[TopicInfo, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "config", "set_expected_offsets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SET_EXPECTED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    config: TopicConfig
    set_expected_offsets: bool
    def __init__(self, name: _Optional[str] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., set_expected_offsets: _Optional[bool] = ...) -> None: ...

class AlterTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicInfo
    def __init__(self, topic: _Optional[_Union[TopicInfo, _Mapping]] = ...) -> None: ...

class ResizeTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "replicas", "dry_run", "timeout_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replicas: int
    dry_run: bool
    timeout_ms: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replicas: _Optional[int] = ..., dry_run: _Optional[bool] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ResizeTopicResponse(_message.Message):
    __slots__ = ("topic", "moves", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: TopicInfo
    moves: _containers.RepeatedCompositeFieldContainer[PartitionMove]
    count: int
    def __init__(self, topic: _Optional[_Union[TopicInfo, _Mapping]] = ..., moves: _Optional[_Iterable[_Union[PartitionMove, _Mapping]]] = ..., count: _Optional[int] = ...) -> None: ...

class PartitionInfo(_message.Message):
    __slots__ = ("partition", "group_id", "leader_id", "term", "replicas", "log_start_offset", "high_watermark", "target", "added_ms", "cleaned_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ADDED_MS_FIELD_NUMBER: _ClassVar[int]
    CLEANED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    group_id: int
    leader_id: int
    term: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    log_start_offset: int
    high_watermark: int
    target: _containers.RepeatedScalarFieldContainer[int]
    added_ms: int
    cleaned_offset: int
    def __init__(self, partition: _Optional[int] = ..., group_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., term: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., target: _Optional[_Iterable[int]] = ..., added_ms: _Optional[int] = ..., cleaned_offset: _Optional[int] = ...) -> None: ...

class TopicInfo(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "config", "created_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionInfo]
    config: TopicConfig
    created_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionInfo, _Mapping]]] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., created_ms: _Optional[int] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("topics", "nodes")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicInfo]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicInfo, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ...) -> None: ...

class ReassignPartitionRequest(_message.Message):
    __slots__ = ("topic", "partition", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class ReassignPartitionResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicInfo
    def __init__(self, topic: _Optional[_Union[TopicInfo, _Mapping]] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("topic", "partition", "target_node_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TARGET_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    target_node_id: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., target_node_id: _Optional[int] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("leader_id",)
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    leader_id: int
    def __init__(self, leader_id: _Optional[int] = ...) -> None: ...

class ChangeNodeRequest(_message.Message):
    __slots__ = ("node_id", "action", "dry_run", "accept_loss", "directory_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    action: NodeAction
    dry_run: bool
    accept_loss: bool
    directory_id: int
    def __init__(self, node_id: _Optional[int] = ..., action: _Optional[_Union[NodeAction, str]] = ..., dry_run: _Optional[bool] = ..., accept_loss: _Optional[bool] = ..., directory_id: _Optional[int] = ...) -> None: ...

class ChangeNodeResponse(_message.Message):
    __slots__ = ("effects",)
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    effects: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, effects: _Optional[_Iterable[str]] = ...) -> None: ...

class BalanceClusterRequest(_message.Message):
    __slots__ = ("action",)
    ACTION_FIELD_NUMBER: _ClassVar[int]
    action: BalanceAction
    def __init__(self, action: _Optional[_Union[BalanceAction, str]] = ...) -> None: ...

class BalanceClusterResponse(_message.Message):
    __slots__ = ("balancing", "moves", "count", "bytes", "copied", "waits_for")
    BALANCING_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    balancing: bool
    moves: _containers.RepeatedCompositeFieldContainer[PartitionMove]
    count: int
    bytes: int
    copied: int
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, balancing: _Optional[bool] = ..., moves: _Optional[_Iterable[_Union[PartitionMove, _Mapping]]] = ..., count: _Optional[int] = ..., bytes: _Optional[int] = ..., copied: _Optional[int] = ..., waits_for: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionMove(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "target", "bytes", "copied", "waits_for")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    target: _containers.RepeatedScalarFieldContainer[int]
    bytes: int
    copied: int
    waits_for: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., target: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ..., copied: _Optional[int] = ..., waits_for: _Optional[str] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node_id", "address", "alive", "expected", "joining", "leaving", "drained", "replicas", "leaderships", "coming", "going", "waits_for", "coming_bytes", "copied_bytes", "rack", "machine", "metadata_learner")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADERSHIPS_FIELD_NUMBER: _ClassVar[int]
    COMING_FIELD_NUMBER: _ClassVar[int]
    GOING_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    COMING_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPIED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    METADATA_LEARNER_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    address: str
    alive: bool
    expected: bool
    joining: bool
    leaving: bool
    drained: bool
    replicas: int
    leaderships: int
    coming: int
    going: int
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    coming_bytes: int
    copied_bytes: int
    rack: str
    machine: str
    metadata_learner: bool
    def __init__(self, node_id: _Optional[int] = ..., address: _Optional[str] = ..., alive: _Optional[bool] = ..., expected: _Optional[bool] = ..., joining: _Optional[bool] = ..., leaving: _Optional[bool] = ..., drained: _Optional[bool] = ..., replicas: _Optional[int] = ..., leaderships: _Optional[int] = ..., coming: _Optional[int] = ..., going: _Optional[int] = ..., waits_for: _Optional[_Iterable[str]] = ..., coming_bytes: _Optional[int] = ..., copied_bytes: _Optional[int] = ..., rack: _Optional[str] = ..., machine: _Optional[str] = ..., metadata_learner: _Optional[bool] = ...) -> None: ...
