"""Placement of new partitions: the cluster's nodes, and those that answer.

CreateTopic, ResizeTopic, the topic of consumer groups --place_replicas--> placements
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.errors import NotReadyError
from cluster.metadata.placement import check_nodes, place
from cluster.metadata.topics import check_partition_count
from cluster.services.context import NodeContext

Placements = Sequence[Sequence[int]]  # the nodes of each partition


def place_replicas(node: NodeContext, partitions: int, replicas: int) -> list[tuple[int, ...]]:
    """Place so many new partitions. Raises Rejected, NotReadyError."""
    check_partition_count(partitions)
    everybody, known = all_nodes(node), node.metadata.membership.holders()
    check_nodes(replicas, everybody)
    if replicas > len(known):
        missing = sorted(everybody - set(known))
        raise NotReadyError(
            f"replicas: {replicas} wanted, but these nodes have not joined yet: "
            + ", ".join(map(str, missing))
        )
    live = [node_id for node_id in known if node.alive(node_id)]
    if len(live) < replicas // 2 + 1:
        raise NotReadyError(
            f"replicas: {replicas} need {replicas // 2 + 1} living nodes, "
            f"node {node.config.node_id} hears {len(live)}"
        )
    view = node.metadata.membership
    return place(partitions, replicas, known, live, view.loads, view.spread)


def default_replicas(node: NodeContext) -> int:
    """Return the default replica count: the setting, at most one replica per node."""
    return min(node.config.wanted_replicas, len(all_nodes(node)))


def all_nodes(node: NodeContext) -> set[int]:
    """Return the nodes that the cluster began with and has now, including absent ones."""
    view, known = node.metadata.membership, set(node.metadata.nodes)
    return known | {*(view.own.replicas or node.config.nodes)}
