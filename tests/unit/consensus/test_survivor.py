"""A survivor of two voters: when it goes on alone, and its report to the rest."""

from __future__ import annotations

import pytest

from cluster.consensus.configuration import (
    ChangeStep,
    Configuration,
    ConfigurationChange,
    Member,
    Members,
    Placed,
    changed,
)
from cluster.consensus.survivor import is_survivor, is_unconfirmed, who_else_decides
from cluster.metadata.nodes import goes_on
from cluster.metadata.topics import DamagedReplica, PartitionState

GROUP = 16
FOUNDING = Placed(0, 0, Configuration(0, (Member(1), Member(2))))


def placed(index: int, version: int, *voters: Member, learners: tuple[Member, ...] = ()) -> Placed:
    return Placed(index, 1, Configuration(version, voters, learners))


def members(*voters: Member, node: int = 1, instance: int = 0) -> Members:
    return Members(node, instance, placed(7, 3, *voters))


@pytest.mark.parametrize(
    ("voters", "gone", "survives"),
    [
        ((Member(1), Member(2)), {(2, 0)}, True),
        ((Member(1), Member(2, 3)), {(2, 3)}, True),
        ((Member(1), Member(2)), set(), False),
        ((Member(1), Member(2, 3)), {(2, 0)}, False),
        ((Member(1), Member(2)), {(1, 0), (2, 0)}, False),
        ((Member(1), Member(2), Member(3)), {(2, 0)}, False),
        ((Member(1),), {(2, 0)}, False),
        ((Member(2), Member(3)), {(2, 0)}, False),
    ],
    ids=[
        "the other is gone", "another instance of it", "nobody is", "an older one is",
        "both are: each would decide alone", "of three two decide", "it is alone", "it is no voter",
    ],
)  # fmt: skip
def test_who_is_left_of_two(
    voters: tuple[Member, ...], gone: set[tuple[int, int]], survives: bool
) -> None:
    assert is_survivor(members(*voters), gone) is survives


def test_who_goes_on_alone_is_a_majority_until_another_change() -> None:
    now = members(Member(1), Member(2))
    now.exclude_other()
    assert (now.is_alone, now.majority, now.counts(2, 0)) == (True, 1, False)
    assert not now.is_member(2, 0), "what comes late of it is not for this leader"
    assert not is_survivor(now, {(2, 0)}), "it is so already"
    now.take(placed(9, 4, Member(1), Member(2), learners=(Member(3, 4),)))
    assert (now.is_alone, now.majority, now.counts(2, 0)) == (False, 2, True)


BEFORE = placed(4, 2, Member(1), Member(2), learners=(Member(4, 2),))


@pytest.mark.parametrize(
    ("others", "waits"),
    [
        ([BEFORE, placed(9, 4, Member(1))], False),
        ([BEFORE, placed(9, 4, Member(1), Member(2), learners=(Member(3, 4),))], False),
        ([BEFORE, placed(9, 4, Member(2))], True),
        ([BEFORE, placed(9, 4, Member(1), Member(2), Member(3, 2))], True),
        ([BEFORE, placed(9, 4, Member(1, 4), Member(2))], True),
        ([BEFORE], False),
        ([placed(4, 2, Member(1))], False),
        ([placed(4, 2, Member(2))], True),
        ([placed(4, 2, Member(1), Member(2), Member(3))], True),
        ([placed(1, 1, Member(1), Member(2))], True),
        ([], True),
    ],
    ids=[
        "its own removal of the other", "a learner comes", "it is removed", "two of three decide",
        "another instance of it", "only a learner has gone", "it was alone before",
        "the other was alone before", "of three before two decide", "older than the one before",
        "those of before are not known",
    ],
)  # fmt: skip
def test_whether_others_may_decide(others: list[Placed], waits: bool) -> None:
    now = members(Member(1), Member(2))
    in_force = placed(7, 3, Member(1), Member(2))
    said = who_else_decides(now, [*others, in_force])
    assert bool(said) is waits
    assert not who_else_decides(Members(1, 0, FOUNDING), [FOUNDING]), "they are the first"


def test_two_that_have_come_from_others_are_confirmed() -> None:
    now, in_force = members(Member(1), Member(2)), placed(7, 3, Member(1), Member(2))
    for before in (placed(4, 2, Member(1)), placed(4, 2, Member(1), Member(2), Member(3))):
        assert is_unconfirmed(now, [before, in_force])
    assert is_unconfirmed(now, [in_force]), "it is not known who was before"
    assert not is_unconfirmed(now, [BEFORE, in_force])
    assert not is_unconfirmed(Members(1, 0, FOUNDING), [FOUNDING])
    confirmed = changed(now.configuration, ConfigurationChange(ChangeStep.CONFIRM, 1, expected=3))
    assert confirmed == Configuration(4, (Member(1), Member(2)))
    now.take(Placed(9, 1, confirmed))
    assert not is_unconfirmed(now, [in_force, Placed(9, 1, confirmed)])
    assert not who_else_decides(now, [in_force, Placed(9, 1, confirmed)])


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (PartitionState(GROUP, (1, 2, 3)), True),
        (PartitionState(GROUP, (1, 2, 3), lost=((1, 0),)), False),
        (PartitionState(GROUP, (2, 3)), True),
        (PartitionState(GROUP, (2, 3), damaged=(DamagedReplica(2, 0, rebuild=True),)), False),
        (PartitionState(GROUP, (3, 2), (3,), (0, 1), 1, target=(3, 2)), False),
        (PartitionState(GROUP, (3,)), False),
    ],
    ids=[
        "two of three are left", "one of them is lost, too", "of two the other has all",
        "it is damaged", "it is filled as yet", "the only one",
    ],
)  # fmt: skip
def test_what_ends_without_a_nodes_replica(record: PartitionState, expected: bool) -> None:
    assert goes_on(record, 3) is expected
