"""A transaction: records in several partitions that become readable together, or never.

Place in the flow: `Producer.transaction` makes it; records go through the producer as always,
begin and end through `_engine/produce/transactions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from oncelog import errors
from oncelog._engine.arguments import Bytes, Headers, as_commits
from oncelog._engine.net import runtime
from oncelog._engine.produce.futures import OnDelivery
from oncelog._engine.produce.transaction import ProducerTransaction, State
from oncelog._engine.produce.transactions import Transactions
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
            txn.commit_offsets(consumer)  # where there is input: how far it was read

    While it is open, all that its producer sends belongs to it. The future of a record is done
    when the record is staged: on disks of a majority, and not readable. Its offset is -1 until
    the commit. One transaction of a producer is open at a time.
    """

    def __init__(self, producer: Producer, idle_timeout_ms: int, total_timeout_ms: int) -> None:
        self._producer = producer
        self._times = idle_timeout_ms, total_timeout_ms
        self._begun: ProducerTransaction | None = None
        self._beginning: asyncio.Task[None] | None = None

    # --- begin -------------------------------------------------------------------------

    def begin(self) -> Self:
        """Begin it, when all that was sent before is settled.

        Raises FencedError if another producer has taken over the name, TransactionOpenError
        if the one before has not been ended, and RetriableErrors when nobody answers.
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
        """On the engine's loop. Nothing is sent before the caller has it, and claims it."""
        self._beginning = asyncio.current_task()
        self._begun = await self._producer._transactions.begin(*self._times)

    def _claim(self) -> None:
        self._producer._accumulator.resume(self._known())

    async def _give_back(self) -> None:
        """On the engine's loop: whoever waited for `begin` has gone, and cancelled it."""
        if self._beginning is not None:
            await asyncio.wait({self._beginning})
        begun, self._begun = self._begun, None
        if begun is not None:
            self._producer._transactions.give_back(begun)

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
        # As `check_open` and `Producer.send`, with as few calls for a record as can be.
        begun, producer = self._begun, self._producer
        if begun is None or begun.failure is not None or begun.state is not State.OPEN:
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

    def commit_offsets(self, group: Consumer | str, positions: Positions | None = None) -> None:
        """Store how far a group has read, together with all of this, or not at all.

        `group`: its name, or a consumer of it. `positions`: the next offset of each partition;
        left out: the consumer's own positions. Raises FencedMemberError if a partition is
        another member's by now; the transaction is then only to be aborted.
        """
        self.check_open()
        consumer = None if isinstance(group, str) else group
        name, commits = positions_of(consumer, group, positions)
        if commits:
            transactions = self._producer._transactions
            staging = stage_offsets(transactions, self._known(), name, commits, consumer)
            runtime.run(staging, whole=True)

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
        return runtime.run(transactions.commit(self._known()), whole=True)

    def abort(self) -> None:
        """Drop all of it. Again, it does nothing.

        Raises TransactionCommittedError if a commit was decided, and CommitTimeoutError if
        nobody answers; it is aborted then when it has been idle for long enough.
        """
        runtime.run(self._producer._transactions.abort(self._known()), whole=True)

    def __del__(self) -> None:
        begun, producer = self._begun, self._producer
        if begun is not None and begun.state is State.OPEN and not producer._closed:
            transactions = producer._transactions
            runtime.end_dropped("a transaction", lambda: transactions.end_dropped(begun))

    def __enter__(self) -> Self:
        return self if self._begun is not None else self.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if runtime.can_close():
            runtime.run(self._leave(error), whole=True)

    async def _leave(self, error: BaseException | None) -> None:
        """The end of the block, on the engine's loop."""
        transactions, begun = self._producer._transactions, self._known()
        if error is None:
            if not begun.is_over():
                await transactions.commit(begun)
        elif begun.state is State.OPEN:
            try:
                await transactions.abort(begun)
            except errors.OncelogError as failed:
                error.add_note(f"transaction {begun.transaction_id} was not aborted: {failed}")


def positions_of(
    consumer: Consumer | None, group: object, positions: Positions | None
) -> tuple[str, dict[TopicPartition, OffsetCommit]]:
    """The group's name and what is to be committed. Raises InvalidRequestError."""
    if consumer is not None:
        return consumer._group(), consumer._commits(positions)
    check_name("group", group)
    if positions is None:
        raise errors.InvalidRequestError(
            "positions must be given with a group's name", field="positions"
        )
    return str(group), as_commits(positions)


async def stage_offsets(
    transactions: Transactions,
    transaction: ProducerTransaction,
    group: str,
    commits: Mapping[TopicPartition, OffsetCommit],
    consumer: Consumer | None,
) -> None:
    """On the engine's loop."""
    terms = None
    if consumer is not None and consumer._member is not None and consumer._rebalance is not None:
        terms = await consumer._member.commit_terms(commits, dict(consumer._rebalance.numbers))
    await transactions.stage_offsets(transaction, group, commits, terms)


__all__ = ["Positions", "Transaction"]
