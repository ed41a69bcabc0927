"""Coordinator of transactions: their states from begin to end. Replicated, pure.

    (none) --begin--> OPEN --commit--> COMMITTING --all markers--> COMMITTED --+
                       |                                                       |--> forgotten
                       +--abort, fence, expiry--> ABORTING --all--> ABORTED ---+

Each method is one command of the metadata group's log and a function of it and the state before it:
equal logs give equal states and equal `pieces`. A command that raises `Refused` changed nothing.
There is no time in here: the leader measures how long an open transaction has been idle
(`cluster.transactions.timers`) and aborts it by `abort`.

The decision is one command and never changes, so writers of markers need no epoch: a repeated
marker is the same marker. A group's id is never used again, so it stands for one partition of one
topic, even if a topic of that name is created again.

A transaction's number is never used again either. All transactions below `open_low` have ended in
all partitions, and the partitions have forgotten them. The coordinator keeps only the last one of
each owner, as its owner may not have heard the outcome. It forgets an owner with the producer name.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from cluster.transactions import coordinator_records as records
from cluster.transactions.sinks import Asked, BatchBegun, Sinks
from cluster.transactions.transaction import NameOwner, Participant, TransactionRow
from cluster.transactions.types import (
    ABORT_STATES,
    BY_FENCE,
    BY_OWNER,
    BY_RESET,
    CHECK_AGAIN,
    COMMIT_DIFFERS,
    COMMIT_INCOMPLETE,
    COMMIT_STATES,
    FENCED,
    FINISHED,
    INVALID_ARGUMENT,
    STALE_REQUEST,
    TOO_MANY_PARTITIONS,
    TOO_MANY_TRANSACTIONS,
    TOPIC_GONE,
    TRANSACTION_ABORTED,
    TRANSACTION_COMMITTED,
    TRANSACTION_ENDED,
    TRANSACTION_OPEN,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNKNOWN_TRANSACTION,
    Expected,
    Holder,
    Marker,
    Published,
    Refused,
    TransactionState,
)

MAX_OPEN = 10_000
MAX_PARTITIONS = 10_000  # of one transaction
# Rows of ended transactions are kept until all before them have ended; at most so many.
MAX_BEHIND = 100_000
MIN_IDLE_MS, MAX_TOTAL_MS = 1000, 24 * 3600 * 1000


class Coordinator:
    """Transactions of the cluster."""

    def __init__(self, *, max_open: int = MAX_OPEN, max_behind: int = MAX_BEHIND) -> None:
        self._max_open = max_open
        self._max_behind = max_behind
        self._next = 1
        self._rows: dict[int, TransactionRow] = {}
        self._unfinished: OrderedDict[int, TransactionRow] = OrderedDict()  # in rising order
        self._decided: dict[int, TransactionRow] = {}  # a part of `_unfinished`
        self._open = 0
        self._owners: dict[str, NameOwner] = {}
        self.sinks = Sinks()
        self.aborts: Counter[str] = Counter()  # by reason; for metrics, not part of the state

    # -- looking at it ------------------------------------------------------------------

    @property
    def open_low(self) -> int:
        """The number below which all transactions have ended in all partitions."""
        return next(iter(self._unfinished), self._next)

    @property
    def next_id(self) -> int:
        """The number of the next transaction."""
        return self._next

    @property
    def is_new(self) -> bool:
        """Whether no transaction was ever begun."""
        return self._next == 1 and not any(True for _ in self.sinks)

    @property
    def open_count(self) -> int:
        return self._open

    def get(self, transaction_id: int) -> TransactionRow | None:
        """Returns a transaction that is not forgotten."""
        return self._rows.get(transaction_id)

    @property
    def remembered(self) -> int:
        """The count of numbers from the oldest unended transaction on; limited (`max_behind`)."""
        return self._next - self.open_low

    def is_forgotten(self, transaction_id: int) -> bool:
        """Whether it was begun once, has ended, and its outcome is no longer kept."""
        return 0 < transaction_id < self._next and transaction_id not in self._rows

    def is_unheard(self, transaction_id: int) -> bool:
        """Whether another node may know it: here it was not begun."""
        return transaction_id not in self._rows and not self.is_forgotten(transaction_id)

    def is_open(self, transaction_id: int) -> bool:
        """Whether it has not ended in all its partitions."""
        return transaction_id in self._unfinished

    def unfinished(self) -> Iterator[TransactionRow]:
        """Yields open and decided transactions, the oldest first."""
        return iter(self._unfinished.values())

    @property
    def has_decided(self) -> bool:
        return bool(self._decided)

    @property
    def has_aborting(self) -> bool:
        return any(row.state is TransactionState.ABORTING for row in self._decided.values())

    def decided(self) -> list[TransactionRow]:
        """Returns transactions with an outcome that some partitions do not know yet."""
        return list(self._decided.values())

    def owner(self, name: str) -> NameOwner | None:
        """Returns the last transaction of a producer's name, and who began it."""
        return self._owners.get(name)

    def open_of(self, owner: str) -> TransactionRow | None:
        """Returns the open transaction of a producer's name."""
        known = self._owners.get(owner)
        row = self._rows.get(known.last_id) if known is not None else None
        return row if row is not None and row.state is TransactionState.OPEN else None

    def marker(self, row: TransactionRow, group: int, stamp_ms: int) -> Marker:
        """Returns the marker that ends a decided transaction in one of its partitions."""
        assert (
            row.state in (TransactionState.COMMITTING, TransactionState.ABORTING)
            and group in row.parts
        )
        committed = row.state is TransactionState.COMMITTING
        expected = tuple(run for run in row.expected if run.group == group)
        return Marker(row.transaction_id, committed, expected, stamp_ms, self.open_low)

    # -- commands: begin ----------------------------------------------------------------

    def begin(
        self,
        owner: str,
        holder: Holder,
        nonce: int,
        *,
        now_ms: int,
        idle_ms: int,
        total_ms: int,
        after: int = 0,
        knows_end: bool = True,
    ) -> TransactionRow:
        """Begins a transaction of a name's holder; the caller has compared the name's epoch.

        Nonces of one holder rise. A repeat of the last one returns the same transaction again, in
        any state; a lower one came late and begins nothing. `after`: the transaction committed by
        the same command. It is remembered until the next begin. `knows_end`: the holder names each
        transaction. Else its last one must not have been aborted by another without its knowledge:
        the rest of that would go into the new one.
        """
        known = self._owners.get(owner)
        if known is not None and known.holder == holder:
            if nonce == known.nonce:
                return self._rows[known.last_id]
            if nonce < known.nonce:
                text = f"nonce: {nonce} came after {known.nonce}, which began another transaction"
                raise Refused(STALE_REQUEST, text, known.last_id)
            last = self._rows[known.last_id]
            if not knows_end and last.state in ABORT_STATES and last.reason != BY_OWNER:
                raise self._not_open(known.last_id)
        before = self.open_of(owner)
        if before is not None:
            text = f"{owner!r} has transaction {before.transaction_id} open"
            raise Refused(TRANSACTION_OPEN, text, before.transaction_id)
        self._check_room(idle_ms, total_ms)
        row = TransactionRow(self._next, owner, False, holder, now_ms, idle_ms, total_ms)
        self._add(row)
        self._owners[owner] = NameOwner(holder, nonce, row.transaction_id, after)
        if known is not None:
            self._forget(known.before_id)
            self._forget(known.last_id)
        return row

    def draw_ticket(self, key: str, *, jobs: bool) -> int:
        """Returns the number of a sink's next run; fences nothing yet."""
        return self.sinks.draw_ticket(key, jobs=jobs)

    def begin_batch(self, asked: Asked, *, now_ms: int, total_ms: int) -> BatchBegun:
        """Begins a sink's batch for all its tasks, unless it is committed already.

        A ticket above the last one aborts the open transaction of older runs. A sink's next batch
        begins when the one before has ended in all partitions: its producers are new each time, so
        nothing else would keep the order.
        """
        sink = self.sinks.admit(asked)
        last = self._rows.get(sink.last_id)
        if last is not None and (asked.ticket, asked.batch) == (sink.ticket, sink.batch):
            if last.state is TransactionState.OPEN:
                return BatchBegun(last)
            if last.state in ABORT_STATES:
                raise self._not_open(last.transaction_id)
        refusal = self.sinks.refusal(asked, sink)
        overruled = self.sinks.overrules(asked, sink, refusal)
        if refusal is not None and not overruled:
            raise refusal
        already = sink.has(asked.batch) and not overruled
        if not already:
            self._check_room(total_ms, total_ms)
        # No refusal is possible from here on.
        self.sinks.fence(asked, sink)
        if last is not None and last.state is TransactionState.OPEN:
            self._abort(last, BY_FENCE)
        if already:
            return BatchBegun(None, sink.committed_records, sink.committed_digest)
        if last is not None and last.state not in FINISHED:
            return BatchBegun(None, busy=True)
        if overruled:
            self.sinks.reset(sink)
        row = TransactionRow(self._next, asked.key, True, Holder(0, 0), now_ms, total_ms, total_ms)
        self._add(row)
        before = sink.last_id
        self.sinks.begun(asked, sink, row.transaction_id)
        self._forget(before)
        for transaction_id in self.sinks.forget_nameless(self._is_over):
            self._forget(transaction_id)
        return BatchBegun(row)

    def _is_over(self, transaction_id: int) -> bool:
        row = self._rows.get(transaction_id)
        return row is None or row.state in FINISHED

    def check_committed(self, asked: Asked, records: int, digest: int) -> TransactionRow | None:
        """Returns the sink's newest transaction, if the batch is committed with these rows.

        Changes nothing. Raises Refused.
        """
        sink = self.sinks.get(asked.key)
        if sink is None or not sink.has(asked.batch):
            text = f"batch {asked.batch} of sink {asked.key!r} is not committed"
            raise Refused(COMMIT_INCOMPLETE, text)
        if not sink.jobs and (records, digest) != (sink.committed_records, sink.committed_digest):
            raise self.sinks.changed(asked, sink)
        return self._rows.get(sink.last_id)

    def reset_sink(self, key: str) -> None:
        """Resets a sink for an operator: any query may write any next batch. Runs are fenced."""
        sink = self.sinks.get(key)
        if sink is None:
            raise Refused(UNKNOWN_TRANSACTION, f"there is no sink {key!r}")
        last = self.open_in(key)
        if last is not None:
            self._abort(last, BY_RESET)
        ticket = self.sinks.draw_ticket(key, jobs=sink.jobs)
        self.sinks.fence(Asked(key, "", "an operator", ticket, 0, sink.jobs), sink)
        self.sinks.reset(sink)
        sink.free = True

    def open_in(self, key: str) -> TransactionRow | None:
        """Returns the open transaction of a sink."""
        row = self._rows.get(self.sinks.last_id(key))
        return row if row is not None and row.state is TransactionState.OPEN else None

    def _check_room(self, idle_ms: int, total_ms: int) -> None:
        if not MIN_IDLE_MS <= idle_ms <= total_ms <= MAX_TOTAL_MS:
            text = (
                f"idle and total time: {idle_ms} and {total_ms} ms are not"
                f" {MIN_IDLE_MS} <= idle <= total <= {MAX_TOTAL_MS}"
            )
            raise Refused(INVALID_ARGUMENT, text)
        if self._open >= self._max_open:
            text = f"{self._max_open} transactions are open, which is the limit"
            raise Refused(TOO_MANY_TRANSACTIONS, text)
        if self._next - self.open_low >= self._max_behind:
            oldest = next(iter(self._unfinished.values()))
            text = (
                f"{self._max_behind} transactions began after {oldest.transaction_id} of"
                f" {oldest.owner!r}, which has not ended; that is the limit"
            )
            raise Refused(TOO_MANY_TRANSACTIONS, text, oldest.transaction_id)

    def _add(self, row: TransactionRow) -> None:
        self._rows[row.transaction_id] = self._unfinished[row.transaction_id] = row
        self._next += 1
        self._open += 1

    # -- commands: while it is open -----------------------------------------------------

    def register(
        self,
        transaction_id: int,
        holder: Holder | None,
        groups: Collection[int],
        exists: Callable[[int], bool],
    ) -> TransactionRow:
        """Registers partitions that may have staged batches of the transaction from now on.

        No leader stages a batch before this, so each partition with a run gets a marker. `holder`:
        of the batch that asks; None: a client ahead of time.
        """
        row = self._existing(transaction_id)
        if row is None or row.state is not TransactionState.OPEN:
            raise self._not_open(transaction_id)
        self._check_holder(row, holder)
        for group in groups:
            if not exists(group):
                raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"group {group} is not a partition")
        count = len(row.parts.keys() | set(groups))
        if count > MAX_PARTITIONS:
            text = f"transaction {transaction_id} has {count} partitions, max {MAX_PARTITIONS}"
            raise Refused(TOO_MANY_PARTITIONS, text)
        for group in sorted(groups):
            row.parts.setdefault(group, Participant())
        return row

    def _not_open(self, transaction_id: int) -> Refused:
        row = self._rows.get(transaction_id)
        if row is None:
            text = f"transaction {transaction_id} has ended; repeat its commit to learn how"
            return Refused(TRANSACTION_ENDED, text, transaction_id)
        if row.state in COMMIT_STATES:
            text = f"transaction {transaction_id} was committed"
            return Refused(TRANSACTION_ENDED, text, transaction_id)
        text = f"transaction {transaction_id} was aborted: {row.reason}"
        return Refused(TRANSACTION_ABORTED, text, transaction_id)

    def _existing(self, transaction_id: int) -> TransactionRow | None:
        """Returns the transaction; None: it has ended and is forgotten."""
        if not 0 < transaction_id < self._next:
            text = f"transaction {transaction_id} was never begun"
            raise Refused(UNKNOWN_TRANSACTION, text, transaction_id)
        return self._rows.get(transaction_id)

    @staticmethod
    def _check_holder(row: TransactionRow, holder: Holder | None) -> None:
        if holder is None or row.sink or holder == row.holder:
            return
        same = holder.producer_id == row.holder.producer_id
        reason = FENCED if same and holder.epoch < row.holder.epoch else INVALID_ARGUMENT
        text = f"transaction {row.transaction_id} was begun by {row.holder}, not {holder}"
        raise Refused(reason, text, row.transaction_id)

    # -- commands: the decision ---------------------------------------------------------

    def commit(
        self,
        transaction_id: int,
        holder: Holder | None,
        expected: Sequence[Expected],
        checked: int,
        *,
        records: int = 0,
        digest: int = 0,
    ) -> TransactionRow:
        """Decides to commit. The returned state has the outcome, which may be an abort.

        `expected` are the runs to publish, in that order, as the leaders of `checked` partitions
        have confirmed them. If another partition was registered since, the check must be made
        again. A deleted partition aborts the transaction. `records`, `digest`: of a sink's batch,
        to recognize it later.
        """
        row = self._existing(transaction_id)
        if row is None:
            text = f"transaction {transaction_id} has ended, its outcome is not kept any more"
            raise Refused(UNKNOWN_TRANSACTION, text, transaction_id)
        self._check_holder(row, holder)
        if row.state in COMMIT_STATES:
            if not row.is_of(expected):
                text = f"transaction {transaction_id} was committed with other runs than these"
                raise Refused(COMMIT_DIFFERS, text, transaction_id)
            return row
        if row.state is not TransactionState.OPEN:
            raise self._not_open(transaction_id)
        row.check_expected(expected)
        if checked != len(row.parts):
            text = f"{checked} partitions were checked, {len(row.parts)} are registered"
            raise Refused(CHECK_AGAIN, text, transaction_id)
        if any(part.gone for part in row.parts.values()):
            self._abort(row, TOPIC_GONE)
            return row
        row.expected = tuple(expected)
        self._decide(row, TransactionState.COMMITTING)
        if row.sink:
            self.sinks.committed(row.owner, records, digest)
        return row

    def abort(
        self, transaction_id: int, holder: Holder | None, reason: str, *, acknowledged: bool = False
    ) -> TransactionRow:
        """Decides to abort. Repeats are fine; an earlier commit stays.

        `acknowledged`: a holder that names no transaction knows of the abort, whoever decided it.
        """
        row = self._existing(transaction_id)
        if row is None:
            raise self._not_open(transaction_id)
        self._check_holder(row, holder)
        if row.state in COMMIT_STATES:
            text = f"transaction {transaction_id} was committed, nothing is undone"
            raise Refused(TRANSACTION_COMMITTED, text, transaction_id)
        if row.state is TransactionState.OPEN:
            self._abort(row, reason)
        elif acknowledged:
            row.reason = reason
        return row

    def fence(self, owner: str, holder: Holder) -> None:
        """Aborts the open transactions of the name's earlier holders."""
        row = self.open_of(owner)
        if row is not None and row.holder != holder:
            self._abort(row, BY_FENCE)

    def _abort(self, row: TransactionRow, reason: str) -> None:
        row.reason = reason
        self.aborts[reason] += 1
        self._decide(row, TransactionState.ABORTING)

    def _decide(self, row: TransactionRow, state: TransactionState) -> None:
        assert row.state is TransactionState.OPEN, "an outcome never changes"
        row.state = state
        self._decided[row.transaction_id] = row
        self._open -= 1
        self._finish(row)

    # -- commands: the end --------------------------------------------------------------

    def markers_done(self, transaction_id: int, done: Mapping[int, Sequence[Published]]) -> None:
        """Notes groups where markers were applied, and the records published there."""
        row = self._rows.get(transaction_id)
        if row is None or row.state in FINISHED:
            return
        assert row.state is not TransactionState.OPEN, "a marker is written after the decision"
        for group, runs in done.items():
            part = row.parts[group]
            if not part.done:
                part.done, part.runs = True, tuple(runs)
        self._finish(row)

    def groups_gone(self, groups: Collection[int]) -> None:
        """Notes deleted partitions: no marker can be written there any more."""
        for row in list(self._unfinished.values()):
            for group in row.parts.keys() & groups:
                part = row.parts[group]
                part.gone = part.gone or not part.done
                part.done = True
            if row.state is not TransactionState.OPEN:  # else its commit notices
                self._finish(row)

    def _finish(self, row: TransactionRow) -> None:
        if not all(part.done for part in row.parts.values()):
            return
        row.state = (
            TransactionState.COMMITTED
            if row.state is TransactionState.COMMITTING
            else TransactionState.ABORTED
        )
        before = self.open_low
        del self._unfinished[row.transaction_id], self._decided[row.transaction_id]
        for transaction_id in range(before, self.open_low):
            self._forget(transaction_id)

    def _forget(self, transaction_id: int) -> None:
        """Forgets a transaction that ended everywhere, unless its owner may ask for it."""
        row = self._rows.get(transaction_id)
        if row is None or transaction_id >= self.open_low:
            return
        kept: tuple[int, ...] = ()
        if row.sink:
            kept = (self.sinks.last_id(row.owner),)
        elif (owner := self._owners.get(row.owner)) is not None:
            kept = (owner.last_id, owner.before_id)
        if transaction_id not in kept:
            del self._rows[transaction_id]

    def forget_owner(self, owner: str) -> None:
        """Forgets a name that the metadata forgot: its open transaction is aborted."""
        row = self.open_of(owner)
        if row is not None:
            self._abort(row, BY_FENCE)
        gone = self._owners.pop(owner, None)
        if gone is not None:
            self._forget(gone.before_id)
            self._forget(gone.last_id)

    # -- saved states -------------------------------------------------------------------

    def pieces(self) -> Iterator[bytes]:
        """Returns a CoordinatorSnapshot; equal states give equal bytes."""
        rows = (self._rows[transaction_id] for transaction_id in sorted(self._rows))
        return records.packed(self._next, rows, self._owners, self.sinks)

    def load(self, data: bytes) -> None:
        """Replaces the state by bytes of `pieces`. Raises ValueError and changes nothing."""
        saved = records.unpack(data)
        self._next = saved.next_id
        self._owners = saved.owners
        self.sinks = saved.sinks
        self._rows = saved.rows
        self._unfinished = OrderedDict(
            (i, row) for i, row in saved.rows.items() if row.state not in FINISHED
        )
        self._decided = {
            i: r for i, r in self._unfinished.items() if r.state is not TransactionState.OPEN
        }
        self._open = sum(row.state is TransactionState.OPEN for row in self._unfinished.values())
