package oncelog

import (
	"slices"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// A window holds one partition's batches on their way: order, retries, and the meaning of each
// verdict. The sender asks next for batches to send, reports answers, broken connections and the
// passing of time, and carries out the returned reaction. No IO; the clock's reading is an
// argument; used on the sender's goroutine only.
//
// The rules that make a retry safe:
//
//   - sequences are given when a batch is first sent, and never change after that;
//   - after any failure, everything that is not acknowledged is sent again from the head on,
//     the same bytes;
//   - a batch behind a retried one may be answered OUT_OF_ORDER; the head, sent when all before
//     it was acknowledged, may not: then this producer cannot go on;
//   - a batch that a node refused for good consumed no sequence. Batches behind it can never be
//     stored under the same producer id, because the gap stays; so it is sealed anew under a new
//     one (a reset, of this partition only);
//   - that holds only while no attempt of the refused batch is unaccounted for. If one is, the
//     outcome is unknown, and everything behind it fails as unknown too.
type window struct {
	tp          TopicPartition
	accumulator *accumulator
	config      *ProducerConfig
	backoff     backoff
	compressor  *compressor
	stats       *Stats
	onDone      func(*openBatch) // called once for each batch, after its delivery

	batches  []*sealedBatch
	cursor   int          // batches[:cursor] were sent since the last rewind
	again    []*openBatch // to be sealed anew, before waiting batches
	retryAt  time.Time
	failures int

	identity     *identity
	prevSequence int64
	topicID      uint64 // of the topic in which the identity began
	dead         bool   // no batch may be sealed with the identity any more
	resets       int    // since the last acknowledgement
	// The application's own sequence that was stored last; -1: none.
	storedGiven int64
	madeAnew    bool // the topic was, while a transaction wrote to it
	// Where a transaction began here.
	before    windowBefore
	obstacles obstacles
	// A batch with the application's own sequences has failed. Later batches must not be stored:
	// prev_sequence would hide the gap, and a copy lose records unseen.
	gap *Error
}

// windowBefore is a window's place before a transaction.
type windowBefore struct {
	transaction  *transaction
	prevSequence int64
	storedGiven  int64
}

// reaction is the sender's work after an event.
type reaction struct {
	// The leader is not known any more, or as hinted.
	leaderLost  bool
	hinted      bool
	hintID      int32
	hintAddress string
	// The whole producer stops with this error,
	fatal *Error
	// the same, unless the topic has been deleted and created anew.
	fatalUnlessRecreated *Error
}

// leased: the producer id is the cluster's, so another one can be had.
func (w *window) leased() bool { return w.config.ResumeFrom == nil }

// --- identity ------------------------------------------------------------------------

// needsIdentity reports whether adopt must come before the next batch can be sealed.
func (w *window) needsIdentity(now time.Time, current *identity) bool {
	return len(w.batches) == 0 && w.identityOver(now, current)
}

// identityOver: no further batch may be sealed with the identity; the window drains.
func (w *window) identityOver(now time.Time, current *identity) bool {
	if !w.config.EnableIdempotence {
		return false
	}
	newer := current != nil && current.serial > w.identity.serial
	return w.dead || newer || !now.Before(w.identity.expireAt)
}

func (w *window) wasReset() bool { return w.dead && w.identity != noIdentity }

func (w *window) hasUsedUp(id *identity) bool {
	return w.wasReset() && w.identity.serial >= id.serial
}

// adopt goes on with this identity after lastSequence (-1: from the start).
func (w *window) adopt(id *identity, lastSequence int64, topicID uint64) {
	if len(w.batches) > 0 {
		panic("oncelog: an identity changes only when nothing is on its way")
	}
	w.identity, w.prevSequence, w.topicID, w.dead = id, lastSequence, topicID, false
	w.madeAnew, w.obstacles = false, obstacles{}
}

// lacksLeader: nobody is known to send to. The last leader's word tells more than that.
func (w *window) lacksLeader(noMetadata error) {
	switch {
	case noMetadata != nil:
		w.obstacles.met("no metadata: "+noMetadata.Error(), asError(noMetadata).tells())
	case w.obstacles.last == "":
		w.obstacles.met("no leader is known", false)
	}
}

// --- batches to send ------------------------------------------------------------------

func (w *window) idle() bool { return len(w.batches) == 0 && len(w.again) == 0 }

// next returns the next batch to send; if there is none now, the sender's work.
func (w *window) next(now time.Time, current *identity) (*sealedBatch, reaction) {
	if now.Before(w.retryAt) || w.gap != nil {
		return nil, reaction{fatal: w.gap}
	}
	for w.cursor < len(w.batches) {
		s := w.batches[w.cursor]
		w.cursor++
		if !s.acked {
			return s, reaction{}
		}
	}
	if len(w.batches) >= w.config.MaxInFlight || w.identityOver(now, current) {
		return nil, reaction{}
	}
	s := w.sealNext()
	if s == nil {
		return nil, reaction{fatal: w.gap}
	}
	if w.config.EnableIdempotence {
		w.prevSequence = s.lastSequence
	}
	w.batches = append(w.batches, s)
	w.cursor = len(w.batches)
	return s, reaction{}
}

func (w *window) sealNext() *sealedBatch {
	for w.gap == nil {
		var batch *openBatch
		if len(w.again) > 0 {
			batch, w.again = w.again[0], w.again[1:]
		} else {
			batch = w.accumulator.take(w.tp)
		}
		if batch == nil {
			return nil
		}
		if t := batch.transaction; t != nil && w.before.transaction != t {
			w.before = windowBefore{t, w.prevSequence, w.storedGiven}
		}
		deadline := batch.created.Add(w.config.DeliveryTimeout)
		s, err := seal(batch, w.identity, w.prevSequence, deadline, w.compressor)
		if err == nil {
			return s
		}
		failure := fail(ErrInvalidBatch, "%s: cannot be encoded: %v", w.tp, err)
		failure.Outcome = NeverSent
		w.failBatch(batch, failure)
	}
	return nil
}

// sent: an attempt was handed to the connection; answers will name attemptID.
func (w *window) sent(s *sealedBatch, attemptID uint64, now time.Time) {
	if s.attempts > 0 {
		w.stats.BatchesRetried++
	} else {
		s.firstSentAt = now
		w.stats.BatchesSent++
		w.stats.RecordsSent += int64(s.batch.count)
		w.stats.BytesSent += int64(s.size())
	}
	s.attempts++
	s.attemptID, s.sentAt, s.refused = attemptID, now, false
	s.sentAsHead = s == w.head()
}

func (w *window) head() *sealedBatch {
	for _, s := range w.batches {
		if !s.acked {
			return s
		}
	}
	return nil
}

// --- events --------------------------------------------------------------------------

func (w *window) onResult(s *sealedBatch, attemptID uint64, result *pb.BatchResult, now time.Time) reaction {
	verdict := result.GetVerdict()
	if s.acked || !slices.Contains(w.batches, s) {
		return reaction{} // a second answer, or one for a batch that was given up
	}
	if isStored(verdict) {
		// True whichever attempt it answers.
		w.stored(s, result, now)
		return reaction{}
	}
	if s.attemptID != attemptID {
		return reaction{} // says nothing about the attempt that is on its way
	}
	s.attemptID = 0
	if isRetriableVerdict(verdict) || verdict == pb.Verdict_VERDICT_UNSPECIFIED {
		return w.tryAgain(s, result, now)
	}
	if verdict == pb.Verdict_VERDICT_OUT_OF_ORDER && !(s == w.head() && s.sentAsHead) {
		s.refused = true
		if s == w.head() {
			w.rewind(now, 0)
		}
		return reaction{}
	}
	if verdictKind(verdict) == nil {
		s.ambiguous = true // a later version's word: it may mean that the batch is stored
	}
	err := fromVerdict(result, w.tp)
	if s.ambiguous {
		err.Outcome = Unknown
	}
	switch {
	case err.Kind == ErrProducerExpired && w.leased():
		return w.refusedForGood(s, err)
	case err.Kind == ErrFenced:
		w.fenced(s)
		return reaction{fatal: err}
	case err.Kind == ErrUnknownProducer:
		return reaction{fatalUnlessRecreated: err}
	case err.Kind.is(ErrProducerFatal):
		return reaction{fatal: err}
	}
	return w.refusedForGood(s, err)
}

// fenced: batches sent behind a fenced one are refused, too. A partition's epoch never falls,
// and a node takes the batches of a stream in order.
func (w *window) fenced(s *sealedBatch) {
	for _, other := range w.batches[slices.Index(w.batches, s)+1:] {
		other.attemptID = 0
	}
}

func (w *window) stored(s *sealedBatch, result *pb.BatchResult, now time.Time) {
	s.acked, s.attemptID = true, 0
	w.failures, w.resets, w.obstacles = 0, 0, obstacles{}
	d := s.batch.delivery
	duplicate := result.GetVerdict() == pb.Verdict_VERDICT_DUPLICATE
	if duplicate {
		w.stats.Duplicates++
	}
	if !s.abandoned {
		w.stats.BatchesAcked++
		w.stats.RecordsAcked += int64(s.batch.count)
		w.stats.MaxAckLatency = max(w.stats.MaxAckLatency, now.Sub(s.firstSentAt))
		if s.batch.sequences != nil {
			w.storedGiven = max(w.storedGiven, s.lastSequence)
		}
		if t := s.batch.transaction; t != nil {
			d.run = t.staged(w.tp, s.batch.count, s.lastSequence)
		}
		d.baseOffset, d.duplicate = result.GetBaseOffset(), duplicate
		close(d.done)
		w.onDone(s.batch)
	}
	w.popAcked(now)
	w.resetIfAbandoned()
}

// rollBack: the transaction was aborted. Its sequences are free, for late copies name it.
func (w *window) rollBack(t *transaction) {
	if w.before.transaction != t {
		return
	}
	if !w.idle() {
		panic("oncelog: the batches of a transaction have failed before it is rolled back")
	}
	w.prevSequence, w.storedGiven = w.before.prevSequence, w.before.storedGiven
	w.before = windowBefore{}
	w.failures, w.resets, w.retryAt = 0, 0, time.Time{}
	w.dead = w.madeAnew
}

func (w *window) popAcked(now time.Time) {
	for len(w.batches) > 0 && w.batches[0].acked {
		w.batches = w.batches[1:]
		w.cursor = max(0, w.cursor-1)
	}
	if len(w.batches) > 0 && w.batches[0].refused {
		// Its turn has come: the reason of the refusal, the gap before it, is filled.
		w.rewind(now, 0)
	}
}

func (w *window) tryAgain(s *sealedBatch, result *pb.BatchResult, now time.Time) (r reaction) {
	w.failures++
	delay := w.backoff.delay(w.failures)
	doubt := true // whether this attempt may be stored
	switch result.GetVerdict() {
	case pb.Verdict_VERDICT_NOT_LEADER:
		if result.GetLeaderAddress() != "" && w.failures == 1 {
			r.hinted, r.hintID, r.hintAddress = true, result.GetLeaderId(), result.GetLeaderAddress()
			delay = 0 // a fresh hint needs no pause
		} else {
			r.leaderLost = true
		}
	case pb.Verdict_VERDICT_NOT_READY, pb.Verdict_VERDICT_UNKNOWN_TOPIC_OR_PARTITION:
		r.leaderLost, doubt = true, false
	case pb.Verdict_VERDICT_THROTTLED, pb.Verdict_VERDICT_STORAGE_FULL:
		doubt = false
	case pb.Verdict_VERDICT_TIMEOUT, pb.Verdict_VERDICT_UNSPECIFIED:
		s.unanswered = true
	}
	s.ambiguous = s.ambiguous || doubt
	w.rewind(now, delay)
	return r
}

// onConnectionLost: no answer will come for the attempts on their way.
func (w *window) onConnectionLost(now time.Time) {
	for _, s := range w.batches {
		if s.attemptID != 0 {
			w.failures++
			// The first retry goes at once: a new leader may already be known.
			w.rewind(now, w.backoff.delay(w.failures-1))
			return
		}
	}
}

// onLeaderChanged goes on at another node, at once.
func (w *window) onLeaderChanged(now time.Time) { w.rewind(now, 0) }

// sendAgain: nobody knows the meaning of an answer. Hear it once more.
func (w *window) sendAgain(now time.Time) {
	w.failures++
	w.rewind(now, w.backoff.delay(w.failures))
}

func (w *window) rewind(now time.Time, delay time.Duration) {
	for _, s := range w.batches {
		if s.attemptID != 0 {
			s.ambiguous, s.unanswered = true, true
			s.attemptID = 0
		}
		s.refused = false
	}
	w.cursor = 0
	w.retryAt = now.Add(delay)
}

// oldestAttempt returns when the oldest attempt that waits for its answer was sent.
func (w *window) oldestAttempt() (oldest time.Time, waiting bool) {
	for _, s := range w.batches {
		if s.attemptID != 0 && (!waiting || s.sentAt.Before(oldest)) {
			oldest, waiting = s.sentAt, true
		}
	}
	return oldest, waiting
}
