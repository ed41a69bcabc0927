from oncelog.v1 import transaction_pb2 as _transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DrawTicketRequest(_message.Message):
    __slots__ = ("sink", "jobs")
    SINK_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    jobs: bool
    def __init__(self, sink: _Optional[str] = ..., jobs: _Optional[bool] = ...) -> None: ...

class DrawTicketResponse(_message.Message):
    __slots__ = ("ticket",)
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ticket: int
    def __init__(self, ticket: _Optional[int] = ...) -> None: ...

class BeginBatchRequest(_message.Message):
    __slots__ = ("sink", "jobs", "query", "run", "ticket", "batch", "reset", "total_timeout_ms", "timeout_ms")
    SINK_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    jobs: bool
    query: str
    run: str
    ticket: int
    batch: int
    reset: str
    total_timeout_ms: int
    timeout_ms: int
    def __init__(self, sink: _Optional[str] = ..., jobs: _Optional[bool] = ..., query: _Optional[str] = ..., run: _Optional[str] = ..., ticket: _Optional[int] = ..., batch: _Optional[int] = ..., reset: _Optional[str] = ..., total_timeout_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class BeginBatchResponse(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    def __init__(self, transaction_id: _Optional[int] = ...) -> None: ...

class EndBatchRequest(_message.Message):
    __slots__ = ("sink", "jobs", "query", "batch", "transaction_id", "winners", "record_count", "digest", "timeout_ms")
    SINK_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    WINNERS_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    jobs: bool
    query: str
    batch: int
    transaction_id: int
    winners: _containers.RepeatedCompositeFieldContainer[Winner]
    record_count: int
    digest: int
    timeout_ms: int
    def __init__(self, sink: _Optional[str] = ..., jobs: _Optional[bool] = ..., query: _Optional[str] = ..., batch: _Optional[int] = ..., transaction_id: _Optional[int] = ..., winners: _Optional[_Iterable[_Union[Winner, _Mapping]]] = ..., record_count: _Optional[int] = ..., digest: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Winner(_message.Message):
    __slots__ = ("producer_id", "topic", "partition", "record_count", "last_sequence")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    topic: str
    partition: int
    record_count: int
    last_sequence: int
    def __init__(self, producer_id: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., record_count: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class EndBatchResponse(_message.Message):
    __slots__ = ("already", "runs")
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    already: bool
    runs: _containers.RepeatedCompositeFieldContainer[_transaction_pb2.PublishedRun]
    def __init__(self, already: _Optional[bool] = ..., runs: _Optional[_Iterable[_Union[_transaction_pb2.PublishedRun, _Mapping]]] = ...) -> None: ...

class AbortBatchRequest(_message.Message):
    __slots__ = ("sink", "transaction_id")
    SINK_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    sink: str
    transaction_id: int
    def __init__(self, sink: _Optional[str] = ..., transaction_id: _Optional[int] = ...) -> None: ...

class AbortBatchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSinksRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListSinksResponse(_message.Message):
    __slots__ = ("sinks",)
    SINKS_FIELD_NUMBER: _ClassVar[int]
    sinks: _containers.RepeatedCompositeFieldContainer[SinkDescription]
    def __init__(self, sinks: _Optional[_Iterable[_Union[SinkDescription, _Mapping]]] = ...) -> None: ...

class DescribeSinkRequest(_message.Message):
    __slots__ = ("sink",)
    SINK_FIELD_NUMBER: _ClassVar[int]
    sink: str
    def __init__(self, sink: _Optional[str] = ...) -> None: ...

class DescribeSinkResponse(_message.Message):
    __slots__ = ("sink",)
    SINK_FIELD_NUMBER: _ClassVar[int]
    sink: SinkDescription
    def __init__(self, sink: _Optional[_Union[SinkDescription, _Mapping]] = ...) -> None: ...

class SinkDescription(_message.Message):
    __slots__ = ("sink", "jobs", "query", "run", "ticket", "committed_batch", "record_count", "digest", "open_transaction_id", "open_batch", "version", "before", "committed")
    SINK_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_BATCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OPEN_TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_BATCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    sink: str
    jobs: bool
    query: str
    run: str
    ticket: int
    committed_batch: int
    record_count: int
    digest: int
    open_transaction_id: int
    open_batch: int
    version: int
    before: SinkBefore
    committed: _containers.RepeatedCompositeFieldContainer[BatchRange]
    def __init__(self, sink: _Optional[str] = ..., jobs: _Optional[bool] = ..., query: _Optional[str] = ..., run: _Optional[str] = ..., ticket: _Optional[int] = ..., committed_batch: _Optional[int] = ..., record_count: _Optional[int] = ..., digest: _Optional[int] = ..., open_transaction_id: _Optional[int] = ..., open_batch: _Optional[int] = ..., version: _Optional[int] = ..., before: _Optional[_Union[SinkBefore, _Mapping]] = ..., committed: _Optional[_Iterable[_Union[BatchRange, _Mapping]]] = ...) -> None: ...

class SinkBefore(_message.Message):
    __slots__ = ("query", "batch", "record_count", "digest")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    query: str
    batch: int
    record_count: int
    digest: int
    def __init__(self, query: _Optional[str] = ..., batch: _Optional[int] = ..., record_count: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class BatchRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ResetSinkRequest(_message.Message):
    __slots__ = ("sink",)
    SINK_FIELD_NUMBER: _ClassVar[int]
    sink: str
    def __init__(self, sink: _Optional[str] = ...) -> None: ...

class ResetSinkResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
