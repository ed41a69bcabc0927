package oncelog

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ClientConfig holds the settings that all clients share.
type ClientConfig struct {
	// BootstrapServers are the nodes to begin with, as host:port; others are learned from them. The
	// default is the list in ONCELOG_BOOTSTRAP, or a node at 127.0.0.1:7001.
	BootstrapServers []string
	// ClientID names the client to the nodes.
	ClientID string
	// RequestTimeout is how long one request may take before it is tried again elsewhere.
	RequestTimeout time.Duration
	// RetryBackoff is the first pause before a retry; it doubles up to RetryBackoffMax.
	RetryBackoff    time.Duration
	RetryBackoffMax time.Duration
	// MetadataMaxAge is after how long leaders are asked for anew, without a reason.
	MetadataMaxAge time.Duration
	// Security is TLS, and the client's identity; without it everything goes in the clear.
	Security SecurityConfig
	// Logger receives events that no call returns: that no node answers, that a callback panicked.
	// Nil: slog.Default().
	Logger *slog.Logger
}

func (c *ClientConfig) logger() *slog.Logger {
	if c.Logger != nil {
		return c.Logger
	}
	return slog.Default()
}

// ProducerConfig holds the settings of a [Producer]; [NewProducer] fills in the defaults.
type ProducerConfig struct {
	ClientConfig
	// ProducerName is a stable name: a restart with the same name fences the instance before it.
	ProducerName string
	// ResumeFrom is a producer id to start with instead of a leased one.
	ResumeFrom *ProducerIdentity
	// EnableIdempotence makes retries harmless. Without it a retry may store a record again.
	EnableIdempotence bool
	// Linger is how long a batch that is not full waits for more records.
	Linger time.Duration
	// BatchSize closes a batch when its payload, before compression, has this many bytes.
	BatchSize int
	// BufferMemory bounds the records that wait in this process, sent and not yet acknowledged
	// included.
	BufferMemory int64
	// MaxBlock is how long Send may wait for room in the buffer or for a topic's metadata.
	MaxBlock time.Duration
	// Compression is applied to whole batches; CompressionLevel nil is the codec's default.
	Compression      Compression
	CompressionLevel *int
	// DeliveryTimeout is after how long a record without an acknowledgement is given up.
	DeliveryTimeout time.Duration
	// MaxInFlight is how many batches of one partition are on their way at the same time. Up
	// to 5 the cluster knows the offset of a repeated batch without looking it up.
	MaxInFlight int
	// Partitioner places messages that name no partition; nil: by key as Kafka does, and
	// without a key on one partition until its batch is closed.
	Partitioner Partitioner
}

// OffsetReset says where to start without a position, or go on when it is gone.
type OffsetReset string

const (
	// Earliest is the first record that is kept.
	Earliest OffsetReset = "earliest"
	// Latest is behind the last one.
	Latest OffsetReset = "latest"
	// NoReset returns [ErrOffsetOutOfRange] instead.
	NoReset OffsetReset = "none"
)

// Membership sets the part of a group in its consumers' work.
type Membership string

const (
	// Assigned: the nodes share topics out among the group's members.
	Assigned Membership = "assigned"
	// Manual: the group only keeps offsets, and each consumer reads the partitions it is given.
	Manual Membership = "manual"
)

// Assignor is how a group shares partitions out.
type Assignor string

const (
	// Uniform shares all topics out together, and leaves partitions where they are.
	Uniform Assignor = "uniform"
	// RangeAssignor gives a member the same stretch of each topic.
	RangeAssignor Assignor = "range"
)

// OnPartitions is told which partitions come or go, on the goroutine that polls. Poll returns its
// error when all changes are done.
type OnPartitions func(ctx context.Context, partitions []TopicPartition) error

// ConsumerConfig holds the settings of a [Consumer]; [NewConsumer] fills in the defaults.
type ConsumerConfig struct {
	ClientConfig
	// GroupID names the group that keeps the committed offsets.
	GroupID string
	// Membership is Assigned or Manual; it is moot without a GroupID.
	Membership Membership
	// GroupInstanceID is a name that outlives the process: one that comes back within a session
	// goes on as it was.
	GroupInstanceID string
	// The group's first member decides on these four. After SessionTimeout without a word a member
	// is none any more; it has RevokeTimeout to give a partition back, and ProcessingTimeout to
	// come back for more records.
	Assignor          Assignor
	SessionTimeout    time.Duration
	RevokeTimeout     time.Duration
	ProcessingTimeout time.Duration
	// EnableAutoCommit commits the records returned before the last Poll, each AutoCommitInterval and
	// before partitions are given back.
	EnableAutoCommit   bool
	AutoCommitInterval time.Duration
	// OnAssigned is called when partitions have come. OnRevoked before they go: their records that
	// were read can be finished and committed, until its context ends. OnLost when they are gone:
	// nothing can be committed. They are called by Poll and Close, which they must not call.
	OnAssigned, OnRevoked, OnLost OnPartitions
	// AutoOffsetReset says where to start without a position.
	AutoOffsetReset OffsetReset
	// FetchMinBytes is the size that a node waits for, at most FetchMaxWait.
	FetchMinBytes int
	FetchMaxWait  time.Duration
	// FetchMaxBytes bounds one answer, MaxPartitionFetchBytes a partition's part of it.
	FetchMaxBytes          int
	MaxPartitionFetchBytes int
	// MaxPollRecords bounds the records of one Poll.
	MaxPollRecords int
	// CheckCRCs compares each batch with its checksum.
	CheckCRCs bool
	// AnyReplica reads from any replica up to its own high watermark, not only from leaders;
	// ReplicaNodeID only from that one.
	AnyReplica    bool
	ReplicaNodeID int32
	// Rack reads from a replica in this rack that keeps up with its leader; where there is none,
	// from the leader.
	Rack string
}

// AdminConfig holds the settings of an [Admin].
type AdminConfig struct {
	ClientConfig
}

func defaultClient(servers string) ClientConfig {
	return ClientConfig{
		BootstrapServers: strings.Split(cmp.Or(servers, os.Getenv("ONCELOG_BOOTSTRAP"), "127.0.0.1:7001"), ","),
		ClientID:         "oncelog-go",
		RequestTimeout:   10 * time.Second,
		RetryBackoff:     50 * time.Millisecond,
		RetryBackoffMax:  time.Second,
		MetadataMaxAge:   5 * time.Minute,
	}
}

func defaultProducer(servers string) ProducerConfig {
	return ProducerConfig{
		ClientConfig:      defaultClient(servers),
		EnableIdempotence: true,
		Linger:            5 * time.Millisecond,
		BatchSize:         1 << 20,
		BufferMemory:      64 << 20,
		MaxBlock:          time.Minute,
		Compression:       NoCompression,
		DeliveryTimeout:   2 * time.Minute,
		MaxInFlight:       5,
	}
}

func defaultConsumer(servers string) ConsumerConfig {
	return ConsumerConfig{
		ClientConfig:           defaultClient(servers),
		Membership:             Assigned,
		Assignor:               Uniform,
		SessionTimeout:         10 * time.Second,
		RevokeTimeout:          time.Minute,
		ProcessingTimeout:      5 * time.Minute,
		AutoCommitInterval:     5 * time.Second,
		AutoOffsetReset:        Latest,
		FetchMinBytes:          1,
		FetchMaxWait:           500 * time.Millisecond,
		FetchMaxBytes:          16 << 20,
		MaxPartitionFetchBytes: 4 << 20,
		MaxPollRecords:         10_000,
		CheckCRCs:              true,
	}
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._:/@=+ -]+$`)

const maxNameChars = 249

func checkName(setting, name string) error {
	if utf8.RuneCountInString(name) > maxNameChars {
		return fail(ErrConfig, "%s has %d characters, limit %d", setting,
			utf8.RuneCountInString(name), maxNameChars)
	}
	if !nameForm.MatchString(name) {
		return fail(ErrConfig, "%s %q has a character outside A-Z a-z 0-9 ._:/@=+-", setting, name)
	}
	return nil
}

// limits collects the first thing that is wrong.
type limits struct{ err error }

func (l *limits) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fail(ErrConfig, format, args...)
	}
}

func (l *limits) span(name string, value, low, high time.Duration) {
	if value < low || value > high {
		l.fail("%s must be from %s to %s, got %s", name, low, high, value)
	}
}

func (l *limits) number(name string, value, low, high int64) {
	if value < low || value > high {
		l.fail("%s must be from %d to %d, got %d", name, low, high, value)
	}
}

const (
	maxSpan = math.MaxInt32 * time.Millisecond
	ms      = time.Millisecond
)

func (c *ClientConfig) check(l *limits) {
	servers := []string{}
	for _, address := range c.BootstrapServers {
		address = strings.TrimSpace(address)
		if address == "" {
			continue
		}
		host, port, err := net.SplitHostPort(address)
		number, notNumber := strconv.Atoi(port)
		if err != nil || host == "" || notNumber != nil || number < 1 || number > 65535 {
			l.fail("BootstrapServers: %q is not host:port", address)
		}
		if !slices.Contains(servers, address) {
			servers = append(servers, address)
		}
	}
	if len(servers) == 0 {
		l.fail("BootstrapServers is empty: name at least one node as host:port")
	}
	c.BootstrapServers = servers
	l.span("RequestTimeout", c.RequestTimeout, ms, maxSpan)
	l.span("RetryBackoff", c.RetryBackoff, ms, maxSpan)
	l.span("RetryBackoffMax", c.RetryBackoffMax, ms, maxSpan)
	l.span("MetadataMaxAge", c.MetadataMaxAge, 100*ms, maxSpan)
	if err := c.Security.check(); err != nil && l.err == nil {
		l.err = err
	}
	if c.RetryBackoffMax < c.RetryBackoff {
		l.fail("RetryBackoffMax=%s is below RetryBackoff=%s", c.RetryBackoffMax, c.RetryBackoff)
	}
}

func (c *ProducerConfig) check() error {
	var l limits
	c.ClientConfig.check(&l)
	l.span("Linger", c.Linger, 0, maxSpan)
	l.number("BatchSize", int64(c.BatchSize), batchOverhead, maxPayloadBytes)
	l.number("BufferMemory", c.BufferMemory, 1, math.MaxInt64)
	l.span("MaxBlock", c.MaxBlock, 0, maxSpan)
	l.span("DeliveryTimeout", c.DeliveryTimeout, ms, maxSpan)
	l.number("MaxInFlight", int64(c.MaxInFlight), 1, 1000)
	if _, known := codecs[c.Compression]; !known {
		l.fail("Compression must be none, zstd or lz4, got %q", c.Compression)
	}
	if c.CompressionLevel != nil {
		l.number("CompressionLevel", int64(*c.CompressionLevel), -131072, 22)
		if c.Compression == NoCompression {
			l.fail("CompressionLevel=%d contradicts Compression=none", *c.CompressionLevel)
		}
	}
	if int64(c.BatchSize) > c.BufferMemory {
		l.fail("BatchSize=%d does not fit into BufferMemory=%d", c.BatchSize, c.BufferMemory)
	}
	if c.DeliveryTimeout < c.Linger+c.RequestTimeout {
		l.fail("DeliveryTimeout=%s is below Linger=%s + RequestTimeout=%s: a record would be "+
			"given up while it waits for its first answer", c.DeliveryTimeout, c.Linger, c.RequestTimeout)
	}
	if c.ProducerName != "" {
		if err := checkName("ProducerName", c.ProducerName); err != nil && l.err == nil {
			l.err = err
		}
		if !c.EnableIdempotence {
			l.fail("ProducerName=%q contradicts EnableIdempotence=false", c.ProducerName)
		}
	}
	if c.ResumeFrom != nil {
		c.checkResumeFrom(&l)
	}
	return l.err
}

func (c *ProducerConfig) checkResumeFrom(l *limits) {
	if !c.EnableIdempotence {
		l.fail("ResumeFrom contradicts EnableIdempotence=false")
	}
	if c.ProducerName != "" {
		l.fail("ResumeFrom contradicts ProducerName: a name has its own producer id")
	}
	l.number("ResumeFrom.ProducerID", c.ResumeFrom.ProducerID, 1, math.MaxInt64)
	l.number("ResumeFrom.Epoch", int64(c.ResumeFrom.Epoch), 0, math.MaxInt32)
	for tp, sequence := range c.ResumeFrom.NextSequences {
		l.number("ResumeFrom.NextSequences["+tp.String()+"]", sequence, 0, math.MaxInt64)
	}
}

func (c *ConsumerConfig) check() error {
	var l limits
	c.ClientConfig.check(&l)
	if c.AutoOffsetReset != Earliest && c.AutoOffsetReset != Latest && c.AutoOffsetReset != NoReset {
		l.fail("AutoOffsetReset must be earliest, latest or none, got %q", c.AutoOffsetReset)
	}
	l.number("FetchMinBytes", int64(c.FetchMinBytes), 0, math.MaxInt32)
	l.span("FetchMaxWait", c.FetchMaxWait, 0, maxSpan)
	l.number("FetchMaxBytes", int64(c.FetchMaxBytes), 1, math.MaxInt32)
	l.number("MaxPartitionFetchBytes", int64(c.MaxPartitionFetchBytes), 1, math.MaxInt32)
	l.number("MaxPollRecords", int64(c.MaxPollRecords), 1, math.MaxInt32)
	if c.GroupID != "" {
		if err := checkName("GroupID", c.GroupID); err != nil && l.err == nil {
			l.err = err
		}
	}
	c.checkGroup(&l)
	if c.FetchMaxWait >= c.RequestTimeout {
		l.fail("FetchMaxWait=%s must be below RequestTimeout=%s", c.FetchMaxWait, c.RequestTimeout)
	}
	l.number("ReplicaNodeID", int64(c.ReplicaNodeID), 0, math.MaxInt32)
	if c.ReplicaNodeID != 0 && !c.AnyReplica {
		l.fail("ReplicaNodeID needs AnyReplica=true")
	}
	if c.Rack != "" {
		if err := checkName("Rack", c.Rack); err != nil && l.err == nil {
			l.err = err
		}
		if c.AnyReplica {
			l.fail("Rack excludes AnyReplica")
		}
	}
	return l.err
}

func (c *ConsumerConfig) checkGroup(l *limits) {
	if c.Membership != Assigned && c.Membership != Manual {
		l.fail("Membership must be assigned or manual, got %q", c.Membership)
	}
	if c.Assignor != Uniform && c.Assignor != RangeAssignor {
		l.fail("Assignor must be uniform or range, got %q", c.Assignor)
	}
	l.span("SessionTimeout", c.SessionTimeout, time.Second, 30*time.Minute)
	l.span("RevokeTimeout", c.RevokeTimeout, time.Second, time.Hour)
	l.span("ProcessingTimeout", c.ProcessingTimeout, time.Second, 24*time.Hour)
	l.span("AutoCommitInterval", c.AutoCommitInterval, ms, maxSpan)
	if c.GroupInstanceID != "" {
		if err := checkName("GroupInstanceID", c.GroupInstanceID); err != nil && l.err == nil {
			l.err = err
		}
	}
	if c.isMember() {
		return
	}
	for name, set := range map[string]bool{
		"GroupInstanceID": c.GroupInstanceID != "", "EnableAutoCommit": c.EnableAutoCommit,
		"OnAssigned": c.OnAssigned != nil, "OnRevoked": c.OnRevoked != nil, "OnLost": c.OnLost != nil,
	} {
		if set {
			l.fail("%s is for members of a group: it needs a GroupID, and Membership=assigned", name)
		}
	}
}

// withoutCallbacks returns a copy for work in the background: callbacks may hold the consumer.
func (c *ConsumerConfig) withoutCallbacks() *ConsumerConfig {
	twin := *c
	twin.OnAssigned, twin.OnRevoked, twin.OnLost = nil, nil, nil
	return &twin
}

func (c *ConsumerConfig) isMember() bool { return c.GroupID != "" && c.Membership == Assigned }
