"""Transaction state at its producer: staged records, failures, and its end. Pure.

Place in the flow: `transactions` begins it and makes the calls; `partition` notes staged batches
here; batches and deliveries point to it. Its states:

    OPEN --commit--> COMMITTING --answer--> COMMITTED
     |                   | refused: an earlier call, without an answer, may have decided
     +------abort--> ABORTING ---answer---> ABORTED
                         '-- "it was committed" --> COMMITTING: ask for the places

No outcome is guessed. An unanswered call is repeated unchanged until an answer comes; the
coordinator's answer is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from oncelog import errors
from oncelog.types import CommittedTransaction, PublishedRun, TopicPartition


class TransactionPhase(Enum):
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"
    # It has ended with a forgotten outcome: only if its name was given up in the meantime.
    UNKNOWN = "unknown"


OVER = (TransactionPhase.COMMITTED, TransactionPhase.ABORTED, TransactionPhase.UNKNOWN)


class Call(Enum):
    COMMIT = "commit"
    ABORT = "abort"


class StagedRun:
    """Records of the transaction in one partition; with their place, once it is committed."""

    __slots__ = ("base_offset", "last_sequence", "record_count")

    def __init__(self) -> None:
        self.record_count = 0
        self.last_sequence = -1
        self.base_offset = -1


class StagedOffsets:
    """Offsets that the transaction has staged for one group."""

    __slots__ = ("last_number", "offset_count")

    def __init__(self) -> None:
        self.last_number = 0
        self.offset_count = 0


class ProducerTransaction:
    """One transaction from begin to end. `failure`: why it can no longer be committed."""

    def __init__(
        self, transaction_id: int, producer_id: int, epoch: int, idle_timeout_s: float
    ) -> None:
        assert transaction_id > 0 and producer_id > 0
        self.transaction_id = transaction_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.idle_timeout_s = idle_timeout_s
        self.state = TransactionPhase.OPEN
        self.runs: dict[TopicPartition, StagedRun] = {}
        self.offsets: dict[str, StagedOffsets] = {}
        self.failure: errors.OncelogError | None = None
        self.result: CommittedTransaction | None = None
        self._asked_to_commit = False
        self._in_doubt = False  # an unanswered commit call may have decided
        self._refusal: errors.OncelogError | None = None
        self._was_committed = False

    def is_over(self) -> bool:
        return self.state in OVER

    # --- staging -----------------------------------------------------------------------

    def run(self, tp: TopicPartition) -> StagedRun:
        return self.runs.setdefault(tp, StagedRun())

    def staged(self, tp: TopicPartition, records: int, last_sequence: int) -> None:
        """Note a batch on disks of a majority. Batches of a partition come in any order."""
        run = self.run(tp)
        run.record_count += records
        run.last_sequence = max(run.last_sequence, last_sequence)

    def fail(self, error: errors.OncelogError) -> None:
        """Note that some of it is lost: it must not be committed. The first failure counts."""
        if self.failure is None and self.state is TransactionPhase.OPEN:
            self.failure = error

    def refusal(self) -> errors.TransactionAbortedError:
        """Return the error for calls after the transaction has failed."""
        assert self.failure is not None
        refused = errors.TransactionAbortedError(
            f"transaction {self.transaction_id} cannot be committed: {self.failure}"
        )
        refused.__cause__ = self.failure
        return refused

    def check_open(self) -> None:
        """Raises the error for calls that go on with it."""
        if self.failure is not None:
            raise self.refusal()
        if self.state is not TransactionPhase.OPEN:
            raise errors.InvalidRequestError(
                f"transaction {self.transaction_id} is {self.state.value}", field="transaction"
            )

    # --- ending ------------------------------------------------------------------------

    def end(self, call: Call) -> Call:
        """Note the end that the application asks for; returns the call to make."""
        assert not self.is_over(), "a transaction ends once"
        if call is Call.COMMIT:
            assert self.failure is None, "a failed transaction is aborted"
            self.state = TransactionPhase.COMMITTING
            self._asked_to_commit = True
        else:
            self.state = TransactionPhase.ABORTING
        return call

    def answered(self, call: Call, error: errors.OncelogError | None) -> Call | None:
        """Note an answer; returns the next call, None if there is none to make."""
        if isinstance(error, errors.RetriableError):
            self._in_doubt |= call is Call.COMMIT
            return call
        if call is Call.COMMIT:
            return self._commit_answered(error)
        return self._abort_answered(error)

    def note_doubt(self) -> None:
        """Note a commit call without a clear answer."""
        self._in_doubt = True

    def _commit_answered(self, error: errors.OncelogError | None) -> Call | None:
        if error is None:
            self.state = TransactionPhase.COMMITTED
            return None
        self._refusal = self._refusal or error
        unknown = isinstance(error, errors.UnknownTransactionError)
        if isinstance(error, errors.TransactionAbortedError) or (unknown and not self._in_doubt):
            self.state = TransactionPhase.ABORTED
            return None
        if self._was_committed:
            # It is committed, but the places of its records are forgotten.
            self.state = TransactionPhase.COMMITTED
            return None
        if unknown:
            self.state = TransactionPhase.UNKNOWN
            return None
        # Rejected; yet an earlier, unanswered call may have been granted.
        self.state = TransactionPhase.ABORTING
        return Call.ABORT

    def _abort_answered(self, error: errors.OncelogError | None) -> Call | None:
        if isinstance(error, errors.TransactionCommittedError) and self._asked_to_commit:
            self._was_committed = True
            self._refusal = None
            self.state = TransactionPhase.COMMITTING
            return Call.COMMIT
        if error is None or not self._asked_to_commit:
            # Without a commit call it is never readable: if it cannot be aborted now, it is aborted
            # after its idle time.
            self.state = TransactionPhase.ABORTED
            return None
        self._refusal = self._refusal or error
        ended = errors.TransactionEndedError | errors.UnknownTransactionError
        self.state = (
            TransactionPhase.UNKNOWN if isinstance(error, ended) else TransactionPhase.ABORTING
        )
        return None

    def error(self) -> errors.OncelogError:
        """Return the reason why a requested commit did not happen."""
        if self.failure is not None and self._refusal is None:
            if isinstance(self.failure, errors.ProducerFatalError):
                return self.failure
            return self.refusal()
        error = self._refusal or errors.TransactionAbortedError(
            f"transaction {self.transaction_id} was aborted"
        )
        if self.state is TransactionPhase.UNKNOWN and isinstance(
            error, errors.UnknownTransactionError
        ):
            hint = "how it ended is forgotten: resolve() of one of its records tells"
            error = errors.UnknownTransactionError(f"{error.message}; {hint}")
        elif self.state is TransactionPhase.ABORTED and isinstance(
            error, errors.UnknownTransactionError
        ):
            # No commit call of ours had a chance, and its name has begun another since.
            error = errors.TransactionAbortedError(error.message)
        if isinstance(error, errors.DeliveryError):
            error.outcome = (
                "unknown" if self.state is not TransactionPhase.ABORTED else "not_stored"
            )
        return error

    def published(self, places: Mapping[TopicPartition, PublishedRun]) -> CommittedTransaction:
        """Note that it is committed, with the places of its records."""
        assert self.state is TransactionPhase.COMMITTED
        for tp, place in places.items():
            self.run(tp).base_offset = place.base_offset
        self.result = CommittedTransaction(self.transaction_id, dict(places))
        return self.result
