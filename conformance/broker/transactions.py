"""Transactions of the simulated cluster, by the nodes' own rules, for the nodes' own services.

    Cluster.append --staged batch--> Transactions.take --> RunTable (cluster.transactions)
    GroupService --staged offsets--> Transactions --> OffsetsTable (cluster.partition)
    cluster.services --confirm, published--> Transactions
    Coordinator in the metadata --markers--> runs become readable and offsets stored, or dropped

A decided transaction gets its markers at once, unless a case holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.errors import NotReadyError
from cluster.metadata.topics import OFFSETS_TOPIC, Rejected
from cluster.partition.group_state import CommitResult
from cluster.services.groups.offsets_wire import offset_record
from cluster.transactions.run_records import published_record
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import (
    COMMIT_INCOMPLETE,
    Expected,
    Marker,
    Published,
    TransactionState,
)
from cluster.v1 import offsets_pb2 as opb
from cluster.v1 import transactions_pb2 as tpb
from cluster.v1.peer_pb2 import StagedHere
from oncelog import errors
from oncelog.v1 import batch_pb2
from oncelog.v1 import group_pb2 as group_pb

if TYPE_CHECKING:
    from conformance.broker.cluster import Cluster, Partition

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

    async def confirm(
        self, transaction_id: int, asked: Sequence[Expected], groups: Iterable[int], sink: bool
    ) -> list[Expected]:
        """As `Coordination.confirm`."""
        offsets = [one for one in asked if one.consumer_group]
        staged = {one.consumer_group: (one.records, one.last) for one in offsets}
        if differs := self._cluster.offsets.confirm(transaction_id, staged):
            raise Rejected(COMMIT_INCOMPLETE, differs)
        found = {one.run: one for one in offsets}
        for group in groups:
            here = {
                one.producer_id: (one.records, one.last)
                for one in asked
                if one.group == group and not one.consumer_group
            }
            runs = self._partition(group).runs
            confirmed = runs.confirm(transaction_id, here, only_winners=sink)
            if isinstance(confirmed, str):
                raise Rejected(COMMIT_INCOMPLETE, confirmed)
            for one in confirmed.values():
                found[group, one.producer_id, ""] = one._replace(group=group)
        missing = [one for one in asked if one.run not in found]
        if missing:
            raise Rejected(COMMIT_INCOMPLETE, f"nothing was staged of {missing[0]}")
        return [found[one.run] for one in asked]

    async def published(self, row: TransactionRow) -> Mapping[int, Sequence[Published]]:
        """Raises NotReadyError while a case holds the markers."""
        if row.state is TransactionState.COMMITTING:
            raise NotReadyError("the markers are on their way")
        return {group: part.runs for group, part in row.parts.items()}

    def publish(self, row: TransactionRow) -> None:
        """Does nothing: the decision has written the markers, or a case holds them."""

    async def finished(self, row: TransactionRow) -> None:
        await self.published(row)

    async def keep_alive(self, transaction_ids: Sequence[int]) -> list[int]:
        rows = map(self._cluster.metadata.coordinator.get, transaction_ids)
        states = zip(transaction_ids, rows, strict=True)
        return [n for n, row in states if row is None or row.state is not TransactionState.OPEN]

    async def staged(self, transaction_ids: Sequence[int]) -> tuple[set[int], list[StagedHere]]:
        """Nothing is counted: other cases look at what is staged."""
        return set(self._cluster.addresses), []

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
                self.ended[number] = row.state is TransactionState.COMMITTED

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
