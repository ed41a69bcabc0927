"""Kafka's messages of the offered calls, from the schemas of Kafka 3.9.1.

Written by scripts/kafka-messages; `codec` reads and writes them. A field has the versions
of the call that know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cluster.kafka.codec import wire


class Call(NamedTuple):
    """A call of the protocol, by Kafka's name.

    flexible: the first version with compact lengths (KIP-482).
    request, response: None if they are read and written by hand.
    """

    name: str
    key: int
    oldest: int
    newest: int
    flexible: int
    request: type | None
    response: type | None


@dataclass(slots=True)
class FetchPartition:
    partition: int = wire("int32", default=0)
    current_leader_epoch: int = wire("int32", 9, default=-1)
    fetch_offset: int = wire("int64", default=0)
    last_fetched_epoch: int = wire("int32", 12, default=-1)
    log_start_offset: int = wire("int64", 5, default=-1)
    partition_max_bytes: int = wire("int32", default=0)


@dataclass(slots=True)
class FetchTopic:
    topic: str = wire("string", 0, 12, default="")
    partitions: list[FetchPartition] = wire([FetchPartition])


@dataclass(slots=True)
class ForgottenTopic:
    topic: str = wire("string", 7, 12, default="")
    partitions: list[int] = wire(["int32"], 7)


@dataclass(slots=True)
class FetchRequest:
    replica_id: int = wire("int32", 0, 14, default=-1)
    max_wait_ms: int = wire("int32", default=0)
    min_bytes: int = wire("int32", default=0)
    max_bytes: int = wire("int32", 3, default=2147483647)
    isolation_level: int = wire("int8", 4, default=0)
    session_id: int = wire("int32", 7, default=0)
    session_epoch: int = wire("int32", 7, default=-1)
    topics: list[FetchTopic] = wire([FetchTopic])
    forgotten_topics_data: list[ForgottenTopic] = wire([ForgottenTopic], 7)
    rack_id: str = wire("string", 11, default="")


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: int = wire("int32", default=0)
    current_leader_epoch: int = wire("int32", 4, default=-1)
    timestamp: int = wire("int64", default=0)


@dataclass(slots=True)
class ListOffsetsTopic:
    name: str = wire("string", default="")
    partitions: list[ListOffsetsPartition] = wire([ListOffsetsPartition])


@dataclass(slots=True)
class ListOffsetsRequest:
    replica_id: int = wire("int32", default=0)
    isolation_level: int = wire("int8", 2, default=0)
    topics: list[ListOffsetsTopic] = wire([ListOffsetsTopic])


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    partition_index: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)
    timestamp: int = wire("int64", 1, default=-1)
    offset: int = wire("int64", 1, default=-1)
    leader_epoch: int = wire("int32", 4, default=-1)


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    name: str = wire("string", default="")
    partitions: list[ListOffsetsPartitionResponse] = wire([ListOffsetsPartitionResponse])


@dataclass(slots=True)
class ListOffsetsResponse:
    throttle_time_ms: int = wire("int32", 2, default=0)
    topics: list[ListOffsetsTopicResponse] = wire([ListOffsetsTopicResponse])


@dataclass(slots=True)
class MetadataRequestTopic:
    name: str | None = wire("string", nullable=10, default="")


@dataclass(slots=True)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = wire([MetadataRequestTopic], nullable=1)
    allow_auto_topic_creation: bool = wire("bool", 4, default=True)
    include_cluster_authorized_operations: bool = wire("bool", 8, 10, default=False)
    include_topic_authorized_operations: bool = wire("bool", 8, default=False)


@dataclass(slots=True)
class MetadataResponseBroker:
    node_id: int = wire("int32", default=0)
    host: str = wire("string", default="")
    port: int = wire("int32", default=0)
    rack: str | None = wire("string", 1, nullable=1)


@dataclass(slots=True)
class MetadataResponsePartition:
    error_code: int = wire("int16", default=0)
    partition_index: int = wire("int32", default=0)
    leader_id: int = wire("int32", default=0)
    leader_epoch: int = wire("int32", 7, default=-1)
    replica_nodes: list[int] = wire(["int32"])
    isr_nodes: list[int] = wire(["int32"])
    offline_replicas: list[int] = wire(["int32"], 5)


@dataclass(slots=True)
class MetadataResponseTopic:
    error_code: int = wire("int16", default=0)
    name: str | None = wire("string", nullable=12, default="")
    is_internal: bool = wire("bool", 1, default=False)
    partitions: list[MetadataResponsePartition] = wire([MetadataResponsePartition])
    topic_authorized_operations: int = wire("int32", 8, default=-2147483648)


@dataclass(slots=True)
class MetadataResponse:
    throttle_time_ms: int = wire("int32", 3, default=0)
    brokers: list[MetadataResponseBroker] = wire([MetadataResponseBroker])
    cluster_id: str | None = wire("string", 2, nullable=2)
    controller_id: int = wire("int32", 1, default=-1)
    topics: list[MetadataResponseTopic] = wire([MetadataResponseTopic])
    cluster_authorized_operations: int = wire("int32", 8, 10, default=-2147483648)


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    partition_index: int = wire("int32", default=0)
    committed_offset: int = wire("int64", default=0)
    committed_leader_epoch: int = wire("int32", 6, default=-1)
    committed_metadata: str | None = wire("string", nullable=0, default="")


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    name: str = wire("string", default="")
    partitions: list[OffsetCommitRequestPartition] = wire([OffsetCommitRequestPartition])


@dataclass(slots=True)
class OffsetCommitRequest:
    group_id: str = wire("string", default="")
    generation_id_or_member_epoch: int = wire("int32", 1, default=-1)
    member_id: str = wire("string", 1, default="")
    group_instance_id: str | None = wire("string", 7, nullable=7)
    retention_time_ms: int = wire("int64", 2, 4, default=-1)
    topics: list[OffsetCommitRequestTopic] = wire([OffsetCommitRequestTopic])


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    partition_index: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    name: str = wire("string", default="")
    partitions: list[OffsetCommitResponsePartition] = wire([OffsetCommitResponsePartition])


@dataclass(slots=True)
class OffsetCommitResponse:
    throttle_time_ms: int = wire("int32", 3, default=0)
    topics: list[OffsetCommitResponseTopic] = wire([OffsetCommitResponseTopic])


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    name: str = wire("string", 0, 7, default="")
    partition_indexes: list[int] = wire(["int32"], 0, 7)


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    name: str = wire("string", 8, default="")
    partition_indexes: list[int] = wire(["int32"], 8)


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    group_id: str = wire("string", 8, default="")
    topics: list[OffsetFetchRequestTopics] | None = wire([OffsetFetchRequestTopics], 8, nullable=8)


@dataclass(slots=True)
class OffsetFetchRequest:
    group_id: str = wire("string", 0, 7, default="")
    topics: list[OffsetFetchRequestTopic] | None = wire([OffsetFetchRequestTopic], 0, 7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = wire([OffsetFetchRequestGroup], 8)
    require_stable: bool = wire("bool", 7, default=False)


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    partition_index: int = wire("int32", 0, 7, default=0)
    committed_offset: int = wire("int64", 0, 7, default=0)
    committed_leader_epoch: int = wire("int32", 5, 7, default=-1)
    metadata: str | None = wire("string", 0, 7, nullable=0, default="")
    error_code: int = wire("int16", 0, 7, default=0)


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    name: str = wire("string", 0, 7, default="")
    partitions: list[OffsetFetchResponsePartition] = wire([OffsetFetchResponsePartition], 0, 7)


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    partition_index: int = wire("int32", 8, default=0)
    committed_offset: int = wire("int64", 8, default=0)
    committed_leader_epoch: int = wire("int32", 8, default=-1)
    metadata: str | None = wire("string", 8, nullable=8, default="")
    error_code: int = wire("int16", 8, default=0)


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    name: str = wire("string", 8, default="")
    partitions: list[OffsetFetchResponsePartitions] = wire([OffsetFetchResponsePartitions], 8)


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    group_id: str = wire("string", 8, default="")
    topics: list[OffsetFetchResponseTopics] = wire([OffsetFetchResponseTopics], 8)
    error_code: int = wire("int16", 8, default=0)


@dataclass(slots=True)
class OffsetFetchResponse:
    throttle_time_ms: int = wire("int32", 3, default=0)
    topics: list[OffsetFetchResponseTopic] = wire([OffsetFetchResponseTopic], 0, 7)
    error_code: int = wire("int16", 2, 7, default=0)
    groups: list[OffsetFetchResponseGroup] = wire([OffsetFetchResponseGroup], 8)


@dataclass(slots=True)
class FindCoordinatorRequest:
    key: str = wire("string", 0, 3, default="")
    key_type: int = wire("int8", 1, default=0)
    coordinator_keys: list[str] = wire(["string"], 4)


@dataclass(slots=True)
class Coordinator:
    key: str = wire("string", 4, default="")
    node_id: int = wire("int32", 4, default=0)
    host: str = wire("string", 4, default="")
    port: int = wire("int32", 4, default=0)
    error_code: int = wire("int16", 4, default=0)
    error_message: str | None = wire("string", 4, nullable=4, default="")


@dataclass(slots=True)
class FindCoordinatorResponse:
    throttle_time_ms: int = wire("int32", 1, default=0)
    error_code: int = wire("int16", 0, 3, default=0)
    error_message: str | None = wire("string", 1, 3, nullable=1, default="")
    node_id: int = wire("int32", 0, 3, default=0)
    host: str = wire("string", 0, 3, default="")
    port: int = wire("int32", 0, 3, default=0)
    coordinators: list[Coordinator] = wire([Coordinator], 4)


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    name: str = wire("string", default="")
    metadata: bytes = wire("bytes", default=b"")


@dataclass(slots=True)
class JoinGroupRequest:
    group_id: str = wire("string", default="")
    session_timeout_ms: int = wire("int32", default=0)
    rebalance_timeout_ms: int = wire("int32", 1, default=-1)
    member_id: str = wire("string", default="")
    group_instance_id: str | None = wire("string", 5, nullable=5)
    protocol_type: str = wire("string", default="")
    protocols: list[JoinGroupRequestProtocol] = wire([JoinGroupRequestProtocol])
    reason: str | None = wire("string", 8, nullable=8)


@dataclass(slots=True)
class JoinGroupResponseMember:
    member_id: str = wire("string", default="")
    group_instance_id: str | None = wire("string", 5, nullable=5)
    metadata: bytes = wire("bytes", default=b"")


@dataclass(slots=True)
class JoinGroupResponse:
    throttle_time_ms: int = wire("int32", 2, default=0)
    error_code: int = wire("int16", default=0)
    generation_id: int = wire("int32", default=-1)
    protocol_type: str | None = wire("string", 7, nullable=7)
    protocol_name: str | None = wire("string", nullable=7, default="")
    leader: str = wire("string", default="")
    skip_assignment: bool = wire("bool", 9, default=False)
    member_id: str = wire("string", default="")
    members: list[JoinGroupResponseMember] = wire([JoinGroupResponseMember])


@dataclass(slots=True)
class HeartbeatRequest:
    group_id: str = wire("string", default="")
    generation_id: int = wire("int32", default=0)
    member_id: str = wire("string", default="")
    group_instance_id: str | None = wire("string", 3, nullable=3)


@dataclass(slots=True)
class HeartbeatResponse:
    throttle_time_ms: int = wire("int32", 1, default=0)
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class MemberIdentity:
    member_id: str = wire("string", 3, default="")
    group_instance_id: str | None = wire("string", 3, nullable=3)
    reason: str | None = wire("string", 5, nullable=5)


@dataclass(slots=True)
class LeaveGroupRequest:
    group_id: str = wire("string", default="")
    member_id: str = wire("string", 0, 2, default="")
    members: list[MemberIdentity] = wire([MemberIdentity], 3)


@dataclass(slots=True)
class MemberResponse:
    member_id: str = wire("string", 3, default="")
    group_instance_id: str | None = wire("string", 3, nullable=3, default="")
    error_code: int = wire("int16", 3, default=0)


@dataclass(slots=True)
class LeaveGroupResponse:
    throttle_time_ms: int = wire("int32", 1, default=0)
    error_code: int = wire("int16", default=0)
    members: list[MemberResponse] = wire([MemberResponse], 3)


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    member_id: str = wire("string", default="")
    assignment: bytes = wire("bytes", default=b"")


@dataclass(slots=True)
class SyncGroupRequest:
    group_id: str = wire("string", default="")
    generation_id: int = wire("int32", default=0)
    member_id: str = wire("string", default="")
    group_instance_id: str | None = wire("string", 3, nullable=3)
    protocol_type: str | None = wire("string", 5, nullable=5)
    protocol_name: str | None = wire("string", 5, nullable=5)
    assignments: list[SyncGroupRequestAssignment] = wire([SyncGroupRequestAssignment])


@dataclass(slots=True)
class SyncGroupResponse:
    throttle_time_ms: int = wire("int32", 1, default=0)
    error_code: int = wire("int16", default=0)
    protocol_type: str | None = wire("string", 5, nullable=5)
    protocol_name: str | None = wire("string", 5, nullable=5)
    assignment: bytes = wire("bytes", default=b"")


@dataclass(slots=True)
class DescribeGroupsRequest:
    groups: list[str] = wire(["string"])
    include_authorized_operations: bool = wire("bool", 3, default=False)


@dataclass(slots=True)
class DescribedGroupMember:
    member_id: str = wire("string", default="")
    group_instance_id: str | None = wire("string", 4, nullable=4)
    client_id: str = wire("string", default="")
    client_host: str = wire("string", default="")
    member_metadata: bytes = wire("bytes", default=b"")
    member_assignment: bytes = wire("bytes", default=b"")


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = wire("int16", default=0)
    group_id: str = wire("string", default="")
    group_state: str = wire("string", default="")
    protocol_type: str = wire("string", default="")
    protocol_data: str = wire("string", default="")
    members: list[DescribedGroupMember] = wire([DescribedGroupMember])
    authorized_operations: int = wire("int32", 3, default=-2147483648)


@dataclass(slots=True)
class DescribeGroupsResponse:
    throttle_time_ms: int = wire("int32", 1, default=0)
    groups: list[DescribedGroup] = wire([DescribedGroup])


@dataclass(slots=True)
class ListGroupsRequest:
    states_filter: list[str] = wire(["string"], 4)
    types_filter: list[str] = wire(["string"], 5)


@dataclass(slots=True)
class ListedGroup:
    group_id: str = wire("string", default="")
    protocol_type: str = wire("string", default="")
    group_state: str = wire("string", 4, default="")
    group_type: str = wire("string", 5, default="")


@dataclass(slots=True)
class ListGroupsResponse:
    throttle_time_ms: int = wire("int32", 1, default=0)
    error_code: int = wire("int16", default=0)
    groups: list[ListedGroup] = wire([ListedGroup])


@dataclass(slots=True)
class ApiVersionsRequest:
    client_software_name: str = wire("string", 3, default="")
    client_software_version: str = wire("string", 3, default="")


@dataclass(slots=True)
class ApiVersion:
    api_key: int = wire("int16", default=0)
    min_version: int = wire("int16", default=0)
    max_version: int = wire("int16", default=0)


@dataclass(slots=True)
class ApiVersionsResponse:
    error_code: int = wire("int16", default=0)
    api_keys: list[ApiVersion] = wire([ApiVersion])
    throttle_time_ms: int = wire("int32", 1, default=0)


@dataclass(slots=True)
class CreatableReplicaAssignment:
    partition_index: int = wire("int32", default=0)
    broker_ids: list[int] = wire(["int32"])


@dataclass(slots=True)
class CreatableTopicConfig:
    name: str = wire("string", default="")
    value: str | None = wire("string", nullable=0, default="")


@dataclass(slots=True)
class CreatableTopic:
    name: str = wire("string", default="")
    num_partitions: int = wire("int32", default=0)
    replication_factor: int = wire("int16", default=0)
    assignments: list[CreatableReplicaAssignment] = wire([CreatableReplicaAssignment])
    configs: list[CreatableTopicConfig] = wire([CreatableTopicConfig])


@dataclass(slots=True)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = wire([CreatableTopic])
    timeout_ms: int = wire("int32", default=60000)
    validate_only: bool = wire("bool", 1, default=False)


@dataclass(slots=True)
class CreatableTopicConfigs:
    name: str = wire("string", 5, default="")
    value: str | None = wire("string", 5, nullable=5, default="")
    read_only: bool = wire("bool", 5, default=False)
    config_source: int = wire("int8", 5, default=-1)
    is_sensitive: bool = wire("bool", 5, default=False)


@dataclass(slots=True)
class CreatableTopicResult:
    name: str = wire("string", default="")
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", 1, nullable=0, default="")
    num_partitions: int = wire("int32", 5, default=-1)
    replication_factor: int = wire("int16", 5, default=-1)
    configs: list[CreatableTopicConfigs] | None = wire([CreatableTopicConfigs], 5, nullable=5)


@dataclass(slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int = wire("int32", 2, default=0)
    topics: list[CreatableTopicResult] = wire([CreatableTopicResult])


@dataclass(slots=True)
class DeleteTopicsRequest:
    topic_names: list[str] = wire(["string"], 0, 5)
    timeout_ms: int = wire("int32", default=0)


@dataclass(slots=True)
class DeletableTopicResult:
    name: str | None = wire("string", nullable=6, default="")
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", 5, nullable=5)


@dataclass(slots=True)
class DeleteTopicsResponse:
    throttle_time_ms: int = wire("int32", 1, default=0)
    responses: list[DeletableTopicResult] = wire([DeletableTopicResult])


@dataclass(slots=True)
class DeleteRecordsPartition:
    partition_index: int = wire("int32", default=0)
    offset: int = wire("int64", default=0)


@dataclass(slots=True)
class DeleteRecordsTopic:
    name: str = wire("string", default="")
    partitions: list[DeleteRecordsPartition] = wire([DeleteRecordsPartition])


@dataclass(slots=True)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = wire([DeleteRecordsTopic])
    timeout_ms: int = wire("int32", default=0)


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    partition_index: int = wire("int32", default=0)
    low_watermark: int = wire("int64", default=0)
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    name: str = wire("string", default="")
    partitions: list[DeleteRecordsPartitionResult] = wire([DeleteRecordsPartitionResult])


@dataclass(slots=True)
class DeleteRecordsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    topics: list[DeleteRecordsTopicResult] = wire([DeleteRecordsTopicResult])


@dataclass(slots=True)
class InitProducerIdRequest:
    transactional_id: str | None = wire("string", nullable=0, default="")
    transaction_timeout_ms: int = wire("int32", default=0)
    producer_id: int = wire("int64", 3, default=-1)
    producer_epoch: int = wire("int16", 3, default=-1)


@dataclass(slots=True)
class InitProducerIdResponse:
    throttle_time_ms: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)
    producer_id: int = wire("int64", default=-1)
    producer_epoch: int = wire("int16", default=0)


@dataclass(slots=True)
class SaslHandshakeRequest:
    mechanism: str = wire("string", default="")


@dataclass(slots=True)
class SaslHandshakeResponse:
    error_code: int = wire("int16", default=0)
    mechanisms: list[str] = wire(["string"])


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    name: str = wire("string", default="")
    partitions: list[int] = wire(["int32"])


@dataclass(slots=True)
class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str = wire("string", 0, 3, default="")
    v3_and_below_producer_id: int = wire("int64", 0, 3, default=0)
    v3_and_below_producer_epoch: int = wire("int16", 0, 3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire([AddPartitionsToTxnTopic], 0, 3)


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire("int32", default=0)
    partition_error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    name: str = wire("string", default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(
        [AddPartitionsToTxnPartitionResult]
    )


@dataclass(slots=True)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = wire("int32", default=0)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(
        [AddPartitionsToTxnTopicResult], 0, 3
    )


@dataclass(slots=True)
class AddOffsetsToTxnRequest:
    transactional_id: str = wire("string", default="")
    producer_id: int = wire("int64", default=0)
    producer_epoch: int = wire("int16", default=0)
    group_id: str = wire("string", default="")


@dataclass(slots=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class EndTxnRequest:
    transactional_id: str = wire("string", default="")
    producer_id: int = wire("int64", default=0)
    producer_epoch: int = wire("int16", default=0)
    committed: bool = wire("bool", default=False)


@dataclass(slots=True)
class EndTxnResponse:
    throttle_time_ms: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire("int32", default=0)
    committed_offset: int = wire("int64", default=0)
    committed_leader_epoch: int = wire("int32", 2, default=-1)
    committed_metadata: str | None = wire("string", nullable=0, default="")


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    name: str = wire("string", default="")
    partitions: list[TxnOffsetCommitRequestPartition] = wire([TxnOffsetCommitRequestPartition])


@dataclass(slots=True)
class TxnOffsetCommitRequest:
    transactional_id: str = wire("string", default="")
    group_id: str = wire("string", default="")
    producer_id: int = wire("int64", default=0)
    producer_epoch: int = wire("int16", default=0)
    generation_id: int = wire("int32", 3, default=-1)
    member_id: str = wire("string", 3, default="")
    group_instance_id: str | None = wire("string", 3, nullable=3)
    topics: list[TxnOffsetCommitRequestTopic] = wire([TxnOffsetCommitRequestTopic])


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    partition_index: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    name: str = wire("string", default="")
    partitions: list[TxnOffsetCommitResponsePartition] = wire([TxnOffsetCommitResponsePartition])


@dataclass(slots=True)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire("int32", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = wire([TxnOffsetCommitResponseTopic])


@dataclass(slots=True)
class OffsetForLeaderPartition:
    partition: int = wire("int32", default=0)
    current_leader_epoch: int = wire("int32", 2, default=-1)
    leader_epoch: int = wire("int32", default=0)


@dataclass(slots=True)
class OffsetForLeaderTopic:
    topic: str = wire("string", default="")
    partitions: list[OffsetForLeaderPartition] = wire([OffsetForLeaderPartition])


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    replica_id: int = wire("int32", 3, default=-2)
    topics: list[OffsetForLeaderTopic] = wire([OffsetForLeaderTopic])


@dataclass(slots=True)
class EpochEndOffset:
    error_code: int = wire("int16", default=0)
    partition: int = wire("int32", default=0)
    leader_epoch: int = wire("int32", 1, default=-1)
    end_offset: int = wire("int64", default=-1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    topic: str = wire("string", default="")
    partitions: list[EpochEndOffset] = wire([EpochEndOffset])


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire("int32", 2, default=0)
    topics: list[OffsetForLeaderTopicResult] = wire([OffsetForLeaderTopicResult])


@dataclass(slots=True)
class DescribeConfigsResource:
    resource_type: int = wire("int8", default=0)
    resource_name: str = wire("string", default="")
    configuration_keys: list[str] | None = wire(["string"], nullable=0)


@dataclass(slots=True)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = wire([DescribeConfigsResource])
    include_synonyms: bool = wire("bool", 1, default=False)
    include_documentation: bool = wire("bool", 3, default=False)


@dataclass(slots=True)
class DescribeConfigsSynonym:
    name: str = wire("string", 1, default="")
    value: str | None = wire("string", 1, nullable=0, default="")
    source: int = wire("int8", 1, default=0)


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    name: str = wire("string", default="")
    value: str | None = wire("string", nullable=0, default="")
    read_only: bool = wire("bool", default=False)
    config_source: int = wire("int8", 1, default=-1)
    is_sensitive: bool = wire("bool", default=False)
    synonyms: list[DescribeConfigsSynonym] = wire([DescribeConfigsSynonym], 1)
    config_type: int = wire("int8", 3, default=0)
    documentation: str | None = wire("string", 3, nullable=0, default="")


@dataclass(slots=True)
class DescribeConfigsResult:
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", nullable=0, default="")
    resource_type: int = wire("int8", default=0)
    resource_name: str = wire("string", default="")
    configs: list[DescribeConfigsResourceResult] = wire([DescribeConfigsResourceResult])


@dataclass(slots=True)
class DescribeConfigsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    results: list[DescribeConfigsResult] = wire([DescribeConfigsResult])


@dataclass(slots=True)
class AlterableConfig:
    name: str = wire("string", default="")
    value: str | None = wire("string", nullable=0, default="")


@dataclass(slots=True)
class AlterConfigsResource:
    resource_type: int = wire("int8", default=0)
    resource_name: str = wire("string", default="")
    configs: list[AlterableConfig] = wire([AlterableConfig])


@dataclass(slots=True)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire([AlterConfigsResource])
    validate_only: bool = wire("bool", default=False)


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", nullable=0, default="")
    resource_type: int = wire("int8", default=0)
    resource_name: str = wire("string", default="")


@dataclass(slots=True)
class AlterConfigsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    responses: list[AlterConfigsResourceResponse] = wire([AlterConfigsResourceResponse])


@dataclass(slots=True)
class DescribableLogDirTopic:
    topic: str = wire("string", default="")
    partitions: list[int] = wire(["int32"])


@dataclass(slots=True)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = wire([DescribableLogDirTopic], nullable=0)


@dataclass(slots=True)
class DescribeLogDirsPartition:
    partition_index: int = wire("int32", default=0)
    partition_size: int = wire("int64", default=0)
    offset_lag: int = wire("int64", default=0)
    is_future_key: bool = wire("bool", default=False)


@dataclass(slots=True)
class DescribeLogDirsTopic:
    name: str = wire("string", default="")
    partitions: list[DescribeLogDirsPartition] = wire([DescribeLogDirsPartition])


@dataclass(slots=True)
class DescribeLogDirsResult:
    error_code: int = wire("int16", default=0)
    log_dir: str = wire("string", default="")
    topics: list[DescribeLogDirsTopic] = wire([DescribeLogDirsTopic])
    total_bytes: int = wire("int64", 4, default=-1)
    usable_bytes: int = wire("int64", 4, default=-1)


@dataclass(slots=True)
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    error_code: int = wire("int16", 3, default=0)
    results: list[DescribeLogDirsResult] = wire([DescribeLogDirsResult])


@dataclass(slots=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = wire("bytes", default=b"")


@dataclass(slots=True)
class SaslAuthenticateResponse:
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", nullable=0, default="")
    auth_bytes: bytes = wire("bytes", default=b"")
    session_lifetime_ms: int = wire("int64", 1, default=0)


@dataclass(slots=True)
class CreatePartitionsAssignment:
    broker_ids: list[int] = wire(["int32"])


@dataclass(slots=True)
class CreatePartitionsTopic:
    name: str = wire("string", default="")
    count: int = wire("int32", default=0)
    assignments: list[CreatePartitionsAssignment] | None = wire(
        [CreatePartitionsAssignment], nullable=0
    )


@dataclass(slots=True)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = wire([CreatePartitionsTopic])
    timeout_ms: int = wire("int32", default=0)
    validate_only: bool = wire("bool", default=False)


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    name: str = wire("string", default="")
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", nullable=0)


@dataclass(slots=True)
class CreatePartitionsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    results: list[CreatePartitionsTopicResult] = wire([CreatePartitionsTopicResult])


@dataclass(slots=True)
class DeleteGroupsRequest:
    groups_names: list[str] = wire(["string"])


@dataclass(slots=True)
class DeletableGroupResult:
    group_id: str = wire("string", default="")
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    results: list[DeletableGroupResult] = wire([DeletableGroupResult])


@dataclass(slots=True)
class OtherAlterableConfig:
    name: str = wire("string", default="")
    config_operation: int = wire("int8", default=0)
    value: str | None = wire("string", nullable=0, default="")


@dataclass(slots=True)
class OtherAlterConfigsResource:
    resource_type: int = wire("int8", default=0)
    resource_name: str = wire("string", default="")
    configs: list[OtherAlterableConfig] = wire([OtherAlterableConfig])


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    resources: list[OtherAlterConfigsResource] = wire([OtherAlterConfigsResource])
    validate_only: bool = wire("bool", default=False)


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    responses: list[AlterConfigsResourceResponse] = wire([AlterConfigsResourceResponse])


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    partition_index: int = wire("int32", default=0)


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    name: str = wire("string", default="")
    partitions: list[OffsetDeleteRequestPartition] = wire([OffsetDeleteRequestPartition])


@dataclass(slots=True)
class OffsetDeleteRequest:
    group_id: str = wire("string", default="")
    topics: list[OffsetDeleteRequestTopic] = wire([OffsetDeleteRequestTopic])


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    partition_index: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    name: str = wire("string", default="")
    partitions: list[OffsetDeleteResponsePartition] = wire([OffsetDeleteResponsePartition])


@dataclass(slots=True)
class OffsetDeleteResponse:
    error_code: int = wire("int16", default=0)
    throttle_time_ms: int = wire("int32", default=0)
    topics: list[OffsetDeleteResponseTopic] = wire([OffsetDeleteResponseTopic])


@dataclass(slots=True)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = wire("bool", default=False)
    endpoint_type: int = wire("int8", 1, default=1)


@dataclass(slots=True)
class DescribeClusterBroker:
    broker_id: int = wire("int32", default=0)
    host: str = wire("string", default="")
    port: int = wire("int32", default=0)
    rack: str | None = wire("string", nullable=0)


@dataclass(slots=True)
class DescribeClusterResponse:
    throttle_time_ms: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", nullable=0)
    endpoint_type: int = wire("int8", 1, default=1)
    cluster_id: str = wire("string", default="")
    controller_id: int = wire("int32", default=-1)
    brokers: list[DescribeClusterBroker] = wire([DescribeClusterBroker])
    cluster_authorized_operations: int = wire("int32", default=-2147483648)


@dataclass(slots=True)
class TopicRequest:
    name: str = wire("string", default="")
    partition_indexes: list[int] = wire(["int32"])


@dataclass(slots=True)
class DescribeProducersRequest:
    topics: list[TopicRequest] = wire([TopicRequest])


@dataclass(slots=True)
class ProducerState:
    producer_id: int = wire("int64", default=0)
    producer_epoch: int = wire("int32", default=0)
    last_sequence: int = wire("int32", default=-1)
    last_timestamp: int = wire("int64", default=-1)
    coordinator_epoch: int = wire("int32", default=0)
    current_txn_start_offset: int = wire("int64", default=-1)


@dataclass(slots=True)
class PartitionResponse:
    partition_index: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", nullable=0)
    active_producers: list[ProducerState] = wire([ProducerState])


@dataclass(slots=True)
class TopicResponse:
    name: str = wire("string", default="")
    partitions: list[PartitionResponse] = wire([PartitionResponse])


@dataclass(slots=True)
class DescribeProducersResponse:
    throttle_time_ms: int = wire("int32", default=0)
    topics: list[TopicResponse] = wire([TopicResponse])


@dataclass(slots=True)
class DescribeTransactionsRequest:
    transactional_ids: list[str] = wire(["string"])


@dataclass(slots=True)
class TopicData:
    topic: str = wire("string", default="")
    partitions: list[int] = wire(["int32"])


@dataclass(slots=True)
class TransactionState:
    error_code: int = wire("int16", default=0)
    transactional_id: str = wire("string", default="")
    transaction_state: str = wire("string", default="")
    transaction_timeout_ms: int = wire("int32", default=0)
    transaction_start_time_ms: int = wire("int64", default=0)
    producer_id: int = wire("int64", default=0)
    producer_epoch: int = wire("int16", default=0)
    topics: list[TopicData] = wire([TopicData])


@dataclass(slots=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    transaction_states: list[TransactionState] = wire([TransactionState])


@dataclass(slots=True)
class ListTransactionsRequest:
    state_filters: list[str] = wire(["string"])
    producer_id_filters: list[int] = wire(["int64"])
    duration_filter: int = wire("int64", 1, default=-1)


@dataclass(slots=True)
class OtherTransactionState:
    transactional_id: str = wire("string", default="")
    producer_id: int = wire("int64", default=0)
    transaction_state: str = wire("string", default="")


@dataclass(slots=True)
class ListTransactionsResponse:
    throttle_time_ms: int = wire("int32", default=0)
    error_code: int = wire("int16", default=0)
    unknown_state_filters: list[str] = wire(["string"])
    transaction_states: list[OtherTransactionState] = wire([OtherTransactionState])


PRODUCE = Call("Produce", 0, 0, 9, 9, None, None)
FETCH = Call("Fetch", 1, 4, 12, 12, FetchRequest, None)
LIST_OFFSETS = Call("ListOffsets", 2, 1, 7, 6, ListOffsetsRequest, ListOffsetsResponse)
METADATA = Call("Metadata", 3, 0, 9, 9, MetadataRequest, MetadataResponse)
OFFSET_COMMIT = Call("OffsetCommit", 8, 2, 8, 8, OffsetCommitRequest, OffsetCommitResponse)
OFFSET_FETCH = Call("OffsetFetch", 9, 1, 8, 6, OffsetFetchRequest, OffsetFetchResponse)
FIND_COORDINATOR = Call(
    "FindCoordinator", 10, 0, 4, 3, FindCoordinatorRequest, FindCoordinatorResponse
)
JOIN_GROUP = Call("JoinGroup", 11, 0, 9, 6, JoinGroupRequest, JoinGroupResponse)
HEARTBEAT = Call("Heartbeat", 12, 0, 4, 4, HeartbeatRequest, HeartbeatResponse)
LEAVE_GROUP = Call("LeaveGroup", 13, 0, 5, 4, LeaveGroupRequest, LeaveGroupResponse)
SYNC_GROUP = Call("SyncGroup", 14, 0, 5, 4, SyncGroupRequest, SyncGroupResponse)
DESCRIBE_GROUPS = Call("DescribeGroups", 15, 0, 5, 5, DescribeGroupsRequest, DescribeGroupsResponse)
LIST_GROUPS = Call("ListGroups", 16, 0, 5, 3, ListGroupsRequest, ListGroupsResponse)
API_VERSIONS = Call("ApiVersions", 18, 0, 3, 3, ApiVersionsRequest, ApiVersionsResponse)
CREATE_TOPICS = Call("CreateTopics", 19, 2, 6, 5, CreateTopicsRequest, CreateTopicsResponse)
DELETE_TOPICS = Call("DeleteTopics", 20, 1, 5, 4, DeleteTopicsRequest, DeleteTopicsResponse)
DELETE_RECORDS = Call("DeleteRecords", 21, 0, 2, 2, DeleteRecordsRequest, DeleteRecordsResponse)
INIT_PRODUCER_ID = Call(
    "InitProducerId", 22, 0, 4, 2, InitProducerIdRequest, InitProducerIdResponse
)
SASL_HANDSHAKE = Call("SaslHandshake", 17, 0, 1, 99, SaslHandshakeRequest, SaslHandshakeResponse)
ADD_PARTITIONS_TO_TXN = Call(
    "AddPartitionsToTxn", 24, 0, 3, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
)
ADD_OFFSETS_TO_TXN = Call(
    "AddOffsetsToTxn", 25, 0, 3, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
)
END_TXN = Call("EndTxn", 26, 0, 3, 3, EndTxnRequest, EndTxnResponse)
TXN_OFFSET_COMMIT = Call(
    "TxnOffsetCommit", 28, 0, 3, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse
)
OFFSET_FOR_LEADER_EPOCH = Call(
    "OffsetForLeaderEpoch", 23, 2, 4, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
)
DESCRIBE_CONFIGS = Call(
    "DescribeConfigs", 32, 1, 4, 4, DescribeConfigsRequest, DescribeConfigsResponse
)
ALTER_CONFIGS = Call("AlterConfigs", 33, 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse)
DESCRIBE_LOG_DIRS = Call(
    "DescribeLogDirs", 35, 1, 4, 2, DescribeLogDirsRequest, DescribeLogDirsResponse
)
SASL_AUTHENTICATE = Call(
    "SaslAuthenticate", 36, 0, 2, 2, SaslAuthenticateRequest, SaslAuthenticateResponse
)
CREATE_PARTITIONS = Call(
    "CreatePartitions", 37, 0, 3, 2, CreatePartitionsRequest, CreatePartitionsResponse
)
DELETE_GROUPS = Call("DeleteGroups", 42, 0, 2, 2, DeleteGroupsRequest, DeleteGroupsResponse)
INCREMENTAL_ALTER_CONFIGS = Call(
    "IncrementalAlterConfigs",
    44,
    0,
    1,
    1,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
OFFSET_DELETE = Call("OffsetDelete", 47, 0, 0, 99, OffsetDeleteRequest, OffsetDeleteResponse)
DESCRIBE_CLUSTER = Call(
    "DescribeCluster", 60, 0, 1, 0, DescribeClusterRequest, DescribeClusterResponse
)
DESCRIBE_PRODUCERS = Call(
    "DescribeProducers", 61, 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse
)
DESCRIBE_TRANSACTIONS = Call(
    "DescribeTransactions", 65, 0, 0, 0, DescribeTransactionsRequest, DescribeTransactionsResponse
)
LIST_TRANSACTIONS = Call(
    "ListTransactions", 66, 0, 1, 0, ListTransactionsRequest, ListTransactionsResponse
)

CALLS = {
    call.key: call
    for call in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        SASL_HANDSHAKE,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        TXN_OFFSET_COMMIT,
        OFFSET_FOR_LEADER_EPOCH,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        DESCRIBE_LOG_DIRS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        INCREMENTAL_ALTER_CONFIGS,
        OFFSET_DELETE,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
    )
}
