"""The metadata group's state machine: nodes, topics, producer id blocks, producer names.

Every node holds the whole state. A command is proposed by any node, stamped by
the node that leads the metadata group, committed, and applied here in log order.
Apply is a deterministic function of the command and the state before it: time
is the highest stamp applied so far, and a rejected command changes nothing at
all. `dump` gives the same bytes on every replica that has applied the same log.

What the rest of the node must do about a change (open a group, close one)
comes out of `take_events`; after `load` it is the difference to before.

Lease lifetime and name expiry decide what a replica forgets, so they come with
the commands, from the settings of the node that leads at that moment. The
shortest ever stamped is in force for good: an increase is ignored, because what
was forgotten under the shorter time would count as valid again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from google.protobuf.message import DecodeError

from cluster.metadata import topics as rules
from cluster.metadata.events import (
    Event,
    NodeRegistered,
    TermsChanged,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    difference,
)
from cluster.metadata.producer_ids import IssuedBlocks
from cluster.metadata.producer_names import NameState, ProducerNames
from cluster.metadata.snapshot import check_snapshot, name_of, name_record, topic_of, topic_record
from cluster.metadata.topics import (
    DAY_MS,
    PartitionState,
    Rejected,
    TopicSettings,
    TopicState,
    invalid,
)
from cluster.v1 import metadata_pb2 as pb

__all__ = [
    "Event",
    "MetadataCorruptError",
    "MetadataState",
    "NodeRegistered",
    "TermsChanged",
    "TopicAltered",
    "TopicCreated",
    "TopicDeleted",
]

# Ids below are the node's own groups, such as the metadata group itself.
FIRST_PARTITION_GROUP_ID = 16
MAX_NODES = 64
MAX_ADDRESS_CHARS = 255
MAX_BLOCK_SIZE = 100_000
MAX_PRODUCER_ID = 2**63 - 1


class MetadataCorruptError(Exception):
    """A stored command or snapshot is not one. The replica must stop."""


class MetadataState:
    """The replicated state. All times are milliseconds since the Unix epoch."""

    def __init__(
        self, *, lease_lifetime_ms: int = DAY_MS, name_expiry_ms: int = 7 * DAY_MS
    ) -> None:
        """The arguments hold until a command has brought others; the same on all nodes."""
        assert name_expiry_ms >= lease_lifetime_ms > 0
        self._defaults = (lease_lifetime_ms, name_expiry_ms)
        self._events: list[Event] = []
        self.applied_index = 0
        self._clear()

    def _clear(self) -> None:
        self.clock_ms = 0
        self._stamped = (0, 0)  # lease lifetime, name expiry; 0: no command had one
        self.next_producer_id = 1
        self._next_group_id = FIRST_PARTITION_GROUP_ID
        self._next_topic_id = 1
        self._nodes: dict[int, str] = {}
        self._directories: dict[int, int] = {}
        self._topics: dict[str, TopicState] = {}
        self._groups: dict[int, tuple[str, int]] = {}
        self._names = ProducerNames()
        self._blocks = IssuedBlocks()

    # --- queries -------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[int, str]:
        """Node id -> the address that clients use."""
        return MappingProxyType(self._nodes)

    @property
    def lease_lifetime_ms(self) -> int:
        """How long a producer id is valid: what is in force, whatever a node's settings say."""
        return self._stamped[0] or self._defaults[0]

    @property
    def name_expiry_ms(self) -> int:
        """Idle time after which a name holds its producer id no longer."""
        # Shorter than a lease, it would free an id that can still be leased.
        return max(self._stamped[1] or self._defaults[1], self.lease_lifetime_ms)

    def directory_of(self, node_id: int) -> int:
        """The id of the data directory that the node registered; 0 if it did not."""
        return self._directories.get(node_id, 0)

    @property
    def partition_count(self) -> int:
        return len(self._groups)

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def topics(self) -> list[TopicState]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def partition(self, group_id: int) -> tuple[TopicState, int, PartitionState] | None:
        """(topic, partition number, partition) of a group."""
        found = self._groups.get(group_id)
        if found is None:
            return None
        topic = self._topics[found[0]]
        return topic, found[1], topic.partitions[found[1]]

    def group_of(self, topic: str, partition: int) -> int | None:
        """The group of a partition; None if there is no such topic or partition."""
        known = self._topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return known.partitions[partition].group_id

    def groups_of(self, node_id: int) -> list[int]:
        """The groups of which a node holds a replica, rising."""
        return sorted(
            partition.group_id
            for topic in self._topics.values()
            for partition in topic.partitions
            if node_id in partition.replicas
        )

    def names(self) -> list[NameState]:
        """Producer names that are in use, by name."""
        return sorted((n for n in self._names if not n.tombstone), key=lambda n: n.name)

    def name(self, name: str) -> NameState | None:
        """A producer name, tombstones included."""
        return self._names.get(name)

    def holder(self, producer_id: int) -> NameState | None:
        """The name that holds a producer id, if one does."""
        return self._names.holder(producer_id)

    def is_issued(self, producer_id: int) -> bool:
        """Whether the id was issued, as far as this node has applied the log."""
        return 0 < producer_id < self.next_producer_id

    def issued_ms(self, producer_id: int) -> int | None:
        """When an issued id's lease began; None if that is over and forgotten."""
        assert self.is_issued(producer_id), producer_id
        return self._blocks.issued_ms(producer_id)

    def expired_below(self, now_ms: int, lifetime_ms: int) -> int:
        """The expiry watermark: ids below it are expired unless a name holds them."""
        return self._blocks.expired_below(now_ms, lifetime_ms, self.next_producer_id)

    def take_events(self) -> list[Event]:
        """What changed since the last call, in order."""
        events, self._events = self._events, []
        return events

    # --- apply ---------------------------------------------------------------------

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply the committed `command` (a MetadataCommand) at log `index`.

        Returns a serialized MetadataResult; its `error` is empty or says why the
        command was rejected. Raises MetadataCorruptError if it is no command.
        """
        assert index > self.applied_index, (index, self.applied_index)
        try:
            parsed = pb.MetadataCommand.FromString(command)
        except DecodeError as error:
            raise MetadataCorruptError(f"metadata command at index {index}: {error}") from error
        now_ms = max(self.clock_ms, parsed.stamp_ms)
        stamped = self._stamped
        self._stamped = (
            _shorter(stamped[0], parsed.lease_lifetime_ms),
            _shorter(stamped[1], parsed.producer_name_expiry_ms),
        )
        try:
            result = self._dispatch(parsed, now_ms)
        except Rejected as rejected:
            self._stamped = stamped
            result = pb.MetadataResult(error=rejected.reason, message=str(rejected))
        else:
            self.clock_ms = now_ms
            if self._stamped != stamped:
                self._events.append(TermsChanged())
            self._names.sweep(now_ms, self.name_expiry_ms)
            self._blocks.forget(now_ms, self.lease_lifetime_ms)
        self.applied_index = index
        result.stamp_ms = self.clock_ms
        result.applied_index = index
        return result.SerializeToString(deterministic=True)

    def _dispatch(self, command: pb.MetadataCommand, now_ms: int) -> pb.MetadataResult:
        """Run one command. Each either raises Rejected, before any change, or succeeds."""
        match command.WhichOneof("command"):
            case "register_node":
                return self._register_node(command.register_node)
            case "create_topic":
                return self._create_topic(command.create_topic, now_ms)
            case "delete_topic":
                return self._delete_topic(command.delete_topic)
            case "alter_topic":
                return self._alter_topic(command.alter_topic)
            case "allocate_producer_ids":
                return self._allocate_producer_ids(command.allocate_producer_ids, now_ms)
            case "lease_name":
                return self._lease_name(command.lease_name, now_ms)
        raise Rejected(rules.NOT_SUPPORTED, "the command is not known to this version")

    def _register_node(self, command: pb.RegisterNode) -> pb.MetadataResult:
        if command.node_id < 1:
            raise invalid("node_id", f"{command.node_id} must be at least 1")
        if not 1 <= len(command.address) <= MAX_ADDRESS_CHARS:
            raise invalid("address", f"must have 1..{MAX_ADDRESS_CHARS} characters")
        if command.node_id not in self._nodes and len(self._nodes) >= MAX_NODES:
            raise invalid("node_id", f"the cluster has {MAX_NODES} nodes, which is the limit")
        known = self._directories.get(command.node_id, 0)
        if known and command.directory_id != known:
            raise invalid(
                "directory_id", f"node {command.node_id} is registered with another data directory"
            )
        if command.directory_id:
            self._directories[command.node_id] = command.directory_id
        if self._nodes.get(command.node_id) != command.address:
            self._nodes[command.node_id] = command.address
            self._events.append(NodeRegistered(command.node_id, command.address))
        return pb.MetadataResult()

    def _create_topic(self, command: pb.CreateTopic, now_ms: int) -> pb.MetadataResult:
        if command.name not in rules.INTERNAL_TOPICS:
            rules.check_topic_name(command.name)
        if command.name in self._topics:
            raise Rejected(rules.TOPIC_ALREADY_EXISTS, f"topic {command.name!r} already exists")
        placements = [tuple(placement.replicas) for placement in command.placements]
        rules.check_placements(placements, self._nodes)
        settings = TopicSettings().altered(command.config, set_expected_offsets=True)
        if len(self._topics) >= rules.MAX_TOPICS:
            raise invalid("name", f"there are {rules.MAX_TOPICS} topics, which is the limit")
        if len(self._groups) + len(placements) > rules.MAX_PARTITIONS:
            text = f"the cluster has {len(self._groups)}, its limit is {rules.MAX_PARTITIONS}"
            raise invalid("partitions", text)
        first = self._next_group_id
        partitions = tuple(PartitionState(first + i, nodes) for i, nodes in enumerate(placements))
        topic = TopicState(command.name, self._next_topic_id, partitions, settings, now_ms)
        self._next_group_id += len(partitions)
        self._next_topic_id += 1
        self._put_topic(topic)
        self._events.append(TopicCreated(topic))
        return pb.MetadataResult()

    def _delete_topic(self, command: pb.DeleteTopic) -> pb.MetadataResult:
        topic = self._users_topic(command.name)
        del self._topics[topic.name]
        for partition in topic.partitions:
            del self._groups[partition.group_id]
        self._events.append(TopicDeleted(topic))
        return pb.MetadataResult()

    def _alter_topic(self, command: pb.AlterTopic) -> pb.MetadataResult:
        topic = self._users_topic(command.name)
        settings = topic.settings.altered(
            command.config, set_expected_offsets=command.set_expected_offsets
        )
        if settings != topic.settings:
            topic = replace(topic, settings=settings)
            self._topics[topic.name] = topic
            self._events.append(TopicAltered(topic))
        return pb.MetadataResult()

    def _allocate_producer_ids(
        self, command: pb.AllocateProducerIds, now_ms: int
    ) -> pb.MetadataResult:
        if not 1 <= command.count <= MAX_BLOCK_SIZE:
            raise invalid("count", f"{command.count} must be 1..{MAX_BLOCK_SIZE}")
        first = self._take_ids(command.count, now_ms, command.node_id)
        return pb.MetadataResult(first_producer_id=first)

    def _lease_name(self, command: pb.LeaseName, now_ms: int) -> pb.MetadataResult:
        self._check_ids_left(1)
        common = (
            command.name, command.nonce, now_ms, self.name_expiry_ms, self.next_producer_id
        )  # fmt: skip
        held = (command.held_producer_id, command.held_epoch)
        if command.fence_only:
            name, fresh_id_used = self._names.fence(*common)
        else:
            name, fresh_id_used = self._names.lease(*common, held if held[0] else None)
        if fresh_id_used:
            self._take_ids(1, now_ms, node_id=0)
        return pb.MetadataResult(producer_id=name.producer_id, epoch=name.epoch)

    def _take_ids(self, count: int, now_ms: int, node_id: int) -> int:
        self._check_ids_left(count)
        first = self.next_producer_id
        self.next_producer_id += count
        self._blocks.add(first, now_ms, node_id, self.lease_lifetime_ms)
        return first

    def _check_ids_left(self, count: int) -> None:
        if self.next_producer_id + count > MAX_PRODUCER_ID:
            raise Rejected(rules.NOT_SUPPORTED, f"producer ids: {MAX_PRODUCER_ID} is the highest")

    def _users_topic(self, name: str) -> TopicState:
        topic = self._topics.get(name)
        if topic is None:
            raise Rejected(rules.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        if rules.is_internal(name):
            raise invalid("name", f"{name!r} is internal and cannot be changed")
        return topic

    def _put_topic(self, topic: TopicState) -> None:
        self._topics[topic.name] = topic
        for number, partition in enumerate(topic.partitions):
            self._groups[partition.group_id] = (topic.name, number)

    # --- snapshots -----------------------------------------------------------------

    def dump(self) -> bytes:
        """The state as a serialized MetadataSnapshot: equal states give equal bytes."""
        snapshot = pb.MetadataSnapshot(
            nodes=[
                pb.NodeRecord(node_id=i, address=a, directory_id=self.directory_of(i))
                for i, a in sorted(self._nodes.items())
            ],
            topics=[topic_record(topic) for topic in self.topics()],
            next_producer_id=self.next_producer_id,
            next_group_id=self._next_group_id,
            next_topic_id=self._next_topic_id,
            names=[name_record(name) for name in self._names],
            clock_ms=self.clock_ms,
            blocks=[
                pb.BlockRecord(first_producer_id=first, issued_ms=issued, node_id=node)
                for first, issued, node in self._blocks
            ],
            lease_lifetime_ms=self._stamped[0],
            producer_name_expiry_ms=self._stamped[1],
        )
        return snapshot.SerializeToString(deterministic=True)

    def load(self, data: bytes, index: int = 0) -> None:
        """Replace the state by that of a snapshot taken after log `index`.

        The difference comes out of `take_events`. Raises MetadataCorruptError and
        changes nothing if `data` is not a snapshot.
        """
        lifetime_ms, expiry_ms = self._defaults
        loaded = MetadataState(lease_lifetime_ms=lifetime_ms, name_expiry_ms=expiry_ms)
        try:
            snapshot = pb.MetadataSnapshot.FromString(data)
            check_snapshot(snapshot)
            loaded._fill(snapshot)
        except (DecodeError, ValueError, OverflowError) as error:
            raise MetadataCorruptError(f"metadata snapshot at index {index}: {error}") from error
        loaded._events = self._events + difference(self, loaded)
        loaded.applied_index = index
        vars(self).update(vars(loaded))

    def clear(self) -> None:
        """Back to the state before the first command, as `load` would."""
        self.load(MetadataState().dump())

    def _fill(self, snapshot: pb.MetadataSnapshot) -> None:
        self.clock_ms = snapshot.clock_ms
        self._stamped = (snapshot.lease_lifetime_ms, snapshot.producer_name_expiry_ms)
        self.next_producer_id = snapshot.next_producer_id
        self._next_group_id = snapshot.next_group_id
        self._next_topic_id = snapshot.next_topic_id
        self._nodes = {node.node_id: node.address for node in snapshot.nodes}
        self._directories = {
            node.node_id: node.directory_id for node in snapshot.nodes if node.directory_id
        }
        for record in snapshot.topics:
            self._put_topic(topic_of(record))
        self._names.restore(name_of(record) for record in snapshot.names)
        for block in snapshot.blocks:
            self._blocks.restore(block.first_producer_id, block.issued_ms, block.node_id)


def _shorter(in_force: int, stamped: int) -> int:
    """The shorter of two times; 0 is none."""
    return min(in_force, stamped) if in_force > 0 and stamped > 0 else max(in_force, stamped, 0)
