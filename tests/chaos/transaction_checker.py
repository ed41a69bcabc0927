"""Checks of a list-append history: transactions, readers' views, and the logs.

After Jepsen's list-append: each record is unique and names its transaction, so the logs say the
order of all appends. Nothing of the product is used here.

G1a: a record of a transaction that was aborted was read. G1b: a reader was shown a part of a
transaction's records in a partition. Across partitions there is no snapshot, so cycles over several
partitions (G1c) are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

YES, NO, UNKNOWN = "yes", "no", "unknown"
SHOWN = 5  # of each kind, in a report


class Id(NamedTuple):
    """Name of an append: a worker's transaction and the position in it."""

    worker: int
    number: int
    position: int

    @property
    def value(self) -> bytes:
        return b"%d:%d:%d" % self

    @classmethod
    def of(cls, value: bytes) -> Id:
        worker, number, position = value.split(b":")
        return cls(int(worker), int(number), int(position))


@dataclass(slots=True)
class Txn:
    """One transaction as its client knows it. `appends`: the partition of each record."""

    worker: int
    number: int
    appends: list[int] = field(default_factory=list)
    outcome: str = UNKNOWN
    # The commit's answer: partition -> (offset of the first record, count).
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    # Each record's offset in its future after the commit; -1: nothing.
    offsets: list[int] = field(default_factory=list)

    def ids(self, partition: int) -> list[Id]:
        return [
            Id(self.worker, self.number, position)
            for position, where in enumerate(self.appends)
            if where == partition
        ]


@dataclass(slots=True)
class Seen:
    """Readers' view of one partition: the records by offset, and the ends they were told."""

    values: dict[int, bytes] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)
    changed: list[str] = field(default_factory=list)

    def note(self, start: int, values: Sequence[bytes], end: int) -> None:
        """`end`: the offset that comes next, as the node said with these values."""
        self.ends.add(end)
        for offset, value in enumerate(values, start):
            if self.values.setdefault(offset, value) != value:
                self.changed.append(f"offset {offset}: {self.values[offset]!r}, then {value!r}")


@dataclass(slots=True)
class History:
    """All actions and views of the clients. Log: (node, partition) -> all values, at the end."""

    txns: list[Txn] = field(default_factory=list)
    seen: dict[int, Seen] = field(default_factory=dict)
    logs: Mapping[tuple[int, int], Sequence[bytes]] = field(default_factory=dict)


class Check(NamedTuple):
    name: str
    says: str
    anomalies: list[str]

    @property
    def holds(self) -> bool:
        return not self.anomalies


class _Facts:
    """The history, indexed."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.txns = {(txn.worker, txn.number): txn for txn in history.txns}
        # Each partition's log, as the first node has it.
        self.logs: dict[int, list[Id]] = {}
        for (_, partition), values in sorted(history.logs.items()):
            self.logs.setdefault(partition, [Id.of(value) for value in values])
        self.at: dict[Id, list[tuple[int, int]]] = {}  # -> (partition, offset)
        for partition, ids in self.logs.items():
            for offset, one in enumerate(ids):
                self.at.setdefault(one, []).append((partition, offset))

    def found(self, txn: Txn) -> list[Id]:
        """Finds the records of a transaction that are there."""
        ids = (Id(txn.worker, txn.number, n) for n in range(len(txn.appends)))
        return [one for one in ids if one in self.at]


def _name(txn: Txn) -> str:
    return f"transaction {txn.worker}:{txn.number}"


def lost(facts: _Facts) -> Iterator[str]:
    for txn in facts.history.txns:
        missing = len(txn.appends) - len(facts.found(txn))
        if txn.outcome == YES and missing:
            yield f"{_name(txn)} was committed, {missing} of {len(txn.appends)} are not there"


def torn(facts: _Facts) -> Iterator[str]:
    """Finds transactions that are there in part, whichever answer their client got."""
    for txn in facts.history.txns:
        found = len(facts.found(txn))
        if 0 < found < len(txn.appends):
            yield f"{_name(txn)} ({txn.outcome}): {found} of {len(txn.appends)} records are there"


def duplicate(facts: _Facts) -> Iterator[str]:
    for one, places in facts.at.items():
        if len(places) > 1:
            yield f"{one.value!r} is at {places}"


def misplaced(facts: _Facts) -> Iterator[str]:
    """Finds records of nobody, or in another partition than they were sent to."""
    for one, places in facts.at.items():
        txn = facts.txns.get((one.worker, one.number))
        if txn is None or one.position >= len(txn.appends):
            yield f"{one.value!r}, which nobody sent, is at {places}"
        elif places[0][0] != txn.appends[one.position]:
            yield f"{one.value!r}, sent to {txn.appends[one.position]}, is at {places}"


def aborted_read(facts: _Facts) -> Iterator[str]:
    """Finds G1a, by a reader or in the logs."""
    aborted = {key for key, txn in facts.txns.items() if txn.outcome == NO}
    for partition, seen in facts.history.seen.items():
        for offset, value in seen.values.items():
            if Id.of(value)[:2] in aborted:
                yield f"{value!r} of an aborted transaction was read at {partition}/{offset}"
    for one, places in facts.at.items():
        if one[:2] in aborted:
            yield f"{one.value!r} of an aborted transaction is at {places}"


def apart(facts: _Facts) -> Iterator[str]:
    """Finds transactions whose records in a partition are apart or out of order."""
    for txn in facts.history.txns:
        for partition in set(txn.appends):
            ids = [one for one in txn.ids(partition) if one in facts.at]
            offsets = [facts.at[one][0][1] for one in ids]
            if offsets and offsets != list(range(offsets[0], offsets[0] + len(offsets))):
                yield f"{_name(txn)} in partition {partition} is at {offsets}"


def intermediate_read(facts: _Facts) -> Iterator[str]:
    """Finds G1b: a node said that the log ends within a transaction."""
    for partition, seen in facts.history.seen.items():
        ids = facts.logs.get(partition, [])
        for end in seen.ends:
            if 0 < end < len(ids) and ids[end - 1][:2] == ids[end][:2]:
                yield f"partition {partition} ended at {end}, within {ids[end][:2]}"


def vanished(facts: _Facts) -> Iterator[str]:
    """Finds records that were read once and are not there any more, at the same offset."""
    for partition, seen in facts.history.seen.items():
        yield from (f"partition {partition}, {text}" for text in seen.changed)
        ids = facts.logs.get(partition, [])
        for offset, value in seen.values.items():
            if offset >= len(ids) or ids[offset].value != value:
                yield f"{value!r} was read at {partition}/{offset}, and is not there"


def untrue_answer(facts: _Facts) -> Iterator[str]:
    """Finds commits whose answers or futures give wrong places of records."""
    for txn in facts.history.txns:
        for partition, (base, count) in txn.places.items():
            ids = txn.ids(partition)
            there = facts.logs.get(partition, [])[base : base + count]
            if there != ids:
                yield f"{_name(txn)}: {count} records at {partition}/{base}, there is {there[:3]}"
        for position, offset in enumerate(txn.offsets):
            here = (txn.appends[position], offset)
            one = Id(txn.worker, txn.number, position)
            if offset >= 0 and here not in facts.at.get(one, []):
                yield f"{one.value!r}: the future said {here}"


def disorder(facts: _Facts) -> Iterator[str]:
    """Finds transactions of a worker that are out of order in a partition."""
    for partition, ids in facts.logs.items():
        last: dict[int, int] = {}
        for one in ids:
            if one.number < last.get(one.worker, -1):
                before = last[one.worker]
                yield f"partition {partition}: {one.value!r} after transaction {before} of its own"
            last[one.worker] = max(one.number, last.get(one.worker, -1))


def different(facts: _Facts) -> Iterator[str]:
    first: dict[int, tuple[int, Sequence[bytes]]] = {}
    for (node, partition), values in facts.history.logs.items():
        other, known = first.setdefault(partition, (node, values))
        if list(known) != list(values):
            yield f"partition {partition} differs between nodes {other} and {node}"


CHECKS: dict[str, tuple[str, Callable[[_Facts], Iterator[str]]]] = {
    "lost": ("every committed record is there", lost),
    "torn": ("every transaction is there whole or not at all", torn),
    "duplicate": ("no record is there twice", duplicate),
    "misplaced": ("every record was sent, to where it is", misplaced),
    "G1a": ("nothing of an aborted transaction was ever readable", aborted_read),
    "G1b": ("no reader was shown a part of a transaction in a partition", intermediate_read),
    "apart": ("records of a transaction lie together in a partition", apart),
    "vanished": ("what was read stays where it was read", vanished),
    "answers": ("commits tell the true places of their records", untrue_answer),
    "order": ("a producer's transactions are in its order", disorder),
    "replicas": ("all replicas are equal", different),
}


def check(history: History) -> list[Check]:
    facts = _Facts(history)
    return [Check(name, says, list(judge(facts))) for name, (says, judge) in CHECKS.items()]
