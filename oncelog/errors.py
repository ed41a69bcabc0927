"""Every error that this package raises on purpose.

Place in the flow: raised by the client, and used by the nodes as well: `wire/status.py`
carries these classes over gRPC in both directions, `_engine/` makes them from the
verdicts of a produce response.

    OncelogError                      reason, retriable, details
    ├── RetriableError                the same call may succeed later
    │   ├── NotLeaderError            leader_id, leader_address: where to go instead
    │   ├── NotReadyError             a new leader that has not caught up yet
    │   ├── BrokerUnavailableError    no connection, or no quorum
    │   ├── ThrottledError            retry_after_ms
    │   ├── StorageFullError
    │   ├── RequestTimeoutError       the outcome of the call is not known (a TimeoutError)
    │   ├── BufferFullError           buffer_memory stayed full for max_block_ms
    │   └── UnknownTopicOrPartitionError
    ├── FatalError                    the same call fails again
    │   ├── InvalidRequestError       field, limit: what was wrong with an argument
    │   ├── TopicAlreadyExistsError
    │   ├── ProducerNameNotFoundError
    │   ├── UnauthenticatedError      the node does not know who calls
    │   ├── NotAuthorizedError        principal, operation, kind, name: the grant that is missing
    │   ├── NotSupportedError         this server, or this client, cannot do it
    │   ├── InternalError             a bug or a broken invariant on the other side
    │   ├── OffsetOutOfRangeError     no record there; log_start_offset, high_watermark
    │   ├── CorruptLogError           stored data is damaged
    │   ├── FencedMemberError         the partition is another member's, or the member none any more
    │   ├── GroupHasMembersError      a commit by hand: the group's members commit
    │   ├── DeliveryError             a record that is not known to be stored; outcome
    │   │   ├── InvalidBatchError
    │   │   ├── BatchTooLargeError
    │   │   ├── OffsetMismatchError   next_offset: what the expected offset had to be
    │   │   ├── DeliveryTimeoutError  delivery_timeout_ms is over (a TimeoutError)
    │   │   ├── UndeliveredRecordsError   flush or close: count and first cause
    │   │   ├── TransactionError      what was asked for did not come about
    │   │   │   ├── TransactionAbortedError    nothing of it is readable; the message says why
    │   │   │   ├── TransactionCommittedError  an abort that came too late
    │   │   │   ├── CommitTimeoutError         not known yet: commit again (a TimeoutError)
    │   │   │   ├── CommitIncompleteError, CommitDiffersError
    │   │   │   ├── TransactionOpenError       of the same producer name
    │   │   │   └── TransactionEndedError, UnknownTransactionError
    │   │   └── ProducerFatalError    the producer cannot go on; make a new one
    │   │       ├── FencedError       current_epoch: a successor has taken over
    │   │       ├── SequenceConflictError
    │   │       ├── OutOfOrderError   last_sequence: the last one that is stored
    │   │       ├── UnknownProducerError
    │   │       └── ProducerExpiredError
    │   └── ClientClosedError         used after close()
    └── ConfigError                   settings: the names at fault (a ValueError)
        └── MissingExtraError         a package is missing (also an ImportError)

An `outcome` is `never_sent` (no node has seen the record), `not_stored` (a node refused
it) or `unknown` (it was sent and may be stored now or a little later).
"""

from __future__ import annotations

from typing import Any, Literal

Outcome = Literal["never_sent", "not_stored", "unknown"]


class OncelogError(Exception):
    """Base of all. `reason` is the UPPER_SNAKE word that travels over the network."""

    reason = "UNKNOWN"
    retriable = False
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
    """A new leader that has not caught up, or no leader at all, yet."""

    reason = "NOT_READY"


class BrokerUnavailableError(RetriableError):
    """The node cannot be reached, or has no quorum."""

    reason = "UNAVAILABLE"


class ThrottledError(RetriableError):
    """The node has too much to do, or a limit of it, or a quota of this client, is reached."""

    reason = "THROTTLED"
    detail_types = (("retry_after_ms", int),)
    retry_after_ms: int = 0  # 0: not known; sooner it is of no use


class StorageFullError(RetriableError):
    """The node's disk is full; it takes writes again when there is room."""

    reason = "STORAGE_FULL"


class RequestTimeoutError(RetriableError, TimeoutError):
    """No answer in time: the call may still take effect."""

    reason = "REQUEST_TIMEOUT"


class BufferFullError(RetriableError, TimeoutError):
    """`buffer_memory` stayed full for `max_block_ms`; nothing was queued."""

    reason = "BUFFER_FULL"


class UnknownTopicOrPartitionError(RetriableError):
    """No such topic or partition, as far as the node knows."""

    reason = "UNKNOWN_TOPIC_OR_PARTITION"
    detail_types = (("topic", str), ("partition", int))
    topic: str = ""
    partition: int = -1  # -1: the topic itself is not known


# --- fatal ---------------------------------------------------------------------------


class InvalidRequestError(FatalError):
    """An argument is wrong; `field` names it, `limit` (may be empty) says what is allowed."""

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
    """No producer holds, or held, this name."""

    reason = "PRODUCER_NAME_NOT_FOUND"
    detail_types = (("producer_name", str),)
    producer_name: str = ""


class UnauthenticatedError(FatalError):
    """The node does not know who calls: no certificate or token, or one that is of no use."""

    reason = "UNAUTHENTICATED"


class NotAuthorizedError(FatalError):
    """The caller may not do this; the details are what it lacks, whether or not that exists."""

    reason = "NOT_AUTHORIZED"
    detail_types = (("principal", str), ("operation", str), ("kind", str), ("name", str))
    principal: str = ""
    operation: str = ""
    kind: str = ""
    name: str = ""


class NotSupportedError(FatalError):
    """The server, or this client, cannot do it."""

    reason = "NOT_SUPPORTED"


class InternalError(FatalError):
    """A bug or a broken invariant at the node; its log says more."""

    reason = "INTERNAL"


class OffsetOutOfRangeError(FatalError):
    """There is no record at this offset; the details say where the log begins and ends."""

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
    """What is stored, or was fetched, is damaged; the details say where."""

    reason = "CORRUPT_LOG"
    detail_types = (("topic", str), ("partition", int), ("offset", int))
    topic: str = ""
    partition: int = -1
    offset: int = -1


class FencedMemberError(FatalError):
    """The group has given the partition to another member, or goes on without this one.

    A commit that was tried more than once may have been stored before that.
    """

    reason = "FENCED_MEMBER"


class GroupHasMembersError(FatalError):
    """The group's members share its partitions: only they commit, or read on from its offsets."""

    reason = "GROUP_HAS_MEMBERS"


class ClientClosedError(FatalError):
    """The client was used after `close()`, or after a fork."""

    reason = "CLIENT_CLOSED"


class DeliveryError(FatalError):
    """A record, or a batch of them, that is not known to be stored."""

    reason = "DELIVERY_FAILED"
    outcome: Outcome = "not_stored"


class InvalidBatchError(DeliveryError):
    """The batch itself is wrong; the message says how."""

    reason = "INVALID_BATCH"


class BatchTooLargeError(DeliveryError):
    """The batch or record is over the topic's `max_batch_bytes`, or the buffer."""

    reason = "BATCH_TOO_LARGE"


class OffsetMismatchError(DeliveryError):
    """`expected_offset` is not the offset that comes next, which is `next_offset`."""

    reason = "OFFSET_MISMATCH"
    detail_types = (("next_offset", int),)
    next_offset: int = -1


class DeliveryTimeoutError(DeliveryError, TimeoutError):
    """`delivery_timeout_ms` is over. `outcome` is `never_sent` or `unknown`."""

    reason = "DELIVERY_TIMEOUT"
    outcome: Outcome = "unknown"


class UndeliveredRecordsError(DeliveryError):
    """Raised by flush and close: `count` records failed and nobody looked at it.

    The first failure is the `__cause__`.
    """

    reason = "UNDELIVERED_RECORDS"
    detail_types = (("count", int),)
    count: int = 0
    outcome: Outcome = "unknown"


class ProducerFatalError(DeliveryError):
    """The producer cannot go on: all of its pending records have failed."""

    reason = "PRODUCER_FAILED"


class FencedError(ProducerFatalError):
    """A producer with a higher epoch has taken over; `current_epoch` is its epoch."""

    reason = "FENCED"
    detail_types = (("current_epoch", int),)
    current_epoch: int = -1


class SequenceConflictError(ProducerFatalError):
    """The same sequences are stored with another content."""

    reason = "SEQUENCE_CONFLICT"


class OutOfOrderError(ProducerFatalError):
    """The batch does not follow `last_sequence`, the last one that is stored."""

    reason = "OUT_OF_ORDER"
    detail_types = (("last_sequence", int),)
    last_sequence: int = -1


class UnknownProducerError(ProducerFatalError):
    """The cluster never issued this producer id, or the partition does not know it."""

    reason = "UNKNOWN_PRODUCER"


class ProducerExpiredError(ProducerFatalError):
    """The lease of the producer id is over."""

    reason = "PRODUCER_EXPIRED"


# --- transactions --------------------------------------------------------------------


class TransactionError(DeliveryError):
    """A transaction did not become, or is not, what was asked for."""

    reason = "TRANSACTION_FAILED"


class TransactionAbortedError(TransactionError):
    """The transaction was aborted, the message says why: nothing of it is readable."""

    reason = "TRANSACTION_ABORTED"


class TransactionCommittedError(TransactionError):
    """The transaction was committed before: nothing is undone, and its records are readable."""

    reason = "TRANSACTION_COMMITTED"
    outcome: Outcome = "unknown"  # not "not_stored"; there is no word for stored


class TransactionEndedError(TransactionError):
    """The transaction has ended; repeat its commit to learn how."""

    reason = "TRANSACTION_ENDED"


class TransactionOpenError(TransactionError):
    """Another transaction of the same producer name is open."""

    reason = "TRANSACTION_OPEN"


class UnknownTransactionError(TransactionError):
    """The transaction was never begun, or ended so long ago that nobody knows how."""

    reason = "UNKNOWN_TRANSACTION"


class CommitIncompleteError(TransactionError):
    """The commit names other batches than are staged; the transaction is still open."""

    reason = "COMMIT_INCOMPLETE"


class CommitDiffersError(TransactionError):
    """The transaction was committed with other batches than this commit names."""

    reason = "COMMIT_DIFFERS"


class CommitTimeoutError(TransactionError, TimeoutError):
    """No answer to the commit in time: whether it is committed is not known yet.

    Repeat the commit, or the abort: the same transaction answers how it ended.
    """

    reason = "COMMIT_TIMEOUT"
    outcome: Outcome = "unknown"


class SinkError(TransactionError):
    """A sink does not take a batch as what comes next; the message has what to do."""

    reason = "SINK_REFUSED"


class OtherQueryError(SinkError):
    """The sink belongs to another query: a checkpoint was lost, or two queries share it."""

    reason = "OTHER_QUERY"


class OtherSinkError(SinkError):
    """The query writes into another sink."""

    reason = "OTHER_SINK"


class BatchBehindError(SinkError):
    """A later batch is committed: the checkpoint is an older one."""

    reason = "BATCH_BEHIND"


class BatchGapError(SinkError):
    """Batches between the last committed one and this one are missing."""

    reason = "BATCH_GAP"


class BatchChangedError(SinkError):
    """The batch is committed, with other rows."""

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
    """A feature needs a package that is not installed; `extra` names what to install."""

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
