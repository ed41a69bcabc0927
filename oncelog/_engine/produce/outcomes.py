"""Outcomes of batches: counters, the sender's next steps, and their errors.

Place in the flow: `partition` decides and returns a `Reaction`, `sender` carries it out; both fail
records with the errors made here. Pure.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from oncelog import errors
from oncelog._engine.produce.batches import OpenBatch
from oncelog._engine.produce.futures import Delivery
from oncelog.types import BatchMetadata, TopicPartition


@dataclass(slots=True)
class Reaction:
    """Next steps of the sender after an event."""

    # The leader is unknown, or (leader_id, address) as hinted.
    leader_lost: bool = False
    leader_hint: tuple[int, str] | None = None
    # The whole producer stops with this error.
    fatal: errors.ProducerFatalError | None = None
    # The same, unless the topic has been deleted and recreated.
    fatal_unless_recreated: errors.UnknownProducerError | None = None


@dataclass(slots=True)
class Obstacles:
    """Obstacles to storing a partition's batches since the last success.

    A node's refusal is not hidden by what the client met later: a lost connection, no answer.
    """

    refusal: str = ""
    last: str = ""

    def met(self, text: str, *, told: bool = False) -> None:
        """told: a node has said this."""
        if told:
            self.refusal = text
        self.last = text

    def clear(self) -> None:
        self.refusal = ""
        self.last = ""

    def __str__(self) -> str:
        return "; ".join(dict.fromkeys(filter(None, (self.refusal, self.last))))


@dataclass(slots=True)
class Stats:
    """Counters of one producer, shared by its partitions."""

    records_sent: int = 0
    records_acked: int = 0
    records_failed: int = 0
    bytes_sent: int = 0
    batches_sent: int = 0
    batches_acked: int = 0
    batches_retried: int = 0
    duplicates: int = 0
    resets: int = 0
    max_ack_latency_s: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        return {
            "records_sent": self.records_sent,
            "records_acked": self.records_acked,
            "records_failed": self.records_failed,
            "bytes_sent": self.bytes_sent,
            "batches_sent": self.batches_sent,
            "batches_acked": self.batches_acked,
            "batches_retried": self.batches_retried,
            "duplicates": self.duplicates,
            "resets": self.resets,
            "max_ack_latency_ms": self.max_ack_latency_s * 1000,
        }


def gap_after(batch: OpenBatch, error: errors.OncelogError) -> errors.ProducerFatalError | None:
    """Return the error that stops a producer after a batch with given sequences failed.

    A rejected condition is no gap: the application asked for it.
    """
    if batch.sequences is None or isinstance(error, errors.OffsetMismatchError):
        return None
    if batch.transaction is not None:
        return None  # later records go with it
    return errors.ProducerFatalError(
        f"{batch.tp}: the records with the application's sequences {batch.sequences[0]} to "
        f"{batch.sequences[-1]} failed, and later records must not be stored without them; "
        f"go on behind position() with a new producer: {error}"
    )


def lost_with_topic(tp: TopicPartition, stored: int) -> errors.ProducerFatalError:
    """Return the error of a partition that lost the producer's sequences up to `stored`."""
    return errors.ProducerFatalError(
        f"{tp}: the records with the application's sequences up to {stored} are no longer there, "
        f"the topic was deleted and created anew; later records must not be stored without them: "
        f"send all of them again with a new producer"
    )


def not_sent(tp: TopicPartition, limit_s: float, why: str) -> errors.DeliveryTimeoutError:
    """Return the error of a batch that was never sent; why: the last obstacle, if known."""
    error = _late(f"{tp}: not sent within delivery_timeout_ms={limit_s * 1000:.0f}", why)
    error.outcome = "never_sent"
    return error


def not_acknowledged(tp: TopicPartition, attempts: int, why: str) -> errors.DeliveryTimeoutError:
    text = f"{tp}: no acknowledgement within delivery_timeout_ms or retries, sent {attempts} times"
    error = _late(text, why)
    error.outcome = "unknown" if attempts else "never_sent"
    return error


def not_stored_again(tp: TopicPartition, why: str) -> errors.DeliveryTimeoutError:
    """Return the error of a rejected batch with no time left for a new producer id."""
    error = _late(f"{tp}: delivery_timeout_ms is over", why)
    error.outcome = "not_stored"
    return error


def _late(text: str, why: str) -> errors.DeliveryTimeoutError:
    return errors.DeliveryTimeoutError(f"{text}; {why}" if why else text)


def of_batch(error: errors.OncelogError, delivery: Delivery) -> errors.OncelogError:
    """Return a copy of the error that names the batch, so that the caller can ask for it later."""
    if not isinstance(error, errors.DeliveryError):
        return error
    batch, twin = delivery.batch(), copy.copy(error)
    twin.topic, twin.partition = batch.topic, batch.partition
    if not batch.producer_id:
        return twin
    twin.producer_id, twin.epoch = batch.producer_id, batch.epoch
    twin.sequence = batch.last_sequence
    if twin.outcome == "unknown" and delivery.run is None:
        twin.args = (f"{error}; {_identity(batch)} may be stored, resolve_sequence tells",)
    return twin


def _identity(batch: BatchMetadata) -> str:
    """Return a batch's identity, as `oncelog producer resolve` takes it."""
    return (
        f"{batch.topic}-{batch.partition} producer {batch.producer_id} epoch {batch.epoch} "
        f"sequences {batch.base_sequence}..{batch.last_sequence}"
    )


def with_outcome(error: errors.OncelogError, outcome: errors.Outcome) -> errors.OncelogError:
    """Return a copy of the error with this outcome, if it is an error that has one."""
    if not isinstance(error, errors.DeliveryError):
        return error
    twin = copy.copy(error)
    twin.outcome = outcome
    return twin
