"""Verdicts of nodes on batches, as errors, and the names of their numbers.

Place in the flow: `_engine/produce/partition.py` acts on the verdict and takes the user's error
from here.
"""

from __future__ import annotations

from typing import Final

from oncelog import errors as e
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2

V = log_pb2

STORED: Final = frozenset((V.VERDICT_APPENDED, V.VERDICT_DUPLICATE, V.VERDICT_STAGED))
RETRIABLE: Final = frozenset(
    (
        V.VERDICT_NOT_LEADER,
        V.VERDICT_NOT_READY,
        V.VERDICT_TIMEOUT,
        V.VERDICT_THROTTLED,
        V.VERDICT_STORAGE_FULL,
        V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION,
        V.VERDICT_TRANSACTION_CONFLICT,
    )
)

_ERRORS: Final[dict[int, type[e.DeliveryError]]] = {
    V.VERDICT_INVALID_BATCH: e.InvalidBatchError,
    V.VERDICT_BATCH_TOO_LARGE: e.BatchTooLargeError,
    V.VERDICT_UNKNOWN_PRODUCER: e.UnknownProducerError,
    V.VERDICT_FENCED: e.FencedError,
    V.VERDICT_OUT_OF_ORDER: e.OutOfOrderError,
    V.VERDICT_SEQUENCE_CONFLICT: e.SequenceConflictError,
    V.VERDICT_PRODUCER_EXPIRED: e.ProducerExpiredError,
    V.VERDICT_OFFSET_MISMATCH: e.OffsetMismatchError,
    V.VERDICT_TRANSACTION_ABORTED: e.TransactionAbortedError,
    V.VERDICT_TRANSACTION_ENDED: e.TransactionEndedError,
}


def error_of(result: log_pb2.BatchResult, tp: TopicPartition) -> e.DeliveryError:
    """Return the error for a verdict that is neither a success nor retriable.

    A verdict unknown to this client counts as an invalid batch: it must not be repeated blindly.
    """
    verdict = result.verdict
    name = verdict_name(verdict)
    text = f"{tp}: {result.message or name}"
    cls = _ERRORS.get(verdict, e.InvalidBatchError)
    if cls is e.FencedError:
        return e.FencedError(
            f"{text} (current epoch {result.current_epoch}): another producer has taken over",
            current_epoch=result.current_epoch,
        )
    if cls is e.OutOfOrderError:
        return e.OutOfOrderError(
            f"{text} (last stored sequence {result.last_sequence})",
            last_sequence=result.last_sequence,
        )
    if cls is e.OffsetMismatchError:
        return e.OffsetMismatchError(
            f"{text} (next offset {result.next_offset})", next_offset=result.next_offset
        )
    return cls(text)


def is_understood(verdict: int) -> bool:
    """Tell whether this client knows the rejection; one of a later version may mean: stored."""
    return verdict in _ERRORS


def answer_text(result: log_pb2.BatchResult) -> str:
    name = verdict_name(result.verdict)
    return f"{name}: {result.message}" if result.message else name


def verdict_name(verdict: int) -> str:
    try:
        return log_pb2.Verdict.Name(verdict).removeprefix("VERDICT_")
    except ValueError:
        return f"verdict {verdict}"


def partition_error_name(error: int) -> str:
    try:
        return log_pb2.PartitionError.Name(error)
    except ValueError:
        return f"partition error {error}"


__all__ = [
    "RETRIABLE",
    "STORED",
    "answer_text",
    "error_of",
    "is_understood",
    "partition_error_name",
    "verdict_name",
]
