package oncelog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	// Several small batches share a message up to this size, and this number.
	messageBytes   = 1 << 20
	messageBatches = 1000
	// No more is handed to the connection than this before it has taken the batches in hand: a batch
	// that waits in the accumulator can still grow, one that waits here cannot.
	backlogBytes = 4 << 20
)

// waiting is an attempt that waits for its answer.
type waiting struct {
	window *window
	batch  *sealedBatch
}

// produceStream is one ordered stream of batches to one node. It connects before it reports
// itself open, so a batch that is handed over has somewhere to go; a batch for a node that
// cannot be reached is never sealed.
type produceStream struct {
	address string
	cancel  context.CancelCauseFunc
	// Of the sender's goroutine: answers are awaited for these, by attempt id.
	opened      bool
	outstanding map[uint64]waiting

	backlog atomic.Int64
	mu      sync.Mutex
	outbox  []*pb.Batch
	wake    chan struct{}
}

// streamEvents are a stream's reports to the sender; each is called on the stream's goroutine.
type streamEvents struct {
	opened  func(*produceStream)
	room    func()
	results func(*produceStream, []*pb.BatchResult)
	closed  func(*produceStream, error)
}

func startStream(ctx context.Context, conn *grpc.ClientConn, address string, commitTimeout, connectIn time.Duration, events streamEvents) *produceStream {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &produceStream{
		address: address, cancel: cancel,
		outstanding: map[uint64]waiting{}, wake: make(chan struct{}, 1),
	}
	go func() {
		err := s.run(ctx, conn, commitTimeout, connectIn, events)
		cancel(err)
		events.closed(s, err)
	}()
	return s
}

func (s *produceStream) hasRoom() bool { return s.opened && s.backlog.Load() < backlogBytes }

func (s *produceStream) send(w *window, batch *sealedBatch, attemptID uint64) {
	s.outstanding[attemptID] = waiting{w, batch}
	message := batch.message(attemptID)
	s.backlog.Add(int64(len(message.GetPayload())))
	s.mu.Lock()
	s.outbox = append(s.outbox, message)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close gives the stream up; its closed event comes soon.
func (s *produceStream) close(why string) { s.cancel(fail(ErrUnavailable, "%s: %s", s.address, why)) }

// run connects, writes and reads until the stream breaks, and returns why it did.
func (s *produceStream) run(ctx context.Context, conn *grpc.ClientConn, commitTimeout, connectIn time.Duration, events streamEvents) error {
	if err := connect(ctx, conn, s.address, connectIn); err != nil {
		return err
	}
	stream, err := pb.NewLogServiceClient(conn).ProduceStream(ctx)
	if err != nil {
		return fromRPC(ctx, s.address, err)
	}
	events.opened(s)
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		s.write(ctx, stream, int32(commitTimeout/ms), events.room)
	}()
	err = s.read(ctx, stream, events)
	s.cancel(err)
	<-writer
	return err
}

func connect(ctx context.Context, conn *grpc.ClientConn, address string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fail(ErrUnavailable, "%s: no connection within %s", address, limit)
		}
	}
}

func (s *produceStream) write(ctx context.Context, stream pb.LogService_ProduceStreamClient, timeoutMs int32, room func()) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		for {
			batches, size := s.nextMessage()
			if batches == nil {
				break
			}
			request := &pb.ProduceRequest{Batches: batches, TimeoutMs: timeoutMs}
			if stream.Send(request) != nil {
				return // the read tells why
			}
			if s.backlog.Add(-size)+size >= backlogBytes {
				room()
			}
		}
	}
}

// nextMessage returns as many batches, in order, as share a message, and their size.
func (s *produceStream) nextMessage() ([]*pb.Batch, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var size int64
	count := 0
	for _, batch := range s.outbox {
		more := int64(len(batch.GetPayload()))
		if count == messageBatches || count > 0 && size+more > messageBytes {
			break
		}
		size += more
		count++
	}
	batches := s.outbox[:count:count]
	s.outbox = s.outbox[count:]
	if count == 0 {
		return nil, 0
	}
	return batches, size
}

func (s *produceStream) read(ctx context.Context, stream pb.LogService_ProduceStreamClient, events streamEvents) error {
	for {
		response, err := stream.Recv()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%s: %w", s.address, err)
		}
		events.results(s, response.GetResults())
	}
}
