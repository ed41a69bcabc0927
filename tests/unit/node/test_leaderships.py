"""A node that stops: it hands its leaderships to others, some at a time, for a bounded time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.node.health.node_health import NodeHealth
from cluster.node.leadership.handover import MAX_HANDOVERS, Leaderships
from cluster.node.leadership.leaders import Leaders


class Led:
    """A group that this node leads; `take` moves it to node 2."""

    def __init__(self, gid: int, world: World) -> None:
        self.config, self.world = SimpleNamespace(group=gid), world
        self.is_leader, self.is_transferring, self.term = True, False, 1
        self.asked = 0

    @property
    def leader_id(self) -> int:
        return 1 if self.is_leader else 2

    def best_successor(self, wrong: set[int]) -> int:
        return next((node for node in self.world.able if node not in wrong), 0)

    def transfer(self, target: int) -> None:
        self.is_transferring = True
        self.asked = target
        self.world.most = max(self.world.most, self.world.under_way)

    def take(self) -> None:
        self.is_leader = self.is_transferring = False


class World:
    def __init__(self, groups: int, timeout_ms: int = 5000) -> None:
        self.able, self.most, self.touched = [2, 3], 0, list[int]()
        self.drained: set[int] = set()
        self.groups = {gid: Led(gid, self) for gid in range(groups)}
        driver: Any = SimpleNamespace(groups=self.groups, touch=self.touched.append)
        self.leaders = Leaders(self.groups)
        clocks: Any = SimpleNamespace(wrong=set(), sick=set())
        self.health = NodeHealth(lambda: 0.0, 1.0, SimpleNamespace(under_way=0.0, hangs=False))
        config: Any = SimpleNamespace(node_id=1, handover_timeout_ms=timeout_ms)
        metadata: Any = SimpleNamespace(membership=SimpleNamespace(drained=self.drained))
        self.leaderships = Leaderships(config, driver, self.leaders, clocks, self.health, metadata)

    @property
    def under_way(self) -> int:
        return sum(group.is_transferring for group in self.groups.values())

    async def take_all(self) -> None:
        """Lets the other nodes take each offered leadership in turn."""
        while any(group.is_leader for group in self.groups.values()):
            for group in self.groups.values():
                if group.is_transferring:
                    group.take()
                    self.leaders.notify()
                    await asyncio.sleep(0)
            await asyncio.sleep(0)


async def test_some_at_a_time_until_nothing_is_left() -> None:
    world = World(3 * MAX_HANDOVERS + 1)
    assert not world.health.sick
    await asyncio.gather(world.leaderships.hand_over(), world.take_all())
    assert world.most == MAX_HANDOVERS
    assert len(world.touched) == len(world.groups)
    assert world.health.sick, "nothing is handed back to a node that leaves"


async def test_what_nobody_can_take_is_not_waited_for() -> None:
    world = World(3)
    world.able.clear()
    await asyncio.wait_for(world.leaderships.hand_over(), 30)
    assert not world.touched


async def test_a_drained_node_gets_nothing() -> None:
    world = World(1)
    world.drained.add(2)
    await asyncio.gather(world.leaderships.hand_over(), world.take_all())
    assert world.groups[0].asked == 3


async def test_it_ends_when_its_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    world = World(2, timeout_ms=50)
    await asyncio.wait_for(world.leaderships.hand_over(), 30)
    assert world.under_way == 2
    assert "not handed over in time: 2 are left" in caplog.text
