"""Transactions of the simulated cluster, by the nodes' own rules; and their service.

    Cluster.append --staged batch--> Transactions.take --> RunTable (cluster.transactions)
    GroupService --staged offsets--> Transactions --> OffsetsTable (cluster.partition)
    TransactionService --begin, commit, abort--> Coordinator in the metadata
                             '--> markers: runs become readable and offsets stored, or dropped

A decided transaction gets its markers at once, unless a case holds them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.metadata.topics import OFFSETS_TOPIC
from cluster.partition.group_state import CommitResult
from cluster.services.groups.offsets_wire import offset_record
from cluster.services.log.lease_checks import unproven
from cluster.transactions.run_records import expected_record, published_record
from cluster.transactions.transaction import Transaction
from cluster.transactions.types import Expected, Marker, State
from cluster.v1 import offsets_pb2 as opb
from cluster.v1 import transactions_pb2 as tpb
from conformance.broker.lies import Lie
from oncelog import errors
from oncelog.v1 import batch_pb2, transaction_pb2_grpc
from oncelog.v1 import group_pb2 as group_pb
from oncelog.v1 import transaction_pb2 as pb

if TYPE_CHECKING:
    from conformance.broker.cluster import Cluster, Partition
    from conformance.broker.stage import Stage

_REFUSED: dict[type[errors.OncelogError], Kind] = {
    errors.TransactionAbortedError: Kind.TRANSACTION_ABORTED,
    errors.TransactionEndedError: Kind.TRANSACTION_ENDED,
    errors.FencedError: Kind.FENCED,
}
STAGED = (Kind.STAGED, Kind.STAGED_DUPLICATE)
DEFAULT_IDLE_MS, DEFAULT_TOTAL_MS = 60_000, 15 * 60_000


class Transactions:
    """All transactions of the cluster. `ended`: whether each one committed, for the judge.

    are_markers_held: decided transactions wait for `mark`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ended: dict[int, bool] = {}
        self.are_markers_held = False
        self._index = 0

    # --- batches -----------------------------------------------------------------------

    def take(self, partition: Partition, batch: batch_pb2.Batch, found: BatchMeta) -> Verdict:
        """Judges a staged batch; keeps it if the verdict is STAGED."""
        number = batch.header.transaction_id
        if not found.producer_id or found.expected_offset >= 0:
            text = "transaction_id: needs a producer_id, and no expected_offset"
            return Verdict(Kind.INVALID_BATCH, message=text)
        refused = None if partition.runs.over(number) else self._register(partition, number, found)
        if refused is not None:
            return refused
        verdict = partition.runs.check(found, number, partition.last_seen)
        if verdict.kind is Kind.STAGED:
            self._index += 1
            relative = partition.runs.stage(
                found,
                number,
                partition.last_seen,
                index=self._index,
                size=len(batch.payload),
                max_timestamp_us=batch.header.max_timestamp_us,
                time_ms=self._cluster.now_ms,
                pin=True,
            )
            partition.staged.setdefault(number, []).append((batch, found))
            verdict = Verdict(Kind.STAGED, base_offset=relative)
        return verdict

    def _register(self, partition: Partition, number: int, found: BatchMeta) -> Verdict | None:
        return self._registered(number, found.producer_id, found.epoch, self._group(partition))

    def _registered(self, number: int, producer_id: int, epoch: int, group: int) -> Verdict | None:
        """Registers the group with the transaction; returns the refusal, or None."""
        register = tpb.RegisterTransaction(
            transaction_id=number, producer_id=producer_id, epoch=epoch, groups=[group]
        )
        try:
            self._cluster.propose(transaction=tpb.TransactionCommand(register=register))
        except errors.OncelogError as error:
            kind = _REFUSED.get(type(error), Kind.INVALID_BATCH)
            return Verdict(kind, message=error.message)
        return None

    def _group(self, partition: Partition) -> int:
        group = self._cluster.metadata.group_of(partition.topic, partition.number)
        assert group is not None, "the partition is there"
        return group

    # --- offsets -----------------------------------------------------------------------

    @property
    def _offsets_group(self) -> int:
        """Group of the partition with all groups' offsets; 0: nothing was staged there."""
        return self._cluster.metadata.group_of(OFFSETS_TOPIC, 0) or 0

    def stage_offsets(self, request: group_pb.StageOffsetsRequest) -> CommitResult:
        """Stages all offsets of the call, or none. Raises OncelogError."""
        cluster, number = self._cluster, request.transaction_id
        if not self._offsets_group:
            cluster.create_topic(OFFSETS_TOPIC)
        refused = self._registered(number, request.producer_id, request.epoch, self._offsets_group)
        if refused is not None:
            return CommitResult(refused.kind.name, refused.message, False, None)
        call = opb.StageOffsets(
            transaction_id=number,
            group=request.group,
            offsets=[
                offset_record(commit, cluster.topic(commit.topic).topic_id)
                for commit in request.offsets
            ],
            number=request.number,
        )
        command = opb.OffsetsCommand(stamp_ms=cluster.now_ms, stage=call)
        result = cluster.apply_offsets(command.SerializeToString())
        assert isinstance(result, CommitResult)
        return result

    def end_staged(self, group: str, keys: Collection[tuple[str, int]]) -> None:
        """Aborts open transactions that staged these offsets (no keys: all of the group).

        Used when a reader continues from the offsets.
        """
        holders = dict(self._cluster.offsets.staged.holders(group))
        for number in {holders[key] for key in holders if not keys or key in keys}:
            self.abort(number)

    # --- the end -----------------------------------------------------------------------

    def commit(self, request: pb.CommitTransactionRequest) -> Transaction:
        """Commits a transaction. Raises OncelogError."""
        coordinator = self._cluster.metadata.coordinator
        asked = [self._asked(request, run) for run in request.runs]
        asked += [self._asked_offsets(request.producer_id, staged) for staged in request.offsets]
        row = coordinator.get(request.transaction_id)
        expected = asked
        if row is not None and row.state is State.OPEN:
            expected = self.confirmed(row, asked)
        commit = tpb.CommitTransaction(
            transaction_id=request.transaction_id,
            producer_id=request.producer_id,
            epoch=request.epoch,
            expected=map(expected_record, expected),
            checked=0 if row is None else len(row.parts),
        )
        self._cluster.propose(transaction=tpb.TransactionCommand(commit=commit))
        self.mark()
        decided = coordinator.get(request.transaction_id)
        if decided is not None and decided.state is State.COMMITTING:
            raise errors.NotReadyError("the markers are on their way")
        assert decided is not None, "its owner has begun no other"
        if decided.state is not State.COMMITTED:
            text = f"transaction {request.transaction_id} was aborted: {decided.reason}"
            raise errors.TransactionAbortedError(text)
        return decided

    def _asked(self, request: pb.CommitTransactionRequest, run: pb.StagedRun) -> Expected:
        group = self._cluster.metadata.group_of(run.topic, run.partition)
        if group is None:
            text = f"runs: {run.topic}/{run.partition} is not there"
            raise errors.InvalidRequestError(text, field="runs")
        return Expected(group, request.producer_id, run.record_count, run.last_sequence)

    def _asked_offsets(self, producer_id: int, staged: pb.StagedOffsets) -> Expected:
        group = self._offsets_group
        if not group:
            text = f"offsets: nothing is staged of group {staged.group!r}"
            raise errors.InvalidRequestError(text, field="offsets")
        records, last = staged.offset_count, staged.last_number
        return Expected(group, producer_id, records, last, consumer_group=staged.group)

    def confirmed(
        self, row: Transaction, asked: list[Expected], *, only_winners: bool = False
    ) -> list[Expected]:
        """Matches the asked runs with the partitions' runs. Raises CommitIncompleteError."""
        found: dict[tuple[int, int, str], Expected] = {}
        groups = {one.consumer_group: one for one in asked if one.consumer_group}
        staged = {group: (one.records, one.last) for group, one in groups.items()}
        if differs := self._cluster.offsets.confirm(row.transaction_id, staged):
            raise errors.CommitIncompleteError(differs)
        found.update({one.run: one for one in groups.values()})
        for group in row.parts:
            here = {
                one.producer_id: (one.records, one.last)
                for one in asked
                if one.group == group and not one.consumer_group
            }
            confirmed = self._partition(group).runs.confirm(
                row.transaction_id, here, only_winners=only_winners
            )
            if isinstance(confirmed, str):
                raise errors.CommitIncompleteError(confirmed)
            for one in confirmed.values():
                found[group, one.producer_id, ""] = one._replace(group=group)
        missing = [one for one in asked if one.run not in found]
        if missing:
            raise errors.CommitIncompleteError(f"nothing was staged of {missing[0]}")
        return [found[one.run] for one in asked]

    def _partition(self, group: int) -> Partition:
        place = self._cluster.metadata.partition(group)
        assert place is not None, "cases delete no topic of an open transaction"
        return self._cluster.partitions[place[0].name, place[1]]

    def abort(self, transaction_id: int, producer_id: int = 0, epoch: int = 0) -> None:
        """Aborts a transaction. Raises OncelogError. Without a producer: as an operator."""
        abort = tpb.AbortTransaction(
            transaction_id=transaction_id,
            producer_id=producer_id,
            epoch=epoch,
            reason="owner" if producer_id else "operator",
        )
        self._cluster.propose(transaction=tpb.TransactionCommand(abort=abort))
        self.mark()

    def mark(self) -> None:
        """Tells each partition the outcome of decided transactions."""
        coordinator = self._cluster.metadata.coordinator
        for row in coordinator.decided() if not self.are_markers_held else ():
            marked = tpb.MarkedParts(transaction_id=row.transaction_id)
            for group, part in row.parts.items():
                if not part.done:
                    marker = coordinator.marker(row, group, self._cluster.now_ms)
                    marked.parts.append(self._end(group, marker))
            done = tpb.MarkersDone(transactions=[marked])
            self._cluster.propose(transaction=tpb.TransactionCommand(markers_done=done))
        self._note()

    def _note(self) -> None:
        coordinator = self._cluster.metadata.coordinator
        for number in range(1, coordinator.open_low):
            row = coordinator.get(number)
            if row is not None:
                self.ended[number] = row.state is State.COMMITTED

    def _end(self, group: int, marker: Marker) -> tpb.PartRecord:
        partition = self._partition(group)
        self._index += 1
        marked = partition.runs.mark(
            marker,
            partition.last_seen,
            index=self._index,
            next_offset=partition.next_offset,
            time_ms=self._cluster.now_ms,
        )
        wanted = marker.expected if marker.committed else ()
        if group == self._offsets_group:
            stored = {one.consumer_group: one.last for one in wanted}
            self._cluster.offsets.end(marker.transaction_id, stored, self._cluster.now_ms)
        self.ended[marker.transaction_id] = marker.committed
        staged = partition.staged.pop(marker.transaction_id, [])
        # A sink's batch holds the winners' runs alone, in the winners' order.
        for run in marked.ended.runs if marked.published else ():
            for batch, found in staged:
                if found.producer_id == run.producer_id:
                    partition.put(batch, found, self._cluster.now_ms)
        self._cluster.notify()
        return tpb.PartRecord(group_id=group, runs=map(published_record, marked.ended.runs))


class TransactionService(transaction_pb2_grpc.TransactionServiceServicer):
    """Transaction service of one node; any node answers."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def BeginTransaction(
        self, request: pb.BeginTransactionRequest, context: Any
    ) -> pb.BeginTransactionResponse:
        async def truth(_: Lie | None) -> pb.BeginTransactionResponse:
            cluster = self._stage.cluster
            if not cluster.is_proven(request.lease_token, request.producer_id, request.epoch):
                verdict = unproven(request.lease_token, request.producer_id, request.epoch)
                raise errors.InvalidRequestError(verdict.message, field="lease_token")
            begin = tpb.BeginTransaction(
                producer_name=request.producer_name,
                producer_id=request.producer_id,
                epoch=request.epoch,
                nonce=request.nonce,
                idle_ms=request.idle_timeout_ms or DEFAULT_IDLE_MS,
                total_ms=request.total_timeout_ms or DEFAULT_TOTAL_MS,
            )
            result = cluster.propose(transaction=tpb.TransactionCommand(begin=begin))
            row = result.transaction
            return pb.BeginTransactionResponse(
                transaction_id=row.transaction_id,
                idle_timeout_ms=row.idle_ms,
                total_timeout_ms=row.total_ms,
            )

        facts = {
            "name": request.producer_name,
            "nonce": request.nonce,
            "token": bool(request.lease_token),
        }
        return await self._stage.answer("begin", facts, request, context, truth)

    async def KeepTransactionsAlive(
        self, request: pb.KeepTransactionsAliveRequest, context: Any
    ) -> pb.KeepTransactionsAliveResponse:
        async def truth(_: Lie | None) -> pb.KeepTransactionsAliveResponse:
            coordinator = self._stage.cluster.metadata.coordinator
            rows = {number: coordinator.get(number) for number in request.transaction_ids}
            ended = [n for n, row in rows.items() if row is None or row.state is not State.OPEN]
            return pb.KeepTransactionsAliveResponse(ended=ended)

        facts = {"transactions": list(request.transaction_ids)}
        return await self._stage.answer("keep_alive", facts, request, context, truth)

    async def CommitTransaction(
        self, request: pb.CommitTransactionRequest, context: Any
    ) -> pb.CommitTransactionResponse:
        async def truth(_: Lie | None) -> pb.CommitTransactionResponse:
            cluster = self._stage.cluster
            row = cluster.transactions.commit(request)
            answer = pb.CommitTransactionResponse(state=pb.TRANSACTION_STATE_COMMITTED)
            for group, part in row.parts.items():
                place = cluster.metadata.partition(group)
                assert place is not None, "cases delete no topic of an open transaction"
                for run in part.runs:
                    answer.runs.add(
                        topic=place[0].name,
                        partition=place[1],
                        base_offset=run.base_offset,
                        record_count=run.records,
                    )
            return answer

        facts = {
            "transaction": request.transaction_id,
            "runs": len(request.runs),
            "offsets": sum(one.offset_count for one in request.offsets),
            "records": sum(run.record_count for run in request.runs),
        }
        return await self._stage.answer("commit_transaction", facts, request, context, truth)

    async def AbortTransaction(
        self, request: pb.AbortTransactionRequest, context: Any
    ) -> pb.AbortTransactionResponse:
        async def truth(_: Lie | None) -> pb.AbortTransactionResponse:
            self._stage.cluster.transactions.abort(
                request.transaction_id, request.producer_id, request.epoch
            )
            return pb.AbortTransactionResponse()

        facts = {"transaction": request.transaction_id}
        return await self._stage.answer("abort_transaction", facts, request, context, truth)

    async def ListTransactions(
        self, request: pb.ListTransactionsRequest, context: Any
    ) -> pb.ListTransactionsResponse:
        async def truth(_: Lie | None) -> pb.ListTransactionsResponse:
            rows = self._stage.cluster.metadata.coordinator.unfinished()
            found = [row for row in rows if request.producer_name in ("", row.owner)]
            return pb.ListTransactionsResponse(transactions=map(self._described, found))

        return await self._stage.answer("list_transactions", {}, request, context, truth)

    async def DescribeTransaction(
        self, request: pb.DescribeTransactionRequest, context: Any
    ) -> pb.DescribeTransactionResponse:
        async def truth(_: Lie | None) -> pb.DescribeTransactionResponse:
            row = self._stage.cluster.metadata.coordinator.get(request.transaction_id)
            if row is None:
                raise errors.UnknownTransactionError("nobody knows it")
            return pb.DescribeTransactionResponse(transaction=self._described(row))

        return await self._stage.answer("describe_transaction", {}, request, context, truth)

    def _described(self, row: Transaction) -> pb.TransactionDescription:
        """Description of a transaction without its staged counts: other cases test those."""
        found = pb.TransactionDescription(
            transaction_id=row.transaction_id,
            state=f"TRANSACTION_STATE_{row.state.name}",
            reason=row.reason,
            producer_name=row.owner,
            producer_id=row.holder.producer_id,
            epoch=row.holder.epoch,
            begun_ms=row.begun_ms,
            idle_timeout_ms=row.idle_ms,
            total_timeout_ms=row.total_ms,
        )
        for group, part in row.parts.items():
            place = self._stage.cluster.metadata.partition(group)
            if place is not None:
                found.partitions.add(topic=place[0].name, partition=place[1], ended=part.done)
        return found
