"""Commits in classic groups: the generation is checked when they are applied."""

from __future__ import annotations

import struct

import pytest

from cluster.entries import CLASSIC_GROUPS, GROUP_MEMBERS, OFFSETS, STAGED_OFFSETS
from cluster.groups import classic_table
from cluster.groups.consumer_protocol import (
    assigned_partitions,
    assignment_of,
    subscribed_topics,
)
from cluster.partition.group_offsets import OffsetsTable, pack_command
from cluster.partition.group_state import CommitResult
from cluster.v1 import offsets_pb2 as pb


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(f">h{len(one)}s", len(one), one.encode()) for one in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


def rebalance(
    table: OffsetsTable, generation: int, *members: str, group: str = "g", size: int = 0
) -> bool:
    """Members are "m", or "m/instance" of a static one; each reads the topic t."""
    record = pb.ClassicGroup(group=group, generation=generation, protocol_type="consumer")
    for one in members:
        name, _, instance = one.partition("/")
        record.members.add(
            member=name, instance=instance, metadata=subscription("t"), assignment=bytes(size)
        )
    done = table.apply(9, pb.OffsetsCommand(rebalance=record).SerializeToString())
    assert isinstance(done, bool)
    return done


def caller(member: str = "", generation: int = -1, instance: str = "") -> pb.ClassicCaller:
    return pb.ClassicCaller(member=member, generation=generation, instance=instance)


def record(offset: int = 1, topic: str = "t") -> pb.OffsetRecord:
    return pb.OffsetRecord(topic=topic, topic_id=1, offset=offset)


def commit(table: OffsetsTable, by: pb.ClassicCaller | None, offset: int = 1) -> str:
    command = pb.CommitGroupOffsets(group="g", offsets=[record(offset)], classic=by)
    results = table.apply(9, pb.OffsetsCommand(commit=command).SerializeToString())
    assert isinstance(results, list)
    return results[0].error


def stage(table: OffsetsTable, by: pb.ClassicCaller | None, number: int = 1) -> str:
    call = pb.StageOffsets(
        transaction_id=1, group="g", offsets=[record()], number=number, classic=by
    )
    result = table.apply(9, pb.OffsetsCommand(stage=call).SerializeToString())
    assert isinstance(result, CommitResult)
    return result.error


def forget(table: OffsetsTable, topic: str = "t") -> str:
    command = pb.DeleteOffsets(group="g", offsets=[pb.OffsetKey(topic=topic)])
    results = table.apply(9, pb.OffsetsCommand(delete_offsets=command).SerializeToString())
    assert isinstance(results, list)
    return results[0].error


REFUSALS = [
    (None, "GROUP_HAS_MEMBERS"),
    (caller(), "UNKNOWN_MEMBER"),
    (caller("a", 4), "ILLEGAL_GENERATION"),
    (caller("a", 6), "ILLEGAL_GENERATION"),
    (caller("c", 5), "UNKNOWN_MEMBER"),
    (caller("b", 5, "j"), "UNKNOWN_MEMBER"),
    (caller("a", 5, "i"), "FENCED_INSTANCE"),
    (caller("a", 5), ""),
    (caller("b", 5, "i"), ""),
    (caller("b", 5), ""),
]


@pytest.mark.parametrize(("by", "error"), REFUSALS, ids=str)
def test_only_members_of_the_newest_generation_commit(
    by: pb.ClassicCaller | None, error: str
) -> None:
    table = OffsetsTable()
    assert commit(table, None) == "" and rebalance(table, 5, "a", "b/i")
    assert commit(table, by, 7) == error
    again = OffsetsTable.load(table.dump())
    assert commit(again, by, 8) == error
    state = table.group("g")
    assert state is not None
    assert next(state.items())[1].offset == (1 if error else 7)


def test_a_newer_generation_ends_the_commits_of_the_one_before() -> None:
    table = OffsetsTable()
    assert rebalance(table, 1, "a") and commit(table, caller("a", 1)) == ""
    assert rebalance(table, 2, "a", "b") and commit(table, caller("a", 1)) == "ILLEGAL_GENERATION"
    assert commit(table, caller("a", 2)) == ""
    assert rebalance(table, 3)
    assert commit(table, caller("a", 2)) == "UNKNOWN_MEMBER" and commit(table, None) == ""
    assert not table.classic_groups() and not table.has_members("g")


def test_a_transaction_stages_offsets_as_a_member_or_as_nobody() -> None:
    table = OffsetsTable()
    assert rebalance(table, 1, "a")
    assert stage(table, None) == "GROUP_HAS_MEMBERS", "a client of ours"
    assert stage(table, caller("a", 0)) == "ILLEGAL_GENERATION"
    assert stage(table, caller("b", 1)) == "UNKNOWN_MEMBER"
    assert stage(table, caller("a", 1)) == ""
    assert stage(table, caller(), 2) == "", "before KIP-447 the epoch alone fences"


def test_a_group_is_of_one_kind_while_it_has_members() -> None:
    table = OffsetsTable()
    change = pb.ChangeOwners(group="g", changes=[pb.OwnerChange(topic_id=1, member="n")])
    own = pb.OffsetsCommand(change_owners=change).SerializeToString()
    claim = pb.ClaimInstance(group="g", instance="i", member="n")
    hold = pb.OffsetsCommand(claim_instance=claim).SerializeToString()
    assert rebalance(table, 1, "a")
    assert table.apply(9, own) is False and table.apply(9, hold) is False
    assert rebalance(table, 2)
    assert table.apply(9, own) is True
    assert not rebalance(table, 3, "a") and not table.classic_groups()
    assert commit(table, caller("a", 3)) == "UNKNOWN_MEMBER"


def test_offsets_of_topics_that_nobody_reads_are_deleted() -> None:
    table = OffsetsTable()
    assert commit(table, None) == "" and rebalance(table, 1, "a")
    assert forget(table) == "GROUP_SUBSCRIBED" and forget(table, "u") == ""
    assert rebalance(table, 2) and forget(table) == "" and forget(table) == ""
    assert table.group("g") is None and table.dump() == OffsetsTable.load(table.dump()).dump()
    assert table.dump() == OffsetsTable().dump(), "nothing is left"


def test_there_is_room_for_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_table, "MAX_GROUPS_WITH_MEMBERS", 2)
    monkeypatch.setattr(classic_table, "MAX_CLASSIC_BYTES", 1000)
    table = OffsetsTable()
    assert rebalance(table, 1, "a", group="f") and rebalance(table, 1, "a", size=300)
    assert not rebalance(table, 1, "a", group="h"), "too many"
    before = table.dump()
    assert not rebalance(table, 2, "a", size=1000) and table.dump() == before, "too large"
    assert rebalance(table, 2, group="f") and rebalance(table, 2, "a", size=800)
    again = OffsetsTable.load(table.dump())
    assert again.dump() == table.dump() and not rebalance(again, 3, "a", size=1000)


def test_each_kind_of_entry_comes_with_its_feature() -> None:
    record_of = pb.CommitGroupOffsets(group="g", classic=caller("a", 1))
    wanted = [
        (pb.OffsetsCommand(commit=record_of), CLASSIC_GROUPS),
        (pb.OffsetsCommand(stage=pb.StageOffsets(classic=caller())), CLASSIC_GROUPS),
        (pb.OffsetsCommand(rebalance=pb.ClassicGroup()), CLASSIC_GROUPS),
        (pb.OffsetsCommand(delete_offsets=pb.DeleteOffsets()), CLASSIC_GROUPS),
        (pb.OffsetsCommand(stage=pb.StageOffsets(group="g")), STAGED_OFFSETS),
        (pb.OffsetsCommand(commit=pb.CommitGroupOffsets(member="m")), GROUP_MEMBERS),
        (pb.OffsetsCommand(commit=pb.CommitGroupOffsets(group="g")), OFFSETS),
    ]
    assert [pack_command(command)[0] for command, _ in wanted] == [kind for _, kind in wanted]


def test_consumers_bytes_are_read_as_far_as_they_are_theirs() -> None:
    assert subscribed_topics(subscription("a", "b")) == frozenset(("a", "b"))
    parts = {"a": [0, 5], "b": []}
    assert assigned_partitions(assignment_of(parts)) == parts
    assert assigned_partitions(b"") == {}
    whole = assignment_of(parts)
    cut = [assigned_partitions(whole[:size]) for size in range(1, len(whole) - 4)]
    assert cut == [None] * len(cut)
    for damaged in (
        b"\0",
        b"\0\1\xff\xff\xff\xff",
        b"\0\1\x7f\xff\xff\xff",
        b"\0\1\0\0\0\1\0\1\xff",
    ):
        assert subscribed_topics(damaged) is None and assigned_partitions(damaged) is None
