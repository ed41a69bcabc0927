"""A follower's answers to readers that want a near replica."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.consensus.proposals import Abandoned, Applied, Done
from cluster.services.log import fetch
from cluster.services.log.fetch import Reader
from cluster.services.routing import NEAR_BEHIND
from oncelog.v1 import log_pb2
from storage.errors import CorruptionError
from tests.unit.partition.test_carried import carried
from tests.unit.services.log_rig import PAYLOAD, TOPIC, LogNode, header


@pytest.fixture
async def follower() -> LogNode:
    """Node 1 has two records, and follows node 2."""
    node = LogNode()
    for _ in range(2):
        await node.send(header(), PAYLOAD)
    follow(node, 2)
    return node


def follow(node: LogNode, leader: int) -> None:
    node.part.on_role(leader=False, ready=False, term=2)
    node.log.is_leader = node.log.is_ready = False
    node.log.leader_id = node.leaders[node.log.config.group] = leader


async def read(node: LogNode, offset: int, **how: bool) -> log_pb2.PartitionRecords:
    part = log_pb2.PartitionFetch(topic=TOPIC, partition=0, offset=offset)
    answer = await Reader(node).fetch(log_pb2.FetchRequest(partitions=[part], **how))
    return log_pb2.FetchResponse.FromString(answer).partitions[0]


async def ask(node: LogNode, *, any_replica: bool = False, **position: Any) -> log_pb2.OffsetResult:
    query = log_pb2.OffsetQuery(topic=TOPIC, partition=0, **position)
    request = log_pb2.ListOffsetsRequest(queries=[query], any_replica=any_replica)
    (result,) = (await Reader(node).list_offsets(request)).results
    return result


async def test_it_answers_what_it_has_only_if_asked(follower: LogNode) -> None:
    near = await read(follower, 1, near=True)
    assert [one.base_offset for one in near.batches] == [1]
    at_end = await read(follower, 2, near=True)
    assert (at_end.error, at_end.high_watermark) == (log_pb2.PARTITION_ERROR_NONE, 2)
    alone = await read(follower, 1)
    assert alone.error == log_pb2.PARTITION_ERROR_NOT_LEADER


async def test_an_offset_that_it_lacks_is_the_leaders_to_judge(follower: LogNode) -> None:
    near = await read(follower, 3, near=True)
    assert (near.error, near.leader_id) == (log_pb2.PARTITION_ERROR_NOT_LEADER, 2)
    any_one = await read(follower, 3, any_replica=True)
    assert any_one.error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
    leading = LogNode()
    ours = await read(leading, 3, near=True)
    assert ours.error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE


async def test_a_follower_that_starts_denies_no_offset_that_it_has_to_apply_again() -> None:
    """Its rows are ahead of its saved state: a carried batch took the place of the first one's."""
    node, answers = LogNode(), list[tuple[int, list[int], int, int]]()
    await node.send(header(), PAYLOAD)
    state = node.part.dump()
    for _ in range(2):
        await node.send(header(), PAYLOAD)
    node.log.propose(carried(0, 3), lambda outcome: None)
    follow(node, 2)
    machine = node.part.machine
    machine.restore(machine.load(state))
    for index, data in list(enumerate(node.log.entries, 1))[1:]:
        batch = node.log.disk.batch()
        machine.apply(index, data, batch)
        node.log.disk.write(batch)
        found = await read(node, 0, any_replica=True)
        by_time = await ask(node, any_replica=True, timestamp_us=0)
        bases = [one.base_offset for one in found.batches]
        answers.append((found.error, bases, by_time.error, by_time.offset))
    not_ready = log_pb2.PARTITION_ERROR_NOT_READY
    assert answers == [(not_ready, [], not_ready, -1)] * 2 + [(0, [0], 0, 0)]


@pytest.mark.parametrize("how", [{}, {"near": True}])
async def test_a_leader_refuses_an_offset_beyond_its_end_once_it_is_sure_to_lead(
    how: dict[str, bool],
) -> None:
    """A deposed one lacks records without knowing, and a refused reader begins elsewhere."""
    node = LogNode()
    await node.send(header(), PAYLOAD)
    asked: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
    node.log.confirm = asked.set_result  # type: ignore[assignment, method-assign]
    deposed, other = (asyncio.ensure_future(read(node, offset, **how)) for offset in (1, 2))
    assert (await deposed).error == log_pb2.PARTITION_ERROR_NONE, "its end is no fault"
    answer = await asked
    assert not other.done(), "it is not sure"
    answer(Abandoned(2, "another node leads", lost=True))
    refused = await other
    assert (refused.error, refused.leader_id) == (log_pb2.PARTITION_ERROR_NOT_LEADER, 2)


async def test_a_leader_looks_again_behind_the_entries_before_its_proof(
    follower: LogNode,
) -> None:
    """It may have been deposed and have come back meanwhile, with records of others."""
    node = LogNode()
    await node.send(header(), PAYLOAD)

    def confirm(done: Done) -> None:
        node.log.propose(follower.log.entries[1], lambda _: None)
        done(Applied(len(node.log.entries), None))

    node.log.confirm = confirm  # type: ignore[method-assign]
    found = await read(node, 2)
    assert (found.error, found.high_watermark) == (log_pb2.PARTITION_ERROR_NONE, 2)
    assert (await read(node, 4)).error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE


async def test_it_waits_a_moment_for_an_offset_that_it_lacks(
    follower: LogNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "LEVEL", 60.0)
    leading = LogNode()
    for _ in range(4):
        await leading.send(header(), PAYLOAD)
    part = log_pb2.PartitionFetch(topic=TOPIC, partition=0, offset=3)
    request = log_pb2.FetchRequest(partitions=[part], near=True, min_bytes=1, max_wait_ms=60_000)
    reading = asyncio.ensure_future(Reader(follower).fetch(request))
    for entry in leading.log.entries[2:]:
        await asyncio.sleep(0)
        assert not reading.done(), "the reader was the leader's, and is ahead of this follower"
        follower.log.propose(entry, lambda _: None)
    (found,) = log_pb2.FetchResponse.FromString(await reading).partitions
    assert [one.base_offset for one in found.batches] == [3]


async def test_it_answers_nothing_if_it_may_be_far_behind(follower: LogNode) -> None:
    follower.log.entries_behind = NEAR_BEHIND
    assert (await read(follower, 0, near=True)).batches
    follower.log.entries_behind = NEAR_BEHIND + 1
    far = await read(follower, 0, near=True)
    assert (far.error, far.leader_id) == (log_pb2.PARTITION_ERROR_NOT_LEADER, 2)
    follower.log.entries_behind = 0
    follower.dead.add(2)
    assert (await read(follower, 0, near=True)).error == log_pb2.PARTITION_ERROR_NOT_LEADER
    follower.dead.clear()
    follow(follower, 0)
    unled = await read(follower, 0, near=True)
    assert (unled.error, unled.leader_id) == (log_pb2.PARTITION_ERROR_NOT_LEADER, 0)


async def test_its_damage_is_no_error_of_the_partition(follower: LogNode) -> None:
    follower.log.failed = CorruptionError("a bit is wrong")
    near = await read(follower, 0, near=True)
    assert (near.error, near.leader_id) == (log_pb2.PARTITION_ERROR_NOT_LEADER, 2)


async def test_the_end_costs_no_entry() -> None:
    """Lag figures and idle queries ask all the time (ADR 149): a deposed leader tells its own."""
    node = LogNode()
    await node.send(header(), PAYLOAD)
    entries = len(node.log.entries)
    assert (await ask(node, latest=True)).offset == 1
    assert len(node.log.entries) == entries
