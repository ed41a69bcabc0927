"""A leader's answers before it proposes, over real replicas: settings, confirmations, ends."""

from __future__ import annotations

import pytest

from cluster.consensus.proposals import Abandoned
from cluster.dedup.verdict import BatchMeta, Kind, OffsetRule
from cluster.partition.replica import Answer, AppendRequest
from tests.unit.partition.replica_world import World

CHECKED, IGNORED, REQUIRED = OffsetRule
NEXT = 2  # the next offset after the records of `stored`


def request(pid: int, sequence: int, x: int = -1) -> AppendRequest:
    meta = BatchMeta(pid, 0, sequence, sequence, sequence - 1, 1, sequence, x)
    return AppendRequest(meta, 0, 0, 0, b"%d" % sequence)


def ask(world: World, wanted: AppendRequest) -> Answer:
    answers: list[Answer] = []
    world.parts[world.leader].append(wanted, answers.append)
    (answer,) = answers
    return answer


def stored() -> tuple[World, int]:
    world = World()
    pid = world.fresh()
    assert [world.kind(pid, 0, sequence) for sequence in (0, 1)] == ["APPENDED"] * 2
    return world, pid


ROWS = [
    ("ignored: x wrong", IGNORED, 2, 5, Kind.APPENDED),
    ("ignored: x missing", IGNORED, 2, -1, Kind.APPENDED),
    ("ignored: sequences still count", IGNORED, 3, 5, Kind.OUT_OF_ORDER),
    ("checked: x missing", CHECKED, 2, -1, Kind.APPENDED),
    ("checked: x wrong", CHECKED, 2, 5, Kind.OFFSET_MISMATCH),
    ("required: x missing", REQUIRED, 2, -1, Kind.INVALID_BATCH),
    ("required: x wrong", REQUIRED, 2, 5, Kind.OFFSET_MISMATCH),
    ("required: x is next", REQUIRED, 2, NEXT, Kind.APPENDED),
    # Stored before the topic was altered; the client's repeat is still a success.
    ("required: repeat without x", REQUIRED, 1, -1, Kind.DUPLICATE),
]


@pytest.mark.parametrize(("rule", "sequence", "x", "kind"), [r[1:] for r in ROWS],
                         ids=[r[0] for r in ROWS])  # fmt: skip
def test_a_topics_rule_for_expected_offsets(rule, sequence, x, kind) -> None:
    world, pid = stored()
    for part in world.parts.values():
        part.policy.expected_offsets = rule
    answer = ask(world, request(pid, sequence, x))
    assert answer.verdict.kind is kind
    if kind is Kind.INVALID_BATCH:
        assert "expected_offset" in answer.verdict.message


def test_each_answer_is_counted() -> None:
    world, pid = stored()
    world.kind(pid, 0, 1)
    world.kind(pid, 0, 9)
    counted = world.parts[world.leader].counters.verdicts
    assert counted == {Kind.APPENDED: 2, Kind.DUPLICATE: 1, Kind.OUT_OF_ORDER: 1}


def test_a_follower_names_the_leader_and_a_closed_replica_takes_nothing() -> None:
    world, pid = stored()
    answers: list[Answer] = []
    follower = world.parts[2]
    follower.append(request(pid, 2), answers.append)
    follower.open_producer(pid, 1, answers.append)
    assert [a.verdict.kind for a in answers] == [Kind.NOT_LEADER] * 2
    assert {a.leader_id for a in answers} == {1}
    refused = follower.propose(b"", lambda outcome: None)
    assert refused is not None and refused.verdict.kind is Kind.NOT_LEADER
    outcomes: list[object] = []
    follower.advance_clock(outcomes.append)
    assert isinstance(outcomes[0], Abandoned) and outcomes[0].lost, "nothing was proposed"

    heard: list[bool] = []
    leader = world.parts[1]
    leader.listeners.add(lambda: heard.append(leader.closed))
    leader.close()
    assert heard == [True], "readers look again when a replica goes"
    leader.append(request(pid, 2), answers.append)
    assert answers[-1].verdict.kind is not Kind.APPENDED


def test_a_leader_that_has_just_begun_is_not_ready() -> None:
    world, pid = stored()
    world.parts[1].on_role(leader=True, ready=False, term=9)
    assert world.kind(pid, 0, 2) == "NOT_READY"
    world.parts[1].on_role(leader=True, ready=True, term=9)
    assert world.kind(pid, 0, 2) == "APPENDED"
