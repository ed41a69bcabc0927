"""Staged batches of a leader: checks before a commit, and markers. Lives one leadership.

    services --append--> Leadership --batch of a transaction--> Staging --entry--> Group
    coordinator --confirm, mark--> Partition ------------------>

No batch is staged before the coordinator knows that this partition may have batches of its
transaction: otherwise no marker would come here. This package does not know the coordinator, so it
answers UNREGISTERED for a batch of an unknown transaction. The service then asks, calls
`registered`, and appends again. A new leader knows the transactions with a run here.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.consensus.proposals import Abandoned, Done, Outcome
from cluster.dedup.in_flight import InFlight
from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.partition.machine import PartitionMachine
from cluster.partition.types import Answer, AnswerTo, AppendRequest
from cluster.transactions.in_flight import StagedInFlight
from cluster.transactions.run_records import pack_marker
from cluster.transactions.runs import Marked
from cluster.transactions.types import Marker

MAX_TRANSACTION_BYTES = 16 * 1024**3  # of one run
UNREGISTERED = Verdict(Kind.UNREGISTERED)

Propose = Callable[[bytes, Done], None]


class _Staged:
    """Proposed staged batch, with its sender and the senders of its repeats."""

    __slots__ = ("answer_to", "joined", "size")

    def __init__(self, size: int, answer_to: AnswerTo) -> None:
        self.size = size
        self.answer_to = answer_to
        self.joined: list[AnswerTo] = []


class Staging:
    """Transactions of one leadership.

    plain: its batches without a transaction in flight. propose: gives an entry to the log.
    """

    def __init__(
        self,
        machine: PartitionMachine,
        plain: InFlight,
        propose: Propose,
        *,
        max_bytes: int = MAX_TRANSACTION_BYTES,
    ) -> None:
        self._machine = machine
        self._plain = plain
        self._propose = propose
        self._max_bytes = max_bytes
        self._in_flight = StagedInFlight(machine.runs)
        self._registered = {
            *machine.runs.transactions(),
            *machine.group_offsets.staged.transactions(),
        }
        self._opening: list[tuple[int, int, AnswerTo]] = []
        self.bytes = 0  # in flight
        self.proposed = 0  # entries without an outcome

    def close(self) -> None:
        """Ends the leadership: a new leader answers the waiting opens."""
        opening, self._opening = self._opening, []
        for _, _, answer_to in opening:
            answer_to(Answer(Verdict(Kind.NOT_LEADER)))

    def has(self, producer_id: int) -> bool:
        """Whether staged batches of the producer are in flight."""
        return self._in_flight.has(producer_id)

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Returns the sequence that continues the producer's chain, plain and staged; 0: none."""
        last = self._in_flight.last_sequence(producer_id, epoch)
        if last is None:
            run = self._machine.runs.run_of(producer_id)
            last = run.last if run is not None and run.epoch == epoch else None
        if last is not None:
            return last + 1
        return self._plain.next_sequence(producer_id, epoch)

    def registered(self, transaction_id: int) -> None:
        """Notes that the coordinator knows of a run of the transaction here."""
        self._registered.add(transaction_id)

    def knows(self, transaction_id: int) -> bool:
        """Whether the transaction is known here: registered, or over."""
        return (
            transaction_id in self._registered
            or self._machine.runs.over(transaction_id) is not None
        )

    # -- batches ----------------------------------------------------------------------

    def check(self, request: AppendRequest, *, new_in_flight: int) -> Verdict:
        """Returns the verdict with batches in flight; UNREGISTERED for an unknown transaction."""
        meta, number = request.meta, request.transaction_id
        fault = _fault(meta, number)
        if fault:
            return Verdict(Kind.INVALID_BATCH, message=fault)
        runs = self._machine.runs
        if not self.knows(number):
            return UNREGISTERED
        verdict = self._in_flight.check(
            meta, number, self._machine.producers.last_seen, new_in_flight=new_in_flight
        )
        if verdict.kind is not Kind.STAGED:
            return verdict
        if self._plain.has(meta.producer_id):
            text = "batches or an open of the producer without the transaction are on their way"
            return Verdict(Kind.TRANSACTION_CONFLICT, message=text)
        run = runs.run_of(meta.producer_id)
        size = (run.size if run is not None else 0) + self.bytes + len(request.payload)
        if size > self._max_bytes:
            text = f"payload: the transaction would have {size} bytes here, max {self._max_bytes}"
            return Verdict(Kind.BATCH_TOO_LARGE, message=text)
        return verdict

    def applied(self, request: AppendRequest) -> Verdict:
        """Returns the verdict on the applied state alone."""
        meta, number = request.meta, request.transaction_id
        return self._machine.runs.check(meta, number, self._machine.producers.last_seen)

    def append(self, request: AppendRequest, data: bytes, answer_to: AnswerTo) -> None:
        """Proposes a batch with the verdict STAGED of `check`."""
        staged = _Staged(len(data), answer_to)
        self._in_flight.add(request.meta, request.transaction_id, staged)
        self.bytes += staged.size
        self.proposed += 1
        self._propose(data, lambda outcome: self._done(staged, outcome))

    @staticmethod
    def join(verdict: Verdict, answer_to: AnswerTo) -> None:
        """Joins a repeat to its batch in flight: `verdict` is JOINED."""
        assert isinstance(verdict.token, _Staged)
        verdict.token.joined.append(answer_to)

    def _done(self, staged: _Staged, outcome: Outcome) -> None:
        self.bytes -= staged.size
        self.proposed -= 1
        if isinstance(outcome, Abandoned):
            answer = again = Answer(Verdict(Kind.NOT_LEADER), leader_id=outcome.leader_id)
        else:
            assert isinstance(outcome.result, Answer)
            answer = again = outcome.result
            accepted = answer.verdict.kind is Kind.STAGED
            self._in_flight.applied(staged, accepted)
            if accepted:
                repeated = answer.verdict._replace(kind=Kind.STAGED_DUPLICATE)
                again = Answer(repeated, answer.append_time_ms)
        staged.answer_to(answer)
        for waiter in staged.joined:
            waiter(again)

    # -- the end ----------------------------------------------------------------------

    def mark(self, marker: Marker, stamp_ms: int, done: Callable[[Outcome], None]) -> None:
        """Proposes a marker; its result is a Marked."""

        def applied(outcome: Outcome) -> None:
            self.proposed -= 1
            if not isinstance(outcome, Abandoned):
                assert isinstance(outcome.result, Marked)
                self._marked(marker.transaction_id, outcome.result)
            done(outcome)

        self.proposed += 1
        self._propose(pack_marker(marker._replace(stamp_ms=stamp_ms)), applied)

    def _marked(self, transaction_id: int, marked: Marked) -> None:
        self._registered.discard(transaction_id)
        self._in_flight.ended(transaction_id)
        self._plain.published(sum(run.expected.records for run in marked.published))
        opening, self._opening = self._opening, []
        for producer_id, epoch, answer_to in opening:
            self.answer_open(producer_id, epoch, answer_to)

    def answer_open(self, producer_id: int, epoch: int, answer_to: AnswerTo) -> None:
        """Answers an open after its epoch was raised, once lower epochs have no staged run.

        A run published later would raise the last sequence that the successor learns.
        """
        run = self._machine.runs.run_of(producer_id)
        if run is not None and run.epoch < epoch:
            self._opening.append((producer_id, epoch, answer_to))
            return
        last_seen = self._machine.producers.last_seen
        verdict = last_seen.check_open(producer_id, epoch)
        answer_to(Answer(verdict, self._machine.clock_ms))


def _fault(meta: BatchMeta, transaction_id: int) -> str:
    if transaction_id < 0:
        return f"transaction_id: {transaction_id} is negative"
    if not meta.producer_id:
        return "producer_id: missing, and a transaction needs one"
    if meta.expected_offset >= 0:
        return "expected_offset: not possible in a transaction, its records have no offset yet"
    return ""
