"""Who holds a partition, who shall, and what its leader reports. Pure.

    SetReplicas --wish--> PartitionState.target --the partition's leader, step by step-->
    its log --in force--> ReportReplicas --> PartitionState.replicas: who opens what

The group's own log decides who counts. Here is what nodes open and close replicas by: it is
behind that log, never ahead of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cluster.metadata import topics as rules
from cluster.metadata.nodes import holders, own_reported
from cluster.metadata.tables import METADATA_GROUP, Tables
from cluster.metadata.topics import PartitionState, Rejected, invalid
from cluster.v1 import metadata_pb2 as pb

# What changes who holds what, and which nodes there are.
COMMANDS = frozenset(
    {"set_replicas", "report_replicas", "change_node", "join_node", "change_balance"}
)


def change(tables: Tables, command: pb.MetadataCommand) -> bool:
    """A wish, a report, or whether there is a balance. Returns whether it changed something.

    Raises Rejected.
    """
    if command.HasField("change_balance"):
        before, tables.balancing = tables.balancing, command.change_balance.balancing
        return before != tables.balancing
    return _change(tables, command)


def _change(tables: Tables, command: pb.MetadataCommand) -> bool:
    wish, report = command.set_replicas, command.report_replicas
    is_wish = command.HasField("set_replicas")
    group_id = wish.group_id if is_wish else report.group_id
    if group_id == METADATA_GROUP and not is_wish:
        own = reported(tables.own, report)
        if own is not tables.own:  # it has a target as long as a replica of it is filled
            own = replace(own, target=own.replicas if report.learners else ())
        return own_reported(tables, own)
    if group_id not in tables.groups:
        raise Rejected(rules.UNKNOWN_TOPIC_OR_PARTITION, f"there is no group {group_id}")
    name, number = tables.groups[group_id]
    topic = tables.topics[name]
    before = topic.partitions[number]
    if is_wish and wish.for_balance and not tables.balancing:
        raise invalid("for_balance", "the cluster is not balanced any more")
    allowed = {*holders(tables), *before.replicas}
    record = wished(before, wish, allowed) if is_wish else reported(before, report)
    partitions = (*topic.partitions[:number], record, *topic.partitions[number + 1 :])
    tables.put_topic(replace(topic, partitions=partitions))
    return record != before


def wished(
    record: PartitionState, command: pb.SetReplicas, nodes: Collection[int]
) -> PartitionState:
    """Raises Rejected."""
    if command.expected_version != record.version:
        text = f"{command.expected_version} is not the partition's, {record.version}"
        raise invalid("expected_version", text)
    target = tuple(command.replicas)
    rules.check_replicas(target, nodes)
    if not record.target and not record.lost and set(target) == set(record.replicas):
        return _in_order(record, target)
    kept = (record.before_balance or record.replicas) if command.for_balance else ()
    return replace(record, target=target, before_balance=kept)


def reported(record: PartitionState, command: pb.ReportReplicas) -> PartitionState:
    """Raises Rejected. What is older than what is known changes nothing."""
    members = (*command.voters, *command.learners)
    if len(command.instances) != len(members) or not command.voters:
        raise invalid("instances", "not each replica has one, or there is no voter")
    if command.version < record.version:
        return record
    now = replace(
        record,
        replicas=members,
        founding=record.founding or record.replicas,
        instances=tuple(command.instances),
        version=command.version,
        index=command.index,
        index_term=command.index_term,
        lost=tuple(
            one for one in record.lost if one in zip(members, command.instances, strict=True)
        ),
    )
    if not now.lost and not command.learners and set(record.target) == set(command.voters):
        return _in_order(replace(now, target=(), before_balance=()), record.target)
    preferred = [node for node in record.target or record.replicas if node in members]
    return _in_order(now, [*preferred, *(node for node in members if node not in preferred)])


def _in_order(record: PartitionState, order: Collection[int]) -> PartitionState:
    """The same replicas, the preferred leader first."""
    instances = tuple(record.instance_of(node) for node in order) if record.instances else ()
    return replace(record, replicas=tuple(order), instances=instances)
