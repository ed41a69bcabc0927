package oncelog

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

func resolveSequence(ctx context.Context, c *cluster, tp TopicPartition, producerID int64, epoch int32, sequence int64) (ResolvedSequence, error) {
	request := &pb.ResolveSequenceRequest{
		Topic: tp.Topic, Partition: tp.Partition,
		ProducerId: producerID, Epoch: epoch, Sequence: sequence,
	}
	var answer *pb.ResolveSequenceResponse
	err := c.callLeader(ctx, tp, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = pb.NewLogServiceClient(conn).ResolveSequence(ctx, request)
		return err
	})
	if err != nil {
		return ResolvedSequence{}, err
	}
	found := ResolvedSequence{
		Resolution: Forgotten, Offset: -1,
		LastSequence: answer.GetLastSequence(), CurrentEpoch: answer.GetCurrentEpoch(),
	}
	switch answer.GetResolution() {
	case pb.Resolution_RESOLUTION_COMMITTED:
		found.Resolution, found.Offset = Committed, answer.GetOffset()
	case pb.Resolution_RESOLUTION_NEVER:
		found.Resolution = Never
	case pb.Resolution_RESOLUTION_NOT_YET:
		found.Resolution = NotYet
	}
	return found, nil
}
