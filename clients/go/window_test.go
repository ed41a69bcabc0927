package oncelog

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// A bench drives a window by hand: no sender, no clock, no network.
type bench struct {
	t           *testing.T
	window      *window
	accumulator *accumulator
	now         time.Time
	current     *identity
	nextID      uint64
	stats       Stats
}

func newBench(t *testing.T) *bench {
	config := defaultProducer("a:1")
	config.Linger = 0
	b := &bench{t: t, now: time.Now()}
	b.accumulator = newAccumulator(&config, func() {}, func(TopicPartition) bool { return true })
	compressor, err := newCompressor(NoCompression, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.window = &window{
		tp: TopicPartition{"t", 0}, accumulator: b.accumulator, config: &config,
		backoff: backoff{time.Millisecond, time.Millisecond}, compressor: compressor, stats: &b.stats,
		onDone:   func(batch *openBatch) { b.accumulator.release(batch.delivery) },
		identity: noIdentity, prevSequence: -1, storedGiven: -1, dead: true,
	}
	b.lease(1)
	return b
}

func (b *bench) lease(producerID int64) {
	serial := 1
	if b.current != nil {
		serial = b.current.serial + 1
	}
	b.current = &identity{producerID, 0, serial, never, never, []byte("token"), false}
	if b.window.needsIdentity(b.now, b.current) {
		b.window.adopt(b.current, -1, 7)
	}
}

// put queues a batch of one record.
func (b *bench) put(options ...func(*addition)) Delivery {
	b.t.Helper()
	add := &addition{
		tp: b.window.tp, records: []Message{{Value: []byte("v")}}, size: recordOverhead + 1,
		expected: notGiven, whole: true, maxBatchBytes: 1 << 20,
	}
	for _, option := range options {
		option(add)
	}
	d, err := b.accumulator.append(b.t.Context(), add)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// send returns the next batch to go on its way, nil if there is none.
func (b *bench) send() (*sealedBatch, *pb.Batch) {
	s, _ := b.window.next(b.now, b.current)
	if s == nil {
		return nil, nil
	}
	b.nextID++
	b.window.sent(s, b.nextID, b.now)
	return s, s.message(b.nextID)
}

func (b *bench) answer(s *sealedBatch, result *pb.BatchResult) reaction {
	return b.window.onResult(s, s.attemptID, result, b.now)
}

func verdict(v pb.Verdict) *pb.BatchResult { return &pb.BatchResult{Verdict: v, BaseOffset: 0} }

var (
	appended  = verdict(pb.Verdict_VERDICT_APPENDED)
	notReady  = verdict(pb.Verdict_VERDICT_NOT_READY)
	timedOut  = verdict(pb.Verdict_VERDICT_TIMEOUT)
	disorder  = verdict(pb.Verdict_VERDICT_OUT_OF_ORDER)
	invalidly = verdict(pb.Verdict_VERDICT_INVALID_BATCH)
)

func (b *bench) later() { b.now = b.now.Add(time.Second) }

// failed returns the error of a delivery that has one.
func (b *bench) failed(d Delivery) *Error {
	b.t.Helper()
	select {
	case <-d.Done():
	default:
		b.t.Fatal("it has no outcome")
	}
	_, err := d.outcome()
	var e *Error
	if !errors.As(err, &e) {
		b.t.Fatalf("it did not fail: %v", err)
	}
	return e
}

func TestARetryIsByteIdenticalButForItsID(t *testing.T) {
	b := newBench(t)
	b.put()
	b.put()
	first, one := b.send()
	_, behind := b.send()
	if one.GetHeader().GetBaseSequence() != 0 || behind.GetHeader().GetBaseSequence() != 1 {
		t.Error("sequences do not rise from 0")
	}
	if string(one.GetLeaseToken()) != "token" || behind.GetLeaseToken() != nil {
		t.Error("the first batch of a chain carries the token, others do not")
	}
	b.answer(first, notReady)
	if s, _ := b.send(); s != nil {
		t.Error("sent again without a pause")
	}
	b.later()
	_, again := b.send()
	if again.GetId() == one.GetId() {
		t.Error("the attempts have one id")
	}
	again.Id = one.GetId()
	if !proto.Equal(one, again) {
		t.Errorf("%v is not %v", again, one)
	}
	if _, second := b.send(); second.GetHeader().GetBaseSequence() != 1 {
		t.Error("what follows the head is not sent again after it")
	}
}

func TestFiveAreInFlight(t *testing.T) {
	b := newBench(t)
	for range 7 {
		b.put()
	}
	var head *sealedBatch
	for i := range 5 {
		if s, _ := b.send(); i == 0 {
			head = s
		}
	}
	if s, _ := b.send(); s != nil {
		t.Error("six are in flight")
	}
	b.answer(head, appended)
	if s, _ := b.send(); s == nil {
		t.Error("the room was not used")
	}
}

func TestOutOfOrderBehindARetriedHeadIsNoError(t *testing.T) {
	b := newBench(t)
	d1, d2 := b.put(), b.put()
	first, _ := b.send()
	second, _ := b.send()
	b.answer(first, notReady)
	if r := b.answer(second, disorder); r.fatal != nil {
		t.Fatal(r.fatal)
	}
	b.later()
	b.send()
	b.send()
	b.answer(first, appended)
	if r := b.answer(second, disorder); r.fatal != nil {
		t.Error("it was sent while the head was not acknowledged:", r.fatal)
	}
	if s, _ := b.send(); s != second {
		t.Fatal("its turn has come and it is not sent")
	}
	if r := b.answer(second, disorder); r.fatal == nil || r.fatal.Kind != ErrOutOfOrder {
		t.Error("at the head it is fatal:", r.fatal)
	}
	if _, err := d1.outcome(); err != nil {
		t.Error(err)
	}
	select {
	case <-d2.Done():
		t.Error("the sender fails it, with all others")
	default:
	}
}

func TestASuccessIsTrueWhicheverAttemptItAnswers(t *testing.T) {
	b := newBench(t)
	d := b.put()
	s, one := b.send()
	b.window.onConnectionLost(b.now)
	b.later()
	b.send()
	if r := b.window.onResult(s, one.GetId(), invalidly, b.now); r.fatal != nil || s.acked {
		t.Error("a refusal of an attempt that is not the latest counts")
	}
	b.window.onResult(s, one.GetId(), appended, b.now)
	if _, err := d.outcome(); err != nil || !b.window.idle() {
		t.Error("a success of it does not")
	}
}

func TestWhatFollowsARefusedBatchGetsANewID(t *testing.T) {
	b := newBench(t)
	d1, d2 := b.put(), b.put()
	first, _ := b.send()
	b.send()
	b.answer(first, invalidly)
	if e := b.failed(d1); e.Kind != ErrInvalidBatch || e.Outcome != NotStored {
		t.Errorf("%+v", e)
	}
	if !b.window.needsIdentity(b.now, b.current) {
		t.Fatal("numbered anew under the same id")
	}
	b.lease(2)
	s, message := b.send()
	if h := message.GetHeader(); h.GetProducerId() != 2 || h.GetBaseSequence() != 0 {
		t.Errorf("%v", h)
	}
	b.answer(s, appended)
	if m, err := d2.outcome(); err != nil || m.ProducerID != 2 {
		t.Error(m, err)
	}
}

func TestARefusedLastBatchLeavesItsSequences(t *testing.T) {
	b := newBench(t)
	b.put()
	s, _ := b.send()
	b.answer(s, invalidly)
	b.put()
	if _, message := b.send(); message.GetHeader().GetProducerId() != 1 || message.GetHeader().GetBaseSequence() != 0 {
		t.Errorf("%v", message.GetHeader())
	}
}

func TestARefusalInDoubtIsUnknownAndSoIsWhatFollows(t *testing.T) {
	b := newBench(t)
	d1, d2 := b.put(), b.put()
	first, _ := b.send()
	b.send()
	b.answer(first, timedOut)
	b.later()
	b.send()
	b.send()
	b.answer(first, invalidly)
	if b.failed(d1).Outcome != Unknown || b.failed(d2).Outcome != Unknown {
		t.Error("what is in doubt is not said to be")
	}
	if !b.window.needsIdentity(b.now, b.current) {
		t.Error("the id goes on")
	}
}

func TestAnOffsetMismatchThatCanOnlyGetWorseIsCertain(t *testing.T) {
	b := newBench(t)
	d := b.put(func(a *addition) { a.expected = 3 })
	s, _ := b.send()
	b.answer(s, timedOut)
	b.later()
	b.send()
	b.answer(s, &pb.BatchResult{Verdict: pb.Verdict_VERDICT_OFFSET_MISMATCH, NextOffset: 4})
	if e := b.failed(d); e.Kind != ErrOffsetMismatch || e.Outcome != NotStored || e.NextOffset != 4 {
		t.Errorf("%+v", e)
	}
}

func TestAnExpiredIDIsReplacedWithoutALoss(t *testing.T) {
	b := newBench(t)
	b.put()
	s, _ := b.send()
	b.answer(s, verdict(pb.Verdict_VERDICT_PRODUCER_EXPIRED))
	b.lease(2)
	if _, message := b.send(); message.GetHeader().GetProducerId() != 2 {
		t.Error("the same records do not go under the new id")
	}
}

func TestANewLeaseWaitsUntilTheWindowIsEmpty(t *testing.T) {
	b := newBench(t)
	b.put()
	s, _ := b.send()
	b.put()
	b.lease(2)
	if other, _ := b.send(); other != nil {
		t.Error("something new went into the window")
	}
	b.answer(s, appended)
	b.lease(2)
	if _, message := b.send(); message.GetHeader().GetProducerId() != 2 || message.GetHeader().GetBaseSequence() != 0 {
		t.Errorf("%v", message.GetHeader())
	}
}

func TestAHeadOutOfTimeHoldsTheChain(t *testing.T) {
	b := newBench(t)
	d1 := b.put()
	first, _ := b.send()
	b.now = b.now.Add(b.window.config.DeliveryTimeout / 2)
	d2 := b.put()
	d2.batch.stamp.Load() // it is younger
	b.accumulator.mu.Lock()
	b.accumulator.lanes[b.window.tp].closed[0].created = b.now
	b.accumulator.mu.Unlock()
	second, _ := b.send()
	b.now = b.now.Add(b.window.config.DeliveryTimeout/2 + time.Second)
	b.window.expire(b.now)
	if e := b.failed(d1); e.Kind != ErrDeliveryTimeout || e.Outcome != Unknown {
		t.Errorf("%+v", e)
	}
	b.window.onLeaderChanged(b.now)
	if s, _ := b.send(); s != first {
		t.Fatal("the head is not sent any more")
	}
	b.send()
	b.answer(first, appended)
	b.answer(second, appended)
	if _, err := d2.outcome(); err != nil {
		t.Error(err)
	}
}

func TestAGapInTheApplicationsSequencesStopsTheProducer(t *testing.T) {
	b := newBench(t)
	b.put(func(a *addition) { a.sequences = []int64{10} })
	s, message := b.send()
	if h := message.GetHeader(); h.GetBaseSequence() != 10 || h.GetPrevSequence() != -1 || h.PrevSequence == nil {
		t.Errorf("%v", h)
	}
	if r := b.answer(s, invalidly); r.fatal == nil || r.fatal.Kind != ErrProducerFatal {
		t.Errorf("%+v", r)
	}
	_, err := b.accumulator.append(t.Context(), &addition{
		tp: b.window.tp, records: []Message{{}}, sequences: []int64{11}, expected: notGiven, maxBatchBytes: 1 << 20,
	})
	if !errors.Is(err, ErrProducerFatal) {
		t.Error("what follows is taken:", err)
	}
}

func TestATopicMadeAnew(t *testing.T) {
	b := newBench(t)
	d1, d2 := b.put(), b.put()
	first, _ := b.send()
	b.answer(first, timedOut)
	b.later()
	b.send()
	second, _ := b.send()
	r := b.answer(second, verdict(pb.Verdict_VERDICT_UNKNOWN_PRODUCER))
	if r.fatalUnlessRecreated == nil {
		t.Fatalf("%+v", r)
	}
	b.window.onTopicCreatedAnew()
	if e := b.failed(d1); e.Outcome != Unknown {
		t.Errorf("%+v", e)
	}
	b.lease(2)
	s, message := b.send()
	if message.GetHeader().GetProducerId() != 2 {
		t.Errorf("%v", message.GetHeader())
	}
	b.answer(s, appended)
	if _, err := d2.outcome(); err != nil {
		t.Error(err)
	}
}

// Also while the sender takes nothing: waiting batches must not pile up in one partition.
func TestMessagesWithoutKeyLeaveAFullBatch(t *testing.T) {
	config := defaultProducer("a:1")
	config.BatchSize = batchOverhead + 10
	a := newAccumulator(&config, func() {}, func(TopicPartition) bool { return true })
	for partition := range int32(2) {
		add := &addition{
			tp: TopicPartition{"t", partition}, sticky: true, records: []Message{{Value: []byte("v")}},
			size: 10, expected: notGiven, maxBatchBytes: 1 << 20,
		}
		if _, err := a.append(t.Context(), add); err != nil {
			t.Fatal(err)
		}
	}
	if at := a.sticky["t"].lane.tp.Partition; at != 1 {
		t.Fatalf("the second message, with no room in the first batch, is in partition %d", at)
	}
}
