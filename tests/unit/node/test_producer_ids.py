"""A node's hand-out of producer ids: one allocation in flight, nothing twice, nothing stale."""

from __future__ import annotations

import asyncio

import pytest

from cluster.node.metadata.producer_id_blocks import ProducerIdBlocks


class Cluster:
    """Stands in for the metadata group: blocks of `size`, given when `gate` is open."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.next = 1
        self.calls = 0
        self.now = 0.0
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def allocate(self) -> int:
        self.calls += 1
        self.asked.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        first, self.next = self.next, self.next + self.size
        return first

    def node(self) -> ProducerIdBlocks:
        return ProducerIdBlocks(self.allocate, self.size, max_age_s=60, clock=lambda: self.now)


async def test_ids_come_from_one_block_after_the_other():
    cluster = Cluster(3)
    node = cluster.node()
    assert [await node.next_id() for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    assert cluster.calls == 3


async def test_callers_at_once_share_allocations():
    cluster = Cluster(10)
    node = cluster.node()
    ids = await asyncio.gather(*(node.next_id() for _ in range(95)))
    assert sorted(ids) == list(range(1, 96))
    assert cluster.calls == 10


async def test_two_nodes_and_restarts_never_share_an_id():
    cluster = Cluster(4)
    seen: list[int] = []
    for _ in range(5):
        one, other = cluster.node(), cluster.node()
        for _ in range(3):
            seen += [await one.next_id(), await other.next_id()]
    assert len(set(seen)) == len(seen) == 30


async def test_a_block_is_not_used_after_its_time():
    cluster = Cluster(10)
    node = cluster.node()
    assert await node.next_id() == 1
    cluster.now = 59.9
    assert await node.next_id() == 2
    cluster.now = 60.0
    assert await node.next_id() == 11


async def test_a_blocks_age_counts_from_the_request():
    cluster = Cluster(10)
    cluster.gate.clear()
    node = cluster.node()
    waiting = asyncio.create_task(node.next_id())
    await cluster.asked.wait()
    cluster.now = 100.0
    cluster.gate.set()
    assert await waiting == 11, "the first block was too old when it came"


async def test_an_error_reaches_all_who_wait_and_the_next_try_is_new():
    cluster = Cluster(10)
    cluster.error = RuntimeError("no quorum")
    node = cluster.node()
    results = await asyncio.gather(*(node.next_id() for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in results] == ["no quorum"] * 3
    assert cluster.calls == 1
    cluster.error = None
    assert await node.next_id() == 1


async def test_a_caller_that_gives_up_does_not_end_the_others_wait():
    cluster = Cluster(10)
    cluster.gate.clear()
    node = cluster.node()
    first, second = (asyncio.create_task(node.next_id()) for _ in range(2))
    await cluster.asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    cluster.gate.set()
    assert await second == 1


async def test_close_ends_the_wait():
    cluster = Cluster(10)
    cluster.gate.clear()
    node = cluster.node()
    waiting = asyncio.create_task(node.next_id())
    await cluster.asked.wait()
    await node.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_block_that_was_issued_before_is_a_broken_invariant():
    cluster = Cluster(10)
    node = cluster.node()
    await node.next_id()
    cluster.next = 5
    cluster.now = 60.0
    with pytest.raises(AssertionError, match="issued before"):
        await node.next_id()
