"""Exceptions of Oncelog: every error that this package raises on purpose.

Place in the flow: client and nodes raise them. `wire/status.py` carries these classes over
gRPC in both directions; `_engine/` makes them from the verdicts of a produce response.

    OncelogError                      reason, retriable, details
    ├── RetriableError                the same call may succeed later
    │   ├── NotLeaderError            leader_id, leader_address: the present leader, if known
    │   ├── NotReadyError             the new leader has not caught up yet
    │   ├── BrokerUnavailableError    no connection, or no quorum
    │   ├── ThrottledError            retry_after_ms
    │   ├── StorageFullError
    │   ├── RequestTimeoutError       the outcome is unknown (a TimeoutError)
    │   ├── OtherClusterError         the node belongs to another founding of the cluster
    │   ├── BufferFullError           buffer_memory stayed full for max_block_ms
    │   ├── CommitTimeoutError        outcome unknown: repeat the commit (a TimeoutError)
    │   └── UnknownTopicOrPartitionError
    ├── FatalError                    the same call fails again
    │   ├── InvalidRequestError       field, limit: the wrong argument
    │   ├── TopicAlreadyExistsError
    │   ├── ProducerNameNotFoundError
    │   ├── UnauthenticatedError      the caller is not authenticated
    │   ├── NotAuthorizedError        principal, operation, kind, name: the missing grant
    │   ├── NotSupportedError         not supported by this server or client
    │   ├── InternalError             a bug or a broken invariant on the other side
    │   ├── OffsetOutOfRangeError     no record there; log_start_offset, high_watermark
    │   ├── CorruptLogError           stored data is damaged
    │   ├── FencedMemberError         another member owns the partition, or the membership ended
    │   ├── GroupHasMembersError      a commit by hand in a group with members
    │   ├── DeliveryError             a record that is not known to be stored; outcome, topic,
    │   │   │                         partition, producer_id, epoch, sequence
    │   │   ├── InvalidBatchError
    │   │   ├── BatchTooLargeError
    │   │   ├── OffsetMismatchError   next_offset: the offset that comes next
    │   │   ├── DeliveryTimeoutError  delivery_timeout_ms is over (a TimeoutError)
    │   │   ├── UndeliveredRecordsError   flush or close: count and first cause
    │   │   ├── TransactionError      the transaction did not end as requested
    │   │   │   ├── TransactionAbortedError    none of it is readable; the message says why
    │   │   │   ├── TransactionCommittedError  the abort came too late
    │   │   │   ├── CommitIncompleteError, CommitDiffersError
    │   │   │   ├── TransactionOpenError       of the same producer name
    │   │   │   ├── TransactionEndedError, UnknownTransactionError
    │   │   │   └── SinkError         another batch of the sink is due
    │   │   │       ├── OtherQueryError, OtherSinkError
    │   │   │       └── BatchBehindError, BatchGapError, BatchChangedError
    │   │   └── ProducerFatalError    the producer cannot go on; make a new one
    │   │       ├── FencedError       current_epoch: a successor has taken over
    │   │       ├── SequenceConflictError
    │   │       ├── OutOfOrderError   last_sequence: the last stored sequence
    │   │       ├── UnknownProducerError
    │   │       └── ProducerExpiredError
    │   └── ClientClosedError         used after close()
    └── ConfigError                   settings: the names at fault (a ValueError)
        └── MissingExtraError         a package is missing (also an ImportError)

An `outcome` is `never_sent` (no node has seen the record), `not_stored` (a node rejected
it) or `unknown` (it was sent and may be stored now or later).
"""

from __future__ import annotations

from typing import Any, Literal

Outcome = Literal["never_sent", "not_stored", "unknown"]


class OncelogError(Exception):
    """Base class of all errors. `reason` is the UPPER_SNAKE word that travels over the network.

    `outcome` is `unknown` if an attempt of the call had no answer, or broke within a node: the call
    may take effect.
    """

    reason = "UNKNOWN"
    outcome: Outcome | None = None
    retriable = False
    from_node = False  # a node has sent this error; False: the client made it
    unsent = False  # the call never left the client: there was no connection
    # Attributes that travel as ErrorInfo metadata, with the type to read them back.
    detail_types: tuple[tuple[str, type[int] | type[str]], ...] = ()

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or self.reason)
        for name, _ in self.detail_types:
            if name in details:
                setattr(self, name, details.pop(name))
        if details:
            raise TypeError(f"{type(self).__name__} has no detail {sorted(details)}")

    @property
    def message(self) -> str:
        return str(self.args[0])

    @property
    def details(self) -> dict[str, int | str]:
        """The details that travel with the error, by name."""
        return {name: getattr(self, name) for name, _ in self.detail_types}


class RetriableError(OncelogError):
    """The same call may succeed later, unchanged."""

    retriable = True


class FatalError(OncelogError):
    """The same call, repeated, fails again."""


# --- retriable -----------------------------------------------------------------------


class NotLeaderError(RetriableError):
    """This node does not lead the partition; the details name the leader, if known."""

    reason = "NOT_LEADER"
    detail_types = (("leader_id", int), ("leader_address", str))
    leader_id: int = 0  # 0: not known
    leader_address: str = ""


class NotReadyError(RetriableError):
    """The leader has not caught up yet, or there is no leader yet."""

    reason = "NOT_READY"


class BrokerUnavailableError(RetriableError):
    """The node cannot be reached, or has no quorum."""

    reason = "UNAVAILABLE"


class ThrottledError(RetriableError):
    """The node is overloaded, or a limit of the node or a quota of this client is reached."""

    reason = "THROTTLED"
    detail_types = (("retry_after_ms", int),)
    retry_after_ms: int = 0  # 0: not known; an earlier retry fails again


class StorageFullError(RetriableError):
    """The node's disk is full; it accepts writes again when there is room."""

    reason = "STORAGE_FULL"


class RequestTimeoutError(RetriableError, TimeoutError):
    """No answer in time: the call may still take effect."""

    reason = "REQUEST_TIMEOUT"


class OtherClusterError(RetriableError):
    """The node is of another founding than the cluster that this client began with.

    The call had no effect there. Nodes of the client's own cluster may answer later.
    """

    reason = "OTHER_CLUSTER"


class BufferFullError(RetriableError, TimeoutError):
    """`buffer_memory` stayed full for `max_block_ms`; nothing was queued."""

    reason = "BUFFER_FULL"


class UnknownTopicOrPartitionError(RetriableError):
    """The node knows no such topic or partition."""

    reason = "UNKNOWN_TOPIC_OR_PARTITION"
    detail_types = (("topic", str), ("partition", int))
    topic: str = ""
    partition: int = -1  # -1: the topic itself is not known


class CommitTimeoutError(RetriableError, TimeoutError):
    """No answer to the commit or abort in time: the transaction's outcome is not known yet.

    Repeat the call: it ends the same transaction, or tells you its outcome. Do not send the
    records again before that.
    """

    reason = "COMMIT_TIMEOUT"
    outcome: Outcome = "unknown"


# --- fatal ---------------------------------------------------------------------------


class InvalidRequestError(FatalError):
    """An argument is wrong; `field` names it, `limit` (may be empty) is the allowed value."""

    reason = "INVALID_REQUEST"
    detail_types = (("field", str), ("limit", str))
    field: str = ""
    limit: str = ""


class TopicAlreadyExistsError(FatalError):
    """A topic of this name exists."""

    reason = "TOPIC_ALREADY_EXISTS"
    detail_types = (("topic", str),)
    topic: str = ""


class ProducerNameNotFoundError(FatalError):
    """The producer name does not exist and never did."""

    reason = "PRODUCER_NAME_NOT_FOUND"
    detail_types = (("producer_name", str),)
    producer_name: str = ""


class UnauthenticatedError(FatalError):
    """The caller is not authenticated: its certificate or token is missing or invalid."""

    reason = "UNAUTHENTICATED"


class NotAuthorizedError(FatalError):
    """The caller lacks a grant, which the details name, even for a missing resource."""

    reason = "NOT_AUTHORIZED"
    detail_types = (("principal", str), ("operation", str), ("kind", str), ("name", str))
    principal: str = ""
    operation: str = ""
    kind: str = ""
    name: str = ""


class NotSupportedError(FatalError):
    """The server, or this client, does not support the call."""

    reason = "NOT_SUPPORTED"


class InternalError(FatalError):
    """A bug or a broken invariant at the node; see its log."""

    reason = "INTERNAL"


class OffsetOutOfRangeError(FatalError):
    """There is no record at this offset; the details give the start and the end of the log."""

    reason = "OFFSET_OUT_OF_RANGE"
    detail_types = (
        ("topic", str),
        ("partition", int),
        ("offset", int),
        ("log_start_offset", int),
        ("high_watermark", int),
    )
    topic: str = ""
    partition: int = -1
    offset: int = -1
    log_start_offset: int = -1
    high_watermark: int = -1


class CorruptLogError(FatalError):
    """Stored or fetched data is damaged; the details say where."""

    reason = "CORRUPT_LOG"
    detail_types = (("topic", str), ("partition", int), ("offset", int))
    topic: str = ""
    partition: int = -1
    offset: int = -1


class FencedMemberError(FatalError):
    """The group has given the partition to another member, or has removed this member.

    A commit that was tried more than once may have been stored before that.
    """

    reason = "FENCED_MEMBER"


class GroupHasMembersError(FatalError):
    """The group has members that share its partitions: only members commit and read its offsets."""

    reason = "GROUP_HAS_MEMBERS"


class ClientClosedError(FatalError):
    """The client was used after `close()`, or after a fork."""

    reason = "CLIENT_CLOSED"


class DeliveryError(FatalError):
    """A record, or a batch of records, that is not known to be stored.

    The five fields name its batch to `Admin.resolve_sequence`, which tells later whether it was
    stored. A batch is stored whole or not at all: `sequence` is that of its last record.
    """

    reason = "DELIVERY_FAILED"
    outcome: Outcome = "not_stored"
    topic: str = ""
    partition: int = -1
    producer_id: int = 0  # 0: it was never sent, or without idempotence
    epoch: int = -1
    sequence: int = -1


class InvalidBatchError(DeliveryError):
    """The batch itself is wrong; the message says how."""

    reason = "INVALID_BATCH"


class BatchTooLargeError(DeliveryError):
    """The batch or record exceeds the topic's `max_batch_bytes`, or the buffer."""

    reason = "BATCH_TOO_LARGE"


class OffsetMismatchError(DeliveryError):
    """`expected_offset` is not the next offset, which is `next_offset`."""

    reason = "OFFSET_MISMATCH"
    detail_types = (("next_offset", int),)
    next_offset: int = -1


class DeliveryTimeoutError(DeliveryError, TimeoutError):
    """`delivery_timeout_ms` is over. `outcome` is `never_sent` or `unknown`."""

    reason = "DELIVERY_TIMEOUT"
    outcome: Outcome = "unknown"


class UndeliveredRecordsError(DeliveryError):
    """Raised by flush and close: `count` records failed and the application saw no error yet.

    The first failure is the `__cause__`.
    """

    reason = "UNDELIVERED_RECORDS"
    detail_types = (("count", int),)
    count: int = 0
    outcome: Outcome = "unknown"


class ProducerFatalError(DeliveryError):
    """The producer cannot go on: all its pending records have failed."""

    reason = "PRODUCER_FAILED"


class FencedError(ProducerFatalError):
    """A producer with a higher epoch has taken over; `current_epoch` is its epoch."""

    reason = "FENCED"
    detail_types = (("current_epoch", int),)
    current_epoch: int = -1


class SequenceConflictError(ProducerFatalError):
    """The same sequences are stored with different content."""

    reason = "SEQUENCE_CONFLICT"


class OutOfOrderError(ProducerFatalError):
    """The batch does not follow `last_sequence`, the last stored sequence."""

    reason = "OUT_OF_ORDER"
    detail_types = (("last_sequence", int),)
    last_sequence: int = -1


class UnknownProducerError(ProducerFatalError):
    """The cluster never issued this producer id, or the partition does not know it."""

    reason = "UNKNOWN_PRODUCER"


class ProducerExpiredError(ProducerFatalError):
    """The lease of the producer id has expired."""

    reason = "PRODUCER_EXPIRED"


# --- transactions --------------------------------------------------------------------


class TransactionError(DeliveryError):
    """A transaction did not end as requested."""

    reason = "TRANSACTION_FAILED"


class TransactionAbortedError(TransactionError):
    """The transaction was aborted: none of it is readable. The message says why."""

    reason = "TRANSACTION_ABORTED"


class TransactionCommittedError(TransactionError):
    """The transaction was committed before: it stays so, and its records are readable."""

    reason = "TRANSACTION_COMMITTED"
    outcome: Outcome = "unknown"  # no word for stored; not "not_stored"


class TransactionEndedError(TransactionError):
    """The transaction has ended; repeat its commit to learn the outcome."""

    reason = "TRANSACTION_ENDED"


class TransactionOpenError(TransactionError):
    """Another transaction of the same producer name is open."""

    reason = "TRANSACTION_OPEN"


class UnknownTransactionError(TransactionError):
    """The transaction never began, or ended so long ago that its outcome is forgotten."""

    reason = "UNKNOWN_TRANSACTION"


class CommitIncompleteError(TransactionError):
    """The commit names other batches than are staged; the transaction is still open."""

    reason = "COMMIT_INCOMPLETE"


class CommitDiffersError(TransactionError):
    """The transaction was committed with other batches than this commit names."""

    reason = "COMMIT_DIFFERS"


class SinkError(TransactionError):
    """The sink rejects the batch because another one is due; the message says how to go on."""

    reason = "SINK_REFUSED"


class OtherQueryError(SinkError):
    """The sink belongs to another query: a checkpoint was lost, or two queries share the sink."""

    reason = "OTHER_QUERY"


class OtherSinkError(SinkError):
    """The query writes to another sink."""

    reason = "OTHER_SINK"


class BatchBehindError(SinkError):
    """A later batch is committed: the checkpoint is outdated."""

    reason = "BATCH_BEHIND"


class BatchGapError(SinkError):
    """Batches between the last committed batch and this one are missing."""

    reason = "BATCH_GAP"


class BatchChangedError(SinkError):
    """The batch is committed with other rows."""

    reason = "BATCH_CHANGED"


# --- configuration -------------------------------------------------------------------


class ConfigError(OncelogError, ValueError):
    """Settings that are unknown, out of range or contradict each other."""

    reason = "INVALID_CONFIG"

    def __init__(self, message: str, *settings: str) -> None:
        super().__init__(message)
        self.settings = settings

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, *self.settings)


class MissingExtraError(ConfigError, ImportError):
    """A feature needs a package that is not installed; `extra` names the extra to install."""

    reason = "MISSING_EXTRA"

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the package {package}: pip install 'oncelog[{extra}]'", feature
        )
        self.feature = feature
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.feature, self.package, self.extra)
