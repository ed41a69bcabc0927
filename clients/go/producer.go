package oncelog

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// Stats are a producer's counters since its start.
type Stats struct {
	RecordsSent, RecordsAcked, RecordsFailed int64
	BatchesSent, BatchesAcked                int64
	BatchesRetried                           int64
	BytesSent                                int64
	Duplicates                               int64 // acknowledged as stored by an earlier attempt
	Resets                                   int64 // changes of a partition's producer id for a cause
	MaxAckLatency                            time.Duration
	BufferUsed                               int64
	Outages                                  Outages
}

// Producer sends records; each is stored once, in order per partition, through any failure.
// It is for use by any number of goroutines.
type Producer struct {
	config  *ProducerConfig
	cluster *cluster
	sender  *sender
	closing sync.Once
	dropped runtime.Cleanup

	transactions *transactions
}

// NewProducer makes a producer. servers is "host:port,...", or "" for the default of
// [ClientConfig]; options change the defaults:
//
//	oncelog.NewProducer(servers, func(c *oncelog.ProducerConfig) { c.Linger = 0 })
//
// It returns an error of [ErrConfig] for settings that are out of range or contradict each
// other. No node is asked yet.
//
// Close it at the end: records that wait in a process that ends, by a return from main or by
// os.Exit, are lost without a word. One that is dropped without Close is warned of; its records are
// sent, but its goroutines and connections stay.
func NewProducer(servers string, options ...func(*ProducerConfig)) (*Producer, error) {
	config := defaultProducer(servers)
	for _, option := range options {
		option(&config)
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	p := &Producer{config: &config, cluster: newCluster(config.ClientConfig)}
	sending := config
	sending.Partitioner = nil // which may hold the producer
	sender, err := newSender(&sending, p.cluster)
	if err != nil {
		return nil, err
	}
	p.sender, p.transactions = sender, newTransactions(sender)
	p.dropped = runtime.AddCleanup(p, func(log *slog.Logger) {
		log.Warn("oncelog: a Producer was dropped without Close")
	}, config.logger())
	return p, nil
}

// Config returns the settings in force.
func (p *Producer) Config() ProducerConfig { return *p.config }

// --- sending -------------------------------------------------------------------------

// SendOption is an option of one Send beside its message.
type SendOption func(*sendOptions)

const (
	notGiven = -1
	notOne   = -2 // given, but no partition or offset
)

type sendOptions struct {
	partition int32
	sequences []int64
	expected  int64
	callback  func(Metadata, error)
}

// ToPartition names the record's partition.
func ToPartition(partition int32) SendOption {
	return func(o *sendOptions) { o.partition = max(partition, notOne) }
}

// WithSequence gives the record the application's own number, rising per partition. It makes
// the record recognisable across restarts, if it is sent again with the same bytes, so with
// the same timestamp too.
func WithSequence(sequence int64) SendOption {
	return func(o *sendOptions) { o.sequences = []int64{sequence} }
}

// WithSequences does the same for the records of SendBatch: one for each, rising.
func WithSequences(sequences []int64) SendOption {
	return func(o *sendOptions) { o.sequences = sequences }
}

// WithExpectedOffset stores the record, or batch, only if it gets exactly this offset.
func WithExpectedOffset(offset int64) SendOption {
	return func(o *sendOptions) { o.expected = max(offset, notOne) }
}

// OnDelivery has f called when the outcome is known, on a goroutine of the producer's: be
// brief. A record with a callback is not reported by Flush and Close.
func OnDelivery(f func(Metadata, error)) SendOption {
	return func(o *sendOptions) { o.callback = f }
}

// Send queues one record and returns its future outcome. The message's bytes are copied.
//
// Without a partition the key decides (Kafka's murmur2), without a key records stick to one
// partition until its batch is closed, one with a leader that can be reached if there is any. Send
// waits for a topic that is not known yet, and while
// the buffer is full, until ctx or MaxBlock ends. On an error nothing was queued.
func (p *Producer) Send(ctx context.Context, message Message, options ...SendOption) (Delivery, error) {
	return p.send(ctx, message.Topic, []Message{message}, false, options)
}

// SendBatch sends many records as exactly one batch of a partition; ToPartition is required,
// the messages' topics are ignored.
func (p *Producer) SendBatch(ctx context.Context, topic string, messages []Message, options ...SendOption) (Delivery, error) {
	if len(messages) == 0 {
		return Delivery{}, invalid("messages", "a batch needs at least one record")
	}
	return p.send(ctx, topic, messages, true, options)
}

// SendSync sends one record and waits for its outcome.
func (p *Producer) SendSync(ctx context.Context, message Message, options ...SendOption) (Metadata, error) {
	delivery, err := p.Send(ctx, message, options...)
	if err != nil {
		return Metadata{}, err
	}
	return delivery.Wait(ctx)
}

func invalid(field, format string, args ...any) *Error {
	e := fail(ErrInvalidRequest, format, args...)
	e.Field = field
	return e
}

func (p *Producer) send(ctx context.Context, topic string, messages []Message, whole bool, options []SendOption) (Delivery, error) {
	o := sendOptions{partition: notGiven, expected: notGiven}
	if len(options) > 0 {
		given := &sendOptions{partition: notGiven, expected: notGiven}
		for _, option := range options {
			option(given)
		}
		o = *given
		if err := p.checkOptions(&o, messages); err != nil {
			return Delivery{}, err
		}
	}
	if whole && o.partition == notGiven {
		return Delivery{}, invalid("partition", "a batch needs a partition")
	}
	_, maxBatch, partitions, _ := p.cluster.leaders.topic(topic)
	if partitions == 0 {
		if err := p.learn(ctx, topic); err != nil {
			return Delivery{}, err
		}
		_, maxBatch, partitions, _ = p.cluster.leaders.topic(topic)
	}
	if p.config.Compression != NoCompression {
		// Only the size as sent counts: the node judges it.
		maxBatch = maxPayloadBytes
	}
	partition, err := p.place(topic, messages[0].Key, o.partition, partitions)
	if err != nil {
		return Delivery{}, err
	}
	if partition != notGiven {
		partitions = 0
	}
	return p.sender.accumulator.append(ctx, &addition{
		tp: TopicPartition{topic, partition}, partitions: partitions,
		// A record with demands of its own does not set the place for others.
		sticky:  partition == notGiven && o.sequences == nil && o.expected < 0,
		records: messages, size: sizeOf(messages), sequences: o.sequences,
		expected: o.expected, whole: whole, callback: o.callback, maxBatchBytes: maxBatch,
	})
}

func sizeOf(messages []Message) int {
	size := 0
	for i := range messages {
		m := &messages[i]
		size += recordOverhead + len(m.Value) + len(m.Key)
		for _, header := range m.Headers {
			size += headerOverhead + len(header.Key) + len(header.Value)
		}
	}
	return size
}

func (p *Producer) checkOptions(o *sendOptions, messages []Message) error {
	if o.sequences != nil {
		if !p.config.EnableIdempotence {
			return invalid("sequence", "sequence needs EnableIdempotence")
		}
		if len(o.sequences) != len(messages) || o.sequences[0] < 0 || !rising(o.sequences) {
			return invalid("sequences",
				"sequences must be %d rising numbers from 0, one for each record", len(messages))
		}
	}
	if o.expected == notOne {
		return invalid("expected_offset", "expected_offset must not be negative")
	}
	return nil
}

// place returns the partition; notGiven: any will do.
func (p *Producer) place(topic string, key []byte, given int32, partitions int) (int32, error) {
	switch {
	case given != notGiven:
	case p.config.Partitioner != nil:
		given = p.config.Partitioner(topic, key, partitions)
	case key != nil:
		return keyPartition(key, partitions), nil
	default:
		return notGiven, nil
	}
	if given < 0 || int(given) >= partitions {
		e := fail(ErrUnknownTopicOrPartition, "topic %q has the partitions 0 to %d, not %d",
			topic, partitions-1, given)
		e.Topic, e.Partition = topic, given
		return 0, e
	}
	return given, nil
}

func (p *Producer) learn(ctx context.Context, topic string) error {
	if topic == "" {
		return invalid("topic", "the topic must have a name")
	}
	if failure := p.sender.accumulator.failed(); failure != nil {
		return failure
	}
	if err := p.cluster.requireTopic(ctx, topic, p.config.MaxBlock); err != nil {
		return err
	}
	if _, _, partitions, _ := p.cluster.leaders.topic(topic); partitions == 0 {
		return fail(ErrNotReady, "topic %q has no partitions yet", topic)
	}
	return nil
}

// --- waiting, asking -----------------------------------------------------------------

// Flush sends lingering records and waits until the outcome of all records is known.
//
// It returns an error that wraps ctx's if that ends before, and one of [ErrUndelivered] for
// failures since the last Flush that nobody has looked at: no Wait returned them and no
// OnDelivery was told.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.flush(ctx); err != nil {
		return err
	}
	return p.sender.failed.report()
}

func (p *Producer) flush(ctx context.Context) error {
	waiting := p.sender.accumulator.beginFlush()
	defer p.sender.accumulator.endFlush()
	for i, d := range waiting {
		select {
		case <-d.released:
		case <-ctx.Done():
			return fmt.Errorf("oncelog: the outcome of %d batches is not known yet: %w",
				len(waiting)-i, context.Cause(ctx))
		}
	}
	return nil
}

// Close flushes and frees everything; a transaction that is open is aborted. Records without an
// outcome when ctx ends fail. It returns an error of [ErrUndelivered] as Flush does; a second Close
// does nothing.
func (p *Producer) Close(ctx context.Context) (err error) {
	p.closing.Do(func() {
		p.dropped.Stop()
		p.transactions.close(ctx)
		_ = p.flush(ctx) // the rest fails below, and is reported with its outcome
		p.sender.stop()
		_ = p.flush(ctx) // the callbacks of records that have failed just now
		p.cluster.close()
		err = p.sender.failed.report()
	})
	return err
}

// Partitions returns the number of a topic's partitions.
func (p *Producer) Partitions(ctx context.Context, topic string) (int, error) {
	_, _, partitions, _ := p.cluster.leaders.topic(topic)
	if partitions == 0 {
		if err := p.learn(ctx, topic); err != nil {
			return 0, err
		}
		_, _, partitions, _ = p.cluster.leaders.topic(topic)
	}
	return partitions, nil
}

// Position returns the last sequence of this producer that is stored in a partition; -1: none.
func (p *Producer) Position(ctx context.Context, topic string, partition int32) (int64, error) {
	tp := TopicPartition{topic, partition}
	partitions, err := p.Partitions(ctx, topic)
	if err != nil {
		return 0, err
	}
	if partition < 0 || int(partition) >= partitions {
		return 0, noPartition(tp)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, p.config.MaxBlock,
		fail(ErrRequestTimeout, "%s: no position within MaxBlock=%s", tp, p.config.MaxBlock))
	defer cancel()
	id, err := p.sender.identityOf(bounded, tp)
	if err != nil {
		return 0, err
	}
	return p.sender.identities.lastStored(bounded, tp, id)
}

// Resolve asks for the outcome of a record (or a batch, by its last record) after a timeout.
// NotYet: it may still come. A record without idempotence, or one that was never sent, is an error
// of [ErrInvalidRequest]: there is nothing to ask for.
func (p *Producer) Resolve(ctx context.Context, d Delivery) (ResolvedSequence, error) {
	last := d.index
	if last == wholeBatch {
		last = d.batch.count - 1
	}
	m := d.batch.metadata(last, last)
	if m.ProducerID == 0 || m.Sequence < 0 {
		return ResolvedSequence{}, invalid("record",
			"the record has no sequence: it was never sent, or not with idempotence")
	}
	return resolveSequence(ctx, p.cluster, d.batch.tp, m.ProducerID, m.Epoch, m.Sequence)
}

// Identity returns the producer id and epoch in use; 0 before the first record is on its way.
func (p *Producer) Identity() (producerID int64, epoch int32) {
	if id := p.sender.identities.current.Load(); id != nil {
		return id.producerID, id.epoch
	}
	return 0, 0
}

// Stats returns the producer's counters.
func (p *Producer) Stats() Stats {
	stats := *p.sender.snapshot.Load()
	stats.BufferUsed = p.sender.accumulator.usedBytes()
	stats.Outages = p.cluster.reached.outages()
	return stats
}

// failures are batches that failed and that Flush and Close have not reported yet.
type failures struct {
	mu      sync.Mutex
	batches []*delivery
	dropped int // records of batches that are no longer kept
}

func (f *failures) add(d *delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, d)
	if len(f.batches) > mostFailedKept {
		f.dropped += f.batches[0].unlooked()
		f.batches = f.batches[1:]
	}
}

func (f *failures) report() error {
	f.mu.Lock()
	batches, count := f.batches, f.dropped
	f.batches, f.dropped = nil, 0
	f.mu.Unlock()
	var first *Error
	for _, d := range batches {
		unlooked := d.unlooked()
		count += unlooked
		if unlooked > 0 && first == nil {
			first = d.err
		}
	}
	if count == 0 {
		return nil
	}
	e := fail(ErrUndelivered, "%d records were not delivered", count)
	e.Count, e.Outcome = int64(count), Unknown
	if first != nil {
		e.Message += ", the first: " + first.Message
		e.Outcome, e.cause = first.Outcome, first
	}
	return e
}
