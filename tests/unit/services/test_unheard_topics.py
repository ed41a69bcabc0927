"""Calls at a node that has not heard of a topic which another node just created.

A learner of the metadata hears of it up to a heartbeat later. "There is no such topic" would end a
commit for good, so the node catches up before it says so.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import NotReadyError
from cluster.kafka.errors import Error
from cluster.kafka.offsets import RESULTS
from cluster.metadata.topics import OFFSETS_TOPIC
from cluster.partition.group_state import CommitResult
from cluster.partition.replica import Partition
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.groups.service import GroupService
from cluster.services.transactions.permissions import TransactionRights
from cluster.services.transactions.service import TransactionService
from cluster.services.transactions.sink_service import SinkService
from cluster.transactions.types import UNKNOWN_TRANSACTION
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import offsets_pb2 as internal
from oncelog.errors import OncelogError
from oncelog.v1 import cluster_pb2, group_pb2, sink_pb2, transaction_pb2
from oncelog.v1.batch_pb2 import TopicPartition
from tests.unit.kafka.test_moved_leaderships import Behind

NOBODY: Any = None


class Learner(Behind):
    """It lacks the command that created a topic. caught_up: how often it asked for all commands."""

    def __init__(self, name: str = "events") -> None:
        super().__init__()
        self.caught_up = 0
        made = ClusterService(Behind()).create_command(
            cluster_pb2.CreateTopicRequest(name="other", partitions=1)
        )
        made.name = name
        self.elsewhere.append(meta.MetadataCommand(create_topic=made))

    async def propose_metadata(
        self, command: meta.MetadataCommand, timeout: float
    ) -> meta.MetadataResult:
        self.caught_up += command.WhichOneof("command") is None
        return await super().propose_metadata(command, timeout)


def transactions(node: Learner) -> TransactionService:
    rights = TransactionRights(node, None)
    return TransactionService(node, NOBODY, rights, now_ms=lambda: node.now_ms)


async def reason(call: Any) -> str:
    with pytest.raises(OncelogError) as caught:
        await call
    return caught.value.reason


def commit(topic: str) -> transaction_pb2.CommitTransactionRequest:
    runs = [transaction_pb2.StagedRun(topic=topic, record_count=1)]
    return transaction_pb2.CommitTransactionRequest(transaction_id=1, producer_id=7, runs=runs)


async def test_a_commit_goes_on_with_a_new_topic() -> None:
    node = Learner()
    assert await reason(transactions(node).CommitTransaction(commit("events"))) == (
        UNKNOWN_TRANSACTION
    )
    node = Learner()
    assert await reason(transactions(node).CommitTransaction(commit("none"))) == "INVALID_REQUEST"
    assert node.caught_up == 1


async def test_a_commit_goes_on_with_the_first_offsets() -> None:
    request = transaction_pb2.CommitTransactionRequest(
        transaction_id=1,
        producer_id=7,
        offsets=[transaction_pb2.StagedOffsets(group="g", offset_count=1, last_number=1)],
    )
    for name, expected in ((OFFSETS_TOPIC, UNKNOWN_TRANSACTION), ("events", "INVALID_REQUEST")):
        assert await reason(transactions(Learner(name)).CommitTransaction(request)) == expected


async def test_a_sinks_batch_goes_on_with_a_new_topic() -> None:
    for topic, expected in (("events", UNKNOWN_TRANSACTION), ("none", "INVALID_REQUEST")):
        winner = sink_pb2.Winner(topic=topic, producer_id=7, record_count=1)
        request = sink_pb2.EndBatchRequest(
            sink="s", transaction_id=1, winners=[winner], record_count=1
        )
        assert await reason(SinkService(Learner(), NOBODY).EndBatch(request)) == expected


async def test_a_transaction_is_told_as_unknown_once_the_node_has_caught_up() -> None:
    node = Learner()
    request = transaction_pb2.DescribeTransactionRequest(transaction_id=1)
    assert await reason(transactions(node).DescribeTransaction(request)) == UNKNOWN_TRANSACTION
    assert node.caught_up == 1


async def test_offsets_of_a_new_topic_are_committed_and_staged() -> None:
    node = Learner()
    members: Any = SimpleNamespace(classic=NOBODY, begun_classic=NOBODY)
    groups = GroupService(node, members, NOBODY, now_ms=lambda: node.now_ms)
    place = TopicPartition(topic="events")
    next_id = node.metadata.tables.next_topic_id
    assert await groups._topic_ids([place]) == [next_id] and node.caught_up == 1
    assert await groups._topic_ids([place]) and node.caught_up == 1, "it knows the topic now"
    none = group_pb2.OffsetCommit(topic="none")
    assert await groups._topic_ids([none]) == [0]


class Commits(GroupService):
    """Its offsets are stored at once."""

    def __init__(self, node: Learner) -> None:
        members: Any = SimpleNamespace(classic=NOBODY, begun_classic=NOBODY)
        super().__init__(node, members, NOBODY, now_ms=lambda: node.now_ms)

    async def _replica_of(self, group: str) -> Partition:
        replica: Partition = NOBODY
        return replica

    async def _apply(self, replica: Partition, command: internal.OffsetsCommand) -> object:
        return [CommitResult("", "", False, None) for _ in command.commit.offsets]

    async def errors(self, *topics: str) -> list[str]:
        offsets = [group_pb2.OffsetCommit(topic=topic) for topic in topics]
        request = group_pb2.CommitOffsetsRequest(group="g", offsets=offsets)
        return [one.error for one in (await self.CommitOffsets(request)).results]


async def test_offsets_of_known_topics_do_not_wait_for_a_leader_of_the_metadata() -> None:
    """Before, a commit that also named a deleted topic failed for all of its partitions.

    The other topic may be there: only a leader could tell that it is not.
    """
    node = Learner()
    groups = Commits(node)
    assert await groups.errors("none", "events") == ["UNKNOWN_TOPIC_OR_PARTITION", ""]
    asked, node.controller_id = node.caught_up, 0
    assert await groups.errors("none", "events") == ["NOT_READY", ""] and node.caught_up == asked
    node.faults.append(NotReadyError("no leader"))
    with pytest.raises(NotReadyError):
        await groups.errors("none")
    assert RESULTS["NOT_READY"] is Error.COORDINATOR_LOAD_IN_PROGRESS


async def test_offsets_that_count_together_wait_for_a_leader_of_the_metadata() -> None:
    """A transaction's, and a member's: it would be told that the partition is another's."""
    node = Learner()
    groups = Commits(node)
    await groups._topic_ids([TopicPartition(topic="events")])
    node.controller_id = 0
    node.faults.append(NotReadyError("no leader"))
    with pytest.raises(NotReadyError):
        await groups._topic_ids([TopicPartition(topic=name) for name in ("events", "none")])


async def test_calls_about_missing_topics_share_a_command() -> None:
    """Else a caller in a loop fills the metadata's log: each command is an entry there."""
    node = Learner()
    members: Any = SimpleNamespace(classic=NOBODY, begun_classic=NOBODY)
    groups = GroupService(node, members, NOBODY, now_ms=lambda: node.now_ms)
    none = TopicPartition(topic="none")
    answers = await asyncio.gather(*(groups._topic_ids([none]) for _ in range(50)))
    assert answers == [[0]] * 50
    assert node.caught_up == 2, "the others came while the first one was under way"
    cluster = ClusterService(node)
    delete = cluster_pb2.DeleteTopicRequest(name="none")
    calls = (reason(cluster.DeleteTopic(delete)) for _ in range(50))
    assert set(await asyncio.gather(*calls)) == {"UNKNOWN_TOPIC_OR_PARTITION"}
    assert node.caught_up == 4


async def test_offsets_of_a_topic_that_the_node_has_not_heard_of_are_valid() -> None:
    """Else a group would begin anew there, behind a new leader of its offsets."""
    node = Learner()
    members: Any = SimpleNamespace(classic=NOBODY, begun_classic=NOBODY)
    groups = GroupService(node, members, NOBODY, now_ms=lambda: node.now_ms)
    newest: Any = SimpleNamespace(topic_id=node.metadata.tables.next_topic_id)
    assert groups._valid(("events", 0), newest) is newest
    await node.propose_metadata(meta.MetadataCommand(), 1.0)
    assert groups._valid(("events", 0), newest) is newest
    delete = meta.MetadataCommand(delete_topic=meta.DeleteTopic(name="events"))
    assert not node.apply(delete).error
    assert groups._valid(("events", 0), newest) is None
