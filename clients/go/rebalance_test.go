package oncelog

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// joined returns the work of a group's member, without a group.
func joined(config *ConsumerConfig) (*rebalance, *fetchBuffer) {
	buffer := newFetchBuffer(1000, func(string) uint64 { return 1 }, func() {})
	member := &groupMember{config: config, buffer: buffer, machine: newMembership(), wake: make(chan struct{}, 1)}
	member.machine.connect()
	return newRebalance(config, buffer, member, func() {}), buffer
}

// gives has the group name the member's partitions, and those it is to give back.
func (r *rebalance) gives(numbers map[TopicPartition]int64, revoke ...TopicPartition) {
	s := r.member.machine.assignment(r.member.machine.connection, 2, numbers, revoke)
	r.buffer.interrupt(change{r.member.machine.connection, s, time.Now().Add(time.Minute), false})
}

// A callback that panics belongs to the caller, which may go on: no part of a change is left out.
func TestAChangeIsDoneAsAWholeThoughACallbackPanics(t *testing.T) {
	a, b, c := TopicPartition{"t", 0}, TopicPartition{"t", 1}, TopicPartition{"t", 2}
	config := defaultConsumer("a:1")
	panics := func(context.Context, []TopicPartition) error { panic("a fault of its own") }
	r, buffer := joined(&config)
	r.gives(map[TopicPartition]int64{a: 1, b: 1})
	if err := r.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	config.OnLost, config.OnRevoked, config.OnAssigned = panics, panics, panics
	r.gives(map[TopicPartition]int64{c: 1}, b) // a is lost
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = r.follow(t.Context())
	}()
	if read := buffer.assignment(); !slices.Equal(read, []TopicPartition{c}) {
		t.Errorf("it reads %v", read)
	}
	if _, owned := r.member.machine.owned[b]; owned {
		t.Error("not given back")
	}
	if err := r.follow(t.Context()); err != nil {
		t.Error("there is nothing left to do:", err)
	}
}

// One goroutine polls, the others wait; positions and commits are asked for meanwhile. The race
// detector looks on.
func TestManyGoroutinesReadEachRecordOnce(t *testing.T) {
	const count, pollers = 4000, 4
	b := startBroker(t, 2)
	p := producerOf(t, b, func(c *ProducerConfig) { c.BatchSize = 4096 })
	for n := range count {
		if _, err := p.Send(t.Context(), Message{Topic: "t", Value: make([]byte, 100)}, ToPartition(int32(n%2))); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := consumerOf(t, b, func(c *ConsumerConfig) { c.MaxPollRecords = 17 })
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var mu sync.Mutex
	seen := map[TopicPartition]map[int64]bool{{"t", 0}: {}, {"t", 1}: {}}
	var wait sync.WaitGroup
	for range pollers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for ctx.Err() == nil {
				records, err := c.Poll(ctx)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, r := range records {
					of := seen[TopicPartition{r.Topic, r.Partition}]
					if of[r.Offset] {
						t.Errorf("%s-%d: offset %d came twice", r.Topic, r.Partition, r.Offset)
					}
					of[r.Offset] = true
				}
				if len(seen[TopicPartition{"t", 0}])+len(seen[TopicPartition{"t", 1}]) == count {
					enough()
				}
				mu.Unlock()
			}
		}()
	}
	for ctx.Err() == nil {
		c.positions()
		time.Sleep(time.Millisecond)
	}
	wait.Wait()
}

func TestWhoWaitsForAnotherPollGivesUpInTime(t *testing.T) {
	c := consumerOf(t, startBroker(t, 1))
	polling := make(chan struct{})
	go func() {
		close(polling)
		_, _ = c.Poll(t.Context()) // until the consumer is closed
	}()
	<-polling
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Poll(ctx); err != context.DeadlineExceeded {
		t.Error(err)
	}
}

func TestACallbackOfADeliveryThatPanicsIsAFaultOfItsOwn(t *testing.T) {
	p := producerOf(t, startBroker(t, 1), func(c *ProducerConfig) { c.Linger = time.Minute })
	told := 0
	for n := range 2 {
		_, err := p.Send(t.Context(), Message{Topic: "t"}, ToPartition(0), OnDelivery(func(Metadata, error) {
			told++
			if n == 0 {
				panic("a fault of its own")
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil || told != 2 {
		t.Errorf("%d callbacks were called, %v", told, err)
	}
}
