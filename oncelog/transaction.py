"""A transaction: records in several partitions that become readable together, or never.

Place in the flow: `Producer.transaction` makes it; records go through the producer as always,
begin and end through `_engine/produce/transactions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from oncelog import errors
from oncelog._engine.arguments import Bytes, Headers
from oncelog._engine.net import runtime
from oncelog._engine.produce.futures import OnDelivery
from oncelog._engine.produce.transaction import ProducerTransaction, State
from oncelog.types import BatchMetadata, CommittedTransaction, RecordMetadata
from oncelog.wire.stored import StoredBatch

if TYPE_CHECKING:
    from oncelog.producer import Producer


class Transaction:
    """One transaction of a producer; as a context manager it commits, or aborts on an error.

        with producer.transaction() as txn:
            txn.send("accounts", b"-10", partition=0)
            txn.send("accounts", b"+10", partition=1)

    While it is open, all that its producer sends belongs to it. The future of a record is done
    when the record is staged: on disks of a majority, and not readable. Its offset is -1 until
    the commit. One transaction of a producer is open at a time.
    """

    def __init__(self, producer: Producer, idle_timeout_ms: int, total_timeout_ms: int) -> None:
        self._producer = producer
        self._times = idle_timeout_ms, total_timeout_ms
        self._begun: ProducerTransaction | None = None

    # --- begin -------------------------------------------------------------------------

    def begin(self) -> Self:
        """Begin it, when all that was sent before is settled.

        Raises FencedError if another producer has taken over the name, TransactionOpenError
        if the one before has not been ended, and RetriableErrors when nobody answers.
        """
        if self._begun is not None:
            raise errors.InvalidRequestError("a transaction is begun once", field="transaction")
        self._producer._check_open()
        self._begun = runtime.run(self._producer._transactions.begin(*self._times))
        return self

    @property
    def transaction_id(self) -> int:
        """Its number, which is never used again; 0 before it is begun."""
        return self._begun.transaction_id if self._begun is not None else 0

    @property
    def state(self) -> str:
        """`new`, `open`, `committing`, `aborting`, `committed`, `aborted` or `unknown`."""
        return self._begun.state.value if self._begun is not None else "new"

    def _known(self) -> ProducerTransaction:
        if self._begun is None:
            raise errors.InvalidRequestError("the transaction is not begun", field="transaction")
        return self._begun

    # --- sending -----------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Bytes | None = None,
        key: Bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        sequence: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """As `Producer.send`. Raises TransactionAbortedError once it cannot be committed."""
        self.check_open()
        return self._producer.send(
            topic,
            value,
            key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            sequence=sequence,
            on_delivery=on_delivery,
        )

    def send_batch(
        self,
        topic: str,
        partition: int,
        batch: Any,
        *,
        sequences: Sequence[int] | Any | None = None,
    ) -> Future[BatchMetadata]:
        """As `Producer.send_batch`."""
        self.check_open()
        return self._producer.send_batch(topic, partition, batch, sequences=sequences)

    def send_stored_batch(
        self, topic: str, partition: int, batch: StoredBatch, *, base_sequence: int | None = None
    ) -> Future[BatchMetadata]:
        """As `Producer.send_stored_batch`."""
        self.check_open()
        return self._producer.send_stored_batch(
            topic, partition, batch, base_sequence=base_sequence
        )

    def check_open(self) -> None:
        """Raises what a further record would be refused with."""
        self._known().check_open()

    # --- ending ------------------------------------------------------------------------

    def commit(self) -> CommittedTransaction:
        """Make all of it readable; returns when it is, with the places.

        Raises, with nothing of it readable: TransactionAbortedError (a record failed, it was
        idle or open for too long, an operator aborted it; FencedError and others that end the
        producer come as themselves). CommitTimeoutError: not known yet, call it again. Again
        after a success, it answers the same.
        """
        transactions = self._producer._transactions
        return runtime.run(transactions.commit(self._known()))

    def abort(self) -> None:
        """Drop all of it. Again, it does nothing.

        Raises TransactionCommittedError if a commit was decided, and CommitTimeoutError if
        nobody answers; it is aborted then when it has been idle for long enough.
        """
        runtime.run(self._producer._transactions.abort(self._known()))

    def __enter__(self) -> Self:
        return self if self._begun is not None else self.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        begun = self._known()
        if error is None:
            if not begun.is_over():
                self.commit()
        elif begun.state is State.OPEN:
            try:
                self.abort()
            except errors.OncelogError as failed:
                error.add_note(f"transaction {begun.transaction_id} was not aborted: {failed}")


__all__ = ["Transaction"]
