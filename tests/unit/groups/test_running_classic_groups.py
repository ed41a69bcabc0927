"""Running classic groups over a real partition: entries, answers, the room of one partition."""

from __future__ import annotations

import asyncio

import pytest

from cluster.errors import NotLeaderError
from cluster.features import FEATURES, KAFKA, Finalized
from cluster.groups import classic_table
from cluster.groups.classic import ClassicJoin, ClassicReady, Joined
from cluster.services.groups import running_groups
from cluster.services.groups.running_groups import _Term
from cluster.v1 import offsets_pb2 as pb
from tests.unit.partition.replica_world import World


def led() -> World:
    world = World()
    world.finalized = Finalized(FEATURES[KAFKA], frozenset(FEATURES))
    return world


def request(member: str) -> ClassicJoin:
    return ClassicJoin(
        "", "", member, "client", "/host", 10.0, 20.0, "consumer", (("range", b"m"),), False
    )


async def test_a_rebalance_is_in_the_log_when_it_is_answered() -> None:
    world = led()
    table = world.parts[1].group_offsets
    assert table is not None
    running = _Term(world.parts[1], 1).begin_classic("g", 0.0)
    first = await running.join(request("a"))
    assert (first.error, first.generation, first.leader) == ("", 1, "a")
    second = asyncio.create_task(running.join(request("b")))
    await asyncio.sleep(0)
    assert running.heartbeat(pb.ClassicCaller(member="a", generation=1)) == "REBALANCING"
    again = await running.join(request("a")._replace(member="a"))
    joined = await second
    assert isinstance(joined, Joined) and joined.generation == again.generation == 2
    callers = {name: pb.ClassicCaller(member=name, generation=2) for name in "ab"}
    waiting = asyncio.create_task(running.sync(callers["b"], (None, None), {}))
    assert table.classic("g") is None
    answer = await running.sync(callers["a"], (None, None), {"a": b"1", "b": b"2"})
    facts = table.classic("g")
    assert facts is not None and facts.record.generation == 2
    assert (answer.assignment, (await waiting).assignment) == (b"1", b"2")
    assert running.leave("a", "") == running.leave("b", "") == ""
    await asyncio.sleep(0)
    assert running.closed
    assert table.classic("g") is None, "the group is empty, and dropped"


async def test_a_leave_of_nobody_looks_at_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call with 100,000 unknown names held up the node for each of its group's members."""
    running = _Term(led().parts[1], 1).begin_classic("g", 0.0)
    await running.join(request("a"))
    looks, advance = list[float](), running.coordinator.advance

    def looked(now: float) -> ClassicReady:
        looks.append(now)
        return advance(now)

    monkeypatch.setattr(running.coordinator, "advance", looked)
    assert running.leave("b", "") == running.leave("", "i") == "UNKNOWN_MEMBER" and not looks
    assert running.leave("a", "") == "" and len(looks) == 1
    running.close(NotLeaderError("the test ends", 0))


async def test_a_group_that_takes_all_memory_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    term = _Term(led().parts[1], 1)
    quiet = term.begin_classic("quiet", 0.0)
    await quiet.join(request("a"))
    noisy = term.begin_classic("noisy", 0.0)
    await noisy.join(request("b"))
    monkeypatch.setattr(running_groups, "MAX_CLASSIC_BYTES", 1000)
    assert term.classic_room().members < 0
    assert (await noisy.join(request("c"))).error == "NO_ROOM"
    again = await quiet.join(request("a")._replace(member="a"))
    assert (again.error, again.generation) == ("", 1)
    for group in term.groups.values():
        group.close(NotLeaderError("the test ends", 0))


async def test_assignments_leave_room_for_the_rebalances_of_the_groups_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new group would be balanced for ever: nothing of it can be stored."""
    term = _Term(led().parts[1], 1)
    large = term.begin_classic("large", 0.0)
    await large.join(request("a"))
    caller = pb.ClassicCaller(member="a", generation=1)
    await large.sync(caller, (None, None), {"a": bytes(15_000)})
    monkeypatch.setattr(running_groups, "MAX_CLASSIC_BYTES", 16_000)
    monkeypatch.setattr(classic_table, "MAX_CLASSIC_BYTES", 16_000)
    assert (await term.begin_classic("new", 0.0).join(request("b"))).error == "NO_ROOM"
    again = await large.join(request("a")._replace(member="a"))
    assert (again.error, again.generation) == ("", 2)
    caller.generation = 2
    assert not (await large.sync(caller, (None, None), {"a": bytes(15_500)})).error
    large.close(NotLeaderError("the test ends", 0))
