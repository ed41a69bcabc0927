"""When one of two voters goes on without the other, and what of that the rest is told."""

from __future__ import annotations

import pytest

from cluster.consensus.configuration import Configuration, Member, Members, Placed
from cluster.consensus.proposals import Abandoned, Outcome, Proposals
from cluster.consensus.survivor import is_survivor, unknown_change
from cluster.metadata.topics import DamagedReplica, PartitionState
from cluster.services.node_changes import _goes_on

GROUP = 16


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


@pytest.mark.parametrize(
    ("later", "waits"),
    [
        (placed(9, 4, Member(1)), False),
        (placed(9, 4, Member(1), Member(2), learners=(Member(3, 4),)), False),
        (placed(9, 4, Member(2)), True),
        (placed(9, 4, Member(1), Member(2), Member(3, 2)), True),
        (placed(9, 4, Member(1, 4), Member(2)), True),
        (placed(7, 3, Member(1), Member(2), Member(3, 2)), False),
    ],
    ids=[
        "its own removal of the other", "a learner", "it is removed", "two of three decide",
        "another instance of it", "it is in force: no question",
    ],
)  # fmt: skip
def test_a_change_that_may_be_in_force_elsewhere(later: Placed, waits: bool) -> None:
    now = members(Member(1), Member(2))
    said = unknown_change(now, [placed(0, 0, Member(1), Member(2)), later])
    assert bool(said) is waits
    assert not waits or str(later.configuration) in said


def test_nothing_is_appended_behind_a_change_with_it() -> None:
    outcomes: dict[str, Outcome] = {}
    proposals = Proposals()

    def done(outcome: Outcome) -> None:
        pytest.fail(f"nobody was answered yet, and {outcome} came")

    proposals.propose(b"a", done)
    proposals.propose_change(b"change", done)
    proposals.propose(b"b", done)
    assert [data for data, _ in proposals.take()] == [b"a", b"b", b"change"]
    proposals.propose_change(b"next", lambda outcome: outcomes.update(next=outcome))
    assert proposals.queued, "somebody waits"
    proposals.abandon(Abandoned(0, "over"))
    assert isinstance(outcomes["next"], Abandoned) and not proposals.take()


@pytest.mark.parametrize(
    ("record", "goes_on"),
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
def test_what_ends_without_a_nodes_replica(record: PartitionState, goes_on: bool) -> None:
    assert _goes_on(record, 3) is goes_on
