"""A transaction: records in several partitions that become readable together, or never.

Place in the flow: `Producer.transaction` makes it. Its records go through the producer like all
others, begin and end through `_engine/produce/transactions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

from oncelog import errors
from oncelog._engine.arguments import Bytes, Headers, as_commits
from oncelog._engine.net import runtime
from oncelog._engine.produce.futures import OnDelivery
from oncelog._engine.produce.transaction import ProducerTransaction, TransactionPhase
from oncelog._engine.produce.transactions import ProducerTransactions
from oncelog.config import check_name
from oncelog.types import (
    BatchMetadata,
    CommittedTransaction,
    OffsetCommit,
    RecordMetadata,
    TopicPartition,
)
from oncelog.wire.stored import StoredBatch

if TYPE_CHECKING:
    from oncelog.consumer import Consumer
    from oncelog.producer import Producer

Positions = Mapping[tuple[str, int], int | OffsetCommit]


class Transaction:
    """One transaction of a producer; as a context manager it commits, or aborts on an error.

        with producer.transaction() as txn:
            txn.send("accounts", b"-10", partition=0)
            txn.send("accounts", b"+10", partition=1)
            txn.commit_offsets(consumer)  # if it reads input: the offsets read so far

    While it is open, all records of its producer belong to it. The future of a record is done when
    the record is staged: on disks of a majority, and not readable. Its offset is -1 until the
    commit. A producer has at most one open transaction.
    """

    def __init__(self, producer: Producer, idle_timeout_ms: int, total_timeout_ms: int) -> None:
        self._producer = producer
        self._times = idle_timeout_ms, total_timeout_ms
        self._begun: ProducerTransaction | None = None
        self._beginning: asyncio.Task[None] | None = None

    # --- begin -------------------------------------------------------------------------

    def begin(self) -> Self:
        """Begin the transaction when all records sent before are settled.

        Raises FencedError if another producer has taken over the name, TransactionOpenError if the
        previous transaction has not ended, and RetriableErrors if no node answers.
        """
        self._check_new()
        try:
            runtime.run(self._begin())
            self._claim()
        except errors.OncelogError:
            raise  # nothing was begun
        except BaseException:
            runtime.run(self._give_back())
            raise
        return self

    def _check_new(self) -> None:
        if self._begun is not None:
            raise errors.InvalidRequestError("a transaction is begun once", field="transaction")
        self._producer._check_open()

    async def _begin(self) -> None:
        """Begin on the engine's loop. Nothing is sent before the caller claims the transaction."""
        self._beginning = asyncio.current_task()
        self._begun = await self._producer._transactions.begin(*self._times)

    def _claim(self) -> None:
        self._producer._accumulator.resume(self._known())

    async def _give_back(self) -> None:
        """Return an unclaimed transaction after its caller was cancelled; on the engine's loop."""
        if self._beginning is not None:
            await asyncio.wait({self._beginning})
        begun, self._begun = self._begun, None
        if begun is not None:
            self._producer._transactions.give_back(begun)

    @property
    def transaction_id(self) -> int:
        """Transaction number, which is never reused; 0 before it is begun."""
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
        """Send as `Producer.send` does. Raises TransactionAbortedError if it cannot commit."""
        # Inlined `check_open` and `Producer.send`: as few calls for each record as possible.
        begun, producer = self._begun, self._producer
        if begun is None or begun.failure is not None or begun.state is not TransactionPhase.OPEN:
            self.check_open()
        if partition is None and key is None and headers is None and on_delivery is None:
            return producer.send(topic, value, timestamp_ms=timestamp_ms, sequence=sequence)
        return producer._send(
            topic, value, key, headers, partition, timestamp_ms, sequence, None, on_delivery
        )

    def send_batch(
        self,
        topic: str,
        partition: int,
        batch: Any,
        *,
        sequences: Sequence[int] | Any | None = None,
    ) -> Future[BatchMetadata]:
        """Send as `Producer.send_batch` does."""
        self.check_open()
        return self._producer.send_batch(topic, partition, batch, sequences=sequences)

    def send_stored_batch(
        self, topic: str, partition: int, batch: StoredBatch, *, base_sequence: int | None = None
    ) -> Future[BatchMetadata]:
        """Send as `Producer.send_stored_batch` does."""
        self.check_open()
        return self._producer.send_stored_batch(
            topic, partition, batch, base_sequence=base_sequence
        )

    def commit_offsets(self, group: Consumer | str, positions: Positions | None = None) -> None:
        """Commit a group's offsets together with this transaction, or not at all.

        `group`: its name, or a consumer of it. `positions`: the next offset of each partition, by
        default the consumer's own positions. Raises FencedMemberError if another member owns a
        partition now; the transaction can then only be aborted.
        """
        self.check_open()
        consumer = None if isinstance(group, str) else group
        name, commits = positions_of(consumer, group, positions)
        if commits:
            transactions = self._producer._transactions
            staging = stage_offsets(transactions, self._known(), name, commits, consumer)
            runtime.run(staging, whole=True)

    def check_open(self) -> None:
        """Raises the error that a further record would be rejected with."""
        self._known().check_open()

    # --- ending ------------------------------------------------------------------------

    def commit(self) -> CommittedTransaction:
        """Make the transaction readable; return the places of its records when that is done.

        Raises, with none of it readable: TransactionAbortedError (a record failed, it was idle or
        open for too long, an operator aborted it), or FencedError and others that end the producer.
        CommitTimeoutError: the outcome is not known yet, call it again. After a success, a repeated
        call gives the same answer.
        """
        transactions = self._producer._transactions
        return runtime.run(transactions.commit(self._known()), whole=True)

    def abort(self) -> None:
        """Abort the transaction. A repeated call does nothing.

        Raises TransactionCommittedError if the commit was decided. Raises CommitTimeoutError if no
        node answers; the transaction is then aborted after its idle timeout.
        """
        runtime.run(self._producer._transactions.abort(self._known()), whole=True)

    def __del__(self) -> None:
        begun, producer = self._begun, self._producer
        if begun is not None and begun.state is TransactionPhase.OPEN and not producer._closed:
            transactions = producer._transactions
            runtime.end_dropped("a transaction", lambda: transactions.end_dropped(begun))

    def __enter__(self) -> Self:
        return self if self._begun is not None else self.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if runtime.can_close():
            runtime.run(self._leave(error), whole=True)

    async def _leave(self, error: BaseException | None) -> None:
        """End the block, on the engine's loop."""
        transactions, begun = self._producer._transactions, self._known()
        if error is None:
            if not begun.is_over():
                await transactions.commit(begun)
        elif begun.state is TransactionPhase.OPEN:
            try:
                await transactions.abort(begun)
            except errors.OncelogError as failed:
                error.add_note(f"transaction {begun.transaction_id} was not aborted: {failed}")


def positions_of(
    consumer: Consumer | None, group: object, positions: Positions | None
) -> tuple[str, dict[TopicPartition, OffsetCommit]]:
    """Return the group's name and the offsets to commit. Raises InvalidRequestError."""
    if consumer is not None:
        return consumer._group(), consumer._commits(positions)
    check_name("group", group)
    if positions is None:
        raise errors.InvalidRequestError(
            "positions must be given with a group's name", field="positions"
        )
    return str(group), as_commits(positions)


async def stage_offsets(
    transactions: ProducerTransactions,
    transaction: ProducerTransaction,
    group: str,
    commits: Mapping[TopicPartition, OffsetCommit],
    consumer: Consumer | None,
) -> None:
    """Stage a group's offsets, on the engine's loop."""
    terms = None
    if consumer is not None and consumer._member is not None and consumer._rebalance is not None:
        terms = await consumer._member.commit_terms(commits, dict(consumer._rebalance.numbers))
    await transactions.stage_offsets(transaction, group, commits, terms)


__all__ = ["Positions", "Transaction"]
