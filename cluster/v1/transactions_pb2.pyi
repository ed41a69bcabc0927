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

class ExpectedRun(_message.Message):
    __slots__ = ("group_id", "producer_id", "records", "last_sequence", "bytes", "max_timestamp_us", "consumer_group")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    producer_id: int
    records: int
    last_sequence: int
    bytes: int
    max_timestamp_us: int
    consumer_group: str
    def __init__(self, group_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., records: _Optional[int] = ..., last_sequence: _Optional[int] = ..., bytes: _Optional[int] = ..., max_timestamp_us: _Optional[int] = ..., consumer_group: _Optional[str] = ...) -> None: ...

class PublishedRun(_message.Message):
    __slots__ = ("producer_id", "epoch", "first_sequence", "last_sequence", "base_offset", "records")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    records: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., base_offset: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...

class Marker(_message.Message):
    __slots__ = ("transaction_id", "committed", "runs", "stamp_ms", "open_low")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    STAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OPEN_LOW_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    committed: bool
    runs: _containers.RepeatedCompositeFieldContainer[ExpectedRun]
    stamp_ms: int
    open_low: int
    def __init__(self, transaction_id: _Optional[int] = ..., committed: _Optional[bool] = ..., runs: _Optional[_Iterable[_Union[ExpectedRun, _Mapping]]] = ..., stamp_ms: _Optional[int] = ..., open_low: _Optional[int] = ...) -> None: ...

class RunsSnapshot(_message.Message):
    __slots__ = ("open_low", "runs", "ended", "spans")
    OPEN_LOW_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    open_low: int
    runs: _containers.RepeatedCompositeFieldContainer[RunRecord]
    ended: _containers.RepeatedCompositeFieldContainer[EndedRecord]
    spans: _containers.RepeatedCompositeFieldContainer[SpanRecord]
    def __init__(self, open_low: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[RunRecord, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[EndedRecord, _Mapping]]] = ..., spans: _Optional[_Iterable[_Union[SpanRecord, _Mapping]]] = ...) -> None: ...

class SpanRecord(_message.Message):
    __slots__ = ("bits", "last_offset")
    BITS_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    bits: int
    last_offset: int
    def __init__(self, bits: _Optional[int] = ..., last_offset: _Optional[int] = ...) -> None: ...

class RunRecord(_message.Message):
    __slots__ = ("transaction_id", "producer_id", "epoch", "first_sequence", "last_sequence", "batches", "records", "bytes", "max_timestamp_us", "first_raft_index", "recent", "kafka")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    FIRST_RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    batches: int
    records: int
    bytes: int
    max_timestamp_us: int
    first_raft_index: int
    recent: _containers.RepeatedCompositeFieldContainer[StagedBatchRecord]
    kafka: bool
    def __init__(self, transaction_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., batches: _Optional[int] = ..., records: _Optional[int] = ..., bytes: _Optional[int] = ..., max_timestamp_us: _Optional[int] = ..., first_raft_index: _Optional[int] = ..., recent: _Optional[_Iterable[_Union[StagedBatchRecord, _Mapping]]] = ..., kafka: _Optional[bool] = ...) -> None: ...

class StagedBatchRecord(_message.Message):
    __slots__ = ("first_sequence", "last_sequence", "relative_offset", "record_count", "crc32c")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    last_sequence: int
    relative_offset: int
    record_count: int
    crc32c: int
    def __init__(self, first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., relative_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class EndedRecord(_message.Message):
    __slots__ = ("transaction_id", "committed", "runs")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    committed: bool
    runs: _containers.RepeatedCompositeFieldContainer[PublishedRun]
    def __init__(self, transaction_id: _Optional[int] = ..., committed: _Optional[bool] = ..., runs: _Optional[_Iterable[_Union[PublishedRun, _Mapping]]] = ...) -> None: ...

class CoordinatorSnapshot(_message.Message):
    __slots__ = ("next_transaction_id", "transactions", "owners", "sinks")
    NEXT_TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    SINKS_FIELD_NUMBER: _ClassVar[int]
    next_transaction_id: int
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionRecord]
    owners: _containers.RepeatedCompositeFieldContainer[TransactionOwnerRecord]
    sinks: _containers.RepeatedCompositeFieldContainer[SinkRecord]
    def __init__(self, next_transaction_id: _Optional[int] = ..., transactions: _Optional[_Iterable[_Union[TransactionRecord, _Mapping]]] = ..., owners: _Optional[_Iterable[_Union[TransactionOwnerRecord, _Mapping]]] = ..., sinks: _Optional[_Iterable[_Union[SinkRecord, _Mapping]]] = ...) -> None: ...

class TransactionRecord(_message.Message):
    __slots__ = ("transaction_id", "owner", "sink", "producer_id", "epoch", "state", "reason", "begun_ms", "idle_ms", "total_ms", "parts", "expected")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BEGUN_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    owner: str
    sink: bool
    producer_id: int
    epoch: int
    state: TransactionState
    reason: str
    begun_ms: int
    idle_ms: int
    total_ms: int
    parts: _containers.RepeatedCompositeFieldContainer[PartRecord]
    expected: _containers.RepeatedCompositeFieldContainer[ExpectedRun]
    def __init__(self, transaction_id: _Optional[int] = ..., owner: _Optional[str] = ..., sink: _Optional[bool] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., state: _Optional[_Union[TransactionState, str]] = ..., reason: _Optional[str] = ..., begun_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ..., total_ms: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[PartRecord, _Mapping]]] = ..., expected: _Optional[_Iterable[_Union[ExpectedRun, _Mapping]]] = ...) -> None: ...

class PartRecord(_message.Message):
    __slots__ = ("group_id", "done", "gone", "runs")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    done: bool
    gone: bool
    runs: _containers.RepeatedCompositeFieldContainer[PublishedRun]
    def __init__(self, group_id: _Optional[int] = ..., done: _Optional[bool] = ..., gone: _Optional[bool] = ..., runs: _Optional[_Iterable[_Union[PublishedRun, _Mapping]]] = ...) -> None: ...

class TransactionOwnerRecord(_message.Message):
    __slots__ = ("name", "producer_id", "epoch", "nonce", "last_transaction_id", "before_transaction_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    LAST_TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    producer_id: int
    epoch: int
    nonce: int
    last_transaction_id: int
    before_transaction_id: int
    def __init__(self, name: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., nonce: _Optional[int] = ..., last_transaction_id: _Optional[int] = ..., before_transaction_id: _Optional[int] = ...) -> None: ...

class SinkRecord(_message.Message):
    __slots__ = ("key", "jobs", "nameless", "next_ticket", "ticket", "run", "batch", "last_transaction_id", "version", "committed_batch", "committed_records", "committed_digest", "queries", "before", "ranges", "floor", "free")
    KEY_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NAMELESS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TICKET_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LAST_TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_BATCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    key: str
    jobs: bool
    nameless: bool
    next_ticket: int
    ticket: int
    run: str
    batch: int
    last_transaction_id: int
    version: int
    committed_batch: int
    committed_records: int
    committed_digest: int
    queries: _containers.RepeatedScalarFieldContainer[str]
    before: SinkBefore
    ranges: _containers.RepeatedCompositeFieldContainer[BatchRange]
    floor: int
    free: bool
    def __init__(self, key: _Optional[str] = ..., jobs: _Optional[bool] = ..., nameless: _Optional[bool] = ..., next_ticket: _Optional[int] = ..., ticket: _Optional[int] = ..., run: _Optional[str] = ..., batch: _Optional[int] = ..., last_transaction_id: _Optional[int] = ..., version: _Optional[int] = ..., committed_batch: _Optional[int] = ..., committed_records: _Optional[int] = ..., committed_digest: _Optional[int] = ..., queries: _Optional[_Iterable[str]] = ..., before: _Optional[_Union[SinkBefore, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[BatchRange, _Mapping]]] = ..., floor: _Optional[int] = ..., free: _Optional[bool] = ...) -> None: ...

class SinkBefore(_message.Message):
    __slots__ = ("query", "batch", "records", "digest")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    query: str
    batch: int
    records: int
    digest: int
    def __init__(self, query: _Optional[str] = ..., batch: _Optional[int] = ..., records: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class BatchRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class TransactionCommand(_message.Message):
    __slots__ = ("begin", "register", "commit", "abort", "markers_done", "draw_ticket", "begin_batch", "reset_sink")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    MARKERS_DONE_FIELD_NUMBER: _ClassVar[int]
    DRAW_TICKET_FIELD_NUMBER: _ClassVar[int]
    BEGIN_BATCH_FIELD_NUMBER: _ClassVar[int]
    RESET_SINK_FIELD_NUMBER: _ClassVar[int]
    begin: BeginTransaction
    register: RegisterTransaction
    commit: CommitTransaction
    abort: AbortTransaction
    markers_done: MarkersDone
    draw_ticket: DrawTicket
    begin_batch: BeginBatch
    reset_sink: ResetSink
    def __init__(self, begin: _Optional[_Union[BeginTransaction, _Mapping]] = ..., register: _Optional[_Union[RegisterTransaction, _Mapping]] = ..., commit: _Optional[_Union[CommitTransaction, _Mapping]] = ..., abort: _Optional[_Union[AbortTransaction, _Mapping]] = ..., markers_done: _Optional[_Union[MarkersDone, _Mapping]] = ..., draw_ticket: _Optional[_Union[DrawTicket, _Mapping]] = ..., begin_batch: _Optional[_Union[BeginBatch, _Mapping]] = ..., reset_sink: _Optional[_Union[ResetSink, _Mapping]] = ...) -> None: ...

class BeginTransaction(_message.Message):
    __slots__ = ("producer_name", "producer_id", "epoch", "nonce", "idle_ms", "total_ms", "groups", "kafka")
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    producer_id: int
    epoch: int
    nonce: int
    idle_ms: int
    total_ms: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    kafka: bool
    def __init__(self, producer_name: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., nonce: _Optional[int] = ..., idle_ms: _Optional[int] = ..., total_ms: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., kafka: _Optional[bool] = ...) -> None: ...

class RegisterTransaction(_message.Message):
    __slots__ = ("transaction_id", "producer_id", "epoch", "groups")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    producer_id: int
    epoch: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, transaction_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitTransaction(_message.Message):
    __slots__ = ("transaction_id", "producer_id", "epoch", "expected", "checked", "next", "digest")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    producer_id: int
    epoch: int
    expected: _containers.RepeatedCompositeFieldContainer[ExpectedRun]
    checked: int
    next: BeginTransaction
    digest: int
    def __init__(self, transaction_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., expected: _Optional[_Iterable[_Union[ExpectedRun, _Mapping]]] = ..., checked: _Optional[int] = ..., next: _Optional[_Union[BeginTransaction, _Mapping]] = ..., digest: _Optional[int] = ...) -> None: ...

class AbortTransaction(_message.Message):
    __slots__ = ("transaction_id", "producer_id", "epoch", "reason", "kafka")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    producer_id: int
    epoch: int
    reason: str
    kafka: bool
    def __init__(self, transaction_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ..., kafka: _Optional[bool] = ...) -> None: ...

class MarkersDone(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[MarkedParts]
    def __init__(self, transactions: _Optional[_Iterable[_Union[MarkedParts, _Mapping]]] = ...) -> None: ...

class MarkedParts(_message.Message):
    __slots__ = ("transaction_id", "parts")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    parts: _containers.RepeatedCompositeFieldContainer[PartRecord]
    def __init__(self, transaction_id: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[PartRecord, _Mapping]]] = ...) -> None: ...

class DrawTicket(_message.Message):
    __slots__ = ("sink", "jobs")
    SINK_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    jobs: bool
    def __init__(self, sink: _Optional[str] = ..., jobs: _Optional[bool] = ...) -> None: ...

class BeginBatch(_message.Message):
    __slots__ = ("sink", "jobs", "query", "run", "ticket", "batch", "reset", "total_ms")
    SINK_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    jobs: bool
    query: str
    run: str
    ticket: int
    batch: int
    reset: str
    total_ms: int
    def __init__(self, sink: _Optional[str] = ..., jobs: _Optional[bool] = ..., query: _Optional[str] = ..., run: _Optional[str] = ..., ticket: _Optional[int] = ..., batch: _Optional[int] = ..., reset: _Optional[str] = ..., total_ms: _Optional[int] = ...) -> None: ...

class ResetSink(_message.Message):
    __slots__ = ("sink",)
    SINK_FIELD_NUMBER: _ClassVar[int]
    sink: str
    def __init__(self, sink: _Optional[str] = ...) -> None: ...

class SinkResult(_message.Message):
    __slots__ = ("ticket", "transaction_id", "busy", "records", "digest")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ticket: int
    transaction_id: int
    busy: bool
    records: int
    digest: int
    def __init__(self, ticket: _Optional[int] = ..., transaction_id: _Optional[int] = ..., busy: _Optional[bool] = ..., records: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...
