package oncelog

import (
	"fmt"
	"time"
)

// TopicPartition is a partition, by topic and number.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns topic and number, joined by a hyphen.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Header is a name with a value beside a record. A nil Value is a null.
type Header struct {
	Key   string
	Value []byte
}

// Message is a record to be sent. A nil Value or Key is a null, an empty one is not.
type Message struct {
	Topic   string
	Value   []byte
	Key     []byte
	Headers []Header
	// Timestamp zero means the time of the call. Microseconds are stored.
	Timestamp time.Time
}

// Record is a record as it is stored. Its bytes share the memory of its batch: copy them to
// keep few records of many.
type Record struct {
	Topic       string
	Partition   int32
	Offset      int64
	TimestampUs int64 // microseconds since the Unix epoch
	Value       []byte
	Key         []byte
	Headers     []Header
}

// Time returns the record's timestamp.
func (r *Record) Time() time.Time { return time.UnixMicro(r.TimestampUs) }

// Metadata is the place of a record, or of a batch that was sent as one, and its numbers.
type Metadata struct {
	Topic     string
	Partition int32
	// Offset is the (first) record's; -1 for a duplicate if the cluster no longer knows its place, and
	// for a record of a transaction, until that is committed.
	Offset int64
	// Sequence and LastSequence are the same for a single record, and -1 without idempotence.
	Sequence     int64
	LastSequence int64
	ProducerID   int64
	Epoch        int32
	// Duplicate: an earlier attempt had stored it. That is a success.
	Duplicate bool
}

// ProducerIdentity is a producer id to start with instead of a leased one.
type ProducerIdentity struct {
	ProducerID int64
	Epoch      int32
	// LeaseToken is that of the id's lease; a partition that starts at 0 is refused without it.
	LeaseToken []byte
	// NextSequences says for each partition where to go on; others start at 0.
	NextSequences map[TopicPartition]int64
}

// ProducerLease is the right to use a producer id until ExpireMs.
type ProducerLease struct {
	ProducerID int64
	Epoch      int32
	ExpireMs   int64 // Unix time
	Lifetime   time.Duration
	LeaseToken []byte
}

// Resolution is the outcome of a sequence without an acknowledgement.
type Resolution string

const (
	// Committed: it is stored.
	Committed Resolution = "committed"
	// Never: it is not there and never will be.
	Never Resolution = "never"
	// NotYet: it is not stored, but a copy on its way may still come.
	NotYet Resolution = "not_yet"
	// Forgotten: retention or compaction has deleted the evidence of whether it was stored. It
	// cannot be stored any more, unless its id is a Kafka client's.
	Forgotten Resolution = "forgotten"
)

// ResolvedSequence is the finding of Resolve; Offset is the record's, or -1.
type ResolvedSequence struct {
	Resolution   Resolution
	Offset       int64
	LastSequence int64
	CurrentEpoch int32
}

// NodeInfo is a node, as the answering node sees it.
type NodeInfo struct {
	NodeID  int32
	Address string
	Alive   bool
	// ClockDisagrees: with a majority's, so the node does not lead.
	ClockDisagrees bool
	// Its release: its release, the cluster versions that it takes part in, and the features
	// that it knows. Empty, and 0, while it is not heard.
	Release              string
	OldestClusterVersion int32
	NewestClusterVersion int32
	Features             []string
	Insecure             bool // it listens without TLS beyond its machine
}

// UpgradeInfo is the cluster's version, and the version it could be upgraded to.
type UpgradeInfo struct {
	ClusterVersion int32
	Features       []string // that are on
	TargetVersion  int32    // the same as above if nothing is pending
	TargetFeatures []string
	HinderedBy     []string // for people: a line for each node that stands in the way
}

// PartitionInfo is a partition's leader and replicas, as the answering node knows them.
type PartitionInfo struct {
	Partition      int32
	LeaderID       int32 // 0: none known
	Term           int64
	Replicas       []int32 // the first is preferred as leader
	LogStartOffset int64   // -1: the node that answered has no replica
	HighWatermark  int64
	GroupID        uint64
	Target         []int32 // the nodes that it is being moved to; empty: it is not moved
	AddedMs        int64   // when the topic got it; 0: with its creation
}

// ExpectedOffsets is a topic's treatment of a batch's expected offset.
type ExpectedOffsets string

const (
	// ExpectedOffsetsChecked checks it where a batch carries one.
	ExpectedOffsetsChecked ExpectedOffsets = "checked"
	// ExpectedOffsetsIgnored does nothing with it.
	ExpectedOffsetsIgnored ExpectedOffsets = "ignored"
	// ExpectedOffsetsRequired refuses a batch without one.
	ExpectedOffsetsRequired ExpectedOffsets = "required"
)

// TopicFormats are the formats of the batches that a topic takes.
type TopicFormats string

const (
	// TopicFormatsColumnar takes batches of this protocol.
	TopicFormatsColumnar TopicFormats = "columnar"
	// TopicFormatsKafka takes batches of Kafka's protocol.
	TopicFormatsKafka TopicFormats = "kafka"
	// TopicFormatsBoth takes either.
	TopicFormatsBoth TopicFormats = "both"
)

// CleanupPolicy is the treatment of a topic's old records.
type CleanupPolicy string

const (
	// CleanupPolicyDelete deletes them by the limits of retention.
	CleanupPolicyDelete CleanupPolicy = "delete"
	// CleanupPolicyCompact keeps each key's newest record, for ever.
	CleanupPolicyCompact CleanupPolicy = "compact"
	// CleanupPolicyCompactDelete keeps each key's newest record, up to the limits of retention.
	CleanupPolicyCompactDelete CleanupPolicy = "compact_delete"
)

// TopicConfig holds a topic's settings. A nil or empty field has the cluster's default or, in
// AlterTopic, stays as it is.
type TopicConfig struct {
	RetentionMs     *int64 // -1: for ever
	RetentionBytes  *int64 // -1: no limit
	MaxBatchBytes   *int32
	ExpectedOffsets ExpectedOffsets

	// Formats of an existing topic can only change to both. Not columnar: needs the feature "kafka".
	Formats TopicFormats

	// CleanupPolicy and the settings below need the cluster's feature "compaction".
	CleanupPolicy          CleanupPolicy
	MinCompactionLagMs     *int64   // records stay as they are for so long
	MaxCompactionLagMs     *int64   // and are compacted at the latest then; -1: no limit
	DeleteRetentionMs      *int64   // how long a record without a value stays after it
	MinCleanableDirtyRatio *float64 // share of new bytes that makes one due
}

// TopicInfo is a topic with its partitions.
type TopicInfo struct {
	Name       string
	TopicID    uint64
	Partitions []PartitionInfo
	Config     TopicConfig
	CreatedMs  int64
}

// ClusterInfo is the cluster, as the answering node sees it.
type ClusterInfo struct {
	ClusterID                 string
	AnsweringNodeID           int32
	ControllerID              int32 // leader of the metadata group; 0: not known
	Nodes                     []NodeInfo
	Topics                    int32
	Partitions                int32
	LeaderlessPartitions      int32
	UnderReplicatedPartitions int32
	MaxMessageBytes           int64
	Upgrade                   UpgradeInfo
	// Settings are those of all nodes.
	Settings map[string]int64
	// DamagedReplicas names, for people, the replicas that have stopped for damage, and their repair.
	DamagedReplicas []string
	// Founding is the answering node's, as ErrOtherCluster names it; "": not told.
	Founding string
}

// ProducerName is a producer name and the id and epoch it stands for.
type ProducerName struct {
	Name        string
	ProducerID  int64
	Epoch       int32
	LastLeaseMs int64
}

// RecentBatch is one of the last batches of a producer in a partition.
type RecentBatch struct {
	FirstSequence int64
	LastSequence  int64
	BaseOffset    int64
	RecordCount   int32
	CRC32C        uint32
}

// ProducerState is a producer as a partition remembers it.
type ProducerState struct {
	ProducerID   int64
	Epoch        int32
	LastSequence int64
	LastAppendMs int64
	Recent       []RecentBatch // oldest first
}

// OffsetCommit is an offset that a group commits for a partition: the next offset to read. With a
// ProducerID it is checked as a batch of that producer is: an older epoch is fenced, a lower
// sequence refused, the same one a duplicate.
type OffsetCommit struct {
	Offset     int64
	Metadata   string // the group's own, at most 4096 bytes
	ProducerID int64
	Epoch      int32
	Sequence   int64
}

// CommittedOffset is a group's committed offset of a partition.
type CommittedOffset struct {
	OffsetCommit
	CommitMs int64
}

// GroupInfo is a group, and for how many partitions it has committed offsets.
type GroupInfo struct {
	Group        string
	Offsets      int32
	LastCommitMs int64
}

// GroupMember is a consumer that shares its group's partitions.
type GroupMember struct {
	MemberID   string
	InstanceID string // "": none
	ClientHost string
	Owned      map[TopicPartition]int64 // with the numbers of the ownerships
	Revoking   []TopicPartition         // of these, the partitions it was asked to give back
	Idle       time.Duration            // since it came back for records
	Connected  bool
}

// GroupDescription is a group's committed offsets, and its members.
type GroupDescription struct {
	Group         string
	Exists        bool
	LastCommitMs  int64
	CoordinatorID int32
	Offsets       map[TopicPartition]CommittedOffset
	Members       []GroupMember
	Epoch         int64 // of the newest assignment
	Assignor      Assignor
}
