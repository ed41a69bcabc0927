"""Random lives of a classic group: members come, go, stop and die, leaders change.

`scripts/sim --kind classic --seeds 0..10000` runs many.
"""

from __future__ import annotations

from tests.sim.classic.world import Member, World, check_rest

CHAOS = 120.0  # seconds of faults
REST = 90.0  # seconds after them, in which all must come to rest


def run_seed(seed: int) -> World:
    """Raises Violation."""
    world = World(seed, 6)
    rng = world.rng
    world.drop, world.late = rng.choice(((0.0, 0.0), (0.02, 0.05), (0.1, 0.1)))
    for _ in range(rng.randint(1, 4)):
        _new_member(world)
    world.scheduler.after(rng.random(), _fault, world)
    world.scheduler.run_until(CHAOS)
    world.drop = world.late = 0.0
    world.scheduler.run_until(CHAOS + REST)
    check_rest(world)
    return world


def _new_member(world: World) -> Member:
    number = len(world.members)
    return Member(world, f"i{number % 3}" if world.rng.random() < 0.3 else "")


def _fault(world: World) -> None:
    if world.scheduler.now > CHAOS:
        return
    rng = world.rng
    live = [one for one in world.members if one.is_live]
    victim = live[rng.randrange(len(live))] if live else None
    draw = rng.random()
    if draw < 0.15 or victim is None:
        _new_member(world)
    elif draw < 0.25:
        victim.kill()
    elif draw < 0.35:
        victim.leave()
    elif draw < 0.5:
        victim.stopped_until = max(victim.stopped_until, world.scheduler.now + 25 * rng.random())
    elif draw < 0.65 and victim.instance:
        # A new process of the instance; the one before may still run.
        if rng.random() < 0.5:
            victim.kill()
        Member(world, victim.instance)
    elif draw < 0.7:
        victim.change()
    else:
        world.fail_over()
    world.scheduler.after(5 * rng.random(), _fault, world)


def settled(seed: int, members: int, instance: str = "") -> World:
    """A group at rest: the first member is static if an instance is named."""
    world = World(seed, 6)
    for number in range(members):
        Member(world, "" if number else instance)
    world.scheduler.run_until(30)
    check_rest(world)
    return world
