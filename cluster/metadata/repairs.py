"""Repair of a replica that stopped for damage: it is removed from its group and rebuilt. Pure.

    node of the replica --RepairReplica--> PartitionState.damaged --> the partition's leader:
    it is removed --> ReportReplicas --> added, as another instance, filled, made a voter

It never comes back as the same voter: that one had voted and acknowledged, and an empty log has
forgotten it. So its group removes it first, by a majority that has every acknowledged entry; then
the new replica is added as a learner. A group without that majority changes nothing.

A failing disk damages replicas again and again. So a replica is rebuilt at most MAX_REPAIRS times
in REPAIR_PERIOD_MS, and a partition's only voter never is. Replicas that are not rebuilt stay and
are reported until a restart finds them sound. Such a restart also clears the mark of a replica that
is not yet removed. The exception is one of two voters: the other one may have gone on alone by
then.
"""

from __future__ import annotations

from dataclasses import replace

from cluster.metadata.topics import DAY_MS, DamagedReplica, PartitionState, invalid
from cluster.v1 import metadata_pb2 as pb

MAX_REPAIRS = 3  # of one node's replica of a partition
REPAIR_PERIOD_MS = DAY_MS


def repaired(record: PartitionState, command: pb.RepairReplica, now_ms: int) -> PartitionState:
    """Records a damaged replica. Raises Rejected."""
    node, instance = command.node_id, command.instance
    if node not in record.replicas or record.instance_of(node) != instance:
        raise invalid("instance", f"{instance} of node {node} is no replica of the partition")
    known = damage_of(record, node)
    others = tuple(one for one in record.damaged if one.node != node)
    if command.sound and may_stay(record, node) and command.marked_ms == marked_ms(record, node):
        return replace(record, damaged=others)
    if command.sound or (known is not None and known.rebuild):
        return record
    recent = tuple(one for one in record.repairs if now_ms - one[1] < REPAIR_PERIOD_MS)
    tried = sum(one == node for one, _ in recent)
    rebuild = _has_other_voter(record, node) and tried < MAX_REPAIRS
    damaged = (*others, DamagedReplica(node, instance, rebuild))
    if not rebuild:
        return replace(record, damaged=damaged)
    target, repairs = record.placed, (*recent, (node, now_ms))
    return replace(record, damaged=damaged, repairs=repairs, target=target)


def may_stay(record: PartitionState, node: int) -> bool:
    """Whether the node's damaged replica keeps its place if it proves sound."""
    known = damage_of(record, node)
    is_to_go = known is not None and known.rebuild
    return not is_to_go or len({*record.replicas} - {record.learner}) != 2


def marked_ms(record: PartitionState, node: int) -> int:
    """Returns when the node's replica was marked for a rebuild; 0: it is not marked."""
    known = damage_of(record, node)
    if known is None or not known.rebuild:
        return 0
    return max(began_ms for one, began_ms in record.repairs if one == node)


def _has_other_voter(record: PartitionState, node: int) -> bool:
    return bool({*record.replicas} - {record.learner, node})


def damage_of(record: PartitionState, node: int) -> DamagedReplica | None:
    """Returns the known damage of the node's replica."""
    return next((one for one in record.damaged if one.node == node), None)


def outlook(record: PartitionState, damaged: DamagedReplica) -> str:
    """Returns the next step of the repair, as text for people."""
    if damaged.rebuild:
        return "it is being rebuilt from the leader"
    if not _has_other_voter(record, damaged.node):
        return "it is the only one, so it cannot be rebuilt"
    return f"it was rebuilt {MAX_REPAIRS} times within a day, the limit: check the disk"
