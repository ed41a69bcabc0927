package oncelog

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// broker is one honest node in memory, for behaviour that only the whole client shows: goroutines,
// back-pressure, closing. Faults of a cluster belong to the conformance kit.
type broker struct {
	pb.UnimplementedClusterServiceServer
	pb.UnimplementedProducerServiceServer
	pb.UnimplementedLogServiceServer
	pb.UnimplementedTransactionServiceServer
	address    string
	partitions int32

	mu      sync.Mutex
	logs    map[int32][]*pb.StoredBatch
	last    map[[2]int64]int64 // (partition, producer id) -> last sequence
	leases  int64
	breakIn int // requests until a stream breaks; 0: never
	stuck   bool
	changed chan struct{}
	// Partitions that nobody leads.
	leaderless map[int32]bool
	logStart   int64
	topicID    uint64
	// The partition that a Fetch is refused for; 0: none.
	refused int32
	// Called before an answer to a lease or a begin, and told of an abort.
	onLease func(context.Context, *pb.LeaseProducerRequest)
	onBegin func(context.Context, *pb.BeginTransactionRequest)
	aborted chan int64
}

func startBroker(t *testing.T, partitions int32) *broker {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{
		address: listener.Addr().String(), partitions: partitions,
		logs: map[int32][]*pb.StoredBatch{}, last: map[[2]int64]int64{}, changed: make(chan struct{}),
		leaderless: map[int32]bool{}, topicID: 1, aborted: make(chan int64, 10),
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	pb.RegisterClusterServiceServer(server, b)
	pb.RegisterProducerServiceServer(server, b)
	pb.RegisterLogServiceServer(server, b)
	pb.RegisterTransactionServiceServer(server, b)
	go func() { _ = server.Serve(listener) }() // it ends when it is stopped
	t.Cleanup(server.Stop)
	return b
}

func (b *broker) DescribeTopics(context.Context, *pb.DescribeTopicsRequest) (*pb.DescribeTopicsResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	topic := &pb.TopicInfo{Name: "t", TopicId: b.topicID}
	for partition := range b.partitions {
		info := &pb.PartitionInfo{Partition: partition, LeaderId: 1, Term: 1, Replicas: []int32{1}}
		if b.leaderless[partition] {
			info.LeaderId = 0
		}
		topic.Partitions = append(topic.Partitions, info)
	}
	return &pb.DescribeTopicsResponse{
		Topics: []*pb.TopicInfo{topic}, Nodes: []*pb.NodeInfo{{NodeId: 1, Address: b.address}},
	}, nil
}

func (b *broker) BeginTransaction(ctx context.Context, request *pb.BeginTransactionRequest) (*pb.BeginTransactionResponse, error) {
	if b.onBegin != nil {
		b.onBegin(ctx, request)
	}
	return &pb.BeginTransactionResponse{TransactionId: 100 + int64(request.GetNonce()), IdleTimeoutMs: 60_000}, nil
}

func (b *broker) AbortTransaction(_ context.Context, request *pb.AbortTransactionRequest) (*pb.AbortTransactionResponse, error) {
	b.aborted <- request.GetTransactionId()
	return &pb.AbortTransactionResponse{}, nil
}

func (b *broker) LeaseProducer(ctx context.Context, request *pb.LeaseProducerRequest) (*pb.LeaseProducerResponse, error) {
	if b.onLease != nil {
		b.onLease(ctx, request)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases++
	return &pb.LeaseProducerResponse{ProducerId: b.leases, LifetimeMs: 3_600_000, LeaseToken: []byte("token")}, nil
}

func (b *broker) OpenProducer(_ context.Context, request *pb.OpenProducerRequest) (*pb.OpenProducerResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := request.GetPartitions()[0]
	opened := &pb.OpenedPartition{Topic: asked.GetTopic(), Partition: asked.GetPartition(), LastSequence: -1}
	if asked.GetPartition() >= b.partitions {
		opened.Error = "UNKNOWN_TOPIC_OR_PARTITION"
	}
	return &pb.OpenProducerResponse{Partitions: []*pb.OpenedPartition{opened}}, nil
}

func (b *broker) ProduceStream(stream pb.LogService_ProduceStreamServer) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return nil // the client has gone
		}
		answer := &pb.ProduceResponse{}
		for _, batch := range request.GetBatches() {
			answer.Results = append(answer.Results, b.append(batch))
		}
		b.mu.Lock()
		b.breakIn--
		broken, stuck := b.breakIn == 0, b.stuck
		b.mu.Unlock()
		if broken {
			return status.Error(codes.Unavailable, "broken") // its answers are lost
		}
		if stuck {
			continue
		}
		if stream.Send(answer) != nil {
			return nil
		}
	}
}

func (b *broker) append(batch *pb.Batch) *pb.BatchResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := batch.GetHeader()
	result := &pb.BatchResult{Id: batch.GetId(), Verdict: pb.Verdict_VERDICT_APPENDED, BaseOffset: -1}
	key := [2]int64{int64(h.GetPartition()), h.GetProducerId()}
	last, known := b.last[key]
	if !known {
		last = -1
	}
	first := h.GetBaseSequence()
	end := first + int64(h.GetRecordCount()) - 1
	switch {
	case h.GetPartition() >= b.partitions:
		result.Verdict = pb.Verdict_VERDICT_UNKNOWN_TOPIC_OR_PARTITION
	case checksum(batch.GetPayload()) != h.GetCrc32C():
		result.Verdict = pb.Verdict_VERDICT_INVALID_BATCH
	case first > last+1:
		result.Verdict = pb.Verdict_VERDICT_OUT_OF_ORDER
	case end <= last:
		result.Verdict = pb.Verdict_VERDICT_DUPLICATE
	case first == last+1:
		b.last[key] = end
		result.BaseOffset = b.end(h.GetPartition())
		b.logs[h.GetPartition()] = append(b.logs[h.GetPartition()], &pb.StoredBatch{
			Header: h, Payload: batch.GetPayload(), BaseOffset: result.BaseOffset,
		})
		close(b.changed)
		b.changed = make(chan struct{})
	}
	return result
}

// recreate deletes the topic and creates it again.
func (b *broker) recreate(partitions int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topicID++
	b.partitions = partitions
	clear(b.logs)
	clear(b.last)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *broker) end(partition int32) int64 {
	log := b.logs[partition]
	if len(log) == 0 {
		return 0
	}
	stored := log[len(log)-1]
	return stored.GetBaseOffset() + int64(stored.GetHeader().GetRecordCount())
}

// read returns Fetch's answer for a partition, at most so many bytes.
func (b *broker) read(asked *pb.PartitionFetch, limit int) *pb.PartitionRecords {
	end := b.end(asked.GetPartition())
	records := &pb.PartitionRecords{Topic: "t", Partition: asked.GetPartition(), HighWatermark: end}
	if asked.GetPartition() >= b.partitions {
		records.Error = pb.PartitionError_PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION
		return records
	}
	if asked.GetOffset() > end {
		records.Error = pb.PartitionError_PARTITION_ERROR_OFFSET_OUT_OF_RANGE
		return records
	}
	for _, stored := range b.logs[asked.GetPartition()] {
		if stored.GetBaseOffset()+int64(stored.GetHeader().GetRecordCount()) > asked.GetOffset() && limit > 0 {
			records.Batches = append(records.Batches, stored)
			limit -= len(stored.GetPayload())
		}
	}
	return records
}

func (b *broker) Fetch(ctx context.Context, request *pb.FetchRequest) (*pb.FetchResponse, error) {
	deadline := time.After(time.Duration(request.GetMaxWaitMs()) * time.Millisecond)
	for {
		answer := &pb.FetchResponse{}
		found := false
		b.mu.Lock()
		for _, asked := range request.GetPartitions() {
			if b.refused != 0 && asked.GetPartition() == b.refused {
				b.mu.Unlock()
				return nil, status.Error(codes.InvalidArgument, "refused")
			}
			records := b.read(asked, int(min(asked.GetMaxBytes(), request.GetMaxBytes())))
			found = found || len(records.GetBatches()) > 0 || records.GetError() != 0
			answer.Partitions = append(answer.Partitions, records)
		}
		changed := b.changed
		b.mu.Unlock()
		if found {
			return answer, nil
		}
		select {
		case <-changed:
		case <-deadline:
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *broker) Subscribe(request *pb.SubscribeRequest, stream pb.LogService_SubscribeServer) error {
	asked := request.GetPartitions()[0]
	for {
		b.mu.Lock()
		records := b.read(asked, int(request.GetMaxBytes()))
		changed := b.changed
		b.mu.Unlock()
		if len(records.GetBatches()) > 0 {
			if stream.Send(&pb.FetchResponse{Partitions: []*pb.PartitionRecords{records}}) != nil {
				return nil
			}
			asked.Offset = endOffset(records)
			continue
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (b *broker) ListOffsets(_ context.Context, request *pb.ListOffsetsRequest) (*pb.ListOffsetsResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := &pb.ListOffsetsResponse{}
	for _, query := range request.GetQueries() {
		result := &pb.OffsetResult{Topic: "t", Partition: query.GetPartition()}
		if query.GetLatest() {
			result.Offset = b.end(query.GetPartition())
		} else {
			result.Offset = b.logStart
		}
		answer.Results = append(answer.Results, result)
	}
	return answer, nil
}
