"""Services that a node offers its clients, and the guards before them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import grpc

from cluster.metadata.state import MetadataState
from cluster.metrics.page import Metrics
from cluster.node.transactions.transactions import Transactions
from cluster.security.permissions import Permissions
from cluster.security.quotas import Quotas
from cluster.security.settings import Security
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.admin.security_service import SecurityService
from cluster.services.context import NodeContext
from cluster.services.groups.running_groups import GroupMembers
from cluster.services.groups.service import GroupService
from cluster.services.interceptors.authorization import Guarding
from cluster.services.log.service import LogService, add_log_service
from cluster.services.transactions.permissions import TransactionRights
from cluster.services.transactions.service import TransactionService
from cluster.services.transactions.sink_service import SinkService
from oncelog.v1 import (
    cluster_pb2_grpc,
    group_pb2_grpc,
    producer_pb2_grpc,
    security_pb2_grpc,
    sink_pb2_grpc,
    transaction_pb2_grpc,
)


def guards(
    security: Security, metadata: Callable[[], MetadataState], metrics: Metrics
) -> tuple[Permissions | None, Guarding | None]:
    """Return the permissions, and the guard that checks each call; None: not needed."""
    permissions = None
    superusers = security.superusers or ()
    if security.superusers is not None:
        permissions = Permissions(lambda: metadata().rules, superusers)
    if security.identities is None:
        if security.audit is None:
            return permissions, None
        return permissions, Guarding(None, permissions, security.audit)
    quotas = metrics.quotas = Quotas(
        lambda: metadata().quotas,
        time.monotonic,
        lambda number: metadata().coordinator.is_open(number),  # noqa: PLW0108 - made later
        superusers,
    )
    return permissions, Guarding(
        security.identities,
        permissions,
        security.audit,
        quotas,
        rules_version=lambda: metadata().rules_version if permissions else 0,
    )


def add_services(
    node: NodeContext,
    offered: grpc.aio.Server,
    now_ms: Callable[[], int],
    permissions: Permissions | None,
    members: GroupMembers,
    transactions: Transactions,
) -> None:
    """Add the services. now_ms: a majority's wall clock. Raises NotReadyError without one."""
    add_log_service(LogService(node), offered)
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(ClusterService(node), offered)
    producers = ProducerService(
        node, now_ms=now_ms, new_nonce=lambda: int.from_bytes(os.urandom(8))
    )
    producer_pb2_grpc.add_ProducerServiceServicer_to_server(producers, offered)
    rights = TransactionRights(node, permissions)
    groups = GroupService(node, members, rights, now_ms=now_ms)
    group_pb2_grpc.add_GroupServiceServicer_to_server(groups, offered)
    service = TransactionService(node, transactions, rights, now_ms=now_ms)
    transaction_pb2_grpc.add_TransactionServiceServicer_to_server(service, offered)
    sinks = SinkService(node, transactions)
    sink_pb2_grpc.add_SinkServiceServicer_to_server(sinks, offered)
    security = SecurityService(node, permissions)
    security_pb2_grpc.add_SecurityServiceServicer_to_server(security, offered)
