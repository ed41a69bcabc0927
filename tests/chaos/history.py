"""Observations of a chaos run's clients: every write with its outcome, every read, every contest.

An outcome is one of three: yes (acknowledged, at an offset), no (refused for good: must not be in
the log) and unknown (nobody told: may be there or not, but at most once).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

NO_OFFSET = -1
UNKNOWN, YES, NO = 0, 1, 2
OUTCOMES = {UNKNOWN: "unknown", YES: "yes", NO: "no"}


def value_of(worker: int, number: int, size: int) -> bytes:
    """Builds the record of a worker's write with this number."""
    return b"%d:%d:" % (worker, number) + b"x" * size


def write_of(value: bytes) -> tuple[int, int]:
    """Reads (worker, number) of a record. Raises ValueError for a record that no worker wrote."""
    worker, number, _ = value.split(b":", 2)
    return int(worker), int(number)


class Writes:
    """One worker's writes, in the order sent. Columns, since there are many.

    kind: "plain", "conditional" or "named". producer_id, epoch: a named producer's, once known.
    """

    def __init__(self, worker: int, kind: str = "plain") -> None:
        self.worker, self.kind = worker, kind
        self.producer_id = self.epoch = -1
        self.outcomes = bytearray()
        self.partitions = array("i")
        self.offsets = array("q")
        self.expected = array("q")  # the offset that was asked for; NO_OFFSET: any

    def sent(self, partition: int, expected: int = NO_OFFSET) -> int:
        """Notes that a write is about to be sent; returns its number."""
        self.outcomes.append(UNKNOWN)
        self.partitions.append(partition)
        self.offsets.append(NO_OFFSET)
        self.expected.append(expected)
        return len(self.outcomes) - 1

    def acknowledged(self, number: int, partition: int, offset: int) -> None:
        self.outcomes[number] = YES
        self.partitions[number] = partition
        self.offsets[number] = offset

    def refused(self, number: int) -> None:
        self.outcomes[number] = NO

    def count(self, outcome: int) -> int:
        return self.outcomes.count(outcome)


@dataclass(frozen=True, slots=True)
class Read:
    """One answer to a fetch. `values` are whole records from `offset` on."""

    reader: int
    node: int
    partition: int
    asked: int
    offset: int
    high_watermark: int
    from_leader: bool
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Contest:
    """Two instances of one producer name, by worker, and how it ended for each of them.

    Ends are "went on", "fenced" and "unknown".
    """

    workers: tuple[int, int]
    ends: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Told:
    """A client's batch that was answered as a duplicate, or fenced. at: monotonic seconds."""

    at: float
    verdict: str  # DUPLICATE or FENCED
    partition: int
    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class History:
    """All observations of the clients of one run."""

    writes: dict[int, Writes] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    contests: list[Contest] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def of(self, worker: int, kind: str = "plain") -> Writes:
        return self.writes.setdefault(worker, Writes(worker, kind))

    def counts(self, kind: str = "") -> dict[str, int]:
        """Counts writes by outcome, of all workers or of those of one kind."""
        chosen = [writes for writes in self.writes.values() if kind in ("", writes.kind)]
        return {
            name: sum(writes.count(outcome) for writes in chosen)
            for outcome, name in OUTCOMES.items()
        }


@dataclass(frozen=True, slots=True)
class Replica:
    """One node's copy of a partition, read after the run; batches as (offset, values)."""

    node: int
    partition: int
    start: int
    high_watermark: int
    batches: tuple[tuple[int, tuple[bytes, ...]], ...]
    digest: str
    last_seen: dict[int, str]

    def records(self) -> Iterable[tuple[int, bytes]]:
        """Yields (offset, value) of every record."""
        for offset, values in self.batches:
            yield from enumerate(values, offset)
