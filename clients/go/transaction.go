package oncelog

import (
	"context"
	"time"
)

// PublishedRun says where a transaction's records are in one partition: they lie together.
type PublishedRun struct {
	BaseOffset  int64
	RecordCount int64
}

// CommittedTransaction is the answer to a commit: where its records are. Without Runs it ended
// long ago, or has no records.
type CommittedTransaction struct {
	TransactionID int64
	Runs          map[TopicPartition]PublishedRun
}

// TransactionOption is an option of one Begin.
type TransactionOption func(*transactionTimes)

// transactionTimes are 0 for the node's own.
type transactionTimes struct{ idle, total time.Duration }

func (t transactionTimes) check() error {
	for name, span := range map[string]time.Duration{"idle_timeout": t.idle, "total_timeout": t.total} {
		if span != 0 && (span < ms || span > maxSpan) {
			return invalid(name, "%s must be from 1ms to %s, got %s", name, maxSpan, span)
		}
	}
	return nil
}

// WithIdleTimeout has the transaction aborted after so long without a sign of life; the producer
// gives them by itself.
func WithIdleTimeout(idle time.Duration) TransactionOption {
	return func(t *transactionTimes) { t.idle = idle }
}

// WithTotalTimeout has the transaction aborted after so long altogether.
func WithTotalTimeout(total time.Duration) TransactionOption {
	return func(t *transactionTimes) { t.total = total }
}

// Transaction is records in several partitions that become readable together, or never, and how
// far a group has read with them. [Producer.Begin] begins it, Commit or Abort ends it;
// [Producer.Transact] does all of that.
//
// While it is open, all that its producer sends belongs to it. A record's Delivery is done when
// the record is staged: on disks of a majority, and not readable. Its offset is -1 until the
// commit. One transaction of a producer is open at a time. It is for any number of goroutines.
type Transaction struct {
	producer *Producer
	begun    *transaction
}

// Begin begins a transaction, when all that was sent before is settled. The producer needs a
// ProducerName.
//
// It returns an error of [ErrFenced] if another producer has taken over the name,
// [ErrTransactionOpen] if nobody has asked for the end of the one before, and of [ErrRetriable] when
// nobody answers. A commit or abort of it is finished first if its context ended. If ctx ends, a
// transaction that was begun is undone.
func (p *Producer) Begin(ctx context.Context, options ...TransactionOption) (*Transaction, error) {
	var times transactionTimes
	for _, option := range options {
		option(&times)
	}
	begun, err := p.transactions.begin(ctx, times)
	if err != nil {
		return nil, err
	}
	return &Transaction{p, begun}, nil
}

// Transact begins a transaction, calls f, and commits; if f fails or panics it aborts. It returns
// f's error, or that of Begin and Commit.
func (p *Producer) Transact(ctx context.Context, f func(*Transaction) error, options ...TransactionOption) (CommittedTransaction, error) {
	t, err := p.Begin(ctx, options...)
	if err != nil {
		return CommittedTransaction{}, err
	}
	returned := false
	defer func() {
		if !returned && t.begun.now() == TransactionOpen {
			// f's error, or panic, says more; a transaction not aborted now is aborted when it has been
			// idle.
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.RequestTimeout)
			defer cancel()
			_ = t.Abort(bounded)
		}
	}()
	if err := f(t); err != nil {
		return CommittedTransaction{}, err
	}
	returned = true
	if t.begun.isOver() {
		if result := t.begun.committed(); result != nil {
			return *result, nil
		}
		return CommittedTransaction{}, nil // f has aborted it
	}
	return t.Commit(ctx)
}

// ID returns the transaction's number, which is never used again.
func (t *Transaction) ID() int64 { return t.begun.id }

// State returns how far it is.
func (t *Transaction) State() TransactionState { return t.begun.now() }

// Send is as [Producer.Send]. It returns an error of [ErrTransactionAborted] once the transaction
// cannot be committed.
func (t *Transaction) Send(ctx context.Context, message Message, options ...SendOption) (Delivery, error) {
	if err := t.begun.checkOpen(); err != nil {
		return Delivery{}, err
	}
	return t.producer.Send(ctx, message, options...)
}

// SendBatch is as [Producer.SendBatch].
func (t *Transaction) SendBatch(ctx context.Context, topic string, messages []Message, options ...SendOption) (Delivery, error) {
	if err := t.begun.checkOpen(); err != nil {
		return Delivery{}, err
	}
	return t.producer.SendBatch(ctx, topic, messages, options...)
}

// CommitPositions stores how far a consumer has read, together with all of the transaction or not
// at all: its positions as the next offsets of its group. An error of [ErrFencedMember] says that
// a partition is another member's by now; the transaction is then only to be aborted.
func (t *Transaction) CommitPositions(ctx context.Context, consumer *Consumer) error {
	return t.CommitOffsets(ctx, consumer, consumer.positions())
}

// CommitOffsets is CommitPositions with these offsets.
func (t *Transaction) CommitOffsets(ctx context.Context, consumer *Consumer, offsets map[TopicPartition]OffsetCommit) error {
	if consumer.config.GroupID == "" {
		return invalid("group_id", "the consumer has no GroupID")
	}
	if err := t.begun.checkOpen(); err != nil || len(offsets) == 0 {
		return err
	}
	terms, err := consumer.commitTerms(offsets)
	if err != nil {
		t.producer.transactions.drop(t.begun, asError(err))
		return err
	}
	return t.producer.transactions.stageOffsets(ctx, t.begun, consumer.config.GroupID, offsets, terms)
}

// CommitGroupOffsets is CommitOffsets for a group without members, by its name.
func (t *Transaction) CommitGroupOffsets(ctx context.Context, group string, offsets map[TopicPartition]OffsetCommit) error {
	if err := checkName("group", group); err != nil {
		return invalid("group", "%s", err.Error())
	}
	if err := t.begun.checkOpen(); err != nil || len(offsets) == 0 {
		return err
	}
	return t.producer.transactions.stageOffsets(ctx, t.begun, group, offsets, nil)
}

// Commit makes all of it readable. It returns when it is, with the places; called again after a
// success, it answers the same.
//
// Errors, with nothing of it readable: [ErrTransactionAborted] (a record failed, it was idle or
// open for too long, an operator aborted it); [ErrFenced] and others that end the producer come as
// themselves. [ErrCommitTimeout]: not known yet, call it again. If ctx ends before the first call
// its error is returned, and the transaction is still open; after that it is wrapped in an
// ErrCommitTimeout.
func (t *Transaction) Commit(ctx context.Context) (CommittedTransaction, error) {
	return t.producer.transactions.commit(ctx, t.begun)
}

// Abort drops all of it. Again, it does nothing.
//
// It returns an error of [ErrTransactionCommitted] if a commit was decided, and of
// [ErrCommitTimeout] if nobody answers; it is aborted then when it has been idle for long enough.
func (t *Transaction) Abort(ctx context.Context) error {
	return t.producer.transactions.abort(ctx, t.begun)
}
