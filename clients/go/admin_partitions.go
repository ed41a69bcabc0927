package oncelog

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// PartitionMove is a partition that comes, moves, or would; the first node is preferred as leader.
type PartitionMove struct {
	Topic     string
	Partition int32
	Replicas  []int32 // now; none: it comes
	Target    []int32
	Bytes     int64  // that the replicas which come hold when they are whole
	Copied    int64  // and hold by now
	WaitsFor  string // for people: progress, or the reason for none
}

// Resized is a topic that gets more partitions, or another number of replicas.
type Resized struct {
	Topic TopicInfo       // afterwards
	Moves []PartitionMove // the first of Count
	Count int32
}

// Resize describes the changes of ResizeTopic: Partitions or Replicas, the other one is 0.
type Resize struct {
	// More than the topic has. Records of a key go to another partition from then on, and nothing
	// that is stored moves.
	Partitions int32
	Replicas   int32 // of each partition
	DryRun     bool  // check it, and describe its effect
}

// ResizeTopic gives a topic more partitions, and waits up to half a minute or until ctx ends until
// each has a leader; or all its partitions another number of replicas, which are there later.
func (a *Admin) ResizeTopic(ctx context.Context, name string, resize Resize) (Resized, error) {
	limit := waitLimit(ctx)
	request := &pb.ResizeTopicRequest{
		Name: name, Partitions: resize.Partitions, Replicas: resize.Replicas,
		DryRun: resize.DryRun, TimeoutMs: int32(max(limit/ms, 1)),
	}
	var answer *pb.ResizeTopicResponse
	inDoubt := false
	err := a.cluster.call(ctx, heldFor(limit, &inDoubt),
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			answer, err = pb.NewClusterServiceClient(conn).ResizeTopic(ctx, request)
			return err
		})
	if err == nil {
		return Resized{topicInfo(answer.GetTopic()), partitionMoves(answer.GetMoves()), answer.GetCount()}, nil
	}
	if !errors.Is(err, ErrInvalidRequest) || asError(err).Field != "partitions" || !inDoubt || resize.DryRun {
		return Resized{}, err
	}
	// After a call without an answer they may be those of this call.
	topics, problem := a.DescribeTopics(ctx, name)
	if problem != nil || len(topics[0].Partitions) != int(resize.Partitions) {
		return Resized{}, err
	}
	return Resized{Topic: topics[0]}, nil
}

// ReassignPartition has the partition's replicas on these nodes, the first preferred as leader. It
// returns when the wish is stored; TopicInfo tells how far it is.
func (a *Admin) ReassignPartition(ctx context.Context, tp TopicPartition, replicas ...int32) (TopicInfo, error) {
	request := &pb.ReassignPartitionRequest{Topic: tp.Topic, Partition: tp.Partition, Replicas: replicas}
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.ReassignPartition, request)
	return topicInfo(answer.GetTopic()), err
}

func partitionMoves(messages []*pb.PartitionMove) (moves []PartitionMove) {
	for _, move := range messages {
		moves = append(moves, PartitionMove{
			move.GetTopic(), move.GetPartition(), move.GetReplicas(), move.GetTarget(),
			move.GetBytes(), move.GetCopied(), move.GetWaitsFor(),
		})
	}
	return moves
}
