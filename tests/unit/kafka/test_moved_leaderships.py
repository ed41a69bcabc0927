"""Calls that meet a moving leadership: each client must get an error that its library repeats.

A per-topic error ends a change in librdkafka and sarama, but for NOT_CONTROLLER in sarama. A
producer without a transactional id has no coordinator to look for.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.consensus.proposals import Abandoned, Done
from cluster.errors import ClusterError, NotLeaderError, NotReadyError, ProposalTimeoutError
from cluster.kafka import needs
from cluster.kafka.configs import Configs
from cluster.kafka.errors import Error
from cluster.kafka.group_admin import GroupAdmin
from cluster.kafka.groups import ClassicMembers
from cluster.kafka.messages import (
    DELETE_GROUPS,
    DESCRIBE_CONFIGS,
    DESCRIBE_TRANSACTIONS,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeTransactionsRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    OtherAlterableConfig,
    OtherAlterConfigsResource,
)
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.producers import Producers
from cluster.kafka.topics import Topics
from cluster.kafka.transactions import TransactionCalls
from cluster.kafka.versions import Head
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.errors import to_public
from cluster.services.groups.service import GroupService
from cluster.v1 import metadata_pb2 as meta
from oncelog.errors import OncelogError, StorageFullError
from oncelog.v1 import cluster_pb2, group_pb2
from tests.unit.kafka.test_logs import ANYBODY
from tests.unit.kafka.test_topics import HEAD, create_default, finalize
from tests.unit.small_node import Node

NOBODY: Any = None


class Behind(Node):
    """A node whose copy lacks commands of other nodes, and that fails some proposals."""

    def __init__(self) -> None:
        super().__init__()
        self.register(1, 2, 3)
        finalize(self)
        self.elsewhere: list[meta.MetadataCommand] = []
        self.faults: deque[Exception] = deque()

    async def propose_metadata(
        self, command: meta.MetadataCommand, timeout: float
    ) -> meta.MetadataResult:
        if self.faults:
            raise self.faults.popleft()
        for earlier in self.elsewhere:
            assert not self.apply(earlier).error
        self.elsewhere.clear()
        result: meta.MetadataResult = await super().propose_metadata(command, timeout)
        return result


async def create(node: Node, name: str = "events") -> int:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 3)], 5000)
    answer = await Topics(ClusterService(node)).create(ANYBODY, HEAD, request)
    return answer.topics[0].error_code


async def delete(node: Node, name: str = "events") -> int:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
    return (
        (await Topics(ClusterService(node)).delete(ANYBODY, HEAD, request)).responses[0].error_code
    )


async def grow(node: Node) -> int:
    request = CreatePartitionsRequest([CreatePartitionsTopic("events", 5, None)], 5000, False)
    answer = await Topics(ClusterService(node)).create_partitions(ANYBODY, HEAD, request)
    return answer.results[0].error_code


async def alter(node: Node) -> int:
    changes = [OtherAlterableConfig("retention.ms", 0, "60000")]
    request = IncrementalAlterConfigsRequest(
        [OtherAlterConfigsResource(2, "events", changes)], False
    )
    head = Head(INCREMENTAL_ALTER_CONFIGS, 1, 1, "", True)
    answer = await Configs(ClusterService(node)).alter_some(ANYBODY, head, request)
    return answer.responses[0].error_code


@pytest.mark.parametrize("change", [create, delete, grow, alter])
async def test_a_change_waits_until_the_node_is_ready(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "RETRY_WAIT", 0.001)
    node = Behind()
    if change is not create:
        assert not await create(node)
    node.faults.extend(NotReadyError("the metadata group has no leader") for _ in range(3))
    assert await change(node) == Error.NONE
    assert not node.faults


async def test_a_change_that_is_never_ready_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three nodes are not heard: no leader is there for the topic."""
    monkeypatch.setattr(needs, "RETRY_WAIT", 10.0)  # no time for a second attempt
    node = Behind()
    node.dead = {2, 3}
    assert await create(node) == Error.NOT_CONTROLLER


@pytest.mark.parametrize("change", [delete, grow, alter])
async def test_a_topic_that_another_node_created_is_there(change: Any) -> None:
    """A client changes it at another node than it created it at."""
    other, node = Behind(), Behind()
    command = ClusterService(other).create_command(
        cluster_pb2.CreateTopicRequest(name="events", partitions=1)
    )
    node.elsewhere.append(meta.MetadataCommand(create_topic=command))
    assert await change(node) == Error.NONE
    assert await delete(Behind()) == Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_another_node_deleted_can_be_created_again() -> None:
    node = Behind()
    assert not await create(node)
    node.elsewhere.append(meta.MetadataCommand(delete_topic=meta.DeleteTopic(name="events")))
    assert await create(node) == Error.NONE
    assert await create(node) == Error.TOPIC_ALREADY_EXISTS


async def test_settings_of_a_topic_are_not_told_as_gone_by_a_node_that_may_be_behind() -> None:
    node = Behind()
    head = Head(DESCRIBE_CONFIGS, 4, 1, "", True)
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "events", None)])
    configs = Configs(ClusterService(node))
    for node.controller_id, number in (
        (0, Error.LEADER_NOT_AVAILABLE),
        (1, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        answer = await configs.describe(ANYBODY, head, request)
        assert answer.results[0].error_code == number


async def test_a_topic_that_a_metadata_request_creates_comes_later() -> None:
    node = Behind()
    node.faults.append(NotReadyError("the metadata group has no leader"))
    topics = Topics(ClusterService(node))
    assert await create_default(topics, node) is Error.LEADER_NOT_AVAILABLE
    assert await create_default(topics, node) is Error.NONE


@pytest.mark.parametrize(
    "fault",
    [NotReadyError("x"), NotLeaderError("x"), ProposalTimeoutError("x"), StorageFullError("x")],
)
async def test_a_producer_without_a_name_asks_for_its_id_again(
    fault: ClusterError | OncelogError,
) -> None:
    node = Behind()
    node.faults.append(fault)
    service = ProducerService(node, now_ms=lambda: node.now_ms, new_nonce=node.new_nonce)
    open_ones = OpenTransactions(node, SimpleNamespace(all_runs=NOBODY), node.new_nonce)
    producers = Producers(service, open_ones)
    head = Head(INIT_PRODUCER_ID, 4, 1, "", True)
    request = InitProducerIdRequest(None, 60_000)
    answer = await producers.init(ANYBODY, head, request)
    assert answer.error_code is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert not (await producers.init(ANYBODY, head, request)).error_code


@pytest.mark.parametrize(
    ("fault", "number"),
    [(NotReadyError("x"), Error.NONE), (NotLeaderError("x"), Error.NOT_COORDINATOR)],
)
async def test_a_heartbeat_at_a_leader_that_has_just_begun_is_taken(
    fault: ClusterError, number: Error
) -> None:
    async def refused(group: str, caller: object) -> str:
        raise fault

    calls: Any = SimpleNamespace(heartbeat=refused)
    head = Head(HEARTBEAT, 4, 1, "", True)
    answer = await ClassicMembers(calls).heartbeat(ANYBODY, head, HeartbeatRequest("g", 1, "m"))
    assert answer.error_code is number


async def test_groups_are_not_listed_as_gone_by_a_leader_that_has_just_begun() -> None:
    node = Behind()
    members: Any = SimpleNamespace(classic=NOBODY, begun_classic=NOBODY)
    groups = GroupService(node, members, NOBODY, now_ms=lambda: node.now_ms)
    offsets = await groups._offsets_topic()
    for number, partition in enumerate(offsets.partitions):
        node.leaders[partition.group_id] = 1 if number == 3 else 2
    last = offsets.partitions[3].group_id
    replica: Any = SimpleNamespace(
        closed=False, group=SimpleNamespace(is_leader=True, is_ready=False)
    )
    node.replicas[last] = replica
    head = Head(LIST_GROUPS, 4, 1, "", True)
    answer = await GroupAdmin(groups).list(ANYBODY, head, ListGroupsRequest())
    assert answer.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    node.leaders[last] = 3
    assert not (await GroupAdmin(groups).list(ANYBODY, head, ListGroupsRequest())).error_code


class Deposed:
    """A leader's replica that is deposed once it has taken a command. lost: it never commits."""

    def __init__(self, *, lost: bool) -> None:
        self.closed = False
        self.group = SimpleNamespace(is_leader=True, is_ready=True)
        self._outcome = Abandoned(2, "no longer the leader", lost=lost)

    def propose(self, data: bytes, done: Done) -> None:
        done(self._outcome)


@pytest.mark.parametrize("lost", [True, False])
async def test_a_command_of_a_deposed_leader_is_told_as_not_done_only_if_it_is_lost(
    lost: bool,
) -> None:
    node = Behind()
    members: Any = SimpleNamespace(classic=lambda replica, group: None, begun_classic=NOBODY)
    groups = GroupService(node, members, NOBODY, now_ms=lambda: node.now_ms)
    for partition in (await groups._offsets_topic()).partitions:
        node.leaders[partition.group_id] = 1
        node.replicas[partition.group_id] = Deposed(lost=lost)  # type: ignore[assignment]
    assert not await create(node)

    head = Head(DELETE_GROUPS, 2, 1, "", True)
    kafka = await GroupAdmin(groups).delete(ANYBODY, head, DeleteGroupsRequest(["g"]))
    kinds = Error.NOT_COORDINATOR if lost else Error.REQUEST_TIMED_OUT
    assert kafka.results[0].error_code == kinds

    commit = group_pb2.CommitOffsetsRequest(
        group="g", offsets=[group_pb2.OffsetCommit(topic="events", offset=3)]
    )
    for ours in (
        groups.DeleteGroup(group_pb2.DeleteGroupRequest(group="g")),
        groups.delete_offsets("g", [("events", 0)]),
        groups.CommitOffsets(commit),
    ):
        with pytest.raises(ClusterError) as caught:
            await ours
        public = to_public(caught.value, {})
        assert public.reason == ("NOT_LEADER" if lost else "REQUEST_TIMEOUT")


async def test_a_transaction_is_not_described_as_gone_by_a_node_that_is_behind() -> None:
    node = Behind()
    open_ones = OpenTransactions(node, SimpleNamespace(all_runs=NOBODY), node.new_nonce)
    calls = TransactionCalls(node, open_ones, NOBODY, NOBODY)
    head = Head(DESCRIBE_TRANSACTIONS, 0, 1, "", True)
    lease = meta.LeaseName(name="billing", nonce=7, transaction_timeout_ms=60_000)

    async def described() -> int:
        request = DescribeTransactionsRequest(["billing"])
        return (await calls.describe(ANYBODY, head, request)).transaction_states[0].error_code

    node.faults.append(NotReadyError("the metadata group has no leader"))
    assert await described() == Error.COORDINATOR_LOAD_IN_PROGRESS
    assert await described() == Error.TRANSACTIONAL_ID_NOT_FOUND
    node.elsewhere.append(meta.MetadataCommand(lease_name=lease))
    assert await described() == Error.NONE
    node.controller_id = 0
    listed = await calls.list(ANYBODY, head, ListTransactionsRequest())
    assert listed.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
