package oncelog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

func TestACommitIsTheSameRequestEachTime(t *testing.T) {
	x := begun()
	for partition := range int32(20) {
		x.staged(TopicPartition{"t", partition}, 1, 0)
		x.stagedOffsets(fmt.Sprint("group", partition), 1, 1)
	}
	first := x.commitRequest(nil)
	for range 20 {
		if !proto.Equal(first, x.commitRequest(nil)) {
			t.Fatal("a repeat names what is staged in another order")
		}
	}
	for i, run := range first.GetRuns() {
		if run.GetPartition() != int32(i) {
			t.Fatalf("run %d is of partition %d", i, run.GetPartition())
		}
	}
}

func named(c *ProducerConfig) { c.ProducerName = "n" }

// The lease took effect. Another one, with another number, would be refused as a successor's.
func TestALeaseWithoutAnAnswerIsRepeatedAndNotMadeAnew(t *testing.T) {
	b := startBroker(t, 1)
	nonces := make(chan uint64, 2)
	ctx, giveUp := context.WithCancel(t.Context())
	b.onLease = func(call context.Context, request *pb.LeaseProducerRequest) {
		nonces <- request.GetNonce()
		giveUp()
		if len(nonces) == 1 {
			<-call.Done()
		}
	}
	p := producerOf(t, b, named)
	if _, err := p.Begin(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := p.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, second := <-nonces, <-nonces; first != second {
		t.Errorf("leased with %d, then with %d", first, second)
	}
}

func TestABeginThatWasGivenUpIsUndone(t *testing.T) {
	b := startBroker(t, 1)
	ctx, giveUp := context.WithCancel(t.Context())
	first := true
	b.onBegin = func(call context.Context, request *pb.BeginTransactionRequest) {
		if first {
			first = false
			giveUp()
			<-call.Done()
		}
	}
	p := producerOf(t, b, named)
	if _, err := p.Begin(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if id := <-b.aborted; id != 101 {
		t.Errorf("transaction %d was aborted", id)
	}
	x, err := p.Begin(t.Context())
	if err != nil || x.ID() != 102 {
		t.Errorf("the next one is %d, %v", x.ID(), err)
	}
}

func TestTimesOfATransactionAreBounded(t *testing.T) {
	p := producerOf(t, startBroker(t, 1), named)
	for _, span := range []time.Duration{-1, time.Microsecond, maxSpan + ms} {
		_, err := p.Begin(t.Context(), WithIdleTimeout(span))
		if e := asError(err); e.Kind != ErrInvalidRequest || e.Field != "idle_timeout" {
			t.Errorf("%s: %v", span, err)
		}
	}
}
