"""A group that stands for the partition of `__offsets`: its leader also keeps offsets.

One consumer group, whose input partitions are numbers. Staging and reading are the services'.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.consensus.proposals import Outcome
from cluster.groups.ownership import TopicIdPartition
from cluster.kafka.sent import Sent
from cluster.partition.group_offsets import pack_command
from cluster.partition.group_state import CommitResult
from cluster.services.groups.offsets_wire import offset_record
from cluster.services.groups.staged_offsets import OffsetStaging
from cluster.services.outcomes import applied, one_answer, unable
from cluster.transactions.types import Holder
from cluster.v1 import offsets_pb2 as internal
from oncelog.v1 import group_pb2 as pb
from tests.sim.transactions.leaders import PartitionLeader
from tests.sim.transactions.world import LOST, Group, Reply

GROUP, TOPIC, TOPIC_ID = "g", "in", 1


def commit_of(partition: int, offset: int, ownership: int = 0) -> pb.OffsetCommit:
    return pb.OffsetCommit(topic=TOPIC, partition=partition, offset=offset, ownership=ownership)


class OffsetsLeader(PartitionLeader):
    """Leads the group for one term."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._staging = OffsetStaging(self.context)
        self.spawn(self.run())

    def stage_offsets(self, reply: Reply, request: pb.StageOffsetsRequest) -> None:
        ids = [TOPIC_ID] * len(request.offsets)
        self.spawn(self._staging.stage(self.partition, request, ids, 0, None), reply)

    def kafka_offsets(
        self,
        reply: Reply,
        name: str,
        holder: Holder,
        offset: int,
        sent: Sent,
        partition: int = 0,
    ) -> None:
        """TxnOffsetCommit: names no transaction."""

        async def stage(number: int) -> pb.StageOffsetsResponse:
            known = self.partition.group_offsets.staged.calls(number, GROUP)
            request = pb.StageOffsetsRequest(
                transaction_id=number,
                producer_id=holder.producer_id,
                epoch=holder.epoch,
                group=GROUP,
                number=known[-1].number + 1 if known else 1,
                offsets=[commit_of(partition, offset)],
            )
            caller = internal.ClassicCaller(generation=-1)
            return await self._staging.stage(self.partition, request, [TOPIC_ID], 0, caller)

        own = self.group.number
        self.spawn(self.open_ones.stage_offsets(name, holder, sent, own, stage), reply)

    async def _propose(self, command: internal.OffsetsCommand) -> Any:
        future: asyncio.Future[Outcome]
        future, done = one_answer()
        refused = self.partition.propose(pack_command(command), done)
        if refused is not None:
            raise unable(refused)
        return applied(await future).result

    def commit_offset(
        self, reply: Reply, partition: int, offset: int, member: str, ownership: int, number: int
    ) -> None:
        async def committed() -> CommitResult:
            record = offset_record(commit_of(partition, offset), TOPIC_ID)
            commit = internal.CommitGroupOffsets(
                group=GROUP, offsets=[record], member=member, number=number
            )
            if member:
                commit.ownerships.append(ownership)
            results: list[CommitResult] = await self._propose(
                internal.OffsetsCommand(commit=commit)
            )
            return results[0]

        self.spawn(committed(), reply)

    def take(self, reply: Reply, partition: int, member: str) -> None:
        """Gives a partition to a member: the ownership's number, or LOST to a slower one."""

        async def taken() -> object:
            table = self.partition.group_offsets
            known = table.ownership(GROUP).owners.get(TopicIdPartition(TOPIC_ID, partition))
            change = internal.OwnerChange(
                topic_id=TOPIC_ID,
                partition=partition,
                member=member,
                expected=0 if known is None else known.number,
            )
            owners = internal.ChangeOwners(group=GROUP, changes=[change])
            await self._propose(internal.OffsetsCommand(change_owners=owners))
            owner = table.ownership(GROUP).owners.get(TopicIdPartition(TOPIC_ID, partition))
            return owner.number if owner is not None and owner.member == member else LOST

        self.spawn(taken(), reply)

    def fetch_offset(self, reply: Reply, partition: int) -> None:
        """Ends transactions with staged offsets, then answers; -1: nothing is committed."""

        async def fetched() -> int:
            key = (TOPIC, partition)
            await self._staging.end_staged(self.partition, GROUP, {key}, lambda: None)
            known = self.partition.group_offsets.group(GROUP)
            state = None if known is None else known.get(key)
            return -1 if state is None else state.offset

        self.spawn(fetched(), reply)


def refusal(answer: Any) -> str:
    """Names why a call about offsets did nothing; "": it did."""
    if isinstance(answer, CommitResult | pb.StageOffsetsResponse):
        return answer.error
    return str(answer[0]) if isinstance(answer, tuple) else ""
