package oncelog

import (
	"context"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	// Enough that a message costs little beside its bytes, and no more, because a node sends
	// one while it collects the next.
	subscribeBytes = 2 << 20
	// Where there is more to read, silence is a reason to poll, which looks for the leader.
	silence = 2 * time.Second
	// At the same time; further partitions are polled until one of these is done.
	mostStreams = 8
)

// catchUp reads stored records by a stream instead of question and answer. Where a poll's
// answer was cut short because there is more, the partition is subscribed to, and polled again
// when all that there was has come, or something happened that a poll deals with. So at the end
// of the log, where a node may have nothing to say for long and lose its office meanwhile, there
// are only polls.
type catchUp struct {
	generation int
	cancel     context.CancelFunc
}

// worthIt reports whether a poll's answer was cut short because there is more.
func worthIt(config *ConsumerConfig, records *pb.PartitionRecords) bool {
	size := 0
	for _, stored := range records.GetBatches() {
		size += len(stored.GetPayload())
	}
	enough := min(config.MaxPartitionFetchBytes, config.FetchMaxBytes) / 2
	return size > 0 && size >= enough && endOffset(records) < records.GetHighWatermark()
}

func (f *fetcher) isStreamed(w wanted) bool {
	stream := f.streams[w.tp]
	if stream != nil && stream.generation != w.generation {
		stream.cancel()
		delete(f.streams, w.tp)
		return false
	}
	return stream != nil
}

func (f *fetcher) startStream(address string, w wanted) {
	ctx, cancel := context.WithCancel(f.ctx)
	stream := &catchUp{w.generation, cancel}
	f.streams[w.tp] = stream
	go func() {
		defer cancel()
		at, refused := f.readAhead(ctx, cancel, address, w)
		f.post(func() {
			// Unless a seek has already put polls, or another one, in its place.
			if f.streams[w.tp] == stream {
				delete(f.streams, w.tp)
				if refused != nil {
					f.refused(at, refused, address)
				}
			}
		})
	}()
}

// readAhead fills the buffer, and returns the node's refusal if that ended it.
func (f *fetcher) readAhead(ctx context.Context, cancel context.CancelFunc, address string, w wanted) (wanted, *pb.PartitionRecords) {
	var stream pb.LogService_SubscribeClient
	// The buffer is full, most likely: only a reader that continues gets a stream.
	for f.buffer.awaitRoom(ctx, w) {
		if stream == nil {
			conn, err := f.cluster.conn(address)
			if err != nil {
				return w, nil
			}
			if stream, err = pb.NewLogServiceClient(conn).Subscribe(ctx, &pb.SubscribeRequest{
				Partitions: []*pb.PartitionFetch{{Topic: w.tp.Topic, Partition: w.tp.Partition, Offset: w.offset}},
				MaxBytes:   int32(min(f.config.MaxPartitionFetchBytes, f.config.FetchMaxBytes, subscribeBytes)),
				AnyReplica: f.config.AnyReplica, Near: f.config.Rack != "",
			}); err != nil {
				return w, nil // a poll will find out
			}
		}
		timer := time.AfterFunc(silence, cancel)
		message, err := stream.Recv()
		timer.Stop()
		if err != nil {
			return w, nil
		}
		for _, records := range message.GetPartitions() {
			switch f.buffer.add(w, records) {
			case addedRefused:
				return w, records
			case addedStale, addedAnew, addedBehind: // a poll will find out
				return w, nil
			}
			if len(records.GetBatches()) == 0 {
				return w, nil
			}
			w.offset = endOffset(records)
			if w.offset >= records.GetHighWatermark() {
				return w, nil
			}
		}
	}
	return w, nil
}
