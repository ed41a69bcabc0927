"""A streaming query as Spark runs it, over the real coordinator: drivers, tasks, a checkpoint.

    Driver --plan--> Task attempts --stage--> partitions (two lists)
       '--draw, begin, end--> Coordinator <--markers--'

Row r belongs into partition r % 2. Each process is a generator that yields its calls; the next
one to go on is drawn. A call may be lost, its answer may be lost, and a copy of it may come much
later. Spark keeps a `Checkpoint`; `run` has the users' actions on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cluster.transactions.coordinator import Coordinator
from cluster.transactions.sinks import Asked
from cluster.transactions.types import Expected, Published, Refused, TransactionState
from tests.sim import reloading

KEYS = ("a", "b")
PARTITIONS = (1, 2)
LOST = "LOST"
HOUR_MS = 3_600_000
Process = Generator[Callable[[], Any] | None, Any, Any]


class Violation(Exception):
    """A promise was broken."""


class QueryFailed(Exception):
    """The query ends with an error; its user sees it."""


def digest_of(rows: list[int]) -> int:
    return sum((row + 1) * 0x9E3779B97F4A7C15 % 2**64 for row in rows) % 2**64


class Message(NamedTuple):
    """A task attempt's message to its driver. `transaction` 0: the batch is committed already."""

    transaction: int
    runs: tuple[tuple[int, int, int], ...]  # group, producer id, records
    rows: int
    digest: int


@dataclass
class Checkpoint:
    """Spark's files on disk: where each batch ends, and which ones are done."""

    query: str
    key: str
    first: int = 0
    start: int = 0  # of the first batch
    ends: dict[int, int] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    reset: str = ""

    def copy(self) -> Checkpoint:
        return Checkpoint(
            self.query, self.key, self.first, self.start, dict(self.ends), set(self.commits)
        )

    def begin_of(self, batch: int) -> int:
        return self.ends.get(batch - 1, self.start)


class World:
    """One coordinator, its partitions, and all that runs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.coordinator = Coordinator()
        self.readable: dict[int, list[int]] = {group: [] for group in PARTITIONS}
        # (transaction, group) -> producer id -> rows
        self.staged: dict[tuple[int, int], dict[int, list[int]]] = {}
        self.marked: set[tuple[int, int]] = set()
        self.processes: list[Process] = []
        self.late: list[Callable[[], Any]] = []
        self.loss = 0.0
        self._answers: dict[Process, Any] = {}
        self.total = self.rng.randint(6, 16)  # rows in total
        self.producers = 0
        self.commits = self.refusals = self.resets = self.answers = 0

    # -- calls --------------------------------------------------------------------------

    def draw(self, key: str) -> Any:
        return self.coordinator.draw_ticket(key, jobs=False)

    def begin(self, asked: Asked) -> Any:
        """Begins a transaction and returns its number; 0: committed; None: ask again."""
        begun = self.coordinator.begin_batch(asked, now_ms=1, total_ms=HOUR_MS)
        if begun.busy:
            return None
        return 0 if begun.transaction is None else begun.transaction.transaction_id

    def stage(self, transaction: int, group: int, producer: int, row: int) -> Any:
        if (transaction, group) in self.marked:
            raise Refused("TRANSACTION_ENDED", "its marker was here")
        row_of = self.coordinator.get(transaction)
        if row_of is None or group not in row_of.parts:
            self.coordinator.register(transaction, None, [group], lambda group: True)
        run = self.staged.setdefault((transaction, group), {}).setdefault(producer, [])
        if row not in run:
            run.append(row)
        return "STAGED"

    def end(self, transaction: int, runs: tuple[tuple[int, int, int], ...], digest: int) -> Any:
        """Decides on a transaction; None: decided, and not yet readable everywhere."""
        row = self.coordinator.get(transaction)
        if row is not None and row.state is TransactionState.OPEN:
            for group, producer, records in runs:
                found = self.staged.get((transaction, group), {}).get(producer, [])
                if len(found) != records:
                    raise Violation(f"{transaction}: {producer} has {found}, not {records}")
        records = sum(run[2] for run in runs)
        expected = [Expected(g, p, n, n - 1) for g, p, n in runs]
        checked = 0 if row is None else len(row.parts)
        decided = self.coordinator.commit(
            transaction, None, expected, checked, records=records, digest=digest
        )
        return self.is_readable(decided)

    def end_committed(self, asked: Asked, rows: int, digest: int) -> Any:
        """Does as `end`, for a batch whose tasks all heard that it is committed."""
        return self.is_readable(self.coordinator.check_committed(asked, rows, digest))

    def is_readable(self, row: Any) -> Any:
        return None if row is not None and row.state is TransactionState.COMMITTING else "COMMITTED"

    # -- markers ------------------------------------------------------------------------

    def mark_one(self) -> None:
        """Applies a decided transaction's marker in one of its partitions."""
        decided = self.coordinator.decided()
        if not decided:
            return
        row = self.rng.choice(decided)
        group = self.rng.choice(row.pending())
        marker = self.coordinator.marker(row, group, 1)
        number = row.transaction_id
        published = []
        if (number, group) not in self.marked:
            self.marked.add((number, group))
            runs = self.staged.pop((number, group), {})
            for run in marker.expected if marker.committed else ():
                rows = runs[run.producer_id][: run.records]
                base = len(self.readable[group])
                published.append(Published(run.producer_id, 0, 0, run.last, base, len(rows)))
                self.readable[group] += rows
        self.coordinator.markers_done(number, {group: published})

    # -- scheduling ---------------------------------------------------------------------

    def step(self) -> None:
        """Runs one step of a random process."""
        if self.late and self.rng.random() < 0.05:
            self._answer(self.late.pop(self.rng.randrange(len(self.late))))
        if self.rng.random() < 0.2:
            self.mark_one()
        if self.processes:
            self._resume(self.rng.randrange(len(self.processes)))

    def kill(self, process: Process) -> None:
        if process in self.processes:
            self.processes.remove(process)
            self._answers.pop(process, None)

    def _resume(self, at: int) -> None:
        process = self.processes[at]
        try:
            call = process.send(self._answers.pop(process, None))
        except StopIteration:
            self.processes.remove(process)
            return
        if call is not None:
            self._answers[process] = self._call(call)

    def _call(self, call: Callable[[], Any]) -> Any:
        if self.rng.random() < self.loss:
            return LOST
        if self.rng.random() < self.loss:
            self.late.append(call)
        answer = self._answer(call)
        return LOST if self.rng.random() < self.loss else answer

    def _answer(self, call: Callable[[], Any]) -> Any:
        try:
            answer = call()
        except Refused as refused:
            answer = refused
        self.answers += 1
        if not self.answers % reloading.EVERY:
            saved = b"".join(self.coordinator.pieces())
            reloading.check(saved, reloading.coordinator, "the coordinator")
        return answer
