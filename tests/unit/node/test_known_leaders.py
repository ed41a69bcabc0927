"""Leaders known to a node: from its replicas and from peers' announcements; waiting for one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from cluster.consensus.message import LeaderNotice
from cluster.node.leadership.leaders import Leaders
from tests.sim.node import Process
from tests.sim.run import run_seed

GID = 16


@dataclass
class Replica:
    leader_id: int
    term: int


def test_of_a_group_that_is_not_here_what_its_leader_announced_counts() -> None:
    leaders = Leaders({})
    assert leaders.leader_of(GID) == (0, 0)
    assert leaders.announced(LeaderNotice(GID, 3, 2))
    assert leaders.leader_of(GID) == (2, 3)


def test_a_later_announcement_counts_before_the_own_replica() -> None:
    """The replica may have stopped, and goes on leading an old term."""
    leaders = Leaders({GID: Replica(1, 4)})
    leaders.announced(LeaderNotice(GID, 5, 3))
    assert leaders.leader_of(GID) == (3, 5)


@pytest.mark.parametrize("term", [5, 6])
def test_the_own_replica_counts_from_the_announced_term_on(term: int) -> None:
    leaders = Leaders({GID: Replica(0, term)})
    leaders.announced(LeaderNotice(GID, 5, 3))
    assert leaders.leader_of(GID) == (0, term)


def test_an_announcement_of_an_older_term_changes_nothing() -> None:
    leaders = Leaders({})
    leaders.announced(LeaderNotice(GID, 5, 3))
    assert not leaders.announced(LeaderNotice(GID, 4, 2))
    assert leaders.leader_of(GID) == (3, 5)


async def test_who_waits_looks_again_at_each_change_and_not_between() -> None:
    leaders = Leaders({})
    looks = 0

    def third_look() -> bool:
        nonlocal looks
        looks += 1
        return looks == 3

    waiting = asyncio.create_task(leaders.wait_until(third_look, 60.0))
    for expected in (1, 2):
        for _ in range(5):
            await asyncio.sleep(0)
        assert looks == expected
        leaders.notify()
    assert await waiting


async def test_waiting_for_leaders_ends_with_the_last_one() -> None:
    own = Replica(0, 1)
    leaders = Leaders({GID: own})
    waiting = asyncio.create_task(leaders.wait_for_leaders([GID, GID + 1], 60.0))
    await asyncio.sleep(0)
    leaders.announced(LeaderNotice(GID + 1, 2, 3))
    await asyncio.sleep(0)
    assert not waiting.done()
    own.leader_id = 2
    leaders.notify()
    assert await waiting


async def test_waiting_ends_with_its_timeout() -> None:
    assert not await Leaders({}).wait_for_leaders([GID], 0.01)
    assert await Leaders({}).wait_for_leaders([], 0.01)


def test_the_simulator_sees_a_replica_that_tells_nobody_of_its_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Process, "_leader_changed", lambda self: None)
    assert "nobody learns" in run_seed(1, duration=5.0).error
