"""Random lives of a group: members come, go, stop and die, leaders change, the network drops.

`scripts/sim --kind groups --seeds 0..10000` runs many.
"""

from __future__ import annotations

from tests.sim.groups.checker import Violation
from tests.sim.groups.world import Member, World

CHAOS = 120.0  # seconds of faults
REST = 90.0  # seconds after them, in which all must come to rest


def run_seed(seed: int) -> World:
    """Raises Violation."""
    world = World(seed, {1: 6, 2: 4})
    rng = world.rng
    world.drop, world.late = rng.choice(((0.0, 0.0), (0.02, 0.05), (0.1, 0.1)))
    for number in range(rng.randint(1, 4)):
        _new_member(world, number)
    world.scheduler.after(rng.random(), _fault, world)
    world.scheduler.run_until(CHAOS)
    world.drop = world.late = 0.0
    for member in world.members.values():
        member.stuck = False
    world.scheduler.run_until(CHAOS + REST)
    check_rest(world)
    return world


def _new_member(world: World, number: int) -> Member:
    rng = world.rng
    topics = {1, 2} if rng.random() < 0.7 else {rng.choice((1, 2))}
    instance = f"i{number % 3}" if rng.random() < 0.3 else ""
    return Member(world, f"m{len(world.members)}", topics, instance)


def _fault(world: World) -> None:
    if world.scheduler.now > CHAOS:
        return
    rng = world.rng
    live = [one for one in world.members.values() if one.alive and not one.rejected]
    victim = live[rng.randrange(len(live))] if live else None
    draw = rng.random()
    if draw < 0.2 or victim is None:
        _new_member(world, len(world.members))
    elif draw < 0.3:
        victim.kill()
    elif draw < 0.4:
        victim.leave()
    elif draw < 0.55:
        victim.stopped_until = max(victim.stopped_until, world.scheduler.now + 25 * rng.random())
    elif draw < 0.6:
        victim.stuck = True
    elif draw < 0.75:
        victim.connect()
    elif draw < 0.9:
        world.fail_over()
    else:
        world.set_topics({1: rng.randint(6, 9), 2: 4, **({3: 2} if rng.random() < 0.5 else {})})
    world.scheduler.after(5 * rng.random(), _fault, world)


def check_rest(world: World) -> None:
    """Checks that every member has a share, views agree, and nothing moves any more."""
    live = {one.name: one for one in world.members.values() if one.alive and not one.rejected}
    wanted = {
        (topic, number)
        for topic, count in world.topics.items()
        for number in range(count)
        if any(topic in one.topics for one in live.values())
    }
    owned = {tuple(part): owner.member for part, owner in world.facts.owners.items()}
    if set(owned) != wanted:
        raise Violation(f"owned are {sorted(owned)}, wanted {sorted(wanted)}")
    if not set(owned.values()) <= set(live):
        raise Violation(f"{set(owned.values()) - set(live)} own partitions and are gone")
    for name, member in live.items():
        theirs = {part for part, owner in owned.items() if owner == name}
        mine = {tuple(part) for part in member.membership.owned}
        if theirs != mine or set(map(tuple, member.positions)) != mine:
            raise Violation(f"{name} believes in {sorted(mine)}, the log says {sorted(theirs)}")
    both = [name for name, one in live.items() if {1, 2} <= one.topics]
    counts = [sum(owner == name for owner in owned.values()) for name in both]
    if counts and len(both) == len(live) and max(counts) - min(counts) > 1:
        raise Violation(f"shares are not even: {counts}")
    entries = world.entries
    world.scheduler.run_until(world.scheduler.now + 30)
    if world.entries != entries:
        raise Violation(f"{world.entries - entries} entries at rest")
