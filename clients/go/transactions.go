package oncelog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	// A node that hangs must not hold up a call that another one answers. A commit waits for
	// markers in all partitions.
	transactionAttempt = 2 * time.Second
	commitAttempt      = 4 * time.Second
	// A node's default.
	defaultTotal = 15 * time.Minute
	// So often within the idle time a transaction says that it lives.
	signsOfLife = 3
)

// transactions are those of one producer, one after the other: the calls, the signs of life.
//
// Staged records go the way of all records; a transaction begins and ends with nothing on its
// way, so that a batch belongs to the transaction that was open when it began. The meaning of an
// answer is decided in transaction.
type transactions struct {
	config  *ProducerConfig
	cluster *cluster
	sender  *sender
	groups  *groups

	// Held by the goroutine that begins or ends; it guards the fields below.
	lock    turn
	current *transaction
	// The nonce of a begin that was not answered is used again: it may have begun one.
	nonce    uint64
	nonceOf  int // the identity's serial
	answered bool
	// A begin had no final answer: it may have begun one that nobody has a handle of.
	inDoubt   bool
	stopAlive context.CancelFunc
	following following
	next      *pb.NextTransaction // that the commit under way shall begin
	unused    *time.Timer
}

func newTransactions(s *sender) *transactions {
	return &transactions{
		config: s.config, cluster: s.cluster, sender: s, groups: newGroups(s.cluster),
		lock: newTurn(), answered: true, stopAlive: func() {},
	}
}

// --- begin ---------------------------------------------------------------------------

func (ts *transactions) begin(ctx context.Context, times transactionTimes) (*transaction, error) {
	if ts.config.ProducerName == "" {
		return nil, invalid("producer_name", "a transaction needs a producer with a ProducerName")
	}
	if err := times.check(); err != nil {
		return nil, err
	}
	if err := ts.lock.hold(ctx); err != nil {
		return nil, err
	}
	defer ts.lock.letGo()
	if err := ts.endBefore(ctx); err != nil {
		return nil, err
	}
	accumulator := ts.sender.accumulator
	accumulator.pause(invalid("transaction", "a transaction is being begun"))
	before := accumulator.current()
	begun, err := ts.beginDrained(ctx, times)
	if err != nil {
		accumulator.resume(before)
		if ts.inDoubt {
			go ts.undoBeginLater()
		}
		return nil, err
	}
	ts.current = begun
	accumulator.resume(begun)
	alive, stop := context.WithCancel(ts.sender.ctx)
	ts.stopAlive = stop
	go ts.keepAlive(alive, begun)
	return begun, nil
}

// endBefore: the end of the one before must be known.
func (ts *transactions) endBefore(ctx context.Context) error {
	before := ts.current
	if before == nil || before.isOver() {
		return nil
	}
	// The caller that asked for its end has given up waiting.
	call, ending := map[TransactionState]endCall{
		TransactionCommitting: commitCall, TransactionAborting: abortCall,
	}[before.now()]
	if ending {
		if err := ts.end(ctx, before, call); err != nil || before.isOver() {
			return err
		}
	}
	return fail(ErrTransactionOpen, "transaction %d of this producer is %s: end it with Commit or Abort",
		before.id, before.now())
}

func (ts *transactions) beginDrained(ctx context.Context, times transactionTimes) (*transaction, error) {
	if err := ts.drain(ctx); err != nil {
		return nil, err
	}
	if err := ts.sender.accumulator.failed(); err != nil {
		return nil, err
	}
	total := times.total
	if total == 0 {
		total = defaultTotal
	}
	id, err := ts.sender.identities.forTransaction(ctx, total, ts.sender.hasUsedUp)
	if err != nil {
		return nil, ts.refusedBegin(err)
	}
	terms := transactionTerms{id, times}
	if ts.following.begun != nil && *ts.following.terms != terms {
		ts.abortFollowing(ctx)
	}
	ts.following.noteBegin(terms, time.Now())
	if ts.unused != nil {
		ts.unused.Stop()
	}
	answer := ts.following.take()
	if answer == nil {
		if answer, err = ts.callBegin(ctx, terms); err != nil {
			return nil, ts.refusedBegin(err)
		}
	}
	if answer.GetTransactionId() <= 0 || answer.GetIdleTimeoutMs() <= 0 {
		return nil, fail(ErrInternal, "the node has begun a transaction without a number or time")
	}
	return newTransaction(answer.GetTransactionId(), id.producerID, id.epoch,
		time.Duration(answer.GetIdleTimeoutMs())*ms), nil
}

func (ts *transactions) callBegin(ctx context.Context, terms transactionTerms) (*pb.BeginTransactionResponse, error) {
	id := terms.identity
	if ts.nonceOf != id.serial {
		ts.nonce, ts.nonceOf, ts.answered = 0, id.serial, true
	}
	ts.drawNonce()
	request := &pb.BeginTransactionRequest{
		ProducerName: ts.config.ProducerName, ProducerId: id.producerID, Epoch: id.epoch,
		LeaseToken: id.leaseToken, Nonce: ts.nonce,
		IdleTimeoutMs: int32(terms.times.idle / ms), TotalTimeoutMs: int32(terms.times.total / ms),
		Partitions: onWire(ts.current.written()),
	}
	doubt := false
	ts.inDoubt = true
	var answer *pb.BeginTransactionResponse
	err := ts.cluster.call(ctx, callOptions{
		total: max(ts.config.MaxBlock, ts.config.RequestTimeout), attempt: transactionAttempt,
		onRetry: func(error) { doubt = true }, first: ts.near(ts.current),
	}, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = pb.NewTransactionServiceClient(conn).BeginTransaction(ctx, request)
		return err
	})
	var known *Error
	if err == nil || errors.As(err, &known) && !known.Retriable() {
		// A refusal says nothing of an attempt before it that had no answer.
		ts.answered = err == nil || !doubt
		ts.inDoubt = !ts.answered
	}
	return answer, err
}

// undoBegin aborts the transaction of a begin without a caller; nobody has a handle of it.
func (ts *transactions) undoBegin(ctx context.Context) {
	terms := ts.following.terms
	if !ts.inDoubt || ts.current != nil && !ts.current.isOver() || ts.nonceOf != terms.identity.serial {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, transactionAttempt)
	defer cancel()
	// The same begin again tells which one it is.
	if begun, err := ts.callBegin(bounded, *terms); err == nil {
		ts.following.keep(begun)
		ts.abortFollowing(bounded)
	}
}

func (ts *transactions) undoBeginLater() {
	if ts.lock.hold(ts.sender.ctx) == nil {
		defer ts.lock.letGo()
		ts.undoBegin(ts.sender.ctx)
	}
}

// refusedBegin: a producer that is shut out cannot go on at all.
func (ts *transactions) refusedBegin(err error) error {
	if errors.Is(err, ErrProducerFatal) {
		ts.sender.ask(func() { ts.sender.fail(asError(err)) })
	}
	return err
}

func (ts *transactions) drawNonce() {
	if ts.answered {
		ts.nonce++
	}
	ts.answered = false
}

// near returns a node that leads where the transaction writes: it has a hop less to make.
func (ts *transactions) near(t *transaction) string {
	if written := t.written(); len(written) > 0 {
		return ts.cluster.leaders.address(written[0])
	}
	return ""
}

// abortFollowing: where nobody answers it is aborted when it has been idle, or by the next lease.
func (ts *transactions) abortFollowing(ctx context.Context) {
	begun := ts.following.take()
	if begun == nil {
		return
	}
	id := ts.following.terms.identity
	_ = ts.callAbort(ctx, begun.GetTransactionId(), id.producerID, id.epoch, transactionAttempt)
}

func (ts *transactions) callAbort(ctx context.Context, transactionID, producerID int64, epoch int32, limit time.Duration) error {
	request := &pb.AbortTransactionRequest{
		TransactionId: transactionID, ProducerId: producerID, Epoch: epoch,
	}
	return ts.cluster.call(ctx, callOptions{total: limit, attempt: transactionAttempt},
		func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := pb.NewTransactionServiceClient(conn).AbortTransaction(ctx, request)
			return err
		})
}

// drain returns when nothing waits any more and nothing is on its way: no batch may be begun.
func (ts *transactions) drain(ctx context.Context) error {
	waiting := ts.sender.accumulator.beginFlush()
	defer ts.sender.accumulator.endFlush()
	for _, d := range waiting {
		select {
		case <-d.released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// --- while it is open ----------------------------------------------------------------

// keepAlive says that it lives, in time for one answer that is lost.
func (ts *transactions) keepAlive(ctx context.Context, t *transaction) {
	request := &pb.KeepTransactionsAliveRequest{TransactionIds: []int64{t.id}}
	pause := t.idle / signsOfLife
	for sleep(ctx, pause) == nil && !t.isOver() {
		var answer *pb.KeepTransactionsAliveResponse
		err := ts.cluster.call(ctx, callOptions{total: pause, attempt: transactionAttempt},
			func(ctx context.Context, conn *grpc.ClientConn) (err error) {
				answer, err = pb.NewTransactionServiceClient(conn).KeepTransactionsAlive(ctx, request)
				return err
			})
		if err == nil && len(answer.GetEnded()) > 0 && t.now() == TransactionOpen {
			ts.drop(t, fail(ErrTransactionAborted, "transaction %d is not open any more: it was idle "+
				"or open for too long, or was aborted by a successor or an operator", t.id))
			return
		}
	}
}

// drop: it cannot be committed any more.
func (ts *transactions) drop(t *transaction, err *Error) {
	ts.sender.accumulator.failTransaction(t, err)
	ts.sender.ask(func() { ts.sender.drop(t, err) })
}

// stageOffsets stores offsets with it. It goes on to its end though its caller gives up: further
// offsets, or the commit, must know of them.
func (ts *transactions) stageOffsets(ctx context.Context, t *transaction, group string, offsets map[TopicPartition]OffsetCommit, terms *commitTerms) error {
	if err := ts.lock.hold(ctx); err != nil {
		return err
	}
	staged := make(chan error, 1)
	offsets = maps.Clone(offsets) // the caller's own
	go func() {
		defer ts.lock.letGo()
		staged <- ts.stage(ts.sender.ctx, t, group, offsets, terms)
	}()
	select {
	case err := <-staged:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stage stores offsets with it. A batch that cannot be stored fails the transaction.
func (ts *transactions) stage(ctx context.Context, t *transaction, group string, offsets map[TopicPartition]OffsetCommit, terms *commitTerms) error {
	if err := t.checkOpen(); err != nil {
		return err
	}
	number := t.offsetsOf(group).lastNumber + 1
	if terms != nil {
		number = terms.number
	}
	deadline := time.Now().Add(ts.config.DeliveryTimeout)
	var tried attempts
	for failures := 1; ; failures++ {
		err := ts.groups.stage(ctx, t, group, offsets, number, terms)
		if err == nil {
			break
		}
		pause := ts.cluster.backoff.after(err, failures)
		over := !time.Now().Add(pause).Before(deadline)
		if isRetriable(err) {
			tried.failed(err)
			if !over && t.failed() == nil && sleep(ctx, pause) == nil {
				continue
			}
			err = tried.err()
		}
		// Its staged part is not known: it can only be aborted.
		ts.drop(t, asError(err))
		return err
	}
	t.stagedOffsets(group, number, len(offsets))
	return nil
}

// --- end -----------------------------------------------------------------------------

// commit makes all of it readable. It may be repeated.
func (ts *transactions) commit(ctx context.Context, t *transaction) (CommittedTransaction, error) {
	if err := ts.lock.hold(ctx); err != nil {
		return CommittedTransaction{}, err
	}
	defer ts.lock.letGo()
	if !t.isOver() {
		ts.pause(t)
		if err := ts.drain(ctx); err != nil {
			if t.now() == TransactionOpen {
				ts.sender.accumulator.resume(t) // nothing was asked yet
			}
			return CommittedTransaction{}, err
		}
		if err := ts.end(ctx, t, commitCall); err != nil {
			return CommittedTransaction{}, err
		}
	}
	if result := t.committed(); result != nil {
		return *result, nil
	}
	return CommittedTransaction{}, t.err()
}

func (ts *transactions) abort(ctx context.Context, t *transaction) error {
	if err := ts.lock.hold(ctx); err != nil {
		return err
	}
	defer ts.lock.letGo()
	if !t.isOver() {
		ts.pause(t)
		ts.drop(t, fail(ErrTransactionAborted, "transaction %d was aborted", t.id))
		if err := ts.drain(ctx); err != nil {
			if t.now() == TransactionOpen {
				ts.sender.accumulator.resume(t)
			}
			return err
		}
		if err := ts.end(ctx, t, abortCall); err != nil {
			return err
		}
	}
	switch t.now() {
	case TransactionAborted:
		return nil
	case TransactionCommitted:
		return fail(ErrTransactionCommitted, "transaction %d is committed, nothing is undone", t.id)
	}
	return t.err()
}

func (ts *transactions) pause(t *transaction) {
	if t != ts.current {
		panic("oncelog: one transaction at a time")
	}
	ts.sender.accumulator.pause(invalid("transaction", "transaction %d is being ended", t.id))
}

// end makes calls until an answer is final, or time is up: an error of ErrCommitTimeout.
func (ts *transactions) end(ctx context.Context, t *transaction, call endCall) error {
	next := t.end(call)
	deadline := time.Now().Add(ts.config.DeliveryTimeout)
	var tried attempts
	for failures := 1; ; failures++ {
		var answer *pb.CommitTransactionResponse
		var err error
		if next == commitCall {
			answer, err = ts.callCommit(ctx, t, time.Until(deadline))
		} else {
			err = ts.callAbort(ctx, t.id, t.producerID, t.epoch, time.Until(deadline))
		}
		if err != nil && ctx.Err() != nil {
			if next == commitCall {
				t.noteDoubt()
			}
			return ts.timeout(t, context.Cause(ctx))
		}
		var known *Error
		if err != nil {
			known = asError(err)
		}
		if next = t.answered(next, known); next == noCall {
			ts.over(t, answer)
			return nil
		}
		if known == nil || !known.Retriable() {
			continue
		}
		tried.failed(err)
		pause := ts.cluster.backoff.after(err, failures)
		if !time.Now().Add(pause).Before(deadline) {
			return ts.timeout(t, tried.err())
		}
		if err := sleep(ctx, pause); err != nil {
			return ts.timeout(t, err)
		}
	}
}

func (ts *transactions) timeout(t *transaction, cause error) error {
	e := fail(ErrCommitTimeout, "transaction %d is %s, and nobody has said how it ended; "+
		"commit or abort it again: %v", t.id, t.now(), cause)
	e.cause = cause
	return e
}

func (ts *transactions) callCommit(ctx context.Context, t *transaction, left time.Duration) (*pb.CommitTransactionResponse, error) {
	if ts.next == nil && ts.following.expected {
		ts.drawNonce()
		times := ts.following.terms.times
		ts.next = &pb.NextTransaction{
			Nonce: ts.nonce, IdleTimeoutMs: int32(times.idle / ms),
			TotalTimeoutMs: int32(times.total / ms), Partitions: onWire(t.written()),
		}
	}
	request := t.commitRequest(ts.next)
	var answer *pb.CommitTransactionResponse
	err := ts.cluster.call(ctx, callOptions{
		total: left, attempt: commitAttempt, first: ts.near(t),
		// It may be decided by a call without an answer, even if the next call is told otherwise.
		onRetry: func(error) { t.noteDoubt() },
	}, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = pb.NewTransactionServiceClient(conn).CommitTransaction(ctx, request)
		return err
	})
	return answer, err
}

// commitRequest is the same in each call: nothing is staged after the first one.
func (t *transaction) commitRequest(next *pb.NextTransaction) *pb.CommitTransactionRequest {
	request := &pb.CommitTransactionRequest{
		TransactionId: t.id, ProducerId: t.producerID, Epoch: t.epoch,
		TimeoutMs: int32(commitAttempt * 8 / 10 / ms), BeginNext: next,
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// In order, for a repeat is compared with the decision.
	for _, tp := range slices.SortedFunc(maps.Keys(t.runs), comparePartitions) {
		run := t.runs[tp]
		request.Runs = append(request.Runs, &pb.StagedRun{
			Topic: tp.Topic, Partition: tp.Partition,
			RecordCount: run.recordCount, LastSequence: run.lastSequence,
		})
	}
	for _, group := range slices.Sorted(maps.Keys(t.offsets)) {
		staged := t.offsets[group]
		request.Offsets = append(request.Offsets, &pb.StagedOffsets{
			Group: group, OffsetCount: staged.count, LastNumber: staged.lastNumber,
		})
	}
	return request
}

// over: an answer was final, or the last call was refused and it may be asked again.
func (ts *transactions) over(t *transaction, answer *pb.CommitTransactionResponse) {
	switch t.now() {
	case TransactionCommitted:
		places := map[TopicPartition]PublishedRun{}
		for _, run := range answer.GetRuns() {
			places[TopicPartition{run.GetTopic(), run.GetPartition()}] =
				PublishedRun{run.GetBaseOffset(), run.GetRecordCount()}
		}
		t.published(places)
	case TransactionAborted:
		ts.sender.ask(func() {
			if failure := t.failed(); failure != nil {
				ts.sender.drop(t, failure)
			}
			for _, w := range ts.sender.windows {
				w.rollBack(t)
			}
		})
	case TransactionUnknown:
		// Nobody knows which sequences are stored, either.
		failure := fail(ErrProducerFatal, "how transaction %d ended is not known", t.id)
		ts.sender.ask(func() { ts.sender.fail(failure) })
	default:
		return
	}
	ts.stopAlive()
	ts.following.endedAt, ts.next = time.Now(), nil
	if begun := answer.GetNext(); begun != nil {
		ts.answered = true
		kept := ts.following.keep(begun)
		ts.unused = time.AfterFunc(kept, ts.abortUnused)
	}
	ts.sender.accumulator.resume(nil)
}

func (ts *transactions) abortUnused() {
	if ts.lock.hold(ts.sender.ctx) == nil {
		defer ts.lock.letGo()
		ts.abortFollowing(ts.sender.ctx)
	}
}

// close aborts the open transaction. A transaction with a requested commit is left to the cluster.
func (ts *transactions) close(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, ts.config.RequestTimeout)
	defer cancel()
	if ts.lock.hold(bounded) != nil {
		return // its holder is cut off with the sender
	}
	current := ts.current
	if ts.unused != nil {
		ts.unused.Stop()
	}
	ts.lock.letGo()
	if current != nil && current.now() == TransactionOpen {
		if written := current.written(); len(written) > 0 {
			ts.config.logger().Warn("oncelog: a transaction with records was open when its producer "+
				"was closed: it is aborted", "transaction", current.id)
		}
		_ = ts.abort(bounded, current) // where nobody answers it is aborted when it has been idle
	}
	if ts.lock.hold(bounded) == nil {
		ts.abortFollowing(bounded)
		ts.undoBegin(bounded)
		ts.lock.letGo()
	}
	ts.stopAlive()
}

func onWire(tps []TopicPartition) (all []*pb.TopicPartition) {
	for _, tp := range tps {
		all = append(all, &pb.TopicPartition{Topic: tp.Topic, Partition: tp.Partition})
	}
	return all
}
