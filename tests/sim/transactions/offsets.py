"""A group that stands for a partition of `__offsets`: its leader also keeps offsets.

One consumer group, whose input partitions are numbers. The work of a node's services around the
machine is repeated here, as `leaders` has it for batches.
"""

from __future__ import annotations

from typing import Any

from cluster.partition.group_offsets import pack_command
from cluster.partition.group_state import CommitResult
from cluster.transactions.types import Holder
from cluster.v1 import offsets_pb2 as pb
from tests.sim.transactions.leaders import METADATA, PartitionLeader
from tests.sim.transactions.machines import NOTHING
from tests.sim.transactions.world import LOST, Call, Group, Process, Reply, World

GROUP, TOPIC, TOPIC_ID = "g", "in", 1


def offset_record(partition: int, offset: int) -> pb.OffsetRecord:
    return pb.OffsetRecord(topic=TOPIC, topic_id=TOPIC_ID, partition=partition, offset=offset)


class OffsetsLeader(PartitionLeader):
    """Leads the group for one term."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.registered.update(group.machine.group_offsets.staged.transactions())

    def _table(self) -> Any:
        return self.group.machine.group_offsets

    def _propose(self, reply: Reply, command: pb.OffsetsCommand) -> None:
        self.group.propose(pack_command(command), reply)

    # -- offsets ----------------------------------------------------------------------------

    def stage_offsets(self, reply: Reply, call: pb.StageOffsets, holder: Holder) -> None:
        if not self.alive:
            reply(LOST)
        elif (
            call.transaction_id in self.registered
            or self.group.machine.runs.over(call.transaction_id) is not None
        ):
            self._propose(reply, pb.OffsetsCommand(stage=call))
        else:
            self.group.world.spawn(self._register_first(call, holder), reply)

    def _register_first(self, call: pb.StageOffsets, holder: Holder) -> Process:
        answer = yield Call(
            METADATA,
            "command",
            {
                "method": "register",
                "transaction_id": call.transaction_id,
                "holder": holder,
                "group": self.group.number,
            },
        )
        if answer != "REGISTERED" or not self.alive:
            return answer if isinstance(answer, tuple) else LOST
        self.registered.add(call.transaction_id)
        return (yield from self._proposed(pb.OffsetsCommand(stage=call)))

    def _proposed(self, command: pb.OffsetsCommand) -> Process:
        box: list[Any] = []
        self._propose(box.append, command)
        while not box:
            yield None
        return box[0]

    def commit_offset(
        self, reply: Reply, partition: int, offset: int, member: str, ownership: int, number: int
    ) -> None:
        if not self.alive:
            reply(LOST)
            return
        commit = pb.CommitGroupOffsets(
            group=GROUP, offsets=[offset_record(partition, offset)], member=member, number=number
        )
        if member:
            commit.ownerships.append(ownership)
        self._propose(
            lambda result: reply(result if result is LOST else result[0]),
            pb.OffsetsCommand(commit=commit),
        )

    def take(self, reply: Reply, partition: int, member: str) -> None:
        """Gives a partition to a member: the ownership's number, or LOST to a slower one."""
        if not self.alive:
            reply(LOST)
            return
        self.group.world.spawn(self._take(partition, member), reply)

    def _take(self, partition: int, member: str) -> Process:
        facts = self._table().ownership(GROUP)
        known = facts.owners.get((TOPIC_ID, partition))
        change = pb.OwnerChange(
            topic_id=TOPIC_ID,
            partition=partition,
            member=member,
            expected=0 if known is None else known.number,
        )
        command = pb.OffsetsCommand(change_owners=pb.ChangeOwners(group=GROUP, changes=[change]))
        result = yield from self._proposed(command)
        if result is LOST or not self.alive:
            return LOST
        owner = self._table().ownership(GROUP).owners.get((TOPIC_ID, partition))
        return owner.number if owner is not None and owner.member == member else LOST

    # -- reading ----------------------------------------------------------------------------

    def fetch_offset(self, reply: Reply, partition: int) -> None:
        """Ends transactions with staged offsets, then answers; -1: nothing is committed."""
        self.group.world.spawn(self._fetch(partition), reply)

    def _fetch(self, partition: int) -> Process:
        key = (TOPIC, partition)
        while self.alive:
            box: list[Any] = []
            self.group.propose(NOTHING, box.append)
            while not box:
                yield None
            if box[0] is LOST:
                break
            number = self._table().staged.holders(GROUP).get(key)
            if number is None:
                known = self._table().group(GROUP)
                state = None if known is None else known.get(key)
                return -1 if state is None else state.offset
            yield self._abort(number)
            yield from self._changed(number)
        return LOST

    def _changed(self, number: int) -> Process:
        """Returns when the transaction has ended here."""
        while self.alive and self.group.machine.runs.over(number) is None:
            yield None

    @staticmethod
    def _abort(number: int) -> Call:
        arguments = {"transaction_id": number, "holder": None, "reason": "group"}
        return Call(METADATA, "command", {"method": "abort", **arguments})

    def sweep(self) -> None:
        """Aborts transactions whose offsets are of partitions with another owner now."""
        for number in self._table().overtaken():
            self.group.world.call(self._abort(number), lambda answer: None)


def sweep(world: World) -> None:
    """Has each leader of offsets look around."""
    for group in list(world.groups.values()):
        if isinstance(group.leader, OffsetsLeader) and not group.gone:
            group.leader.sweep()


def refusal(answer: Any) -> str:
    """Names why a call about offsets did nothing; "": it did."""
    if isinstance(answer, CommitResult):
        return answer.error
    return str(answer[0]) if isinstance(answer, tuple) else ""
