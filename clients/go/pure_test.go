package oncelog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// Values that Kafka's own tests hold.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("%s: %d, want %d", key, got, want)
		}
	}
}

func TestErrorsFormATree(t *testing.T) {
	err := fmt.Errorf("about a record: %w", fail(ErrFenced, "epoch %d", 3))
	for _, kind := range []*Kind{ErrFenced, ErrProducerFatal, ErrDelivery, ErrFatal} {
		if !errors.Is(err, kind) {
			t.Errorf("it is no %s", kind)
		}
	}
	for _, kind := range []*Kind{ErrRetriable, ErrOutOfOrder, ErrConfig, ErrInvalidBatch} {
		if errors.Is(err, kind) {
			t.Errorf("it is a %s", kind)
		}
	}
	var e *Error
	if !errors.As(err, &e) || e.Outcome != NotStored || e.Retriable() {
		t.Errorf("%+v", e)
	}
	if !fail(ErrRequestTimeout, "").Timeout() || fail(ErrNotReady, "").Timeout() {
		t.Error("what is a timeout")
	}
}

func TestStatus(t *testing.T) {
	info := &errdetails.ErrorInfo{Domain: "oncelog", Reason: "NOT_LEADER", Metadata: map[string]string{
		"retriable": "true", "leader_id": "2", "leader_address": "b:1",
	}}
	withInfo := func(info *errdetails.ErrorInfo) error {
		st, err := status.New(codes.Unavailable, "not here").WithDetails(info)
		if err != nil {
			t.Fatal(err)
		}
		return asError(fromRPC(t.Context(), "a:1", st.Err()))
	}
	var e *Error
	if err := withInfo(info); !errors.As(err, &e) || e.Kind != ErrNotLeader || e.LeaderID != 2 || e.LeaderAddress != "b:1" {
		t.Errorf("%+v", e)
	}
	info.Reason = "A_LATER_WORD"
	if err := withInfo(info); !errors.Is(err, ErrRetriable) {
		t.Error(err)
	}
	info.Metadata["retriable"] = "false"
	if err := withInfo(info); !errors.Is(err, ErrInternal) {
		t.Error(err)
	}
	for code, retriable := range map[codes.Code]bool{
		codes.Unavailable: true, codes.Canceled: true, codes.DeadlineExceeded: true,
		codes.ResourceExhausted: false, codes.Unimplemented: false, codes.Unknown: false,
		codes.Internal: false, codes.NotFound: false,
	} {
		err := fromRPC(t.Context(), "a:1", status.Error(code, "plain"))
		if errors.Is(err, ErrRetriable) != retriable {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestBackoffDoubles(t *testing.T) {
	b := backoff{50 * time.Millisecond, time.Second}
	if b.delay(0) != 0 {
		t.Error("a pause without a failure")
	}
	for failures, want := range map[int]time.Duration{1: 50, 2: 100, 3: 200, 5: 800, 6: 1000, 90: 1000} {
		want *= time.Millisecond
		if got := b.delay(failures); got < want*8/10 || got > want*12/10 {
			t.Errorf("after %d failures %s, want about %s", failures, got, want)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	bad := map[string]func(*ProducerConfig){
		"BootstrapServers": func(c *ProducerConfig) { c.BootstrapServers = []string{"nowhere"} },
		"Linger":           func(c *ProducerConfig) { c.Linger = -1 },
		"BatchSize":        func(c *ProducerConfig) { c.BatchSize = 1 },
		"BufferMemory":     func(c *ProducerConfig) { c.BufferMemory = 1000 },
		"MaxInFlight":      func(c *ProducerConfig) { c.MaxInFlight = 0 },
		"Compression":      func(c *ProducerConfig) { c.Compression = "gzip" },
		"CompressionLevel": func(c *ProducerConfig) { c.CompressionLevel = new(int) },
		"DeliveryTimeout":  func(c *ProducerConfig) { c.DeliveryTimeout = time.Second },
		"ProducerName":     func(c *ProducerConfig) { c.ProducerName = "a\nb" },
		"idempotence":      func(c *ProducerConfig) { c.ProducerName, c.EnableIdempotence = "a", false },
		"resume_from": func(c *ProducerConfig) {
			c.ProducerName, c.ResumeFrom = "a", &ProducerIdentity{ProducerID: 1}
		},
		"backoff": func(c *ProducerConfig) { c.RetryBackoffMax = time.Millisecond },
	}
	for name, option := range bad {
		if _, err := NewProducer("localhost:7001", option); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	both := func(c *ConsumerConfig) { c.Rack, c.AnyReplica = "a", true }
	if _, err := NewConsumer("localhost:7001", both); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	if _, err := NewConsumer("localhost:7001", func(c *ConsumerConfig) { c.ReplicaNodeID = 1 }); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	if _, err := NewAdmin(" , "); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	t.Setenv("ONCELOG_BOOTSTRAP", "a:1,b:2")
	if got := defaultClient("").BootstrapServers; !slices.Equal(got, []string{"a:1", "b:2"}) {
		t.Error(got)
	}
}

func described(term int64, leader int32) *pb.DescribeTopicsResponse {
	return &pb.DescribeTopicsResponse{
		Nodes: []*pb.NodeInfo{{NodeId: 1, Address: "a:1"}, {NodeId: 2, Address: "b:1"}},
		Topics: []*pb.TopicInfo{{Name: "t", TopicId: 1, Partitions: []*pb.PartitionInfo{
			{Partition: 0, LeaderId: leader, Term: term},
		}}},
	}
}

func TestLeaders(t *testing.T) {
	tp := TopicPartition{"t", 0}
	l := newLeaders()
	is := func(want string) {
		t.Helper()
		if got := l.address(tp); got != want {
			t.Errorf("%q leads, want %q", got, want)
		}
	}
	l.update(described(5, 1))
	is("a:1")
	l.update(described(4, 2)) // a node that is behind
	is("a:1")
	l.update(described(5, 2)) // nobody else led in this term
	is("a:1")
	l.hint(tp, 2, "b:1")
	is("b:1")
	l.update(described(5, 1)) // it refused, and does not know yet
	is("b:1")
	// The one that was named refuses, too: a node's word takes the place of the hint.
	l.suspect(tp)
	l.update(described(5, 1))
	is("a:1")
	l.update(described(6, 2))
	is("b:1")
	l.forget(tp, "a:1")
	is("b:1")
	l.forget(tp, "b:1")
	is("")
	again := described(1, 1)
	again.Topics[0].TopicId = 2 // made anew: terms begin anew
	l.update(again)
	is("a:1")
	l.update(described(9, 2)) // of the one that was deleted
	is("a:1")
	wrong := described(10, 1)
	wrong.Topics[0].TopicId = 2
	wrong.Topics[0].Partitions = []*pb.PartitionInfo{{Partition: -1}, {Partition: 1 << 30}}
	l.update(wrong)
	if _, _, partitions, _ := l.topic("t"); partitions != 1 {
		t.Errorf("%d partitions", partitions)
	}
}

func TestASeekWinsAgainstAReset(t *testing.T) {
	tp := TopicPartition{"t", 0}
	buffer := newFetchBuffer(1000, func(string) uint64 { return 1 }, func() {})
	buffer.assign([]TopicPartition{tp})
	buffer.seek(tp, 5)
	refused := buffer.wanted()[0]
	buffer.seek(tp, 7)
	if buffer.reset(refused, Earliest); buffer.place(tp) != 7 {
		t.Error(buffer.place(tp))
	}
	if buffer.beginAnew(refused, 2); buffer.place(tp) != 7 {
		t.Error(buffer.place(tp))
	}
	if buffer.reset(buffer.wanted()[0], Earliest); buffer.place(tp) != unknownPosition {
		t.Error(buffer.place(tp))
	}
}

func TestPartitionsFailInTurn(t *testing.T) {
	tps := []TopicPartition{{"t", 0}, {"t", 1}}
	buffer := newFetchBuffer(1000, func(string) uint64 { return 1 }, func() {})
	buffer.assign(tps)
	for _, w := range buffer.withoutPosition() {
		buffer.fail(w.tp, w.generation, noPartition(w.tp))
	}
	_, _, first := buffer.peek(true)
	for _, w := range buffer.withoutPosition() {
		buffer.fail(w.tp, w.generation, first)
	}
	if _, _, second := buffer.peek(true); second == nil || second.Error() == first.Error() {
		t.Error(second)
	}
}
