from cluster.v1 import transactions_pb2 as _transactions_pb2
from oncelog.v1 import cluster_pb2 as _cluster_pb2
from oncelog.v1 import security_pb2 as _security_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_ACTION_UNSPECIFIED: _ClassVar[NodeAction]
    NODE_ACTION_ADD: _ClassVar[NodeAction]
    NODE_ACTION_REPLACE: _ClassVar[NodeAction]
    NODE_ACTION_REMOVE: _ClassVar[NodeAction]
    NODE_ACTION_KEEP: _ClassVar[NodeAction]
    NODE_ACTION_DRAIN: _ClassVar[NodeAction]
    NODE_ACTION_UNDRAIN: _ClassVar[NodeAction]
    NODE_ACTION_FORGET: _ClassVar[NodeAction]
NODE_ACTION_UNSPECIFIED: NodeAction
NODE_ACTION_ADD: NodeAction
NODE_ACTION_REPLACE: NodeAction
NODE_ACTION_REMOVE: NodeAction
NODE_ACTION_KEEP: NodeAction
NODE_ACTION_DRAIN: NodeAction
NODE_ACTION_UNDRAIN: NodeAction
NODE_ACTION_FORGET: NodeAction

class MetadataCommand(_message.Message):
    __slots__ = ("stamp_ms", "register_node", "create_topic", "delete_topic", "alter_topic", "allocate_producer_ids", "lease_name", "create_lease_secret", "finalize_upgrade", "found_cluster_settings", "set_cluster_setting", "set_replicas", "report_replicas", "change_node", "join_node", "transaction", "alter_permissions", "alter_quotas", "change_balance", "repair_replica", "add_partitions", "set_topic_replicas", "lease_lifetime_ms", "producer_name_expiry_ms", "rules_version")
    STAMP_MS_FIELD_NUMBER: _ClassVar[int]
    REGISTER_NODE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ALTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_NAME_FIELD_NUMBER: _ClassVar[int]
    CREATE_LEASE_SECRET_FIELD_NUMBER: _ClassVar[int]
    FINALIZE_UPGRADE_FIELD_NUMBER: _ClassVar[int]
    FOUND_CLUSTER_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SET_CLUSTER_SETTING_FIELD_NUMBER: _ClassVar[int]
    SET_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REPORT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_NODE_FIELD_NUMBER: _ClassVar[int]
    JOIN_NODE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ALTER_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    ALTER_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_BALANCE_FIELD_NUMBER: _ClassVar[int]
    REPAIR_REPLICA_FIELD_NUMBER: _ClassVar[int]
    ADD_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SET_TOPIC_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEASE_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    RULES_VERSION_FIELD_NUMBER: _ClassVar[int]
    stamp_ms: int
    register_node: RegisterNode
    create_topic: CreateTopic
    delete_topic: DeleteTopic
    alter_topic: AlterTopic
    allocate_producer_ids: AllocateProducerIds
    lease_name: LeaseName
    create_lease_secret: CreateLeaseSecret
    finalize_upgrade: FinalizeUpgrade
    found_cluster_settings: FoundClusterSettings
    set_cluster_setting: SetClusterSetting
    set_replicas: SetReplicas
    report_replicas: ReportReplicas
    change_node: ChangeNode
    join_node: JoinNode
    transaction: _transactions_pb2.TransactionCommand
    alter_permissions: AlterPermissions
    alter_quotas: AlterQuotas
    change_balance: ChangeBalance
    repair_replica: RepairReplica
    add_partitions: AddPartitions
    set_topic_replicas: SetTopicReplicas
    lease_lifetime_ms: int
    producer_name_expiry_ms: int
    rules_version: int
    def __init__(self, stamp_ms: _Optional[int] = ..., register_node: _Optional[_Union[RegisterNode, _Mapping]] = ..., create_topic: _Optional[_Union[CreateTopic, _Mapping]] = ..., delete_topic: _Optional[_Union[DeleteTopic, _Mapping]] = ..., alter_topic: _Optional[_Union[AlterTopic, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIds, _Mapping]] = ..., lease_name: _Optional[_Union[LeaseName, _Mapping]] = ..., create_lease_secret: _Optional[_Union[CreateLeaseSecret, _Mapping]] = ..., finalize_upgrade: _Optional[_Union[FinalizeUpgrade, _Mapping]] = ..., found_cluster_settings: _Optional[_Union[FoundClusterSettings, _Mapping]] = ..., set_cluster_setting: _Optional[_Union[SetClusterSetting, _Mapping]] = ..., set_replicas: _Optional[_Union[SetReplicas, _Mapping]] = ..., report_replicas: _Optional[_Union[ReportReplicas, _Mapping]] = ..., change_node: _Optional[_Union[ChangeNode, _Mapping]] = ..., join_node: _Optional[_Union[JoinNode, _Mapping]] = ..., transaction: _Optional[_Union[_transactions_pb2.TransactionCommand, _Mapping]] = ..., alter_permissions: _Optional[_Union[AlterPermissions, _Mapping]] = ..., alter_quotas: _Optional[_Union[AlterQuotas, _Mapping]] = ..., change_balance: _Optional[_Union[ChangeBalance, _Mapping]] = ..., repair_replica: _Optional[_Union[RepairReplica, _Mapping]] = ..., add_partitions: _Optional[_Union[AddPartitions, _Mapping]] = ..., set_topic_replicas: _Optional[_Union[SetTopicReplicas, _Mapping]] = ..., lease_lifetime_ms: _Optional[int] = ..., producer_name_expiry_ms: _Optional[int] = ..., rules_version: _Optional[int] = ...) -> None: ...

class RegisterNode(_message.Message):
    __slots__ = ("node_id", "address", "directory_id", "registration", "known_registration", "incarnation", "kafka_address", "rack", "machine")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KAFKA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    address: str
    directory_id: int
    registration: int
    known_registration: int
    incarnation: int
    kafka_address: str
    rack: str
    machine: str
    def __init__(self, node_id: _Optional[int] = ..., address: _Optional[str] = ..., directory_id: _Optional[int] = ..., registration: _Optional[int] = ..., known_registration: _Optional[int] = ..., incarnation: _Optional[int] = ..., kafka_address: _Optional[str] = ..., rack: _Optional[str] = ..., machine: _Optional[str] = ...) -> None: ...

class CreateTopic(_message.Message):
    __slots__ = ("name", "placements", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    placements: _containers.RepeatedCompositeFieldContainer[Placement]
    config: _cluster_pb2.TopicConfig
    def __init__(self, name: _Optional[str] = ..., placements: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ..., config: _Optional[_Union[_cluster_pb2.TopicConfig, _Mapping]] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteTopic(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AlterTopic(_message.Message):
    __slots__ = ("name", "config", "set_expected_offsets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SET_EXPECTED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    config: _cluster_pb2.TopicConfig
    set_expected_offsets: bool
    def __init__(self, name: _Optional[str] = ..., config: _Optional[_Union[_cluster_pb2.TopicConfig, _Mapping]] = ..., set_expected_offsets: _Optional[bool] = ...) -> None: ...

class AddPartitions(_message.Message):
    __slots__ = ("name", "topic_id", "expected_partitions", "placements")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: int
    expected_partitions: int
    placements: _containers.RepeatedCompositeFieldContainer[Placement]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[int] = ..., expected_partitions: _Optional[int] = ..., placements: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ...) -> None: ...

class SetTopicReplicas(_message.Message):
    __slots__ = ("name", "topic_id", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[SetReplicas]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[SetReplicas, _Mapping]]] = ...) -> None: ...

class AllocateProducerIds(_message.Message):
    __slots__ = ("node_id", "count")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    count: int
    def __init__(self, node_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class LeaseName(_message.Message):
    __slots__ = ("name", "fence_only", "nonce", "held_producer_id", "held_epoch", "transaction_timeout_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FENCE_ONLY_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    HELD_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    HELD_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    fence_only: bool
    nonce: int
    held_producer_id: int
    held_epoch: int
    transaction_timeout_ms: int
    def __init__(self, name: _Optional[str] = ..., fence_only: _Optional[bool] = ..., nonce: _Optional[int] = ..., held_producer_id: _Optional[int] = ..., held_epoch: _Optional[int] = ..., transaction_timeout_ms: _Optional[int] = ...) -> None: ...

class SetReplicas(_message.Message):
    __slots__ = ("group_id", "replicas", "expected_version", "for_balance")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    FOR_BALANCE_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    expected_version: int
    for_balance: bool
    def __init__(self, group_id: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., expected_version: _Optional[int] = ..., for_balance: _Optional[bool] = ...) -> None: ...

class ReportReplicas(_message.Message):
    __slots__ = ("group_id", "version", "index", "index_term", "voters", "learners", "instances")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INDEX_TERM_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    version: int
    index: int
    index_term: int
    voters: _containers.RepeatedScalarFieldContainer[int]
    learners: _containers.RepeatedScalarFieldContainer[int]
    instances: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group_id: _Optional[int] = ..., version: _Optional[int] = ..., index: _Optional[int] = ..., index_term: _Optional[int] = ..., voters: _Optional[_Iterable[int]] = ..., learners: _Optional[_Iterable[int]] = ..., instances: _Optional[_Iterable[int]] = ...) -> None: ...

class ChangeBalance(_message.Message):
    __slots__ = ("balancing", "expected_layout")
    BALANCING_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    balancing: bool
    expected_layout: int
    def __init__(self, balancing: _Optional[bool] = ..., expected_layout: _Optional[int] = ...) -> None: ...

class RepairReplica(_message.Message):
    __slots__ = ("group_id", "node_id", "instance", "sound", "marked_ms")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SOUND_FIELD_NUMBER: _ClassVar[int]
    MARKED_MS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    node_id: int
    instance: int
    sound: bool
    marked_ms: int
    def __init__(self, group_id: _Optional[int] = ..., node_id: _Optional[int] = ..., instance: _Optional[int] = ..., sound: _Optional[bool] = ..., marked_ms: _Optional[int] = ...) -> None: ...

class ChangeNode(_message.Message):
    __slots__ = ("node_id", "action", "directory_id", "accept_loss")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    action: NodeAction
    directory_id: int
    accept_loss: bool
    def __init__(self, node_id: _Optional[int] = ..., action: _Optional[_Union[NodeAction, str]] = ..., directory_id: _Optional[int] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class JoinNode(_message.Message):
    __slots__ = ("node_id", "directory_id", "address", "peer_address", "addresses_only")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_ONLY_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: int
    address: str
    peer_address: str
    addresses_only: bool
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[int] = ..., address: _Optional[str] = ..., peer_address: _Optional[str] = ..., addresses_only: _Optional[bool] = ...) -> None: ...

class CreateLeaseSecret(_message.Message):
    __slots__ = ("secret",)
    SECRET_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    def __init__(self, secret: _Optional[bytes] = ...) -> None: ...

class FinalizeUpgrade(_message.Message):
    __slots__ = ("version", "features", "nodes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeRelease]
    def __init__(self, version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[_Union[NodeRelease, _Mapping]]] = ...) -> None: ...

class AlterPermissions(_message.Message):
    __slots__ = ("add", "remove")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    add: _containers.RepeatedCompositeFieldContainer[_security_pb2.PermissionRule]
    remove: _containers.RepeatedCompositeFieldContainer[_security_pb2.PermissionRule]
    def __init__(self, add: _Optional[_Iterable[_Union[_security_pb2.PermissionRule, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[_security_pb2.PermissionRule, _Mapping]]] = ...) -> None: ...

class AlterQuotas(_message.Message):
    __slots__ = ("set", "remove")
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    set: _containers.RepeatedCompositeFieldContainer[_security_pb2.Quota]
    remove: _containers.RepeatedCompositeFieldContainer[_security_pb2.QuotaKey]
    def __init__(self, set: _Optional[_Iterable[_Union[_security_pb2.Quota, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[_security_pb2.QuotaKey, _Mapping]]] = ...) -> None: ...

class NodeRelease(_message.Message):
    __slots__ = ("node_id", "release", "oldest_version", "newest_version", "features")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    release: str
    oldest_version: int
    newest_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_id: _Optional[int] = ..., release: _Optional[str] = ..., oldest_version: _Optional[int] = ..., newest_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class FoundClusterSettings(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[ClusterSetting]
    def __init__(self, settings: _Optional[_Iterable[_Union[ClusterSetting, _Mapping]]] = ...) -> None: ...

class ClusterSetting(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class SetClusterSetting(_message.Message):
    __slots__ = ("setting",)
    SETTING_FIELD_NUMBER: _ClassVar[int]
    setting: ClusterSetting
    def __init__(self, setting: _Optional[_Union[ClusterSetting, _Mapping]] = ...) -> None: ...

class MetadataResult(_message.Message):
    __slots__ = ("error", "message", "first_producer_id", "producer_id", "epoch", "stamp_ms", "applied_index", "transaction", "transaction_id", "next_transaction", "sink")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIRST_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STAMP_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    error: str
    message: str
    first_producer_id: int
    producer_id: int
    epoch: int
    stamp_ms: int
    applied_index: int
    transaction: _transactions_pb2.TransactionRecord
    transaction_id: int
    next_transaction: _transactions_pb2.TransactionRecord
    sink: _transactions_pb2.SinkResult
    def __init__(self, error: _Optional[str] = ..., message: _Optional[str] = ..., first_producer_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., stamp_ms: _Optional[int] = ..., applied_index: _Optional[int] = ..., transaction: _Optional[_Union[_transactions_pb2.TransactionRecord, _Mapping]] = ..., transaction_id: _Optional[int] = ..., next_transaction: _Optional[_Union[_transactions_pb2.TransactionRecord, _Mapping]] = ..., sink: _Optional[_Union[_transactions_pb2.SinkResult, _Mapping]] = ...) -> None: ...

class MetadataSnapshot(_message.Message):
    __slots__ = ("nodes", "topics", "next_producer_id", "next_group_id", "next_topic_id", "names", "clock_ms", "blocks", "lease_lifetime_ms", "producer_name_expiry_ms", "lease_secret", "cluster_version", "features", "settings", "coordinator", "own", "rules", "rules_version", "quotas", "balancing", "layout_version", "own_learners")
    NODES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LEASE_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECRET_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    RULES_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    BALANCING_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_VERSION_FIELD_NUMBER: _ClassVar[int]
    OWN_LEARNERS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeRecord]
    topics: _containers.RepeatedCompositeFieldContainer[TopicRecord]
    next_producer_id: int
    next_group_id: int
    next_topic_id: int
    names: _containers.RepeatedCompositeFieldContainer[NameRecord]
    clock_ms: int
    blocks: _containers.RepeatedCompositeFieldContainer[BlockRecord]
    lease_lifetime_ms: int
    producer_name_expiry_ms: int
    lease_secret: bytes
    cluster_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    settings: _containers.RepeatedCompositeFieldContainer[ClusterSetting]
    coordinator: _transactions_pb2.CoordinatorSnapshot
    own: PartitionRecord
    rules: _containers.RepeatedCompositeFieldContainer[_security_pb2.PermissionRule]
    rules_version: int
    quotas: _containers.RepeatedCompositeFieldContainer[_security_pb2.Quota]
    balancing: bool
    layout_version: int
    own_learners: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeRecord, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicRecord, _Mapping]]] = ..., next_producer_id: _Optional[int] = ..., next_group_id: _Optional[int] = ..., next_topic_id: _Optional[int] = ..., names: _Optional[_Iterable[_Union[NameRecord, _Mapping]]] = ..., clock_ms: _Optional[int] = ..., blocks: _Optional[_Iterable[_Union[BlockRecord, _Mapping]]] = ..., lease_lifetime_ms: _Optional[int] = ..., producer_name_expiry_ms: _Optional[int] = ..., lease_secret: _Optional[bytes] = ..., cluster_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., settings: _Optional[_Iterable[_Union[ClusterSetting, _Mapping]]] = ..., coordinator: _Optional[_Union[_transactions_pb2.CoordinatorSnapshot, _Mapping]] = ..., own: _Optional[_Union[PartitionRecord, _Mapping]] = ..., rules: _Optional[_Iterable[_Union[_security_pb2.PermissionRule, _Mapping]]] = ..., rules_version: _Optional[int] = ..., quotas: _Optional[_Iterable[_Union[_security_pb2.Quota, _Mapping]]] = ..., balancing: _Optional[bool] = ..., layout_version: _Optional[int] = ..., own_learners: _Optional[_Iterable[int]] = ...) -> None: ...

class NodeRecord(_message.Message):
    __slots__ = ("node_id", "address", "directory_id", "peer_address", "expected", "leaving", "drained", "joining", "registration", "registration_number", "incarnation", "kafka_address", "rack", "machine")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KAFKA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    address: str
    directory_id: int
    peer_address: str
    expected: bool
    leaving: bool
    drained: bool
    joining: bool
    registration: int
    registration_number: int
    incarnation: int
    kafka_address: str
    rack: str
    machine: str
    def __init__(self, node_id: _Optional[int] = ..., address: _Optional[str] = ..., directory_id: _Optional[int] = ..., peer_address: _Optional[str] = ..., expected: _Optional[bool] = ..., leaving: _Optional[bool] = ..., drained: _Optional[bool] = ..., joining: _Optional[bool] = ..., registration: _Optional[int] = ..., registration_number: _Optional[int] = ..., incarnation: _Optional[int] = ..., kafka_address: _Optional[str] = ..., rack: _Optional[str] = ..., machine: _Optional[str] = ...) -> None: ...

class TopicRecord(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "config", "created_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRecord]
    config: _cluster_pb2.TopicConfig
    created_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionRecord, _Mapping]]] = ..., config: _Optional[_Union[_cluster_pb2.TopicConfig, _Mapping]] = ..., created_ms: _Optional[int] = ...) -> None: ...

class PartitionRecord(_message.Message):
    __slots__ = ("group_id", "replicas", "founding", "instances", "version", "index", "index_term", "target", "lost_nodes", "lost_instances", "before_balance", "damaged_nodes", "damaged_instances", "damaged_rebuild", "repaired_nodes", "repaired_ms", "added_ms")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    FOUNDING_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INDEX_TERM_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LOST_NODES_FIELD_NUMBER: _ClassVar[int]
    LOST_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_BALANCE_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_NODES_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_REBUILD_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_NODES_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_MS_FIELD_NUMBER: _ClassVar[int]
    ADDED_MS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    founding: _containers.RepeatedScalarFieldContainer[int]
    instances: _containers.RepeatedScalarFieldContainer[int]
    version: int
    index: int
    index_term: int
    target: _containers.RepeatedScalarFieldContainer[int]
    lost_nodes: _containers.RepeatedScalarFieldContainer[int]
    lost_instances: _containers.RepeatedScalarFieldContainer[int]
    before_balance: _containers.RepeatedScalarFieldContainer[int]
    damaged_nodes: _containers.RepeatedScalarFieldContainer[int]
    damaged_instances: _containers.RepeatedScalarFieldContainer[int]
    damaged_rebuild: _containers.RepeatedScalarFieldContainer[bool]
    repaired_nodes: _containers.RepeatedScalarFieldContainer[int]
    repaired_ms: _containers.RepeatedScalarFieldContainer[int]
    added_ms: int
    def __init__(self, group_id: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., founding: _Optional[_Iterable[int]] = ..., instances: _Optional[_Iterable[int]] = ..., version: _Optional[int] = ..., index: _Optional[int] = ..., index_term: _Optional[int] = ..., target: _Optional[_Iterable[int]] = ..., lost_nodes: _Optional[_Iterable[int]] = ..., lost_instances: _Optional[_Iterable[int]] = ..., before_balance: _Optional[_Iterable[int]] = ..., damaged_nodes: _Optional[_Iterable[int]] = ..., damaged_instances: _Optional[_Iterable[int]] = ..., damaged_rebuild: _Optional[_Iterable[bool]] = ..., repaired_nodes: _Optional[_Iterable[int]] = ..., repaired_ms: _Optional[_Iterable[int]] = ..., added_ms: _Optional[int] = ...) -> None: ...

class NameRecord(_message.Message):
    __slots__ = ("name", "producer_id", "epoch", "last_lease_ms", "tombstone", "last_nonce", "fence_epoch", "transaction_timeout_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_FIELD_NUMBER: _ClassVar[int]
    LAST_NONCE_FIELD_NUMBER: _ClassVar[int]
    FENCE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    producer_id: int
    epoch: int
    last_lease_ms: int
    tombstone: bool
    last_nonce: int
    fence_epoch: int
    transaction_timeout_ms: int
    def __init__(self, name: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_lease_ms: _Optional[int] = ..., tombstone: _Optional[bool] = ..., last_nonce: _Optional[int] = ..., fence_epoch: _Optional[int] = ..., transaction_timeout_ms: _Optional[int] = ...) -> None: ...

class BlockRecord(_message.Message):
    __slots__ = ("first_producer_id", "issued_ms", "node_id")
    FIRST_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    ISSUED_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    first_producer_id: int
    issued_ms: int
    node_id: int
    def __init__(self, first_producer_id: _Optional[int] = ..., issued_ms: _Optional[int] = ..., node_id: _Optional[int] = ...) -> None: ...
