package oncelog

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

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

// start returns where to begin. Partitions in fresh may go on where the group stands. What is
// not found has the error.
func (p *positions) start(ctx context.Context, missing []wanted, fresh []TopicPartition) (map[TopicPartition]int64, error) {
	found := map[TopicPartition]int64{}
	if p.config.GroupID != "" && len(fresh) > 0 {
		var terms *commitTerms
		if member := p.member.Load(); member != nil {
			terms = member.owned()
			for _, tp := range fresh {
				if _, owned := terms.ownerships[tp]; !owned {
					return found, fail(ErrFencedMember, "%s: the group has taken it back", tp)
				}
			}
		}
		committed, err := p.groups.committed(ctx, p.config.GroupID, fresh, terms, false)
		if err != nil {
			return found, err
		}
		for tp, offset := range committed {
			found[tp] = offset.Offset
		}
	}
	missing = slices.DeleteFunc(slices.Clone(missing), func(w wanted) bool {
		_, ok := found[w.tp]
		return ok
	})
	if len(missing) == 0 {
		return found, nil
	}
	if p.config.AutoOffsetReset == NoReset {
		return found, fail(ErrOffsetOutOfRange, "no position, and AutoOffsetReset is none: seek first")
	}
	queries := map[TopicPartition]*pb.OffsetQuery{}
	for _, w := range missing {
		if err := p.learn(ctx, w.tp); err != nil {
			return found, err
		}
		where := p.config.AutoOffsetReset
		if slices.Contains(fresh, w.tp) && p.beginsAtStart(w.tp) {
			where = Earliest
		}
		queries[w.tp] = offsetQuery(w.tp, where)
	}
	offsets, err := p.list(ctx, queries)
	for tp, offset := range offsets {
		found[tp] = offset
	}
	return found, err
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

// list asks for offsets and follows leader changes for RequestTimeout. -1: no such record.
func (p *positions) list(ctx context.Context, queries map[TopicPartition]*pb.OffsetQuery) (map[TopicPartition]int64, error) {
	deadline := time.Now().Add(p.config.RequestTimeout)
	found := map[TopicPartition]int64{}
	for tp := range queries {
		if err := p.learn(ctx, tp); err != nil {
			return found, err
		}
	}
	for failures := 1; ; failures++ {
		err := p.listOnce(ctx, queries, found)
		if err == nil || !isRetriable(err) || !time.Now().Before(deadline) {
			return found, err
		}
		if err := sleep(ctx, p.cluster.backoff.delay(failures)); err != nil {
			return found, err
		}
		for tp := range queries {
			if _, ok := found[tp]; ok {
				continue
			}
			if err := p.cluster.requireTopic(ctx, tp.Topic, max(100*ms, time.Until(deadline))); err != nil {
				return found, err
			}
		}
	}
}

// learn asks for a partition that is not known yet.
func (p *positions) learn(ctx context.Context, tp TopicPartition) error {
	if _, ok := p.cluster.leaders.leader(tp); ok {
		return nil
	}
	if err := p.cluster.requireTopic(ctx, tp.Topic, p.config.RequestTimeout); err != nil {
		return err
	}
	if _, ok := p.cluster.leaders.leader(tp); !ok {
		return noPartition(tp)
	}
	return nil
}

func (p *positions) listOnce(ctx context.Context, queries map[TopicPartition]*pb.OffsetQuery, found map[TopicPartition]int64) error {
	byNode := map[string][]TopicPartition{}
	for tp := range queries {
		if _, ok := found[tp]; ok {
			continue
		}
		address := p.routes.address(tp)
		if address == "" {
			return fail(ErrNotReady, "%s has no leader", tp)
		}
		byNode[address] = append(byNode[address], tp)
	}
	var problem error
	for address, tps := range byNode {
		request := &pb.ListOffsetsRequest{AnyReplica: p.config.AnyReplica}
		for _, tp := range tps {
			request.Queries = append(request.Queries, queries[tp])
		}
		var answer *pb.ListOffsetsResponse
		err := p.cluster.callAt(ctx, address, p.config.RequestTimeout,
			func(ctx context.Context, conn *grpc.ClientConn) (err error) {
				answer, err = pb.NewLogServiceClient(conn).ListOffsets(ctx, request)
				return err
			})
		if err == nil && len(answer.GetResults()) != len(tps) {
			return fail(ErrInternal, "the node gave %d answers to %d questions",
				len(answer.GetResults()), len(tps))
		}
		if err != nil {
			if !isRetriable(err) {
				return err
			}
			problem = err
			for _, tp := range tps {
				p.routes.failed(tp, address)
			}
			continue
		}
		for i, tp := range tps {
			if err := p.takeOffset(tp, answer.GetResults()[i], address, found); err != nil {
				if !isRetriable(err) {
					return err
				}
				problem = err
			}
		}
	}
	return problem
}

func (p *positions) takeOffset(tp TopicPartition, result *pb.OffsetResult, address string, found map[TopicPartition]int64) error {
	problem := result.GetError()
	if problem == pb.PartitionError_PARTITION_ERROR_NONE {
		found[tp] = result.GetOffset()
		return nil
	}
	p.routes.leadsElsewhere(tp, address, result.GetLeaderId(), result.GetLeaderAddress())
	text := partitionText(problem, result.GetMessage())
	if problem == pb.PartitionError_PARTITION_ERROR_STORAGE && !p.routes.elsewhere(tp, address, problem) {
		return corrupt(tp, -1, "%s", text)
	}
	return fail(ErrNotReady, "%s: %s", tp, text)
}
