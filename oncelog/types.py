"""The values that users give and get: records, metadata of stored records, cluster facts.

Place in the flow: made by `wire/` from protobuf messages and by `_engine/` from
acknowledgements; plain data, no behaviour that does IO.

Units: `timestamp` is in milliseconds since the Unix epoch, as in Kafka; names that end
in `_us` are in microseconds, which is what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Header = tuple[str, bytes | None]

# Of a record that is given without a timestamp. No int64, so no stored record's own.
NOW_US = 2**63


class TopicPartition(NamedTuple):
    """A partition, by topic and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(NamedTuple):
    """One record, as read from the log or as given to `Producer.send_batch`."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp_us: int = NOW_US  # left out of what is sent: the time of the call
    topic: str = ""
    partition: int = -1
    offset: int = -1

    @property
    def timestamp(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self.timestamp_us // 1000

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class RecordMetadata(NamedTuple):
    """Where a record is stored, and as what. `offset` is -1 for a duplicate whose place
    the cluster no longer knows."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms, the record's own
    producer_id: int
    epoch: int
    sequence: int
    duplicate: bool  # an earlier attempt had stored it: a success

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class BatchMetadata(NamedTuple):
    """What `RecordMetadata` says, for a batch that was sent as one."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    timestamp: int  # ms, the highest of its records
    producer_id: int
    epoch: int
    base_sequence: int
    last_sequence: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer id to start with instead of a leased one.

    `next_sequences` says for each partition where to go on; partitions that are not
    named start at 0. `lease_token` is that of the id's lease; a partition that starts
    at 0 is refused without it.
    """

    producer_id: int
    epoch: int = 0
    next_sequences: Mapping[TopicPartition, int] = field(default_factory=dict)
    lease_token: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ProducerLease:
    """The right to use a producer id until `expire_ms`."""

    producer_id: int
    epoch: int
    expire_ms: int  # Unix time
    lifetime_ms: int  # from the moment of issue
    lease_token: bytes = field(default=b"", repr=False)  # what proves the lease to a partition


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node, as the answering node sees it."""

    node_id: int
    address: str
    alive: bool = True
    clock_disagrees: bool = False  # with a majority's: the node does not lead
    # What it runs: its release, the cluster versions that it takes part in, and the features
    # that it knows. Empty, and 0, while it is not heard.
    release: str = ""
    cluster_versions: tuple[int, int] = (0, 0)
    features: tuple[str, ...] = ()
    insecure: bool = False  # it listens without TLS beyond its machine


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What becomes of a node, as the answering node knows it."""

    node_id: int
    address: str  # empty: it has not joined
    alive: bool
    expected: bool  # it may join with a new data directory
    joining: bool  # it has one, and not the metadata yet
    leaving: bool
    drained: bool  # it leads nothing
    replicas: int
    leaderships: int
    coming: int  # partitions, and the metadata, of which its replica may not count yet
    going: int  # partitions of which its replica is to go
    waits_for: tuple[str, ...] = ()  # why what is to be done with it is not done yet
    coming_bytes: int = 0  # that it will hold of what comes to it
    copied_bytes: int = 0  # and holds by now

    @property
    def settled(self) -> bool:
        """Nothing is under way with it."""
        busy = self.expected or self.joining or self.leaving or self.coming or self.going
        return not busy and not (self.drained and self.leaderships)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's leader and replicas, as the answering node knows them."""

    partition: int
    leader_id: int  # 0: none known
    term: int
    replicas: tuple[int, ...]  # the first is preferred as leader
    log_start_offset: int = -1  # -1: the node that answered has no replica
    high_watermark: int = -1
    group_id: int = 0
    target: tuple[int, ...] = ()  # the nodes that it is being moved to; none: it is not moved
    added_ms: int = 0  # when the topic got it; 0: with its creation


class ExpectedOffsets(StrEnum):
    """What a topic does with a batch's expected offset."""

    CHECKED = "checked"  # checked where a batch carries one
    IGNORED = "ignored"
    REQUIRED = "required"  # a batch without one is refused


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """None means: the cluster's default, or, in `alter_topic`, leave as it is."""

    retention_ms: int | None = None  # -1: for ever
    retention_bytes: int | None = None  # -1: no limit
    max_batch_bytes: int | None = None
    expected_offsets: ExpectedOffsets | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic with its partitions."""

    name: str
    topic_id: int
    partitions: tuple[PartitionInfo, ...]
    config: TopicConfig
    created_ms: int

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def replica_count(self) -> int:
        return max((len(p.replicas) for p in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class UpgradeInfo:
    """What the cluster was upgraded to, and what it could be upgraded to."""

    cluster_version: int = 1
    features: tuple[str, ...] = ()  # that are on
    target_version: int = 1  # the same as above if nothing is pending
    target_features: tuple[str, ...] = ()
    hindered_by: tuple[str, ...] = ()

    @property
    def pending(self) -> bool:
        """Whether a node runs a release with more than is finalized."""
        now = (self.cluster_version, self.features)
        return (self.target_version, self.target_features) != now


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cluster, as the answering node sees it."""

    cluster_id: str
    answering_node_id: int
    controller_id: int  # leader of the metadata group; 0: not known
    nodes: tuple[NodeInfo, ...]
    topics: int
    partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    max_message_bytes: int
    upgrade: UpgradeInfo = UpgradeInfo()
    settings: Mapping[str, int] = field(default_factory=dict)  # what all nodes go by
    damaged_replicas: tuple[str, ...] = ()  # for people: which, and what is done about it

    @property
    def healthy(self) -> bool:
        """All nodes alive and of one time, a controller, all partitions led and replicated."""
        return (
            self.controller_id != 0
            and all(node.alive and not node.clock_disagrees for node in self.nodes)
            and not self.leaderless_partitions
            and not self.under_replicated_partitions
            and not self.damaged_replicas
        )


@dataclass(frozen=True, slots=True)
class RecentBatch:
    """One of the last batches of a producer in a partition."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    record_count: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition remembers of a producer: its last-seen entry."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_append_ms: int
    recent: tuple[RecentBatch, ...]  # oldest first


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """Allows, or denies, a principal operations on a topic, group, producer, sink, or the cluster.

    principal "*": whoever is known. name "*": all of the kind. operations ("*",): each.
    """

    principal: str
    operations: tuple[str, ...]
    kind: str
    name: str = ""  # the cluster has none
    prefix: bool = False  # name is how names begin
    deny: bool = False  # stands above all rules that allow


@dataclass(frozen=True, slots=True)
class Permissions:
    """The rules, and how the node that answered goes by them."""

    rules: tuple[PermissionRule, ...]
    enforced: bool
    caller: str  # the principal that the node sees; empty: it knows nobody


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of something a principal may use at each node.

    principal "*": each one that has no value of its own. value 0: no limit.
    """

    principal: str
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class ProducerName:
    """A producer name and the id and epoch it stands for."""

    name: str
    producer_id: int
    epoch: int
    last_lease_ms: int


class Resolution(StrEnum):
    """What became of a sequence whose acknowledgement was lost."""

    COMMITTED = "committed"
    NEVER = "never"  # not there and never will be
    NOT_YET = "not_yet"
    # It cannot come any more, but retention has deleted what would tell whether it did.
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class ResolvedSequence:
    """What `resolve_sequence` found; `offset` is the record's."""

    resolution: Resolution
    offset: int  # -1: not committed, or its place is no longer known
    last_sequence: int
    current_epoch: int


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """What a group commits for a partition: the next offset to read.

    With a `producer_id` the commit is checked as a batch of that producer is: an older
    epoch is fenced, a lower sequence refused, the same one a duplicate.
    """

    offset: int
    metadata: str = ""  # the group's own, at most 4096 bytes
    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group has committed for a partition."""

    offset: int
    metadata: str
    producer_id: int  # 0: committed without one
    epoch: int
    sequence: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group and for how many partitions it has committed offsets."""

    group: str
    offsets: int
    last_commit_ms: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that shares a group's partitions with others."""

    member_id: str
    instance_id: str  # empty: none
    client_host: str
    owned: Mapping[TopicPartition, int]  # with the number of each ownership
    revoking: tuple[TopicPartition, ...]  # asked back
    idle_ms: int  # since it last came back for records
    connected: bool  # to this coordinator


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group's committed offsets, and its members, if it has any."""

    group: str
    exists: bool
    last_commit_ms: int
    coordinator_id: int
    offsets: Mapping[TopicPartition, CommittedOffset]
    members: tuple[GroupMember, ...] = ()
    epoch: int = 0  # of the newest assignment
    assignor: str = ""


class PublishedRun(NamedTuple):
    """Where a transaction's records are in one partition: they lie together."""

    base_offset: int
    record_count: int


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """What a commit answers: where its records are. No places: it ended long ago."""

    transaction_id: int
    runs: Mapping[TopicPartition, PublishedRun]


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """What a transaction has in one partition."""

    topic: str  # empty: it was deleted
    partition: int
    ended: bool  # the partition knows the outcome
    staged_records: int  # now; -1: the partition's leader does not answer
    staged_bytes: int
    staged_offsets: int  # in __offsets: of groups


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction, and how far it is."""

    transaction_id: int
    state: str  # OPEN, COMMITTING, ABORTING, COMMITTED or ABORTED
    reason: str  # of an abort
    producer_name: str  # or the sink's
    sink: bool
    producer_id: int
    epoch: int
    begun_ms: int
    age_ms: int
    idle_timeout_ms: int
    total_timeout_ms: int
    staged_bytes: int  # in all partitions that answer
    partitions: Sequence[TransactionPart]


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """An output of a streaming query, or of batch jobs, and what it has committed."""

    sink: str
    jobs: bool
    query: str  # that it belongs to; empty: of jobs, or none yet
    run: str  # of the newest batch
    committed_batch: int  # the newest one; -1: none
    record_count: int  # of that
    open_transaction_id: int  # 0: none
    open_batch: int  # -1: none
    committed: tuple[tuple[int, int], ...]  # batches of jobs: first and last of each range
    before: tuple[str, int, int] | None  # query, batch, records when it was reset


__all__ = [
    "BatchMetadata",
    "ClusterInfo",
    "CommittedOffset",
    "CommittedTransaction",
    "ExpectedOffsets",
    "GroupDescription",
    "GroupInfo",
    "GroupMember",
    "Header",
    "NodeInfo",
    "OffsetCommit",
    "PartitionInfo",
    "PermissionRule",
    "Permissions",
    "ProducerIdentity",
    "ProducerLease",
    "ProducerName",
    "ProducerState",
    "PublishedRun",
    "Quota",
    "RecentBatch",
    "Record",
    "RecordMetadata",
    "Resolution",
    "ResolvedSequence",
    "SinkInfo",
    "TopicConfig",
    "TopicInfo",
    "TopicPartition",
    "TransactionInfo",
    "TransactionPart",
    "UpgradeInfo",
]
