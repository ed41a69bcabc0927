"""Verdicts of nodes on batches, as errors, and the names of their numbers.

Place in the flow: `_engine/produce/partition.py` acts on the verdict and takes the user's error
from here.
"""

from __future__ import annotations

from typing import Final

from oncelog import errors as e
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.reasons import BY_REASON

V = log_pb2

# The number gives the class, and the name of a final verdict is the reason of its error.
STORED: Final = frozenset(number for number in V.Verdict.values() if 0 < number < 10)
RETRIABLE: Final = frozenset(number for number in V.Verdict.values() if number >= 30)
# Retriable, and nothing of the attempt is or will be stored. Of others that is not known.
NOT_STORED: Final = frozenset(
    (
        V.VERDICT_NOT_READY,
        V.VERDICT_THROTTLED,
        V.VERDICT_STORAGE_FULL,
        V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION,
    )
)
_BY_NAME = {f"VERDICT_{reason}": cls for reason, cls in BY_REASON.items()}
_ERRORS: Final[dict[int, type[e.DeliveryError]]] = {
    number: cls
    for name, number in V.Verdict.items()
    if issubclass(cls := _BY_NAME.get(name, e.OncelogError), e.DeliveryError)
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
