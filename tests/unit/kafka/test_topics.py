"""Topics that clients ask for, also in the first second of a new cluster, and producer ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.access.gate import Gate
from cluster.errors import ProposalTimeoutError
from cluster.features import CLUSTER_VERSIONS, FEATURES
from cluster.kafka.configs import Configs
from cluster.kafka.errors import Error
from cluster.kafka.messages import (
    ALTER_CONFIGS,
    CREATE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    OtherAlterableConfig,
    OtherAlterConfigsResource,
)
from cluster.kafka.needs import Rights
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.producers import Producers
from cluster.kafka.sent import Sent
from cluster.kafka.topics import Topics
from cluster.kafka.versions import Head
from cluster.security.caller import RULES_VERSION, Caller
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.requests import Deadline
from cluster.v1 import metadata_pb2 as meta
from tests.unit.kafka.test_logs import ANYBODY
from tests.unit.small_node import Node, registered

HEAD = Head(CREATE_TOPICS, 4, 1, "", True)


def finalize(node: Node) -> None:
    newest = meta.FinalizeUpgrade(version=CLUSTER_VERSIONS.newest, features=sorted(FEATURES))
    assert not node.apply(meta.MetadataCommand(finalize_upgrade=newest)).error


def finalized() -> Node:
    node = registered()
    finalize(node)
    return node


async def test_a_client_asks_again_while_the_cluster_is_being_founded() -> None:
    """After UNSUPPORTED_VERSION librdkafka gives a topic up, and Java its producer."""
    node = registered()
    service = ProducerService(node, now_ms=lambda: node.now_ms, new_nonce=node.new_nonce)
    nobody: Any = None  # no transaction begins
    producers = Producers(service, OpenTransactions(node, SimpleNamespace(all_runs=nobody), nobody))
    for name in (None, "billing"):
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        answer = await producers.init(ANYBODY, Head(INIT_PRODUCER_ID, 4, 1, "", True), request)
        assert answer.error_code is Error.COORDINATOR_LOAD_IN_PROGRESS
    topics = Topics(ClusterService(node))
    assert await create_default(topics, node) is Error.LEADER_NOT_AVAILABLE
    finalize(node)
    node.proposal_error = ProposalTimeoutError("no leader of the metadata")
    assert await create_default(topics, node) is Error.LEADER_NOT_AVAILABLE
    node.proposal_error = None
    assert await create_default(topics, node) is Error.NONE


async def create_default(topics: Topics, node: Node) -> Error:
    return await topics.create_default(ANYBODY, "events", Deadline(0, node))


def by_hand(*nodes: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(number, one) for number, one in enumerate(nodes)]


async def test_partitions_lie_where_the_client_says() -> None:
    node = finalized()
    topics = Topics(ClusterService(node))

    async def create(name: str, *nodes: list[int], partitions: int = -1) -> int:
        topic = CreatableTopic(name, partitions, -1, by_hand(*nodes))
        answer = await topics.create(ANYBODY, HEAD, CreateTopicsRequest([topic], 5000))
        return answer.topics[0].error_code

    async def grow(count: int, *nodes: list[int]) -> int:
        added = [CreatePartitionsAssignment(one) for one in nodes]
        topic = CreatePartitionsTopic("events", count, added)
        request = CreatePartitionsRequest([topic], 5000)
        answer = await topics.create_partitions(ANYBODY, HEAD, request)
        return answer.results[0].error_code

    def placed() -> list[tuple[int, ...]]:
        topic = node.metadata.topic("events")
        return [] if topic is None else [one.replicas for one in topic.partitions]

    wrong = Error.INVALID_REPLICA_ASSIGNMENT
    assert await create("events", [1, 1], [2, 3]) == wrong
    assert await create("events", [1, 2], [3]) == wrong
    assert await create("events", [1, 4]) == wrong
    assert await create("events", [1, 2], partitions=1) == Error.INVALID_REQUEST
    assert not placed()
    assert await create("events", [2, 1], [3, 2]) == Error.NONE
    assert await grow(4, [1, 3]) == wrong
    assert await grow(3, [1]) == wrong
    assert await grow(3, [1, 3]) == Error.NONE
    assert placed() == [(2, 1), (3, 2), (1, 3)]
    missing = [CreatableReplicaAssignment(1, [1])]
    request = CreateTopicsRequest([CreatableTopic("later", -1, -1, missing)], 5000)
    assert (await topics.create(ANYBODY, HEAD, request)).topics[0].error_code == wrong


async def test_a_default_keeps_to_the_clusters_limit() -> None:
    """AlterConfigs names all settings: each change of such a cluster's topics was refused."""
    node = Node("--max-batch-bytes", "1000000")
    node.register(1, 2, 3)
    finalize(node)
    assert await create_default(Topics(ClusterService(node)), node) is Error.NONE
    configs = Configs(ClusterService(node))

    def settings() -> tuple[int, int]:
        topic = node.metadata.topic("events")
        assert topic is not None
        return topic.settings.max_batch_bytes, topic.settings.retention_ms

    async def set_all(*given: AlterableConfig) -> int:
        request = AlterConfigsRequest([AlterConfigsResource(2, "events", [*given])], False)
        answer = await configs.alter(ANYBODY, Head(ALTER_CONFIGS, 2, 1, "", True), request)
        return answer.responses[0].error_code

    small = AlterableConfig("max.message.bytes", "5000")
    assert await set_all(small) == Error.NONE and settings()[0] == 5000
    assert await set_all(AlterableConfig("retention.ms", "60000")) == Error.NONE
    assert settings() == (1_000_000, 60_000)
    assert await set_all(small) == Error.NONE
    default = OtherAlterConfigsResource(2, "events", [OtherAlterableConfig(small.name, 1, None)])
    answer = await configs.alter_some(
        ANYBODY,
        Head(INCREMENTAL_ALTER_CONFIGS, 1, 1, "", True),
        IncrementalAlterConfigsRequest([default], False),
    )
    assert answer.responses[0].error_code == Error.NONE and settings()[0] == 1_000_000


async def test_a_lease_by_name_says_by_which_rules_its_caller_was_let_in() -> None:
    """As LeaseProducer does: a right that is revoked meanwhile takes nobody's name over."""
    node, versions = finalized(), []

    async def propose(command: meta.MetadataCommand, timeout: float) -> meta.MetadataResult:
        versions.append(RULES_VERSION.get())
        result: meta.MetadataResult = await Node.propose_metadata(node, command, timeout)
        return result

    node.propose_metadata = propose  # type: ignore[method-assign]
    service = ProducerService(node, now_ms=lambda: node.now_ms, new_nonce=node.new_nonce)
    coordination: Any = SimpleNamespace(all_runs=None)
    producers = Producers(service, OpenTransactions(node, coordination, node.new_nonce))
    rights = Rights(Gate(None, None, None, rules_version=lambda: 7), Caller(), Sent(1))
    request = InitProducerIdRequest(transactional_id="billing", transaction_timeout_ms=1000)
    answer = await producers.init(rights, Head(INIT_PRODUCER_ID, 4, 1, "", True), request)
    assert answer.error_code == Error.NONE and versions == [7]
