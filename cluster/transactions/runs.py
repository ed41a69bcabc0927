"""Staged runs of one partition: batches of transactions that nobody can read yet.

    staged batch --check, stage--> RunTable --mark--> LastSeen, offsets
    plain batch  --check_plain---'

The table is part of a partition's replicated state: it changes only when an entry is applied, from
nothing but the entry and the state before it. A run is everything that one producer staged under
one transaction. Its batches have offsets that count from the run's first record; the marker of a
commit makes them real, an abort drops them. The rules:

* A transaction that ended here is remembered (`ended`) until it has ended everywhere (`open_low`).
  So a copy of a staged batch that comes after the marker is refused.
* One chain of sequences for each producer, plain and staged: a run begins at the producer's last
  sequence, and an abort leaves that as it was before the transaction.
* A client of Kafka's protocol never sends the sequences of an aborted run again, so an abort of
  such a run uses them up. A run holds batches of one protocol only.
* The first batch of a run under a higher epoch fences the lower ones, as an open does. An abort
  does not undo that.
* A commit publishes exactly the prefix that its decision names. Batches that came into a run after
  the check before the decision are dropped.
* A commit publishes all of a run of Kafka's protocol, named or not. Its client names no
  transaction: a delayed call may decide it while the client's batches are still acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.record import ReadableRun as PublishedChain
from cluster.dedup.verdict import (
    BatchMeta,
    Kind,
    Verdict,
    conflict,
    fenced,
    judge,
    out_of_order,
    same_content,
)
from cluster.entries import CorruptEntryError
from cluster.transactions.run import Ended, Run
from cluster.transactions.run_records import pack_ended, pack_runs, unpack_ended, unpack_runs
from cluster.transactions.types import Expected, Marker, Published

# A plain batch may get these verdicts also while its producer has an open run.
_BEFORE_CONFLICT = (Kind.DUPLICATE, Kind.FENCED, Kind.SEQUENCE_CONFLICT)


class MarkedRun(NamedTuple):
    """A published run: `expected` of it, the first record at `base_offset`."""

    run: Run
    expected: Expected
    base_offset: int


class Marked(NamedTuple):
    """Result of a marker. `repeated`: the transaction had ended before, nothing changed."""

    ended: Ended
    repeated: bool = False
    published: tuple[MarkedRun, ...] = ()
    dropped: tuple[Run, ...] = ()


class RunTable:
    """Open runs, ended transactions, and the number below which all have ended."""

    def __init__(self) -> None:
        self._open_low = 1
        self.by_producer: dict[int, Run] = {}  # the open runs; read only
        self._of: dict[int, dict[int, Run]] = {}  # transaction -> producer id -> run
        # As bytes of an EndedRecord, made once: a checkpoint only joins them.
        self._ended: dict[int, bytes] = {}
        # How far back in the Raft log published runs begin: for each power of two of entries
        # between a run's first one and its marker the last offset of the newest such run.
        self._spans: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.by_producer)

    # -- looking at it ------------------------------------------------------------------

    @property
    def open_low(self) -> int:
        """The number below which all transactions have ended in all partitions."""
        return self._open_low

    def run_of(self, producer_id: int) -> Run | None:
        """Returns the open run of a producer. It has at most one."""
        return self.by_producer.get(producer_id)

    def may_publish(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether the sequence is staged, so that a commit's marker may still publish it."""
        run = self.by_producer.get(producer_id)
        return run is not None and run.epoch == epoch and run.first <= sequence <= run.last

    def open(self) -> Iterator[Run]:
        return iter(self.by_producer.values())

    def transactions(self) -> Iterator[int]:
        """Yields transactions with an open run here."""
        return iter(self._of)

    def staged(self, transaction_id: int) -> Iterator[Run]:
        """Yields a transaction's open runs here."""
        return iter(self._of.get(transaction_id, {}).values())

    def ended(self, transaction_id: int) -> Ended | None:
        """Returns a transaction's end here; None: it has not ended, or everywhere and long ago."""
        data = self._ended.get(transaction_id)
        return None if data is None else unpack_ended(data)

    def over(self, transaction_id: int) -> Verdict | None:
        """Returns why a transaction can stage nothing more here; None: it may be open."""
        ended = self.ended(transaction_id)
        if ended is None:
            return _ended_unknown(transaction_id) if transaction_id < self._open_low else None
        if ended.committed:
            return _ended_unknown(transaction_id)
        text = f"transaction {transaction_id} was aborted"
        return Verdict(Kind.TRANSACTION_ABORTED, message=text)

    @property
    def is_new(self) -> bool:
        """Whether no transaction was ever here."""
        return self._open_low == 1 and not (self.by_producer or self._ended or self._spans)

    def oldest_needed(self, first_index: int, log_start: int) -> int:
        """Returns the oldest needed Raft entry; `first_index` has the first kept batch.

        Offsets do not rise with entries: a batch that was staged long before its marker has a
        higher offset than plain batches that came after it. A run after the first kept batch was
        published after that batch's entry, so it begins at most the longest span before it. Open
        runs need all entries from their first batch on.
        """
        spans = [bits for bits, last_offset in self._spans.items() if last_offset >= log_start]
        oldest = first_index - (1 << max(spans)) if spans else first_index
        return min([oldest, *(run.first_index for run in self.by_producer.values())])

    # -- verdicts -----------------------------------------------------------------------

    def check(
        self,
        meta: BatchMeta,
        transaction_id: int,
        last_seen: LastSeen,
        *,
        new_in_flight: int = -1,
    ) -> Verdict:
        """Returns the verdict on a valid staged batch against the applied state; changes nothing.

        STAGED and STAGED_DUPLICATE carry as `base_offset` the offset in the run (-1: no longer
        known). `new_in_flight` as in LastSeen.check.
        """
        assert transaction_id > 0 and meta.producer_id > 0
        ended = self.ended(transaction_id)
        if ended is not None:
            return _judge_ended(ended, meta, transaction_id, last_seen)
        if transaction_id < self._open_low:
            return _ended_unknown(transaction_id)
        known = last_seen.known(meta.producer_id)
        if known is not None and meta.epoch < known.epoch:
            return fenced(meta.epoch, known.epoch)
        run = self.by_producer.get(meta.producer_id)
        if run is None:
            return self._judge_first(meta, last_seen, new_in_flight)
        if transaction_id > run.transaction_id:
            return _conflict(run)
        if transaction_id < run.transaction_id:
            return _ended_unknown(transaction_id)
        return judge_run(run, meta)

    def _judge_first(self, meta: BatchMeta, last_seen: LastSeen, new_in_flight: int) -> Verdict:
        if new_in_flight >= 0:
            new_in_flight += len(self.by_producer)
        verdict = last_seen.check(
            meta._replace(expected_offset=-1), next_offset=0, new_in_flight=new_in_flight
        )
        if verdict.kind is Kind.APPENDED:
            return Verdict(Kind.STAGED, base_offset=0)
        if verdict.kind is Kind.DUPLICATE:
            # A repeat of a staged batch carries its own transaction, which has ended.
            known = last_seen.known(meta.producer_id)
            assert known is not None
            what = f"sequences {meta.first}..{meta.last} are stored outside of the transaction"
            return out_of_order(known.last_sequence, known.epoch, what)
        return verdict

    def check_plain(self, meta: BatchMeta, verdict: Verdict) -> Verdict:
        """Returns the verdict on a plain batch, given its verdict without open runs."""
        run = self.by_producer.get(meta.producer_id)
        if run is None or verdict.kind in _BEFORE_CONFLICT:
            return verdict
        return _conflict(run)

    # -- apply --------------------------------------------------------------------------

    def stage(
        self,
        meta: BatchMeta,
        transaction_id: int,
        last_seen: LastSeen,
        *,
        index: int,
        size: int,
        max_timestamp_us: int,
        time_ms: int,
        pin: bool = False,
    ) -> int:
        """Takes a batch with the verdict STAGED of `check`; returns its offset in the run."""
        run = self.by_producer.get(meta.producer_id)
        if run is None:
            self._fence_below(meta, last_seen, time_ms, pin)
            run = Run(
                transaction_id,
                meta.producer_id,
                meta.epoch,
                meta.first,
                meta.first,
                index,
                kafka=meta.kafka,
            )
            self._put(run)
        return run.add(meta, size, max_timestamp_us)

    @staticmethod
    def _fence_below(meta: BatchMeta, last_seen: LastSeen, time_ms: int, pin: bool) -> None:
        """Fences lower epochs from the first staged batch on, even if that is dropped later."""
        known = last_seen.known(meta.producer_id)
        before = -1 if known is None else known.epoch
        if meta.epoch > max(before, 0) or (pin and known is None):
            verdict = last_seen.open(meta.producer_id, meta.epoch, time_ms, pin=pin)
            assert verdict.kind is Kind.APPENDED, verdict

    def mark(
        self,
        marker: Marker,
        last_seen: LastSeen,
        *,
        index: int,
        next_offset: int,
        time_ms: int,
    ) -> Marked:
        """Ends a transaction here: publishes its runs from `next_offset` on, or drops them."""
        known = self.ended(marker.transaction_id)
        if known is not None or marker.transaction_id < self._open_low:
            self._raise_open_low(marker.open_low)
            return Marked(known or Ended(marker.committed), repeated=True)
        runs = self._of.pop(marker.transaction_id, {})
        for producer_id in runs:
            del self.by_producer[producer_id]
        published = []
        for expected in _due(marker, runs) if marker.committed else ():
            run = runs.pop(expected.producer_id)
            published.append(MarkedRun(run, expected, next_offset))
            next_offset += expected.records
            self._spans[(index - run.first_index).bit_length()] = next_offset - 1
            last_seen.publish(run.producer_id, _chain_of(published[-1]), time_ms)
        ended = Ended(marker.committed, tuple(map(_published_of, published)))
        self._ended[marker.transaction_id] = pack_ended(marker.transaction_id, ended)
        self._raise_open_low(marker.open_low)
        # In rising order: a loaded table has another order of runs than the saved one.
        dropped = tuple(run for _, run in sorted(runs.items()))
        if not marker.committed:
            _use_up(dropped, last_seen, next_offset, time_ms)
        return Marked(ended, published=tuple(published), dropped=dropped)

    def _put(self, run: Run) -> None:
        self.by_producer[run.producer_id] = run
        self._of.setdefault(run.transaction_id, {})[run.producer_id] = run

    def _raise_open_low(self, open_low: int) -> None:
        if open_low <= self._open_low:
            return
        assert min(self._of, default=open_low) >= open_low, "a finished transaction has no run"
        self._open_low = open_low
        for transaction_id in [t for t in self._ended if t < open_low]:
            del self._ended[transaction_id]

    # -- the check before a decision ----------------------------------------------------

    def confirm(
        self, transaction_id: int, asked: dict[int, tuple[int, int]], *, only_winners: bool
    ) -> dict[int, Expected] | str:
        """Checks that the transaction has exactly these runs: producer id -> (records, last).

        Returns the marker's facts of each run, or the difference as text. `only_winners`: other
        runs may be here, the commit drops them. Only the applied state
        counts: batches in flight may never be applied.
        """
        runs = self._of.get(transaction_id, {})
        found = {}
        for producer_id, (records, last) in asked.items():
            run = runs.get(producer_id)
            if run is None or (run.records, run.last) != (records, last):
                has = (run.records, run.last) if run is not None else "nothing"
                return (
                    f"producer {producer_id} has {has} staged (records, last sequence),"
                    f" the commit says {(records, last)}"
                )
            found[producer_id] = _whole(run)
        others = sorted(runs.keys() - asked.keys())
        if others and not only_winners:
            return f"producers {others[:5]} have staged batches that the commit does not name"
        return found

    def everything(self, transaction_id: int) -> list[Expected]:
        """Returns the marker's facts of all runs that the transaction has here."""
        return [_whole(run) for _, run in sorted(self._of.get(transaction_id, {}).items())]

    # -- saved states -------------------------------------------------------------------

    def dump(self) -> bytes:
        """Returns a RunsSnapshot; equal states give equal bytes."""
        runs = [self.by_producer[producer_id] for producer_id in sorted(self.by_producer)]
        ended = [data for _, data in sorted(self._ended.items())]
        return pack_runs(self._open_low, runs, ended, self._spans)

    @classmethod
    def load(cls, data: bytes) -> RunTable:
        """Loads a table that `dump` wrote. Raises ValueError."""
        table = cls()
        table._open_low, runs, table._ended, table._spans = unpack_runs(data)
        for run in runs:
            table._put(run)
        return table


def _use_up(dropped: Iterable[Run], last_seen: LastSeen, next_offset: int, time_ms: int) -> None:
    """Uses up the sequences of aborted runs of Kafka's protocol."""
    for run in dropped:
        if run.kafka:
            last_seen.use_up(run.producer_id, run.epoch, run.last, next_offset, time_ms)


def _due(marker: Marker, runs: Mapping[int, Run]) -> list[Expected]:
    """Returns what a commit publishes, in order: the named runs, then the rest of Kafka's."""
    due = []
    for expected in marker.expected:
        if expected.consumer_group:
            continue  # offsets have no run
        # The coordinator decides on runs that the leader has confirmed, so they are here.
        run = runs.get(expected.producer_id)
        if run is None or run.records < expected.records or run.last < expected.last:
            text = f"transaction {marker.transaction_id}: {expected} was decided, not {run}"
            raise CorruptEntryError(text)
        due.append(_whole(run) if run.kafka else expected)
    named = {expected.producer_id for expected in due}
    rest = (run for _, run in sorted(runs.items()) if run.kafka)
    return due + [_whole(run) for run in rest if run.producer_id not in named]


def _whole(run: Run) -> Expected:
    return Expected(0, run.producer_id, run.records, run.last, run.size, run.max_timestamp_us)


def judge_run(run: Run, meta: BatchMeta) -> Verdict:
    """Returns the verdict on a batch of the run's transaction and producer."""
    if meta.kafka != run.kafka:
        text = "the transaction's other batches here came by the other protocol"
        return Verdict(Kind.INVALID_BATCH, message=text)
    if meta.epoch < run.epoch:
        return fenced(meta.epoch, run.epoch)
    if meta.epoch > run.epoch:
        return Verdict(
            Kind.INVALID_BATCH,
            message=f"epoch: {meta.epoch}, but the transaction was begun under {run.epoch}",
        )
    verdict = judge(run.known(), meta)
    if verdict is None:
        return Verdict(Kind.STAGED, base_offset=run.records)
    if verdict.kind is Kind.DUPLICATE:
        return verdict._replace(kind=Kind.STAGED_DUPLICATE)
    return verdict


def _judge_ended(
    ended: Ended, meta: BatchMeta, transaction_id: int, last_seen: LastSeen
) -> Verdict:
    """Returns the verdict on a batch of a transaction that ended here: published or not."""
    if not ended.committed:
        text = f"transaction {transaction_id} was aborted"
        return Verdict(Kind.TRANSACTION_ABORTED, message=text)
    run = ended.of(meta.producer_id)
    inside = (
        run is not None
        and meta.epoch == run.epoch
        and run.first <= meta.first
        and meta.last <= run.last
    )
    if run is None or not inside:
        text = f"transaction {transaction_id} was committed without this batch"
        return Verdict(Kind.TRANSACTION_ENDED, message=text)
    known = last_seen.known(meta.producer_id)
    recent = known.recent if known is not None else ()
    for batch in recent:
        # The window may hold batches of a later epoch with these numbers.
        ours = run.base_offset <= batch.base_offset < run.base_offset + run.records
        if ours and (batch.first, batch.last) == (meta.first, meta.last):
            if same_content(batch, meta):
                return Verdict(Kind.DUPLICATE, base_offset=batch.base_offset)
            return conflict(meta, run.last)
    dense = run.records == run.last - run.first + 1
    return Verdict(
        Kind.DUPLICATE, base_offset=run.base_offset + meta.first - run.first if dense else -1
    )


def _ended_unknown(transaction_id: int) -> Verdict:
    text = f"transaction {transaction_id} has ended; repeat its commit to learn how"
    return Verdict(Kind.TRANSACTION_ENDED, message=text)


def _conflict(run: Run) -> Verdict:
    return Verdict(
        Kind.TRANSACTION_CONFLICT,
        message=f"producer {run.producer_id} has batches of transaction {run.transaction_id} here,"
        " which has not ended",
    )


def _chain_of(marked: MarkedRun) -> PublishedChain:
    """Returns the chain of a published run, for the last-seen map."""
    run, expected, base = marked
    recent = tuple(
        batch._replace(base_offset=base + batch.base_offset)
        for batch in run.recent
        if batch.last <= expected.last
    )
    last_offset = base + expected.records - 1
    whole = run.batches == len(run.recent)
    return PublishedChain(run.epoch, run.first, expected.last, last_offset, recent, whole)


def _published_of(marked: MarkedRun) -> Published:
    run, expected, base = marked
    return Published(run.producer_id, run.epoch, run.first, expected.last, base, expected.records)
