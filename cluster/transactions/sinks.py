"""Sinks: which batch each has committed, and which of its runs may write. Part of Coordinator.

A sink is a query's output. Its batches are numbered, each is one transaction for all of its
tasks, and a run of the query that was replaced writes nothing more: each run draws a ticket,
and the first batch that comes with a higher ticket fences the lower ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cluster.transactions.transaction import Transaction
from cluster.transactions.types import (
    BATCH_BEHIND,
    BATCH_GAP,
    FENCED,
    INVALID_ARGUMENT,
    OTHER_QUERY,
    TOO_MANY_TRANSACTIONS,
    UNKNOWN_TRANSACTION,
    Refused,
)

MAX_SINKS = 10_000
MAX_KEY_CHARS = 255


@dataclass(slots=True)
class Sink:
    """`last_id`: its newest transaction (0: none yet), of `batch` (-1: an older ticket's).

    committed_batch: -1 before the first one.
    committed_records, committed_digest: of the committed batch, so that its writer can
    compare what it would write.
    """

    query: str
    next_ticket: int = 1
    ticket: int = 0
    run: str = ""
    batch: int = -1
    last_id: int = 0
    committed_batch: int = -1
    committed_records: int = 0
    committed_digest: int = 0


class BatchBegun(NamedTuple):
    """A batch's transaction; None: the batch is committed, with so many records and this digest.

    `busy`: neither, the sink's transaction before is still on its way to an end.
    """

    transaction: Transaction | None
    records: int = 0
    digest: int = 0
    busy: bool = False


class Sinks:
    """All sinks, by key. They never expire: a forgotten one would write a batch twice."""

    def __init__(self) -> None:
        self._sinks: dict[str, Sink] = {}

    def __iter__(self) -> Iterator[tuple[str, Sink]]:
        return iter(sorted(self._sinks.items()))

    def restore(self, key: str, sink: Sink) -> None:
        """Raises ValueError."""
        if key in self._sinks or not 0 <= sink.ticket < sink.next_ticket:
            raise ValueError(f"sink {key!r} stands twice or has a ticket that was not drawn")
        self._sinks[key] = sink

    def last_id(self, key: str) -> int:
        return self._sinks[key].last_id

    def draw_ticket(self, key: str, query: str) -> int:
        for field, text in (("sink", key), ("query", query)):
            if not 1 <= len(text) <= MAX_KEY_CHARS:
                refusal = f"{field}: has {len(text)} characters, must have 1..{MAX_KEY_CHARS}"
                raise Refused(INVALID_ARGUMENT, refusal)
        sink = self._sinks.get(key)
        if sink is None:
            if len(self._sinks) >= MAX_SINKS:
                text = f"there are {MAX_SINKS} sinks, which is the limit"
                raise Refused(TOO_MANY_TRANSACTIONS, text)
            sink = self._sinks[key] = Sink(query)
        elif sink.query != query:
            text = f"sink {key!r} belongs to query {sink.query!r}, not {query!r}"
            raise Refused(OTHER_QUERY, text)
        sink.next_ticket += 1
        return sink.next_ticket - 1

    def check(self, key: str, run: str, ticket: int, batch: int) -> Sink:
        """The sink, if this run may begin this batch."""
        sink = self._sinks.get(key)
        if sink is None or not 0 < ticket < sink.next_ticket:
            raise Refused(UNKNOWN_TRANSACTION, f"sink {key!r} has drawn no ticket {ticket}")
        if ticket < sink.ticket or (ticket == sink.ticket and run != sink.run):
            raise Refused(FENCED, f"run {run!r} of sink {key!r} was replaced by {sink.run!r}")
        done = sink.committed_batch
        if batch < done:
            raise Refused(BATCH_BEHIND, f"batch {batch} of sink {key!r}: {done} is committed")
        if batch < 0 or (done >= 0 and batch > done + 1):
            raise Refused(BATCH_GAP, f"batch {batch} of sink {key!r}: the last one was {done}")
        return sink

    def fence(self, key: str, run: str, ticket: int) -> None:
        """Lower tickets write nothing more."""
        sink = self._sinks[key]
        if ticket != sink.ticket:
            sink.ticket, sink.run, sink.batch = ticket, run, -1

    def committed(self, key: str, records: int, digest: int) -> None:
        """The sink's transaction was decided."""
        sink = self._sinks[key]
        sink.committed_batch = sink.batch
        sink.committed_records, sink.committed_digest = records, digest
