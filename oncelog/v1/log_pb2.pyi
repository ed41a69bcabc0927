from oncelog.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_APPENDED: _ClassVar[Verdict]
    VERDICT_DUPLICATE: _ClassVar[Verdict]
    VERDICT_STAGED: _ClassVar[Verdict]
    VERDICT_INVALID_BATCH: _ClassVar[Verdict]
    VERDICT_BATCH_TOO_LARGE: _ClassVar[Verdict]
    VERDICT_UNKNOWN_PRODUCER: _ClassVar[Verdict]
    VERDICT_FENCED: _ClassVar[Verdict]
    VERDICT_OUT_OF_ORDER: _ClassVar[Verdict]
    VERDICT_SEQUENCE_CONFLICT: _ClassVar[Verdict]
    VERDICT_PRODUCER_EXPIRED: _ClassVar[Verdict]
    VERDICT_OFFSET_MISMATCH: _ClassVar[Verdict]
    VERDICT_TRANSACTION_ABORTED: _ClassVar[Verdict]
    VERDICT_TRANSACTION_ENDED: _ClassVar[Verdict]
    VERDICT_NOT_LEADER: _ClassVar[Verdict]
    VERDICT_NOT_READY: _ClassVar[Verdict]
    VERDICT_TIMEOUT: _ClassVar[Verdict]
    VERDICT_THROTTLED: _ClassVar[Verdict]
    VERDICT_STORAGE_FULL: _ClassVar[Verdict]
    VERDICT_UNKNOWN_TOPIC_OR_PARTITION: _ClassVar[Verdict]
    VERDICT_TRANSACTION_CONFLICT: _ClassVar[Verdict]

class PartitionError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITION_ERROR_NONE: _ClassVar[PartitionError]
    PARTITION_ERROR_NOT_LEADER: _ClassVar[PartitionError]
    PARTITION_ERROR_NOT_READY: _ClassVar[PartitionError]
    PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION: _ClassVar[PartitionError]
    PARTITION_ERROR_OFFSET_OUT_OF_RANGE: _ClassVar[PartitionError]
    PARTITION_ERROR_STORAGE: _ClassVar[PartitionError]

class Resolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESOLUTION_UNSPECIFIED: _ClassVar[Resolution]
    RESOLUTION_COMMITTED: _ClassVar[Resolution]
    RESOLUTION_NEVER: _ClassVar[Resolution]
    RESOLUTION_NOT_YET: _ClassVar[Resolution]
VERDICT_UNSPECIFIED: Verdict
VERDICT_APPENDED: Verdict
VERDICT_DUPLICATE: Verdict
VERDICT_STAGED: Verdict
VERDICT_INVALID_BATCH: Verdict
VERDICT_BATCH_TOO_LARGE: Verdict
VERDICT_UNKNOWN_PRODUCER: Verdict
VERDICT_FENCED: Verdict
VERDICT_OUT_OF_ORDER: Verdict
VERDICT_SEQUENCE_CONFLICT: Verdict
VERDICT_PRODUCER_EXPIRED: Verdict
VERDICT_OFFSET_MISMATCH: Verdict
VERDICT_TRANSACTION_ABORTED: Verdict
VERDICT_TRANSACTION_ENDED: Verdict
VERDICT_NOT_LEADER: Verdict
VERDICT_NOT_READY: Verdict
VERDICT_TIMEOUT: Verdict
VERDICT_THROTTLED: Verdict
VERDICT_STORAGE_FULL: Verdict
VERDICT_UNKNOWN_TOPIC_OR_PARTITION: Verdict
VERDICT_TRANSACTION_CONFLICT: Verdict
PARTITION_ERROR_NONE: PartitionError
PARTITION_ERROR_NOT_LEADER: PartitionError
PARTITION_ERROR_NOT_READY: PartitionError
PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION: PartitionError
PARTITION_ERROR_OFFSET_OUT_OF_RANGE: PartitionError
PARTITION_ERROR_STORAGE: PartitionError
RESOLUTION_UNSPECIFIED: Resolution
RESOLUTION_COMMITTED: Resolution
RESOLUTION_NEVER: Resolution
RESOLUTION_NOT_YET: Resolution

class ProduceRequest(_message.Message):
    __slots__ = ("batches", "timeout_ms")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Batch]
    timeout_ms: int
    def __init__(self, batches: _Optional[_Iterable[_Union[_batch_pb2.Batch, _Mapping]]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchResult]
    def __init__(self, results: _Optional[_Iterable[_Union[BatchResult, _Mapping]]] = ...) -> None: ...

class BatchResult(_message.Message):
    __slots__ = ("id", "verdict", "base_offset", "append_time_ms", "current_epoch", "last_sequence", "next_offset", "leader_id", "leader_address", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: int
    verdict: Verdict
    base_offset: int
    append_time_ms: int
    current_epoch: int
    last_sequence: int
    next_offset: int
    leader_id: int
    leader_address: str
    message: str
    def __init__(self, id: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., base_offset: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., current_epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., next_offset: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_address: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("partitions", "min_bytes", "max_wait_ms", "max_bytes", "any_replica", "near")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ANY_REPLICA_FIELD_NUMBER: _ClassVar[int]
    NEAR_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionFetch]
    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    any_replica: bool
    near: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionFetch, _Mapping]]] = ..., min_bytes: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., any_replica: _Optional[bool] = ..., near: _Optional[bool] = ...) -> None: ...

class PartitionFetch(_message.Message):
    __slots__ = ("topic", "partition", "offset", "max_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    max_bytes: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class PartitionRecords(_message.Message):
    __slots__ = ("topic", "partition", "error", "message", "leader_id", "leader_address", "log_start_offset", "high_watermark", "batches", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: PartitionError
    message: str
    leader_id: int
    leader_address: str
    log_start_offset: int
    high_watermark: int
    batches: _containers.RepeatedCompositeFieldContainer[_batch_pb2.StoredBatch]
    topic_id: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[PartitionError, str]] = ..., message: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_address: _Optional[str] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[_batch_pb2.StoredBatch, _Mapping]]] = ..., topic_id: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRecords]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionRecords, _Mapping]]] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("partitions", "max_bytes", "any_replica", "near")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ANY_REPLICA_FIELD_NUMBER: _ClassVar[int]
    NEAR_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionFetch]
    max_bytes: int
    any_replica: bool
    near: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionFetch, _Mapping]]] = ..., max_bytes: _Optional[int] = ..., any_replica: _Optional[bool] = ..., near: _Optional[bool] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("queries", "any_replica")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    ANY_REPLICA_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[OffsetQuery]
    any_replica: bool
    def __init__(self, queries: _Optional[_Iterable[_Union[OffsetQuery, _Mapping]]] = ..., any_replica: _Optional[bool] = ...) -> None: ...

class OffsetQuery(_message.Message):
    __slots__ = ("topic", "partition", "earliest", "latest", "timestamp_us", "behind")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    earliest: bool
    latest: bool
    timestamp_us: int
    behind: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., timestamp_us: _Optional[int] = ..., behind: _Optional[int] = ...) -> None: ...

class OffsetResult(_message.Message):
    __slots__ = ("topic", "partition", "error", "message", "leader_id", "leader_address", "offset", "behind_ms", "blanks_below")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEHIND_MS_FIELD_NUMBER: _ClassVar[int]
    BLANKS_BELOW_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: PartitionError
    message: str
    leader_id: int
    leader_address: str
    offset: int
    behind_ms: int
    blanks_below: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[PartitionError, str]] = ..., message: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_address: _Optional[str] = ..., offset: _Optional[int] = ..., behind_ms: _Optional[int] = ..., blanks_below: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OffsetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OffsetResult, _Mapping]]] = ...) -> None: ...

class ResolveSequenceRequest(_message.Message):
    __slots__ = ("topic", "partition", "producer_id", "epoch", "sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    producer_id: int
    epoch: int
    sequence: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class ResolveSequenceResponse(_message.Message):
    __slots__ = ("resolution", "offset", "last_sequence", "current_epoch", "epoch")
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    resolution: Resolution
    offset: int
    last_sequence: int
    current_epoch: int
    epoch: int
    def __init__(self, resolution: _Optional[_Union[Resolution, str]] = ..., offset: _Optional[int] = ..., last_sequence: _Optional[int] = ..., current_epoch: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...
