package oncelog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// rebalance is what a consumer does when its partitions change: on its own goroutine, between two
// polls.
//
//	groupMember --change--> fetchBuffer --interruption--> rebalance --> OnLost, OnRevoked,
//	owned, commits <-- groupMember <----------------------'            OnAssigned
type rebalance struct {
	config *ConsumerConfig
	buffer *fetchBuffer
	member *groupMember
	wake   func()
	// Under which ownership the records of each partition are being read.
	numbers  map[TopicPartition]int64
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

// follow does all that is due. It returns the first error of a callback, and what has ended the
// membership.
func (r *rebalance) follow(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // what is asked back is finished, however short a poll is
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
		first = r.commit(ctx, slices.Collect(maps.Keys(r.numbers)))
	}
	return first
}

// leave: the consumer closes. failed: what was given out last may not have been worked on.
func (r *rebalance) leave(ctx context.Context, failed bool) (err error) {
	tps := slices.Collect(maps.Keys(r.numbers))
	switch {
	case !failed:
		err = r.finish(ctx, tps, time.Now().Add(r.config.RevokeTimeout))
	case len(tps) > 0:
		err = call(ctx, r.config.OnLost, tps)
	}
	r.drop(tps)
	r.member.leave()
	return err
}

// take does all of it, even if a callback fails.
func (r *rebalance) take(ctx context.Context, c change) error {
	var lost []TopicPartition
	for _, tp := range c.step.lost {
		if _, known := r.numbers[tp]; known {
			lost = append(lost, tp)
		}
	}
	r.drop(lost)
	errs := []error{call(ctx, r.config.OnLost, lost)}
	if c.ended {
		r.member.comesBack()
	}
	if len(c.step.revoked) > 0 {
		errs = append(errs, r.giveBack(ctx, c))
	}
	if len(c.step.assigned) > 0 {
		errs = append(errs, r.gain(ctx, c))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rebalance) giveBack(ctx context.Context, c change) error {
	asked := r.member.askedBack(c)
	var known []TopicPartition
	for _, tp := range asked {
		if _, ok := r.numbers[tp]; ok {
			known = append(known, tp)
		}
	}
	err := r.finish(ctx, known, c.deadline)
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
	if more := call(ctx, r.config.OnAssigned, again); err == nil {
		err = more
	}
	return err
}

func (r *rebalance) gain(ctx context.Context, c change) error {
	fresh := r.member.stillOwned(c.step.assigned)
	if len(fresh) == 0 {
		return nil
	}
	maps.Copy(r.numbers, fresh)
	tps := slices.Collect(maps.Keys(fresh))
	r.buffer.assign(append(r.buffer.assignment(), tps...))
	r.wake()
	return call(ctx, r.config.OnAssigned, tps)
}

// finish: what was given out is worked on and committed.
func (r *rebalance) finish(ctx context.Context, tps []TopicPartition, deadline time.Time) error {
	if len(tps) == 0 {
		return nil
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := call(bounded, r.config.OnRevoked, tps)
	if r.config.EnableAutoCommit {
		if failed := r.commit(bounded, tps); err == nil {
			err = failed
		}
	}
	return err
}

// commit stores the user's places, as far as they have moved.
func (r *rebalance) commit(ctx context.Context, tps []TopicPartition) error {
	r.commitAt = time.Now().Add(r.config.AutoCommitInterval)
	moved := map[TopicPartition]OffsetCommit{}
	for _, tp := range tps {
		position, _, err := r.buffer.position(tp)
		stored, known := r.stored[tp]
		if err == nil && position != unknownPosition && (!known || stored != position) {
			moved[tp] = OffsetCommit{Offset: position}
		}
	}
	if len(moved) == 0 {
		return nil
	}
	terms, err := r.member.commitTerms(moved, maps.Clone(r.numbers))
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
	for _, tp := range tps {
		delete(r.numbers, tp)
		delete(r.stored, tp)
	}
	r.buffer.assign(slices.DeleteFunc(r.buffer.assignment(), func(tp TopicPartition) bool {
		return slices.Contains(tps, tp)
	}))
}

func call(ctx context.Context, callback OnPartitions, tps []TopicPartition) error {
	if callback == nil || len(tps) == 0 {
		return nil
	}
	sortPartitions(tps)
	return callback(ctx, tps)
}
