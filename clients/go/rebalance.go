package oncelog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// rebalance is the consumer's work when its partitions change: on its own goroutine, between two
// polls.
//
//	groupMember --change--> fetchBuffer --interruption--> rebalance --> OnLost, OnRevoked,
//	owned, commits <-- groupMember <----------------------'            OnAssigned
type rebalance struct {
	config *ConsumerConfig
	buffer *fetchBuffer
	member *groupMember
	wake   func()
	mu     sync.Mutex
	// Under which ownership the records of each partition are being read.
	numbers map[TopicPartition]int64
	// Of the polling goroutine.
	stored   map[TopicPartition]int64 // by automatic commits
	commitAt time.Time
}

func newRebalance(config *ConsumerConfig, buffer *fetchBuffer, member *groupMember, wake func()) *rebalance {
	return &rebalance{
		config: config, buffer: buffer, member: member, wake: wake,
		numbers: map[TopicPartition]int64{}, stored: map[TopicPartition]int64{},
		commitAt: time.Now().Add(config.AutoCommitInterval),
	}
}

// follow does all that is due. It returns the first error of a callback, and the error that has
// ended the membership.
func (r *rebalance) follow(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // partitions asked back are finished, even in a short poll
	var first error
	for {
		c, ok := r.buffer.interruption()
		if !ok {
			break
		}
		if err := r.take(ctx, c); first == nil {
			first = err
		}
	}
	if err := r.member.failure(); first == nil {
		first = err
	}
	if first == nil && r.config.EnableAutoCommit && !time.Now().Before(r.commitAt) {
		first = r.commit(ctx, r.all())
	}
	return first
}

// await returns when there is something to look at, or an automatic commit is due.
func (r *rebalance) await(ctx context.Context, changed <-chan struct{}) error {
	var due <-chan time.Time
	if r != nil && r.config.EnableAutoCommit {
		timer := time.NewTimer(time.Until(r.commitAt))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed:
	case <-due:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// all returns the partitions that are read under some ownership.
func (r *rebalance) all() []TopicPartition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.numbers))
}

// known returns those that are read under some ownership.
func (r *rebalance) known(tps []TopicPartition) (known []TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tp := range tps {
		if _, ok := r.numbers[tp]; ok {
			known = append(known, tp)
		}
	}
	return known
}

func (r *rebalance) commitTerms(offsets map[TopicPartition]OffsetCommit) (*commitTerms, error) {
	r.mu.Lock()
	numbers := maps.Clone(r.numbers)
	r.mu.Unlock()
	return r.member.commitTerms(offsets, numbers)
}

// leave: the consumer closes. failed: the records given out last may not have been worked on.
func (r *rebalance) leave(ctx context.Context, failed bool) error {
	tps := r.all()
	defer r.member.leave()
	defer r.drop(tps)
	if failed {
		return call(ctx, r.config.OnLost, tps)
	}
	return r.finish(ctx, tps, time.Now().Add(r.config.RevokeTimeout))
}

// take does all of it.
func (r *rebalance) take(ctx context.Context, c change) error {
	lost := r.known(c.step.lost)
	return inTurn(
		func() error { r.drop(lost); return call(ctx, r.config.OnLost, lost) },
		func() error {
			if c.ended {
				r.member.comesBack()
			}
			if len(c.step.revoked) == 0 {
				return nil
			}
			return r.giveBack(ctx, c)
		},
		func() error { return r.gain(ctx, c) },
	)
}

// inTurn takes each step, even if one before it fails or panics, for a change is done as a whole
// or the group and its member disagree. It returns the first error.
func inTurn(steps ...func() error) (err error) {
	if len(steps) == 0 {
		return nil
	}
	defer func() {
		if more := inTurn(steps[1:]...); err == nil {
			err = more
		}
	}()
	return steps[0]()
}

func (r *rebalance) giveBack(ctx context.Context, c change) error {
	asked := r.member.askedBack(c)
	known := r.known(asked)
	return inTurn(
		func() error { return r.finish(ctx, known, c.deadline) },
		func() error {
			kept := r.member.release(c, asked)
			var again, gone []TopicPartition
			for _, tp := range known {
				if slices.Contains(kept, tp) {
					again = append(again, tp)
				} else {
					gone = append(gone, tp)
				}
			}
			r.drop(gone)
			// Those kept: a new connection has begun meanwhile, and said that they are held.
			return call(ctx, r.config.OnAssigned, again)
		},
	)
}

func (r *rebalance) gain(ctx context.Context, c change) error {
	fresh := r.member.stillOwned(c.step.assigned)
	if len(fresh) == 0 {
		return nil
	}
	r.mu.Lock()
	maps.Copy(r.numbers, fresh)
	r.mu.Unlock()
	tps := slices.Collect(maps.Keys(fresh))
	r.buffer.assign(append(r.buffer.assignment(), tps...))
	r.wake()
	return call(ctx, r.config.OnAssigned, tps)
}

// finish: the records given out are worked on and committed.
func (r *rebalance) finish(ctx context.Context, tps []TopicPartition, deadline time.Time) error {
	if len(tps) == 0 {
		return nil
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return inTurn(
		func() error { return call(bounded, r.config.OnRevoked, tps) },
		func() error {
			if r.config.EnableAutoCommit {
				return r.commit(bounded, tps)
			}
			return nil
		},
	)
}

// commit stores the user's places, as far as they have moved.
func (r *rebalance) commit(ctx context.Context, tps []TopicPartition) error {
	r.commitAt = time.Now().Add(r.config.AutoCommitInterval)
	moved := map[TopicPartition]OffsetCommit{}
	for _, tp := range tps {
		position := r.buffer.place(tp)
		stored, known := r.stored[tp]
		if position != unknownPosition && (!known || stored != position) {
			moved[tp] = OffsetCommit{Offset: position}
		}
	}
	if len(moved) == 0 {
		return nil
	}
	terms, err := r.commitTerms(moved)
	if err == nil {
		err = r.member.groups.commit(ctx, r.member.group, moved, terms)
	}
	switch {
	case err == nil:
		for tp, one := range moved {
			r.stored[tp] = one.Offset
		}
	case isRetriable(err), errors.Is(err, ErrFencedMember), ctx.Err() != nil:
		return nil // the next one stores it, or nobody may
	}
	return err
}

func (r *rebalance) drop(tps []TopicPartition) {
	if len(tps) == 0 {
		return
	}
	r.mu.Lock()
	for _, tp := range tps {
		delete(r.numbers, tp)
		delete(r.stored, tp)
	}
	r.mu.Unlock()
	r.buffer.assign(slices.DeleteFunc(r.buffer.assignment(), func(tp TopicPartition) bool {
		return slices.Contains(tps, tp)
	}))
}

func call(ctx context.Context, callback OnPartitions, tps []TopicPartition) error {
	if callback == nil || len(tps) == 0 {
		return nil
	}
	tps = slices.Clone(tps) // the callback may keep it
	sortPartitions(tps)
	return callback(ctx, tps)
}
