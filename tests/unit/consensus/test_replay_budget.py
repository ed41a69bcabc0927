"""Early saves of state: a node's start has no more to apply than its limit."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.replay_budget import ENTRY_BYTES, MAX_SAVES, WORTH, ReplayBudget
from storage.checkpoints import CheckpointStore
from tests.unit.consensus.raft_parts import GROUP, Parts, reads_at_once


@dataclass
class Replica:
    group: int
    replay_cost: int
    state_bytes: int = 0


def budget_of(limit: int, *replicas: Replica) -> ReplayBudget:
    budget = ReplayBudget(limit)
    for replica in replicas:
        budget.join(replica)
    return budget


def test_nobody_saves_before_the_limit():
    assert budget_of(60, Replica(1, 20), Replica(2, 40)).overdue() == []


def test_whoever_has_most_saves_and_no_more_of_them_than_needed():
    some = [Replica(1, 20), Replica(2, 50), Replica(3, 30), Replica(4, 50)]
    assert budget_of(149, *some).overdue() == [2]
    assert budget_of(100, *some).overdue() == [2]
    assert budget_of(99, *some).overdue() == [2, 4]
    assert budget_of(1, *some).overdue() == [2, 4, 3, 1]


def test_one_round_saves_a_few():
    some = [Replica(group, 10) for group in range(1, 3 * MAX_SAVES)]
    assert budget_of(1, *some).overdue() == list(range(1, MAX_SAVES + 1))


def test_a_large_state_is_not_written_to_spare_a_little_reading():
    large = Replica(1, 100, state_bytes=100 // WORTH + 1)
    assert budget_of(10, large).overdue() == []
    assert budget_of(10, large, Replica(2, 5)).overdue() == [2]
    many_large = [Replica(n, 100, state_bytes=50) for n in range(3, 3 + MAX_SAVES)]
    assert budget_of(10, *many_large, Replica(2, 5)).overdue() == [2]
    large.state_bytes -= 1
    assert budget_of(10, large).overdue() == [1]


def test_where_nobody_can_help_it_is_looked_again_when_there_is_more():
    large = Replica(1, 400, state_bytes=400 // WORTH + 8)
    budget = budget_of(160, large)
    for more in (0, 9, 1, 10, 10, 2):  # 432 is worth it
        large.replay_cost += more
        budget.total += more
        expected = [1] if large.replay_cost >= 432 else []
        assert budget.overdue() == expected
    budget.total -= large.replay_cost
    large.replay_cost = 0
    assert budget.overdue() == []
    budget.join(Replica(2, 161))
    assert budget.overdue() == [2]


def test_a_replica_that_left_counts_no_more():
    gone = Replica(1, 100)
    budget = budget_of(50, gone, Replica(2, 40))
    budget.leave(1)
    budget.leave(1)
    assert (budget.total, gone.replay_cost, budget.overdue()) == (40, 0, [])


def test_a_replica_that_opens_again_takes_its_own_place():
    budget = budget_of(50, Replica(1, 100), Replica(2, 40))
    budget.join(Replica(1, 0))
    assert (budget.total, budget.overdue()) == (40, [])


def test_what_a_replica_applies_counts_until_it_is_saved():
    parts = Parts()
    parts.fill(*[1] * 9)
    parts.sync()
    budget = ReplayBudget(3 * ENTRY_BYTES)
    made = Checkpoints(
        CheckpointStore(parts.disk, GROUP),
        parts.journal,
        lambda: parts.batch,
        lambda: iter((b"the ", b"state")),
        lambda state: None,
        reads_at_once(),
        budget,
        lambda: 0.0,
        group=GROUP,
        every_bytes=1 << 30,
        every_entries=1 << 30,
    )
    for index in range(2, 5):
        assert budget.overdue() == []
        parts.apply(index)
        made.applied(2)
    assert budget.total == made.replay_cost == 3 * (ENTRY_BYTES + 2)
    assert budget.overdue() == [GROUP]
    made.save()
    assert (budget.total, made.replay_cost, made.state_bytes) == (0, 0, len(b"the state"))
    assert made.indexes == [4]
