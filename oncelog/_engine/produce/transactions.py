"""Transactions of a producer: the calls, the signs of life, one transaction at a time.

Place in the flow: `oncelog.transaction` and its asyncio twin -> here -> TransactionService of any
node. Staged records are sent like all others. A transaction begins and ends with nothing in flight,
so that a batch belongs to the transaction open when it began. `transaction` decides the meaning of
answers. Runs on the engine's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Mapping
from typing import Any

from oncelog import errors
from oncelog._engine.consume.groups import CommitTerms, Groups
from oncelog._engine.net.attempts import Attempts
from oncelog._engine.net.cluster import transaction_stub
from oncelog._engine.produce.following import Following, Terms
from oncelog._engine.produce.sealing import LeasedIdentity
from oncelog._engine.produce.sender import Sender
from oncelog._engine.produce.transaction import (
    Call,
    ProducerTransaction,
    StagedOffsets,
    TransactionPhase,
)
from oncelog.types import CommittedTransaction, OffsetCommit, PublishedRun, TopicPartition
from oncelog.v1 import transaction_pb2 as pb
from oncelog.v1.batch_pb2 import TopicPartition as Partition

log = logging.getLogger("oncelog.producer")

# A hanging node must not hold up a call that another one answers. A commit waits for markers in all
# partitions.
_ATTEMPT_S, _COMMIT_ATTEMPT_S = 2.0, 4.0
_DEFAULT_TOTAL_S = 900.0
# Signs of life within the idle time.
_SIGNS = 3


class ProducerTransactions:
    """Transactions of one producer, one after the other."""

    def __init__(self, sender: Sender) -> None:
        self._config = sender.config
        self._cluster = sender.cluster
        self._sender = sender
        self._accumulator = sender.accumulator
        self._groups = Groups(sender.cluster)
        self._lock = asyncio.Lock()
        self.current: ProducerTransaction | None = None
        # The nonce of an unanswered begin is used again: it may have begun a transaction.
        self._nonce = 0
        self._nonce_of = 0  # the identity's serial
        self._answered = True
        self._alive: asyncio.Task[None] | None = None
        self._following = Following()
        self._next: pb.NextTransaction | None = None  # begun by the commit in flight
        self._unused: asyncio.Task[None] | None = None
        self._closed = False

    # --- begin -------------------------------------------------------------------------

    async def begin(self, idle_timeout_ms: int, total_timeout_ms: int) -> ProducerTransaction:
        """Begin one when all records sent before are settled. 0: the node's own times.

        Sending stays paused until the caller claims it, or gives it back.
        """
        if self._config.producer_name is None:
            raise errors.InvalidRequestError(
                "a transaction needs a producer with a producer_name (transactional.id)",
                field="producer_name",
            )
        async with self._lock:
            await self._end_before()
            accumulator = self._accumulator
            accumulator.pause(errors.InvalidRequestError("a transaction is being begun"))
            begun: ProducerTransaction | None = None
            try:
                await self._drain()
                if accumulator.failure is not None:
                    raise accumulator.failure.with_traceback(None)
                begun = await self._begin(idle_timeout_ms, total_timeout_ms)
                self.current = begun
            finally:
                if begun is None:
                    accumulator.resume(None)
            self._alive = asyncio.create_task(self._keep_alive(begun), name="keep alive")
            return begun

    def give_back(self, begun: ProducerTransaction) -> None:
        """Return an unclaimed transaction: the next begin takes it, or it is aborted soon."""
        if begun.state is not TransactionPhase.OPEN:
            return  # the producer is being closed
        if self._alive is not None:
            self._alive.cancel()
        self.current = None
        self._accumulator.resume(None)
        times = {"idle_timeout_ms": int(begun.idle_timeout_s * 1000)}
        self._keep(pb.BeginTransactionResponse(transaction_id=begun.transaction_id, **times))

    def _keep(self, begun: pb.BeginTransactionResponse) -> None:
        kept_s = self._following.keep(begun)
        self._unused = asyncio.create_task(self._abort_unused(kept_s), name="unused")

    async def _end_before(self) -> None:
        """Find the outcome of the previous transaction, even if its caller was cancelled."""
        before = self.current
        if before is None or before.is_over():
            return
        if before.state is not TransactionPhase.OPEN:
            asked = Call.COMMIT if before.state is TransactionPhase.COMMITTING else Call.ABORT
            await self._end(before, asked)
            if before.is_over():
                return
        raise errors.TransactionOpenError(
            f"transaction {before.transaction_id} of this producer is {before.state.value}: "
            "end it with commit() or abort()"
        )

    async def _begin(self, idle_timeout_ms: int, total_timeout_ms: int) -> ProducerTransaction:
        total_s = total_timeout_ms / 1000 or _DEFAULT_TOTAL_S
        identities = self._sender.identities
        identity = await identities.for_transaction(total_s, self._sender.has_used_up)
        following, terms = self._following, Terms(identity, idle_timeout_ms, total_timeout_ms)
        if following.begun is not None and following.terms != terms:
            await self._abort_following()
        following.note_begin(terms, time.monotonic())
        if self._unused is not None:
            self._unused.cancel()  # it does not hold the lock
        begun = following.take()
        if begun is not None:
            return self._transaction(identity, begun)
        if self._nonce_of != identity.serial:
            self._nonce = 0
            self._nonce_of = identity.serial
            self._answered = True
        self._draw_nonce()
        request = pb.BeginTransactionRequest(
            producer_name=self._config.producer_name,
            producer_id=identity.producer_id,
            epoch=identity.epoch,
            lease_token=identity.lease_token,
            nonce=self._nonce,
            idle_timeout_ms=idle_timeout_ms,
            total_timeout_ms=total_timeout_ms,
            partitions=_written(self.current),
        )
        limit = max(self._config.max_block_ms, self._config.request_timeout_ms) / 1000
        doubts: list[errors.OncelogError] = []
        try:
            answer = await self._cluster.call(
                lambda channel: transaction_stub(channel).BeginTransaction,
                request,
                timeout_s=limit,
                attempt_timeout_s=_ATTEMPT_S,
                on_retry=doubts.append,
                first=self._near(self.current),
            )
        except errors.RetriableError:
            raise
        except errors.OncelogError as error:
            # A rejection says nothing of an earlier, unanswered attempt.
            self._answered = not doubts
            if isinstance(error, errors.ProducerFatalError):
                self._sender.fail(error)
            raise
        self._answered = True
        return self._transaction(identity, answer)

    def _draw_nonce(self) -> None:
        self._nonce += self._answered
        self._answered = False

    def _near(self, transaction: ProducerTransaction | None) -> str:
        """Return a leader of one of its partitions: it saves a hop."""
        written = next(iter(transaction.runs), None) if transaction is not None else None
        return self._cluster.leaders.address(written) if written is not None else ""

    async def _abort_following(self) -> None:
        begun, terms = self._following.begun, self._following.terms
        if begun is not None and terms is not None:
            await self._abort_begun(self._transaction(terms.identity, begun))
            self._following.take()

    async def _abort_unanswered(self) -> None:
        """Abort the transaction of an unanswered begin: asked again, the node names it."""
        terms = self._following.terms
        if not self._answered and terms is not None:
            async with asyncio.timeout(_ATTEMPT_S):
                begun = await self._begin(terms.idle_timeout_ms, terms.total_timeout_ms)
            await self._abort_begun(begun)

    async def _abort_begun(self, begun: ProducerTransaction) -> None:
        abort = pb.AbortTransactionRequest(
            transaction_id=begun.transaction_id,
            producer_id=begun.producer_id,
            epoch=begun.epoch,
        )
        # If no node answers, it is aborted after its idle time, or by the next lease.
        with contextlib.suppress(errors.OncelogError):
            await self._call(
                lambda channel: transaction_stub(channel).AbortTransaction, abort, _ATTEMPT_S
            )

    async def _abort_unused(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        async with self._lock:
            await self._abort_following()

    @staticmethod
    def _transaction(
        identity: LeasedIdentity, answer: pb.BeginTransactionResponse
    ) -> ProducerTransaction:
        if answer.transaction_id <= 0 or answer.idle_timeout_ms <= 0:
            raise errors.InternalError("the node has begun a transaction without a number or time")
        return ProducerTransaction(
            answer.transaction_id,
            identity.producer_id,
            identity.epoch,
            answer.idle_timeout_ms / 1000,
        )

    async def _drain(self) -> None:
        """Return when nothing waits and nothing is in flight."""
        accumulator, settled = self._accumulator, self._sender.settled
        accumulator.begin_flush()
        try:
            while accumulator.incomplete:
                settled.clear()
                await settled.wait()
        finally:
            accumulator.end_flush()

    # --- while it is open --------------------------------------------------------------

    async def _keep_alive(self, transaction: ProducerTransaction) -> None:
        """Send signs of life, often enough that one may be lost."""
        request = pb.KeepTransactionsAliveRequest(transaction_ids=[transaction.transaction_id])
        pause = transaction.idle_timeout_s / _SIGNS
        while not transaction.is_over():
            await asyncio.sleep(pause)
            try:
                answer = await self._call(
                    lambda channel: transaction_stub(channel).KeepTransactionsAlive, request, pause
                )
            except errors.OncelogError as error:
                log.debug("transaction %d: no sign of life: %s", transaction.transaction_id, error)
                continue
            if (
                transaction.transaction_id in answer.ended
                and transaction.state is TransactionPhase.OPEN
            ):
                gone = errors.TransactionAbortedError(
                    f"transaction {transaction.transaction_id} is not open any more: "
                    "it was idle or open for too long, or was aborted by a successor or an operator"
                )
                self._sender.drop(transaction, gone)
                return

    async def stage_offsets(
        self,
        transaction: ProducerTransaction,
        group: str,
        offsets: Mapping[TopicPartition, OffsetCommit],
        terms: CommitTerms | None,
    ) -> None:
        """Store offsets with it. Offsets that cannot be stored fail the transaction."""
        async with self._lock:
            transaction.check_open()
            staged = transaction.offsets.setdefault(group, StagedOffsets())
            number = terms.number if terms is not None else staged.last_number + 1
            deadline = time.monotonic() + self._config.delivery_timeout_ms / 1000
            attempts = Attempts()
            for failures in itertools.count(1):
                try:
                    await self._groups.stage(transaction, group, offsets, number, terms)
                    break
                except errors.OncelogError as error:
                    pause = self._cluster.backoff.delay(failures)
                    over = time.monotonic() + pause >= deadline
                    if not error.retriable:
                        self._sender.drop(transaction, error)
                        raise
                    attempts.failed(error)
                    if over or transaction.failure is not None:
                        told = attempts.error()
                        self._sender.drop(transaction, told)
                        raise told from None
                await asyncio.sleep(pause)
            staged.last_number = number
            staged.offset_count += len(offsets)

    # --- end ---------------------------------------------------------------------------

    async def commit(self, transaction: ProducerTransaction) -> CommittedTransaction:
        """Make it readable. Raises an error with an outcome; the call may be repeated."""
        async with self._lock:
            if not transaction.is_over():
                self._pause(transaction)
                await self._drain()
                failed = (
                    transaction.failure is not None
                    or transaction.state is TransactionPhase.ABORTING
                )
                await self._end(transaction, Call.ABORT if failed else Call.COMMIT)
            if transaction.result is None:
                raise transaction.error()
            return transaction.result

    async def abort(self, transaction: ProducerTransaction) -> None:
        """Abort it. Raises TransactionCommittedError if the abort came too late."""
        async with self._lock:
            if not transaction.is_over():
                self._pause(transaction)
                text = f"transaction {transaction.transaction_id} was aborted"
                self._sender.drop(transaction, errors.TransactionAbortedError(text))
                await self._end(transaction, Call.ABORT)
            if transaction.state is TransactionPhase.COMMITTED:
                raise errors.TransactionCommittedError(
                    f"transaction {transaction.transaction_id} is committed, nothing is undone"
                )
            if transaction.state is not TransactionPhase.ABORTED:
                raise transaction.error()

    async def end_dropped(self, transaction: ProducerTransaction) -> None:
        """Abort a transaction without an owner: it cannot be committed."""
        with contextlib.suppress(errors.OncelogError):
            await self.abort(transaction)

    def _pause(self, transaction: ProducerTransaction) -> None:
        assert transaction is self.current, "one transaction at a time"
        text = f"transaction {transaction.transaction_id} is being ended"
        self._accumulator.pause(errors.InvalidRequestError(text))

    async def _end(self, transaction: ProducerTransaction, call: Call) -> None:
        """Make calls until an answer is final. Raises CommitTimeoutError if none comes."""
        next_call: Call | None = transaction.end(call)
        deadline = time.monotonic() + self._config.delivery_timeout_ms / 1000
        attempts = Attempts()
        for failures in itertools.count(1):
            assert next_call is not None
            error: errors.OncelogError | None = None
            answer: Any = None
            left = deadline - time.monotonic()
            try:
                answer = await self._ask(transaction, next_call, left)
            except errors.OncelogError as problem:
                error = problem
            made, next_call = next_call, transaction.answered(next_call, error)
            if next_call is None:
                self._over(transaction, answer if made is Call.COMMIT else None)
                return
            if error is not None and error.retriable:
                attempts.failed(error)
                pause = self._cluster.backoff.delay(failures)
                if self._closed or time.monotonic() + pause >= deadline:
                    raise self._timeout(transaction, attempts.error())
                await asyncio.sleep(pause)

    @staticmethod
    def _timeout(
        transaction: ProducerTransaction, error: errors.OncelogError
    ) -> errors.CommitTimeoutError:
        return errors.CommitTimeoutError(
            f"transaction {transaction.transaction_id} is {transaction.state.value}, and nobody "
            f"has said how it ended within delivery_timeout_ms; commit or abort it again: {error}"
        )

    async def _ask(self, transaction: ProducerTransaction, call: Call, left: float) -> Any:
        if call is Call.ABORT:
            abort = pb.AbortTransactionRequest(
                transaction_id=transaction.transaction_id,
                producer_id=transaction.producer_id,
                epoch=transaction.epoch,
            )
            return await self._call(
                lambda channel: transaction_stub(channel).AbortTransaction, abort, left
            )
        if self._next is None and self._following.is_expected:
            self._draw_nonce()
            terms = self._following.terms
            assert terms is not None
            self._next = pb.NextTransaction(
                nonce=self._nonce,
                idle_timeout_ms=terms.idle_timeout_ms,
                total_timeout_ms=terms.total_timeout_ms,
                partitions=_written(transaction),
            )
        return await self._cluster.call(
            lambda channel: transaction_stub(channel).CommitTransaction,
            _commit_request(transaction, self._next),
            first=self._near(transaction),
            timeout_s=left,
            attempt_timeout_s=_COMMIT_ATTEMPT_S,
            # An unanswered call may have decided it, whatever the answer to the next.
            on_retry=lambda error: transaction.note_doubt(),
        )

    def _over(self, transaction: ProducerTransaction, answer: Any) -> None:
        if transaction.state is TransactionPhase.COMMITTED:
            runs = answer.runs if answer is not None else ()
            transaction.published(
                {
                    TopicPartition(run.topic, run.partition): PublishedRun(
                        run.base_offset, run.record_count
                    )
                    for run in runs
                }
            )
        elif transaction.state is TransactionPhase.ABORTED:
            self._sender.roll_back(transaction)
        elif transaction.state is TransactionPhase.UNKNOWN:
            # The stored sequences are not known, either.
            text = f"how transaction {transaction.transaction_id} ended is not known"
            self._sender.fail(errors.ProducerFatalError(text))
        if not transaction.is_over():
            return  # rejected: it may be asked again
        if self._alive is not None:
            self._alive.cancel()
        self._following.note_end(time.monotonic())
        self._next = None
        if answer is not None and answer.HasField("next"):
            self._answered = True
            self._keep(answer.next)
        self._accumulator.resume(None)

    async def close(self, timeout_s: float | None) -> None:
        """Abort an open transaction. A requested commit is left to the cluster."""
        request_s = self._config.request_timeout_ms / 1000
        try:
            # If no node answers, it is aborted after its idle time.
            with contextlib.suppress(errors.OncelogError, TimeoutError):
                async with asyncio.timeout(min(request_s, timeout_s or request_s)):
                    async with self._lock:
                        pass  # it is ending; its caller may be gone
                    if self.current is not None and self.current.state is TransactionPhase.OPEN:
                        await self.abort(self.current)
                    await self._abort_following()
                    await self._abort_unanswered()
        finally:
            self._closed = True
            for task in (self._alive, self._unused):
                if task is not None:
                    task.cancel()

    # --- calls -------------------------------------------------------------------------

    async def _call(self, method: Any, request: Any, timeout_s: float) -> Any:
        return await self._cluster.call(
            method, request, timeout_s=timeout_s, attempt_timeout_s=_ATTEMPT_S
        )


def _written(transaction: ProducerTransaction | None) -> list[Partition]:
    """Return the partitions it has staged in; the next one probably uses the same."""
    runs = transaction.runs if transaction is not None else ()
    return [Partition(topic=tp.topic, partition=tp.partition) for tp in runs]


def _commit_request(
    transaction: ProducerTransaction, following: pb.NextTransaction | None
) -> pb.CommitTransactionRequest:
    """Return the request, equal in each call: nothing is staged after the first one."""
    request = pb.CommitTransactionRequest(
        transaction_id=transaction.transaction_id,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        timeout_ms=int(_COMMIT_ATTEMPT_S * 800),
        begin_next=following,
    )
    for tp, run in transaction.runs.items():
        request.runs.add(
            topic=tp.topic,
            partition=tp.partition,
            record_count=run.record_count,
            last_sequence=run.last_sequence,
        )
    for group, staged in transaction.offsets.items():
        request.offsets.add(
            group=group, offset_count=staged.offset_count, last_number=staged.last_number
        )
    return request
