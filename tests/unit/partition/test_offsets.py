"""Committed offsets as state: checks, limits, snapshots. Nodes have their own tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.partition import group_offsets as offsets
from cluster.partition import group_state
from cluster.partition.group_offsets import OffsetsTable, partition_of
from cluster.partition.group_state import CommitResult, OffsetState
from cluster.v1 import offsets_pb2 as pb


def commit(table: OffsetsTable, group: str = "g", stamp: int = 1, **fields) -> CommitResult:
    record = pb.OffsetRecord(**{"topic": "t", "topic_id": 1, **fields})
    command = pb.OffsetsCommand(
        stamp_ms=stamp, commit=pb.CommitGroupOffsets(group=group, offsets=[record])
    )
    results = table.apply(1, command.SerializeToString())
    assert isinstance(results, list)
    (result,) = results
    return result


def now(result: CommitResult) -> OffsetState:
    """The state after a commit that left one."""
    assert result.now is not None
    return result.now


def delete(table: OffsetsTable, group: str) -> bool:
    command = pb.OffsetsCommand(delete=pb.DeleteGroupOffsets(group=group))
    deleted = table.apply(1, command.SerializeToString())
    assert isinstance(deleted, bool)
    return deleted


def test_groups_keep_their_partition():
    """Offsets are found again by this number, so it must never change."""
    assert [partition_of(f"group-{n}", 8) for n in range(8)] == [6, 0, 2, 4, 7, 1, 3, 5]
    assert partition_of("ä", 8) == 3


def test_time_is_the_logs():
    table = OffsetsTable()
    assert now(commit(table, stamp=50, offset=1)).commit_ms == 50
    assert now(commit(table, stamp=40, offset=2)).commit_ms == 50


def test_limits_refuse_what_is_new_and_change_nothing():
    table = OffsetsTable(max_groups=2, max_offsets=3, max_bytes=10_000)
    for group, partition in (("a", 0), ("a", 1), ("b", 0)):
        assert not commit(table, group, partition=partition, offset=1).error
    before = table.dump()
    result = commit(table, "c", offset=1)
    assert (result.error, result.now) == ("THROTTLED", None)
    assert "2 groups, its limit" in result.message
    assert "3 offsets, its limit" in commit(table, "a", partition=2, offset=1).message
    result = commit(table, "a", offset=1, metadata="x" * 10_000)
    assert result.error == "THROTTLED"
    assert now(result).offset == 1
    assert table.dump() == before
    assert not commit(table, "a", offset=2).error, "what is there can move on"
    assert delete(table, "b")
    assert not commit(table, "c", offset=1).error


def test_a_newer_topic_replaces_and_an_older_one_is_refused():
    table = OffsetsTable()
    commit(table, topic_id=4, offset=9, producer_id=7, epoch=1, sequence=3)
    result = commit(table, topic_id=3, offset=1)
    assert (result.error, now(result).offset) == ("UNKNOWN_TOPIC_OR_PARTITION", 9)
    result = commit(table, topic_id=5, offset=1)
    assert (result.error, now(result).offset, now(result).producer_id) == ("", 1, 0)


COMMITS = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 2),
        "offset": st.integers(0, 3),
        "metadata": st.sampled_from(["", "m", "ä" * 20]),
        "producer_id": st.integers(0, 2),
        "epoch": st.integers(0, 2),
        "sequence": st.integers(0, 3),
        "topic_id": st.integers(1, 2),
    }
)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | COMMITS), max_size=60)


@given(steps=STEPS)
def test_a_producers_position_never_goes_back(steps):
    """Also: a copy made from a snapshot at any time stays equal, and so do the byte counts."""
    table, copy = OffsetsTable(max_bytes=900), OffsetsTable(max_bytes=900)
    for number, (group, fields) in enumerate(steps):
        if fields is None:
            assert delete(table, group) == delete(copy, group)
            continue
        key = ("t", fields["partition"])
        state = table.group(group)
        before = None if state is None else state.get(key)
        result = commit(table, group, number, **fields)
        assert commit(copy, group, number, **fields) == result
        state = table.group(group)
        after = None if state is None else state.get(key)
        if result.error or result.duplicate:
            assert after == before
        else:
            assert after is not None
            assert after.offset == fields["offset"]
        if before is not None:
            assert after is not None
            if after.topic_id == before.topic_id and before.producer_id:
                position = (before.producer_id, before.epoch, before.sequence)
                assert (after.producer_id, after.epoch, after.sequence) >= position
        if number % 5 == 0:
            loaded = OffsetsTable.load(copy.dump())
            assert (loaded._bytes, loaded._offsets) == (copy._bytes, copy._offsets)
            loaded._limits = copy._limits
            copy = loaded
        assert table.dump() == copy.dump()


def test_a_snapshot_only_joins_what_commits_have_made(monkeypatch):
    """A snapshot is written between two rounds of a node's loop: it must not encode each offset."""
    table = OffsetsTable()
    for partition in (5, 0, 300, 2):
        for group in ("b", "a" * 200):
            commit(table, group, partition=partition, offset=7, metadata="m" * partition)
    monkeypatch.setattr(offsets, "record_of", None)
    monkeypatch.setattr(group_state, "stored", None)
    monkeypatch.setattr(pb, "OffsetRecord", None)
    state = table.dump()
    monkeypatch.undo()
    snapshot = pb.OffsetsSnapshot.FromString(state)
    assert snapshot.SerializeToString(deterministic=True) == state
    assert [group.group for group in snapshot.groups] == ["a" * 200, "b"]
    for record in snapshot.groups:
        assert [one.partition for one in record.offsets] == [0, 2, 5, 300]
        assert [len(one.metadata) for one in record.offsets] == [0, 2, 5, 300]


@pytest.mark.parametrize("after", ["", "a", "b", "zz"])
def test_groups_are_listed_by_name(after):
    table = OffsetsTable()
    for group in ("b", "a", "c"):
        commit(table, group, offset=1)
    names = [name for name, _ in table.groups(after, 2)]
    assert names == [name for name in ("a", "b", "c") if name > after][:2]


def many(which: str, partitions: list[int], stamp: int) -> bytes:
    """A commit, or a deletion, of offsets in this order."""
    command = pb.OffsetsCommand(stamp_ms=stamp)
    if which == "commit":
        command.commit.group = "g"
        for one in partitions:
            command.commit.offsets.add(topic="t", topic_id=1, partition=one, offset=5)
    else:
        command.delete_offsets.group = "g"
        for one in partitions:
            command.delete_offsets.offsets.add(topic="t", partition=one)
    return command.SerializeToString()


def test_an_entry_moves_and_reads_the_other_offsets_once_not_for_each(monkeypatch):
    """All groups of the node wait for the entry: 1,000 in falling order took minutes."""
    sorts, reads = [], []

    def counted_sort(items):
        sorts.append(len(items))
        return sorted(items)

    def counted_read(record):
        reads.append(record.partition)
        return stored(record)

    stored = group_state.stored
    monkeypatch.setattr(group_state, "sorted", counted_sort, raising=False)
    monkeypatch.setattr(group_state, "stored", counted_read)
    table, ordered = OffsetsTable(), OffsetsTable()
    table.apply(1, many("commit", [*range(200)][::-1], 1))
    ordered.apply(1, many("commit", [*range(200)], 1))
    assert not sorts
    assert table.dump() == ordered.dump() and len(sorts) == 1
    assert table.dump() == ordered.dump() and len(sorts) == 1, "it stays in order"
    state = table.group("g")
    assert state is not None
    assert [key[1] for key, _ in state.items()] == [*range(200)]

    table.apply(2, many("commit", [7], 9))
    reads.clear()
    table.apply(3, many("delete", [*range(100), 7], 10))
    assert len(reads) <= 101 + 100, "those that it names, and the others once"
    assert state.last_commit_ms == 1 and len(state) == 100
    assert OffsetsTable.load(table.dump()).dump() == table.dump()
    table.apply(4, many("delete", [*range(200)], 11))
    assert table.dump() == OffsetsTable.load(table.dump()).dump() and table.group("g") is None
