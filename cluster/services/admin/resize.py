"""ResizeTopic: more partitions, or another number of replicas.

    partitions --placed as a new topic's--> AddPartitions --> metadata, which opens the groups
    replicas --plan--> SetTopicReplicas --> targets --> leaders, step by step (ReassignPartition)

The plan is checked again when it is applied: if the number of partitions or the replicas have
changed meanwhile, it is refused.
"""

from __future__ import annotations

from cluster.features import REPLICA_CHANGES
from cluster.metadata.placement import resized
from cluster.metadata.topics import (
    TopicState,
    check_more_partitions,
    check_placements,
    check_room,
    is_internal,
)
from cluster.services.admin.balance import largest
from cluster.services.admin.optimistic import optimistically
from cluster.services.admin.placement import Placements, place_replicas
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.requests import invalid, timeout_s
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import cluster_pb2 as pb

MAX_SHOWN = 1000  # moves in one answer


async def resize(
    node: NodeContext,
    topic: TopicState,
    request: pb.ResizeTopicRequest,
    placements: Placements = (),
) -> list[pb.PartitionMove]:
    """Return the new or moved replicas. Raises Rejected, and the errors of a proposal.

    placements: nodes of each new partition; empty: they are placed as those of a new topic.
    """
    node.metadata.features.require(REPLICA_CHANGES)
    if bool(request.partitions) == bool(request.replicas):
        raise invalid("partitions", "this or replicas must be set, and not both")
    if is_internal(topic.name):
        raise invalid("name", f"{topic.name!r} is internal and cannot be changed")
    if request.partitions:
        return await _grow(node, topic, request, placements)
    return await optimistically(
        lambda: _set_replicas(node, node.metadata.topic(topic.name) or topic, request)
    )


async def _grow(
    node: NodeContext,
    topic: TopicState,
    request: pb.ResizeTopicRequest,
    placed: Placements,
) -> list[pb.PartitionMove]:
    known = len(topic.partitions)
    check_more_partitions(known, request.partitions)
    check_room(node.metadata.partition_count, request.partitions - known)
    if placed:
        check_placements(placed, node.metadata.membership.holders())
        if (len(placed), len(placed[0])) != (request.partitions - known, topic.replica_count):
            text = f"{len(placed)} of {len(placed[0])} nodes each must be one for each of the"
            text += f" {request.partitions - known} new partitions, of {topic.replica_count} nodes"
            raise invalid("placements", text)
    else:
        placed = place_replicas(node, request.partitions - known, topic.replica_count)
    command = meta.AddPartitions(
        name=topic.name,
        topic_id=topic.topic_id,
        expected_partitions=known,
        placements=[meta.Placement(replicas=replicas) for replicas in placed],
    )
    if not request.dry_run:
        await _propose(node, topic, meta.MetadataCommand(add_partitions=command))
    return [
        pb.PartitionMove(topic=topic.name, partition=known + number, target=replicas)
        for number, replicas in enumerate(placed)
    ]


async def _set_replicas(
    node: NodeContext, topic: TopicState, request: pb.ResizeTopicRequest
) -> list[pb.PartitionMove]:
    view = node.metadata.membership
    known = view.holders()
    live = [one for one in known if node.alive(one)]
    leaders = {record.group_id: node.leader_of(record.group_id)[0] for record in topic.partitions}
    changes = resized(topic, request.replicas, known, live, leaders, view.loads, view.spread)
    moves = [
        meta.SetReplicas(group_id=record.group_id, replicas=target, expected_version=record.version)
        for record, target in changes
    ]
    if moves and not request.dry_run:
        command = meta.SetTopicReplicas(name=topic.name, topic_id=topic.topic_id, partitions=moves)
        await _propose(node, topic, meta.MetadataCommand(set_topic_replicas=command))
    numbers = {record.group_id: number for number, record in enumerate(topic.partitions)}
    sizes = largest(await node.sizes.ask())
    return [
        pb.PartitionMove(
            topic=topic.name,
            partition=numbers[record.group_id],
            replicas=record.replicas,
            target=target,
            bytes=len({*target} - {*record.replicas}) * sizes.get(record.group_id, 0),
        )
        for record, target in changes
    ]


async def _propose(node: NodeContext, topic: TopicState, command: meta.MetadataCommand) -> None:
    accepted(await node.propose_metadata(command, timeout_s(0, node)), topic=topic.name)
