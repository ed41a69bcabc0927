package oncelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const mostNamed = 5 // partitions, in one error

// positions finds offsets to start from: where a group stands, where a log begins and ends.
type positions struct {
	config  *ConsumerConfig
	cluster *cluster
	routes  *routes
	groups  *groups
	member  atomic.Pointer[groupMember] // nil: of no group
	// Whether it goes to a partition's start, though others are begun at their end.
	beginsAtStart func(TopicPartition) bool
}

// tellOffset is told of one partition, as soon as there is something to tell: its offset, or an error
// for good. Partitions of which nothing is told are to be asked for again.
type tellOffset func(tp TopicPartition, offset int64, err error)

// start tells where to begin: where the group stands, or where the settings say.
func (p *positions) start(ctx context.Context, missing map[TopicPartition]wanted, tell tellOffset) {
	var asked []TopicPartition // of the group
	left := maps.Clone(missing)
	for tp, w := range missing {
		if p.config.GroupID != "" && w.begin == "" {
			asked = append(asked, tp)
		}
	}
	if len(asked) > 0 {
		committed, err := p.standing(ctx, asked)
		for _, tp := range asked {
			found, ok := committed[tp]
			switch {
			case ok:
				tell(tp, found.Offset, nil)
			case err == nil:
				continue
			case !isRetriable(err):
				tell(tp, 0, err) // of a fenced member Poll passes it over
			}
			delete(left, tp)
		}
		if err != nil {
			// The coordinator moves or, of a fenced member, the group will name the new owners.
			_ = sleep(ctx, p.config.RetryBackoffMax)
		}
	}
	queries := map[TopicPartition]*pb.OffsetQuery{}
	failed := p.learn(ctx, slices.Collect(maps.Keys(left)), groupAttempt)
	for tp, w := range left {
		begin := cmp.Or(w.begin, p.config.AutoOffsetReset)
		if begin == NoReset {
			failed[tp] = noPosition(tp)
			continue
		}
		if w.begin == "" && p.beginsAtStart(tp) {
			begin = Earliest
		}
		queries[tp] = offsetQuery(tp, begin)
	}
	p.listOnce(ctx, queries, failed, groupAttempt, tell)
	for tp, err := range failed {
		if isFinal(err) {
			tell(tp, 0, err)
		}
	}
}

func noPosition(tp TopicPartition) error {
	e := fail(ErrOffsetOutOfRange, "%s: no position, and AutoOffsetReset is none: seek first", tp)
	e.Topic, e.Partition = tp.Topic, tp.Partition
	return e
}

// isFinal reports whether asking again is of no use. It was asked again for the missing offsets.
func isFinal(err error) bool { return !isRetriable(err) || errors.Is(err, ErrUnknownTopicOrPartition) }

// standing returns the group's committed offsets of these partitions.
func (p *positions) standing(ctx context.Context, tps []TopicPartition) (map[TopicPartition]CommittedOffset, error) {
	var terms *commitTerms
	if member := p.member.Load(); member != nil {
		terms = member.owned()
		for _, tp := range tps {
			if _, owned := terms.ownerships[tp]; !owned {
				return nil, fail(ErrFencedMember, "%s: the group has taken it back", tp)
			}
		}
	}
	return p.groups.committed(ctx, p.config.GroupID, tps, terms, false)
}

func offsetQuery(tp TopicPartition, at OffsetReset) *pb.OffsetQuery {
	query := &pb.OffsetQuery{Topic: tp.Topic, Partition: tp.Partition}
	if at == Earliest {
		query.Position = &pb.OffsetQuery_Earliest{Earliest: true}
	} else {
		query.Position = &pb.OffsetQuery_Latest{Latest: true}
	}
	return query
}

// list asks for offsets and follows leader changes for RequestTimeout. -1: no such record. The
// error names the partitions that are not found; the others are found all the same.
func (p *positions) list(ctx context.Context, queries map[TopicPartition]*pb.OffsetQuery) (map[TopicPartition]int64, error) {
	found, failed := p.listFor(ctx, queries, p.config.RequestTimeout)
	return found, ofPartitions(failed)
}

// listFor does so for that long, and returns the errors of the others.
func (p *positions) listFor(
	ctx context.Context, queries map[TopicPartition]*pb.OffsetQuery, limit time.Duration,
) (map[TopicPartition]int64, map[TopicPartition]error) {
	deadline := time.Now().Add(limit)
	found := map[TopicPartition]int64{}
	final := map[TopicPartition]error{}
	left := maps.Clone(queries)
	tried := map[TopicPartition]*attempts{}
	for failures := 1; ; failures++ {
		failed := p.learn(ctx, slices.Collect(maps.Keys(left)), time.Until(deadline))
		p.listOnce(ctx, left, failed, time.Until(deadline), func(tp TopicPartition, offset int64, _ error) {
			found[tp] = offset
		})
		maps.DeleteFunc(left, func(tp TopicPartition, _ *pb.OffsetQuery) bool {
			err := failed[tp]
			if err != nil && !isFinal(err) {
				if tried[tp] == nil {
					tried[tp] = &attempts{}
				}
				tried[tp].failed(err)
			}
			if err != nil && isFinal(err) {
				final[tp] = err
			}
			return err == nil || isFinal(err)
		})
		if len(left) == 0 {
			return found, final
		}
		if !time.Now().Before(deadline) {
			for tp := range left {
				final[tp] = tried[tp].err()
			}
			return found, final
		}
		if err := sleep(ctx, p.cluster.backoff.delay(failures)); err != nil {
			for tp := range left {
				final[tp] = err
			}
			return found, final
		}
	}
}

// ofPartitions returns the first error, a final one if there is one, with the names of all
// partitions that have one; nil: none has.
func ofPartitions(failed map[TopicPartition]error) error {
	tps := slices.SortedFunc(maps.Keys(failed), comparePartitions)
	if len(tps) == 0 {
		return nil
	}
	first := failed[tps[0]]
	for _, tp := range tps {
		if !isRetriable(failed[tp]) {
			first = failed[tp]
			break
		}
	}
	if len(tps) == 1 || !errors.As(first, new(*Error)) { // a context's error stays unchanged
		return first
	}
	var names []string
	for _, tp := range tps[:min(mostNamed, len(tps))] {
		names = append(names, tp.String())
	}
	more := ""
	if len(tps) > mostNamed {
		more = fmt.Sprintf(" and %d more", len(tps)-mostNamed)
	}
	twin := *asError(first)
	twin.Message, twin.cause = fmt.Sprintf("no offsets of %s%s: %v", strings.Join(names, ", "), more, first), first
	return &twin
}

// learn asks for unknown leaders, and returns the errors of partitions without a node to ask.
func (p *positions) learn(ctx context.Context, tps []TopicPartition, limit time.Duration) map[TopicPartition]error {
	failed := map[TopicPartition]error{}
	topics := map[string]error{}
	for _, tp := range tps {
		if p.routes.offsetAddress(tp) != "" {
			continue
		}
		problem, asked := topics[tp.Topic]
		if !asked {
			problem = p.cluster.requireTopic(ctx, tp.Topic, max(100*ms, limit))
			topics[tp.Topic] = problem
		}
		_, known := p.cluster.leaders.leader(tp)
		switch {
		case p.routes.offsetAddress(tp) != "":
			continue
		case problem != nil:
			failed[tp] = problem
		case !known:
			failed[tp] = noPartition(tp)
		default:
			failed[tp] = fail(ErrNotReady, "%s has no leader", tp)
		}
		p.routes.failed(tp, "")
	}
	return failed
}

// listOnce asks each leader once, all at the same time, and returns their answers. It adds to
// failed, the nodes that are not to be asked.
func (p *positions) listOnce(
	ctx context.Context, queries map[TopicPartition]*pb.OffsetQuery, failed map[TopicPartition]error,
	limit time.Duration, tell tellOffset,
) {
	byNode := map[string][]TopicPartition{}
	for tp := range queries {
		if failed[tp] != nil {
			continue
		}
		if address := p.routes.offsetAddress(tp); address != "" {
			byNode[address] = append(byNode[address], tp)
		} else {
			failed[tp] = fail(ErrNotReady, "%s has no leader", tp)
		}
	}
	var mu sync.Mutex // of failed, and of callers that are told
	var asking sync.WaitGroup
	for address, tps := range byNode {
		for some := range slices.Chunk(tps, mostFetched) {
			asking.Go(func() {
				results, err := p.listAt(ctx, address, some, queries, limit)
				mu.Lock()
				defer mu.Unlock()
				for i, tp := range some {
					if err != nil {
						failed[tp] = err
						p.routes.failed(tp, address)
					} else if offset, err := p.takeOffset(tp, results[i], address); err != nil {
						failed[tp] = err
					} else {
						tell(tp, offset, nil)
					}
				}
			})
		}
	}
	asking.Wait()
}

func (p *positions) listAt(ctx context.Context, address string, tps []TopicPartition, queries map[TopicPartition]*pb.OffsetQuery, limit time.Duration) ([]*pb.OffsetResult, error) {
	request := &pb.ListOffsetsRequest{AnyReplica: p.config.AnyReplica}
	for _, tp := range tps {
		request.Queries = append(request.Queries, queries[tp])
	}
	var answer *pb.ListOffsetsResponse
	err := p.cluster.callAt(ctx, address, limit, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = pb.NewLogServiceClient(conn).ListOffsets(ctx, request)
		return err
	})
	if err == nil && len(answer.GetResults()) != len(tps) {
		err = fail(ErrInternal, "the node gave %d answers to %d questions", len(answer.GetResults()), len(tps))
	}
	return answer.GetResults(), err
}

func (p *positions) takeOffset(tp TopicPartition, result *pb.OffsetResult, address string) (int64, error) {
	problem := result.GetError()
	if problem == pb.PartitionError_PARTITION_ERROR_NONE {
		p.routes.answered(tp, address)
		return result.GetOffset(), nil
	}
	p.routes.leadsElsewhere(tp, address, result.GetLeaderId(), result.GetLeaderAddress())
	text := partitionText(problem, result.GetMessage())
	if problem == pb.PartitionError_PARTITION_ERROR_STORAGE && !p.routes.elsewhere(tp, address, problem) {
		return 0, corrupt(tp, -1, "%s", text)
	}
	return 0, fail(ErrNotReady, "%s: %s", tp, text)
}
