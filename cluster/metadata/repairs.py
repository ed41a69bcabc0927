"""A replica that has stopped for damage is removed from its group, and made anew. Pure.

    node of the replica --RepairReplica--> PartitionState.damaged --> the partition's leader:
    it is removed --> ReportReplicas --> added, as another instance, filled, made a voter

It never comes back as the voter that it was: that one had voted and acknowledged, and an
empty log has forgotten it. So its group removes it first, by a majority that has all that was
acknowledged; what is added then is a learner. A group without that majority changes nothing.

A disk that goes bad damages replicas again and again. So one is made anew at most MAX_REPAIRS
times in REPAIR_PERIOD_MS. What is not made anew, as the only replica of a partition never is,
stays where it is and is named until a restart finds it sound.
"""

from __future__ import annotations

from dataclasses import replace

from cluster.metadata.topics import DAY_MS, DamagedReplica, PartitionState, invalid
from cluster.v1 import metadata_pb2 as pb

MAX_REPAIRS = 3  # of one node's replica of a partition
REPAIR_PERIOD_MS = DAY_MS


def repaired(record: PartitionState, command: pb.RepairReplica, now_ms: int) -> PartitionState:
    """Raises Rejected."""
    node, instance = command.node_id, command.instance
    if node not in record.replicas or record.instance_of(node) != instance:
        raise invalid("instance", f"{instance} of node {node} is no replica of the partition")
    known = damage_of(record, node)
    if known is not None and known.rebuild:
        return record  # it is being removed
    others = tuple(one for one in record.damaged if one.node != node)
    if command.sound:
        return replace(record, damaged=others)
    recent = tuple(one for one in record.repairs if now_ms - one[1] < REPAIR_PERIOD_MS)
    tried = sum(one == node for one, _ in recent)
    rebuild = len(record.replicas) > 1 and tried < MAX_REPAIRS
    damaged = (*others, DamagedReplica(node, instance, rebuild))
    if not rebuild:
        return replace(record, damaged=damaged)
    target, repairs = record.target or record.replicas, (*recent, (node, now_ms))
    return replace(record, damaged=damaged, repairs=repairs, target=target)


def damage_of(record: PartitionState, node: int) -> DamagedReplica | None:
    """What is known of the damage of the node's replica."""
    return next((one for one in record.damaged if one.node == node), None)


def outlook(record: PartitionState, damaged: DamagedReplica) -> str:
    """What is done about it, for people."""
    if damaged.rebuild:
        return "it is made anew from the leader"
    if len(record.replicas) == 1:
        return "it is the only one, so it cannot be made anew"
    return f"it was made anew {MAX_REPAIRS} times within a day, the limit: look at the disk"
