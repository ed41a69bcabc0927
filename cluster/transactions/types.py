"""Types between the transaction coordinator, the partitions and their callers. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class TransactionState(IntEnum):
    """States of a transaction; the numbers of cluster.v1.TransactionState.

    Number 6 is reserved for a prepared transaction: decided by another system.
    """

    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


COMMIT_STATES = (TransactionState.COMMITTING, TransactionState.COMMITTED)
ABORT_STATES = (TransactionState.ABORTING, TransactionState.ABORTED)
FINISHED = (TransactionState.COMMITTED, TransactionState.ABORTED)

# Why a call is refused.
UNKNOWN_TRANSACTION = "UNKNOWN_TRANSACTION"
TRANSACTION_OPEN = "TRANSACTION_OPEN"
TRANSACTION_ABORTED = "TRANSACTION_ABORTED"
TRANSACTION_COMMITTED = "TRANSACTION_COMMITTED"
TRANSACTION_ENDED = "TRANSACTION_ENDED"
TOO_MANY_TRANSACTIONS = "TOO_MANY_TRANSACTIONS"
TOO_MANY_PARTITIONS = "TOO_MANY_PARTITIONS"
COMMIT_INCOMPLETE = "COMMIT_INCOMPLETE"
COMMIT_DIFFERS = "COMMIT_DIFFERS"
CHECK_AGAIN = "CHECK_AGAIN"
STALE_REQUEST = "STALE_REQUEST"
FENCED = "FENCED"
INVALID_ARGUMENT = "INVALID_ARGUMENT"
UNKNOWN_TOPIC_OR_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
# For sinks.
OTHER_QUERY = "OTHER_QUERY"
OTHER_SINK = "OTHER_SINK"
BATCH_GAP = "BATCH_GAP"
BATCH_BEHIND = "BATCH_BEHIND"
BATCH_CHANGED = "BATCH_CHANGED"

# Why a transaction was aborted.
BY_OWNER, BY_OPERATOR, BY_GROUP = "owner", "operator", "group"
EXPIRED, BY_FENCE, TOPIC_GONE, BY_RESET = "expired", "fenced", "topic gone", "sink was reset"


class Refused(Exception):
    """A call that changed nothing, with one of the reasons above."""

    def __init__(self, reason: str, message: str, transaction_id: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.transaction_id = transaction_id


class Holder(NamedTuple):
    """The right to act for a producer: its id and epoch."""

    producer_id: int
    epoch: int


class Expected(NamedTuple):
    """Prefix of one run that a commit publishes: so many records, up to `last`.

    size, max_timestamp_us: of that prefix, as measured by the partition's leader.
    consumer_group: of offsets that were staged for it; then `records` counts them, and `last` is
        the number of the last call.
    """

    group: int
    producer_id: int
    records: int
    last: int
    size: int = 0
    max_timestamp_us: int = 0
    consumer_group: str = ""

    @property
    def run(self) -> tuple[int, int, str]:
        """The key of the run."""
        return self.group, self.producer_id, self.consumer_group

    @property
    def asked(self) -> tuple[int, int, int, int, str]:
        """The client's part of the facts."""
        return self.group, self.producer_id, self.records, self.last, self.consumer_group


class Published(NamedTuple):
    """Place of a run's published records."""

    producer_id: int
    epoch: int
    first: int
    last: int
    base_offset: int
    records: int


class Marker(NamedTuple):
    """The end of a transaction in one partition.

    expected: the runs to publish, in that order; other runs of the transaction are dropped.
    open_low: all transactions below it are finished in all partitions.
    """

    transaction_id: int
    committed: bool
    expected: tuple[Expected, ...]
    stamp_ms: int
    open_low: int
