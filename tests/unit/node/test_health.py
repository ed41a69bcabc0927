"""A sick node: whether it reports that it leads badly, and which node leads in its place."""

from __future__ import annotations

from cluster.node.health.node_health import RECOVERED, NodeHealth, successor

LIMIT = 1.0


class Sync:
    def __init__(self) -> None:
        self.under_way = 0.0
        self.hangs = False


class World:
    def __init__(self) -> None:
        self.now, self.sync = 100.0, Sync()
        self.health = NodeHealth(lambda: self.now, LIMIT, self.sync)


def test_a_delay_makes_a_node_sick_for_a_while():
    world, seen = World(), list[float]()
    watching = world.health.watching(seen.append)
    sick = list[bool]()
    for seconds, later in ((LIMIT, 0.0), (LIMIT + 0.1, 0.0), (0.0, RECOVERED)):
        watching(seconds)
        world.now += later
        sick.append(world.health.sick)
    assert sick == [False, True, False]
    assert seen == [LIMIT, LIMIT + 0.1, 0.0]


def test_an_fsync_that_does_not_return_makes_it_sick_at_once():
    world, said = World(), list[bool]()
    for world.sync.under_way in (LIMIT + 0.1, 0.0):
        said.append(world.health.sick)
    assert said == [True, False]


class Led:
    """Group led here; of nodes 2 and 3, node 3 has the longest log."""

    def best_successor(self, wrong) -> int:
        return max({2, 3} - set(wrong), default=0)


def test_a_sick_node_leads_only_where_nobody_else_can():
    assert successor(Led(), (), ()) == 3
    assert successor(Led(), (), {3}) == 2
    assert successor(Led(), {2}, {3}) == 3, "better than a wrong clock"
    assert successor(Led(), {2, 3}, {3}) == 0
