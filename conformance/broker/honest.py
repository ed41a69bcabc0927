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

from cluster.access.budget import Budget
from cluster.metadata import upgrade
from cluster.metrics.page import Metrics
from cluster.partition.replica import Partition
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.admin.security_service import SecurityService
from cluster.services.context import NodeContext
from cluster.services.fair_turns import Turns
from cluster.services.log.service import LogService
from cluster.services.newest_metadata import NewestMetadata
from cluster.services.transactions.permissions import TransactionRights
from cluster.services.transactions.service import TransactionService
from cluster.services.transactions.sink_service import SinkService
from cluster.v1.metadata_pb2 import MetadataCommand, MetadataResult
from conformance.broker.foundings import NodeFounding
from conformance.broker.groups import MemberStreams, OwnersGroups
from conformance.broker.lies import Lie
from conformance.broker.producing import Held, LogStreams
from oncelog.v1 import cluster_pb2_grpc as cluster_grpc
from oncelog.v1 import group_pb2_grpc as group_grpc
from oncelog.v1 import log_pb2_grpc as log_grpc
from oncelog.v1 import producer_pb2_grpc as producer_grpc
from oncelog.v1 import security_pb2_grpc as security_grpc
from oncelog.v1 import sink_pb2_grpc as sink_grpc
from oncelog.v1 import transaction_pb2_grpc as transaction_grpc
from oncelog.v1.cluster_pb2 import DescribeTopicsRequest
from oncelog.v1.log_pb2 import FetchResponse

if TYPE_CHECKING:
    from conformance.broker.stage import Stage

MESSAGE_BYTES = 64 * 1024 * 1024
PLENTY = 1 << 40

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
        self.memory = Budget(PLENTY, PLENTY)
        self.batches_under_way = Budget(PLENTY, PLENTY)
        self.turns = Turns()
        self.newest_metadata = NewestMetadata(self)
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
        self.metrics = Metrics()

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
        log = self._cluster.log_of(group_id)
        return (0, 0) if log is None else (log.leader_id, log.term)

    def partition(self, group_id: int) -> Partition | None:
        log = self._cluster.log_of(group_id)
        seat = None if log is None else log.seats.get(self._node_id)
        return None if seat is None else seat.replica

    def waiting(self, group_id: int) -> str:
        return ""


def answering(servicer: T, stage: Stage, service: object, calls: Mapping[str, Call]) -> T:
    """Has a gRPC servicer answer these methods: by a lie, or as the node's service does."""

    def method(name: str, call: str, facts: Facts) -> Any:
        async def answered(request: Any, context: Any) -> Any:
            async def truth(lie: Lie | None) -> Any:
                if lie is not None and lie.error:
                    return stage.refused(lie, request)
                answer = await getattr(service, name)(request)
                if isinstance(answer, bytes):
                    answer = FetchResponse.FromString(answer)
                if lie is not None and lie.cut_anew:
                    stage.cut_anew(lie, request, answer)
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
    "OpenProducer": ("open", fields("epoch", token=lambda r: bool(r.lease_token))),
    "DescribeProducers": ("describe_producers", fields()),
}
LOG: dict[str, Call] = {
    "Fetch": (
        "fetch",
        fields(
            "any_replica",
            "near",
            offset=lambda r: r.partitions[0].offset if r.partitions else -1,
            partitions=lambda r: len(r.partitions),
        ),
    ),
    "ListOffsets": ("list_offsets", fields("any_replica")),
    "ResolveSequence": ("resolve", fields("sequence", "epoch")),
}
OFFSETS: Facts = fields(
    "group", offsets=lambda r: len(r.offsets), member=lambda r: bool(r.member_id)
)
GROUPS: dict[str, Call] = {
    "CommitOffsets": (
        "commit_offsets",
        lambda r: OFFSETS(r) | {"ownership": r.offsets[0].ownership if r.offsets else 0},
    ),
    "StageOffsets": (
        "stage_offsets",
        lambda r: OFFSETS(r) | {"number": r.number, "transaction": r.transaction_id},
    ),
    "FetchOffsets": ("fetch_offsets", fields("group")),
    "DescribeGroup": ("describe_group", fields("group")),
    "DeleteGroup": ("delete_group", fields("group")),
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


def add_services(stage: Stage, founding: NodeFounding, held: Held, server: grpc.aio.Server) -> None:
    """Adds all services of a node; only the streams are not answered call by call."""
    node = cast(NodeContext, Node(stage, founding))
    ours, cluster = stage.cluster.transactions, stage.cluster
    rights = TransactionRights(node, None)
    log = LogService(node)
    producers = ProducerService(
        node, now_ms=lambda: cluster.now_ms, new_nonce=partial(randbits, 63)
    )
    transactions = TransactionService(node, ours, rights, now_ms=lambda: cluster.now_ms)

    def of_topics(request: DescribeTopicsRequest) -> dict[str, Any]:
        nobody = (0, *cluster.stopped)
        leaderless = sum(one.leader_id in nobody for one in cluster.partitions.values())
        count = cluster.metadata.partition_count
        return {"names": list(request.names), "partitions": count, "leaderless": leaderless}

    of_cluster = CLUSTER | {"DescribeTopics": ("describe_topics", of_topics)}
    added: tuple[tuple[Any, object, object, Mapping[str, Call]], ...] = (
        (log_grpc.add_LogServiceServicer_to_server, LogStreams(stage, log, held), log, LOG),
        (
            group_grpc.add_GroupServiceServicer_to_server,
            MemberStreams(stage),
            OwnersGroups(stage, node),
            GROUPS,
        ),
        (
            producer_grpc.add_ProducerServiceServicer_to_server,
            producer_grpc.ProducerServiceServicer(),
            producers,
            PRODUCERS,
        ),
        (
            cluster_grpc.add_ClusterServiceServicer_to_server,
            cluster_grpc.ClusterServiceServicer(),
            ClusterService(node),
            of_cluster,
        ),
        (
            transaction_grpc.add_TransactionServiceServicer_to_server,
            transaction_grpc.TransactionServiceServicer(),
            transactions,
            TRANSACTIONS,
        ),
        (
            sink_grpc.add_SinkServiceServicer_to_server,
            sink_grpc.SinkServiceServicer(),
            SinkService(node, ours),
            SINKS,
        ),
        (
            security_grpc.add_SecurityServiceServicer_to_server,
            security_grpc.SecurityServiceServicer(),
            SecurityService(node, None),
            SECURITY,
        ),
    )
    for add, servicer, service, calls in added:
        add(answering(servicer, stage, service, calls), server)
