package oncelog

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// The part of the delivery timeout after which a waiting batch takes no more records: a quarter.
const timeForOthers = 4

// lane holds the waiting batches of one partition.
type lane struct {
	tp     TopicPartition
	open   *openBatch
	closed []*openBatch
	// The side that numbers the records: the producer, or the application, up to lastGiven.
	counted   bool
	given     bool
	lastGiven int64
}

// openBatch holds records of one partition that will be one batch.
type openBatch struct {
	lane           *lane
	delivery       *delivery
	columns        *columns // nil once it is sealed
	payload        *sealedPayload
	created        time.Time
	joinUntil      time.Time // a record that came later would have too little of its own time left
	size           int
	cap            int // never larger than this with more than one record
	due            bool
	isClosed       bool
	sequences      []int64
	expectedOffset int64
	count          int
	transaction    *transaction // nil: none
}

var columnPool = sync.Pool{New: func() any { return new(columns) }}

// accumulator holds records, per partition, until they form a batch that can be sent. A batch
// keeps growing after its linger time until the sender has room for it, so slow
// acknowledgements make batches larger and not more.
type accumulator struct {
	config *ProducerConfig
	wake   func()
	// Whether a partition has a leader that can be reached; it only looks.
	isAvailable func(TopicPartition) bool

	mu    sync.Mutex
	lanes map[TopicPartition]*lane
	// Of the open batches, the one of each topic that messages without a key go to.
	sticky     map[string]*openBatch
	ready      map[TopicPartition]bool
	lingering  []*openBatch
	flushing   int
	used       int64
	incomplete map[*delivery]int // with the bytes that it holds
	failure    error
	room       chan struct{} // closed when there may be room; nil while nobody waits
	// Why no batch may be begun just now: a transaction begins or ends.
	paused      error
	transaction *transaction // to which batches belong
	// The side that numbered the records of a lane before the transaction.
	numberedBefore map[*lane]numbering
}

// numbering names the side that numbers a lane's records.
type numbering struct {
	counted, given bool
	lastGiven      int64
}

func newAccumulator(config *ProducerConfig, wake func(), isAvailable func(TopicPartition) bool) *accumulator {
	return &accumulator{
		config: config, wake: wake, isAvailable: isAvailable,
		lanes: map[TopicPartition]*lane{}, sticky: map[string]*openBatch{},
		ready: map[TopicPartition]bool{}, incomplete: map[*delivery]int{},
		numberedBefore: map[*lane]numbering{},
	}
}

// addition is a record, or several that are to be one batch, to be queued.
type addition struct {
	tp            TopicPartition
	partitions    int  // of the topic, if it may go to any; tp is of no one then
	sticky        bool // it may go to where messages without a key go now
	records       []Message
	size          int
	sequences     []int64
	expected      int64 // -1: none
	whole         bool  // exactly one batch
	callback      func(Metadata, error)
	maxBatchBytes int
}

// append queues records; it waits while the buffer is full.
func (a *accumulator) append(ctx context.Context, add *addition) (Delivery, error) {
	alone := add.whole || add.expected >= 0
	var timeout <-chan time.Time
	a.mu.Lock()
	for {
		if a.failure != nil {
			err := a.failure
			a.mu.Unlock()
			return Delivery{}, err
		}
		if err := a.checkTransaction(add); err != nil {
			a.mu.Unlock()
			return Delivery{}, err
		}
		now := time.Now()
		batch, woken, err := a.place(add, alone, now)
		if err != nil {
			a.mu.Unlock()
			return Delivery{}, err
		}
		if batch != nil {
			index := a.put(batch, add, alone, now)
			a.mu.Unlock()
			if woken || alone {
				a.wake()
			}
			return Delivery{batch.delivery, index}, nil
		}
		// Lingering records hold the room that is waited for.
		a.makeAllDue()
		if a.room == nil {
			a.room = make(chan struct{})
		}
		room := a.room
		a.mu.Unlock()
		a.wake()
		if timeout == nil {
			timer := time.NewTimer(a.config.MaxBlock)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-room:
		case <-ctx.Done():
			return Delivery{}, context.Cause(ctx)
		case <-timeout:
			return Delivery{}, fail(ErrBufferFull, "BufferMemory=%d stayed full for MaxBlock=%s",
				a.config.BufferMemory, a.config.MaxBlock)
		}
		a.mu.Lock()
	}
}

// place returns an open batch with room; nil: there is no room in the buffer. Whether the
// sender has something to do now is returned too.
func (a *accumulator) place(add *addition, alone bool, now time.Time) (*openBatch, bool, error) {
	need := batchOverhead + add.size
	if need > add.maxBatchBytes || int64(need) > a.config.BufferMemory {
		e := fail(ErrBatchTooLarge, "%d bytes with overhead, the topic takes %d and the buffer %d",
			need, add.maxBatchBytes, a.config.BufferMemory)
		e.Outcome = NeverSent
		return nil, false, e
	}
	woken := false
	if stuck := a.sticky[add.tp.Topic]; add.sticky && stuck != nil &&
		(stuck.size+add.size > stuck.cap || now.After(stuck.joinUntil)) {
		a.close(stuck) // messages without a key go on with another partition
		woken = true
	}
	l := a.laneOf(add)
	if err := l.checkSequences(add.sequences); err != nil {
		return nil, woken, err
	}
	if batch := l.open; batch != nil && (alone || batch.size+add.size > batch.cap || now.After(batch.joinUntil)) {
		a.close(batch)
		woken = true
	}
	if l.open != nil {
		if a.used+int64(add.size) > a.config.BufferMemory {
			return nil, false, nil
		}
		return l.open, woken, nil
	}
	if a.paused != nil {
		return nil, false, a.paused
	}
	if a.used+int64(need) > a.config.BufferMemory {
		return nil, false, nil
	}
	woken = a.start(l, max(min(a.config.BatchSize, add.maxBatchBytes), need), now) || woken
	return l.open, woken, nil
}

func (a *accumulator) laneOf(add *addition) *lane {
	if add.sticky {
		if stuck := a.sticky[add.tp.Topic]; stuck != nil {
			return stuck.lane
		}
	}
	if add.partitions > 0 {
		add.tp.Partition = a.choose(add.tp.Topic, add.partitions)
	}
	l := a.lanes[add.tp]
	if l == nil {
		l = &lane{tp: add.tp, lastGiven: -1}
		a.lanes[add.tp] = l
	}
	return l
}

// choose returns any partition with a leader that can be reached, or any if there is none.
func (a *accumulator) choose(topic string, partitions int) int32 {
	tp := TopicPartition{topic, rand.Int32N(int32(partitions))}
	if a.isAvailable(tp) {
		return tp.Partition // as nearly always: no list is made for it
	}
	var available []int32
	for partition := range int32(partitions) {
		if a.isAvailable(TopicPartition{topic, partition}) {
			available = append(available, partition)
		}
	}
	if len(available) == 0 {
		return tp.Partition
	}
	return available[rand.IntN(len(available))]
}

// leaveUnavailable: batches that wait for a leader must not attract more.
func (a *accumulator) leaveUnavailable() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.sticky, func(_ string, batch *openBatch) bool {
		return !a.isAvailable(batch.lane.tp)
	})
}

// checkSequences refuses sequences that do not fit the numbering of the partition's records.
func (l *lane) checkSequences(sequences []int64) error {
	if sequences == nil {
		if l.given {
			e := fail(ErrInvalidRequest, "sequence is missing: %s has application-controlled sequences", l.tp)
			e.Field = "sequence"
			return e
		}
		return nil
	}
	if l.counted {
		e := fail(ErrInvalidRequest,
			"sequence=%d: %s already has sequences that the producer counts", sequences[0], l.tp)
		e.Field = "sequence"
		return e
	}
	if sequences[0] <= l.lastGiven {
		e := fail(ErrInvalidRequest, "sequence=%d is not above the last one of %s, %d",
			sequences[0], l.tp, l.lastGiven)
		e.Field, e.Limit = "sequence", "> last"
		return e
	}
	return nil
}

func (a *accumulator) start(l *lane, limit int, now time.Time) (woken bool) {
	batch := &openBatch{
		lane: l, delivery: newDelivery(l.tp), columns: columnPool.Get().(*columns),
		created: now, joinUntil: now.Add(max(a.config.Linger, a.config.DeliveryTimeout/timeForOthers)), size: batchOverhead, cap: limit, expectedOffset: -1,
		transaction: a.transaction,
	}
	l.open = batch
	a.used += batchOverhead
	a.incomplete[batch.delivery] = batchOverhead
	if a.config.Linger <= 0 || a.flushing > 0 {
		batch.due = true
		a.ready[l.tp] = true
		return true
	}
	a.lingering = append(a.lingering, batch)
	return len(a.lingering) == 1
}

// put adds the records to the batch and returns the first one's place.
func (a *accumulator) put(batch *openBatch, add *addition, alone bool, now time.Time) int {
	l := batch.lane
	index := batch.columns.len()
	for i := range add.records {
		r := &add.records[i]
		stamp := r.Timestamp
		if stamp.IsZero() {
			stamp = now
		}
		batch.columns.add(r.Value, r.Key, r.Headers, stamp.UnixMicro())
	}
	if _, noted := a.numberedBefore[l]; a.transaction != nil && !noted {
		a.numberedBefore[l] = numbering{l.counted, l.given, l.lastGiven}
	}
	if add.sequences == nil {
		l.counted = true
	} else {
		l.given, l.lastGiven = true, add.sequences[len(add.sequences)-1]
		batch.sequences = append(batch.sequences, add.sequences...)
	}
	batch.size += add.size
	a.used += int64(add.size)
	a.incomplete[batch.delivery] += add.size
	if add.whole {
		index = wholeBatch
	}
	if add.callback != nil {
		batch.delivery.callbacks = append(batch.delivery.callbacks, callback{index, add.callback})
	}
	if add.sticky && a.sticky[l.tp.Topic] != batch && a.isAvailable(l.tp) {
		a.sticky[l.tp.Topic] = batch
	}
	if alone {
		batch.expectedOffset = add.expected
		a.close(batch)
	}
	return index
}

func (a *accumulator) close(batch *openBatch) {
	l := batch.lane
	l.open = nil
	if a.sticky[l.tp.Topic] == batch {
		delete(a.sticky, l.tp.Topic)
	}
	batch.isClosed = true
	batch.count = batch.columns.len()
	batch.delivery.count = batch.count
	batch.delivery.sequences = batch.sequences
	l.closed = append(l.closed, batch)
	a.ready[l.tp] = true
}

func (a *accumulator) makeAllDue() {
	for tp, l := range a.lanes {
		if l.open != nil {
			l.open.due = true
			a.ready[tp] = true
		}
	}
	a.lingering = nil
}

// beginFlush makes everything due at once and returns the batches that are not yet done.
func (a *accumulator) beginFlush() []*delivery {
	a.mu.Lock()
	a.flushing++
	a.makeAllDue()
	waiting := make([]*delivery, 0, len(a.incomplete))
	for d := range a.incomplete {
		waiting = append(waiting, d)
	}
	a.mu.Unlock()
	a.wake()
	return waiting
}

func (a *accumulator) endFlush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushing--
}

// readyPartitions returns those that may have something to send, and when to look again.
func (a *accumulator) readyPartitions(now time.Time) (ready []TopicPartition, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.lingering) > 0 {
		batch := a.lingering[0]
		if !batch.isClosed {
			if next = batch.created.Add(a.config.Linger); next.After(now) {
				break
			}
			next = time.Time{}
			batch.due = true
			a.ready[batch.lane.tp] = true
		}
		a.lingering = a.lingering[1:]
	}
	for tp := range a.ready {
		ready = append(ready, tp)
	}
	return ready, next
}

// take returns the partition's oldest batch that is due, closed; nil if there is none.
func (a *accumulator) take(tp TopicPartition) *openBatch {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lanes[tp]
	if l == nil {
		return nil
	}
	if len(l.closed) == 0 && l.open != nil && l.open.due {
		a.close(l.open)
	}
	if len(l.closed) == 0 {
		delete(a.ready, tp)
		return nil
	}
	batch := l.closed[0]
	l.closed = l.closed[1:]
	return batch
}

// expire takes out the batches that are past their delivery timeout; none has been sent.
func (a *accumulator) expire(now time.Time) (expired []*openBatch) {
	limit := now.Add(-a.config.DeliveryTimeout)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lanes {
		if l.open != nil && !l.open.created.After(limit) {
			a.close(l.open)
		}
		for len(l.closed) > 0 && !l.closed[0].created.After(limit) {
			expired = append(expired, l.closed[0])
			l.closed = l.closed[1:]
		}
	}
	return expired
}

// drop takes out the waiting batches of a partition that no longer exists.
func (a *accumulator) drop(tp TopicPartition) (left []*openBatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lanes[tp]
	if l == nil {
		return nil
	}
	if l.open != nil {
		a.close(l.open)
	}
	left, l.closed = l.closed, nil
	return left
}

// refuse takes no further records, for this reason.
func (a *accumulator) refuse(failure error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure == nil {
		a.failure = failure
	}
}

// stop refuses further records and returns all waiting batches.
func (a *accumulator) stop(failure error) (left []*openBatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure == nil {
		a.failure = failure
	}
	for _, l := range a.lanes {
		if l.open != nil {
			a.close(l.open)
		}
		left = append(left, l.closed...)
		l.closed = nil
	}
	clear(a.ready)
	a.notify()
	return left
}

// --- transactions --------------------------------------------------------------------

// checkTransaction refuses records that cannot become part of the transaction, if there is one.
func (a *accumulator) checkTransaction(add *addition) error {
	if a.transaction == nil {
		return nil
	}
	if add.expected >= 0 {
		return invalid("expected_offset", "expected_offset=%d: records of a transaction have no "+
			"offset before its commit", add.expected)
	}
	if failure := a.transaction.failed(); failure != nil {
		return a.transaction.refusal(failure)
	}
	return nil
}

// pause begins no further batch, until resume; the open batch is still filled.
func (a *accumulator) pause(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paused = why
}

// resume goes on; records belong to this transaction from now on, or to none.
func (a *accumulator) resume(t *transaction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t != a.transaction && len(a.incomplete) > 0 {
		panic("oncelog: a transaction begins and ends without batches")
	}
	a.transaction, a.paused = t, nil
	clear(a.numberedBefore)
}

// isTransactional reports whether a transaction is open, or is being begun or ended.
func (a *accumulator) isTransactional() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.transaction != nil || a.paused != nil
}

// failed returns why no records are taken any more, if that is so.
func (a *accumulator) failed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failure
}

func (a *accumulator) current() *transaction {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.transaction
}

// failTransaction: it cannot be committed any more; no further records are taken for it.
func (a *accumulator) failTransaction(t *transaction, err *Error) {
	t.fail(err)
	a.mu.Lock()
	a.notify()
	a.mu.Unlock()
	a.wake()
}

// dropTransaction takes out the batches that wait to be sent; sequences that were given may be
// given again.
func (a *accumulator) dropTransaction() (left []*openBatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lanes {
		if l.open != nil {
			a.close(l.open)
		}
		left = append(left, l.closed...)
		l.closed = nil
	}
	for l, before := range a.numberedBefore {
		l.counted, l.given, l.lastGiven = before.counted, before.given, before.lastGiven
	}
	clear(a.ready)
	return left
}

// release frees the room of a batch with a known outcome.
func (a *accumulator) release(d *delivery) {
	a.mu.Lock()
	a.used -= int64(a.incomplete[d])
	delete(a.incomplete, d)
	a.notify()
	a.mu.Unlock()
	close(d.released)
}

func (a *accumulator) notify() {
	if a.room != nil {
		close(a.room)
		a.room = nil
	}
}

func (a *accumulator) usedBytes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// rising reports whether each number is above the one before.
func rising(sequences []int64) bool {
	for i := 1; i < len(sequences); i++ {
		if sequences[i] <= sequences[i-1] {
			return false
		}
	}
	return true
}
