"""Lookup of the replica that answers for a partition: the one check of "not the leader".

    leading, near, replica_here --> Partition, or raises UnknownTopicOrPartitionError,
                                   NotLeaderError, NotReadyError

Services raise; `errors.to_public`, or the writer of an error field, translates. Produce alone
does not raise: its answers are verdicts.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.errors import NotLeaderError, NotReadyError
from cluster.partition.replica import Partition
from cluster.services.context import NodeContext
from oncelog.errors import CorruptLogError, UnknownTopicOrPartitionError
from storage.errors import StorageError

# Committed entries that a follower may lack and still serve reads as a near replica.
NEAR_BEHIND = 1000


class Located(NamedTuple):
    """This node's knowledge of a partition."""

    replica: Partition | None  # its own
    leader_id: int  # 0: none is known
    leads: bool


def locate(node: NodeContext, topic: str, index: int) -> Located | None:
    """Return None if this node knows no such partition."""
    group_id = node.metadata.group_of(topic, index)
    if group_id is None:
        return None
    leader_id = node.leader_of(group_id)[0]
    replica = node.partition(group_id)
    if replica is None or replica.closed:
        return Located(None, leader_id, False)
    # Both must agree: a replica may not have heard yet that another node leads.
    leads = leader_id == node.config.node_id and replica.group.is_leader
    # As Located(replica, leader_id, leads), at a third of its price.
    return tuple.__new__(Located, (replica, leader_id, leads))


def leading(node: NodeContext, topic: str, index: int) -> Partition:
    """Return this node's replica of a partition that it leads."""
    located = _located(node, topic, index)
    replica = located.replica
    if replica is None or not located.leads:
        raise not_leader(node, topic, index, located.leader_id)
    if not replica.group.is_ready:
        node_id = node.config.node_id
        raise NotReadyError(f"node {node_id} has just begun to lead {topic}-{index}")
    return replica


def replica_here(node: NodeContext, topic: str, index: int) -> Partition:
    """Return this node's replica, leader or not."""
    located = _located(node, topic, index)
    if located.replica is None:
        raise not_leader(node, topic, index, located.leader_id)
    return located.replica


def near(node: NodeContext, topic: str, index: int) -> Partition:
    """Return this node's replica if it leads, or hears its leader and is not far behind."""
    located = _located(node, topic, index)
    if located.leads:
        return leading(node, topic, index)
    replica = located.replica
    if replica is None or has_stopped(replica) or not _keeps_up(node, replica):
        raise not_leader(node, topic, index, located.leader_id)
    return replica


def _keeps_up(node: NodeContext, replica: Partition) -> bool:
    leader = replica.group.leader_id
    if leader in (0, node.config.node_id) or not node.alive(leader):
        return False
    return replica.group.entries_behind <= NEAR_BEHIND


def unreadable(node: NodeContext, replica: Partition, error: StorageError) -> CorruptLogError:
    """Return a refused read's error. Raises NotLeaderError if another node must lead."""
    replica.unreadable(error)
    leading(node, replica.topic, replica.index)
    return CorruptLogError(str(error), topic=replica.topic, partition=replica.index)


def has_stopped(replica: Partition) -> bool:
    """Return whether it was deleted, or failed: it applies nothing more."""
    return replica.closed or replica.group.failed is not None


def _located(node: NodeContext, topic: str, index: int) -> Located:
    located = locate(node, topic, index)
    if located is None:
        raise UnknownTopicOrPartitionError(
            f"there is no partition {topic}-{index}", topic=topic, partition=index
        )
    return located


def not_leader(node: NodeContext, topic: str, index: int, leader_id: int) -> NotLeaderError:
    """Return the services' only form of this error; `leader_id` 0: none is known."""
    text = f"node {node.config.node_id} does not lead {topic}-{index}"
    return NotLeaderError(text, leader_id)
