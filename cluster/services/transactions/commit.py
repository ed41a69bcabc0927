"""Decision to commit: partitions confirm first, then one metadata command decides.

    TransactionService, SinkService --decide--> Decisions --confirm--> leaders of the partitions
                                                  '--CommitTransaction--> metadata

The coordinator's outcome holds, whichever node answers the client, and however often.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from cluster.features import TRANSACTIONS
from cluster.metadata.topics import Rejected
from cluster.services.context import NodeContext
from cluster.services.errors import accepted, rejection
from cluster.services.requests import invalid, timeout_s
from cluster.transactions.run_records import expected_record
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import (
    ABORT_STATES,
    CHECK_AGAIN,
    COMMIT_DIFFERS,
    TRANSACTION_ABORTED,
    Expected,
    Published,
    TransactionState,
)
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import peer_pb2 as peer
from cluster.v1 import transactions_pb2 as tpb
from oncelog.errors import InvalidRequestError

T = TypeVar("T")


class Coordination(Protocol):
    """The services' view of the node's `Transactions`."""

    async def confirm(
        self, transaction_id: int, asked: Sequence[Expected], groups: Iterable[int], sink: bool
    ) -> list[Expected]: ...

    async def published(self, row: TransactionRow) -> Mapping[int, Sequence[Published]]: ...

    def publish(self, row: TransactionRow) -> None: ...

    async def finished(self, row: TransactionRow) -> None: ...

    async def keep_alive(self, transaction_ids: Sequence[int]) -> list[int]: ...

    async def staged(
        self, transaction_ids: Sequence[int]
    ) -> tuple[set[int], list[peer.StagedHere]]: ...


class Decided(NamedTuple):
    """row: the transaction to commit. following: the transaction that the commit has begun.

    last_id: its owner's last one when the command was applied.
    """

    row: TransactionRow
    following: tpb.TransactionRecord | None
    last_id: int


# Returns all that a transaction has staged in these groups.
AllRuns = Callable[[int, Iterable[int]], Awaitable[Sequence[Expected]]]


class Decisions:
    """Decides commits for one node's services.

    all_runs: for owners that do not name the runs of a commit.
    """

    def __init__(
        self, node: NodeContext, coordination: Coordination, all_runs: AllRuns | None = None
    ) -> None:
        self.node = node
        self._coordination = coordination
        self._all_runs = all_runs

    async def decide(
        self,
        commit: tpb.CommitTransaction,
        asked: Sequence[Expected] | None,
        timeout_ms: int,
        *,
        sink: str = "",
    ) -> Decided:
        """Return the transaction once its commit is decided. Raises the refusal.

        asked: its runs as its owner knows them; None: all that its partitions have.
        sink: the sink that must own it; empty: a producer must.
        """
        number = commit.transaction_id
        while True:
            row = self._row(number)
            if row is None:
                await self.node.newest_metadata.wait()
                row = self._row(number)
            _check_whose(row, number, sink)
            groups = [] if row is None else list(row.parts)
            expected = asked
            if row is not None and row.state is TransactionState.OPEN:
                confirmed = await self._confirm(row, asked, groups)
                if confirmed is None:
                    continue
                expected = confirmed
            elif expected is None:
                expected = () if row is None else row.expected
            del commit.expected[:]
            commit.expected.extend(map(expected_record, expected))
            commit.checked = len(groups)
            result = await self.propose(tpb.TransactionCommand(commit=commit), timeout_ms)
            if result.error == CHECK_AGAIN or (asked is None and result.error == COMMIT_DIFFERS):
                continue
            state = TransactionState(accepted(result).transaction.state)
            decided = self._row(number) or row
            if state in ABORT_STATES or decided is None:
                text = f"transaction {number} was aborted: {result.transaction.reason}"
                raise rejection(TRANSACTION_ABORTED, text)
            begun = result.next_transaction if result.HasField("next_transaction") else None
            return Decided(decided, begun, result.transaction_id)

    async def _confirm(
        self, row: TransactionRow, asked: Sequence[Expected] | None, groups: list[int]
    ) -> Sequence[Expected] | None:
        """Return the partitions' confirmations; None: this node was behind, so look again.

        A refusal counts only if the transaction is still open with the same partitions
        afterwards: its runs disappear when it ends.
        """
        live = [group for group in groups if not row.parts[group].gone]
        if len(live) < len(groups):
            return asked or ()  # the decision will be to abort
        if asked is None:
            assert self._all_runs is not None, "over gRPC an owner names its runs"
            runs = await self._all_runs(row.transaction_id, live)
            return [run._replace(producer_id=row.holder.producer_id) for run in runs]
        try:
            return await self._coordination.confirm(row.transaction_id, asked, live, row.sink)
        except Rejected:
            await self.node.newest_metadata.wait()
            known = self._row(row.transaction_id)
            if (
                known is not None
                and known.state is TransactionState.OPEN
                and list(known.parts) == groups
            ):
                raise
            return None

    def _row(self, number: int) -> TransactionRow | None:
        """Return a transaction as it is now: a checkpoint replaces the coordinator."""
        return self.node.metadata.coordinator.get(number)

    async def newest(self, read: Callable[[], T]) -> T:
        """Return the result of `read`. If it refuses, it reads again once this node caught up:
        another node may have just created a topic.
        """
        try:
            return read()
        except InvalidRequestError:
            await self.node.newest_metadata.wait()
            return read()

    async def propose(
        self, command: tpb.TransactionCommand, timeout_ms: int
    ) -> meta.MetadataResult:
        self.node.metadata.features.require(TRANSACTIONS)
        timeout = timeout_s(timeout_ms, self.node)
        return await self.node.propose_metadata(meta.MetadataCommand(transaction=command), timeout)


def _check_whose(row: TransactionRow | None, number: int, sink: str) -> None:
    if row is None or (row.owner == sink if row.sink else not sink):
        return
    whose = f"sink {row.owner!r}" if row.sink else "a producer"
    raise invalid("transaction_id", f"{number} is a transaction of {whose}")
