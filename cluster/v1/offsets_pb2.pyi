from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OffsetsCommand(_message.Message):
    __slots__ = ("stamp_ms", "commit", "delete")
    STAMP_MS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    stamp_ms: int
    commit: CommitGroupOffsets
    delete: DeleteGroupOffsets
    def __init__(self, stamp_ms: _Optional[int] = ..., commit: _Optional[_Union[CommitGroupOffsets, _Mapping]] = ..., delete: _Optional[_Union[DeleteGroupOffsets, _Mapping]] = ...) -> None: ...

class CommitGroupOffsets(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetRecord]
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[OffsetRecord, _Mapping]]] = ...) -> None: ...

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

class OffsetsSnapshot(_message.Message):
    __slots__ = ("clock_ms", "groups")
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    clock_ms: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupRecord]
    def __init__(self, clock_ms: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupRecord, _Mapping]]] = ...) -> None: ...
