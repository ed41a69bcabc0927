"""Errors that travel over the network, with the gRPC code of each.

The reason of an error is its class's own. Another protocol has codes of its own for the same
classes. `wire/status.py` makes gRPC's statuses by this table.
"""

from __future__ import annotations

from oncelog import errors as e

CODES: dict[type[e.OncelogError], str] = {
    e.NotLeaderError: "UNAVAILABLE",
    e.NotReadyError: "UNAVAILABLE",
    e.BrokerUnavailableError: "UNAVAILABLE",
    e.OtherClusterError: "FAILED_PRECONDITION",
    e.ThrottledError: "RESOURCE_EXHAUSTED",
    e.StorageFullError: "RESOURCE_EXHAUSTED",
    e.RequestTimeoutError: "DEADLINE_EXCEEDED",
    e.UnknownTopicOrPartitionError: "NOT_FOUND",
    e.InvalidRequestError: "INVALID_ARGUMENT",
    e.InvalidBatchError: "INVALID_ARGUMENT",
    e.BatchTooLargeError: "INVALID_ARGUMENT",
    e.TopicAlreadyExistsError: "ALREADY_EXISTS",
    e.ProducerNameNotFoundError: "NOT_FOUND",
    e.UnknownProducerError: "NOT_FOUND",
    e.ProducerExpiredError: "FAILED_PRECONDITION",
    e.FencedError: "FAILED_PRECONDITION",
    e.OutOfOrderError: "FAILED_PRECONDITION",
    e.SequenceConflictError: "FAILED_PRECONDITION",
    e.OffsetMismatchError: "FAILED_PRECONDITION",
    e.FencedMemberError: "FAILED_PRECONDITION",
    e.GroupHasMembersError: "FAILED_PRECONDITION",
    e.TransactionAbortedError: "FAILED_PRECONDITION",
    e.TransactionCommittedError: "FAILED_PRECONDITION",
    e.TransactionEndedError: "FAILED_PRECONDITION",
    e.TransactionOpenError: "FAILED_PRECONDITION",
    e.UnknownTransactionError: "NOT_FOUND",
    e.CommitIncompleteError: "FAILED_PRECONDITION",
    e.CommitDiffersError: "FAILED_PRECONDITION",
    e.OtherQueryError: "FAILED_PRECONDITION",
    e.OtherSinkError: "FAILED_PRECONDITION",
    e.BatchBehindError: "FAILED_PRECONDITION",
    e.BatchGapError: "FAILED_PRECONDITION",
    e.BatchChangedError: "FAILED_PRECONDITION",
    e.OffsetOutOfRangeError: "OUT_OF_RANGE",
    e.CorruptLogError: "DATA_LOSS",
    e.UnauthenticatedError: "UNAUTHENTICATED",
    e.NotAuthorizedError: "PERMISSION_DENIED",
    e.NotSupportedError: "UNIMPLEMENTED",
    e.InternalError: "INTERNAL",
}
BY_REASON: dict[str, type[e.OncelogError]] = {cls.reason: cls for cls in CODES}
