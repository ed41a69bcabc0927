"""Services that a node offers its clients, and the gate before them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import grpc

from cluster.access.gate import Gate
from cluster.kafka.handlers import open_sessions
from cluster.kafka.needs import Rights
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.session import Session
from cluster.metadata.state import MetadataState
from cluster.metrics.page import Metrics
from cluster.node.ports.security import Security
from cluster.node.transactions.transactions import Transactions
from cluster.rpc.services import add_service
from cluster.security.permissions import Authorizer
from cluster.security.quotas import Quotas
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.admin.security_service import SecurityService
from cluster.services.context import NodeContext
from cluster.services.groups.running_groups import GroupMembers
from cluster.services.groups.service import GroupService
from cluster.services.log.service import LogService
from cluster.services.observe import ObserveService
from cluster.services.transactions.permissions import TransactionRights
from cluster.services.transactions.service import TransactionService
from cluster.services.transactions.sink_service import SinkService


def gate_of(
    security: Security, metadata: Callable[[], MetadataState], metrics: Metrics
) -> Gate | None:
    """Return the gate that each call passes; None: nothing is checked."""
    superusers = security.superusers or ()
    permissions = None
    if security.superusers is not None:
        permissions = Authorizer(lambda: metadata().rules, superusers)
    if security.identities is None:
        if security.audit is None:
            return None
        return Gate(None, permissions, security.audit, events=metrics.events)
    quotas = metrics.quotas = Quotas(
        lambda: metadata().quotas,
        time.monotonic,
        lambda number: metadata().coordinator.is_open(number),  # noqa: PLW0108 - made later
        superusers,
    )
    return Gate(
        security.identities,
        permissions,
        security.audit,
        quotas,
        rules_version=lambda: metadata().rules_version if permissions else 0,
        events=metrics.events,
    )


def add_services(
    node: NodeContext,
    offered: grpc.aio.Server,
    now_ms: Callable[[], int],
    gate: Gate | None,
    members: GroupMembers,
    transactions: Transactions,
) -> Callable[[Rights], Session]:
    """Add the services, and return the maker of sessions of Kafka's clients.

    now_ms: a majority's wall clock. Raises NotReadyError without one.
    """
    permissions = None if gate is None else gate.permissions
    rights = TransactionRights(node, permissions)
    topics = ClusterService(node)
    producers = ProducerService(node, now_ms=now_ms, new_nonce=_new_nonce)
    groups = GroupService(node, members, rights, now_ms=now_ms)
    for service in (
        LogService(node),
        topics,
        producers,
        groups,
        TransactionService(node, transactions, rights, now_ms=now_ms),
        SinkService(node, transactions),
        SecurityService(node, permissions),
        ObserveService(node, permissions),
    ):
        add_service(offered, service)
    open_ones = OpenTransactions(node, transactions, _new_nonce)
    return open_sessions(node, topics, producers, groups, open_ones)


def _new_nonce() -> int:
    return int.from_bytes(os.urandom(8))
