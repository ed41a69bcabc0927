from oncelog.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_STATE_UNSPECIFIED: _ClassVar[TransactionState]
    TRANSACTION_STATE_OPEN: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTING: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_STATE_ABORTING: _ClassVar[TransactionState]
    TRANSACTION_STATE_ABORTED: _ClassVar[TransactionState]
TRANSACTION_STATE_UNSPECIFIED: TransactionState
TRANSACTION_STATE_OPEN: TransactionState
TRANSACTION_STATE_COMMITTING: TransactionState
TRANSACTION_STATE_COMMITTED: TransactionState
TRANSACTION_STATE_ABORTING: TransactionState
TRANSACTION_STATE_ABORTED: TransactionState

class BeginTransactionRequest(_message.Message):
    __slots__ = ("producer_name", "producer_id", "epoch", "lease_token", "nonce", "idle_timeout_ms", "total_timeout_ms", "partitions")
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    producer_id: int
    epoch: int
    lease_token: bytes
    nonce: int
    idle_timeout_ms: int
    total_timeout_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    def __init__(self, producer_name: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., lease_token: _Optional[bytes] = ..., nonce: _Optional[int] = ..., idle_timeout_ms: _Optional[int] = ..., total_timeout_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ("transaction_id", "idle_timeout_ms", "total_timeout_ms")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    idle_timeout_ms: int
    total_timeout_ms: int
    def __init__(self, transaction_id: _Optional[int] = ..., idle_timeout_ms: _Optional[int] = ..., total_timeout_ms: _Optional[int] = ...) -> None: ...

class KeepTransactionsAliveRequest(_message.Message):
    __slots__ = ("transaction_ids",)
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    transaction_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, transaction_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class KeepTransactionsAliveResponse(_message.Message):
    __slots__ = ("ended",)
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ended: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ended: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitTransactionRequest(_message.Message):
    __slots__ = ("transaction_id", "producer_id", "epoch", "runs", "at_decision", "timeout_ms", "offsets", "begin_next")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    AT_DECISION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_NEXT_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    producer_id: int
    epoch: int
    runs: _containers.RepeatedCompositeFieldContainer[StagedRun]
    at_decision: bool
    timeout_ms: int
    offsets: _containers.RepeatedCompositeFieldContainer[StagedOffsets]
    begin_next: NextTransaction
    def __init__(self, transaction_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[StagedRun, _Mapping]]] = ..., at_decision: _Optional[bool] = ..., timeout_ms: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[StagedOffsets, _Mapping]]] = ..., begin_next: _Optional[_Union[NextTransaction, _Mapping]] = ...) -> None: ...

class NextTransaction(_message.Message):
    __slots__ = ("nonce", "idle_timeout_ms", "total_timeout_ms", "partitions")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    idle_timeout_ms: int
    total_timeout_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[_batch_pb2.TopicPartition]
    def __init__(self, nonce: _Optional[int] = ..., idle_timeout_ms: _Optional[int] = ..., total_timeout_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_batch_pb2.TopicPartition, _Mapping]]] = ...) -> None: ...

class StagedOffsets(_message.Message):
    __slots__ = ("group", "offset_count", "last_number")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    offset_count: int
    last_number: int
    def __init__(self, group: _Optional[str] = ..., offset_count: _Optional[int] = ..., last_number: _Optional[int] = ...) -> None: ...

class StagedRun(_message.Message):
    __slots__ = ("topic", "partition", "record_count", "last_sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    record_count: int
    last_sequence: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., record_count: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class CommitTransactionResponse(_message.Message):
    __slots__ = ("state", "runs", "next")
    STATE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    state: TransactionState
    runs: _containers.RepeatedCompositeFieldContainer[PublishedRun]
    next: BeginTransactionResponse
    def __init__(self, state: _Optional[_Union[TransactionState, str]] = ..., runs: _Optional[_Iterable[_Union[PublishedRun, _Mapping]]] = ..., next: _Optional[_Union[BeginTransactionResponse, _Mapping]] = ...) -> None: ...

class PublishedRun(_message.Message):
    __slots__ = ("topic", "partition", "base_offset", "record_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offset: int
    record_count: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., record_count: _Optional[int] = ...) -> None: ...

class AbortTransactionRequest(_message.Message):
    __slots__ = ("transaction_id", "producer_id", "epoch")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    producer_id: int
    epoch: int
    def __init__(self, transaction_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class AbortTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("producer_name", "older_than_ms", "limit")
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    older_than_ms: int
    limit: int
    def __init__(self, producer_name: _Optional[str] = ..., older_than_ms: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionDescription]
    def __init__(self, transactions: _Optional[_Iterable[_Union[TransactionDescription, _Mapping]]] = ...) -> None: ...

class TransactionDescription(_message.Message):
    __slots__ = ("transaction_id", "state", "reason", "producer_name", "producer_id", "epoch", "begun_ms", "age_ms", "idle_timeout_ms", "total_timeout_ms", "partitions", "sink", "staged_bytes")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BEGUN_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    state: TransactionState
    reason: str
    producer_name: str
    producer_id: int
    epoch: int
    begun_ms: int
    age_ms: int
    idle_timeout_ms: int
    total_timeout_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[TransactionPart]
    sink: bool
    staged_bytes: int
    def __init__(self, transaction_id: _Optional[int] = ..., state: _Optional[_Union[TransactionState, str]] = ..., reason: _Optional[str] = ..., producer_name: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., begun_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., idle_timeout_ms: _Optional[int] = ..., total_timeout_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[TransactionPart, _Mapping]]] = ..., sink: _Optional[bool] = ..., staged_bytes: _Optional[int] = ...) -> None: ...

class TransactionPart(_message.Message):
    __slots__ = ("topic", "partition", "ended", "staged_records", "staged_bytes", "staged_offsets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    STAGED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STAGED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    ended: bool
    staged_records: int
    staged_bytes: int
    staged_offsets: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., ended: _Optional[bool] = ..., staged_records: _Optional[int] = ..., staged_bytes: _Optional[int] = ..., staged_offsets: _Optional[int] = ...) -> None: ...

class DescribeTransactionRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    def __init__(self, transaction_id: _Optional[int] = ...) -> None: ...

class DescribeTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionDescription
    def __init__(self, transaction: _Optional[_Union[TransactionDescription, _Mapping]] = ...) -> None: ...
