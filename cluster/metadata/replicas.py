"""Replicas of partitions: present holders, targets, and reports of leaders. Pure.

    SetReplicas, SetTopicReplicas --retargeted--> PartitionState.target
    target --the partition's leader, step by step--> its log --in force--> ReportReplicas
    ReportReplicas, AddPartitions --> PartitionState.replicas: the nodes that open it

The group's own log decides which replicas count. Nodes open and close replicas by this state, which
may be behind that log but never ahead of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cluster.features import METADATA_LEARNERS
from cluster.metadata import nodes
from cluster.metadata import topics as rules
from cluster.metadata.nodes import holders, own_reported
from cluster.metadata.repairs import repaired
from cluster.metadata.tables import METADATA_GROUP, Tables
from cluster.metadata.topics import PartitionState, Rejected, TopicState, invalid
from cluster.v1 import metadata_pb2 as pb

# Commands that change the nodes, or the holders of partitions.
COMMANDS = frozenset(
    {
        "set_replicas",
        "report_replicas",
        "repair_replica",
        "change_node",
        "join_node",
        "change_balance",
        "add_partitions",
        "set_topic_replicas",
    }
)


def change(tables: Tables, command: pb.MetadataCommand, now_ms: int) -> bool:
    """Changes nodes or replicas; returns whether it changed something. Raises Rejected."""
    if command.HasField("change_node"):
        return nodes.change(tables, command.change_node)
    if command.HasField("join_node"):
        return nodes.join(tables, command.join_node)
    if command.HasField("change_balance"):
        return _change_balance(tables, command.change_balance)
    if command.HasField("add_partitions"):
        return _add_partitions(tables, command.add_partitions, now_ms)
    if command.HasField("set_topic_replicas"):
        return _set_topic_replicas(tables, command.set_topic_replicas)
    return _change(tables, command, now_ms)


def _change_balance(tables: Tables, command: pb.ChangeBalance) -> bool:
    expected, version = command.expected_layout, tables.layout_version
    if expected and expected != version:
        # Changes since the plan was drawn may need levelling.
        raise invalid("expected_layout", f"{expected} is not the layout's version, {version}")
    before, tables.balancing = tables.balancing, command.balancing
    return before != tables.balancing


def _add_partitions(tables: Tables, command: pb.AddPartitions, now_ms: int) -> bool:
    """Appends partitions: a number, like a group's id, is never used for another partition."""
    topic = _topic(tables, command.name, command.topic_id)
    known, placements = len(topic.partitions), [(*one.replicas,) for one in command.placements]
    if command.expected_partitions != known:
        text = f"{command.expected_partitions} is not the topic's number of partitions, {known}"
        raise invalid("expected_partitions", text)
    rules.check_more_partitions(known, known + len(placements))
    rules.check_placements(placements, holders(tables))
    rules.check_room(len(tables.groups), len(placements))
    first = tables.next_group_id
    added = tuple(
        PartitionState(first + number, nodes, added_ms=max(1, now_ms))
        for number, nodes in enumerate(placements)
    )
    tables.next_group_id += len(added)
    tables.put_topic(replace(topic, partitions=topic.partitions + added))
    return True


def _set_topic_replicas(tables: Tables, command: pb.SetTopicReplicas) -> bool:
    topic = _topic(tables, command.name, command.topic_id)
    records, known = list(topic.partitions), holders(tables)
    for move in command.partitions:
        name, number = tables.groups.get(move.group_id, ("", 0))
        if name != topic.name or move.for_balance:
            text = f"group {move.group_id} is not the topic's, or it is balanced"
            raise invalid("partitions", text)
        records[number] = retargeted(records[number], move, {*known, *records[number].replicas})
    tables.put_topic(replace(topic, partitions=tuple(records)))
    return tuple(records) != topic.partitions


def _topic(tables: Tables, name: str, topic_id: int) -> TopicState:
    topic = tables.topics.get(name)
    if topic is None or topic.topic_id != topic_id:
        text = f"topic {name!r} does not exist, or was deleted and created anew"
        raise Rejected(rules.UNKNOWN_TOPIC_OR_PARTITION, text)
    if rules.is_internal(name):
        raise invalid("name", f"{name!r} is internal and cannot be changed")
    return topic


def _change(tables: Tables, command: pb.MetadataCommand, now_ms: int) -> bool:
    move, report, repair = command.set_replicas, command.report_replicas, command.repair_replica
    which = command.WhichOneof("command")
    groups = {"set_replicas": move.group_id, "repair_replica": repair.group_id}
    group_id = groups.get(which or "", report.group_id)
    if group_id == METADATA_GROUP and which == "report_replicas":
        own, learners = reported(tables.own, report), tables.learners
        if own is not tables.own:  # the target stays as long as a replica of it is filled
            may_stay = tables.finalized.has(METADATA_LEARNERS)
            learners = (*sorted(report.learners),) if may_stay else ()
            is_filled = report.learners and not may_stay
            own = replace(own, target=own.replicas if is_filled else ())
        return own_reported(tables, own, learners)
    if group_id not in tables.groups:
        raise Rejected(rules.UNKNOWN_TOPIC_OR_PARTITION, f"there is no group {group_id}")
    name, number = tables.groups[group_id]
    topic = tables.topics[name]
    before = topic.partitions[number]
    if which == "set_replicas" and move.for_balance and not tables.balancing:
        raise invalid("for_balance", "the balance has ended")
    allowed = {*holders(tables), *before.replicas}
    if which == "set_replicas":
        record = retargeted(before, move, allowed)
    elif which == "repair_replica":
        record = repaired(before, repair, now_ms)
    else:
        record = reported(before, report)
    partitions = (*topic.partitions[:number], record, *topic.partitions[number + 1 :])
    tables.put_topic(replace(topic, partitions=partitions))
    return record != before


def retargeted(
    record: PartitionState, command: pb.SetReplicas, nodes: Collection[int]
) -> PartitionState:
    """Sets the target. Raises Rejected."""
    if command.expected_version != record.version:
        text = f"{command.expected_version} is not the partition's, {record.version}"
        raise invalid("expected_version", text)
    if command.for_balance and record.target:
        # The plan is older than this move: it must not undo a move by hand.
        raise invalid("for_balance", "the partition is moving already")
    target = tuple(command.replicas)
    rules.check_replicas(target, nodes)
    if not record.target and not record.to_remove and set(target) == set(record.replicas):
        return _in_order(record, target)
    kept = record.replicas if command.for_balance else ()
    return replace(record, target=target, before_balance=kept)


def reported(record: PartitionState, command: pb.ReportReplicas) -> PartitionState:
    """Takes a leader's report, unless it is older than the known state. Raises Rejected."""
    members = (*command.voters, *command.learners)
    if len(command.instances) != len(members) or not command.voters:
        raise invalid("instances", "not each replica has one, or there is no voter")
    if command.version < record.version:
        return record
    held = [*zip(members, command.instances, strict=True)]
    now = replace(
        record,
        replicas=members,
        founding=record.founding or record.replicas,
        instances=tuple(command.instances),
        version=command.version,
        index=command.index,
        index_term=command.index_term,
        lost=tuple(one for one in record.lost if one in held),
        damaged=tuple(one for one in record.damaged if (one.node, one.instance) in held),
    )
    if not now.to_remove and not command.learners and set(record.target) == set(command.voters):
        return _in_order(replace(now, target=(), before_balance=()), record.target)
    preferred = [node for node in record.placed if node in members]
    return _in_order(now, [*preferred, *(node for node in members if node not in preferred)])


def _in_order(record: PartitionState, order: Collection[int]) -> PartitionState:
    """Returns the same replicas, the preferred leader first."""
    instances = tuple(record.instance_of(node) for node in order) if record.instances else ()
    return replace(record, replicas=tuple(order), instances=instances)
