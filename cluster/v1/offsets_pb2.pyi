from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OffsetsCommand(_message.Message):
    __slots__ = ("stamp_ms", "commit", "delete", "change_owners", "claim_instance", "remove_member", "stage", "rebalance", "delete_offsets")
    STAMP_MS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    CHANGE_OWNERS_FIELD_NUMBER: _ClassVar[int]
    CLAIM_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_MEMBER_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    DELETE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    stamp_ms: int
    commit: CommitGroupOffsets
    delete: DeleteGroupOffsets
    change_owners: ChangeOwners
    claim_instance: ClaimInstance
    remove_member: RemoveMember
    stage: StageOffsets
    rebalance: ClassicGroup
    delete_offsets: DeleteOffsets
    def __init__(self, stamp_ms: _Optional[int] = ..., commit: _Optional[_Union[CommitGroupOffsets, _Mapping]] = ..., delete: _Optional[_Union[DeleteGroupOffsets, _Mapping]] = ..., change_owners: _Optional[_Union[ChangeOwners, _Mapping]] = ..., claim_instance: _Optional[_Union[ClaimInstance, _Mapping]] = ..., remove_member: _Optional[_Union[RemoveMember, _Mapping]] = ..., stage: _Optional[_Union[StageOffsets, _Mapping]] = ..., rebalance: _Optional[_Union[ClassicGroup, _Mapping]] = ..., delete_offsets: _Optional[_Union[DeleteOffsets, _Mapping]] = ...) -> None: ...

class ClassicCaller(_message.Message):
    __slots__ = ("member", "instance", "generation")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    member: str
    instance: str
    generation: int
    def __init__(self, member: _Optional[str] = ..., instance: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ClassicMember(_message.Message):
    __slots__ = ("member", "instance", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "metadata", "assignment")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member: str
    instance: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes
    assignment: bytes
    def __init__(self, member: _Optional[str] = ..., instance: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., metadata: _Optional[bytes] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class ClassicGroup(_message.Message):
    __slots__ = ("group", "generation", "protocol_type", "protocol", "leader", "members")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: _containers.RepeatedCompositeFieldContainer[ClassicMember]
    def __init__(self, group: _Optional[str] = ..., generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., leader: _Optional[str] = ..., members: _Optional[_Iterable[_Union[ClassicMember, _Mapping]]] = ...) -> None: ...

class DeleteOffsets(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetKey]
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[OffsetKey, _Mapping]]] = ...) -> None: ...

class OffsetKey(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class StageOffsets(_message.Message):
    __slots__ = ("transaction_id", "group", "offsets", "member", "number", "ownerships", "classic")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIPS_FIELD_NUMBER: _ClassVar[int]
    CLASSIC_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetRecord]
    member: str
    number: int
    ownerships: _containers.RepeatedScalarFieldContainer[int]
    classic: ClassicCaller
    def __init__(self, transaction_id: _Optional[int] = ..., group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[OffsetRecord, _Mapping]]] = ..., member: _Optional[str] = ..., number: _Optional[int] = ..., ownerships: _Optional[_Iterable[int]] = ..., classic: _Optional[_Union[ClassicCaller, _Mapping]] = ...) -> None: ...

class CommitGroupOffsets(_message.Message):
    __slots__ = ("group", "offsets", "member", "number", "ownerships", "classic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIPS_FIELD_NUMBER: _ClassVar[int]
    CLASSIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetRecord]
    member: str
    number: int
    ownerships: _containers.RepeatedScalarFieldContainer[int]
    classic: ClassicCaller
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[OffsetRecord, _Mapping]]] = ..., member: _Optional[str] = ..., number: _Optional[int] = ..., ownerships: _Optional[_Iterable[int]] = ..., classic: _Optional[_Union[ClassicCaller, _Mapping]] = ...) -> None: ...

class OwnerChange(_message.Message):
    __slots__ = ("topic_id", "partition", "expected", "member")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    partition: int
    expected: int
    member: str
    def __init__(self, topic_id: _Optional[int] = ..., partition: _Optional[int] = ..., expected: _Optional[int] = ..., member: _Optional[str] = ...) -> None: ...

class GroupTerms(_message.Message):
    __slots__ = ("assignor", "session_timeout_ms", "revoke_timeout_ms", "processing_timeout_ms")
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REVOKE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    assignor: str
    session_timeout_ms: int
    revoke_timeout_ms: int
    processing_timeout_ms: int
    def __init__(self, assignor: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., revoke_timeout_ms: _Optional[int] = ..., processing_timeout_ms: _Optional[int] = ...) -> None: ...

class ChangeOwners(_message.Message):
    __slots__ = ("group", "epoch", "changes", "terms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    group: str
    epoch: int
    changes: _containers.RepeatedCompositeFieldContainer[OwnerChange]
    terms: GroupTerms
    def __init__(self, group: _Optional[str] = ..., epoch: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[OwnerChange, _Mapping]]] = ..., terms: _Optional[_Union[GroupTerms, _Mapping]] = ...) -> None: ...

class ClaimInstance(_message.Message):
    __slots__ = ("group", "instance", "expected", "member")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    instance: str
    expected: int
    member: str
    def __init__(self, group: _Optional[str] = ..., instance: _Optional[str] = ..., expected: _Optional[int] = ..., member: _Optional[str] = ...) -> None: ...

class RemoveMember(_message.Message):
    __slots__ = ("group", "member")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ...) -> None: ...

class DeleteGroupOffsets(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class OffsetRecord(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "offset", "metadata", "producer_id", "epoch", "sequence", "commit_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    partition: int
    offset: int
    metadata: str
    producer_id: int
    epoch: int
    sequence: int
    commit_ms: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., commit_ms: _Optional[int] = ...) -> None: ...

class GroupRecord(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetRecord]
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[OffsetRecord, _Mapping]]] = ...) -> None: ...

class OwnerRecord(_message.Message):
    __slots__ = ("topic_id", "partition", "member", "number", "last_commit")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    partition: int
    member: str
    number: int
    last_commit: int
    def __init__(self, topic_id: _Optional[int] = ..., partition: _Optional[int] = ..., member: _Optional[str] = ..., number: _Optional[int] = ..., last_commit: _Optional[int] = ...) -> None: ...

class InstanceRecord(_message.Message):
    __slots__ = ("instance", "member", "number")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    instance: str
    member: str
    number: int
    def __init__(self, instance: _Optional[str] = ..., member: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class OwnershipRecord(_message.Message):
    __slots__ = ("group", "epoch", "owners", "instances", "terms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    group: str
    epoch: int
    owners: _containers.RepeatedCompositeFieldContainer[OwnerRecord]
    instances: _containers.RepeatedCompositeFieldContainer[InstanceRecord]
    terms: GroupTerms
    def __init__(self, group: _Optional[str] = ..., epoch: _Optional[int] = ..., owners: _Optional[_Iterable[_Union[OwnerRecord, _Mapping]]] = ..., instances: _Optional[_Iterable[_Union[InstanceRecord, _Mapping]]] = ..., terms: _Optional[_Union[GroupTerms, _Mapping]] = ...) -> None: ...

class OffsetsSnapshot(_message.Message):
    __slots__ = ("clock_ms", "groups", "ownerships", "staged", "classic")
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIPS_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    CLASSIC_FIELD_NUMBER: _ClassVar[int]
    clock_ms: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupRecord]
    ownerships: _containers.RepeatedCompositeFieldContainer[OwnershipRecord]
    staged: _containers.RepeatedCompositeFieldContainer[StageOffsets]
    classic: _containers.RepeatedCompositeFieldContainer[ClassicGroup]
    def __init__(self, clock_ms: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupRecord, _Mapping]]] = ..., ownerships: _Optional[_Iterable[_Union[OwnershipRecord, _Mapping]]] = ..., staged: _Optional[_Iterable[_Union[StageOffsets, _Mapping]]] = ..., classic: _Optional[_Iterable[_Union[ClassicGroup, _Mapping]]] = ...) -> None: ...
