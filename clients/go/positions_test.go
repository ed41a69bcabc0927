package oncelog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// fill sends records to each of the partitions and waits for them.
func fill(t *testing.T, p *Producer, each int, partitions ...int32) {
	t.Helper()
	for _, partition := range partitions {
		for n := range each {
			_, err := p.SendSync(t.Context(), Message{Topic: "t", Value: []byte(fmt.Sprint(n))}, ToPartition(partition))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAPartitionWithoutALeaderHoldsUpNoOtherOne(t *testing.T) {
	b := startBroker(t, 4)
	fill(t, producerOf(t, b), 10, 0, 1, 3)
	b.mu.Lock() // the producer may ask who leads
	b.leaderless[2] = true
	b.mu.Unlock()
	// EndOffsets waits for t-2's leader so long, and the answers for the others come within it.
	c := consumerOf(t, b, func(c *ConsumerConfig) { c.RequestTimeout, c.FetchMaxWait = 3*time.Second, 100*ms })
	if values := readValues(t, c, 30); len(values) != 3 {
		t.Errorf("%v were read", values)
	}
	ends, err := c.EndOffsets(t.Context(), c.Assignment()...)
	if e := asError(err); e.Kind != ErrNotReady || !strings.HasPrefix(e.Message, "t-2 has no leader") {
		t.Error(err)
	}
	if len(ends) != 3 || ends[TopicPartition{"t", 3}] != 10 {
		t.Errorf("the others' ends: %v", ends)
	}
	if err := c.SeekToBeginning(t.Context()); err != nil {
		t.Error(err)
	}
	again := 0
	for again < 30 {
		records, err := c.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		again += len(records)
	}
	b.mu.Lock()
	delete(b.leaderless, 2)
	b.mu.Unlock()
	fill(t, producerOf(t, b), 1, 2)
	if records, err := c.Poll(t.Context()); err != nil || records[0].Partition != 2 {
		t.Errorf("when it has a leader: %v %v", records, err)
	}
}

func TestAnErrorNamesAllPartitionsWithoutAnAnswer(t *testing.T) {
	failed := map[TopicPartition]error{}
	for n := range int32(7) {
		tp := TopicPartition{"t", n}
		failed[tp] = fail(ErrNotReady, "%s has no leader", tp)
	}
	err := ofPartitions(failed)
	names := "no offsets of t-0, t-1, t-2, t-3, t-4 and 2 more: t-0 has no leader"
	if !errors.Is(err, ErrNotReady) || err.Error() != names {
		t.Error(err)
	}
	last := TopicPartition{"t", 6}
	failed[last] = corrupt(last, -1, "damaged")
	if err := ofPartitions(failed); !errors.Is(err, ErrCorruptLog) {
		t.Errorf("a final one is told first: %v", err)
	}
	failed[TopicPartition{"t", 0}] = context.Canceled
	if err := ofPartitions(failed); err != context.Canceled {
		t.Errorf("a caller who has given up is told so: %v", err)
	}
}

func TestLagCountsWhatIsKept(t *testing.T) {
	b := startBroker(t, 1)
	fill(t, producerOf(t, b), 10, 0)
	b.mu.Lock()
	b.logStart = 7
	b.mu.Unlock()
	c := consumerOf(t, b)
	tp := TopicPartition{"t", 0}
	if err := c.Seek(tp, 2); err != nil {
		t.Fatal(err)
	}
	if lag, err := c.Lag(t.Context(), tp); err != nil || lag != 3 {
		t.Error(lag, err)
	}
}

// Its offsets mean nothing in the one that was created anew.
func TestATopicThatIsCreatedAnewIsReadFromItsStart(t *testing.T) {
	b := startBroker(t, 3)
	fill(t, producerOf(t, b), 10, 0, 1, 2)
	c := consumerOf(t, b, func(c *ConsumerConfig) { c.FetchMaxWait = 100 * ms })
	readValues(t, c, 30)
	b.recreate(2)
	fill(t, producerOf(t, b), 3, 0, 1)
	began := time.Now()
	for n := 0; n < 6; {
		records, err := c.Poll(t.Context())
		if err != nil {
			t.Fatalf("after %d records and %s: %v", n, time.Since(began), err)
		}
		for _, r := range records {
			if r.Offset >= 3 {
				t.Errorf("offset %d", r.Offset)
			}
		}
		n += len(records)
	}
	if read := c.Assignment(); len(read) != 2 {
		t.Errorf("it reads %v", read)
	}
}

func TestARecordForAPartitionThatIsGoneFailsAtOnce(t *testing.T) {
	for _, options := range [][]func(*ProducerConfig){nil, {named}} {
		b := startBroker(t, 3)
		p := producerOf(t, b, options...)
		if options == nil {
			fill(t, p, 1, 2)
		} else if _, err := p.Partitions(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		b.recreate(2)
		_, err := p.SendSync(t.Context(), Message{Topic: "t"}, ToPartition(2))
		if e := asError(err); e.Kind != ErrDelivery || e.Partition != 2 || e.Outcome == "" {
			t.Errorf("%v, %s", err, e.Outcome)
		}
		if count, err := p.Partitions(t.Context(), "t"); err != nil || count != 2 {
			t.Error(count, err)
		}
		if options == nil {
			fill(t, p, 1, 0, 1)
		}
	}
}

func TestAPollThatIsRefusedIsTheErrorOfItsCauseAlone(t *testing.T) {
	b := startBroker(t, 3)
	fill(t, producerOf(t, b), 5, 0, 1, 2)
	b.refused = 1
	c := consumerOf(t, b)
	told := 0
	for n := 0; n < 10; {
		records, err := c.Poll(t.Context())
		switch {
		case errors.Is(err, ErrInvalidRequest):
			told++
		case err != nil:
			t.Fatal(err)
		}
		n += len(records)
	}
	for told == 0 {
		if _, err := c.Poll(t.Context()); !errors.Is(err, ErrInvalidRequest) {
			t.Fatal(err)
		}
		told++
	}
}
