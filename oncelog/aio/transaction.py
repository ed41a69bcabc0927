"""A transaction for asyncio: `oncelog.Transaction`, awaited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from oncelog import transaction as sync
from oncelog._engine.arguments import Bytes, Headers
from oncelog._engine.produce.futures import OnDelivery
from oncelog.aio.bridge import on_engine
from oncelog.transaction import Positions, positions_of, stage_offsets
from oncelog.types import BatchMetadata, CommittedTransaction, RecordMetadata
from oncelog.wire.stored import StoredBatch

if TYPE_CHECKING:
    from oncelog.aio.consumer import Consumer
    from oncelog.aio.producer import Acknowledgement, Producer


class Transaction:
    """One transaction of a producer; as an async context manager it commits, or aborts.

        async with producer.transaction() as txn:
            await txn.send("accounts", b"-10", partition=0)
            await txn.send("accounts", b"+10", partition=1)

    It behaves like `oncelog.Transaction`.
    """

    def __init__(self, producer: Producer, idle_timeout_ms: int, total_timeout_ms: int) -> None:
        self._producer = producer
        self._sync = sync.Transaction(producer._sync, idle_timeout_ms, total_timeout_ms)
        self._transactions = producer._sync._transactions

    # --- begin -------------------------------------------------------------------------

    async def begin(self) -> Self:
        """Begin the transaction; see `oncelog.Transaction.begin`."""
        self._sync._check_new()
        await on_engine(self._sync._begin(), undo=self._sync._give_back)
        self._sync._claim()
        return self

    @property
    def transaction_id(self) -> int:
        """Transaction number, which is never reused; 0 before it is begun."""
        return self._sync.transaction_id

    @property
    def state(self) -> str:
        """`new`, `open`, `committing`, `aborting`, `committed`, `aborted` or `unknown`."""
        return self._sync.state

    # --- sending -----------------------------------------------------------------------

    async def send(
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
    ) -> Acknowledgement[RecordMetadata]:
        """Send as `Producer.send` does. Raises TransactionAbortedError if it cannot commit."""
        self._sync.check_open()
        return await self._producer.send(
            topic,
            value,
            key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            sequence=sequence,
            on_delivery=on_delivery,
        )

    async def send_batch(
        self,
        topic: str,
        partition: int,
        batch: Any,
        *,
        sequences: Sequence[int] | Any | None = None,
    ) -> Acknowledgement[BatchMetadata]:
        """Send as `Producer.send_batch` does."""
        self._sync.check_open()
        return await self._producer.send_batch(topic, partition, batch, sequences=sequences)

    async def send_stored_batch(
        self, topic: str, partition: int, batch: StoredBatch, *, base_sequence: int | None = None
    ) -> Acknowledgement[BatchMetadata]:
        """Send as `Producer.send_stored_batch` does."""
        self._sync.check_open()
        return await self._producer.send_stored_batch(
            topic, partition, batch, base_sequence=base_sequence
        )

    async def commit_offsets(
        self, group: Consumer | str, positions: Positions | None = None
    ) -> None:
        """Commit a group's offsets with the transaction; see `oncelog.Transaction`."""
        self._sync.check_open()
        consumer = None if isinstance(group, str) else group._sync
        name, commits = positions_of(consumer, group, positions)
        if commits:
            begun = self._sync._known()
            staging = stage_offsets(self._transactions, begun, name, commits, consumer)
            await on_engine(staging, whole=True)

    # --- ending ------------------------------------------------------------------------

    async def commit(self) -> CommittedTransaction:
        """Make the transaction readable; see `oncelog.Transaction.commit`."""
        return await on_engine(self._transactions.commit(self._sync._known()), whole=True)

    async def abort(self) -> None:
        """Abort the transaction; see `oncelog.Transaction.abort`."""
        await on_engine(self._transactions.abort(self._sync._known()), whole=True)

    async def __aenter__(self) -> Self:
        return self if self.transaction_id else await self.begin()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await on_engine(self._sync._leave(error), whole=True)


__all__ = ["Transaction"]
