package oncelog

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// Consumer reads topics, or assigned partitions, in offset order per partition, each record
// once per consumer. It survives leader changes and restarts unseen. It is for any number of
// goroutines: one polls at a time, the others wait, and each record goes to one of them. Positions
// and commits count the records that Poll has returned, to any goroutine.
//
// With a GroupID reading starts where the group committed last, if it did. The topics (or patterns
// of topics, "^...") that are subscribed to are shared out among the group's consumers; partitions
// come and go while you poll, by the calls of Poll: OnAssigned, OnRevoked, OnLost. With Membership
// Manual, or Assign instead of Subscribe, the group only keeps offsets. Commits are made by Commit
// only, unless EnableAutoCommit is set.
type Consumer struct {
	config  *ConsumerConfig
	cluster *cluster
	fetcher *fetcher
	buffer  *fetchBuffer
	closing sync.Once
	dropped runtime.Cleanup
	joining turn // held by the subscribing goroutine
	polling turn // held by the goroutine that polls, or leaves the group
	// nil: of no group.
	rebalance atomic.Pointer[rebalance]
	// Topics, and patterns of them, of Subscribe.
	subscribed atomic.Pointer[[]string]
}

// NewConsumer makes a consumer. servers is "host:port,...", or "" for the default of
// [ClientConfig]; options change the defaults. It returns an error of [ErrConfig] for settings that
// are out of range or contradict each other.
//
// Close it at the end. One that is dropped without Close is warned of; its goroutines and connections
// stay, and a group takes its partitions back after ProcessingTimeout.
func NewConsumer(servers string, options ...func(*ConsumerConfig)) (*Consumer, error) {
	config := defaultConsumer(servers)
	for _, option := range options {
		option(&config)
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	c := &Consumer{
		config: &config, cluster: newCluster(config.ClientConfig), joining: newTurn(), polling: newTurn(),
	}
	c.fetcher = newFetcher(config.withoutCallbacks(), c.cluster)
	c.buffer = c.fetcher.buffer
	c.dropped = runtime.AddCleanup(c, func(log *slog.Logger) {
		log.Warn("oncelog: a Consumer was dropped without Close")
	}, config.logger())
	return c, nil
}

// Config returns the settings in force.
func (c *Consumer) Config() ConsumerConfig { return *c.config }

// Outages returns how often, and whether, no node has answered.
func (c *Consumer) Outages() Outages { return c.cluster.reached.outages() }

// --- partitions to read ---------------------------------------------------------------

// Subscribe reads all partitions of these topics, also those that come later, and nothing else; a
// member of a group its share of them. It returns when the group has answered.
func (c *Consumer) Subscribe(ctx context.Context, topics ...string) error {
	if c.config.isMember() {
		return c.join(ctx, topics)
	}
	for _, topic := range topics {
		if strings.HasPrefix(topic, patternMark) {
			return invalid("topics", "patterns of topics are for members of a group")
		}
		if err := c.learn(ctx, topic); err != nil {
			return err
		}
	}
	c.fetcher.growth.subscribe(topics)
	c.subscribe(topics)
	c.fetcher.wake()
	return nil
}

func (c *Consumer) subscribe(topics []string) {
	topics = slices.Compact(slices.Sorted(slices.Values(topics)))
	c.subscribed.Store(&topics)
}

// Subscription returns the topics, and patterns of topics, of Subscribe; none after Assign or
// Unsubscribe.
func (c *Consumer) Subscription() []string {
	if topics := c.subscribed.Load(); topics != nil {
		return slices.Clone(*topics)
	}
	return nil
}

// Unsubscribe reads nothing any more. A member of a group finishes the records it was given, as
// Close does, and leaves; its next Subscribe joins again. A Poll that waits holds that up. The
// error is of a callback, or ctx's.
func (c *Consumer) Unsubscribe(ctx context.Context) (err error) {
	if err = c.joining.hold(ctx); err != nil {
		return err
	}
	defer c.joining.letGo()
	if rebalance := c.rebalance.Load(); rebalance != nil {
		if err = c.polling.hold(ctx); err != nil {
			return err
		}
		defer c.polling.letGo()
		err = rebalance.leave(ctx, false)
		c.rebalance.Store(nil)
		c.fetcher.positions.member.Store(nil)
		c.buffer.forgetGroup()
	}
	c.subscribe(nil)
	c.fetcher.growth.assign(nil)
	c.fetcher.wake()
	return err
}

// patternMark begins a pattern of topics.
const patternMark = "^"

func (c *Consumer) join(ctx context.Context, topics []string) error {
	for _, topic := range topics {
		if strings.HasPrefix(topic, patternMark) {
			continue
		}
		if err := c.learn(ctx, topic); err != nil {
			return err
		}
	}
	if err := c.joining.hold(ctx); err != nil {
		return err
	}
	defer c.joining.letGo()
	if known := c.rebalance.Load(); known != nil {
		known.member.subscribe(slices.Clone(topics))
		c.subscribe(topics)
		return nil
	}
	positions := c.fetcher.positions
	member := startMember(c.config.withoutCallbacks(), c.cluster, positions.groups, c.buffer, slices.Clone(topics))
	positions.member.Store(member)
	if err := member.awaitJoined(ctx); err != nil {
		positions.member.Store(nil)
		member.leave()
		c.buffer.forgetGroup()
		return err
	}
	c.rebalance.Store(newRebalance(c.config, c.buffer, member, c.fetcher.wake))
	c.subscribe(topics)
	return nil
}

// Assign reads exactly these partitions; those already assigned keep their position.
func (c *Consumer) Assign(ctx context.Context, partitions ...TopicPartition) error {
	if c.rebalance.Load() != nil {
		return invalid("partitions",
			"the group assigns the partitions; make the consumer with Membership=manual")
	}
	for _, tp := range partitions {
		if err := c.learn(ctx, tp.Topic); err != nil {
			return err
		}
		if _, ok := c.cluster.leaders.leader(tp); !ok {
			return noPartition(tp)
		}
	}
	c.fetcher.growth.assign(partitions)
	c.subscribe(nil)
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

// Poll waits until there is a record or ctx ends, and returns the records there are, at most
// MaxPollRecords.
//
// Errors are of [ErrOffsetOutOfRange], [ErrUnknownTopicOrPartition], [ErrCorruptLog], or ctx's.
// Reading can go on after them, for instance after a Seek; a damaged batch is never skipped, its
// error comes again until a Seek goes elsewhere. Records that were there before the error are
// returned first. In a group: any error of its callbacks, and errors that end a membership for
// good, such as [ErrFencedMember].
func (c *Consumer) Poll(ctx context.Context) ([]Record, error) {
	return c.PollRecords(ctx, c.config.MaxPollRecords)
}

// PollRecords is Poll with another limit.
func (c *Consumer) PollRecords(ctx context.Context, limit int) ([]Record, error) {
	if limit < 1 {
		return nil, invalid("limit", "limit must be at least 1, got %d", limit)
	}
	if err := c.polling.hold(ctx); err != nil {
		return nil, err
	}
	defer c.polling.letGo()
	c.buffer.comesBack(true)
	defer c.buffer.comesBack(false)
	var records []Record
	for {
		rebalance := c.rebalance.Load()
		if rebalance != nil && len(records) == 0 {
			if err := rebalance.follow(ctx); err != nil {
				return nil, err
			}
		}
		first, changed, err := c.buffer.peek(len(records) == 0)
		gone := errors.Is(err, ErrUnknownTopicOrPartition) || errors.Is(err, ErrFencedMember)
		if rebalance != nil && gone {
			continue // the group will take it away
		}
		if err != nil {
			return nil, err
		}
		if first == nil && len(records) > 0 || limit == len(records) {
			return records, nil
		}
		if first == nil {
			if err := rebalance.await(ctx, changed); err != nil {
				return nil, err
			}
			continue
		}
		if err := first.open(c.config.CheckCRCs); err != nil {
			if len(records) > 0 {
				return records, nil // the error comes with the next call
			}
			return nil, err
		}
		if records == nil {
			records = make([]Record, 0, min(limit, int(first.end-first.next.Load())))
		}
		records = first.take(records, limit-len(records))
		c.buffer.advance(first)
	}
}

// Records yields records until ctx ends or an error comes, which is yielded last. No record is lost
// by that: call it again to go on.
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

// SeekToBeginning goes to the first record that is kept, in these partitions or in all. Where no
// leader answers soon it is done as soon as one does.
func (c *Consumer) SeekToBeginning(ctx context.Context, partitions ...TopicPartition) error {
	return c.seekAll(ctx, partitions, Earliest)
}

// SeekToEnd goes behind the last record, in these partitions or in all, as SeekToBeginning does.
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
	queries := map[TopicPartition]*pb.OffsetQuery{}
	for _, tp := range partitions {
		queries[tp] = offsetQuery(tp, where)
	}
	found, failed := c.fetcher.positions.listFor(ctx, queries, min(c.config.RequestTimeout, soon))
	for tp, offset := range found {
		c.buffer.seek(tp, offset)
	}
	for tp, err := range failed {
		if !isFinal(err) {
			c.buffer.seekTo(tp, where)
			delete(failed, tp)
		}
	}
	return ofPartitions(failed)
}

// soon is for how long a seek waits for a leader.
const soon = time.Second

// Position returns the offset of the next record that will be given out. It waits for a start
// position that is not known yet. It returns [ErrFencedMember] if the group has just given the
// partition to another member, which the next Poll follows.
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

// Lag returns how many records there are from the position to the high watermark. Those that are
// no longer kept do not count.
func (c *Consumer) Lag(ctx context.Context, tp TopicPartition) (int64, error) {
	position, err := c.Position(ctx, tp)
	if err != nil {
		return 0, err
	}
	begins, err := c.BeginningOffsets(ctx, tp)
	if err != nil {
		return 0, err
	}
	ends, err := c.EndOffsets(ctx, tp)
	return max(0, ends[tp]-max(position, begins[tp])), err
}

// BeginningOffsets returns each partition's first offset that is kept. With an error, which names
// the partitions without an answer, it returns those of the others.
func (c *Consumer) BeginningOffsets(ctx context.Context, partitions ...TopicPartition) (map[TopicPartition]int64, error) {
	return c.list(ctx, partitions, Earliest)
}

// EndOffsets returns each partition's high watermark: the offset that comes next; with an error as
// BeginningOffsets does.
func (c *Consumer) EndOffsets(ctx context.Context, partitions ...TopicPartition) (map[TopicPartition]int64, error) {
	return c.list(ctx, partitions, Latest)
}

// OffsetsForTimes returns where to start to see everything from these times on; -1: nothing is
// there. It is the first offset of the first batch with a record at or after the time. With an error
// it returns the others' as BeginningOffsets does.
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

// Paused returns the partitions that are paused.
func (c *Consumer) Paused() []TopicPartition {
	tps := c.buffer.paused()
	sortPartitions(tps)
	return tps
}

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
	return c.CommitOffsets(ctx, c.positions())
}

// positions returns the user's places, as far as they are known.
func (c *Consumer) positions() map[TopicPartition]OffsetCommit {
	offsets := map[TopicPartition]OffsetCommit{}
	for _, tp := range c.Assignment() {
		if position := c.buffer.place(tp); position != unknownPosition {
			offsets[tp] = OffsetCommit{Offset: position}
		}
	}
	return offsets
}

// commitTerms returns the member's part of a commit; nil for a consumer that is no member.
func (c *Consumer) commitTerms(offsets map[TopicPartition]OffsetCommit) (*commitTerms, error) {
	if rebalance := c.rebalance.Load(); rebalance != nil {
		return rebalance.commitTerms(offsets)
	}
	return nil, nil
}

// CommitOffsets stores these offsets. A commit with a producer id may be refused with
// [ErrFenced], [ErrOutOfOrder] or [ErrSequenceConflict]; in a group with members one is refused
// with [ErrFencedMember] for a partition that belongs to another member by now, and with
// [ErrGroupHasMembers] if this consumer is none.
func (c *Consumer) CommitOffsets(ctx context.Context, offsets map[TopicPartition]OffsetCommit) error {
	if c.config.GroupID == "" {
		return invalid("group_id", "the consumer has no GroupID")
	}
	if len(offsets) == 0 {
		return nil
	}
	terms, err := c.commitTerms(offsets)
	if err != nil {
		return err
	}
	return c.fetcher.positions.groups.commit(ctx, c.config.GroupID, offsets, terms)
}

// Committed returns the group's committed offset of a partition; nil: nothing.
func (c *Consumer) Committed(ctx context.Context, tp TopicPartition) (*CommittedOffset, error) {
	if c.config.GroupID == "" {
		return nil, invalid("group_id", "the consumer has no GroupID")
	}
	found, err := c.fetcher.positions.groups.committed(ctx, c.config.GroupID, []TopicPartition{tp}, nil, true)
	if known, ok := found[tp]; ok {
		return &known, err
	}
	return nil, err
}

// Close frees everything. A Poll that waits returns [ErrClientClosed]. A member of a group has
// finished the records it was given: OnRevoked is called, EnableAutoCommit commits, and it leaves.
// Otherwise nothing is committed.
func (c *Consumer) Close() { c.close(false) }

// Abandon is Close for a caller that has failed to work on the records Poll returned last: OnLost
// is called instead of OnRevoked, and nothing is committed.
func (c *Consumer) Abandon() { c.close(true) }

func (c *Consumer) close(failed bool) {
	c.closing.Do(func() {
		c.dropped.Stop()
		c.buffer.close()
		defer c.cluster.close()
		defer c.fetcher.stop()
		_ = c.polling.hold(context.Background()) // it does not end
		defer c.polling.letGo()
		if rebalance := c.rebalance.Load(); rebalance != nil {
			_ = rebalance.leave(context.Background(), failed) // a callback's error is its own
		}
	})
}
