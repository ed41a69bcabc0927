"""What the metadata group replicates, as one value: `MetadataState` holds it and replaces it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.features import Finalized
from cluster.metadata.producer_ids import IssuedBlocks
from cluster.metadata.producer_names import ProducerNames
from cluster.metadata.registrations import Registration
from cluster.metadata.topics import PartitionState, TopicState
from cluster.security.permissions import Rule
from cluster.security.quotas import Quota
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
    rules, quotas: who may do what, and how much; rising, another tuple after each change.
    rules_version: how often the rules were changed.
    peers: node id -> where the node takes its peers' streams, of those that said it.
    expected, joining, leaving: see nodes.py. drained: nodes that lead nothing.
    balancing: whether partitions move until the nodes hold alike.
    registrations: the starts of nodes that were registered last, see registrations.py.
    own: the metadata group's replicas, as reported; none before its first change. It has a
        target as long as one of them is a learner.
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
    quotas: tuple[Quota, ...] = ()
    peers: dict[int, str] = field(default_factory=dict)
    expected: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    drained: set[int] = field(default_factory=set)
    joining: set[int] = field(default_factory=set)
    balancing: bool = False
    registrations: dict[int, Registration] = field(default_factory=dict)
    own: PartitionState = field(default_factory=lambda: PartitionState(METADATA_GROUP, ()))

    def topics_by_name(self) -> list[TopicState]:
        return [self.topics[name] for name in sorted(self.topics)]

    def put_topic(self, topic: TopicState) -> None:
        self.topics[topic.name] = topic
        for number, partition in enumerate(topic.partitions):
            self.groups[partition.group_id] = (topic.name, number)

    def drop_topic(self, name: str) -> None:
        groups = [partition.group_id for partition in self.topics.pop(name).partitions]
        for group in groups:
            del self.groups[group]
        self.coordinator.groups_gone(groups)
