package oncelog

import (
	"context"
	"iter"
	"sync"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// Consumer reads topics, or assigned partitions, in offset order per partition, each record
// once per consumer. It survives leader changes and restarts unseen. One consumer belongs to
// one goroutine at a time; only Close may be called from another.
//
// With a GroupID reading starts where the group committed last, if it did; commits are made by
// Commit only. Groups keep offsets, they do not share out partitions: assign those yourself.
type Consumer struct {
	config  ConsumerConfig
	cluster *cluster
	fetcher *fetcher
	buffer  *fetchBuffer
	closing sync.Once
}

// NewConsumer makes a consumer. servers is "host:port,..."; options change the defaults. It
// returns an error of [ErrConfig] for settings that are out of range or contradict each other.
func NewConsumer(servers string, options ...func(*ConsumerConfig)) (*Consumer, error) {
	config := defaultConsumer(servers)
	for _, option := range options {
		option(&config)
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	c := &Consumer{config: config, cluster: newCluster(config.ClientConfig)}
	c.fetcher = newFetcher(&c.config, c.cluster)
	c.buffer = c.fetcher.buffer
	return c, nil
}

// Config returns the settings in force.
func (c *Consumer) Config() ConsumerConfig { return c.config }

// --- what to read --------------------------------------------------------------------

// Subscribe reads all partitions of these topics, and nothing else.
func (c *Consumer) Subscribe(ctx context.Context, topics ...string) error {
	var tps []TopicPartition
	for _, topic := range topics {
		if err := c.learn(ctx, topic); err != nil {
			return err
		}
		_, _, partitions, _ := c.cluster.leaders.topic(topic)
		for partition := range partitions {
			tps = append(tps, TopicPartition{topic, int32(partition)})
		}
	}
	c.buffer.assign(tps)
	c.fetcher.wake()
	return nil
}

// Assign reads exactly these partitions; those already assigned keep their position.
func (c *Consumer) Assign(ctx context.Context, partitions ...TopicPartition) error {
	for _, tp := range partitions {
		if err := c.learn(ctx, tp.Topic); err != nil {
			return err
		}
		if _, ok := c.cluster.leaders.leader(tp); !ok {
			return noPartition(tp)
		}
	}
	c.buffer.assign(partitions)
	c.fetcher.wake()
	return nil
}

// Assignment returns the partitions that are read.
func (c *Consumer) Assignment() []TopicPartition {
	tps := c.buffer.assignment()
	sortPartitions(tps)
	return tps
}

func (c *Consumer) learn(ctx context.Context, topic string) error {
	if _, _, _, ok := c.cluster.leaders.topic(topic); ok {
		return nil
	}
	return c.cluster.requireTopic(ctx, topic, c.config.RequestTimeout)
}

// --- reading -------------------------------------------------------------------------

// Poll waits until there is a record or ctx ends, and returns what is there, at most
// MaxPollRecords.
//
// Errors are of [ErrOffsetOutOfRange], [ErrUnknownTopicOrPartition], [ErrCorruptLog], or ctx's.
// Reading can go on after them, for instance after a Seek; a damaged batch is never skipped, its
// error comes again until a Seek goes elsewhere. Records that were there before the error are
// returned first.
func (c *Consumer) Poll(ctx context.Context) ([]Record, error) {
	return c.PollRecords(ctx, c.config.MaxPollRecords)
}

// PollRecords is Poll with another limit.
func (c *Consumer) PollRecords(ctx context.Context, limit int) ([]Record, error) {
	if limit < 1 {
		return nil, invalid("limit", "limit must be at least 1, got %d", limit)
	}
	var records []Record
	for {
		first, changed, err := c.buffer.peek(len(records) == 0)
		if err != nil {
			return nil, err
		}
		if first == nil && len(records) > 0 || limit == len(records) {
			return records, nil
		}
		if first == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if err := first.open(c.config.CheckCRCs); err != nil {
			if len(records) > 0 {
				return records, nil // the error comes with the next call
			}
			return nil, err
		}
		if records == nil {
			records = make([]Record, 0, min(limit, int(first.end-first.next)))
		}
		records = first.take(records, limit-len(records))
		c.buffer.advance(first)
	}
}

// Records yields records until ctx ends or an error comes, which is yielded last.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			records, err := c.PollRecords(ctx, 1)
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(records[0], nil) {
				return
			}
		}
	}
}

// --- positions -----------------------------------------------------------------------

// Seek goes on at offset in this partition.
func (c *Consumer) Seek(tp TopicPartition, offset int64) error {
	if err := c.buffer.assigned(tp); err != nil {
		return err
	}
	if offset < 0 {
		return invalid("offset", "offset must not be negative, got %d", offset)
	}
	c.buffer.seek(tp, offset)
	return nil
}

// SeekToBeginning goes to the first record that is kept, in these partitions or in all.
func (c *Consumer) SeekToBeginning(ctx context.Context, partitions ...TopicPartition) error {
	return c.seekAll(ctx, partitions, Earliest)
}

// SeekToEnd goes behind the last record, in these partitions or in all.
func (c *Consumer) SeekToEnd(ctx context.Context, partitions ...TopicPartition) error {
	return c.seekAll(ctx, partitions, Latest)
}

func (c *Consumer) seekAll(ctx context.Context, partitions []TopicPartition, where OffsetReset) error {
	if len(partitions) == 0 {
		partitions = c.Assignment()
	}
	for _, tp := range partitions {
		if err := c.buffer.assigned(tp); err != nil {
			return err
		}
	}
	offsets, err := c.list(ctx, partitions, where)
	if err != nil {
		return err
	}
	for tp, offset := range offsets {
		c.buffer.seek(tp, offset)
	}
	return nil
}

// Position returns the offset of the next record that will be given out. It waits for a start
// position that is not known yet.
func (c *Consumer) Position(ctx context.Context, tp TopicPartition) (int64, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, c.config.RequestTimeout,
		fail(ErrRequestTimeout, "%s: the start position is not known yet", tp))
	defer cancel()
	for {
		position, changed, err := c.buffer.position(tp)
		if err != nil || position != unknownPosition {
			return position, err
		}
		select {
		case <-changed:
		case <-bounded.Done():
			return 0, context.Cause(bounded)
		}
	}
}

// Lag returns how many records there are from the position to the high watermark.
func (c *Consumer) Lag(ctx context.Context, tp TopicPartition) (int64, error) {
	position, err := c.Position(ctx, tp)
	if err != nil {
		return 0, err
	}
	ends, err := c.EndOffsets(ctx, tp)
	return max(0, ends[tp]-position), err
}

// BeginningOffsets returns each partition's first offset that is kept.
func (c *Consumer) BeginningOffsets(ctx context.Context, partitions ...TopicPartition) (map[TopicPartition]int64, error) {
	return c.list(ctx, partitions, Earliest)
}

// EndOffsets returns each partition's high watermark: the offset that comes next.
func (c *Consumer) EndOffsets(ctx context.Context, partitions ...TopicPartition) (map[TopicPartition]int64, error) {
	return c.list(ctx, partitions, Latest)
}

// OffsetsForTimes returns where to start to see everything from these times on; -1: nothing is
// there. It is the first offset of the first batch with a record at or after the time.
func (c *Consumer) OffsetsForTimes(ctx context.Context, times map[TopicPartition]time.Time) (map[TopicPartition]int64, error) {
	queries := map[TopicPartition]*pb.OffsetQuery{}
	for tp, at := range times {
		queries[tp] = &pb.OffsetQuery{
			Topic: tp.Topic, Partition: tp.Partition,
			Position: &pb.OffsetQuery_TimestampUs{TimestampUs: at.UnixMicro()},
		}
	}
	return c.fetcher.positions.list(ctx, queries)
}

func (c *Consumer) list(ctx context.Context, partitions []TopicPartition, where OffsetReset) (map[TopicPartition]int64, error) {
	queries := map[TopicPartition]*pb.OffsetQuery{}
	for _, tp := range partitions {
		queries[tp] = offsetQuery(tp, where)
	}
	return c.fetcher.positions.list(ctx, queries)
}

// Pause gives out nothing of these partitions until Resume.
func (c *Consumer) Pause(partitions ...TopicPartition) error { return c.pause(partitions, true) }

// Resume takes Pause back.
func (c *Consumer) Resume(partitions ...TopicPartition) error { return c.pause(partitions, false) }

func (c *Consumer) pause(partitions []TopicPartition, paused bool) error {
	for _, tp := range partitions {
		if err := c.buffer.assigned(tp); err != nil {
			return err
		}
		c.buffer.pause(tp, paused)
	}
	return nil
}

// --- the group -----------------------------------------------------------------------

// Commit stores the positions of all partitions as where the group goes on. It returns when
// they are stored on a majority.
func (c *Consumer) Commit(ctx context.Context) error {
	offsets := map[TopicPartition]OffsetCommit{}
	for _, tp := range c.Assignment() {
		position, _, err := c.buffer.position(tp)
		if err != nil {
			return err
		}
		if position != unknownPosition {
			offsets[tp] = OffsetCommit{Offset: position}
		}
	}
	return c.CommitOffsets(ctx, offsets)
}

// CommitOffsets stores these offsets. A commit with a producer id may be refused with
// [ErrFenced], [ErrOutOfOrder] or [ErrSequenceConflict].
func (c *Consumer) CommitOffsets(ctx context.Context, offsets map[TopicPartition]OffsetCommit) error {
	if c.config.GroupID == "" {
		return invalid("group_id", "the consumer has no GroupID")
	}
	if len(offsets) == 0 {
		return nil
	}
	return c.fetcher.positions.groups.commit(ctx, c.config.GroupID, offsets)
}

// Committed returns what the group has committed for a partition; nil: nothing.
func (c *Consumer) Committed(ctx context.Context, tp TopicPartition) (*CommittedOffset, error) {
	if c.config.GroupID == "" {
		return nil, invalid("group_id", "the consumer has no GroupID")
	}
	found, err := c.fetcher.positions.groups.committed(ctx, c.config.GroupID, []TopicPartition{tp})
	if known, ok := found[tp]; ok {
		return &known, err
	}
	return nil, err
}

// Close frees everything. Nothing is committed. A Poll that waits returns [ErrClientClosed].
func (c *Consumer) Close() {
	c.closing.Do(func() {
		c.buffer.close()
		c.fetcher.stop()
		c.cluster.close()
	})
}
