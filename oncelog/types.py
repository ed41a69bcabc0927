"""Public values: records, metadata of stored records, facts about the cluster.

Place in the flow: `wire/` makes them from protobuf messages and `_engine/` from acknowledgements.
They are plain data without IO.

Units: `timestamp` is in milliseconds since the Unix epoch, as in Kafka; names that end
in `_us` are in microseconds, the stored unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Header = tuple[str, bytes | None]

# Timestamp of a record given without one. It exceeds int64, so no stored record has it.
NOW_US = 2**63


class TopicPartition(NamedTuple):
    """A partition, by topic and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(NamedTuple):
    """One record, read from the log or given to `Producer.send_batch`."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp_us: int = NOW_US  # default: the time of the call
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
    """Place of a stored record. `offset` is -1 for a duplicate whose place is forgotten."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms, of the record
    producer_id: int
    epoch: int
    sequence: int
    duplicate: bool  # an earlier attempt had stored it: a success

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class BatchMetadata(NamedTuple):
    """Place of a batch that was sent as one; see `RecordMetadata`."""

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

    `next_sequences` gives the next sequence of each partition; partitions that you omit start at 0.
    `lease_token` belongs to the lease of the id; a partition that starts at 0 rejects batches
    without it.
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
    lease_token: bytes = field(default=b"", repr=False)  # proves the lease to a partition


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node, as the answering node sees it."""

    node_id: int
    address: str
    alive: bool = True
    clock_disagrees: bool = False  # from a majority's: the node does not lead
    # The node's release, the cluster versions it supports and the features it knows. Empty, and 0,
    # while the node is unreachable.
    release: str = ""
    cluster_versions: tuple[int, int] = (0, 0)
    features: tuple[str, ...] = ()
    insecure: bool = False  # it listens without TLS beyond its machine


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Changes of a node in progress, as the answering node knows them."""

    node_id: int
    address: str  # empty: it has not joined
    alive: bool
    expected: bool  # it may join with a new data directory
    joining: bool  # it has one, and not the metadata yet
    leaving: bool
    drained: bool  # it leads nothing
    replicas: int
    leaderships: int
    coming: int  # partitions (and the metadata) with a replica here that may not count yet
    going: int  # partitions with a replica here that is to be removed
    waits_for: tuple[str, ...] = ()  # reasons why the change is not done yet
    coming_bytes: int = 0  # bytes of the replicas that come, when complete
    copied_bytes: int = 0  # bytes of them that are here now
    rack: str = ""  # label; empty: none
    machine: str = ""
    metadata_learner: bool = False  # it holds the metadata without a vote on it

    @property
    def settled(self) -> bool:
        """True if no change of the node is in progress."""
        busy = self.expected or self.joining or self.leaving or self.coming or self.going
        return not busy and not (self.drained and self.leaderships)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's leader and replicas, as the answering node knows them."""

    partition: int
    leader_id: int  # 0: none known
    term: int
    replicas: tuple[int, ...]  # the first is preferred as leader
    log_start_offset: int = -1  # -1: the answering node has no replica
    high_watermark: int = -1
    group_id: int = 0
    target: tuple[int, ...] = ()  # nodes the partition moves to; empty: it does not move
    added_ms: int = 0  # when the partition was added; 0: with the topic
    cleaned_offset: int | None = None  # of a compacted topic: end of the compacted records


class ExpectedOffsets(StrEnum):
    """A topic's rule for the expected offset of a batch."""

    CHECKED = "checked"  # checked if the batch has one
    IGNORED = "ignored"
    REQUIRED = "required"  # a batch without one is rejected


class TopicFormats(StrEnum):
    """Formats of the batches that a topic takes."""

    COLUMNAR = "columnar"
    KAFKA = "kafka"  # of clients of Kafka's protocol
    BOTH = "both"


class CleanupPolicy(StrEnum):
    """Treatment of a topic's old records."""

    DELETE = "delete"  # they are deleted by the limits of retention
    COMPACT = "compact"  # each key's newest record stays, for ever
    COMPACT_DELETE = "compact_delete"  # it stays up to the limits of retention


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """None is the cluster's default; in `alter_topic` the setting keeps its value."""

    retention_ms: int | None = None  # -1: for ever
    retention_bytes: int | None = None  # -1: no limit
    max_batch_bytes: int | None = None
    expected_offsets: ExpectedOffsets | None = None
    # Of an existing topic it can only change to both. Not columnar: needs the feature "kafka".
    formats: TopicFormats | None = None
    # Not delete: needs the feature "compaction", as the settings below do.
    cleanup_policy: CleanupPolicy | None = None
    min_compaction_lag_ms: int | None = None  # records stay as they are for so long
    max_compaction_lag_ms: int | None = None  # and are compacted at the latest then; -1: no limit
    delete_retention_ms: int | None = None  # how long a record without a value stays after it
    min_cleanable_dirty_ratio: float | None = None  # share of new bytes that makes one due


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
    """Finalized version of the cluster, and the version it can be upgraded to."""

    cluster_version: int = 1
    features: tuple[str, ...] = ()  # features in use
    target_version: int = 1  # as above if nothing is pending
    target_features: tuple[str, ...] = ()
    hindered_by: tuple[str, ...] = ()

    @property
    def pending(self) -> bool:
        """True if a node runs a release with more than is finalized."""
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
    settings: Mapping[str, int] = field(default_factory=dict)  # of all nodes
    damaged_replicas: tuple[str, ...] = ()  # one text each: the replica, and its repair
    founding: str = ""  # of the answering node, as OtherClusterError names it; "": not told
    # One text each: a partition with a majority in one rack, and the next step.
    crowded_partitions: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """True if nodes live, clocks agree, and controller, leaders and replicas are there."""
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
    """A partition's memory of a producer: its last-seen entry."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_append_ms: int
    recent: tuple[RecentBatch, ...]  # oldest first


@dataclass(frozen=True, slots=True)
class ProducerEpoch:
    """The epoch of a producer id: batches of lower epochs are fenced."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerName:
    """A producer name with its id and epoch."""

    name: str
    producer_id: int
    epoch: int
    last_lease_ms: int


class Resolution(StrEnum):
    """Outcome of a sequence after its acknowledgement was lost."""

    COMMITTED = "committed"
    NEVER = "never"  # not stored, and never will be
    NOT_YET = "not_yet"
    # Retention or compaction has deleted the evidence of whether it was stored. It cannot be stored
    # any more, unless its id is a Kafka client's.
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class ResolvedSequence:
    """Result of `resolve_sequence`; `offset` is the record's."""

    resolution: Resolution
    offset: int  # -1: not committed, or its place is forgotten
    last_sequence: int
    current_epoch: int
    epoch: int = -1  # that stored it, or that was asked for


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A group's commit for a partition: the next offset to read.

    With a `producer_id` the commit is checked like a batch of that producer: an older epoch is
    fenced, a lower sequence rejected, an equal sequence is a duplicate.
    """

    offset: int
    metadata: str = ""  # free text of the group, at most 4096 bytes
    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in a partition."""

    offset: int
    metadata: str
    producer_id: int  # 0: committed without one
    epoch: int
    sequence: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group and the number of partitions with an offset committed by it.

    protocol: of its members, "oncelog" or "kafka"; empty: it has none.
    """

    group: str
    offsets: int
    last_commit_ms: int
    members: int = 0
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that shares a group's partitions with others."""

    member_id: str
    instance_id: str  # empty: none
    client_host: str
    owned: Mapping[TopicPartition, int]  # with the number of each ownership
    revoking: tuple[TopicPartition, ...]  # asked back
    idle_ms: int  # since it last asked for records
    connected: bool  # to this coordinator


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group's committed offsets, and its members, if it has any.

    protocol: as in GroupInfo. Of Kafka's clients, the epoch and the ownerships are the generation.
    """

    group: str
    exists: bool
    last_commit_ms: int
    coordinator_id: int
    offsets: Mapping[TopicPartition, CommittedOffset]
    members: tuple[GroupMember, ...] = ()
    epoch: int = 0  # of the newest assignment
    assignor: str = ""
    protocol: str = ""


class PublishedRun(NamedTuple):
    """Place of a transaction's records in one partition: they are contiguous."""

    base_offset: int
    record_count: int


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """Answer to a commit: the places of its records; empty if it ended long ago."""

    transaction_id: int
    runs: Mapping[TopicPartition, PublishedRun]


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """Part of a transaction in one partition."""

    topic: str  # empty: it was deleted
    partition: int
    ended: bool  # the partition knows the outcome
    staged_records: int  # now; -1: the partition's leader does not answer
    staged_bytes: int
    staged_offsets: int  # in __offsets, by groups


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction and its progress."""

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
    """Output of a streaming query or of batch jobs, with its committed batches."""

    sink: str
    jobs: bool
    query: str  # of the query it belongs to; empty: of jobs, or none yet
    run: str  # of the newest batch
    committed_batch: int  # the newest; -1: none
    record_count: int  # of the newest batch
    open_transaction_id: int  # 0: none
    open_batch: int  # -1: none
    committed: tuple[tuple[int, int], ...]  # batches of jobs: first and last of each range
    before: tuple[str, int, int] | None  # query, batch, records before the last reset


__all__ = [
    "BatchMetadata",
    "CleanupPolicy",
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
    "ProducerEpoch",
    "ProducerIdentity",
    "ProducerLease",
    "ProducerName",
    "ProducerState",
    "PublishedRun",
    "RecentBatch",
    "Record",
    "RecordMetadata",
    "Resolution",
    "ResolvedSequence",
    "SinkInfo",
    "TopicConfig",
    "TopicFormats",
    "TopicInfo",
    "TopicPartition",
    "TransactionInfo",
    "TransactionPart",
    "UpgradeInfo",
]
