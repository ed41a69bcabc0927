"""Verdict on a batch: append it, it was stored before, or why it is refused.

Pure: no clock, no disk, no network, no state. `judge` is the table of verdicts for a producer that
the partition knows; `admit` is its last row. The map of known producers (`cluster.dedup.last_seen`)
and the leader's view of batches in flight (`cluster.dedup.in_flight`) apply them to their state.

A batch is (producer id, epoch, first, last, prev, ...): it holds the sequences first..last, and its
producer says that it sent nothing between prev and first. So accepted batches form a chain, and
each sequence up to the last one is either stored or was declared absent. This has consequences in
the corners:

* A batch that ends at or below the last sequence is a DUPLICATE only if it is one of the recent
  batches (same first, last, count and crc) or lies wholly below the oldest of them and above the
  floor, where the chain begins. Anything else down there is another cut of the same sequences: part
  of a batch, several batches, an overlap with the oldest recent one, a batch inside a gap that was
  declared empty or before the chain. A client that repeats its bytes cannot send that, and none of
  it may be called stored: OUT_OF_ORDER.
* A gap below the recent batches is no longer known as one: a batch inside it, which its producer
  did not send, is a DUPLICATE at offset -1. The log, asked for the offset, knows better.
* Same sequences and crc but another record count is a SEQUENCE_CONFLICT: to call it a duplicate
  would confirm records that do not exist.
* prev below the last sequence with first above it claims that stored sequences were never sent:
  OUT_OF_ORDER, like every other hole.
* prev of a repeated batch is not compared: the batch is stored either way.

After an open (OpenProducer) of epoch E the producer may go on in two ways. A first batch (prev =
-1) begins a new chain. A batch whose prev is the predecessor's last sequence continues that chain,
as mirrors do. Until one of them is accepted every other batch of E is OUT_OF_ORDER, even below the
last sequence: the batches stored there came from another epoch, which may have cut the same numbers
from other data. For the same reason a continued chain has its floor where it began: a batch of E
that reaches below its first sequence is never called a duplicate. A producer that begins a new
chain after an open must wait for the acknowledgement of its first batch before it sends the second.
Otherwise the second could be taken for a continuation if its prev happens to be the predecessor's
last sequence; the first is then refused, never lost silently. Continuing at the last sequence
avoids this and is the rule.

Without an open, a higher epoch must begin with a first batch.

Batches of Kafka's protocol (`BatchMeta.kafka`) have two rules of their own. Its clients rebuild and
recompress a batch for a retry, so a repeat is known by its sequences alone. And its clients never
continue a predecessor, so after an open only a first batch begins.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

MAX_INT32 = (1 << 31) - 1
MAX_UINT32 = (1 << 32) - 1
MAX_INT64 = (1 << 63) - 1

KAFKA_IDS = 1 << 62
"""Producer ids from here on belong to clients of Kafka's protocol that gave no name."""

KAFKA_PROOF_BITS = 20
"""Lowest bits of such an id, behind the number that was issued (`cluster/kafka/ids.py`)."""

WINDOW = 5
"""How many recent batches of a producer are kept with their offsets."""


class Kind(IntEnum):
    """Kinds of verdicts; the numbers of oncelog.v1.Verdict."""

    UNSPECIFIED = 0
    APPENDED = 1
    DUPLICATE = 2
    STAGED = 3
    INVALID_BATCH = 10
    BATCH_TOO_LARGE = 11
    UNKNOWN_PRODUCER = 20
    FENCED = 21
    OUT_OF_ORDER = 22
    SEQUENCE_CONFLICT = 23
    PRODUCER_EXPIRED = 24
    OFFSET_MISMATCH = 25
    TRANSACTION_ABORTED = 26
    TRANSACTION_ENDED = 27
    NOT_LEADER = 30
    NOT_READY = 31
    TIMEOUT = 32
    THROTTLED = 33
    STORAGE_FULL = 34
    UNKNOWN_TOPIC_OR_PARTITION = 35
    TRANSACTION_CONFLICT = 36
    # Internal, never on the wire: the same batch is being replicated; its outcome is the answer
    # (Verdict.token is its proposal).
    JOINED = 100
    # Answered as STAGED to the sender: it was staged before.
    STAGED_DUPLICATE = 101
    # The coordinator must be asked before the batch may be staged here.
    UNREGISTERED = 102
    # Answered as INVALID_BATCH over gRPC, and by Kafka's protocol as its error 43.
    UNSUPPORTED_FORMAT = 103


class OffsetRule(IntEnum):
    """A topic's rule for BatchHeader.expected_offset; numbers of oncelog.v1.OffsetRule."""

    CHECKED = 0
    IGNORED = 1
    REQUIRED = 2


class Formats(IntEnum):
    """Formats of batches that a topic takes; numbers of oncelog.v1.TopicFormats."""

    COLUMNAR = 0
    KAFKA = 1
    BOTH = 2


class ResolutionKind(IntEnum):
    """Answers about a sequence; the numbers of oncelog.v1.Resolution."""

    # The map alone cannot tell (an older epoch, an expired producer): the log can.
    UNSPECIFIED = 0
    COMMITTED = 1
    NEVER = 2
    NOT_YET = 3


class BatchMeta(NamedTuple):
    """Facts of a batch header for the verdict, defaults filled in.

    `prev` is -1 for a first batch, `expected_offset` -1 for "do not check". `kafka`: it came by
    Kafka's protocol.
    """

    producer_id: int
    epoch: int
    first: int
    last: int
    prev: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    crc: int
    expected_offset: int = -1
    kafka: bool = False


class Verdict(NamedTuple):
    """The answer to one batch; -1 where a number does not apply.

    APPENDED and DUPLICATE carry `base_offset` (DUPLICATE: -1 if it is no longer
    known), FENCED `current_epoch`, OUT_OF_ORDER `last_sequence` of the
    producer's epoch, OFFSET_MISMATCH `next_offset`, JOINED `token`. `message` of DUPLICATE and
    JOINED: REBUILT if the bytes differ.
    """

    kind: Kind
    base_offset: int = -1
    current_epoch: int = -1
    last_sequence: int = -1
    next_offset: int = -1
    message: str = ""
    token: Any = None


class RememberedBatch(NamedTuple):
    """A stored batch as the last-seen map remembers it."""

    first: int
    last: int
    base_offset: int
    count: int  # type: ignore[assignment]
    crc: int


class KnownProducer(NamedTuple):
    """A partition's knowledge of a producer.

    `opened`: the epoch was raised by an open and has stored nothing yet, so `last_sequence` and
    `recent` belong to a predecessor. `floor`: the chain has nothing up to here (-1: it begins at
    0). `recent`: oldest first.
    """

    epoch: int
    last_sequence: int
    opened: bool
    floor: int
    recent: tuple[RememberedBatch, ...]


class Resolved(NamedTuple):
    """Answer to "is this sequence stored, and where?"; offset -1: no longer known."""

    resolution: ResolutionKind
    offset: int
    last_sequence: int
    current_epoch: int


REBUILT = "the batch is stored, with other bytes: its producer rebuilt it"

# Looking members up on an enum costs as much as the comparison itself.
_APPENDED = Kind.APPENDED


def validate(meta: BatchMeta, *, payload_size: int, max_payload: int) -> Verdict | None:
    """Refuses a batch that is invalid in any state; None if it is sound.

    Sizes are in bytes. The caller has already compared the payload with its crc.
    """
    fault = _fault(meta)
    if fault is None and payload_size < 1:
        fault = "payload: empty, but a batch holds at least one record"
    if fault is not None:
        return Verdict(Kind.INVALID_BATCH, message=fault)
    if payload_size > max_payload:
        return Verdict(
            Kind.BATCH_TOO_LARGE,
            message=f"payload: {payload_size} bytes, the limit (max_batch_bytes) is {max_payload}",
        )
    return None


def _fault(meta: BatchMeta) -> str | None:
    pid, epoch, first, last, prev, count, crc, expected, _ = meta
    if not 1 <= count <= MAX_INT32:
        return f"record_count: {count} is not in 1..{MAX_INT32}"
    if not 0 <= crc <= MAX_UINT32:
        return f"crc32c: {crc} is not in 0..{MAX_UINT32}"
    if not -1 <= expected <= MAX_INT64:
        return f"expected_offset: {expected} is not in -1..{MAX_INT64}"
    if pid == 0:
        return None
    if not 1 <= pid <= MAX_INT64:
        return f"producer_id: {pid} is not in 0..{MAX_INT64}"
    if not 0 <= epoch <= MAX_INT32:
        return f"epoch: {epoch} is not in 0..{MAX_INT32}"
    if not 0 <= first <= MAX_INT64:
        return f"base_sequence: {first} is not in 0..{MAX_INT64}"
    if not first <= last <= MAX_INT64:
        return f"last_sequence: {last} is not in {first} (base_sequence)..{MAX_INT64}"
    if last - first + 1 < count:
        return f"record_count: {count} records, but only {last - first + 1} sequences"
    if not -1 <= prev < first:
        return f"prev_sequence: {prev} is not in -1..{first - 1} (below base_sequence)"
    return None


def validate_open(producer_id: int, epoch: int) -> Verdict | None:
    """Refuses an open (OpenProducer) that is invalid in any state; None if it is sound."""
    if not 1 <= producer_id <= MAX_INT64:
        fault = f"producer_id: {producer_id} is not in 1..{MAX_INT64}"
    elif not 0 <= epoch <= MAX_INT32:
        fault = f"epoch: {epoch} is not in 0..{MAX_INT32}"
    else:
        return None
    return Verdict(Kind.INVALID_BATCH, message=fault)


def out_of_order(last_sequence: int, epoch: int, message: str) -> Verdict:
    """Makes OUT_OF_ORDER with the epoch's last stored sequence (-1: nothing)."""
    return Verdict(
        Kind.OUT_OF_ORDER, current_epoch=epoch, last_sequence=last_sequence, message=message
    )


def fenced(epoch: int, current_epoch: int) -> Verdict:
    """Makes FENCED by `current_epoch`."""
    return Verdict(
        Kind.FENCED,
        current_epoch=current_epoch,
        message=f"epoch: {epoch} was replaced by {current_epoch}",
    )


def same_content(batch: RememberedBatch | BatchMeta, meta: BatchMeta) -> bool:
    """Whether two batches with the same sequences also hold the same records.

    Clients of Kafka's protocol are trusted in this: they rebuild a batch for a retry.
    """
    return meta.kafka or (batch.crc == meta.crc and batch.count == meta.count)


def rebuilt(batch: RememberedBatch | BatchMeta, meta: BatchMeta) -> str:
    """Returns the message of a repeat: REBUILT if its bytes are others."""
    return "" if batch.crc == meta.crc else REBUILT


def conflict(meta: BatchMeta, last_sequence: int) -> Verdict:
    """Makes SEQUENCE_CONFLICT: the same sequences with other content."""
    return Verdict(
        Kind.SEQUENCE_CONFLICT,
        current_epoch=meta.epoch,
        last_sequence=last_sequence,
        message=f"sequences {meta.first}..{meta.last} exist with other content"
        " (record_count or crc32c differs)",
    )


def judge(known: KnownProducer, meta: BatchMeta) -> Verdict | None:
    """Returns a known producer's verdict; None: nothing speaks against appending."""
    epoch, last_sequence, opened, _, _ = known
    if meta.epoch < epoch:
        return fenced(meta.epoch, epoch)
    first_batch = meta.prev == -1
    if meta.epoch > epoch:
        if first_batch:
            return None
        return out_of_order(-1, epoch, f"prev_sequence: {meta.prev} in an epoch without a batch")
    if opened:
        if first_batch or (meta.prev == last_sequence and not meta.kafka):
            return None
        begins = "-1" if meta.kafka else f"-1 or {last_sequence}"
        text = f"prev_sequence: {meta.prev}; a newly opened epoch begins at {begins}"
        return out_of_order(last_sequence, epoch, text)
    if meta.prev == last_sequence:
        return None
    if meta.last <= last_sequence:
        return _judge_old(known, meta)
    if meta.prev > last_sequence:
        what = f"prev_sequence: {meta.prev} is missing"
    elif meta.first <= last_sequence:
        what = f"base_sequence: {meta.first} is stored, last_sequence {meta.last} is not"
    else:
        what = f"prev_sequence: {meta.prev} denies stored sequences"
    return out_of_order(last_sequence, epoch, f"{what}; the last one stored is {last_sequence}")


def _judge_old(known: KnownProducer, meta: BatchMeta) -> Verdict:
    """Judges a batch of the current epoch that ends at or below the last sequence."""
    for batch in reversed(known.recent):
        if batch.last == meta.last and batch.first == meta.first:
            if same_content(batch, meta):
                text = rebuilt(batch, meta)
                return Verdict(Kind.DUPLICATE, base_offset=batch.base_offset, message=text)
            return conflict(meta, known.last_sequence)
    below_recent = not known.recent or meta.last < known.recent[0].first
    if below_recent and meta.first > known.floor:
        return Verdict(Kind.DUPLICATE)
    return out_of_order(
        known.last_sequence,
        known.epoch,
        f"sequences {meta.first}..{meta.last} are not a batch as it was stored;"
        f" the last one stored is {known.last_sequence}",
    )


def admit(meta: BatchMeta, next_offset: int) -> Verdict:
    """Admits a batch that its producer may append, if its expected offset fits."""
    expected = meta.expected_offset
    if expected >= 0 and expected != next_offset:
        return Verdict(
            Kind.OFFSET_MISMATCH,
            next_offset=next_offset,
            message=f"expected_offset: {expected}, but the next offset is {next_offset}",
        )
    # As Verdict(_APPENDED, next_offset), at a third of its price.
    return tuple.__new__(Verdict, (_APPENDED, next_offset, -1, -1, -1, "", None))
