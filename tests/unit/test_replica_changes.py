"""The way from who holds a partition to who shall: each next step, and what is recorded of it."""

from __future__ import annotations

import pytest

from cluster.consensus.configuration import Change, Configuration, Member, Step, changed
from cluster.metadata.replicas import reported, wished
from cluster.metadata.snapshot import load_tables, packed_tables
from cluster.metadata.tables import Tables
from cluster.metadata.topics import PartitionState, Rejected, TopicSettings, TopicState
from cluster.node.replica_changes import next_change
from cluster.v1 import metadata_pb2 as pb

GROUP = 16
BEFORE = PartitionState(GROUP, (1, 2, 3))
NODES = (1, 2, 3, 4, 5)


def configuration(voters: tuple[int, ...], *learners: int) -> Configuration:
    return Configuration(0, tuple(map(Member, voters)), tuple(map(Member, learners)))


@pytest.mark.parametrize(
    ("now", "target", "dead", "step"),
    [
        (configuration((1, 2, 3)), (1, 2, 4), (), (Step.ADD, 4)),
        (configuration((1, 2, 3), 4), (1, 2, 4), (), (Step.PROMOTE, 4)),
        (configuration((1, 2, 3, 4)), (1, 2, 4), (), (Step.REMOVE, 3)),
        (configuration((1, 2, 4)), (4, 2, 1), (), None),
        (configuration((1, 2, 3), 4), (1, 2, 4), (3,), (Step.REMOVE, 3)),
        (configuration((1, 2), 4), (1, 4), (2,), (Step.PROMOTE, 4)),
        (configuration((1, 2, 3), 4), (1, 2, 3), (), (Step.REMOVE, 4)),
        (configuration((1, 2, 3)), (4, 5), (), (Step.ADD, 4)),
        (configuration((1, 2, 4, 5)), (4, 5), (), (Step.REMOVE, 2)),
        (configuration((1, 4, 5)), (4, 5), (), (Step.REMOVE, 1)),
        (configuration((1, 2, 3)), (), (), None),
    ],
    ids=[
        "a learner first", "then a voter", "then one goes", "reached",
        "a dead one goes when there is a learner", "but not of two", "taken back",
        "nobody stays", "the leader goes last", "the leader", "no wish",
    ],
)  # fmt: skip
def test_next_step(
    now: Configuration,
    target: tuple[int, ...],
    dead: tuple[int, ...],
    step: tuple[Step, int] | None,
) -> None:
    assert next_change(now, target, 1, lambda node: node not in dead) == step


@pytest.mark.parametrize("target", [(4, 5, 1), (5,), (2, 3, 4, 5), (1, 2, 3)])
def test_the_steps_end_at_the_target(target: tuple[int, ...]) -> None:
    now, steps = configuration((1, 2, 3)), 0
    while (step := next_change(now, target, 1, lambda node: True)) is not None:
        now, steps = changed(now, Change(*step, expected=now.version)), steps + 1
        assert len(now.voters) >= min(3, len(target))
    assert {one.node for one in now.voters} == set(target) and not now.learners
    assert steps <= 2 * len(set(target) - {1, 2, 3}) + 3


def wish(*replicas: int, version: int = 0) -> pb.SetReplicas:
    return pb.SetReplicas(group_id=GROUP, replicas=replicas, expected_version=version)


def report(version: int, voters: tuple[int, ...], *learners: int) -> pb.ReportReplicas:
    instances = [0 if node <= 3 else version for node in (*voters, *learners)]
    return pb.ReportReplicas(
        group_id=GROUP, version=version, index=10 + version, index_term=2,
        voters=voters, learners=learners, instances=instances,
    )  # fmt: skip


def test_a_wish_until_it_is_fulfilled() -> None:
    record = wished(BEFORE, wish(4, 1, 2), NODES)
    assert (record.replicas, record.target) == ((1, 2, 3), (4, 1, 2))
    record = reported(record, report(1, (1, 2, 3), 4))
    assert set(record.replicas) == {1, 2, 3, 4} and record.instance_of(4) == 1
    assert record.founding == (1, 2, 3) and record.target == (4, 1, 2)
    record = reported(record, report(2, (1, 2, 3, 4)))
    record = reported(record, report(3, (1, 2, 4)))
    assert (record.replicas, record.target) == ((4, 1, 2), ()), "the preferred leader first"
    assert record.founding == (1, 2, 3)
    assert (record.version, record.index, record.index_term) == (3, 13, 2)


def test_what_comes_late_changes_nothing() -> None:
    record = reported(BEFORE, report(2, (1, 2, 3, 4)))
    assert reported(record, report(1, (1, 2, 3), 4)) is record


def test_another_order_is_another_preferred_leader() -> None:
    assert wished(BEFORE, wish(3, 1, 2), NODES) == PartitionState(GROUP, (3, 1, 2))


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (wish(1, 2, version=1), "expected_version"),
        (wish(), "replicas"),
        (wish(1, 1), "replicas"),
        (wish(1, 6), "replicas"),
        (wish(*range(1, 11)), "replicas"),
    ],
)
def test_wishes_that_are_refused(command: pb.SetReplicas, field: str) -> None:
    with pytest.raises(Rejected, match=rf"^{field}: "):
        wished(BEFORE, command, NODES)


@pytest.mark.parametrize("command", [report(1, ()), pb.ReportReplicas(version=1, voters=[1])])
def test_reports_that_are_refused(command: pb.ReportReplicas) -> None:
    with pytest.raises(Rejected, match=r"^instances: "):
        reported(BEFORE, command)


def test_a_record_survives_a_snapshot() -> None:
    record = PartitionState(GROUP, (4, 1), (1, 2, 3), (1, 0), 3, 13, 2, (5, 1))
    tables = Tables(next_group_id=17, next_topic_id=2)
    tables.put_topic(TopicState("t", 1, (record,), TopicSettings(), 0))
    assert load_tables(b"".join(packed_tables(tables))).topics["t"].partitions == (record,)
