"""Transactions of Kafka's clients, which name none: the open one of a (name, id, epoch).

    transactions, producers --> OpenTransactions --commands--> metadata
    staged --the open one-->          '--Decisions, Coordination--> leaders of the partitions

A client's call means the last transaction of its lease. This node's copy of the metadata may be
behind, and a call for one transaction must not end, or fill, another. So an answer that changed
nothing is given once the copy has caught up, and the end of a transaction counts only if that was
the last one when the command was applied. An end, or offsets, never go on with a transaction that
turned up while they waited: their client may have repeated the call elsewhere, and gone on. An
end that the network delayed for longer is known by its connection (`sent`).

A transaction that somebody else aborted (its time was over, an operator, a new member of a group)
ends its lease: the holder may only abort it, or lease again. Else the rest of it would go into the
next transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from cluster.errors import NotReadyError
from cluster.features import KAFKA
from cluster.kafka.sent import Newest, Sent
from cluster.metadata.producer_names import NameState, check_producer_name
from cluster.metadata.topics import Rejected
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.transactions.commit import Coordination, Decisions
from cluster.transactions.coordinator import MIN_IDLE_MS
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import (
    ABORT_STATES,
    BY_GROUP,
    BY_OWNER,
    COMMIT_STATES,
    FENCED,
    FINISHED,
    TOPIC_GONE,
    TRANSACTION_ABORTED,
    TRANSACTION_ENDED,
    Expected,
    Holder,
    Refused,
    TransactionState,
)
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import transactions_pb2 as tpb
from oncelog.errors import OncelogError
from oncelog.v1 import group_pb2 as pb

MARKERS_WAIT = 1.0  # seconds that a new transaction waits for the end of the last one
# Reasons of a refusal, beside those of the coordinator.
OTHER_ID = "OTHER_ID"  # the name has another producer id
TIMEOUT_OUT_OF_RANGE = "TIMEOUT_OUT_OF_RANGE"
STILL_ENDING = "STILL_ENDING"  # the last one has not ended in all partitions
MUST_LEASE_AGAIN = "MUST_LEASE_AGAIN"  # aborted, and the client can go on under a new epoch


class KafkaCoordination(Coordination, Protocol):
    """The node's `Transactions`, also for owners that do not name their runs."""

    async def all_runs(self, transaction_id: int, groups: Iterable[int]) -> list[Expected]: ...


class OpenTransactions:
    """Answers for one node. new_nonce: random 64-bit numbers."""

    def __init__(
        self, node: NodeContext, coordination: KafkaCoordination, new_nonce: Callable[[], int]
    ) -> None:
        self._node = node
        self._coordination = coordination
        self._new_nonce = new_nonce
        self._decisions = Decisions(node, coordination, coordination.all_runs)
        self._newest = Newest()  # of calls that staged offsets
        self._newest_owner = Newest()  # of calls that began and ended transactions

    # -- calls ----------------------------------------------------------------------------

    async def lease(self, name: str, timeout_ms: int, held: Holder | None) -> Holder:
        """Lease a name. held: the lease that the client replaces; None: it takes the name over.

        Returns once the transactions of earlier leases have ended. Repeats with the same `held`
        are one lease.
        """
        check_producer_name(name)
        longest = self._node.config.kafka_max_transaction_timeout_ms
        if not 0 < timeout_ms <= longest:
            text = f"transaction_timeout_ms: {timeout_ms} is not in 1..{longest}"
            raise Refused(TIMEOUT_OUT_OF_RANGE, text)
        command = meta.LeaseName(
            name=name,
            nonce=self._new_nonce() if held is None else _nonce_of(name, held),
            transaction_timeout_ms=max(timeout_ms, MIN_IDLE_MS),
        )
        if held is not None:
            command.held_producer_id, command.held_epoch = held
        result = accepted(await self._propose(meta.MetadataCommand(lease_name=command)))
        holder = Holder(result.producer_id, result.epoch)
        last = self._last(name)
        if last is not None and last.holder != holder:
            await self._ended(last)
        return holder

    async def add(self, name: str, holder: Holder, sent: Sent, groups: set[int]) -> int:
        """Add partitions to the open transaction; begin one if none is. Returns its number.

        sent: by the call's connection; raises DelayedCallError before it begins one if its client
        has gone on over a newer connection: nobody would end that.
        """
        self._newest_owner.note((name, holder), sent)
        is_current = False
        while True:
            row = await self._last_of(name, holder)
            is_open = row is not None and row.state is TransactionState.OPEN
            missing = groups - row.parts.keys() if row is not None and is_open else groups
            if not is_open:
                self._newest_owner.check((name, holder), sent)
                if row is not None:
                    sent.check(name, row.transaction_id)
                await self._begin(name, holder, row, missing, is_current=is_current)
            elif missing:
                assert row is not None
                if await self._register(row, missing):
                    return row.transaction_id
            elif is_current and row is not None:
                return row.transaction_id
            else:
                await self._node.newest_metadata.wait()
            is_current = True  # a command is applied here, done or refused

    async def end(self, name: str, holder: Holder, sent: Sent, *, commit: bool) -> None:
        """Commit all that is staged, or abort; returns once it shows in all partitions.

        Only a transaction that is open here when the call comes is ended. Another that turns up
        while it waits may be the wanted one, or one begun behind a repeat of this call. Raises
        NotReadyError then: a client that still waits asks again. sent: by the call's connection;
        raises DelayedCallError if the transaction may have begun after the call was sent.
        """
        self._newest_owner.note((name, holder), sent)
        row = await self._last_of(name, holder)
        if row is not None:
            sent.check(name, row.transaction_id)
        if row is None or row.state is not TransactionState.OPEN:
            await self._node.newest_metadata.wait()
        elif await (self._commit(row) if commit else self._abort(row)):
            await self._everywhere(row)
            return
        row = await self._last_ended(name, holder)  # a command is applied here
        if row is not None:
            sent.check(name, row.transaction_id)
        await self._everywhere(await self._ended_before(row, commit=commit))

    async def stage_offsets(
        self,
        name: str,
        holder: Holder,
        sent: Sent,
        group: int,
        stage: Callable[[int], Awaitable[pb.StageOffsetsResponse]],
    ) -> pb.StageOffsetsResponse:
        """Stage offsets in the open transaction: `stage` does it, given the number.

        group: the Raft group of the offsets, which AddOffsetsToTxn has added. sent: by the call's
        connection; raises DelayedCallError if a newer connection has brought offsets.
        """
        row = await self._open_one(name, holder, group)
        self._newest.check((name, holder), sent)
        answer = await stage(row.transaction_id)
        if answer.error in (TRANSACTION_ABORTED, TRANSACTION_ENDED):
            # This node's copy was behind, or it ended meanwhile.
            await self._node.newest_metadata.wait()
            raise refused_end(await self._last_ended(name, holder))
        return answer

    async def newest_name(self, name: str) -> NameState | None:
        """Return a name's state, also if another node has just leased it."""
        if self._node.metadata.name(name) is None:
            await self._node.newest_metadata.wait()
        return self._node.metadata.name(name)

    # -- steps ----------------------------------------------------------------------------

    async def _open_one(self, name: str, holder: Holder, group: int) -> TransactionRow:
        """Return the open transaction, to which the group was added."""
        row = await self._last_of(name, holder)
        if row is None or not row.takes(group, holder):
            was_open = row is not None and row.state is TransactionState.OPEN
            before = row.transaction_id if was_open and row is not None else 0
            await self._node.newest_metadata.wait()
            row = await self._last_of(name, holder)
            if before and row is not None and row.transaction_id != before:
                raise NotReadyError(f"transaction {row.transaction_id} is new to this node")
        if row is None or row.state is not TransactionState.OPEN:
            raise refused_end(row)
        if not row.takes(group, holder):
            text = f"transaction {row.transaction_id}: the group was not added to it"
            raise Refused(TRANSACTION_ENDED, text, row.transaction_id)
        return row

    async def _last_ended(self, name: str, holder: Holder) -> TransactionRow | None:
        """Return the last transaction. Raises NotReadyError if it is open, so new to this node."""
        row = await self._last_of(name, holder)
        if row is not None and row.state is TransactionState.OPEN:
            raise NotReadyError(f"transaction {row.transaction_id} is new to this node; ask again")
        return row

    async def _begin(
        self,
        name: str,
        holder: Holder,
        last: TransactionRow | None,
        groups: Collection[int],
        *,
        is_current: bool,
    ) -> None:
        """Begin a transaction behind the last one of this lease."""
        if is_current and last is not None and last.state in ABORT_STATES:
            if last.reason != BY_OWNER:
                raise refused_end(last)
        owner = self._node.metadata.coordinator.owner(name)
        nonce = 1 if owner is None or owner.holder != holder else owner.nonce + 1
        begin = tpb.BeginTransaction(
            producer_name=name, producer_id=holder.producer_id, epoch=holder.epoch, nonce=nonce,
            groups=sorted(groups), kafka=True,
        )  # fmt: skip
        result = await self._decisions.propose(tpb.TransactionCommand(begin=begin), 0)
        if is_current:
            accepted(result)

    async def _register(self, row: TransactionRow, groups: Collection[int]) -> bool:
        """Return whether it is done; False: the transaction has ended."""
        register = tpb.RegisterTransaction(
            transaction_id=row.transaction_id,
            producer_id=row.holder.producer_id,
            epoch=row.holder.epoch,
            groups=sorted(groups),
        )
        result = await self._decisions.propose(tpb.TransactionCommand(register=register), 0)
        if result.error in (TRANSACTION_ABORTED, TRANSACTION_ENDED):
            return False
        accepted(result)
        return True

    async def _commit(self, row: TransactionRow) -> bool:
        """Return whether it is committed, and was the last one then."""
        commit = tpb.CommitTransaction(
            transaction_id=row.transaction_id,
            producer_id=row.holder.producer_id,
            epoch=row.holder.epoch,
        )
        try:
            decided = await self._decisions.decide(commit, None, 0)
        except (OncelogError, Rejected):
            # A checkpoint may have replaced the row.
            known = self._node.metadata.coordinator.get(row.transaction_id)
            if known is not None and known.state is TransactionState.OPEN:
                raise
            return False  # ended; its state says how
        return decided.last_id == row.transaction_id

    async def _abort(self, row: TransactionRow) -> bool:
        """Return whether it is aborted, and was the last one then; the holder knows of it now."""
        abort = tpb.AbortTransaction(
            transaction_id=row.transaction_id,
            producer_id=row.holder.producer_id,
            epoch=row.holder.epoch,
            reason=BY_OWNER,
            kafka=True,
        )
        result = await self._decisions.propose(tpb.TransactionCommand(abort=abort), 0)
        # Refused only if it was committed meanwhile, which its state shows.
        return not result.error and result.transaction_id == row.transaction_id

    async def _ended_before(self, row: TransactionRow | None, *, commit: bool) -> TransactionRow:
        """Return the last transaction, if its outcome is the wanted one."""
        if row is not None and row.state in (COMMIT_STATES if commit else ABORT_STATES):
            if not commit and row.reason != BY_OWNER:
                await self._abort(row)
            return row
        raise refused_end(row)

    async def _everywhere(self, row: TransactionRow) -> None:
        """Return once all partitions have applied the outcome."""
        await self._coordination.published(row)

    async def _ended(self, row: TransactionRow) -> None:
        """Return once an earlier transaction has ended in all partitions."""
        if row.state in FINISHED:
            return
        try:
            async with asyncio.timeout(MARKERS_WAIT):
                await self._everywhere(row)
        except TimeoutError:
            text = f"transaction {row.transaction_id} has not ended in all partitions"
            raise Refused(STILL_ENDING, text, row.transaction_id) from None

    # -- the copy of the metadata ------------------------------------------------------------

    def _last(self, name: str) -> TransactionRow | None:
        coordinator = self._node.metadata.coordinator
        owner = coordinator.owner(name)
        return None if owner is None else coordinator.get(owner.last_id)

    async def _last_of(self, name: str, holder: Holder) -> TransactionRow | None:
        """Return the last transaction of the lease; None: it began none.

        Raises FeatureOffError: a release without the feature stops at such a command.
        """
        self._node.metadata.features.require(KAFKA)
        if not _holds(self._node.metadata.name(name), holder):
            await self._node.newest_metadata.wait()
            known = self._node.metadata.name(name)
            if known is None or known.tombstone or known.producer_id != holder.producer_id:
                text = f"transactional_id: {name!r} has not the producer id {holder.producer_id}"
                raise Refused(OTHER_ID, text)
            if known.epoch != holder.epoch:
                text = f"epoch: {holder.epoch} was replaced by {known.epoch}"
                raise Refused(FENCED, text)
        row = self._last(name)
        return row if row is not None and row.holder == holder else None

    async def _propose(self, command: meta.MetadataCommand) -> meta.MetadataResult:
        timeout = self._node.config.request_timeout_ms / 1000
        return await self._node.propose_metadata(command, timeout)


def refused_end(row: TransactionRow | None) -> Refused:
    """Return why a call about the open transaction is refused: the last one is `row`."""
    if row is None:
        return Refused(TRANSACTION_ENDED, "no transaction is open")
    number = row.transaction_id
    if row.state in COMMIT_STATES or row.reason == BY_OWNER:
        word = "committed" if row.state in COMMIT_STATES else "aborted"
        return Refused(TRANSACTION_ENDED, f"transaction {number} was {word}", number)
    reason = MUST_LEASE_AGAIN if row.reason in (BY_GROUP, TOPIC_GONE) else TRANSACTION_ABORTED
    return Refused(reason, f"transaction {number} was aborted: {row.reason}", number)


def _holds(known: NameState | None, holder: Holder) -> bool:
    return (
        known is not None
        and not known.tombstone
        and (known.producer_id, known.epoch) == tuple(holder)
    )


def _nonce_of(name: str, held: Holder) -> int:
    """Return the number of the one lease that replaces `held`."""
    claim = f"{held.producer_id}/{held.epoch}/{name}".encode()
    return int.from_bytes(hashlib.sha256(claim).digest()[:8], "little") | 1
