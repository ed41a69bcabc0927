"""Offsets that transactions stage, as a part of the table: limits, snapshots, markers."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.dedup.verdict import Kind, Verdict
from cluster.entries import CorruptEntryError
from cluster.partition.group_offsets import OffsetsTable
from cluster.partition.group_state import CommitResult
from cluster.v1 import offsets_pb2 as pb


def record(partition: int = 0, offset: int = 1, topic_id: int = 1) -> pb.OffsetRecord:
    return pb.OffsetRecord(topic="t", topic_id=topic_id, partition=partition, offset=offset)


def stage(
    table: OffsetsTable, transaction: int = 1, number: int = 1, *records: pb.OffsetRecord, **of: Any
) -> str:
    call = pb.StageOffsets(
        transaction_id=transaction,
        group=of.pop("group", "g"),
        offsets=records or [record()],
        number=number,
        **of,
    )
    result = table.apply(9, pb.OffsetsCommand(stage=call).SerializeToString())
    assert isinstance(result, CommitResult)
    return result.error or ("duplicate" if result.duplicate else "")


def commit(table: OffsetsTable, one: pb.OffsetRecord, group: str = "g") -> str:
    command = pb.CommitGroupOffsets(group=group, offsets=[one])
    results = table.apply(9, pb.OffsetsCommand(commit=command).SerializeToString())
    assert isinstance(results, list)
    return results[0].error


def own(table: OffsetsTable, index: int, member: str, expected: int = 0) -> None:
    change = pb.OwnerChange(topic_id=1, partition=0, expected=expected, member=member)
    command = pb.ChangeOwners(group="g", changes=[change])
    assert table.apply(index, pb.OffsetsCommand(change_owners=command).SerializeToString()) is True


def offsets(table: OffsetsTable, group: str = "g") -> dict[int, int]:
    state = table.group(group)
    return {} if state is None else {key[1]: one.offset for key, one in state.items()}


def test_a_call_is_staged_as_a_whole_or_not_at_all() -> None:
    table = OffsetsTable()
    assert commit(table, record(1, 5, topic_id=2)) == ""
    assert stage(table, 1, 1, record(0), record(1)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert not table.staged.holders("g")
    assert stage(table, 1, 1, record(0), record(2)) == ""
    assert stage(table, 2, 1, record(3), record(2)) == "TRANSACTION_CONFLICT"
    assert table.staged.holders("g") == {("t", 0): 1, ("t", 2): 1}
    assert commit(table, record(3)) == "" and commit(table, record(2)) == "TRANSACTION_CONFLICT"


def test_a_marker_stores_up_to_the_number_that_was_decided() -> None:
    table = OffsetsTable()
    for number in (1, 2, 5):
        assert stage(table, 1, number, record(0, 10 * number)) == ""
    assert stage(table, 1, 1, record(0, 7), group="h") == ""
    assert table.end(1, {"g": 2}, 1234)
    assert (offsets(table), offsets(table, "h")) == ({0: 20}, {})
    state = table.group("g")
    assert state is not None and state.last_commit_ms == 1234
    assert not table.end(1, None, 0), "a repeat finds nothing"


def test_a_commit_stores_all_offsets_of_kafkas_clients() -> None:
    """Their decision may come from a delayed call, while they still stage."""
    caller = {"classic": pb.ClassicCaller(generation=-1)}
    for stored, found in (({"g": 1}, {0: 20}), ({}, {0: 20}), (None, {})):
        table = OffsetsTable()
        for number in (1, 2):
            assert stage(table, 1, number, record(0, 10 * number), **caller) == ""
        assert table.end(1, stored, 0)
        assert offsets(table) == found and not table.staged.holders("g")
        assert OffsetsTable.load(table.dump()).dump() == table.dump()


def test_a_stable_read_knows_transactions_of_members() -> None:
    """Those of the newest generation go on; of all others nobody knows whether they live."""
    table = OffsetsTable()

    def generation(number: int, *members: str) -> None:
        joined = [pb.ClassicMember(member=one) for one in members]
        record = pb.ClassicGroup(group="g", generation=number, members=joined)
        assert table.apply(9, pb.OffsetsCommand(rebalance=record).SerializeToString()) is True

    generation(1, "a", "b")
    for transaction, caller in (
        (1, pb.ClassicCaller(member="a", generation=1)),
        (2, pb.ClassicCaller(generation=-1)),
    ):
        assert stage(table, transaction, 1, record(transaction), classic=caller) == ""
    assert [table.of_classic_members(one, "g") for one in (1, 2)] == [True, False]
    again = OffsetsTable.load(table.dump())
    for members in (("a", "c"), ()):
        generation(2, *members)
        assert not table.of_classic_members(1, "g")
    assert again.of_classic_members(1, "g")


def test_a_decision_on_what_is_not_there_is_damage() -> None:
    table = OffsetsTable()
    assert stage(table, 1, 1) == ""
    for stored in ({"g": 2}, {"h": 1}):
        again = OffsetsTable.load(table.dump())
        with pytest.raises(CorruptEntryError):
            again.end(1, stored, 0)


def test_what_a_marker_stores_has_its_room_kept() -> None:
    table = OffsetsTable(max_offsets=3, max_groups=2)
    assert stage(table, 1, 1, record(0), record(1)) == ""
    assert stage(table, 2, 1, record(0), group="h") == ""
    assert stage(table, 3, 1, record(2)) == "THROTTLED"
    assert commit(table, record(2)) == "THROTTLED"
    table.end(1, {"g": 1}, 0)
    table.end(2, None, 0)
    assert offsets(table) == {0: 1, 1: 1}
    assert commit(table, record(2)) == "", "the abort gave its room back"
    assert commit(table, record(3)) == "THROTTLED"


def test_saved_states_hold_what_is_staged() -> None:
    table = OffsetsTable()
    for transaction, number, group in ((2, 1, "g"), (1, 3, "h"), (1, 4, "h")):
        assert stage(table, transaction, number, record(number), group=group) == ""
    again = OffsetsTable.load(table.dump())
    assert again.dump() == table.dump()
    assert stage(again, 1, 4, record(4), group="h") == "duplicate"
    for one in (table, again):
        one.end(1, {"h": 4}, 0)
        one.end(2, None, 0)
    assert again.dump() == table.dump() and offsets(again, "h") == {3: 1, 4: 1}
    assert "staged" not in str(pb.OffsetsSnapshot.FromString(again.dump()))


def test_who_owns_the_partition_may_stage_and_is_overtaken_later() -> None:
    table = OffsetsTable()
    assert stage(table, 9, 1, record(0)) == "", "no members yet"
    assert not table.overtaken()
    own(table, 3, "a")
    assert table.overtaken() == [9]
    table.end(9, None, 0)
    of_a: dict[str, Any] = {"member": "a", "ownerships": [3]}
    assert stage(table, 1, 1, record(0)) == "GROUP_HAS_MEMBERS"
    assert stage(table, 1, 1, record(0), member="b", ownerships=[3]) == "FENCED_MEMBER"
    assert stage(table, 1, 1, record(0), **of_a) == ""
    assert not table.overtaken()
    own(table, 4, "b", expected=3)
    assert table.overtaken() == [1] == OffsetsTable.load(table.dump()).overtaken()
    table.end(1, {"g": 1}, 0)
    assert not table.overtaken() and offsets(table) == {0: 1}, "a decision stands"
    assert stage(table, 2, 2, record(0), **of_a) == "FENCED_MEMBER"


def test_numbers_of_a_member_rise_over_commits_and_staged_calls() -> None:
    table = OffsetsTable()
    own(table, 3, "a")
    of_a: dict[str, Any] = {"member": "a", "ownerships": [3]}

    def by_hand(number: int) -> str:
        command = pb.CommitGroupOffsets(group="g", offsets=[record(0, 50)], number=number, **of_a)
        results = table.apply(9, pb.OffsetsCommand(commit=command).SerializeToString())
        assert isinstance(results, list)
        return results[0].error

    assert by_hand(4) == ""
    assert stage(table, 1, 4, record(0), **of_a) == "OUT_OF_ORDER"
    assert stage(table, 1, 6, record(0), **of_a) == ""
    table.end(1, None, 0)
    assert by_hand(5) == "OUT_OF_ORDER", "it was late"
    assert by_hand(7) == ""


def test_nothing_is_staged_after_the_end_here() -> None:
    table = OffsetsTable()
    call = pb.StageOffsets(transaction_id=1, group="g", offsets=[record()], number=1)
    data = pb.OffsetsCommand(stage=call).SerializeToString()
    over = Verdict(Kind.TRANSACTION_ABORTED, message="it was aborted")
    result = table.apply(9, data, lambda number: over)
    assert isinstance(result, CommitResult)
    assert (result.error, result.message) == ("TRANSACTION_ABORTED", "it was aborted")
    assert not list(table.staged.transactions())


def test_a_group_with_staged_offsets_is_not_deleted() -> None:
    table = OffsetsTable()
    assert commit(table, record(1)) == "" and stage(table, 1, 1) == ""
    delete = pb.OffsetsCommand(delete=pb.DeleteGroupOffsets(group="g")).SerializeToString()
    assert table.apply(9, delete) == "TRANSACTION_CONFLICT"
    table.end(1, None, 0)
    assert table.apply(9, delete) is True
