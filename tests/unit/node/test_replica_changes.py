"""The way from a partition's holders to its targets: each next step, and its record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.consensus.configuration import (
    ChangeStep,
    Configuration,
    ConfigurationChange,
    Member,
    changed,
)
from cluster.metadata.repairs import REPAIR_PERIOD_MS, outlook, repaired
from cluster.metadata.replicas import reported, retargeted
from cluster.metadata.snapshot import load_tables, packed_tables
from cluster.metadata.tables import Tables
from cluster.metadata.topics import PartitionState, Rejected, TopicSettings, TopicState
from cluster.node.replicas.changes import next_change
from cluster.v1 import metadata_pb2 as pb

GROUP = 16
BEFORE = PartitionState(GROUP, (1, 2, 3))
NODES = (1, 2, 3, 4, 5)


def configuration(voters: tuple[int, ...], *learners: int) -> Configuration:
    return Configuration(0, tuple(map(Member, voters)), tuple(map(Member, learners)))


@pytest.mark.parametrize(
    ("now", "target", "dead", "step"),
    [
        (configuration((1, 2, 3)), (1, 2, 4), (), (ChangeStep.ADD, 4)),
        (configuration((1, 2, 3), 4), (1, 2, 4), (), (ChangeStep.PROMOTE, 4)),
        (configuration((1, 2, 3, 4)), (1, 2, 4), (), (ChangeStep.REMOVE, 3)),
        (configuration((1, 2, 4)), (4, 2, 1), (), None),
        (configuration((1, 2, 3), 4), (1, 2, 4), (3,), (ChangeStep.REMOVE, 3)),
        (configuration((1, 2), 4), (1, 4), (2,), (ChangeStep.PROMOTE, 4)),
        (configuration((1, 2, 3), 4), (1, 2, 3), (), (ChangeStep.REMOVE, 4)),
        (configuration((1, 2, 3)), (4, 5), (), (ChangeStep.ADD, 4)),
        (configuration((1, 2, 4, 5)), (4, 5), (), (ChangeStep.REMOVE, 2)),
        (configuration((1, 4, 5)), (4, 5), (), (ChangeStep.REMOVE, 1)),
        (configuration((1, 2, 3)), (), (), None),
        (configuration((1, 2, 3, 4, 5)), (1, 2, 3), (2, 5), (ChangeStep.REMOVE, 5)),
        (configuration((1, 2, 3, 4, 5), 6), (1, 2, 3, 6, 7), (4, 5), (ChangeStep.REMOVE, 4)),
        (configuration((1, 2, 3, 5), 6), (1, 2, 3, 6, 7), (4, 5), (ChangeStep.REMOVE, 5)),
    ],
    ids=[
        "a learner first", "then a voter", "then one goes", "reached",
        "a dead one goes when there is a learner", "but not of two", "taken back",
        "nobody stays", "the leader goes last", "the leader", "no target",
        "a dead one goes first", "as soon as there is a learner", "and the second one",
    ],
)  # fmt: skip
def test_next_step(
    now: Configuration,
    target: tuple[int, ...],
    dead: tuple[int, ...],
    step: tuple[ChangeStep, int] | None,
) -> None:
    assert next_change(now, target, 1, lambda node: node not in dead) == step


@pytest.mark.parametrize(
    ("voters", "learners", "dead", "step"),
    [
        ((1, 2, 3), (), (), (ChangeStep.REMOVE, 2)),
        ((1, 2, 3), (), (3,), None),
        ((1, 2), (), (), (ChangeStep.REMOVE, 2)),
        ((1, 3), (2,), (), (ChangeStep.REMOVE, 2)),
        ((2, 3, 4), (), (3,), None),
    ],
    ids=["goes first", "not while the others have no majority", "of two", "a learner", "nor then"],
)
def test_a_damaged_replica_goes(
    voters: tuple[int, ...],
    learners: tuple[int, ...],
    dead: tuple[int, ...],
    step: tuple[ChangeStep, int] | None,
) -> None:
    now = configuration(voters, *learners)
    leader = 1 if 1 in voters else 4
    found = next_change(now, (1, 2, 3), leader, lambda one: one not in dead, (), [(2, 0)])
    assert found == step
    lost = next_change(now, (1, 2, 3), leader, lambda one: one not in dead, [(3, 0)], [(2, 0)])
    first = (ChangeStep.REMOVE, 3) if 3 in voters else step
    assert lost == first, "what is lost has no word any more: it goes first"


@pytest.mark.parametrize(
    ("now", "target", "dead", "damaged", "step"),
    [
        (configuration((1, 2, 3)), (1, 2, 3), (3,), (2, 3), (ChangeStep.REMOVE, 3)),
        (configuration((1, 2, 3)), (1, 2, 3), (2,), (2, 3), (ChangeStep.REMOVE, 2)),
        (configuration((1, 2, 3)), (1, 2, 3), (2, 3), (2, 3), None),
        (configuration((1, 2), 3), (1, 2, 3), (), (2,), (ChangeStep.PROMOTE, 3)),
        (configuration((1,), 3), (1, 3), (), (1,), (ChangeStep.PROMOTE, 3)),
        (configuration((1,), 3), (1,), (), (1,), (ChangeStep.REMOVE, 3)),
        (configuration((1,)), (1, 3), (), (1,), None),
    ],
    ids=[
        "the second", "the first", "neither", "one that answers waits for the learner",
        "the only voter", "a learner may always go", "the only voter does not go",
    ],
)  # fmt: skip
def test_of_several_damaged_ones_the_first_that_can_goes(
    now: Configuration,
    target: tuple[int, ...],
    dead: tuple[int, ...],
    damaged: tuple[int, ...],
    step: tuple[ChangeStep, int] | None,
) -> None:
    marks = [(node, 0) for node in damaged]
    assert next_change(now, target, 1, lambda one: one not in dead, (), marks) == step


@pytest.mark.parametrize("target", [(4, 5, 1), (5,), (2, 3, 4, 5), (1, 2, 3)])
def test_the_steps_end_at_the_target(target: tuple[int, ...]) -> None:
    now, steps = configuration((1, 2, 3)), 0
    while (step := next_change(now, target, 1, lambda node: True)) is not None:
        now, steps = changed(now, ConfigurationChange(*step, expected=now.version)), steps + 1
        assert len(now.voters) >= min(3, len(target))
    assert {one.node for one in now.voters} == set(target) and not now.learners
    assert steps <= 2 * len(set(target) - {1, 2, 3}) + 3


def target(*replicas: int, version: int = 0) -> pb.SetReplicas:
    return pb.SetReplicas(group_id=GROUP, replicas=replicas, expected_version=version)


def report(version: int, voters: tuple[int, ...], *learners: int) -> pb.ReportReplicas:
    instances = [0 if node <= 3 else version for node in (*voters, *learners)]
    return pb.ReportReplicas(
        group_id=GROUP, version=version, index=10 + version, index_term=2,
        voters=voters, learners=learners, instances=instances,
    )  # fmt: skip


def test_a_target_until_it_is_reached() -> None:
    record = retargeted(BEFORE, target(4, 1, 2), NODES)
    assert (record.replicas, record.target) == ((1, 2, 3), (4, 1, 2))
    record = reported(record, report(1, (1, 2, 3), 4))
    assert set(record.replicas) == {1, 2, 3, 4} and record.instance_of(4) == 1
    assert record.founding == (1, 2, 3) and record.target == (4, 1, 2)
    record = reported(record, report(2, (1, 2, 3, 4)))
    record = reported(record, report(3, (1, 2, 4)))
    assert (record.replicas, record.target) == ((4, 1, 2), ()), "the preferred leader first"
    assert record.founding == (1, 2, 3)
    assert (record.version, record.index, record.index_term) == (3, 13, 2)


def test_what_is_filled_does_not_count_until_it_has_its_vote() -> None:
    """A node whose disk was lost is back, and its replica in progress: that is no replica yet."""
    lost = replace(BEFORE, target=(1, 2, 3), lost=((3, 0),))
    assert lost.counting == {1, 2}
    removed = reported(lost, report(1, (1, 2)))
    assert (removed.counting, removed.target) == ({1, 2}, (1, 2, 3))
    command = report(2, (1, 2), 3)
    command.instances[2] = 2
    filled = reported(removed, command)
    assert (filled.counting, filled.learner) == ({1, 2}, 3)
    command = report(3, (1, 2, 3))
    command.instances[2] = 2
    whole = reported(filled, command)
    assert (whole.counting, whole.target) == ({1, 2, 3}, ())
    # It moves on: old replicas and those with a vote count, while another one goes.
    moves = replace(whole, target=(1, 3, 4))
    assert moves.counting == {1, 2, 3}
    command = report(4, (1, 2, 3), 4)
    command.instances[2:] = (2, 4)
    moves = reported(moves, command)
    assert moves.counting == {1, 2, 3}
    command = report(5, (1, 2, 3, 4))
    command.instances[2:] = (2, 4)
    moves = reported(moves, command)
    assert moves.counting == {1, 2, 3, 4}


def test_what_comes_late_changes_nothing() -> None:
    record = reported(BEFORE, report(2, (1, 2, 3, 4)))
    assert reported(record, report(1, (1, 2, 3), 4)) is record


def test_another_order_is_another_preferred_leader() -> None:
    assert retargeted(BEFORE, target(3, 1, 2), NODES) == PartitionState(GROUP, (3, 1, 2))


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (target(1, 2, version=1), "expected_version"),
        (target(), "replicas"),
        (target(1, 1), "replicas"),
        (target(1, 6), "replicas"),
        (target(*range(1, 11)), "replicas"),
    ],
)
def test_targets_that_are_refused(command: pb.SetReplicas, field: str) -> None:
    with pytest.raises(Rejected, match=rf"^{field}: "):
        retargeted(BEFORE, command, NODES)


@pytest.mark.parametrize("command", [report(1, ()), pb.ReportReplicas(version=1, voters=[1])])
def test_reports_that_are_refused(command: pb.ReportReplicas) -> None:
    with pytest.raises(Rejected, match=r"^instances: "):
        reported(BEFORE, command)


def test_a_record_survives_a_snapshot() -> None:
    record = PartitionState(GROUP, (4, 1), (1, 2, 3), (1, 0), 3, 13, 2, (5, 1))
    tables = Tables(next_group_id=17, next_topic_id=2)
    tables.put_topic(TopicState("t", 1, (record,), TopicSettings(), 0))
    assert load_tables(b"".join(packed_tables(tables))).topics["t"].partitions == (record,)


def repair(node: int, instance: int = 0, *, sound: bool = False) -> pb.RepairReplica:
    return pb.RepairReplica(group_id=GROUP, node_id=node, instance=instance, sound=sound)


def test_a_damaged_replica_from_mark_to_end() -> None:
    record = repaired(BEFORE, repair(3), 1000)
    assert record.damaged == ((3, 0, True),) and record.target == (1, 2, 3)
    assert repaired(record, repair(3), 2000) is record, "said again"
    assert repaired(record, repair(3, sound=True), 2000) is record, "that is about another mark"
    record = reported(record, report(1, (1, 2)))
    assert not record.damaged and record.target == (1, 2, 3)
    command = report(3, (1, 2, 3))
    command.instances[2] = 2
    record = reported(record, command)
    assert record.target == () and record.instance_of(3) == 2
    assert record.repairs == ((3, 1000),)


def test_a_mark_goes_when_its_replica_proves_sound() -> None:
    marked = repaired(BEFORE, repair(3), 1000)
    sound = repair(3, sound=True)
    sound.marked_ms = 1000
    assert not repaired(marked, sound, 2000).damaged
    again = repaired(repaired(marked, sound, 2000), repair(3), 3000)
    assert repaired(again, sound, 4000) is again, "it came late, and another mark is there"
    of_two = repaired(PartitionState(GROUP, (1, 3)), repair(3), 1000)
    assert repaired(of_two, sound, 2000) is of_two, "the other one may have gone on alone"


def test_the_only_voter_is_not_made_anew_for_a_learner() -> None:
    moving = retargeted(PartitionState(GROUP, (1,)), target(1, 4), NODES)
    record = reported(moving, report(1, (1,), 4))
    assert record.learner == 4
    held = repaired(record, repair(1), 1000)
    assert held.damaged == ((1, 0, False),) and "only one" in outlook(held, held.damaged[0])
    assert repaired(record, repair(4, 1), 1000).damaged == ((4, 1, True),), "a learner may go"


def test_the_limit_of_repairs() -> None:
    record = replace(BEFORE, repairs=((3, 10), (3, 20), (2, 25), (3, 30)))
    held = repaired(record, repair(3), 40)
    assert held.damaged == ((3, 0, False),) and not held.target and not held.to_remove
    assert repaired(held, repair(3, sound=True), 50) == record
    assert repaired(record, repair(2), 40).damaged == ((2, 0, True),), "each has its own"
    later = repaired(held, repair(3), 10 + REPAIR_PERIOD_MS)
    assert later.damaged == ((3, 0, True),) and (3, 10) not in later.repairs


def test_the_only_replica_is_not_made_anew() -> None:
    record = repaired(PartitionState(GROUP, (1,)), repair(1), 1000)
    assert record.damaged == ((1, 0, False),) and not record.target and not record.repairs
    assert "only one" in outlook(record, record.damaged[0])


@pytest.mark.parametrize("command", [repair(4), repair(3, 2)])
def test_repairs_that_are_refused(command: pb.RepairReplica) -> None:
    with pytest.raises(Rejected, match=r"^instance: "):
        repaired(BEFORE, command, 1000)


@pytest.mark.parametrize(
    ("now", "votes", "dead", "step"),
    [
        (configuration((1, 2, 3, 4)), (1, 2, 3), (), (ChangeStep.DEMOTE, 4)),
        (configuration((1, 2, 3), 4), (1, 2, 3), (), None),
        (configuration((1, 2, 3), 4), (1, 2, 4), (), (ChangeStep.PROMOTE, 4)),
        (configuration((1, 2, 3, 4)), (1, 2, 4), (), (ChangeStep.DEMOTE, 3)),
        (configuration((1, 2, 3), 4), (1, 2, 4), (3,), (ChangeStep.DEMOTE, 3)),
        (configuration((1, 2, 3)), (1, 2, 3), (), (ChangeStep.ADD, 4)),
        (configuration((1, 2, 3, 4)), (2, 3, 4), (), (ChangeStep.DEMOTE, 1)),
        (configuration((1, 2, 3, 5), 4), (1, 2, 3), (), (ChangeStep.REMOVE, 5)),
        (configuration((1, 2, 5), 3, 4), (1, 2, 3), (), (ChangeStep.PROMOTE, 3)),
        (configuration((1, 2, 3), 4, 5), (1, 2, 3), (), (ChangeStep.REMOVE, 5)),
    ],
    ids=[
        "one too many", "a learner stays", "another one votes", "in the place of this",
        "a silent one first", "all hold it", "the leader", "a voter that leaves",
        "not before another votes", "a learner that leaves",
    ],
)  # fmt: skip
def test_votes_move(
    now: Configuration,
    votes: tuple[int, ...],
    dead: tuple[int, ...],
    step: tuple[ChangeStep, int] | None,
) -> None:
    target = (1, 2, 3, 4)
    lives = lambda node: node not in dead  # noqa: E731
    assert next_change(now, target, 1, lives, votes=votes) == step


def test_silent_voters_are_replaced_one_at_a_time() -> None:
    """A learner that does not answer gets no vote, and holds no other one up."""
    now, dead, votes = configuration((1, 2, 3, 4, 5), 6, 7, 8), (4, 5, 6), (1, 2, 3, 7, 8)
    steps = []
    while (step := _step(now, dead, votes)) is not None:
        steps.append(step)
        now = changed(now, ConfigurationChange(*step, now.version))
        assert len(now.voters) >= 4
    demote, promote = ChangeStep.DEMOTE, ChangeStep.PROMOTE
    assert steps == [(demote, 4), (promote, 7), (demote, 5), (promote, 8)]
    assert _step(configuration((1, 2, 3), 6, 7), dead, (1, 2, 3, 6, 7)) == (promote, 7)
    assert _step(configuration((1, 2, 4), 7), dead, votes) == (demote, 4), "two commit all the same"


def _step(
    now: Configuration, dead: tuple[int, ...], votes: tuple[int, ...]
) -> tuple[ChangeStep, int] | None:
    return next_change(now, range(1, 9), 1, lambda node: node not in dead, votes=votes)


def test_a_group_that_is_full_of_voters_gives_a_vote_only_when_one_has_gone() -> None:
    """As founded with more voters than it may take on: the wanted learner would wait for ever."""
    now, target, votes = configuration(tuple(range(1, 12)), 12), range(1, 13), (1, 2, 3, 4, 12)
    steps = []
    while (step := next_change(now, target, 1, lambda node: True, votes=votes)) is not None:
        steps.append(step[0])
        now = changed(now, ConfigurationChange(*step, now.version))
    assert {one.node for one in now.voters} == {*votes}
    assert steps[:4] == [*[ChangeStep.DEMOTE] * 3, ChangeStep.PROMOTE]
