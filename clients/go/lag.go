package oncelog

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// lagWait is for how long a partition's leader may take to answer, with an election.
const lagWait = 2 * time.Second

// NotKnown is an offset or a lag that is not known.
const NotKnown = -1

// PartitionLag is how far a group is in a partition. Lag counts the readable records behind the
// committed offset.
type PartitionLag struct {
	// Committed is nil for a partition that a member owns and has not committed.
	Committed *CommittedOffset
	// [NotKnown] if no leader answered; Err says why.
	LogStartOffset int64
	HighWatermark  int64
	// [NotKnown] if one of the others is.
	Lag int64
	Err error
}

// GroupLag is a group's lag in each partition that it has committed or that a member owns.
type GroupLag struct {
	Group      GroupDescription
	Partitions map[TopicPartition]PartitionLag
}

// Lag returns the sum of the known lags.
func (l GroupLag) Lag() (sum int64) {
	for _, one := range l.Partitions {
		sum += max(0, one.Lag)
	}
	return sum
}

// GroupLag returns a group's lag in records, with its members and committed offsets. No partition is
// missing: one without an answer within 2 s has an Err instead of a lag.
func (a *Admin) GroupLag(ctx context.Context, group string) (GroupLag, error) {
	described, err := a.groups.describe(ctx, group)
	if err != nil {
		return GroupLag{}, err
	}
	lags := map[TopicPartition]PartitionLag{}
	for _, member := range described.Members {
		for tp := range member.Owned {
			lags[tp] = PartitionLag{}
		}
	}
	for tp, committed := range described.Offsets {
		lags[tp] = PartitionLag{Committed: &committed}
	}
	starts, ends, failed := a.bothEnds(ctx, lags)
	for tp, lag := range lags {
		lag.LogStartOffset, lag.HighWatermark, lag.Lag = NotKnown, NotKnown, NotKnown
		start, isStart := starts[tp]
		end, isEnd := ends[tp]
		if isStart {
			lag.LogStartOffset = start
		}
		if isEnd {
			lag.HighWatermark = end
		}
		if isStart && isEnd && lag.Committed != nil {
			lag.Lag = max(0, end-max(start, lag.Committed.Offset))
		}
		lag.Err = failed[tp]
		lags[tp] = lag
	}
	return GroupLag{described, lags}, ctx.Err()
}

// bothEnds returns log start offsets, high watermarks and errors: a partition is in both or has one.
func (a *Admin) bothEnds(
	ctx context.Context, lags map[TopicPartition]PartitionLag,
) (starts, ends map[TopicPartition]int64, failed map[TopicPartition]error) {
	if len(lags) == 0 {
		return nil, nil, nil
	}
	config := defaultConsumer("")
	config.ClientConfig = a.config.ClientConfig
	p := &positions{config: &config, cluster: a.cluster, routes: newRoutes(&config, a.cluster), groups: a.groups}
	var topics []string
	earliest, latest := map[TopicPartition]*pb.OffsetQuery{}, map[TopicPartition]*pb.OffsetQuery{}
	for tp := range lags {
		topics = append(topics, tp.Topic)
		earliest[tp], latest[tp] = offsetQuery(tp, Earliest), offsetQuery(tp, Latest)
	}
	slices.Sort(topics)
	_ = a.cluster.refresh(ctx, slices.Compact(topics)) // the leader is asked for again below
	var asking sync.WaitGroup
	var late map[TopicPartition]error
	asking.Go(func() { starts, failed = p.listFor(ctx, earliest, lagWait) })
	asking.Go(func() { ends, late = p.listFor(ctx, latest, lagWait) })
	asking.Wait()
	for tp, err := range late {
		failed[tp] = err
	}
	return starts, ends, failed
}
