"""What a node offers to clients: its gRPC services, over one server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import grpc

from cluster.node.transactions import Transactions
from cluster.services.cluster_service import ClusterService
from cluster.services.group_members import GroupMembers
from cluster.services.group_service import GroupService
from cluster.services.log_service import LogService, add_log_service
from cluster.services.producer_service import ProducerService
from cluster.services.transaction_service import TransactionService
from oncelog.v1 import (
    cluster_pb2_grpc,
    group_pb2_grpc,
    producer_pb2_grpc,
    transaction_pb2_grpc,
)

if TYPE_CHECKING:
    from cluster.node.node import Node


def add_services(
    node: Node,
    transactions: Transactions,
    members: GroupMembers,
    offered: grpc.aio.Server,
) -> None:
    """Puts the node's services on a server."""
    now_ms = node.agreed_now_ms
    add_log_service(LogService(node), offered)
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(ClusterService(node), offered)
    producers = ProducerService(
        node, now_ms=now_ms, new_nonce=lambda: int.from_bytes(os.urandom(8))
    )
    producer_pb2_grpc.add_ProducerServiceServicer_to_server(producers, offered)
    groups = GroupService(node, members, now_ms=now_ms)
    group_pb2_grpc.add_GroupServiceServicer_to_server(groups, offered)
    service = TransactionService(node, transactions, now_ms=now_ms)
    transaction_pb2_grpc.add_TransactionServiceServicer_to_server(service, offered)
