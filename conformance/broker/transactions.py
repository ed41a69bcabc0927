"""Transactions of the simulated cluster, for the nodes' own services.

    cluster.services --confirm, published--> Transactions --> the partitions' leaders
    Coordinator in the metadata --markers--> runs become readable and offsets stored, or dropped

A decided transaction gets its markers at once, unless a case holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cluster.consensus.proposals import Applied, Outcome
from cluster.errors import NotReadyError
from cluster.metadata.topics import Rejected
from cluster.partition.replica import Partition
from cluster.transactions.run_records import published_record
from cluster.transactions.runs import Marked
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import (
    COMMIT_INCOMPLETE,
    Expected,
    Marker,
    Published,
    TransactionState,
)
from cluster.v1 import transactions_pb2 as tpb
from cluster.v1.peer_pb2 import StagedHere

if TYPE_CHECKING:
    from conformance.broker.cluster import Cluster


class Transactions:
    """All transactions of the cluster. `ended`: whether each one committed, for the judge.

    are_markers_held: decided transactions wait for `mark`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ended: dict[int, bool] = {}
        self.are_markers_held = False

    async def confirm(
        self, transaction_id: int, asked: Sequence[Expected], groups: Iterable[int], sink: bool
    ) -> list[Expected]:
        """As `Coordination.confirm`."""
        found: dict[tuple[int, int, str], Expected] = {}
        for group in groups:
            here = [one for one in asked if one.group == group]
            runs = {
                one.producer_id: (one.records, one.last) for one in here if not one.consumer_group
            }
            offsets = {
                one.consumer_group: (one.records, one.last) for one in here if one.consumer_group
            }
            confirmed = self._leader(group).confirm_runs(
                transaction_id, runs, offsets=offsets, only_winners=sink
            )
            if confirmed is None:
                raise NotReadyError("a partition has no leader")
            if isinstance(confirmed, str):
                raise Rejected(COMMIT_INCOMPLETE, confirmed)
            found |= {one.run: one for one in here if one.consumer_group}
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

    def _leader(self, group: int) -> Partition:
        log = self._cluster.log_of(group)
        assert log is not None, "cases delete no topic of an open transaction"
        return log.leader

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
        outcomes = list[Outcome]()
        self._leader(group).mark(marker, outcomes.append)
        (outcome,) = outcomes
        assert isinstance(outcome, Applied) and isinstance(outcome.result, Marked), outcome
        runs = map(published_record, outcome.result.ended.runs)
        return tpb.PartRecord(group_id=group, done=True, runs=runs)
