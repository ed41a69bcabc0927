"""Snapshots of the metadata group: Tables <-> the bytes of a MetadataSnapshot.

MetadataState.pieces --packed_tables--> bytes --load_tables--> MetadataState.load
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from cluster.entries import has_unknown_fields
from cluster.features import Finalized
from cluster.metadata.lease_tokens import SECRET_BYTES
from cluster.metadata.permissions import read_rules, write_rule
from cluster.metadata.places import NodePlace
from cluster.metadata.producer_names import NameState
from cluster.metadata.quotas import read_quotas, write_quota
from cluster.metadata.registrations import Registration
from cluster.metadata.settings import SETTINGS
from cluster.metadata.tables import Tables
from cluster.metadata.topics import DamagedReplica, PartitionState, TopicSettings, TopicState
from cluster.transactions.coordinator import Coordinator
from cluster.v1 import metadata_pb2 as pb
from oncelog.wire.varint import encode_varint
from storage.pieces import in_pieces, joined


def packed_tables(tables: Tables) -> Iterator[bytes]:
    """Packs the tables in pieces; equal tables give equal bytes. They must not change meanwhile.

    Serialized messages that follow each other are one message. The pieces have its fields
    in rising order, so that they are the bytes of a message that was serialized as one.
    """
    for snapshot in _parts(tables):
        yield snapshot.SerializeToString(deterministic=True)
    if not tables.coordinator.is_new:
        yield from _nested(pb.MetadataSnapshot.COORDINATOR_FIELD_NUMBER, tables.coordinator)
    last = pb.MetadataSnapshot(
        rules=map(write_rule, tables.rules),
        rules_version=tables.rules_version,
        quotas=map(write_quota, tables.quotas),
        balancing=tables.balancing,
        layout_version=tables.layout_version,
        own_learners=tables.learners,
    )
    if tables.own.replicas:
        last.own.CopyFrom(_partition_record(tables.own))
    yield last.SerializeToString(deterministic=True)


def _nested(field: int, message: Coordinator) -> Iterator[bytes]:
    """Packs a message in a field: its length is known once all of it is made."""
    pieces = []
    for piece in message.pieces():
        pieces.append(piece)
        yield b""
    yield encode_varint(field << 3 | 2) + encode_varint(sum(map(len, pieces)))
    yield from joined(pieces)


def _parts(tables: Tables) -> Iterator[pb.MetadataSnapshot]:
    nodes = sorted({*tables.nodes, *tables.expected, *tables.leaving, *tables.drained})
    yield pb.MetadataSnapshot(nodes=[_node_record(tables, node) for node in nodes])
    for topics in in_pieces(tables.topics_by_name(), lambda topic: len(topic.partitions)):
        yield pb.MetadataSnapshot(topics=map(_topic_record, topics))
    yield pb.MetadataSnapshot(
        next_producer_id=tables.next_producer_id,
        next_group_id=tables.next_group_id,
        next_topic_id=tables.next_topic_id,
    )
    for names in in_pieces(tables.names):
        yield pb.MetadataSnapshot(names=map(_name_record, names))
    yield pb.MetadataSnapshot(
        clock_ms=tables.clock_ms,
        blocks=[
            pb.BlockRecord(first_producer_id=first, issued_ms=issued, node_id=node)
            for first, issued, node in tables.blocks
        ],
        lease_lifetime_ms=tables.stamped[0],
        producer_name_expiry_ms=tables.stamped[1],
        lease_secret=tables.lease_secret,
        # Before the first upgrade the bytes are those of the releases from before the gate.
        cluster_version=tables.finalized.version if tables.finalized != Finalized() else 0,
        features=sorted(tables.finalized.features),
        settings=[
            pb.ClusterSetting(name=name, value=value)
            for name, value in sorted(tables.settings.items())
        ],
    )


def load_tables(data: bytes) -> Tables:
    """Loads tables. Raises DecodeError, ValueError or OverflowError if `data` is not sound."""
    snapshot = pb.MetadataSnapshot.FromString(data)
    if has_unknown_fields(snapshot):
        raise ValueError("it has fields unknown to this release")
    _check_snapshot(snapshot)
    tables = Tables(
        clock_ms=snapshot.clock_ms,
        stamped=(snapshot.lease_lifetime_ms, snapshot.producer_name_expiry_ms),
        next_producer_id=snapshot.next_producer_id,
        next_group_id=snapshot.next_group_id,
        next_topic_id=snapshot.next_topic_id,
        lease_secret=snapshot.lease_secret,
        nodes={node.node_id: node.address for node in snapshot.nodes if node.address},
        directories={
            node.node_id: node.directory_id for node in snapshot.nodes if node.directory_id
        },
        finalized=Finalized(snapshot.cluster_version or 1, frozenset(snapshot.features)),
        settings={setting.name: setting.value for setting in snapshot.settings},
        rules=read_rules(snapshot.rules),
        rules_version=snapshot.rules_version,
        quotas=read_quotas(snapshot.quotas),
        peers={node.node_id: node.peer_address for node in snapshot.nodes if node.peer_address},
        kafka={node.node_id: node.kafka_address for node in snapshot.nodes if node.kafka_address},
        places={
            node.node_id: NodePlace(node.rack, node.machine)
            for node in snapshot.nodes
            if node.rack or node.machine
        },
        expected={node.node_id for node in snapshot.nodes if node.expected},
        leaving={node.node_id for node in snapshot.nodes if node.leaving},
        drained={node.node_id for node in snapshot.nodes if node.drained},
        joining={node.node_id for node in snapshot.nodes if node.joining},
        balancing=snapshot.balancing,
        layout_version=snapshot.layout_version,
        learners=tuple(snapshot.own_learners),
        registrations={
            node.node_id: Registration(
                node.registration, node.registration_number, node.incarnation
            )
            for node in snapshot.nodes
            if node.registration
        },
    )
    if snapshot.HasField("own"):
        tables.own = _partition_of(snapshot.own)
    for record in snapshot.topics:
        tables.put_topic(_topic_of(record))
    tables.names.restore(_name_of(record) for record in snapshot.names)
    for block in snapshot.blocks:
        tables.blocks.restore(block.first_producer_id, block.issued_ms, block.node_id)
    if snapshot.HasField("coordinator"):
        tables.coordinator.load(snapshot.coordinator.SerializeToString())
    return tables


def _node_record(tables: Tables, node: int) -> pb.NodeRecord:
    registration = tables.registrations.get(node, Registration(0, 0, 0))
    place = tables.places.get(node, NodePlace())
    return pb.NodeRecord(
        node_id=node,
        address=tables.nodes.get(node, ""),
        directory_id=tables.directories.get(node, 0),
        peer_address=tables.peers.get(node, ""),
        kafka_address=tables.kafka.get(node, ""),
        rack=place.rack,
        machine=place.machine,
        expected=node in tables.expected,
        leaving=node in tables.leaving,
        drained=node in tables.drained,
        joining=node in tables.joining,
        registration=registration.id,
        registration_number=registration.number,
        incarnation=registration.incarnation,
    )


def _partition_record(partition: PartitionState) -> pb.PartitionRecord:
    return pb.PartitionRecord(
        group_id=partition.group_id,
        replicas=partition.replicas,
        founding=partition.founding,
        instances=partition.instances,
        version=partition.version,
        index=partition.index,
        index_term=partition.index_term,
        target=partition.target,
        lost_nodes=[node for node, _ in partition.lost],
        lost_instances=[instance for _, instance in partition.lost],
        before_balance=partition.before_balance,
        damaged_nodes=[one.node for one in partition.damaged],
        damaged_instances=[one.instance for one in partition.damaged],
        damaged_rebuild=[one.rebuild for one in partition.damaged],
        repaired_nodes=[node for node, _ in partition.repairs],
        repaired_ms=[began_ms for _, began_ms in partition.repairs],
        added_ms=partition.added_ms,
    )


def _topic_record(topic: TopicState) -> pb.TopicRecord:
    return pb.TopicRecord(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=map(_partition_record, topic.partitions),
        config=topic.settings.to_proto(),
        created_ms=topic.created_ms,
    )


def _topic_of(record: pb.TopicRecord) -> TopicState:
    config = record.config
    partitions = tuple(map(_partition_of, record.partitions))
    if not record.name or not partitions or not all(p.replicas for p in partitions):
        raise ValueError(f"topic {record.name!r} is not complete")
    settings = TopicSettings().overlaid(config, set_expected_offsets=True)
    return TopicState(record.name, record.topic_id, partitions, settings, record.created_ms)


def _partition_of(record: pb.PartitionRecord) -> PartitionState:
    if record.instances and len(record.instances) != len(record.replicas):
        raise ValueError(f"group {record.group_id}: not each replica has an instance")
    return PartitionState(
        record.group_id,
        tuple(record.replicas),
        tuple(record.founding),
        tuple(record.instances),
        record.version,
        record.index,
        record.index_term,
        tuple(record.target),
        tuple(zip(record.lost_nodes, record.lost_instances, strict=True)),
        tuple(record.before_balance),
        tuple(
            DamagedReplica(*one)
            for one in zip(
                record.damaged_nodes, record.damaged_instances, record.damaged_rebuild, strict=True
            )
        ),
        tuple(zip(record.repaired_nodes, record.repaired_ms, strict=True)),
        record.added_ms,
    )


def _name_record(name: NameState) -> pb.NameRecord:
    return pb.NameRecord(
        name=name.name,
        producer_id=name.producer_id,
        epoch=name.epoch,
        last_lease_ms=name.last_lease_ms,
        tombstone=name.tombstone,
        last_nonce=name.last_nonce,
        fence_epoch=name.fence_epoch,
        transaction_timeout_ms=name.transaction_timeout_ms,
    )


def _name_of(record: pb.NameRecord) -> NameState:
    return NameState(
        record.name,
        record.producer_id,
        record.epoch,
        record.last_lease_ms,
        record.tombstone,
        record.last_nonce,
        record.fence_epoch,
        record.transaction_timeout_ms,
    )


def _check_snapshot(snapshot: pb.MetadataSnapshot) -> None:
    """Raises ValueError unless the parts of `snapshot` fit together.

    The checksum only proves that the written bytes are unchanged. This check finds wrong bytes that
    were written, before they spread.
    """
    if snapshot.next_producer_id < 1 or snapshot.next_topic_id < 1:
        raise ValueError("the next ids are missing")
    if min(snapshot.lease_lifetime_ms, snapshot.producer_name_expiry_ms) < 0:
        raise ValueError("a lease lifetime or name expiry is negative")
    if len(snapshot.lease_secret) not in (0, SECRET_BYTES):
        raise ValueError(f"a lease secret of {len(snapshot.lease_secret)} bytes")
    if snapshot.settings and {setting.name for setting in snapshot.settings} != SETTINGS.keys():
        raise ValueError("the cluster's settings are not complete")
    _check_unique("node", (node.node_id for node in snapshot.nodes))
    _check_unique("topic", (topic.name for topic in snapshot.topics))
    topic_ids = [topic.topic_id for topic in snapshot.topics]
    _check_unique("topic id", topic_ids)
    groups = [p.group_id for topic in snapshot.topics for p in topic.partitions]
    _check_unique("group", groups)
    if max(topic_ids, default=0) >= snapshot.next_topic_id:
        raise ValueError("a topic id was never issued")
    if max(groups, default=0) >= snapshot.next_group_id:
        raise ValueError("a group id was never issued")
    issued = [name.producer_id for name in snapshot.names]
    issued += [block.first_producer_id for block in snapshot.blocks]
    if not all(0 < producer_id < snapshot.next_producer_id for producer_id in issued):
        raise ValueError("a producer id was never issued")
    for block, after in pairwise(snapshot.blocks):
        if after.first_producer_id <= block.first_producer_id:
            raise ValueError("producer id blocks are out of order")
        if after.issued_ms < block.issued_ms:
            raise ValueError("the times of producer id blocks are out of order")


def _check_unique(what: str, values: Iterable[object]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {value!r} stands twice")
        seen.add(value)
