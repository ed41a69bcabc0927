"""Sinks of transactions: committed batches, and the runs that may write. Part of Coordinator.

A sink is the output of a streaming query, or of batch jobs. Its batches are numbered, and each is
one transaction for all of its tasks. Each run draws a ticket; the first batch with a higher ticket
fences the runs with lower ones, so a replaced run writes nothing more.

    streaming: the next batch is the last one + 1; the last one is ALREADY there
    jobs:      any number; one that was committed is ALREADY there

A refusal that a user may overrule carries a token. The token is valid for the sink's state at that
time, and for the refused query and batch, so it works once.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import (
    BATCH_BEHIND,
    BATCH_CHANGED,
    BATCH_GAP,
    FENCED,
    INVALID_ARGUMENT,
    OTHER_QUERY,
    OTHER_SINK,
    TOO_MANY_TRANSACTIONS,
    UNKNOWN_TRANSACTION,
    Refused,
)

MAX_SINKS = 10_000
MAX_KEY_CHARS = 255
MAX_QUERIES = 16  # of one sink: the present one and its predecessors
MAX_RANGES = 1000  # of the batches that jobs have committed
MAX_NAMELESS = 1000  # jobs without a sink of their own that are remembered
MAX_BATCH = 2**62


class Before(NamedTuple):
    """A sink's committed batch before a reset."""

    query: str
    batch: int
    records: int
    digest: int


@dataclass(slots=True)
class Sink:
    """State of a sink. `last_id`: its newest transaction (0: none yet), of `batch` (-1: an older
    ticket's).

    nameless: one batch job that never runs again; it has no ticket.
    version: rises with each commit and each reset.
    committed_batch: the newest one, -1 before the first. committed_records, committed_digest: of
        it, so that its writer can compare them with its rows.
    ranges: batches that jobs have committed, rising, none touches the next. If there were too many,
        batches below the first range are no longer known.
    free: an operator has reset it, and any query may take it.
    """

    jobs: bool = False
    nameless: bool = False
    next_ticket: int = 1
    ticket: int = 0
    run: str = ""
    batch: int = -1
    last_id: int = 0
    version: int = 0
    committed_batch: int = -1
    committed_records: int = 0
    committed_digest: int = 0
    queries: tuple[str, ...] = ()  # the newest one is the present one
    before: Before | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    floor: int = 0
    free: bool = False

    @property
    def query(self) -> str:
        """The present query; empty: of jobs, or none yet."""
        return self.queries[-1] if self.queries else ""

    def has(self, batch: int) -> bool:
        """Whether the batch is committed."""
        if not self.jobs:
            return batch == self.committed_batch
        at = bisect_right(self.ranges, (batch, MAX_BATCH)) - 1
        return at >= 0 and self.ranges[at][0] <= batch <= self.ranges[at][1]


class BatchBegun(NamedTuple):
    """A batch's transaction; None: the batch is committed, with so many records and this digest.

    `busy`: neither, the sink's previous transaction has not ended yet.
    """

    transaction: TransactionRow | None
    records: int = 0
    digest: int = 0
    busy: bool = False


class Asked(NamedTuple):
    """A writer's request for a batch. `ticket` 0: a job that never runs again."""

    key: str
    query: str
    run: str
    ticket: int
    batch: int
    jobs: bool = False
    reset: str = ""


class Sinks:
    """All sinks, by key. They never expire: a forgotten one would write a batch twice."""

    def __init__(self) -> None:
        self._sinks: dict[str, Sink] = {}
        self._key_of: dict[str, str] = {}  # of a query

    def __iter__(self) -> Iterator[tuple[str, Sink]]:
        return iter(sorted(self._sinks.items()))

    def get(self, key: str) -> Sink | None:
        return self._sinks.get(key)

    def restore(self, key: str, sink: Sink) -> None:
        """Restores the sinks. Raises ValueError."""
        if key in self._sinks or not 0 <= sink.ticket < sink.next_ticket:
            raise ValueError(f"sink {key!r} stands twice or has a ticket that was not drawn")
        edges = [edge for pair in sink.ranges for edge in pair]
        if edges != sorted(edges) or (sink.ranges and not sink.jobs):
            raise ValueError(f"sink {key!r}: its batches are out of order")
        if any(query in self._key_of for query in sink.queries):
            raise ValueError(f"sink {key!r}: a query belongs to two sinks")
        self._sinks[key] = sink
        self._key_of |= dict.fromkeys(sink.queries, key)

    def last_id(self, key: str) -> int:
        sink = self._sinks.get(key)
        return 0 if sink is None else sink.last_id

    # -- permission to write ------------------------------------------------------------

    def draw_ticket(self, key: str, *, jobs: bool) -> int:
        """Draws a number for a sink's next run; the first one makes the sink. Fences nothing."""
        _check_text("sink", key)
        sink = self._sinks.get(key)
        if sink is None:
            if sum(not sink.nameless for sink in self._sinks.values()) >= MAX_SINKS:
                text = f"there are {MAX_SINKS} sinks, which is the limit"
                raise Refused(TOO_MANY_TRANSACTIONS, text)
            sink = self._sinks[key] = Sink(jobs)
        _check_use(key, sink, jobs)
        sink.next_ticket += 1
        return sink.next_ticket - 1

    def admit(self, asked: Asked) -> Sink:
        """Returns the sink, if this run may write; makes the sink of a job without a ticket."""
        sink = self._sinks.get(asked.key)
        if asked.ticket == 0 and (sink is None or sink.nameless):
            _check_text("sink", asked.key)
            return sink or Sink(jobs=True, nameless=True)
        if sink is None or sink.nameless or not 0 < asked.ticket < sink.next_ticket:
            text = f"sink {asked.key!r} has drawn no ticket {asked.ticket}"
            raise Refused(UNKNOWN_TRANSACTION, text)
        _check_use(asked.key, sink, asked.jobs)
        if not asked.jobs:
            _check_text("query", asked.query)
        if asked.ticket < sink.ticket:
            text = f"run {asked.run!r} of sink {asked.key!r} was replaced by {sink.run!r}"
            raise Refused(FENCED, text)
        return sink

    def refusal(self, asked: Asked, sink: Sink) -> Refused | None:
        """Returns why the batch does not follow; None: it does, or is committed."""
        key, batch, done = asked.key, asked.batch, sink.committed_batch
        if not 0 <= batch < MAX_BATCH:
            return Refused(INVALID_ARGUMENT, f"batch: {batch} is not in 0..{MAX_BATCH - 1}")
        if sink.jobs:
            if batch >= sink.floor or sink.has(batch):
                return None
            text = f"batch {batch} of sink {key!r}: batches below {sink.floor} are forgotten"
            return Refused(BATCH_BEHIND, f"{text}; use a higher number")
        other = self._key_of.get(asked.query, key)
        if other != key:
            text = f"query {asked.query!r} writes into sink {other!r}, not into {key!r}: a batch"
            return self._refused(OTHER_SINK, asked, sink, f"{text} of there could come twice")
        if asked.query != sink.query and sink.version and not sink.free:
            text = f"sink {key!r} belongs to query {sink.query!r}, not to {asked.query!r}"
            return self._refused(OTHER_QUERY, asked, sink, f"{text}; its last batch was {done}")
        if batch < done:
            text = f"batch {batch} of sink {key!r}: {done} is committed, the checkpoint is older"
            return self._refused(BATCH_BEHIND, asked, sink, text)
        if done >= 0 and batch > done + 1:
            text = f"batch {batch} of sink {key!r}: the last one was {done}, some are missing"
            return self._refused(BATCH_GAP, asked, sink, text)
        return None

    def changed(self, asked: Asked, sink: Sink) -> Refused:
        """Refuses a committed batch that is asked for again with other rows."""
        text = (
            f"batch {asked.batch} of sink {asked.key!r} was committed with"
            f" {sink.committed_records} records, and this one has others"
        )
        return self._refused(BATCH_CHANGED, asked, sink, text)

    @staticmethod
    def _refused(reason: str, asked: Asked, sink: Sink, text: str) -> Refused:
        token = _token(reason, asked, sink)
        return Refused(reason, f"{text}; sinkReset={token} writes it nevertheless, as it is")

    def overrules(self, asked: Asked, sink: Sink, refusal: Refused | None) -> bool:
        """Whether the batch comes with the token of its refusal."""
        reason = refusal.reason if refusal is not None else BATCH_CHANGED
        return bool(asked.reset) and not sink.jobs and asked.reset == _token(reason, asked, sink)

    # -- changes; nothing is refused any more -------------------------------------------

    def fence(self, asked: Asked, sink: Sink) -> None:
        """Fences lower tickets: they write nothing more."""
        self._sinks.setdefault(asked.key, sink)
        if asked.ticket != sink.ticket:
            sink.ticket, sink.run, sink.batch = asked.ticket, asked.run, -1

    def begun(self, asked: Asked, sink: Sink, transaction_id: int) -> None:
        sink.batch, sink.last_id, sink.free = asked.batch, transaction_id, False
        if asked.query and asked.query != sink.query:
            self._bind(asked.key, sink, asked.query)

    def _bind(self, key: str, sink: Sink, query: str) -> None:
        other = self._sinks.get(self._key_of.get(query, ""))
        if other is not None:
            other.queries = tuple(q for q in other.queries if q != query)
        sink.queries = (*sink.queries, query)
        for old in sink.queries[:-MAX_QUERIES]:
            del self._key_of[old]
        sink.queries = sink.queries[-MAX_QUERIES:]
        self._key_of[query] = key

    def reset(self, sink: Sink) -> None:
        """Allows any next batch of any query; committed batches stay."""
        if sink.committed_batch >= 0:
            sink.before = Before(
                sink.query, sink.committed_batch, sink.committed_records, sink.committed_digest
            )
        sink.version += 1
        sink.committed_batch, sink.committed_records, sink.committed_digest = -1, 0, 0
        sink.ranges, sink.floor = (), 0

    def committed(self, key: str, records: int, digest: int) -> None:
        """Notes the decision to commit the sink's transaction."""
        sink = self._sinks[key]
        assert sink.batch >= 0, "a transaction of an older ticket is aborted before"
        sink.version += 1
        sink.committed_batch = sink.batch
        sink.committed_records, sink.committed_digest = records, digest
        if sink.jobs and not sink.nameless:
            sink.ranges = _with(sink.ranges, sink.batch)
            if len(sink.ranges) > MAX_RANGES:
                sink.floor = sink.ranges[1][0]
                sink.ranges = sink.ranges[1:]

    def forget_nameless(self, is_over: Callable[[int], bool]) -> list[int]:
        """Forgets the oldest jobs that never run again; returns their transactions."""
        nameless = sorted((s.last_id, key) for key, s in self._sinks.items() if s.nameless)
        over = [(last_id, key) for last_id, key in nameless if is_over(last_id)]
        excess = over[: max(0, len(nameless) - MAX_NAMELESS)]
        for _, key in excess:
            del self._sinks[key]
        return [last_id for last_id, _ in excess]


def _check_text(field: str, text: str) -> None:
    if not 1 <= len(text) <= MAX_KEY_CHARS:
        refusal = f"{field}: has {len(text)} characters, must have 1..{MAX_KEY_CHARS}"
        raise Refused(INVALID_ARGUMENT, refusal)


def _check_use(key: str, sink: Sink, jobs: bool) -> None:
    if sink.jobs != jobs:
        uses = {True: "batch jobs", False: "a streaming query"}
        text = f"sink {key!r} is that of {uses[sink.jobs]}, not of {uses[jobs]}"
        raise Refused(INVALID_ARGUMENT, text)


def _token(reason: str, asked: Asked, sink: Sink) -> str:
    what = f"{asked.key}\0{asked.query}\0{reason}\0{asked.batch}"
    return f"{sink.version}-{zlib.crc32(what.encode()):08x}"


def _with(ranges: tuple[tuple[int, int], ...], batch: int) -> tuple[tuple[int, int], ...]:
    """Adds a number to rising ranges that do not have it."""
    at = bisect_right(ranges, (batch, batch))
    first = last = batch
    low, high = at, at
    if at and ranges[at - 1][1] == batch - 1:
        first, low = ranges[at - 1][0], at - 1
    if at < len(ranges) and ranges[at][0] == batch + 1:
        last, high = ranges[at][1], at + 1
    return (*ranges[:low], (first, last), *ranges[high:])
