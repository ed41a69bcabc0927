"""TransactionService: begin, keep alive, commit, abort, list.

    client --> TransactionService --TransactionCommand--> metadata
                      '--confirm--> Transactions --> leaders of the partitions

The partitions confirm a commit first, then one command decides it. The coordinator's outcome
holds, whichever node answers the client, and however often.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from cluster.dedup.verdict import MAX_INT64, Kind
from cluster.errors import NotReadyError
from cluster.metadata.producer_names import check_producer_name
from cluster.metadata.topics import OFFSETS_TOPIC
from cluster.partition.group_offsets import partition_of
from cluster.services.context import NodeContext
from cluster.services.errors import accepted, rejection
from cluster.services.log.lease_checks import Leases
from cluster.services.requests import count_in_range, in_range, invalid, page_size, timeout_s
from cluster.services.transactions.commit import Coordination, Decisions
from cluster.services.transactions.permissions import TransactionRights
from cluster.transactions.coordinator import MAX_PARTITIONS, MAX_TOTAL_MS, MIN_IDLE_MS
from cluster.transactions.transaction import Participant, TransactionRow
from cluster.transactions.types import (
    BY_OPERATOR,
    BY_OWNER,
    UNKNOWN_TRANSACTION,
    Expected,
    Published,
)
from cluster.v1 import peer_pb2 as peer
from cluster.v1 import transactions_pb2 as tpb
from oncelog.v1 import transaction_pb2 as pb
from oncelog.v1.batch_pb2 import TopicPartition

DEFAULT_IDLE_MS, DEFAULT_TOTAL_MS = 60_000, 15 * 60_000
MAX_KEPT = 10_000  # in one call
DEFAULT_LISTED, MAX_LISTED = 100, 1000


class TransactionService:
    """Answers for one node. `now_ms`: the agreed wall clock."""

    def __init__(
        self,
        node: NodeContext,
        coordination: Coordination,
        rights: TransactionRights,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self.node = node
        self._rights = rights
        self._coordination = coordination
        self._now_ms = now_ms
        self._leases = Leases(node)
        self._decisions = Decisions(node, coordination)

    async def BeginTransaction(
        self, request: pb.BeginTransactionRequest
    ) -> pb.BeginTransactionResponse:
        check_producer_name(request.producer_name)
        begin = self._begin(request, "")
        pid, epoch = request.producer_id, request.epoch
        verdict = await self._leases.check(request.lease_token, pid, epoch)
        if verdict is not None:
            if verdict.kind is Kind.NOT_READY:
                raise NotReadyError(verdict.message)
            raise invalid("lease_token", verdict.message)
        begin.producer_name = request.producer_name
        begin.producer_id, begin.epoch = pid, epoch
        result = accepted(await self._decisions.propose(tpb.TransactionCommand(begin=begin), 0))
        return _begun(result.transaction)

    def _begin(
        self, asked: pb.BeginTransactionRequest | pb.NextTransaction, prefix: str
    ) -> tpb.BeginTransaction:
        """Return the command. prefix: of its fields' names. Raises InvalidRequestError."""
        count_in_range(f"{prefix}partitions", len(asked.partitions), 0, MAX_PARTITIONS)
        if not asked.nonce:
            raise invalid(f"{prefix}nonce", "must be given, from 1", "1..")
        total = asked.total_timeout_ms or DEFAULT_TOTAL_MS
        idle = asked.idle_timeout_ms or min(DEFAULT_IDLE_MS, total)
        in_range(f"{prefix}total_timeout_ms", total, MIN_IDLE_MS, MAX_TOTAL_MS)
        in_range(f"{prefix}idle_timeout_ms", idle, MIN_IDLE_MS, total)
        return tpb.BeginTransaction(
            nonce=asked.nonce, idle_ms=idle, total_ms=total, groups=self._groups(asked.partitions)
        )

    async def KeepTransactionsAlive(
        self, request: pb.KeepTransactionsAliveRequest
    ) -> pb.KeepTransactionsAliveResponse:
        count_in_range("transaction_ids", len(request.transaction_ids), 0, MAX_KEPT)
        await self._rights.check("write", *request.transaction_ids)
        ended = await self._coordination.keep_alive(request.transaction_ids)
        return pb.KeepTransactionsAliveResponse(ended=ended)

    async def CommitTransaction(
        self, request: pb.CommitTransactionRequest
    ) -> pb.CommitTransactionResponse:
        await self._rights.check("write", request.transaction_id)
        in_range("producer_id", request.producer_id, 1, MAX_INT64)
        count_in_range("runs", len(request.runs), 0, MAX_PARTITIONS)
        count_in_range("offsets", len(request.offsets), 0, MAX_PARTITIONS)
        following, started = None, time.monotonic()
        if request.HasField("begin_next"):
            following = self._begin(request.begin_next, "begin_next.")
        try:
            async with asyncio.timeout(timeout_s(request.timeout_ms, self.node)):
                asked = await self._decisions.newest(lambda: self._asked(request))
                commit = tpb.CommitTransaction(
                    transaction_id=request.transaction_id,
                    producer_id=request.producer_id,
                    epoch=request.epoch,
                    next=following,
                )
                row, begun, _ = await self._decisions.decide(commit, asked, request.timeout_ms)
                answer = pb.CommitTransactionResponse(
                    state=_state(row), next=None if begun is None else _begun(begun)
                )
                if request.at_decision:
                    self._coordination.publish(row)
                    self.node.metrics.transaction_commit.observe(time.monotonic() - started)
                    return answer
                published = await self._coordination.published(row)
        except TimeoutError:
            text = f"transaction {request.transaction_id}: repeat the commit to learn its outcome"
            raise NotReadyError(text) from None
        self.node.metrics.transaction_commit.observe(time.monotonic() - started)
        self._add_places(answer, row, published)
        return answer

    def _groups(self, partitions: Iterable[TopicPartition]) -> Iterator[int]:
        """Yield the groups of existing partitions; a batch to any other gets its own error."""
        for one in partitions:
            group = self.node.metadata.group_of(one.topic, one.partition)
            if group is not None:
                yield group

    def _asked(self, request: pb.CommitTransactionRequest) -> tuple[Expected, ...]:
        asked, pid = [], request.producer_id
        for run in request.runs:
            group = self.node.metadata.group_of(run.topic, run.partition)
            if group is None:
                raise invalid("runs", f"{run.topic}/{run.partition} does not exist")
            asked.append(Expected(group, pid, run.record_count, run.last_sequence))
        offsets = self.node.metadata.topic(OFFSETS_TOPIC)
        for staged in request.offsets:
            if offsets is None:
                raise invalid("offsets", f"nothing is staged of group {staged.group!r}")
            number = partition_of(staged.group, len(offsets.partitions))
            asked.append(
                Expected(
                    offsets.partitions[number].group_id,
                    pid,
                    staged.offset_count,
                    staged.last_number,
                    consumer_group=staged.group,
                )
            )
        return tuple(asked)

    def _add_places(
        self,
        response: pb.CommitTransactionResponse,
        row: TransactionRow,
        published: Mapping[int, Sequence[Published]],
    ) -> None:
        response.state = pb.TRANSACTION_STATE_COMMITTED
        for group in row.parts:
            place = self.node.metadata.partition(group)
            for run in published[group]:
                response.runs.add(
                    topic="" if place is None else place[0].name,
                    partition=-1 if place is None else place[1],
                    base_offset=run.base_offset,
                    record_count=run.records,
                )

    async def AbortTransaction(
        self, request: pb.AbortTransactionRequest
    ) -> pb.AbortTransactionResponse:
        if request.producer_id:
            await self._rights.check("write", request.transaction_id)
        abort = tpb.AbortTransaction(
            transaction_id=request.transaction_id,
            producer_id=request.producer_id,
            epoch=request.epoch,
            reason=BY_OWNER if request.producer_id else BY_OPERATOR,
        )
        accepted(await self._decisions.propose(tpb.TransactionCommand(abort=abort), 0))
        return pb.AbortTransactionResponse()

    async def ListTransactions(
        self, request: pb.ListTransactionsRequest
    ) -> pb.ListTransactionsResponse:
        limit, now_ms = page_size(request.limit, DEFAULT_LISTED, MAX_LISTED), self._now_ms()
        found = (
            row
            for row in self.node.metadata.coordinator.unfinished()
            if row.owner == (request.producer_name or row.owner)
            and now_ms - row.begun_ms >= request.older_than_ms
        )
        return pb.ListTransactionsResponse(
            transactions=await self._described(list(islice(found, limit)))
        )

    async def DescribeTransaction(
        self, request: pb.DescribeTransactionRequest
    ) -> pb.DescribeTransactionResponse:
        await self._rights.heard(request.transaction_id)
        await self._rights.check("describe", request.transaction_id, is_heard=True)
        row = self.node.metadata.coordinator.get(request.transaction_id)
        if row is None:
            text = f"transaction {request.transaction_id} is not known, or not any more"
            raise rejection(UNKNOWN_TRANSACTION, text)
        (described,) = await self._described([row])
        return pb.DescribeTransactionResponse(transaction=described)

    async def _described(self, rows: Sequence[TransactionRow]) -> list[pb.TransactionDescription]:
        now_ms = self._now_ms()
        answered, found = await self._coordination.staged([row.transaction_id for row in rows])
        staged: dict[tuple[int, int], list[peer.StagedHere]] = defaultdict(list)
        for one in found:
            staged[one.transaction_id, one.group].append(one)
        described = []
        for row in rows:
            parts = [
                self._part(group, part, staged[row.transaction_id, group], answered)
                for group, part in row.parts.items()
            ]
            described.append(self._description(row, now_ms, parts))
        return described

    def _description(
        self, row: TransactionRow, now_ms: int, parts: Sequence[pb.TransactionPart]
    ) -> pb.TransactionDescription:
        return pb.TransactionDescription(
            transaction_id=row.transaction_id,
            state=_state(row),
            reason=row.reason,
            producer_name=row.owner,
            producer_id=row.holder.producer_id,
            epoch=row.holder.epoch,
            begun_ms=row.begun_ms,
            age_ms=max(0, now_ms - row.begun_ms),
            idle_timeout_ms=row.idle_ms,
            total_timeout_ms=row.total_ms,
            partitions=parts,
            sink=row.sink,
            staged_bytes=sum(max(0, part.staged_bytes) for part in parts),
        )

    def _part(
        self, group: int, part: Participant, staged: Sequence[peer.StagedHere], answered: set[int]
    ) -> pb.TransactionPart:
        place = self.node.metadata.partition(group)
        if place is None:
            return pb.TransactionPart(ended=part.done)
        found = pb.TransactionPart(topic=place[0].name, partition=place[1], ended=part.done)
        if self.node.leader_of(group)[0] in answered:
            found.staged_records = sum(one.records for one in staged)
            found.staged_bytes = sum(one.bytes for one in staged)
            found.staged_offsets = sum(one.offsets for one in staged)
        else:
            found.staged_records = found.staged_bytes = found.staged_offsets = -1
        return found


def _state(row: TransactionRow) -> str:
    return f"TRANSACTION_STATE_{row.state.name}"


def _begun(record: tpb.TransactionRecord) -> pb.BeginTransactionResponse:
    return pb.BeginTransactionResponse(
        transaction_id=record.transaction_id,
        idle_timeout_ms=record.idle_ms,
        total_timeout_ms=record.total_ms,
    )
