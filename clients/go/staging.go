package oncelog

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// TransactionState says how far a transaction is.
type TransactionState string

// Where a transaction ends, no answer is guessed: a call without one is made again, the same
// call, until one comes; the coordinator's word is final.
//
//	open --commit--> committing --answer--> committed
//	 |                   | refused: an earlier call, without an answer, may have decided
//	 +------abort--> aborting ---answer---> aborted
//	                     '-- "it was committed" --> committing: ask for the places
const (
	TransactionOpen       TransactionState = "open"
	TransactionCommitting TransactionState = "committing"
	TransactionAborting   TransactionState = "aborting"
	TransactionCommitted  TransactionState = "committed"
	TransactionAborted    TransactionState = "aborted"
	// TransactionUnknown: it has ended, and nobody knows how: only if its name was given up
	// meanwhile.
	TransactionUnknown TransactionState = "unknown"
)

type endCall int

const (
	noCall endCall = iota
	commitCall
	abortCall
)

// stagedRun is the part of a transaction in one partition; where it is, once it is committed.
type stagedRun struct {
	recordCount  int64
	lastSequence int64
	baseOffset   atomic.Int64 // -1: not known
}

// stagedOffsets holds the offsets of one group that a transaction has staged.
type stagedOffsets struct {
	lastNumber, count int64
}

// transaction is one transaction as its producer sees it: staged records, failures, and its end. No
// IO; for any goroutine. Begin and end belong to the holder of transactions.lock.
type transaction struct {
	id         int64
	producerID int64
	epoch      int32
	idle       time.Duration

	mu      sync.Mutex
	state   TransactionState
	runs    map[TopicPartition]*stagedRun
	offsets map[string]*stagedOffsets
	failure *Error // why it can no longer be committed; the first one counts
	result  *CommittedTransaction

	askedToCommit bool
	inDoubt       bool // a commit call without an answer may have decided
	refused       *Error
	wasCommitted  bool
}

func newTransaction(id, producerID int64, epoch int32, idle time.Duration) *transaction {
	return &transaction{
		id: id, producerID: producerID, epoch: epoch, idle: idle, state: TransactionOpen,
		runs: map[TopicPartition]*stagedRun{}, offsets: map[string]*stagedOffsets{},
	}
}

func (t *transaction) now() TransactionState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

func (t *transaction) isOver() bool {
	switch t.now() {
	case TransactionCommitted, TransactionAborted, TransactionUnknown:
		return true
	}
	return false
}

// --- staging -------------------------------------------------------------------------

// staged: a batch is on disks of a majority. Batches of a partition come in any order.
func (t *transaction) staged(tp TopicPartition, records int, lastSequence int64) *stagedRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.run(tp)
	run.recordCount += int64(records)
	run.lastSequence = max(run.lastSequence, lastSequence)
	return run
}

func (t *transaction) run(tp TopicPartition) *stagedRun {
	run := t.runs[tp]
	if run == nil {
		run = &stagedRun{lastSequence: -1}
		run.baseOffset.Store(-1)
		t.runs[tp] = run
	}
	return run
}

// written returns where it has staged something.
func (t *transaction) written() []TopicPartition {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tps := make([]TopicPartition, 0, len(t.runs))
	for tp := range maps.Keys(t.runs) {
		tps = append(tps, tp)
	}
	sortPartitions(tps)
	return tps
}

// offsetsOf returns the staged offsets of a group.
func (t *transaction) offsetsOf(group string) stagedOffsets {
	t.mu.Lock()
	defer t.mu.Unlock()
	if staged := t.offsets[group]; staged != nil {
		return *staged
	}
	return stagedOffsets{}
}

func (t *transaction) stagedOffsets(group string, number int64, count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	staged := t.offsets[group]
	if staged == nil {
		staged = &stagedOffsets{}
		t.offsets[group] = staged
	}
	staged.lastNumber, staged.count = number, staged.count+int64(count)
}

// fail: something of it will not be there, so it must not be committed. The first one counts.
func (t *transaction) fail(err *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil && t.state == TransactionOpen {
		t.failure = err
	}
}

func (t *transaction) failed() *Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// refusal is the error of a caller that goes on with a failed transaction.
func (t *transaction) refusal(failure *Error) *Error {
	e := fail(ErrTransactionAborted, "transaction %d cannot be committed: %s", t.id, failure.Error())
	e.cause = failure
	return e
}

// checkOpen returns the error for a caller that goes on with it.
func (t *transaction) checkOpen() error {
	if failure := t.failed(); failure != nil {
		return t.refusal(failure)
	}
	if state := t.now(); state != TransactionOpen {
		return invalid("transaction", "transaction %d is %s", t.id, state)
	}
	return nil
}

// --- ending --------------------------------------------------------------------------

// end: the application asks for this call; returns the first one to make. A transaction that has
// failed, perhaps just now, is aborted.
func (t *transaction) end(call endCall) endCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	if call == commitCall && t.failure == nil && t.state != TransactionAborting {
		t.state, t.askedToCommit = TransactionCommitting, true
		return commitCall
	}
	t.state = TransactionAborting
	return abortCall
}

// noteDoubt: a commit call had no answer, or none that tells its outcome.
func (t *transaction) noteDoubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inDoubt = true
}

// answered takes note of an answer, and returns the next call to make.
func (t *transaction) answered(call endCall, err *Error) endCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && err.Retriable() {
		t.inDoubt = t.inDoubt || call == commitCall
		return call
	}
	if call == commitCall {
		return t.commitAnswered(err)
	}
	return t.abortAnswered(err)
}

func (t *transaction) commitAnswered(err *Error) endCall {
	if err == nil {
		t.state = TransactionCommitted
		return noCall
	}
	t.refuse(err)
	unknown := err.Kind == ErrUnknownTransaction
	switch {
	case err.Kind == ErrTransactionAborted || unknown && !t.inDoubt:
		t.state = TransactionAborted
	case t.wasCommitted:
		// It is committed, but nobody says where its records are.
		t.state = TransactionCommitted
	case unknown:
		t.state = TransactionUnknown
	default:
		// Refused; yet an earlier call, which had no answer, may have been granted.
		t.state = TransactionAborting
		return abortCall
	}
	return noCall
}

func (t *transaction) abortAnswered(err *Error) endCall {
	if err != nil && err.Kind == ErrTransactionCommitted && t.askedToCommit {
		t.wasCommitted, t.refused, t.state = true, nil, TransactionCommitting
		return commitCall
	}
	if err == nil || !t.askedToCommit {
		// Without a commit call nothing of it is ever readable, whichever way this one ends: a
		// transaction that could not be aborted now is aborted when it has been idle.
		t.state = TransactionAborted
		return noCall
	}
	t.refuse(err)
	t.state = TransactionAborting
	if err.Kind == ErrTransactionEnded || err.Kind == ErrUnknownTransaction {
		t.state = TransactionUnknown
	}
	return noCall
}

func (t *transaction) refuse(err *Error) {
	if t.refused == nil {
		t.refused = err
	}
}

// err returns why it was not committed, for the caller of commit.
func (t *transaction) err() *Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure != nil && t.refused == nil {
		if t.failure.Kind.is(ErrProducerFatal) {
			return t.failure
		}
		return t.refusal(t.failure)
	}
	e := t.refused
	if e == nil {
		e = fail(ErrTransactionAborted, "transaction %d was aborted", t.id)
	}
	if t.state == TransactionAborted && e.Kind == ErrUnknownTransaction {
		// No commit call of ours had a chance, and its name has begun another since.
		e = fail(ErrTransactionAborted, "%s", e.Message)
	}
	if t.state == TransactionAborted {
		return e.withOutcome(NotStored)
	}
	return e.withOutcome(Unknown)
}

// published: it is committed, and its records are there.
func (t *transaction) published(places map[TopicPartition]PublishedRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tp, place := range places {
		t.run(tp).baseOffset.Store(place.BaseOffset)
	}
	t.result = &CommittedTransaction{t.id, places}
}

func (t *transaction) committed() *CommittedTransaction {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result
}
