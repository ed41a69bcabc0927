"""Transactions, sinks and administration by the nodes' own services over the simulated cluster.

    gRPC --call--> Stage: a lie, or none --> cluster.services --ask--> Node, Transactions

The tables name each call as cases do, with the facts by which a lie chooses its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from secrets import randbits
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message

from cluster.metadata import upgrade
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.admin.security_service import SecurityService
from cluster.services.context import NodeContext
from cluster.services.transactions.permissions import TransactionRights
from cluster.services.transactions.service import TransactionService
from cluster.services.transactions.sink_service import SinkService
from cluster.v1.metadata_pb2 import MetadataCommand, MetadataResult
from conformance.broker import services
from conformance.broker.foundings import NodeFounding
from conformance.broker.lies import Lie
from oncelog.v1 import (
    cluster_pb2_grpc,
    producer_pb2_grpc,
    security_pb2_grpc,
    sink_pb2_grpc,
    transaction_pb2_grpc,
)
from oncelog.v1.cluster_pb2 import DescribeTopicsRequest

if TYPE_CHECKING:
    from conformance.broker.stage import Stage

MESSAGE_BYTES = 64 * 1024 * 1024

T = TypeVar("T")
Facts = Callable[[Any], dict[str, Any]]
Call = tuple[str, Facts]  # its name in a case, and its facts


class Node:
    """Stand-in for the node that these services need."""

    def __init__(self, stage: Stage, founding: NodeFounding) -> None:
        self._cluster = stage.cluster
        self._node_id = stage.node_id
        self._founding = founding
        self.metadata = stage.cluster.metadata
        self.config = SimpleNamespace(
            node_id=stage.node_id,
            cluster_id="conformance",
            nodes=(),
            default_partitions=1,
            wanted_replicas=3,
            max_batch_bytes=MESSAGE_BYTES,
            max_message_bytes=MESSAGE_BYTES,
            fetch_max_bytes=MESSAGE_BYTES,
            request_timeout_ms=30_000,
        )
        self.sizes = self.upgrades = self
        self.lags: Mapping[tuple[int, int], int] = {}
        self.controller_id = 1
        self.metrics = SimpleNamespace(leases=0, transaction_commit=SimpleNamespace(observe=float))

    @property
    def founding(self) -> int:
        return self._founding.number

    async def ask(self) -> Mapping[int, Mapping[int, int]]:
        """Sizes of replicas: none, so nothing is moved."""
        return {}

    async def propose_metadata(self, command: MetadataCommand, timeout: float) -> MetadataResult:
        what = command.WhichOneof("command")
        if what is None:  # the caller waits for earlier commands, which are all applied
            return MetadataResult()
        result = self._cluster.apply(**{what: getattr(command, what)})
        self._cluster.follow()
        return result

    async def next_producer_id(self) -> int:
        return self._cluster.new_id()

    async def wait_for_leaders(self, group_ids: list[int], timeout: float) -> bool:
        return True

    def plan(self) -> upgrade.Plan:
        return upgrade.plan(self.metadata.finalized, {})

    def release_of(self, node_id: int) -> None:
        """Names no release: all nodes are this program."""

    def clock_disagrees(self, node_id: int) -> bool:
        return False

    insecure = clock_disagrees

    async def listen_to_peers(self) -> None:
        """Does nothing: peers always listen here."""

    def alive(self, node_id: int) -> bool:
        return node_id in self._cluster.addresses and node_id not in self._cluster.stopped

    def leader_of(self, group_id: int) -> tuple[int, int]:
        topic, number = self._place(group_id)
        found = self._cluster.partitions[topic, number]
        return found.leader_id, found.term

    def partition(self, group_id: int) -> object:
        found = self._cluster.partitions[self._place(group_id)]
        return SimpleNamespace(
            log_start_offset=found.log_start, high_watermark=found.high_watermark(self._node_id)
        )

    def waiting(self, group_id: int) -> str:
        return ""

    def _place(self, group_id: int) -> tuple[str, int]:
        place = self.metadata.partition(group_id)
        assert place is not None, "only what is there is asked for"
        return place[0].name, place[1]


def answering(servicer: T, stage: Stage, service: object, calls: Mapping[str, Call]) -> T:
    """Has a gRPC servicer answer these methods: by a lie, or as the node's service does."""

    def method(name: str, call: str, facts: Facts) -> Any:
        async def answered(request: Any, context: Any) -> Any:
            async def truth(lie: Lie | None) -> Any:
                answer = await getattr(service, name)(request)
                if lie is not None:
                    lie.bend(answer)
                return answer

            return await stage.answer(call, facts(request), request, context, truth)

        return answered

    for name, (call, facts) in calls.items():
        setattr(servicer, name, method(name, call, facts))
    return servicer


def fields(*names: str, **facts: Callable[[Any], object]) -> Facts:
    """Makes the facts of a request: fields by name, and those that a function gives."""

    def of(request: Any) -> dict[str, Any]:
        named = {name: getattr(request, name) for name in names}
        return named | {name: fact(request) for name, fact in facts.items()}

    return of


def facts_of(message: Message) -> dict[str, Any]:
    """All fields in a case's notation: enums by name, messages as tables."""
    return {field.name: _fact(field, getattr(message, field.name)) for field in _fields(message)}


def _fields(message: Message) -> Any:
    return message.DESCRIPTOR.fields


def _fact(field: Any, value: Any) -> Any:
    match value:
        case str() | bytes() | bool() | float():
            return value
        case int():
            return field.enum_type.values_by_number[value].name if field.enum_type else value
        case Message():
            return facts_of(value)
    return [_fact(field, one) for one in value]


BY_FIELD: Facts = facts_of
PRODUCERS: dict[str, Call] = {
    "LeaseProducer": (
        "lease",
        fields(
            "nonce",
            "held_epoch",
            name=attrgetter("producer_name"),
            held=lambda r: bool(r.held_producer_id),
        ),
    ),
    "FenceProducer": ("fence", fields("nonce", name=attrgetter("producer_name"))),
}
SECURITY: dict[str, Call] = {
    "AlterPermissions": ("alter_permissions", BY_FIELD),
    "ListPermissions": ("list_permissions", BY_FIELD),
    "CheckPermission": ("check_permission", BY_FIELD),
    "AlterQuotas": ("alter_quotas", BY_FIELD),
    "ListQuotas": ("list_quotas", BY_FIELD),
}
CLUSTER: dict[str, Call] = {
    "DescribeCluster": ("describe_cluster", fields()),
    "CreateTopic": ("create_topic", fields(topic=attrgetter("name"))),
    "ResizeTopic": ("resize_topic", fields(topic=attrgetter("name"))),
    "DeleteTopic": ("delete_topic", fields(topic=attrgetter("name"))),
    "ReassignPartition": ("reassign_partition", BY_FIELD),
    "ChangeNode": ("change_node", BY_FIELD),
    "ListNodes": ("list_nodes", BY_FIELD),
    "BalanceCluster": ("balance", BY_FIELD),
}
TRANSACTIONS: dict[str, Call] = {
    "BeginTransaction": (
        "begin",
        fields("nonce", name=attrgetter("producer_name"), token=lambda r: bool(r.lease_token)),
    ),
    "KeepTransactionsAlive": (
        "keep_alive",
        fields(transactions=lambda r: list(r.transaction_ids)),
    ),
    "CommitTransaction": (
        "commit_transaction",
        fields(
            transaction=attrgetter("transaction_id"),
            runs=lambda r: len(r.runs),
            offsets=lambda r: sum(one.offset_count for one in r.offsets),
            records=lambda r: sum(run.record_count for run in r.runs),
        ),
    ),
    "AbortTransaction": ("abort_transaction", fields(transaction=attrgetter("transaction_id"))),
    "ListTransactions": ("list_transactions", fields()),
    "DescribeTransaction": ("describe_transaction", fields()),
}
SINKS: dict[str, Call] = {
    "DrawTicket": ("draw_ticket", fields("sink", "jobs")),
    "BeginBatch": (
        "begin_batch",
        fields("sink", "query", "ticket", "batch", reset=lambda r: bool(r.reset)),
    ),
    "EndBatch": (
        "end_batch",
        fields(
            "batch",
            transaction=attrgetter("transaction_id"),
            winners=lambda r: len(r.winners),
            records=attrgetter("record_count"),
        ),
    ),
    "AbortBatch": ("abort_batch", fields(transaction=attrgetter("transaction_id"))),
    "ListSinks": ("list_sinks", fields("after", "limit")),
    "DescribeSink": ("describe_sink", fields("sink")),
    "ResetSink": ("reset_sink", fields("sink")),
}


def add_services(stage: Stage, founding: NodeFounding, server: grpc.aio.Server) -> None:
    """Adds the services that the nodes' own code answers."""
    node = cast(NodeContext, Node(stage, founding))
    ours, cluster = stage.cluster.transactions, stage.cluster
    rights = TransactionRights(node, None)
    transactions = TransactionService(node, ours, rights, now_ms=lambda: cluster.now_ms)
    transaction_pb2_grpc.add_TransactionServiceServicer_to_server(
        answering(
            transaction_pb2_grpc.TransactionServiceServicer(), stage, transactions, TRANSACTIONS
        ),
        server,
    )
    sinks = SinkService(node, ours)
    sink_pb2_grpc.add_SinkServiceServicer_to_server(
        answering(sink_pb2_grpc.SinkServiceServicer(), stage, sinks, SINKS), server
    )
    security = SecurityService(node, None)
    security_pb2_grpc.add_SecurityServiceServicer_to_server(
        answering(security_pb2_grpc.SecurityServiceServicer(), stage, security, SECURITY), server
    )
    producers = ProducerService(
        node, now_ms=lambda: cluster.now_ms, new_nonce=partial(randbits, 63)
    )
    producer_pb2_grpc.add_ProducerServiceServicer_to_server(
        answering(services.ProducerService(stage), stage, producers, PRODUCERS), server
    )

    def of_topics(request: DescribeTopicsRequest) -> dict[str, Any]:
        nobody = (0, *cluster.stopped)
        leaderless = sum(one.leader_id in nobody for one in cluster.partitions.values())
        count = cluster.metadata.partition_count
        return {"names": list(request.names), "partitions": count, "leaderless": leaderless}

    calls = CLUSTER | {"DescribeTopics": ("describe_topics", of_topics)}
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(
        answering(cluster_pb2_grpc.ClusterServiceServicer(), stage, ClusterService(node), calls),
        server,
    )
