package oncelog

import (
	"fmt"
	"slices"
	"time"
)

// Fate of a window with batches that are refused for good, or out of time.

func (w *window) refusedForGood(s *sealedBatch, err *Error) reaction {
	if s.batch.transaction != nil {
		return w.stagingFailed(s.batch.transaction, err)
	}
	// Offsets only grow: a delayed copy will be refused for the same reason.
	certain := !s.ambiguous ||
		err.Kind == ErrOffsetMismatch && err.NextOffset > s.batch.expectedOffset
	err.Outcome = NotStored
	if !certain {
		err.Outcome = Unknown
	}
	position := slices.Index(w.batches, s)
	if !w.config.EnableIdempotence {
		// Batches without sequences do not depend on each other.
		w.batches = slices.Delete(slices.Clone(w.batches), position, position+1)
		if position < w.cursor {
			w.cursor--
		}
		w.fail([]*sealedBatch{s}, err)
		for len(w.batches) > 0 && w.batches[0].acked {
			w.batches = w.batches[1:]
			w.cursor = max(0, w.cursor-1)
		}
		return reaction{}
	}
	behind := slices.Clone(w.batches[position+1:])
	w.batches = w.batches[:position:position]
	w.cursor = min(w.cursor, len(w.batches))
	if err.Kind == ErrProducerExpired && certain {
		// Nothing is wrong with its records: they need another producer id.
		return w.sealAgain(append([]*sealedBatch{s}, behind...), err)
	}
	w.fail([]*sealedBatch{s}, err)
	if !certain {
		w.dead = true
		w.stats.Resets++
		unknown := fail(ErrDeliveryTimeout,
			"%s: a batch before it was refused and its outcome is not known", w.tp)
		unknown.Outcome = Unknown
		w.fail(behind, unknown)
		return reaction{fatal: w.gap}
	}
	if len(behind) == 0 {
		w.prevSequence = s.prevSequence
		return reaction{fatal: w.gap}
	}
	return w.sealAgain(behind, err)
}

// stagingFailed: the transaction cannot be committed any more. All of it fails; its stored part is
// dropped.
func (w *window) stagingFailed(t *transaction, err *Error) reaction {
	w.accumulator.failTransaction(t, err)
	w.failAll(err)
	return reaction{}
}

// onTopicCreatedAnew: the topic was deleted and created again, and its leader knows nothing of
// this producer.
//
// A batch without an answer may have been stored in the topic that is gone: it fails. Refused
// batches are in neither, nor those behind them: it goes to the new one, under a new producer id,
// so that no delayed copy can take its place.
func (w *window) onTopicCreatedAnew() reaction {
	if !w.leased() {
		return reaction{fatal: fail(ErrProducerFatal, "%s: the topic was deleted and created anew; "+
			"the given producer id cannot go on: make a new producer", w.tp)}
	}
	if slices.ContainsFunc(w.batches, func(s *sealedBatch) bool { return s.batch.sequences != nil }) {
		w.gap = lostWithTopic(w.tp, w.storedGiven)
		w.accumulator.refuse(w.gap)
		return reaction{fatal: w.gap}
	}
	left := slices.DeleteFunc(w.batches, func(s *sealedBatch) bool { return s.acked })
	if len(left) > 0 && left[0].batch.transaction != nil {
		w.madeAnew = true
		return w.stagingFailed(left[0].batch.transaction,
			fail(ErrDelivery, "%s: the topic was deleted and created anew", w.tp))
	}
	w.batches, w.cursor = nil, 0
	sure := slices.IndexFunc(left, func(s *sealedBatch) bool { return !s.unanswered })
	if sure < 0 {
		sure = len(left)
	}
	gone := fail(ErrDelivery, "%s: the topic was deleted and created anew while this was on its way", w.tp)
	gone.Outcome = Unknown
	w.fail(left[:sure], gone)
	return w.sealAgain(left[sure:], gone)
}

// gone says that a topic was created anew without this partition.
func gone(tp TopicPartition) *Error {
	e := fail(ErrDelivery, "%s: the topic was deleted and created anew, without this partition", tp)
	e.Topic, e.Partition = tp.Topic, tp.Partition
	return e
}

// onPartitionGone fails the batches on their way. A partition that comes again gets another
// identity.
func (w *window) onPartitionGone() reaction {
	w.failAll(gone(w.tp))
	w.dead, w.madeAnew = w.config.EnableIdempotence, true
	return reaction{fatal: w.gap}
}

func (w *window) sealAgain(behind []*sealedBatch, err *Error) reaction {
	if !w.leased() || w.resets >= 3 {
		w.batches = append(w.batches, behind...)
		// Records behind a refused one would need another producer id.
		return reaction{fatal: fail(ErrProducerFatal,
			"%s: %s; the batches behind it need a new producer id", w.tp, err.Message)}
	}
	w.resets++
	w.stats.Resets++
	w.dead = true
	var again []*openBatch
	for _, s := range behind {
		if !s.abandoned {
			again = append(again, s.batch)
		}
	}
	w.again = append(again, w.again...)
	return reaction{fatal: w.gap}
}

func (w *window) fail(batches []*sealedBatch, err *Error) {
	for _, s := range batches {
		if !s.abandoned && !s.acked {
			w.failBatch(s.batch, err)
		}
	}
}

func (w *window) failBatch(batch *openBatch, err *Error) {
	w.stats.RecordsFailed += int64(batch.count)
	if batch.transaction != nil {
		w.accumulator.failTransaction(batch.transaction, err)
	}
	if w.gap == nil {
		if w.gap = gapAfter(batch, err); w.gap != nil {
			// Before anybody learns of it: a window that does may send the next batch.
			w.accumulator.refuse(w.gap)
		}
	}
	batch.delivery.fail(err)
	w.onDone(batch)
}

// gapAfter returns the fatal error of a producer that could not store a batch with given sequences.
// A refused condition is no gap: the application asked for it.
func gapAfter(batch *openBatch, err *Error) *Error {
	if batch.sequences == nil || err.Kind == ErrOffsetMismatch {
		return nil
	}
	if batch.transaction != nil {
		return nil // later batches go with it
	}
	return fail(ErrProducerFatal, "%s: the records with the application's sequences %d to %d failed, "+
		"and later records must not be stored without them; go on behind Position with a new "+
		"producer: %s", batch.lane.tp, batch.sequences[0], batch.sequences[len(batch.sequences)-1],
		err.Message)
}

// lostWithTopic returns the fatal error of a producer with sequences of its own that the partition
// has lost.
func lostWithTopic(tp TopicPartition, stored int64) *Error {
	return fail(ErrProducerFatal, "%s: the records with the application's sequences up to %d are no "+
		"longer there, the topic was deleted and created anew; later records must not be stored "+
		"without them: send all of them again with a new producer", tp, stored)
}

// --- time ----------------------------------------------------------------------------

// expireUnsent fails a batch that was not taken out, and will not be.
func (w *window) expireUnsent(batch *openBatch, err *Error) reaction {
	err.Outcome = NeverSent
	w.failBatch(batch, err)
	return reaction{fatal: w.gap}
}

// expire fails batches past their delivery timeout.
//
// A batch that was sent may be stored, so it keeps its place in the window while batches behind
// it are alive; when none is, the window is given up and the partition goes on under a new id.
func (w *window) expire(now time.Time) reaction {
	for _, s := range w.batches {
		if s.acked || s.abandoned || s.deadline.After(now) {
			continue
		}
		s.abandoned = true
		err := w.late("no acknowledgement within DeliveryTimeout=%s, sent %d times",
			w.config.DeliveryTimeout, s.attempts)
		err.Outcome = NeverSent
		if s.attempts > 0 {
			err.Outcome = Unknown
		}
		w.failBatch(s.batch, err)
	}
	limit := now.Add(-w.config.DeliveryTimeout)
	for len(w.again) > 0 && !w.again[0].created.After(limit) {
		w.failBatch(w.again[0], w.late("DeliveryTimeout=%s is over", w.config.DeliveryTimeout))
		w.again = w.again[1:]
	}
	w.resetIfAbandoned()
	return reaction{fatal: w.gap}
}

// late names the late part, and its last obstacle.
func (w *window) late(format string, args ...any) *Error {
	text := fmt.Sprintf(format, args...)
	if why := w.obstacles.String(); why != "" {
		text += "; " + why
	}
	return fail(ErrDeliveryTimeout, "%s: %s", w.tp, text)
}

func (w *window) resetIfAbandoned() {
	unsent := true
	for _, s := range w.batches {
		if !s.acked && !s.abandoned {
			return
		}
		unsent = unsent && s.attempts == 0
	}
	if len(w.batches) == 0 {
		return
	}
	if unsent {
		w.prevSequence = w.batches[0].prevSequence
	} else if w.config.EnableIdempotence {
		w.dead = true
		w.stats.Resets++
	}
	w.batches, w.cursor = nil, 0
}

// failAll: the producer stops, or its transaction. Batches on their way fail.
func (w *window) failAll(err *Error) {
	for _, s := range w.batches {
		if s.acked || s.abandoned {
			continue
		}
		outcome := NotStored
		if (s.ambiguous || s.attemptID != 0) && s.batch.transaction == nil {
			outcome = Unknown
		}
		w.failBatch(s.batch, err.withOutcome(outcome))
	}
	for _, batch := range w.again {
		w.failBatch(batch, err.withOutcome(NotStored))
	}
	w.batches, w.again, w.cursor = nil, nil, 0
}
