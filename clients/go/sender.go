package oncelog

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	tickEvery = 100 * time.Millisecond
	tickLate  = time.Second
	// A batch without an answer for so long makes the client ask for the leader: a node that was
	// frozen or cut off does not say so.
	stallAfter = time.Second
	// A node's limit of timeout_ms.
	mostCommitTimeout = 10 * time.Minute
	mostFailedKept    = 1000
)

var (
	// An election may not be over by the first question: it is asked again soon at first, and
	// then once a second, for a cluster may also just be slow.
	stallPauses  = backoff{250 * time.Millisecond, time.Second}
	leaderPauses = backoff{20 * time.Millisecond, 250 * time.Millisecond}
	searchPauses = backoff{500 * time.Millisecond, 5 * time.Second}
)

// sender is the producer's IO: it takes ripe batches, finds leaders and keeps a stream to each
// node. All its state belongs to the goroutine of run; others post functions to it.
type sender struct {
	config      *ProducerConfig
	cluster     *cluster
	accumulator *accumulator
	identities  *identities
	completions *completions
	compressor  *compressor
	stats       Stats
	snapshot    atomic.Pointer[Stats]

	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}
	wakeUp chan struct{}
	events chan func()

	windows map[TopicPartition]*window
	busy    map[TopicPartition]*window
	// Nothing is sent to these: they wait for a producer id, or for news of their topic.
	identifying map[TopicPartition]bool
	// Batches that wait for a partition to have a producer id.
	identified map[TopicPartition][]func(*identity)
	streams    map[string]*produceStream
	sentTo     map[TopicPartition]string
	attemptID  uint64
	stale      map[string]bool
	refreshing bool
	refreshAt  time.Time
	rounds     int
	noMetadata error // why the last round had no answer; nil: it had one
	// Topics with stalled partitions: how often the leader was asked for, and when the next question
	// is due.
	stalls map[string]stall
	// Leaders that refused, with their terms: there is another one, or will be.
	suspected map[TopicPartition]suspect
	askedAt   time.Time // when metadata was last asked for without a reason
	// How often it was looked for leaders that are back, though nothing waits for them.
	searches int
	searchAt time.Time
	tickedAt time.Time
	stopped  bool
	failed   failures
}

type stall struct {
	asked int
	due   time.Time
}

type suspect struct {
	address string
	term    int64
}

func newSender(config *ProducerConfig, c *cluster) (*sender, error) {
	compressor, err := newCompressor(config.Compression, config.CompressionLevel)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &sender{
		config: config, cluster: c, compressor: compressor, identities: newIdentities(config, c),
		ctx: ctx, cancel: cancel, ended: make(chan struct{}),
		wakeUp: make(chan struct{}, 1), events: make(chan func(), 64),
		windows: map[TopicPartition]*window{}, busy: map[TopicPartition]*window{},
		identifying: map[TopicPartition]bool{}, identified: map[TopicPartition][]func(*identity){},
		streams: map[string]*produceStream{}, sentTo: map[TopicPartition]string{},
		stale: map[string]bool{}, stalls: map[string]stall{}, suspected: map[TopicPartition]suspect{},
		askedAt: time.Now(), tickedAt: time.Now(),
	}
	s.accumulator = newAccumulator(config, s.wake, c.leaders.isAvailable)
	s.completions = &completions{release: s.accumulator.release, log: config.logger()}
	s.snapshot.Store(&Stats{})
	go s.run()
	return s, nil
}

// wake has the sender look for work soon; from any goroutine.
func (s *sender) wake() {
	select {
	case s.wakeUp <- struct{}{}:
	default:
	}
}

// post has the sender call f; not at all if it has ended.
func (s *sender) post(f func()) {
	select {
	case s.events <- f:
	case <-s.ended:
	}
}

func (s *sender) run() {
	defer close(s.ended)
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	timer := time.NewTimer(tickEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case f := <-s.events:
			f()
		case <-s.wakeUp:
		case <-timer.C:
		case now := <-ticker.C:
			s.tick(now)
		}
		for more := true; more; {
			select {
			case f := <-s.events:
				f()
			default:
				more = false
			}
		}
		if next := s.pump(time.Now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// --- the end -------------------------------------------------------------------------

// stop ends all IO; unacknowledged batches fail, with their outcome.
func (s *sender) stop() {
	s.post(func() {
		if !s.stopped {
			s.failEverything(
				fail(ErrDeliveryTimeout, "the producer was closed before an acknowledgement"),
				fail(ErrClientClosed, "the producer is closed"))
		}
		s.cancel(fail(ErrClientClosed, "the producer is closed"))
	})
	<-s.ended
}

// fail: the producer cannot go on. All pending records fail, further ones are refused.
func (s *sender) fail(err *Error) {
	if s.stopped {
		return
	}
	s.failEverything(err, err)
	for _, stream := range s.streams {
		stream.close("the producer failed")
	}
}

func (s *sender) failEverything(err, later *Error) {
	s.stopped = true
	if t := s.accumulator.current(); t != nil {
		s.accumulator.failTransaction(t, err)
	}
	s.failBatches(s.accumulator.stop(later), err)
	for tp := range s.identified {
		s.tellIdentified(tp, nil)
	}
	s.publishStats()
}

func (s *sender) failBatches(unsent []*openBatch, err *Error) {
	for _, batch := range unsent {
		batch.delivery.fail(err.withOutcome(NeverSent))
		s.stats.RecordsFailed += int64(batch.count)
		s.batchDone(batch)
	}
	for _, w := range s.windows {
		w.failAll(err)
	}
	clear(s.busy)
}

func (s *sender) batchDone(batch *openBatch) {
	if batch.delivery.err != nil && batch.transaction == nil { // of a transaction's its end tells
		s.failed.add(batch.delivery)
	}
	s.completions.add(batch.delivery)
}

// fatal returns the error of a producer that gets no producer id.
func fatal(err error) *Error {
	e := asError(err)
	if e.Kind.is(ErrProducerFatal) {
		return e
	}
	return fail(ErrProducerFatal, "no producer id: %s", e.Message)
}

func (s *sender) publishStats() {
	twin := s.stats
	s.snapshot.Store(&twin)
}

// --- sending -------------------------------------------------------------------------

// pump sends all batches that can be sent now, and returns when to look again.
func (s *sender) pump(now time.Time) time.Time {
	if s.stopped {
		return time.Time{}
	}
	if t := s.accumulator.current(); t != nil {
		if failure := t.failed(); failure != nil {
			s.drop(t, t.refusal(failure))
		}
	}
	ready, next := s.accumulator.readyPartitions(now)
	for _, tp := range ready {
		s.busy[tp] = s.window(tp)
	}
	for tp, w := range s.busy {
		s.feed(tp, w, now)
		if s.stopped {
			return time.Time{}
		}
		if w.idle() && !slices.Contains(ready, tp) {
			delete(s.busy, tp)
		} else if w.retryAt.After(now) {
			next = sooner(next, w.retryAt)
		}
	}
	if len(s.stale) > 0 && !s.refreshing {
		if s.refreshAt.After(now) {
			next = sooner(next, s.refreshAt)
		} else {
			s.refreshStale()
		}
	}
	s.publishStats()
	return next
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (s *sender) feed(tp TopicPartition, w *window, now time.Time) {
	address := s.cluster.leaders.address(tp)
	if address == "" && s.isGone(tp) {
		for _, batch := range s.accumulator.drop(tp) {
			s.react(w, w.expireUnsent(batch, gone(tp)))
		}
		s.react(w, w.onPartitionGone())
		return
	}
	if s.identifying[tp] {
		return
	}
	if t := s.accumulator.current(); t != nil && !s.mayStage(w, t, now) {
		return
	}
	if w.needsIdentity(now, s.identities.current.Load()) {
		s.identify(tp, w)
		return
	}
	if address == "" {
		w.lacksLeader(s.noMetadata)
		s.stale[tp.Topic] = true
		return
	}
	if s.sentTo[tp] != address {
		s.sentTo[tp] = address
		w.obstacles.met(address+": no answer yet", false)
		w.onLeaderChanged(now)
	}
	stream := s.stream(address)
	if stream == nil || !stream.opened {
		// It may be down, and another node lead by now.
		s.stale[tp.Topic] = true
		return
	}
	for stream.hasRoom() {
		batch, reaction := w.next(now, s.identities.current.Load())
		if batch == nil {
			s.react(w, reaction)
			return
		}
		s.attemptID++
		w.sent(batch, s.attemptID, now)
		stream.send(w, batch, s.attemptID)
	}
}

// isGone reports whether the topic was created anew, with fewer partitions.
func (s *sender) isGone(tp TopicPartition) bool {
	_, _, partitions, _ := s.cluster.leaders.topic(tp.Topic)
	return partitions > 0 && int(tp.Partition) >= partitions
}

// mayStage reports whether the transaction goes on. It ends with its lease: a new one would
// fence it.
func (s *sender) mayStage(w *window, t *transaction, now time.Time) bool {
	id := s.identities.current.Load()
	if id == nil || !now.Before(id.expireAt) || w.hasUsedUp(id) {
		s.accumulator.failTransaction(t, fail(ErrProducerExpired,
			"%s: the lease of %q cannot be used on", w.tp, s.config.ProducerName))
	}
	return t.failed() == nil
}

// drop: the transaction cannot be committed. Batches that are not staged fail now, nobody waits for
// them.
func (s *sender) drop(t *transaction, err *Error) {
	t.fail(err)
	s.failBatches(s.accumulator.dropTransaction(), err)
}

// ask has the sender call f and waits for that; false: it has ended, and f was not called.
func (s *sender) ask(f func()) bool {
	done := make(chan struct{})
	s.post(func() { f(); close(done) })
	select {
	case <-done:
		return true
	case <-s.ended:
		return false
	}
}

// hasUsedUp reports whether a partition can no longer go on under this identity.
func (s *sender) hasUsedUp(id *identity) (used bool) {
	s.ask(func() {
		for _, w := range s.windows {
			used = used || w.hasUsedUp(id)
		}
	})
	return used
}

func (s *sender) window(tp TopicPartition) *window {
	w := s.windows[tp]
	if w == nil {
		w = &window{
			tp: tp, accumulator: s.accumulator, config: s.config, backoff: s.cluster.backoff,
			compressor: s.compressor, stats: &s.stats, onDone: s.batchDone,
			identity: noIdentity, prevSequence: -1, storedGiven: -1,
			dead: s.config.EnableIdempotence,
		}
		s.windows[tp] = w
	}
	return w
}

// identify gets a producer id for a partition, on a goroutine of its own.
func (s *sender) identify(tp TopicPartition, w *window) {
	if w.wasReset() && s.config.ResumeFrom != nil {
		s.fail(fail(ErrProducerFatal,
			"%s: after a batch of unknown outcome the given producer id cannot go on", tp))
		return
	}
	s.identifying[tp] = true
	w.obstacles.met("no producer id yet", false)
	used := w.identity
	go func() {
		id, last, err := s.identities.acquire(s.ctx, tp, used)
		s.post(func() {
			delete(s.identifying, tp)
			switch {
			case s.stopped:
			case err != nil && s.isGone(tp): // so do batches that wait for it
			case err != nil:
				s.fail(fatal(err))
			case s.config.ProducerName != "" && last < w.storedGiven:
				s.fail(lostWithTopic(tp, w.storedGiven))
			default:
				topicID, _, _, _ := s.cluster.leaders.topic(tp.Topic)
				w.adopt(id, last, topicID)
				s.tellIdentified(tp, id)
			}
		})
	}()
}

func (s *sender) tellIdentified(tp TopicPartition, id *identity) {
	for _, f := range s.identified[tp] {
		f(id)
	}
	delete(s.identified, tp)
}

// identityOf returns the producer id that the partition has, or gets now.
func (s *sender) identityOf(ctx context.Context, tp TopicPartition) (*identity, error) {
	answer := make(chan *identity, 1)
	s.post(func() {
		w := s.window(tp)
		if w.identity != noIdentity || s.stopped {
			answer <- w.identity
			return
		}
		s.identified[tp] = append(s.identified[tp], func(id *identity) { answer <- id })
		if !s.identifying[tp] {
			s.identify(tp, w)
		}
	})
	select {
	case id := <-answer:
		if id != nil && id != noIdentity {
			return id, nil
		}
	case <-s.ended:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.accumulator.mu.Lock()
	defer s.accumulator.mu.Unlock()
	return nil, s.accumulator.failure
}

// --- streams -------------------------------------------------------------------------

func (s *sender) stream(address string) *produceStream {
	if stream := s.streams[address]; stream != nil {
		return stream
	}
	conn, err := s.cluster.conn(address)
	if err != nil {
		return nil
	}
	commitTimeout := min(max(ms, s.config.RequestTimeout*4/5), mostCommitTimeout)
	stream := startStream(s.ctx, conn, address, commitTimeout,
		min(connectTimeout, s.config.RequestTimeout), streamEvents{
			opened: func(stream *produceStream) {
				s.post(func() {
					stream.opened = true
					s.cluster.reached.answered(address)
					s.cluster.leaders.reached(address, true)
				})
			},
			room:    s.wake,
			results: func(stream *produceStream, r []*pb.BatchResult) { s.post(func() { s.answered(stream, r) }) },
			closed:  func(stream *produceStream, why error) { s.post(func() { s.streamClosed(stream, why) }) },
		})
	s.streams[address] = stream
	return stream
}

func (s *sender) streamClosed(stream *produceStream, why error) {
	address := stream.address
	if s.streams[address] == stream {
		delete(s.streams, address)
	}
	if s.stopped {
		return
	}
	refused := fromRPC(s.ctx, address, why)
	if errors.Is(refused, ErrNotAuthorized) || errors.Is(refused, ErrUnauthenticated) {
		s.fail(fail(ErrProducerFatal, "the producer cannot go on: %v", refused))
		return
	}
	now := time.Now()
	s.cluster.avoid(address)
	if isRetriable(refused) {
		s.cluster.reached.failed(why)
	}
	s.cluster.leaders.reached(address, false)
	for tp, w := range s.busy {
		if s.sentTo[tp] == address {
			w.obstacles.met(why.Error(), asError(refused).told) // it names the address
			w.onConnectionLost(now)
			s.cluster.leaders.forget(tp, address)
			s.stale[tp.Topic] = true
		}
	}
	s.accumulator.leaveUnavailable()
}

func (s *sender) answered(stream *produceStream, results []*pb.BatchResult) {
	s.cluster.leaders.reached(stream.address, true)
	now := time.Now()
	for _, result := range results {
		waiting, ok := stream.outstanding[result.GetId()]
		if !ok || s.stopped {
			continue
		}
		delete(stream.outstanding, result.GetId())
		w := waiting.window
		reaction := w.onResult(waiting.batch, result.GetId(), result, now)
		if isRetriableVerdict(result.GetVerdict()) {
			w.obstacles.met(stream.address+": "+answerText(result), true)
		} else {
			delete(s.suspected, w.tp) // it leads, after all
		}
		s.react(w, reaction)
	}
}

func (s *sender) react(w *window, r reaction) {
	switch {
	case r.fatal != nil:
		s.fail(r.fatal)
	case r.fatalUnlessRecreated != nil:
		if !s.identifying[w.tp] { // else it is being looked into
			s.findTopic(w, r.fatalUnlessRecreated)
		}
	case r.hinted:
		s.cluster.leaders.hint(w.tp, r.hintID, r.hintAddress)
	case r.leaderLost:
		s.suspect(w.tp)
	}
}

// findTopic: a leader does not know the producer. Either all is lost, or it is another topic.
func (s *sender) findTopic(w *window, err *Error) {
	s.identifying[w.tp] = true
	address := s.sentTo[w.tp]
	go func() {
		// Nobody else can be sure to know of the topic that this node leads.
		problem := s.cluster.refreshAt(s.ctx, address, w.tp.Topic)
		s.post(func() {
			delete(s.identifying, w.tp)
			topicID, _, _, _ := s.cluster.leaders.topic(w.tp.Topic)
			switch {
			case s.stopped:
			case problem != nil:
				w.sendAgain(time.Now())
			case topicID == w.topicID:
				s.fail(err)
			default:
				s.react(w, w.onTopicCreatedAnew())
			}
		})
	}()
}
