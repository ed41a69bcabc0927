"""Cases 25, 26 and 43 to 45: a consumer group's offsets in a transaction, and their owners."""

from __future__ import annotations

from typing import Any

from cluster.transactions.types import Holder
from oncelog.v1 import group_pb2 as pb
from tests.sim.transactions.cases.registry import case, opened, same
from tests.sim.transactions.clients import batch_of, command
from tests.sim.transactions.offsets import GROUP, OffsetsLeader, commit_of, refusal
from tests.sim.transactions.run import add_partition
from tests.sim.transactions.stage import NOT_YET, Asked, Stage
from tests.sim.transactions.world import METADATA, Call


class Groups(Stage):
    """Partition 1 for the output, 2 for the offsets. Items of input 0 become records."""

    def __init__(self) -> None:
        super().__init__(1)
        assert add_partition(self.world, OffsetsLeader) == 2
        self.world.settle()

    def take(self, member: str) -> int:
        """The number of the member's ownership of input 0."""
        return int(self.ask(Call(2, "take", {"partition": 0, "member": member})).answer)

    def stage_call(
        self,
        holder: Holder,
        transaction: int,
        offset: int,
        number: int,
        member: str = "",
        ownership: int = 0,
    ) -> Call:
        request = pb.StageOffsetsRequest(
            transaction_id=transaction,
            producer_id=holder.producer_id,
            epoch=holder.epoch,
            group=GROUP,
            offsets=[commit_of(0, offset, ownership)],
            member_id=member,
            number=number,
        )
        return Call(2, "stage_offsets", {"request": request})

    def stage(self, *args: Any, **of: Any) -> str:
        return refusal(self.ask(self.stage_call(*args, **of)).answer)

    def fetch_call(self) -> Call:
        return Call(2, "fetch_offset", {"partition": 0})

    def by_hand(self, offset: int, member: str = "", ownership: int = 0, number: int = 0) -> str:
        arguments = {"partition": 0, "offset": offset, "member": member, "ownership": ownership}
        return refusal(self.ask(Call(2, "commit_offset", {**arguments, "number": number})).answer)

    def write(self, holder: Holder, transaction: int, sequence: int, item: int) -> str:
        """Writes one record, made of an item."""
        meta = batch_of(*holder, sequence, sequence, sequence - 1, item)
        arguments = {"meta": meta, "transaction_id": transaction, "records": ((0, item),)}
        return self.ask(Call(1, "batch", arguments)).kind

    def decided(self, transaction: int, holder: Holder, records: int, *offsets: int) -> Asked:
        """A commit of so many records and (calls, last number); nobody has applied a marker."""
        pid = holder.producer_id
        asked = ((1, pid, records, records - 1), (2, pid, *offsets, GROUP))
        self.hold("write_markers")
        arguments = {"transaction_id": transaction, "holder": holder, "asked": asked}
        found = self.ask(Call(METADATA, "commit", {**arguments, "visible": False}))
        same(found.kind, "COMMITTING")
        return found

    def items(self) -> list[int]:
        """Items that have become readable records."""
        return [record.content[1] for record in self.checker.readable[1]]

    def offset(self) -> int:
        """The committed offset."""
        known = self.group(2).machine.group_offsets.group(GROUP)
        state = None if known is None else known.get(("in", 0))
        return -1 if state is None else state.offset


def begun(stage: Groups, name: str = "p") -> tuple[Holder, int]:
    holder = opened(stage, name, (1,))
    return holder, stage.begin(name, holder)


@case
def c25_member_that_lost_the_partition_in_the_middle() -> None:
    """The loser's output and offsets never appear; the new owner's appear once."""
    stage = Groups()
    first = stage.take("a")
    holder, number = begun(stage)
    same(stage.write(holder, number, 0, 0), "STAGED")
    same(stage.stage(holder, number, 1, 1, member="a", ownership=first), "")
    second = stage.take("b")
    same(stage.ask(stage.fetch_call()).answer, -1)
    same(stage.stage(holder, number, 2, 2, member="a", ownership=first)[:11], "TRANSACTION")
    other, theirs = begun(stage, "q")
    same(stage.write(other, theirs, 0, 0), "STAGED")
    same(stage.stage(other, theirs, 1, 1, member="b", ownership=second), "")
    asked = stage.commit(number, holder, (1, 1, 0))
    assert asked.answer[0] in ("TRANSACTION_ABORTED", "COMMIT_INCOMPLETE"), asked.answer
    stage.decided(theirs, other, 1, 1, 1)
    stage.release()
    same((stage.items(), stage.offset()), ([0], 1))
    stage.finish()


@case
def c25_ownership_that_was_lost_and_won_again() -> None:
    """The member and its id are the same; its earlier work was done again meanwhile."""
    stage = Groups()
    first = stage.take("a")
    holder, number = begun(stage)
    second = stage.take("b")
    same(stage.by_hand(0, "b", second, 1), "")
    stage.take("a")
    late = stage.stage(holder, number, 1, 2, member="a", ownership=first)
    same(late, "FENCED_MEMBER")
    same(stage.by_hand(1, "a", first, 3), "FENCED_MEMBER")
    same(stage.offset(), 0)
    stage.finish()


@case
def c25_new_owner_that_seeks() -> None:
    """The new owner does not fetch: the old one's marker must not take its commit back."""
    stage = Groups()
    first = stage.take("a")
    holder, number = begun(stage)
    same(stage.write(holder, number, 0, 0), "STAGED")
    same(stage.stage(holder, number, 1, 1, member="a", ownership=first), "")
    stage.decided(number, holder, 1, 1, 1)
    second = stage.take("b")
    same(stage.by_hand(2, "b", second, 1), "TRANSACTION_CONFLICT")
    stage.release()
    same(stage.offset(), 1)
    same(stage.by_hand(1, "b", second, 2), "")
    stage.finish()


@case
def c25_old_owner_is_gone() -> None:
    """The leader that gave the partition away aborts the old transaction: nobody fetches."""
    stage = Groups()
    first = stage.take("a")
    holder, number = begun(stage)
    same(stage.stage(holder, number, 1, 1, member="a", ownership=first), "")
    second = stage.take("b")
    stage.elect(2)
    same(stage.by_hand(0, "b", second, 1), "")
    stage.finish()


@case
def c26_offset_and_output_after_each_loss() -> None:
    """Offset and output are both there or neither, at every point of a crash."""
    for victim in (0, 1, 2):
        for survivors in (0, 1, 2):
            stage = Groups()
            holder, number = begun(stage)
            same(stage.write(holder, number, 0, 0), "STAGED")
            same(stage.stage(holder, number, 1, 1), "")
            pid = holder.producer_id
            asked = ((1, pid, 1, 0), (2, pid, 1, 1, GROUP))
            arguments = {"transaction_id": number, "holder": holder, "asked": asked}
            stage.send(Call(METADATA, "commit", arguments))
            stage.step_until_pending(METADATA)
            if victim:
                stage.group(METADATA).commit()
                stage.step_until_pending(1)
            if victim == 2:
                stage.group(1).commit()
                stage.step_until_pending(METADATA)
                stage.group(METADATA).commit()
                stage.step_until_pending(2)
            stage.elect(victim, survivors)
            stage.elect((victim + 1) % 3)
            expected = ([0], 1) if victim or survivors else ([], -1)
            same((stage.items(), stage.offset()), expected)
            stage.finish()


@case
def c43_marker_of_the_offsets_comes_last() -> None:
    """An earlier marker would show the successor's output before the records it follows."""
    stage = Groups()
    holder, number = begun(stage)
    same(stage.write(holder, number, 0, 0), "STAGED")
    same(stage.stage(holder, number, 1, 1), "")
    stage.world.hold = lambda call: call.method == "write_markers" and call.group == 1
    pid = holder.producer_id
    asked = ((1, pid, 1, 0), (2, pid, 1, 1, GROUP))
    stage.send(
        Call(
            METADATA,
            "commit",
            {"transaction_id": number, "holder": holder, "asked": asked},
        )
    )
    stage.world.settle()
    same((stage.items(), stage.offset()), ([], -1))
    stage.release()
    same((stage.items(), stage.offset()), ([0], 1))
    stage.finish()


@case
def c44_manual_group_restarts_between_decision_and_marker() -> None:
    """The group reads on from the decided offset, not from the readable one."""
    stage = Groups()
    holder, number = begun(stage)
    same(stage.write(holder, number, 0, 0), "STAGED")
    same(stage.stage(holder, number, 1, 1), "")
    stage.decided(number, holder, 1, 1, 1)
    stage.lease("p")
    fetched = stage.send(stage.fetch_call())
    stage.world.settle()
    same(fetched.answer, NOT_YET)
    stage.elect(METADATA)
    stage.release()
    same(fetched.answer, 1)
    same(stage.items(), [0])
    stage.finish()


@case
def c45_calls_that_come_in_another_order() -> None:
    stage = Groups()
    holder, number = begun(stage)
    late = stage.stage_call(holder, number, 1, 1)
    same(stage.write(holder, number, 0, 0), "STAGED")
    same(stage.write(holder, number, 1, 1), "STAGED")
    same(stage.stage(holder, number, 2, 2), "")
    same(refusal(stage.ask(late).answer), "OUT_OF_ORDER")
    same(stage.stage(holder, number, 2, 2), "")
    same(stage.stage(holder, number, 3, 2), "SEQUENCE_CONFLICT")
    stage.decided(number, holder, 2, 1, 2)
    # A straggler, and one after the end, count for nothing.
    same(stage.stage(holder, number, 9, 3), "")
    stage.release()
    same(stage.offset(), 2)
    assert stage.stage(holder, number, 9, 4).startswith("TRANSACTION_")
    same(stage.offset(), 2)
    stage.finish()


@case
def c45_offsets_after_the_end() -> None:
    """A call that was delayed past the abort, and past every memory of it."""
    stage = Groups()
    holder, number = begun(stage)
    same(stage.stage(holder, number, 1, 1), "")
    late = stage.stage_call(holder, number, 2, 2)
    stage.send(command("abort", transaction_id=number, holder=holder, reason="owner"))
    stage.step_until_pending(METADATA)
    stage.group(METADATA).commit()
    stage.step_until_pending(2)
    behind = stage.send(late)
    stage.step_until_pending(2, 2)
    stage.world.settle()
    assert refusal(behind.answer).startswith("TRANSACTION_")
    assert refusal(stage.ask(late).answer).startswith("TRANSACTION_")
    second = stage.begin("p", holder)
    assert refusal(stage.ask(late).answer).startswith("TRANSACTION_")
    same(stage.stage(holder, second, 1, 1), "")
    stage.abort(second, holder)
    same(stage.offset(), -1)
    stage.finish()
