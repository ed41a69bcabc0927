"""Client of Oncelog, a replicated, partitioned log that keeps every record once.

    from oncelog import Admin, Consumer, Producer

Needs grpcio, protobuf and crc32c. Extras: `cli`, `zstd`, `lz4`, `arrow`.

The three clients are imported on first use (PEP 562): a node needs only the stubs, the errors and
the wire, and runs without their dependencies.
"""

import importlib
from typing import TYPE_CHECKING

from oncelog.config import AdminConfig, ConsumerConfig, ProducerConfig
from oncelog.errors import (
    BatchTooLargeError,
    BrokerUnavailableError,
    BufferFullError,
    ClientClosedError,
    CommitDiffersError,
    CommitIncompleteError,
    CommitTimeoutError,
    ConfigError,
    CorruptLogError,
    DeliveryError,
    DeliveryTimeoutError,
    FatalError,
    FencedError,
    FencedMemberError,
    GroupHasMembersError,
    InternalError,
    InvalidBatchError,
    InvalidRequestError,
    MissingExtraError,
    NotAuthorizedError,
    NotLeaderError,
    NotReadyError,
    NotSupportedError,
    OffsetMismatchError,
    OffsetOutOfRangeError,
    OncelogError,
    OutOfOrderError,
    ProducerExpiredError,
    ProducerFatalError,
    ProducerNameNotFoundError,
    RequestTimeoutError,
    RetriableError,
    SequenceConflictError,
    StorageFullError,
    ThrottledError,
    TopicAlreadyExistsError,
    TransactionAbortedError,
    TransactionCommittedError,
    TransactionEndedError,
    TransactionError,
    TransactionOpenError,
    UnauthenticatedError,
    UndeliveredRecordsError,
    UnknownProducerError,
    UnknownTopicOrPartitionError,
    UnknownTransactionError,
)
from oncelog.moves import Balance, PartitionMove, Resized
from oncelog.types import (
    BatchMetadata,
    ClusterInfo,
    CommittedOffset,
    CommittedTransaction,
    ExpectedOffsets,
    GroupDescription,
    GroupInfo,
    GroupMember,
    Header,
    NodeInfo,
    NodeStatus,
    OffsetCommit,
    PartitionInfo,
    PermissionRule,
    Permissions,
    ProducerIdentity,
    ProducerLease,
    ProducerName,
    ProducerState,
    PublishedRun,
    Quota,
    RecentBatch,
    Record,
    RecordMetadata,
    Resolution,
    ResolvedSequence,
    TopicConfig,
    TopicInfo,
    TopicPartition,
    TransactionInfo,
    TransactionPart,
    UpgradeInfo,
)
from oncelog.version import __version__
from oncelog.wire.stored import StoredBatch

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.consumer import Consumer
    from oncelog.producer import Producer
    from oncelog.transaction import Transaction

__all__ = [
    "Admin",
    "AdminConfig",
    "Balance",
    "BatchMetadata",
    "BatchTooLargeError",
    "BrokerUnavailableError",
    "BufferFullError",
    "ClientClosedError",
    "ClusterInfo",
    "CommitDiffersError",
    "CommitIncompleteError",
    "CommitTimeoutError",
    "CommittedOffset",
    "CommittedTransaction",
    "ConfigError",
    "Consumer",
    "ConsumerConfig",
    "CorruptLogError",
    "DeliveryError",
    "DeliveryTimeoutError",
    "ExpectedOffsets",
    "FatalError",
    "FencedError",
    "FencedMemberError",
    "GroupDescription",
    "GroupHasMembersError",
    "GroupInfo",
    "GroupMember",
    "Header",
    "InternalError",
    "InvalidBatchError",
    "InvalidRequestError",
    "MissingExtraError",
    "NodeInfo",
    "NodeStatus",
    "NotAuthorizedError",
    "NotLeaderError",
    "NotReadyError",
    "NotSupportedError",
    "OffsetCommit",
    "OffsetMismatchError",
    "OffsetOutOfRangeError",
    "OncelogError",
    "OutOfOrderError",
    "PartitionInfo",
    "PartitionMove",
    "PermissionRule",
    "Permissions",
    "Producer",
    "ProducerConfig",
    "ProducerExpiredError",
    "ProducerFatalError",
    "ProducerIdentity",
    "ProducerLease",
    "ProducerName",
    "ProducerNameNotFoundError",
    "ProducerState",
    "PublishedRun",
    "Quota",
    "RecentBatch",
    "Record",
    "RecordMetadata",
    "RequestTimeoutError",
    "Resized",
    "Resolution",
    "ResolvedSequence",
    "RetriableError",
    "SequenceConflictError",
    "StorageFullError",
    "StoredBatch",
    "ThrottledError",
    "TopicAlreadyExistsError",
    "TopicConfig",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionAbortedError",
    "TransactionCommittedError",
    "TransactionEndedError",
    "TransactionError",
    "TransactionInfo",
    "TransactionOpenError",
    "TransactionPart",
    "UnauthenticatedError",
    "UndeliveredRecordsError",
    "UnknownProducerError",
    "UnknownTopicOrPartitionError",
    "UnknownTransactionError",
    "UpgradeInfo",
    "__version__",
]

if not TYPE_CHECKING:  # to a type checker, a module with `__getattr__` has every name
    _CLIENTS = {
        "Admin": "oncelog.admin",
        "Consumer": "oncelog.consumer",
        "Producer": "oncelog.producer",
        "Transaction": "oncelog.transaction",
    }

    def __getattr__(name: str) -> object:
        if name not in _CLIENTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        client = globals()[name] = getattr(importlib.import_module(_CLIENTS[name]), name)
        return client

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
