"""Kafka's error numbers, and the number for each of our verdicts and errors.

    produce --Verdict--> of_verdict --'
    the other calls --an error of oncelog, of the cluster, of a rule--> of_error --> answers

A client decides by the number alone: retry, look for the leader, or end. So a number is chosen by
its effect in the clients, not by its name (docs/kafka.md has the table).
"""

from __future__ import annotations

from enum import IntEnum

from cluster import errors as faults
from cluster.dedup.verdict import Kind
from cluster.metadata.topics import Rejected
from cluster.partition.replica import OffsetOutOfRangeError
from cluster.transactions.types import Refused
from oncelog import errors
from oncelog.wire.reasons import BY_REASON

MAX_TEXT_CHARS = 1000


class Error(IntEnum):
    """Numbers of Kafka's protocol, under its names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    UNSUPPORTED_ENDPOINT_TYPE = 115


_VERDICTS = {
    Kind.APPENDED: Error.NONE,
    Kind.DUPLICATE: Error.NONE,
    Kind.STAGED: Error.NONE,
    Kind.NOT_LEADER: Error.NOT_LEADER_OR_FOLLOWER,
    Kind.NOT_READY: Error.NOT_LEADER_OR_FOLLOWER,
    # In doubt: every client sends the same batch again.
    Kind.TIMEOUT: Error.REQUEST_TIMED_OUT,
    Kind.THROTTLED: Error.NOT_ENOUGH_REPLICAS,
    Kind.STORAGE_FULL: Error.KAFKA_STORAGE_ERROR,
    Kind.OUT_OF_ORDER: Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Kind.SEQUENCE_CONFLICT: Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Kind.UNKNOWN_PRODUCER: Error.UNKNOWN_PRODUCER_ID,
    Kind.PRODUCER_EXPIRED: Error.UNKNOWN_PRODUCER_ID,
    Kind.FENCED: Error.INVALID_PRODUCER_EPOCH,
    Kind.TRANSACTION_ABORTED: Error.INVALID_PRODUCER_EPOCH,
    Kind.TRANSACTION_ENDED: Error.INVALID_TXN_STATE,
    # librdkafka takes 51 (CONCURRENT_TRANSACTIONS) for a permanent error.
    Kind.TRANSACTION_CONFLICT: Error.NOT_ENOUGH_REPLICAS,
    Kind.BATCH_TOO_LARGE: Error.MESSAGE_TOO_LARGE,
    Kind.INVALID_BATCH: Error.INVALID_RECORD,
    Kind.OFFSET_MISMATCH: Error.INVALID_RECORD,
    Kind.UNKNOWN_TOPIC_OR_PARTITION: Error.UNKNOWN_TOPIC_OR_PARTITION,
    Kind.UNSUPPORTED_FORMAT: Error.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_FIELDS = {
    "name": Error.INVALID_TOPIC_EXCEPTION,
    "group": Error.INVALID_GROUP_ID,
    "partitions": Error.INVALID_PARTITIONS,
    "placements": Error.INVALID_REPLICA_ASSIGNMENT,
    "replicas": Error.INVALID_REPLICATION_FACTOR,
    "offsets.metadata": Error.OFFSET_METADATA_TOO_LARGE,
    **dict.fromkeys(
        ("retention_ms", "retention_bytes", "max_batch_bytes", "expected_offsets", "formats"),
        Error.INVALID_CONFIG,
    ),
}
_RESOURCES = {
    "topic": Error.TOPIC_AUTHORIZATION_FAILED,
    "group": Error.GROUP_AUTHORIZATION_FAILED,
    "producer": Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_CLASSES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Error], ...] = (
    (errors.UnknownTopicOrPartitionError, Error.UNKNOWN_TOPIC_OR_PARTITION),
    (errors.TopicAlreadyExistsError, Error.TOPIC_ALREADY_EXISTS),
    ((faults.NotLeaderError, errors.NotLeaderError), Error.NOT_LEADER_OR_FOLLOWER),
    ((faults.NotReadyError, errors.NotReadyError), Error.NOT_LEADER_OR_FOLLOWER),
    ((faults.ProposalTimeoutError, errors.RequestTimeoutError), Error.REQUEST_TIMED_OUT),
    ((faults.FeatureOffError, errors.NotSupportedError), Error.UNSUPPORTED_VERSION),
    (errors.ThrottledError, Error.THROTTLING_QUOTA_EXCEEDED),
    (errors.GroupHasMembersError, Error.UNKNOWN_MEMBER_ID),
    ((errors.StorageFullError, errors.CorruptLogError), Error.KAFKA_STORAGE_ERROR),
    (OffsetOutOfRangeError, Error.OFFSET_OUT_OF_RANGE),
)
# Of the calls about a transaction.
_TRANSACTIONS = {
    "FENCED": Error.PRODUCER_FENCED,
    "TRANSACTION_ABORTED": Error.PRODUCER_FENCED,
    "TRANSACTION_ENDED": Error.INVALID_TXN_STATE,
    "TRANSACTION_COMMITTED": Error.INVALID_TXN_STATE,
    "UNKNOWN_TRANSACTION": Error.INVALID_TXN_STATE,
    # A client aborts, and goes on under a new epoch.
    "OTHER_ID": Error.INVALID_PRODUCER_ID_MAPPING,
    "MUST_LEASE_AGAIN": Error.INVALID_PRODUCER_ID_MAPPING,
    "TIMEOUT_OUT_OF_RANGE": Error.INVALID_TRANSACTION_TIMEOUT,
    "STILL_ENDING": Error.CONCURRENT_TRANSACTIONS,
    "TRANSACTION_OPEN": Error.CONCURRENT_TRANSACTIONS,
    # Clients ask again.
    "THROTTLED": Error.COORDINATOR_NOT_AVAILABLE,
}
EXPECTED = (errors.OncelogError, faults.ClusterError, Rejected, Refused, OffsetOutOfRangeError)


class InvalidConfigError(errors.InvalidRequestError):
    """A topic's setting, under Kafka's name, that is not supported or has a wrong value."""


def of_verdict(kind: Kind) -> Error:
    """Return the number for a batch's verdict."""
    return _VERDICTS[kind]


def of_error(error: Exception) -> Error:
    """Return the number for one of the EXPECTED errors."""
    if isinstance(error, Rejected):
        error = BY_REASON.get(error.reason, errors.InternalError)(str(error))
    if isinstance(error, InvalidConfigError):
        return Error.INVALID_CONFIG
    if isinstance(error, errors.InvalidRequestError):
        return _FIELDS.get(str(error).partition(": ")[0], Error.INVALID_REQUEST)
    if isinstance(error, errors.NotAuthorizedError):
        return _RESOURCES.get(error.kind, Error.CLUSTER_AUTHORIZATION_FAILED)
    for kind, number in _CLASSES:
        if isinstance(error, kind):
            return number
    return Error.UNKNOWN_SERVER_ERROR


def of_missing_topic(controller_id: int) -> Error:
    """Return the number for a topic that a node does not know.

    The node may be behind if it knows no leader of the metadata.
    """
    return Error.UNKNOWN_TOPIC_OR_PARTITION if controller_id else Error.LEADER_NOT_AVAILABLE


def of_command(error: Exception) -> Error:
    """Return the number for an error of a change of the metadata: any node makes it."""
    number = of_error(error)
    return Error.NOT_CONTROLLER if number is Error.NOT_LEADER_OR_FOLLOWER else number


def of_coordinator(error: Exception) -> Error:
    """Return the number for an error of a call about a consumer group."""
    match of_error(error):
        case Error.NOT_LEADER_OR_FOLLOWER:
            moved = isinstance(error, faults.NotLeaderError | errors.NotLeaderError)
            return Error.NOT_COORDINATOR if moved else Error.COORDINATOR_LOAD_IN_PROGRESS
        # Java ends a commit for good at 56, which is for batches.
        case Error.REQUEST_TIMED_OUT | Error.THROTTLING_QUOTA_EXCEEDED | Error.KAFKA_STORAGE_ERROR:
            return Error.COORDINATOR_NOT_AVAILABLE
        case number:
            return number


def of_deletion(error: Exception) -> Error:
    """Return the number for a group, or offsets of one, that are not known to be deleted.

    A client that repeats the call by itself would be told that the group does not exist.
    """
    number = of_error(error)
    return number if number is Error.REQUEST_TIMED_OUT else of_coordinator(error)


def of_new_id(error: Exception) -> Error:
    """Return the number for an id that a client without a transactional id does not get now.

    Kafka has no other, and no coordinator of such a client: Java would look for one by its name.
    """
    number = of_coordinator(error)
    passing = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
    return Error.COORDINATOR_LOAD_IN_PROGRESS if number in passing else number


def of_transaction(error: Exception, *, fenced: bool) -> Error:
    """Return the number for an error of a call about a transaction.

    fenced: the client knows PRODUCER_FENCED.
    """
    number = _TRANSACTIONS.get(getattr(error, "reason", "")) or of_coordinator(error)
    if number is Error.PRODUCER_FENCED and not fenced:
        return Error.INVALID_PRODUCER_EPOCH
    return number


def of_unreadable(error: Exception) -> Error:
    """Return the number for a stored batch that a Kafka client cannot get."""
    missing = isinstance(error, errors.MissingExtraError)
    return Error.UNSUPPORTED_COMPRESSION_TYPE if missing else Error.KAFKA_STORAGE_ERROR


def text_of(error: Exception) -> str:
    """Return the text for a client."""
    return str(error)[:MAX_TEXT_CHARS]
