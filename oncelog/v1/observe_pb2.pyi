from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListEventsRequest(_message.Message):
    __slots__ = ("kinds", "resource", "name", "producer_id", "since_ms", "limit", "follow")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    resource: str
    name: str
    producer_id: int
    since_ms: int
    limit: int
    follow: bool
    def __init__(self, kinds: _Optional[_Iterable[str]] = ..., resource: _Optional[str] = ..., name: _Optional[str] = ..., producer_id: _Optional[int] = ..., since_ms: _Optional[int] = ..., limit: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "node_id", "kind", "resource", "name", "partition", "first_ms", "last_ms", "count", "verdict", "producer_id", "epoch", "first_sequence", "last_sequence", "offset", "principal", "address", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: int
    node_id: int
    kind: str
    resource: str
    name: str
    partition: int
    first_ms: int
    last_ms: int
    count: int
    verdict: str
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    offset: int
    principal: str
    address: str
    text: str
    def __init__(self, id: _Optional[int] = ..., node_id: _Optional[int] = ..., kind: _Optional[str] = ..., resource: _Optional[str] = ..., name: _Optional[str] = ..., partition: _Optional[int] = ..., first_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., count: _Optional[int] = ..., verdict: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., offset: _Optional[int] = ..., principal: _Optional[str] = ..., address: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
