"""What several services check of a request, and who must answer it."""

from __future__ import annotations

from typing import Any

from cluster.errors import NotLeaderError, NotReadyError
from cluster.metadata.topics import invalid
from cluster.services.context import NodeContext, Replica

MAX_TIMEOUT_MS = 600_000


def timeout_s(timeout_ms: int, node: NodeContext) -> float:
    """How long a call may wait, in seconds; 0 stands for the node's default. Raises Rejected."""
    if not 0 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise invalid("timeout_ms", f"{timeout_ms} must be 0..{MAX_TIMEOUT_MS}")
    return (timeout_ms or node.config.request_timeout_ms) / 1000


def page_size(limit: int, default: int, most: int) -> int:
    """How many rows an answer may have; 0 stands for `default`. Raises Rejected."""
    if not 0 <= limit <= most:
        raise invalid("limit", f"{limit} must be 0..{most}")
    return limit or default


def not_negative(request: Any, *fields: str) -> None:
    """Raises Rejected for the first of these fields that is negative."""
    for field in fields:
        if getattr(request, field) < 0:
            raise invalid(field, f"{getattr(request, field)} must not be negative")


def led_here(node: NodeContext, group_id: int, where: str) -> Replica:
    """This node's replica of a partition that it leads.

    `where` names the partition in the text of an error. Raises NotLeaderError, NotReadyError.
    """
    leader, _ = node.leader_of(group_id)
    if not leader:
        raise NotReadyError(f"no leader is known of {where}")
    replica = node.partition(group_id)
    if replica is None or leader != node.config.node_id:
        raise NotLeaderError(f"node {node.config.node_id} does not lead {where}", leader)
    if not replica.group.is_ready:
        raise NotReadyError(f"node {node.config.node_id} has just begun to lead {where}")
    return replica
