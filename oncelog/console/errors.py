"""Errors of the cluster as statuses of pages."""

from __future__ import annotations

from oncelog.errors import (
    NotAuthorizedError,
    OffsetOutOfRangeError,
    OncelogError,
    ThrottledError,
    TransactionCommittedError,
    UnauthenticatedError,
    UnknownTopicOrPartitionError,
    UnknownTransactionError,
)

# Error -> status of its page; other errors are the cluster's: 503 if a retry may help or
# the outcome is not known, else 400.
STATUSES: tuple[tuple[type[OncelogError], int], ...] = (
    (UnauthenticatedError, 401),
    (NotAuthorizedError, 403),
    (UnknownTopicOrPartitionError, 404),
    (OffsetOutOfRangeError, 404),
    (UnknownTransactionError, 404),
    (TransactionCommittedError, 409),
    (ThrottledError, 429),
)


def status_of(error: OncelogError) -> int:
    for kind, status in STATUSES:
        if isinstance(error, kind):
            return status
    return 503 if error.retriable or error.outcome == "unknown" else 400


__all__ = ["status_of"]
