"""Offsets of a group that belong to a transaction: stages them, and resolves them for readers.

    StageOffsets --register--> metadata, then entry --> OffsetsTable --> the outcome
    FetchOffsets --> open transactions aborted, decided ones awaited --> OffsetsTable

A reader that continues from a group's offsets must see every decided commit. It must not wait
for a transaction whose owner may be gone, so that transaction is aborted. The first of abort
and commit in the metadata's log is the outcome. Kafka's clients read offsets also while they own
the partition and have a transaction open: they are told to ask again, and it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from cluster.consensus.proposals import Outcome
from cluster.dedup.verdict import MAX_INT64, Kind
from cluster.errors import NotReadyError
from cluster.features import GROUPS, TRANSACTIONS
from cluster.metadata.topics import UNKNOWN_TOPIC_OR_PARTITION
from cluster.partition.group_offsets import OffsetsTable, pack_command
from cluster.partition.group_state import CommitResult, Key
from cluster.partition.replica import Partition
from cluster.services.context import NodeContext
from cluster.services.groups.offsets_wire import offset_record
from cluster.services.log.added_partitions import AddedPartitions
from cluster.services.outcomes import applied, confirm, one_answer, unable
from cluster.services.requests import in_range, invalid
from cluster.transactions.types import BY_GROUP, TransactionState
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import offsets_pb2 as internal
from cluster.v1 import transactions_pb2 as tpb
from oncelog.v1 import group_pb2 as pb


class OffsetStaging:
    """Stages offsets for one node's GroupService."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._added = AddedPartitions(node)

    def check(self, request: pb.StageOffsetsRequest) -> None:
        """Check the request apart from its offsets. Raises OncelogError, FeatureOffError."""
        self._node.metadata.features.require(TRANSACTIONS)
        if request.member_id:
            self._node.metadata.features.require(GROUPS)
        for field in ("transaction_id", "producer_id", "number"):
            in_range(field, getattr(request, field), 1, MAX_INT64)
        if any(commit.producer_id for commit in request.offsets):
            text = "must not be set: the transaction stands for its producer"
            raise invalid("offsets.producer_id", text)

    async def stage(
        self,
        replica: Partition,
        request: pb.StageOffsetsRequest,
        topic_ids: Collection[int],
        stamp_ms: int,
        classic: internal.ClassicCaller | None,
    ) -> pb.StageOffsetsResponse:
        """Stage the offsets. topic_ids: of each, 0: no such partition. Raises ClusterError."""
        if not all(topic_ids):
            return pb.StageOffsetsResponse(
                error=UNKNOWN_TOPIC_OR_PARTITION, message="there is no such partition"
            )
        call = internal.StageOffsets(
            transaction_id=request.transaction_id,
            group=request.group,
            offsets=[
                offset_record(commit, topic_id)
                for commit, topic_id in zip(request.offsets, topic_ids, strict=True)
            ],
            member=request.member_id,
            number=request.number,
            classic=classic,
        )
        if request.member_id:
            call.ownerships[:] = [commit.ownership for commit in request.offsets]
        data = pack_command(internal.OffsetsCommand(stamp_ms=stamp_ms, stage=call))
        number = request.transaction_id
        for _ in range(2):
            future: asyncio.Future[Outcome]
            future, done = one_answer()
            refused = replica.stage_offsets(number, data, done)
            if refused is None:
                result = applied(await future).result
                assert isinstance(result, CommitResult)
                return pb.StageOffsetsResponse(
                    error=result.error, message=result.message, duplicate=result.duplicate
                )
            if refused.verdict.kind is not Kind.UNREGISTERED:
                raise unable(refused)
            verdict = await self._added.register(
                replica.group.config.group, number, request.producer_id, request.epoch
            )
            if verdict is not None and verdict.kind is Kind.NOT_READY:
                raise NotReadyError(verdict.message)
            if verdict is not None:
                return pb.StageOffsetsResponse(error=verdict.kind.name, message=verdict.message)
            replica.registered(number)
        raise NotReadyError("another term has begun")

    async def end_staged(
        self,
        replica: Partition,
        group: str,
        keys: Collection[Key],
        check: Callable[[], None],
        *,
        is_classic: bool = False,
    ) -> frozenset[Key]:
        """Return when no transaction has staged one of these offsets (none: of the group).

        This node led after that. check: raises if the caller is not allowed to ask; called
        before each step, as that may change. is_classic: offsets staged by members of the newest
        generation may stay, and are returned. Raises ClusterError.
        """
        while True:
            changed = asyncio.Event()
            replica.listeners.add(changed.set)
            try:
                await confirm(replica)
                check()
                table = replica.group_offsets
                holders = dict(table.staged.holders(group))
                wanted = frozenset(holders.keys() & keys if keys else holders)
                numbers = sorted({holders[key] for key in wanted})
                if is_classic:
                    numbers = [one for one in numbers if not self._goes_on(table, one, group)]
                if not numbers:
                    return wanted
                for number in numbers:
                    await self._abort(number)
                await changed.wait()
            finally:
                replica.listeners.discard(changed.set)

    def _goes_on(self, table: OffsetsTable, transaction_id: int, group: str) -> bool:
        row = self._node.metadata.coordinator.get(transaction_id)
        is_open = row is None or row.state is TransactionState.OPEN
        return is_open and table.of_classic_members(transaction_id, group)

    async def _abort(self, transaction_id: int) -> None:
        """Abort the transaction unless it is decided. Raises ClusterError."""
        row = self._node.metadata.coordinator.get(transaction_id)
        if row is not None and row.state is not TransactionState.OPEN:
            return
        abort = tpb.AbortTransaction(transaction_id=transaction_id, reason=BY_GROUP)
        command = meta.MetadataCommand(transaction=tpb.TransactionCommand(abort=abort))
        await self._node.propose_metadata(command, self._node.config.request_timeout_ms / 1000)
