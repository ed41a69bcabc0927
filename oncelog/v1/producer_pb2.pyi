from oncelog.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LeaseProducerRequest(_message.Message):
    __slots__ = ("producer_name", "partitions", "nonce", "held_producer_id", "held_epoch")
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    HELD_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    HELD_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    partitions: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    nonce: int
    held_producer_id: int
    held_epoch: int
    def __init__(self, producer_name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ..., nonce: _Optional[int] = ..., held_producer_id: _Optional[int] = ..., held_epoch: _Optional[int] = ...) -> None: ...

class PartitionLease(_message.Message):
    __slots__ = ("topic", "partition", "error", "producer_id", "epoch", "sequence", "expire_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: str
    producer_id: int
    epoch: int
    sequence: int
    expire_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., expire_ms: _Optional[int] = ...) -> None: ...

class LeaseProducerResponse(_message.Message):
    __slots__ = ("producer_id", "epoch", "expire_ms", "lifetime_ms", "partitions", "lease_token")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_MS_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    expire_ms: int
    lifetime_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionLease]
    lease_token: bytes
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., expire_ms: _Optional[int] = ..., lifetime_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionLease, _Mapping]]] = ..., lease_token: _Optional[bytes] = ...) -> None: ...

class OpenProducerRequest(_message.Message):
    __slots__ = ("producer_id", "epoch", "partitions", "lease_token")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    lease_token: bytes
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ..., lease_token: _Optional[bytes] = ...) -> None: ...

class OpenedPartition(_message.Message):
    __slots__ = ("topic", "partition", "error", "last_sequence", "last_offset", "current_epoch", "leader_id", "leader_address", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CURRENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: str
    last_sequence: int
    last_offset: int
    current_epoch: int
    leader_id: int
    leader_address: str
    message: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[str] = ..., last_sequence: _Optional[int] = ..., last_offset: _Optional[int] = ..., current_epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_address: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class OpenProducerResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[OpenedPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[OpenedPartition, _Mapping]]] = ...) -> None: ...

class DescribeProducersRequest(_message.Message):
    __slots__ = ("topic", "partition", "producer_id", "after_producer_id", "limit", "any_replica")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ANY_REPLICA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    producer_id: int
    after_producer_id: int
    limit: int
    any_replica: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., producer_id: _Optional[int] = ..., after_producer_id: _Optional[int] = ..., limit: _Optional[int] = ..., any_replica: _Optional[bool] = ...) -> None: ...

class RecentBatch(_message.Message):
    __slots__ = ("first_sequence", "last_sequence", "base_offset", "record_count", "crc32c")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    last_sequence: int
    base_offset: int
    record_count: int
    crc32c: int
    def __init__(self, first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., base_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class ProducerState(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_sequence", "last_append_ms", "recent")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_APPEND_MS_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_sequence: int
    last_append_ms: int
    recent: _containers.RepeatedCompositeFieldContainer[RecentBatch]
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_append_ms: _Optional[int] = ..., recent: _Optional[_Iterable[_Union[RecentBatch, _Mapping]]] = ...) -> None: ...

class DescribeProducersResponse(_message.Message):
    __slots__ = ("producers",)
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerState]
    def __init__(self, producers: _Optional[_Iterable[_Union[ProducerState, _Mapping]]] = ...) -> None: ...

class FenceProducerRequest(_message.Message):
    __slots__ = ("producer_name", "nonce")
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    nonce: int
    def __init__(self, producer_name: _Optional[str] = ..., nonce: _Optional[int] = ...) -> None: ...

class FenceProducerResponse(_message.Message):
    __slots__ = ("producer_id", "epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ListProducerNamesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProducerName(_message.Message):
    __slots__ = ("name", "producer_id", "epoch", "last_lease_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    producer_id: int
    epoch: int
    last_lease_ms: int
    def __init__(self, name: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_lease_ms: _Optional[int] = ...) -> None: ...

class ListProducerNamesResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[ProducerName]
    def __init__(self, names: _Optional[_Iterable[_Union[ProducerName, _Mapping]]] = ...) -> None: ...
