"""A classic group's promises hold over random lives, and each protection is needed for that."""

from __future__ import annotations

import pytest

from cluster.groups.classic import COMPLETING
from cluster.v1 import offsets_pb2 as pb
from tests.sim.classic import weak
from tests.sim.classic.checker import Violation
from tests.sim.classic.run import run_seed, settled
from tests.sim.classic.world import Member, World, check_rest


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_lives_of_a_classic_group(first: int) -> None:
    commits = sum(run_seed(seed).checker.commits for seed in range(first, first + 30))
    assert commits > 1000, "the runs do too little to mean anything"


def test_a_seed_says_all() -> None:
    runs = [run_seed(7) for _ in range(2)]
    assert runs[0].committed == runs[1].committed
    assert runs[0].scheduler.events == runs[1].scheduler.events


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (weak.anybody_commits, 10),
        (weak.member_id_is_enough, 10),
        (weak.answers_before_the_log, 0),
        (weak.new_leader_forgets, 0),
        (weak.new_leader_misses_a_member, 0),
        (weak.claims_are_not_written, 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_missing_protection_is_seen(plant: weak.Plant, seed: int) -> None:
    with plant(), pytest.raises(Violation):
        run_seed(seed)


def joins(world: World) -> list[int]:
    return [one.joins for one in world.members]


def leaders_die(world: World) -> None:
    """Raises Violation unless the members work on in their generation, and join no more."""
    before, generation = joins(world), world.checker.generation
    for _ in range(5):
        world.fail_over()
        world.scheduler.run_until(world.scheduler.now + 15)
    check_rest(world)
    if joins(world) != before or world.checker.generation != generation:
        raise Violation(f"{before} joins became {joins(world)}")


def test_the_generation_outlives_its_leader() -> None:
    leaders_die(settled(1, 4, "i0"))
    with weak.new_leader_forgets(), pytest.raises(Violation):
        leaders_die(settled(1, 4, "i0"))


def restart(world: World) -> None:
    """Raises Violation unless a new process of a static member takes over, and nobody notices."""
    first, rebalances, before = world.members[0], world.checker.rebalances, joins(world)
    share = set(first.positions)
    second = Member(world, first.instance)
    world.scheduler.run_until(world.scheduler.now + 20)
    check_rest(world)
    if first.rejected != "FENCED_INSTANCE" or set(second.positions) != share:
        raise Violation("the instance id was not taken over")
    if world.checker.rebalances != rebalances or joins(world) != [*before, 1]:
        raise Violation(f"{before} joins became {joins(world)}")


@pytest.mark.parametrize("plant", [weak.replaced_in_memory, weak.instance_is_not_fenced])
def test_a_static_member_restarts_without_a_rebalance(plant: weak.Plant) -> None:
    world = settled(2, 3, "i0")
    restart(world)
    leaders_die(world)
    with plant():
        world = settled(2, 3, "i0")
        with pytest.raises(Violation):
            restart(world)


def late_assignment(world: World) -> None:
    """Raises Violation unless an assignment of the generation before is left aside."""
    leader = next(one for one in world.members if one.member == world.node.coordinator.leader)
    caller = pb.ClassicCaller(member=leader.member, generation=leader.generation)
    shares = {name: ",".join(parts).encode() for name, parts in world.checker.shares.items()}
    next(one for one in world.members if one is not leader).leave()
    while world.node.coordinator.state != COMPLETING:
        world.scheduler.run_until(world.scheduler.now + 0.002)
    world.node.receive(lambda _: None, "sync", caller, ("test", None), shares)
    world.scheduler.run_until(world.scheduler.now + 20)
    check_rest(world)


def test_an_assignment_counts_in_its_generation_only() -> None:
    late_assignment(settled(4, 3))
    with weak.older_assignments_count():
        world = settled(4, 3)
        with pytest.raises(Violation):
            late_assignment(world)


def absence(world: World) -> None:
    """Raises Violation unless a static member that stops shortly keeps its share."""
    first, share = world.members[0], None
    first.stopped_until = world.scheduler.now + 8
    Member(world)
    world.scheduler.run_until(world.scheduler.now + 7)
    share = world.checker.shares.get(first.member)
    world.scheduler.run_until(world.scheduler.now + 20)
    check_rest(world)
    if not share:
        raise Violation("a rebalance went over a static member that was to come back")


def test_a_rebalance_keeps_a_static_members_share_for_it() -> None:
    absence(settled(3, 2, "i0"))
    with weak.static_members_are_dropped(), pytest.raises(Violation):
        absence(settled(3, 2, "i0"))
