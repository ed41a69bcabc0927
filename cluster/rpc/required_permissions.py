"""Table of the rights that each RPC needs. `tests/test_house.py` fails on a missing RPC.

    Guarding --NEEDS[method](request)--> needs --> Authorizer.missing

The names to check are those in the request's body. An RPC that lists all of a kind either needs
the whole kind, or its answer is filtered by the right to describe (`ALLOWED`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cluster.security.permissions import ALL, Need
from oncelog.v1.cluster_pb2 import BALANCE_ACTION_DESCRIBE, BALANCE_ACTION_PLAN

Needs = Callable[[Any], Iterable[Need]]
MayDescribe = Callable[[Need], bool]
OURS = "/oncelog.v1."
# These answers reveal nothing of the cluster: anyone who can connect may have them.
OPEN = frozenset(
    {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/List"}
)


def _cluster(operation: str) -> Needs:
    return lambda _: (Need(operation, "cluster"),)


def _topic(operation: str, field: str) -> Needs:
    return lambda request: (Need(operation, "topic", getattr(request, field)),)


def _topics(operation: str, field: str) -> Needs:
    """Return the needs of a field whose elements name a topic each; each topic counts once."""

    def needs(request: Any) -> Iterable[Need]:
        topics = dict.fromkeys(one.topic for one in getattr(request, field))
        return [Need(operation, "topic", topic) for topic in topics]

    return needs


def _produce(request: Any) -> Iterable[Need]:
    topics = dict.fromkeys(batch.header.topic for batch in request.batches)
    return [Need("write", "topic", topic) for topic in topics]


def _lease(request: Any) -> Iterable[Need]:
    yield from _topics("write", "partitions")(request)
    if request.producer_name:
        yield Need("write", "producer", request.producer_name)


def _commit(request: Any) -> Iterable[Need]:
    yield Need("read", "group", request.group)
    yield from _topics("read", "offsets")(request)


def _fetch_offsets(request: Any) -> Iterable[Need]:
    """Require `read` of a consumer, which may end the group's transactions."""
    operation = "describe" if request.ignore_transactions else "read"
    yield Need(operation, "group", request.group)
    yield from _topics("describe", "partitions")(request)


def _join(request: Any) -> Iterable[Need]:
    """Return the needs of each message of a member. A pattern of names may fit any topic."""
    hello = request.hello
    if hello.group:
        yield Need("read", "group", hello.group)
    for name in dict.fromkeys(hello.topics):
        yield Need("read", "topic", ALL if name.startswith("^") else name)
    held = (*hello.owned, *request.owned.partitions)
    for name in dict.fromkeys(partition.topic for partition in held):
        yield Need("read", "topic", name)


def _heartbeat(request: Any) -> Iterable[Need]:
    yield Need("read", "group", request.group)
    yield from _join(request.request)


def _group(operation: str) -> Needs:
    return lambda request: (Need(operation, "group", request.group),)


def _describe_topics(request: Any) -> Iterable[Need]:
    return [Need("describe", "topic", name) for name in dict.fromkeys(request.names)]


def _sink(operation: str) -> Needs:
    return lambda request: (Need(operation, "sink", request.sink),)


def _end_batch(request: Any) -> Iterable[Need]:
    yield Need("write", "sink", request.sink)
    yield from _topics("write", "winners")(request)


def _begin(request: Any) -> Iterable[Need]:
    yield Need("write", "producer", request.producer_name)
    yield from _topics("write", "partitions")(request)


def _balance(request: Any) -> Iterable[Need]:
    looks = request.action in (BALANCE_ACTION_DESCRIBE, BALANCE_ACTION_PLAN)
    return (Need("describe" if looks else "alter", "cluster"),)


def _by_number(request: Any) -> Iterable[Need]:
    """Return nothing: a number does not reveal its owner. transaction_rights.py looks that up."""
    return ()


def _by_resource(request: Any) -> Iterable[Need]:
    """Return nothing: the service shows each event to those who may describe its resource."""
    return ()


NEEDS: Mapping[str, Needs] = {
    "/oncelog.v1.LogService/Produce": _produce,
    "/oncelog.v1.LogService/ProduceStream": _produce,
    "/oncelog.v1.LogService/Fetch": _topics("read", "partitions"),
    "/oncelog.v1.LogService/Subscribe": _topics("read", "partitions"),
    "/oncelog.v1.LogService/ListOffsets": _topics("describe", "queries"),
    "/oncelog.v1.LogService/ResolveSequence": _topic("write", "topic"),
    "/oncelog.v1.ClusterService/DescribeCluster": _cluster("describe"),
    "/oncelog.v1.ClusterService/CreateTopic": _topic("create", "name"),
    "/oncelog.v1.ClusterService/DeleteTopic": _topic("delete", "name"),
    "/oncelog.v1.ClusterService/AlterTopic": _topic("alter", "name"),
    "/oncelog.v1.ClusterService/ResizeTopic": _topic("alter", "name"),
    "/oncelog.v1.ClusterService/ReassignPartition": _topic("alter", "topic"),
    "/oncelog.v1.ClusterService/DescribeTopics": _describe_topics,
    "/oncelog.v1.ClusterService/TransferLeadership": lambda request: (
        Need("alter", "cluster"),
        Need("describe", "topic", request.topic),
    ),
    "/oncelog.v1.ClusterService/ChangeNode": _cluster("alter"),
    "/oncelog.v1.ClusterService/ListNodes": _cluster("describe"),
    "/oncelog.v1.ClusterService/BalanceCluster": _balance,
    "/oncelog.v1.ClusterService/FinalizeUpgrade": _cluster("alter"),
    "/oncelog.v1.ClusterService/SetClusterSetting": _cluster("alter"),
    "/oncelog.v1.ProducerService/LeaseProducer": _lease,
    "/oncelog.v1.ProducerService/OpenProducer": _topics("write", "partitions"),
    "/oncelog.v1.ProducerService/DescribeProducers": _topic("describe", "topic"),
    "/oncelog.v1.ProducerService/FenceProducer": lambda request: (
        Need("fence", "producer", request.producer_name),
    ),
    "/oncelog.v1.ProducerService/ListProducerNames": lambda _: (Need("describe", "producer", ALL),),
    "/oncelog.v1.TransactionService/BeginTransaction": _begin,
    "/oncelog.v1.TransactionService/KeepTransactionsAlive": _by_number,
    "/oncelog.v1.TransactionService/CommitTransaction": lambda request: (
        *_topics("write", "runs")(request),
        *_topics("write", "partitions")(request.begin_next),
        *(Need("read", "group", staged.group) for staged in request.offsets),
    ),
    # Only an operator aborts without naming a producer.
    "/oncelog.v1.TransactionService/AbortTransaction": lambda request: (
        _by_number(request) if request.producer_id else _cluster("alter")(request)
    ),
    "/oncelog.v1.TransactionService/ListTransactions": lambda request: (
        Need("describe", "producer", request.producer_name or ALL),
    ),
    "/oncelog.v1.TransactionService/DescribeTransaction": _by_number,
    "/oncelog.v1.SinkService/DrawTicket": _sink("write"),
    "/oncelog.v1.SinkService/BeginBatch": _sink("write"),
    "/oncelog.v1.SinkService/EndBatch": _end_batch,
    "/oncelog.v1.SinkService/AbortBatch": _sink("write"),
    "/oncelog.v1.SinkService/ListSinks": lambda _: (Need("describe", "sink", ALL),),
    "/oncelog.v1.SinkService/DescribeSink": _sink("describe"),
    "/oncelog.v1.SinkService/ResetSink": _sink("alter"),
    "/oncelog.v1.GroupService/CommitOffsets": _commit,
    "/oncelog.v1.GroupService/StageOffsets": _commit,
    "/oncelog.v1.GroupService/FetchOffsets": _fetch_offsets,
    "/oncelog.v1.GroupService/ListGroups": lambda _: (Need("describe", "group", ALL),),
    "/oncelog.v1.GroupService/DescribeGroup": _group("describe"),
    "/oncelog.v1.GroupService/DeleteGroup": _group("delete"),
    "/oncelog.v1.GroupService/JoinGroup": _join,
    "/oncelog.v1.GroupService/GroupHeartbeat": _heartbeat,
    "/oncelog.v1.SecurityService/AlterPermissions": _cluster("alter"),
    "/oncelog.v1.SecurityService/ListPermissions": _cluster("describe"),
    "/oncelog.v1.SecurityService/AlterQuotas": _cluster("alter"),
    "/oncelog.v1.SecurityService/ListQuotas": _cluster("describe"),
    "/oncelog.v1.SecurityService/CheckPermission": lambda request: (
        _cluster("describe")(request) if request.principal else ()
    ),
    "/oncelog.v1.ObserveService/ListEvents": _by_resource,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": _cluster("describe"),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _cluster("describe"),
}


def _describable_topics(answer: Any, may: MayDescribe) -> None:
    kept = [topic for topic in answer.topics if may(Need("describe", "topic", topic.name))]
    if len(kept) != len(answer.topics):
        kept = [type(topic).FromString(topic.SerializeToString()) for topic in kept]
        del answer.topics[:]
        answer.topics.extend(kept)


# Filters of answers that list things the request did not name.
ALLOWED: Mapping[str, Callable[[Any, MayDescribe], None]] = {
    "/oncelog.v1.ClusterService/DescribeTopics": _describable_topics,
}
