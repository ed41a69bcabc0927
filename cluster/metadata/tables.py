"""Tables of the metadata group as one replicated value: `MetadataState` replaces it as a whole."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from cluster.features import REPLICA_CHANGES, Finalized
from cluster.metadata.node_loads import NodeLoads
from cluster.metadata.places import NodePlace
from cluster.metadata.producer_ids import IssuedBlocks
from cluster.metadata.producer_names import ProducerNames
from cluster.metadata.registrations import Registration
from cluster.metadata.topics import PartitionState, TopicState
from cluster.security.permissions import Rule
from cluster.security.quotas import QuotaRow
from cluster.transactions.coordinator import Coordinator

# Ids below are the node's own groups, such as the metadata group itself.
FIRST_PARTITION_GROUP_ID = 16
METADATA_GROUP = 0


@dataclass(slots=True)
class Tables:
    """The replicated tables and counters. All times are milliseconds since the Unix epoch.

    stamped: lease lifetime, name expiry; 0: no command had one.
    nodes: node id -> the address that clients use.
    directories: node id -> the id of the data directory that it registered.
    lease_secret: the key of lease tokens; empty: not made yet.
    groups: group id -> (topic, partition number). It follows from `topics`.
    finalized: the cluster version and the features that are on.
    coordinator: all transactions.
    settings: the cluster's, see settings.py; none: not founded yet.
    rules, quotas: permissions and limits; rising, another tuple after each change.
    rules_version: how often the rules were changed.
    peers: node id -> the address for its peers' streams, if the node reported it.
    kafka: node id -> the address for clients of Kafka's protocol, if it has one.
    places: node id -> its rack and machine, if it has a label.
    expected, joining, leaving: see nodes.py. drained: nodes that lead nothing.
    balancing: whether partitions move until the nodes are level.
    layout_version: how often nodes, topics and replicas were changed since replica changes are on.
    registrations: the starts of nodes that were registered last, see registrations.py.
    own: the metadata group's replicas, as reported; none before its first change. It has a target
        as long as one of them is a learner, unless learners may stay.
    learners: the nodes of these replicas that have no vote; none without the feature for them.

    Not replicated, as they follow from `topics`: loads: of each node. touched: groups with a
    partition that was added, changed or removed since the node looked last.
    """

    clock_ms: int = 0
    stamped: tuple[int, int] = (0, 0)
    next_producer_id: int = 1
    next_group_id: int = FIRST_PARTITION_GROUP_ID
    next_topic_id: int = 1
    lease_secret: bytes = b""
    nodes: dict[int, str] = field(default_factory=dict)
    directories: dict[int, int] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    groups: dict[int, tuple[str, int]] = field(default_factory=dict)
    names: ProducerNames = field(default_factory=ProducerNames)
    blocks: IssuedBlocks = field(default_factory=IssuedBlocks)
    finalized: Finalized = field(default_factory=Finalized)
    coordinator: Coordinator = field(default_factory=Coordinator)
    settings: dict[str, int] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    rules_version: int = 0
    quotas: tuple[QuotaRow, ...] = ()
    peers: dict[int, str] = field(default_factory=dict)
    kafka: dict[int, str] = field(default_factory=dict)
    places: dict[int, NodePlace] = field(default_factory=dict)
    expected: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    drained: set[int] = field(default_factory=set)
    joining: set[int] = field(default_factory=set)
    balancing: bool = False
    layout_version: int = 0
    registrations: dict[int, Registration] = field(default_factory=dict)
    own: PartitionState = field(default_factory=lambda: PartitionState(METADATA_GROUP, ()))
    learners: tuple[int, ...] = ()
    loads: NodeLoads = field(default_factory=NodeLoads, compare=False)
    touched: set[int] = field(default_factory=set, compare=False)

    def trial(self) -> Tables:
        """Returns a copy, to try a change of nodes on."""
        return replace(
            self,
            nodes=dict(self.nodes),
            directories=dict(self.directories),
            topics=dict(self.topics),
            groups=dict(self.groups),
            peers=dict(self.peers),
            kafka=dict(self.kafka),
            places=dict(self.places),
            expected=set(self.expected),
            leaving=set(self.leaving),
            drained=set(self.drained),
            joining=set(self.joining),
            registrations=dict(self.registrations),
            loads=self.loads.copy(),
            touched=set(),
        )

    def layout_changed(self) -> None:
        """Raises the version after a change of nodes, topics or replicas: older plans are void."""
        if self.finalized.has(REPLICA_CHANGES):  # releases without it do not know the number
            self.layout_version += 1

    def topics_by_name(self) -> list[TopicState]:
        topics = self.topics.copy()  # the metrics' thread asks, too
        return [topics[name] for name in sorted(topics)]

    def put_topic(self, topic: TopicState) -> None:
        before = self.topics.get(topic.name)
        known = before.partitions if before is not None else ()
        self.topics[topic.name] = topic
        for number, partition in enumerate(topic.partitions):
            was = known[number] if number < len(known) else None
            if was is partition:
                continue
            self.groups[partition.group_id] = (topic.name, number)
            self.touched.add(partition.group_id)
            if was is None or was.placed != partition.placed:
                self.loads.add(partition.placed)
                if was is not None:
                    self.loads.add(was.placed, -1)

    def take_touched(self) -> Collection[int]:
        touched, self.touched = self.touched, set()
        return touched

    def drop_topic(self, name: str) -> None:
        partitions = self.topics.pop(name).partitions
        for partition in partitions:
            del self.groups[partition.group_id]
            self.loads.add(partition.placed, -1)
        groups = [partition.group_id for partition in partitions]
        self.touched.update(groups)
        self.coordinator.groups_gone(groups)
