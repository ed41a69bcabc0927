package oncelog

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// stamp holds the numbers of a batch when it was last sealed.
type stamp struct {
	producerID   int64
	epoch        int32
	baseSequence int64
}

var unstamped = &stamp{baseSequence: -1}

type callback struct {
	index int
	call  func(Metadata, error)
}

// delivery is the outcome of one batch. All its records share it.
type delivery struct {
	tp        TopicPartition
	count     int     // set when the batch is closed
	sequences []int64 // the application's own; nil: counted
	callbacks []callback
	stamp     atomic.Pointer[stamp]
	done      chan struct{} // closed when the outcome is known,
	released  chan struct{} // and when callbacks were called and its memory is free

	// Set before done is closed. In a transaction the offset is within its run.
	baseOffset int64
	run        *stagedRun
	duplicate  bool
	err        *Error

	mu     sync.Mutex
	looked map[int]bool // failed records with a fetched error
}

func newDelivery(tp TopicPartition) *delivery {
	d := &delivery{tp: tp, done: make(chan struct{}), released: make(chan struct{})}
	d.stamp.Store(unstamped)
	return d
}

// sequence returns that of a record, -1 if it has none.
func (d *delivery) sequence(index int) int64 {
	base := d.stamp.Load().baseSequence
	switch {
	case base < 0:
		return -1
	case d.sequences != nil:
		return d.sequences[index]
	default:
		return base + int64(index)
	}
}

// metadata returns the known metadata of the records from first to last.
func (d *delivery) metadata(first, last int) Metadata {
	s := d.stamp.Load()
	m := Metadata{
		Topic: d.tp.Topic, Partition: d.tp.Partition, Offset: -1,
		Sequence: d.sequence(first), LastSequence: d.sequence(last),
		ProducerID: s.producerID, Epoch: s.epoch, Duplicate: d.duplicate,
	}
	if base := d.firstOffset(); d.err == nil && base >= 0 {
		m.Offset = base + int64(first)
	}
	return m
}

// firstOffset is -1 if it is not known: in a transaction, until that is committed.
func (d *delivery) firstOffset() int64 {
	if d.run == nil || d.baseOffset < 0 {
		return d.baseOffset
	}
	if base := d.run.baseOffset.Load(); base >= 0 {
		return base + d.baseOffset
	}
	return -1
}

// fail ends it with an error that names the batch, so that the caller can ask for it later.
func (d *delivery) fail(err *Error) {
	d.err = err
	if err.Kind.is(ErrDelivery) {
		d.err = d.named(*err)
	}
	close(d.done)
}

func (d *delivery) named(err Error) *Error {
	err.Topic, err.Partition = d.tp.Topic, d.tp.Partition
	s := d.stamp.Load()
	if s.producerID == 0 {
		return &err
	}
	last := d.sequence(d.count - 1)
	err.ProducerID, err.Epoch, err.Sequence = s.producerID, s.epoch, last
	if err.Outcome == Unknown {
		// These words are the same in all clients: tools read them.
		err.Message = fmt.Sprintf("%s; %s producer %d epoch %d sequences %d..%d may be stored, "+
			"ResolveSequence tells", err.Error(), d.tp, s.producerID, s.epoch, d.sequence(0), last)
	}
	return &err
}

// unlooked returns how many failed records nobody has looked at.
func (d *delivery) unlooked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.callbacks {
		d.look(c.index)
	}
	if d.looked[wholeBatch] {
		return 0
	}
	return d.count - len(d.looked)
}

// look notes, with the lock held, that a failed record's error is known.
func (d *delivery) look(index int) {
	if d.looked == nil {
		d.looked = map[int]bool{}
	}
	d.looked[index] = true
}

const wholeBatch = -1

// Delivery is the future outcome of a record, or of a batch that was sent as one.
type Delivery struct {
	batch *delivery
	index int // wholeBatch: all of it
}

// Done returns a channel that is closed when the outcome is known.
func (d Delivery) Done() <-chan struct{} { return d.batch.done }

// Wait returns the record's place, or the error, an *[Error] below [ErrDelivery] with the known
// Outcome. If ctx ends before, its error is returned, and the record is still on its way.
func (d Delivery) Wait(ctx context.Context) (Metadata, error) {
	select {
	case <-d.batch.done:
	default:
		select {
		case <-d.batch.done:
		case <-ctx.Done():
			return Metadata{}, context.Cause(ctx)
		}
	}
	return d.outcome()
}

func (d Delivery) outcome() (Metadata, error) {
	first, last := d.index, d.index
	if d.index == wholeBatch {
		first, last = 0, d.batch.count-1
	}
	if d.batch.err != nil {
		d.batch.mu.Lock()
		d.batch.look(d.index)
		d.batch.mu.Unlock()
		return d.batch.metadata(first, last), d.batch.err
	}
	return d.batch.metadata(first, last), nil
}

// completions call the callbacks of batches, one after the other, on a goroutine of their own.
type completions struct {
	mu      sync.Mutex
	queue   []*delivery
	running bool
	release func(*delivery)
	log     *slog.Logger
}

func (c *completions) add(d *delivery) {
	if len(d.callbacks) == 0 {
		c.release(d)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, d)
	if !c.running {
		c.running = true
		go c.run()
	}
}

func (c *completions) run() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		d := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		for _, one := range d.callbacks {
			c.tell(d, one)
		}
		c.release(d)
	}
}

// tell calls a callback. One that panics is a fault of its own: all other records, and those of
// other producers, go on.
func (c *completions) tell(d *delivery, one callback) {
	defer func() {
		if cause := recover(); cause != nil {
			c.log.Error("oncelog: a callback of OnDelivery has panicked", "topic", d.tp.Topic,
				"partition", d.tp.Partition, "panic", cause, "stack", string(debug.Stack()))
		}
	}()
	one.call(Delivery{d, one.index}.outcome())
}
