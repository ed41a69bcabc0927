"""Partitions added while clients use the topic: their readers, writers and start offsets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog._engine.consume.fetch_buffer import FetchBuffer
from oncelog._engine.consume.new_partitions import NewPartitions
from oncelog._engine.net.leaders import LeaderCache
from oncelog._engine.produce.placement import Placement
from oncelog.config import ConsumerConfig
from oncelog.errors import UnknownTopicOrPartitionError
from oncelog.types import TopicPartition
from tests.unit.client.test_leaders import sized

SERVERS = ("127.0.0.1:1",)


class Known:
    """The client's knowledge of its cluster; `refresh` receives the news."""

    def __init__(self) -> None:
        self.leaders, self.partitions = LeaderCache(), 3
        self.leaders.update(sized(3))
        self.asked: list[str] = []

    async def refresh(self, topics: Any) -> None:
        self.asked += topics
        self.leaders.update(sized(self.partitions))


def parts(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in numbers]


def made(known: Known, **settings: Any) -> tuple[NewPartitions, FetchBuffer, asyncio.Event]:
    woken = asyncio.Event()
    config = ConsumerConfig(bootstrap_servers=SERVERS, metadata_max_age_ms=100, **settings)
    buffer = FetchBuffer(1000, lambda tp: None)
    cluster: Any = known
    return NewPartitions(config, cluster, buffer, woken.set), buffer, woken


async def looked(new: NewPartitions, woken: asyncio.Event) -> None:
    woken.clear()
    task = asyncio.create_task(new.look())
    async with asyncio.timeout(10):
        await woken.wait()
    task.cancel()


async def test_what_is_subscribed_grows_and_is_read_from_its_start() -> None:
    known = Known()
    new, buffer, woken = made(known)
    new.assign(parts(0, 1, 2), ["t"])
    before = buffer.cursor(TopicPartition("t", 0))
    known.partitions = 5
    await looked(new, woken)
    assert buffer.assignment() == parts(0, 1, 2, 3, 4)
    assert buffer.cursor(TopicPartition("t", 0)) is before, "the others keep their place"
    assert [new.begins_at_start(tp) for tp in parts(2, 3, 4)] == [False, True, True]


async def test_what_is_assigned_by_hand_does_not_grow() -> None:
    known = Known()
    new, buffer, _ = made(known)
    new.assign(parts(0, 1, 2), ["t"])
    new.assign(parts(1))
    known.partitions = 5
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await new.look()
    assert buffer.assignment() == parts(1) and not known.asked


@pytest.mark.parametrize(("group", "from_start"), [(None, False), ("g", True)])
async def test_of_what_was_there_before_only_a_group_reads_the_start(
    group: str | None, from_start: bool
) -> None:
    """A group may be older than the partition; a consumer without a group begins now."""
    known = Known()
    known.leaders.update(sized(6))
    new, _, _ = made(known, group_id=group)
    new.assign(parts(*range(6)), ["t"])
    assert [new.begins_at_start(tp) for tp in parts(2, 3)] == [False, from_start]


def test_a_partition_that_is_not_known_is_asked_for() -> None:
    asked: list[str] = []
    accumulator: Any = SimpleNamespace(lane=lambda tp: tp)
    placement = Placement(accumulator, None, asked.append)
    leaders = LeaderCache()
    leaders.update(sized(3))
    keys = [b"%d" % number for number in range(50)]

    def placed() -> set[Any]:
        return {placement.lane(leaders.topics["t"], key, None)[0] for key in keys}

    assert placed() == {*parts(0, 1, 2)}
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 4"):
        placement.lane(leaders.topics["t"], None, 4)
    assert asked == ["t"]
    leaders.update(sized(6))
    four: Any = placement.lane(leaders.topics["t"], None, 4)[0]
    assert four == TopicPartition("t", 4)
    assert placed() == {*parts(*range(6))}
