"""Replicas with different checksums of their state: where they compare, and which stop."""

from __future__ import annotations

import pytest

from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.environment import GroupConfig
from cluster.consensus.replay_budget import ReplayBudget
from cluster.consensus.state_check import KEPT, StateCheck, StateDivergedError
from storage.checkpoints import CheckpointStore
from tests.unit.consensus.raft_parts import GROUP, Parts, members_of, reads_at_once

GOOD, BAD, WORSE = 1, 2, 3


def check(peers: tuple[int, ...], parts: Parts | None = None) -> StateCheck:
    """Node 1's part, which saves by itself after 100 entries or 1000 bytes."""
    parts = parts or Parts()
    config = GroupConfig(GROUP, 1, peers, checkpoint_bytes=1000, checkpoint_entries=100)
    checkpoints = Checkpoints(
        CheckpointStore(parts.disk, GROUP),
        parts.journal,
        lambda: parts.batch,
        lambda: iter((b"the ", b"state")),
        lambda state: None,
        reads_at_once(),
        ReplayBudget(1 << 40),
        lambda: 0.0,
        group=GROUP,
        every_bytes=config.checkpoint_bytes,
        every_entries=config.checkpoint_entries,
    )
    return StateCheck(config, parts.journal, checkpoints, members_of(1, *peers))


def said(one: StateCheck, **checksums: int) -> str:
    """The reason why node 1 stops after these reports (`n2=5`, ...), in this order; else nothing.

    After it has stopped it is asked nothing.
    """
    for node, checksum in checksums.items():
        try:
            one.note(int(node[1:]), 50, checksum)
        except StateDivergedError as error:
            return f"{error.index}: {error}"
    return ""


@pytest.mark.parametrize(
    ("checksums", "stops"),
    [
        ({"n1": GOOD, "n2": GOOD, "n3": GOOD}, ""),
        ({"n1": GOOD, "n2": GOOD, "n3": BAD}, ""),
        ({"n3": BAD, "n1": GOOD, "n2": GOOD}, ""),
        ({"n1": BAD, "n2": GOOD, "n3": GOOD}, "2 of 3"),
        ({"n2": GOOD, "n3": GOOD, "n1": BAD}, "2 of 3"),
        ({"n1": GOOD, "n2": BAD}, ""),
        ({"n2": GOOD, "n3": GOOD}, ""),
        ({"n1": GOOD, "n2": BAD, "n3": WORSE}, "without a majority"),
    ],
    ids=[
        "equal", "another differs", "another differs, first to say so", "this one differs",
        "this one differs, last to say so", "the third is silent", "not there yet", "all differ",
    ],
)  # fmt: skip
def test_of_three(checksums: dict[str, int], stops: str) -> None:
    found = said(check((2, 3)), **checksums)
    assert stops in found and bool(stops) == bool(found)


def test_two_replicas_that_differ_both_stop() -> None:
    assert said(check((2,)), n1=GOOD, n2=GOOD) == ""
    assert "without a majority" in said(check((2,)), n1=GOOD, n2=BAD)


def test_the_minority_of_five_stops() -> None:
    assert said(check((2, 3, 4, 5)), n1=GOOD, n2=BAD, n3=GOOD, n4=BAD, n5=GOOD) == ""
    assert "3 of 5" in said(check((2, 3, 4, 5)), n1=BAD, n2=GOOD, n3=GOOD, n4=BAD, n5=GOOD)


def test_reports_are_of_one_index_and_few_are_kept() -> None:
    one = check((2, 3))
    one.note(1, 50, GOOD)
    one.note(2, 51, BAD)
    one.note(3, 51, BAD)
    for index in range(60, 70):
        one.note(2, index, GOOD)
    assert len(one._reports) == KEPT


def test_a_comparison_is_due_before_a_replica_would_save_by_itself() -> None:
    parts = Parts()
    parts.fill(*[1] * 120)
    parts.sync()
    one = check((2, 3), parts)
    due = []
    for index in (75, 76):  # the log begins at 1
        parts.apply(index)
        due.append(one.is_due)
    one.plan(122)
    assert [*due, one.is_due] == [False, True, False] and one.at == 122


def test_a_lone_replica_compares_nothing() -> None:
    parts = Parts()
    parts.fill(*[1] * 120)
    parts.sync()
    lone = check((), parts)
    parts.apply(121)
    assert not lone.is_due


def test_an_index_that_is_applied_already_is_not_planned() -> None:
    parts = Parts()
    parts.fill(1, 1, 1)
    parts.sync()
    one = check((2, 3), parts)
    parts.apply(3)
    one.plan(3)
    assert one.at == 0
    one.plan(4)
    parts.apply(4)
    assert one.at == 4
    one.save()
    assert one.at == 0 and (said := one.report(1)) is not None and said.index == 4
