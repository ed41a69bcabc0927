package oncelog

import (
	"context"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// SinkInfo is an output of a streaming query, or of batch jobs, and its committed batches.
type SinkInfo struct {
	Sink              string
	Jobs              bool
	Query             string // that it belongs to; empty: of jobs, or none yet
	Run               string // of the newest batch
	CommittedBatch    int64  // the newest one; -1: none
	RecordCount       int64  // of that
	OpenTransactionID int64  // 0: none
	OpenBatch         int64  // -1: none
	Committed         []BatchRange
	Before            *SinkBefore // nil: it was not reset
}

// BatchRange are batches of jobs, both ends included.
type BatchRange struct{ First, Last int64 }

// SinkBefore is the batch that a sink had committed before it was reset.
type SinkBefore struct {
	Query       string
	Batch       int64
	RecordCount int64
}

// ListSinks returns outputs of queries and jobs, by name, and the committed batch of each.
func (a *Admin) ListSinks(ctx context.Context) ([]SinkInfo, error) {
	var found []SinkInfo
	request := &pb.ListSinksRequest{Limit: listPage}
	for {
		answer, err := ask(ctx, a.cluster, pb.NewSinkServiceClient, pb.SinkServiceClient.ListSinks, request)
		if err != nil {
			return nil, err
		}
		for _, sink := range answer.GetSinks() {
			found = append(found, sinkInfo(sink))
			request.After = sink.GetSink()
		}
		if len(answer.GetSinks()) < listPage {
			return found, nil
		}
	}
}

// DescribeSink returns an error of [ErrUnknownTransaction] if there is none.
func (a *Admin) DescribeSink(ctx context.Context, sink string) (SinkInfo, error) {
	request := &pb.DescribeSinkRequest{Sink: sink}
	answer, err := ask(ctx, a.cluster, pb.NewSinkServiceClient, pb.SinkServiceClient.DescribeSink, request)
	if err != nil {
		return SinkInfo{}, err
	}
	return sinkInfo(answer.GetSink()), nil
}

// ResetSink takes the next batch of any query; runs of before write nothing more.
func (a *Admin) ResetSink(ctx context.Context, sink string) error {
	request := &pb.ResetSinkRequest{Sink: sink}
	_, err := ask(ctx, a.cluster, pb.NewSinkServiceClient, pb.SinkServiceClient.ResetSink, request)
	return err
}

func sinkInfo(sink *pb.SinkDescription) SinkInfo {
	info := SinkInfo{
		Sink: sink.GetSink(), Jobs: sink.GetJobs(), Query: sink.GetQuery(), Run: sink.GetRun(),
		CommittedBatch: sink.GetCommittedBatch(), RecordCount: sink.GetRecordCount(),
		OpenTransactionID: sink.GetOpenTransactionId(), OpenBatch: -1,
	}
	if info.OpenTransactionID != 0 {
		info.OpenBatch = sink.GetOpenBatch()
	}
	for _, batches := range sink.GetCommitted() {
		info.Committed = append(info.Committed, BatchRange{batches.GetFirst(), batches.GetLast()})
	}
	if before := sink.GetBefore(); before != nil {
		info.Before = &SinkBefore{before.GetQuery(), before.GetBatch(), before.GetRecordCount()}
	}
	return info
}
