from oncelog.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemberHello(_message.Message):
    __slots__ = ("group", "member_id", "connection", "topics", "instance_id", "epoch", "claim", "owned", "assignor", "session_timeout_ms", "revoke_timeout_ms", "processing_timeout_ms", "client_host")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REVOKE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    connection: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    instance_id: str
    epoch: int
    claim: int
    owned: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    assignor: str
    session_timeout_ms: int
    revoke_timeout_ms: int
    processing_timeout_ms: int
    client_host: str
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., connection: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., instance_id: _Optional[str] = ..., epoch: _Optional[int] = ..., claim: _Optional[int] = ..., owned: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ..., assignor: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., revoke_timeout_ms: _Optional[int] = ..., processing_timeout_ms: _Optional[int] = ..., client_host: _Optional[str] = ...) -> None: ...

class MemberOwned(_message.Message):
    __slots__ = ("epoch", "partitions")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    def __init__(self, epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ...) -> None: ...

class MemberPing(_message.Message):
    __slots__ = ("idle_ms",)
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    idle_ms: int
    def __init__(self, idle_ms: _Optional[int] = ...) -> None: ...

class MemberLeave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("hello", "owned", "ping", "leave")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    hello: MemberHello
    owned: MemberOwned
    ping: MemberPing
    leave: MemberLeave
    def __init__(self, hello: _Optional[_Union[MemberHello, _Mapping]] = ..., owned: _Optional[_Union[MemberOwned, _Mapping]] = ..., ping: _Optional[_Union[MemberPing, _Mapping]] = ..., leave: _Optional[_Union[MemberLeave, _Mapping]] = ...) -> None: ...

class GroupHeartbeatRequest(_message.Message):
    __slots__ = ("group", "member_id", "connection", "request")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    connection: int
    request: JoinGroupRequest
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., connection: _Optional[int] = ..., request: _Optional[_Union[JoinGroupRequest, _Mapping]] = ...) -> None: ...

class OwnedPartition(_message.Message):
    __slots__ = ("topic", "partition", "ownership")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    ownership: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., ownership: _Optional[int] = ...) -> None: ...

class GroupAssignment(_message.Message):
    __slots__ = ("epoch", "partitions", "revoke")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[OwnedPartition]
    revoke: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    def __init__(self, epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[OwnedPartition, _Mapping]]] = ..., revoke: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ...) -> None: ...

class MemberFenced(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class InstanceHeld(_message.Message):
    __slots__ = ("claim",)
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    claim: int
    def __init__(self, claim: _Optional[int] = ...) -> None: ...

class JoinGroupResponse(_message.Message):
    __slots__ = ("connection", "assignment", "fenced", "instance_held", "ping_interval_ms")
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_HELD_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    connection: int
    assignment: GroupAssignment
    fenced: MemberFenced
    instance_held: InstanceHeld
    ping_interval_ms: int
    def __init__(self, connection: _Optional[int] = ..., assignment: _Optional[_Union[GroupAssignment, _Mapping]] = ..., fenced: _Optional[_Union[MemberFenced, _Mapping]] = ..., instance_held: _Optional[_Union[InstanceHeld, _Mapping]] = ..., ping_interval_ms: _Optional[int] = ...) -> None: ...

class OffsetCommit(_message.Message):
    __slots__ = ("topic", "partition", "offset", "metadata", "producer_id", "epoch", "sequence", "ownership")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    metadata: str
    producer_id: int
    epoch: int
    sequence: int
    ownership: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., ownership: _Optional[int] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "offsets", "timeout_ms", "member_id", "commit_number")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetCommit]
    timeout_ms: int
    member_id: str
    commit_number: int
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[OffsetCommit, _Mapping]]] = ..., timeout_ms: _Optional[int] = ..., member_id: _Optional[str] = ..., commit_number: _Optional[int] = ...) -> None: ...

class OffsetCommitResult(_message.Message):
    __slots__ = ("topic", "partition", "error", "message", "duplicate", "offset", "producer_id", "current_epoch", "last_sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: str
    message: str
    duplicate: bool
    offset: int
    producer_id: int
    current_epoch: int
    last_sequence: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[str] = ..., message: _Optional[str] = ..., duplicate: _Optional[bool] = ..., offset: _Optional[int] = ..., producer_id: _Optional[int] = ..., current_epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OffsetCommitResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OffsetCommitResult, _Mapping]]] = ...) -> None: ...

class StageOffsetsRequest(_message.Message):
    __slots__ = ("transaction_id", "producer_id", "epoch", "group", "offsets", "member_id", "number", "timeout_ms")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    producer_id: int
    epoch: int
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetCommit]
    member_id: str
    number: int
    timeout_ms: int
    def __init__(self, transaction_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[OffsetCommit, _Mapping]]] = ..., member_id: _Optional[str] = ..., number: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StageOffsetsResponse(_message.Message):
    __slots__ = ("error", "message", "duplicate")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    error: str
    message: str
    duplicate: bool
    def __init__(self, error: _Optional[str] = ..., message: _Optional[str] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class FetchOffsetsRequest(_message.Message):
    __slots__ = ("group", "partitions", "ignore_transactions", "member_id", "ownerships")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIPS_FIELD_NUMBER: _ClassVar[int]
    group: str
    partitions: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    ignore_transactions: bool
    member_id: str
    ownerships: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ..., ignore_transactions: _Optional[bool] = ..., member_id: _Optional[str] = ..., ownerships: _Optional[_Iterable[int]] = ...) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "metadata", "producer_id", "epoch", "sequence", "commit_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    metadata: str
    producer_id: int
    epoch: int
    sequence: int
    commit_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., commit_ms: _Optional[int] = ...) -> None: ...

class FetchOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("after_group", "limit")
    AFTER_GROUP_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after_group: str
    limit: int
    def __init__(self, after_group: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class GroupInfo(_message.Message):
    __slots__ = ("group", "offsets", "last_commit_ms", "members", "protocol")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: int
    last_commit_ms: int
    members: int
    protocol: str
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[int] = ..., last_commit_ms: _Optional[int] = ..., members: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "partitions", "partition_count")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupInfo]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    partition_count: int
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupInfo, _Mapping]]] = ..., partitions: _Optional[_Iterable[int]] = ..., partition_count: _Optional[int] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("group", "exists", "last_commit_ms", "offsets", "offsets_partition", "coordinator_id", "members", "epoch", "assignor", "protocol")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_PARTITION_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    group: str
    exists: bool
    last_commit_ms: int
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    offsets_partition: int
    coordinator_id: int
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    epoch: int
    assignor: str
    protocol: str
    def __init__(self, group: _Optional[str] = ..., exists: _Optional[bool] = ..., last_commit_ms: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ..., offsets_partition: _Optional[int] = ..., coordinator_id: _Optional[int] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., epoch: _Optional[int] = ..., assignor: _Optional[str] = ..., protocol: _Optional[str] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_host", "owned", "revoking", "idle_ms", "connected")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    REVOKING_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_host: str
    owned: _containers.RepeatedCompositeFieldContainer[OwnedPartition]
    revoking: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    idle_ms: int
    connected: bool
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_host: _Optional[str] = ..., owned: _Optional[_Iterable[_Union[OwnedPartition, _Mapping]]] = ..., revoking: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ..., idle_ms: _Optional[int] = ..., connected: _Optional[bool] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...
