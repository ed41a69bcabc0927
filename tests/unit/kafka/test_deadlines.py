"""Requests over many topics or groups have one deadline each, at a node that gets no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.kafka.brokers import Brokers
from cluster.kafka.configs import Configs
from cluster.kafka.errors import Error
from cluster.kafka.group_admin import GroupAdmin
from cluster.kafka.messages import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_GROUPS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    OFFSET_FETCH,
    AlterConfigsRequest,
    AlterConfigsResource,
    Call,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OtherAlterConfigsResource,
)
from cluster.kafka.metadata import Metadata
from cluster.kafka.offsets import Offsets
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.topics import Topics
from cluster.kafka.transactions import TransactionCalls
from cluster.kafka.versions import Head
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.groups.service import GroupService
from cluster.v1 import metadata_pb2 as meta
from tests.unit.kafka.test_logs import ANYBODY
from tests.unit.kafka.test_topics import finalize
from tests.unit.small_node import Node

NOBODY: Any = None
NAMES = ["a", "b", "c"]
TIMEOUT_MS = 400  # a busy machine begins the first wait within it
# The clients repeat a request after each of them, but not a change after OTHERS: it may be made.
ERRORS = {
    METADATA: Error.LEADER_NOT_AVAILABLE,
    **dict.fromkeys(
        (DESCRIBE_GROUPS, FIND_COORDINATOR, OFFSET_FETCH, DESCRIBE_TRANSACTIONS),
        Error.COORDINATOR_NOT_AVAILABLE,
    ),
}
OTHERS = Error.REQUEST_TIMED_OUT
CHANGES = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ALTER_CONFIGS,
           INCREMENTAL_ALTER_CONFIGS, DELETE_GROUPS)  # fmt: skip


class Stuck(Node):
    """A node whose proposals get no answer. unsettled: so many of them."""

    def __init__(self) -> None:
        port = ("--kafka-listen", "127.0.0.1:9092", "--kafka-auto-create")
        super().__init__("--request-timeout-ms", str(TIMEOUT_MS), *port)
        self.register(1, 2, 3)
        finalize(self)
        self.unsettled = 0

    async def propose_metadata(
        self, command: meta.MetadataCommand, timeout: float
    ) -> meta.MetadataResult:
        self.unsettled += 1
        await asyncio.Event().wait()
        raise AssertionError("never set")


def calls(node: Stuck) -> dict[Call, tuple[Any, Callable[[Sequence[str]], object]]]:
    """The handler of each call that names many things, and a request that names these."""
    cluster, brokers = ClusterService(node), Brokers(node)
    topics, configs = Topics(cluster), Configs(cluster)
    members: Any = SimpleNamespace(classic=NOBODY, begun_classic=NOBODY)
    groups = GroupService(node, members, NOBODY, now_ms=lambda: node.now_ms)
    admin, offsets = GroupAdmin(groups), Offsets(groups, brokers)
    open_ones = OpenTransactions(node, SimpleNamespace(all_runs=NOBODY), node.new_nonce)
    return {
        CREATE_TOPICS: (topics.create, lambda names: CreateTopicsRequest(
            [CreatableTopic(one, 1, 3) for one in names], TIMEOUT_MS)),
        DELETE_TOPICS: (topics.delete, lambda names: DeleteTopicsRequest(
            topic_names=list(names), timeout_ms=TIMEOUT_MS)),
        CREATE_PARTITIONS: (topics.create_partitions, lambda names: CreatePartitionsRequest(
            [CreatePartitionsTopic(one, 5, None) for one in names], TIMEOUT_MS, False)),
        ALTER_CONFIGS: (configs.alter, lambda names: AlterConfigsRequest(
            [AlterConfigsResource(2, one, []) for one in names], False)),
        INCREMENTAL_ALTER_CONFIGS: (configs.alter_some, lambda names: (
            IncrementalAlterConfigsRequest(
                [OtherAlterConfigsResource(2, one, []) for one in names], False))),
        METADATA: (Metadata(node, brokers, topics).metadata, lambda names: MetadataRequest(
            [MetadataRequestTopic(name=one) for one in names], True)),
        DESCRIBE_GROUPS: (admin.describe, lambda names: DescribeGroupsRequest(list(names))),
        DELETE_GROUPS: (admin.delete, lambda names: DeleteGroupsRequest(list(names))),
        FIND_COORDINATOR: (offsets.find, lambda names: FindCoordinatorRequest(
            key_type=0, coordinator_keys=list(names))),
        OFFSET_FETCH: (offsets.fetch, lambda names: OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(one, topics=None) for one in names])),
        DESCRIBE_TRANSACTIONS: (
            TransactionCalls(node, open_ones, groups, brokers).describe,
            lambda names: DescribeTransactionsRequest(list(names)),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("call", [*CHANGES, *ERRORS], ids=lambda call: call.name)
async def test_a_request_over_many_names_has_one_deadline(call: Call) -> None:
    """The first name takes all of its time, so nothing is begun for the others."""
    loop: Any = asyncio.get_running_loop()
    loop._clock_resolution = 0.01  # timers are early by up to a tick where the kernel's are coarse
    node = Stuck()
    handler, request = calls(node)[call]
    answer = await handler(ANYBODY, Head(call, call.newest, 1, "", True), request(NAMES))
    lists = [getattr(answer, name) for name in answer.__slots__]
    filled = [one for one in lists if isinstance(one, list) and one]
    (results,) = [one for one in filled if hasattr(one[0], "error_code")]
    assert [one.error_code for one in results] == [ERRORS.get(call, OTHERS)] * len(NAMES)
    assert node.unsettled == 1
