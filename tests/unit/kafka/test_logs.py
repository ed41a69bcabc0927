"""DeleteRecords and DescribeLogDirs of a real partition."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cluster.access.gate import Gate
from cluster.consensus.proposals import Abandoned
from cluster.kafka.errors import Error
from cluster.kafka.logs import Logs
from cluster.kafka.messages import (
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from cluster.kafka.needs import Rights
from cluster.kafka.sent import Sent
from cluster.kafka.versions import Head
from cluster.partition import retention
from cluster.security.audit import Audit
from cluster.security.caller import Caller
from cluster.security.identities import Identities
from cluster.security.permissions import Authorizer, Rule
from cluster.services.requests import Deadline
from oncelog.errors import NotReadyError
from tests.unit.kafka.kafka_bytes import batch
from tests.unit.kafka.test_produce import Rig
from tests.unit.services.log_rig import TOPIC
from tests.unit.small_node import Node

HEAD = Head(DELETE_RECORDS, 2, 1, "", True)
ANYBODY = Rights(Gate(None, None, None), Caller(), Sent(1))


async def filled() -> Rig:
    """Five batches of three records."""
    rig = Rig()
    for _ in range(5):
        rig.begin(batch(3))
    await rig.answers.all()
    return rig


async def delete(
    rig: Rig, offset: int, rights: Rights = ANYBODY, timeout_ms: int = 5000
) -> tuple[int, int]:
    """The error, and the low watermark."""
    wanted = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])
    request = DeleteRecordsRequest([wanted], timeout_ms)
    async with asyncio.timeout(60):
        answer = await Logs(rig.node).delete(rights, HEAD, request)
    (one,) = answer.topics[0].partitions
    return one.error_code, one.low_watermark


@pytest.mark.parametrize(
    ("offset", "start"), [(0, 0), (2, 0), (3, 3), (8, 6), (14, 12), (15, 15), (-1, 15)]
)
async def test_records_go_by_whole_batches(offset: int, start: int) -> None:
    rig = await filled()
    size = rig.node.part.machine.stored.stored_bytes
    assert await delete(rig, offset) == (0, start)
    assert rig.node.part.log_start_offset == start
    assert rig.node.part.machine.stored.stored_bytes == size * (15 - start) // 15
    assert await delete(rig, 0) == (0, start), "the start never goes back"


async def test_many_batches_go_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_DELETED", 2)
    rig = await filled()
    assert await delete(rig, 13) == (0, 12)
    assert len(rig.node.log.entries) == 5 + 2


@pytest.mark.parametrize("offset", [16, -2])
async def test_an_offset_that_is_not_there_deletes_nothing(offset: int) -> None:
    rig = await filled()
    assert await delete(rig, offset) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert rig.node.part.log_start_offset == 0


async def test_a_deposed_leader_does_not_say_that_an_offset_is_not_there() -> None:
    rig = await filled()
    outcome = Abandoned(2, "no longer the leader", lost=True)
    rig.node.log.confirm = lambda done: done(outcome)  # type: ignore[method-assign]
    assert await delete(rig, 16) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_leader_that_is_not_sure_in_time_does_not_delete() -> None:
    rig = await filled()
    rig.node.log.confirm = lambda done: None  # type: ignore[method-assign]
    assert await delete(rig, 16, timeout_ms=20) == (Error.REQUEST_TIMED_OUT, -1)


async def test_another_node_does_not_delete() -> None:
    rig = await filled()
    rig.node.leaders[next(iter(rig.node.leaders))] = 2
    assert await delete(rig, 3) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(
    ("lost", "error"), [(True, Error.NOT_LEADER_OR_FOLLOWER), (False, Error.REQUEST_TIMED_OUT)]
)
async def test_a_deletion_of_a_deposed_leader_may_be_committed_yet(
    lost: bool, error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await filled()
    outcome = Abandoned(2, "no longer the leader", lost=lost)
    monkeypatch.setattr(rig.node.log, "propose", lambda data, done, **_: done(outcome))
    assert await delete(rig, 3) == (error, -1)


async def test_a_right_is_needed() -> None:
    rig = await filled()
    rule = Rule("a", "topic", TOPIC, ("write",))
    gate = Gate(object(), Authorizer(lambda: (rule,)), None)  # type: ignore[arg-type]
    rights = Rights(gate, Caller("a"), Sent(1))
    assert await delete(rig, 3, rights) == (Error.TOPIC_AUTHORIZATION_FAILED, -1)
    head = Head(DESCRIBE_LOG_DIRS, 4, 1, "", True)
    answer = await Logs(rig.node).describe(rights, head, DescribeLogDirsRequest(None))
    assert (answer.error_code, answer.results) == (Error.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_the_directory_has_the_sizes_of_this_nodes_replicas() -> None:
    rig = await filled()
    size = rig.node.part.machine.stored.stored_bytes
    head = Head(DESCRIBE_LOG_DIRS, 4, 1, "", True)
    for topics, shown in (
        (None, True),
        ([DescribableLogDirTopic(TOPIC, [0])], True),
        ([DescribableLogDirTopic(TOPIC, [1])], False),
        ([DescribableLogDirTopic("other", [0])], False),
    ):
        answer = await Logs(rig.node).describe(ANYBODY, head, DescribeLogDirsRequest(topics))
        (result,) = answer.results
        assert result.log_dir == str(rig.node.config.data_dir)
        found = [
            (topic.name, one.partition_index, one.partition_size)
            for topic in result.topics for one in topic.partitions
        ]  # fmt: skip
        assert found == ([(TOPIC, 0, size)] if shown else [])


async def test_a_client_that_goes_does_not_hide_its_change(tmp_path: Path) -> None:
    """The change may be in the log, and nobody waits for the answer."""
    audit = Audit(tmp_path / "audit", 1)
    rights = Rights(Gate(Identities(None, None), None, audit), Caller("a"), Sent(1))
    proposed = asyncio.Event()

    async def waits() -> None:
        proposed.set()
        await asyncio.Event().wait()

    async def fails() -> None:
        raise NotReadyError("x")

    loop, deadline = asyncio.get_running_loop(), Deadline(0, Node())
    called = loop.create_task(rights.changed(DELETE_TOPICS, "t", waits, deadline))
    await proposed.wait()
    called.cancel()
    with pytest.raises(asyncio.CancelledError):
        await called
    refused, _ = await rights.changed(DELETE_TOPICS, "t", fails, deadline, waits=False)
    audit.close()
    lines = map(json.loads, (tmp_path / "audit").read_text().splitlines())
    assert [one["result"] for one in lines] == ["CANCELLED", refused.name]
