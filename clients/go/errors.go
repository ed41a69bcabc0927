package oncelog

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Kind is a place in the tree of errors. Every *[Error] has one, and errors.Is finds an
// error by its kind and by all kinds above it.
type Kind struct {
	// Reason is the word that travels over the network, such as NOT_LEADER.
	Reason string
	parent *Kind
}

// Error returns the kind's reason.
func (k *Kind) Error() string { return k.Reason }

func (k *Kind) is(other *Kind) bool {
	for ; k != nil; k = k.parent {
		if k == other {
			return true
		}
	}
	return false
}

var kinds = map[string]*Kind{} // by reason

func kind(reason string, parent *Kind) *Kind {
	k := &Kind{Reason: reason, parent: parent}
	kinds[reason] = k
	return k
}

// Kinds of calls that may succeed later, unchanged.
var (
	// ErrRetriable is above all errors of this group.
	ErrRetriable = kind("RETRIABLE", nil)
	// ErrNotLeader: the node does not lead the partition; LeaderID and LeaderAddress name the leader,
	// if it is known.
	ErrNotLeader = kind("NOT_LEADER", ErrRetriable)
	// ErrNotReady: a new leader that has not caught up, or no leader at all, yet.
	ErrNotReady = kind("NOT_READY", ErrRetriable)
	// ErrUnavailable: the node cannot be reached, or has no quorum.
	ErrUnavailable = kind("UNAVAILABLE", ErrRetriable)
	// ErrThrottled: the node has too much to do, or a limit of it is reached.
	ErrThrottled = kind("THROTTLED", ErrRetriable)
	// ErrStorageFull: the node's disk is full; it takes writes again when there is room.
	ErrStorageFull = kind("STORAGE_FULL", ErrRetriable)
	// ErrRequestTimeout: no answer in time; the call may still take effect.
	ErrRequestTimeout = kind("REQUEST_TIMEOUT", ErrRetriable)
	// ErrOtherCluster: the node is of another founding than the cluster that this client began
	// with; the call had no effect there.
	ErrOtherCluster = kind("OTHER_CLUSTER", ErrRetriable)
	// ErrBufferFull: the buffer stayed full for ProducerConfig.MaxBlock; nothing was queued.
	ErrBufferFull = kind("BUFFER_FULL", ErrRetriable)
	// ErrCommitTimeout: no answer to a commit or an abort in time, so the outcome, [Unknown], is not
	// known yet. Repeat the call: the same transaction answers how it ended.
	ErrCommitTimeout = kind("COMMIT_TIMEOUT", ErrRetriable)
	// ErrUnknownTopicOrPartition: there is none, as far as the node knows; Topic, Partition.
	ErrUnknownTopicOrPartition = kind("UNKNOWN_TOPIC_OR_PARTITION", ErrRetriable)
)

// Kinds of calls that fail again if repeated.
var (
	// ErrFatal is above all errors of this group and the next two.
	ErrFatal = kind("FATAL", nil)
	// ErrInvalidRequest: an argument is wrong; Field names it, Limit is the allowed range.
	ErrInvalidRequest = kind("INVALID_REQUEST", ErrFatal)
	// ErrTopicAlreadyExists: a topic of this name exists; Topic.
	ErrTopicAlreadyExists = kind("TOPIC_ALREADY_EXISTS", ErrFatal)
	// ErrProducerNameNotFound: no producer holds, or held, ProducerName.
	ErrProducerNameNotFound = kind("PRODUCER_NAME_NOT_FOUND", ErrFatal)
	// ErrUnauthenticated: the node does not know the caller: no certificate or token, or one that
	// is of no use.
	ErrUnauthenticated = kind("UNAUTHENTICATED", ErrFatal)
	// ErrNotAuthorized: the caller may not do this; the message names the grant that is missing.
	ErrNotAuthorized = kind("NOT_AUTHORIZED", ErrFatal)
	// ErrNotSupported: the server, or this client, cannot do it.
	ErrNotSupported = kind("NOT_SUPPORTED", ErrFatal)
	// ErrFencedMember: the group has given the partition to another member, or goes on without
	// this one. A commit that was tried more than once may have been stored before that.
	ErrFencedMember = kind("FENCED_MEMBER", ErrFatal)
	// ErrGroupHasMembers: the group's members share its partitions; only they commit, or read
	// on from its offsets.
	ErrGroupHasMembers = kind("GROUP_HAS_MEMBERS", ErrFatal)
	// ErrInternal: a bug or a broken invariant at the node; its log says more.
	ErrInternal = kind("INTERNAL", ErrFatal)
	// ErrOffsetOutOfRange: no record is there; Offset, LogStartOffset, HighWatermark.
	ErrOffsetOutOfRange = kind("OFFSET_OUT_OF_RANGE", ErrFatal)
	// ErrCorruptLog: stored or fetched bytes are damaged; Topic, Partition, Offset.
	ErrCorruptLog = kind("CORRUPT_LOG", ErrFatal)
	// ErrClientClosed: the client was used after Close.
	ErrClientClosed = kind("CLIENT_CLOSED", ErrFatal)
	// ErrConfig: settings that are out of range or contradict each other.
	ErrConfig = kind("INVALID_CONFIG", nil)
)

// Kinds of a record that is not known to be stored. The error's Outcome says more.
var (
	// ErrDelivery is above all errors of this group and the next.
	ErrDelivery = kind("DELIVERY_FAILED", ErrFatal)
	// ErrInvalidBatch: the batch itself is wrong; the message says how.
	ErrInvalidBatch = kind("INVALID_BATCH", ErrDelivery)
	// ErrBatchTooLarge: the batch or record is over the topic's limit, or the buffer's.
	ErrBatchTooLarge = kind("BATCH_TOO_LARGE", ErrDelivery)
	// ErrOffsetMismatch: the expected offset is not the one that comes next, NextOffset.
	ErrOffsetMismatch = kind("OFFSET_MISMATCH", ErrDelivery)
	// ErrDeliveryTimeout: ProducerConfig.DeliveryTimeout is over.
	ErrDeliveryTimeout = kind("DELIVERY_TIMEOUT", ErrDelivery)
	// ErrUndelivered is returned by Flush and Close: Count records failed and nobody
	// looked at it. The first failure is wrapped.
	ErrUndelivered = kind("UNDELIVERED_RECORDS", ErrDelivery)
)

// Kinds of a transaction that did not become, or is not, as requested.
var (
	// ErrTransaction is above all errors of this group.
	ErrTransaction = kind("TRANSACTION_FAILED", ErrDelivery)
	// ErrTransactionAborted: nothing of it is readable; the message says why.
	ErrTransactionAborted = kind("TRANSACTION_ABORTED", ErrTransaction)
	// ErrTransactionCommitted: it was committed before; nothing is undone.
	ErrTransactionCommitted = kind("TRANSACTION_COMMITTED", ErrTransaction)
	// ErrTransactionEnded: it has ended; repeat its commit to learn how.
	ErrTransactionEnded = kind("TRANSACTION_ENDED", ErrTransaction)
	// ErrTransactionOpen: another transaction of the same producer name is open.
	ErrTransactionOpen = kind("TRANSACTION_OPEN", ErrTransaction)
	// ErrUnknownTransaction: it was never begun, or ended so long ago that nobody knows how.
	ErrUnknownTransaction = kind("UNKNOWN_TRANSACTION", ErrTransaction)
	// ErrCommitIncomplete: the commit names other batches than are staged; it is still open.
	ErrCommitIncomplete = kind("COMMIT_INCOMPLETE", ErrTransaction)
	// ErrCommitDiffers: it was committed with other batches than this commit names.
	ErrCommitDiffers = kind("COMMIT_DIFFERS", ErrTransaction)
)

// Kinds after which the producer cannot go on: all of its pending records have failed.
var (
	// ErrProducerFatal is above all errors of this group.
	ErrProducerFatal = kind("PRODUCER_FAILED", ErrDelivery)
	// ErrFenced: a producer with a higher epoch, CurrentEpoch, has taken over.
	ErrFenced = kind("FENCED", ErrProducerFatal)
	// ErrSequenceConflict: the same sequences are stored with another content.
	ErrSequenceConflict = kind("SEQUENCE_CONFLICT", ErrProducerFatal)
	// ErrOutOfOrder: the batch does not follow LastSequence, the last one that is stored.
	ErrOutOfOrder = kind("OUT_OF_ORDER", ErrProducerFatal)
	// ErrUnknownProducer: the cluster never issued this producer id, or the partition does
	// not know it.
	ErrUnknownProducer = kind("UNKNOWN_PRODUCER", ErrProducerFatal)
	// ErrProducerExpired: the lease of the producer id is over.
	ErrProducerExpired = kind("PRODUCER_EXPIRED", ErrProducerFatal)
)

// own kinds are those that no node sends.
var own = []*Kind{
	ErrRetriable, ErrBufferFull, ErrFatal, ErrClientClosed, ErrConfig, ErrDelivery,
	ErrDeliveryTimeout, ErrUndelivered, ErrProducerFatal, ErrTransaction, ErrCommitTimeout,
}

// travelling returns the kind that a node's word stands for; nil: it is not known.
func travelling(reason string) *Kind {
	k := kinds[reason]
	if slices.Contains(own, k) {
		return nil
	}
	return k
}

// Outcome is the known outcome of a failed record.
type Outcome string

const (
	// NeverSent: no node has seen the record.
	NeverSent Outcome = "never_sent"
	// NotStored: a node refused it.
	NotStored Outcome = "not_stored"
	// Unknown: it was sent and may be stored now or a little later.
	Unknown Outcome = "unknown"
)

// Error is every error that this package makes. Which of the details are set depends on
// the Kind.
//
// A record's error names its batch: Topic, Partition, ProducerID, Epoch and Sequence are the
// arguments of [Admin.ResolveSequence], which tells later whether the batch was stored.
type Error struct {
	Kind    *Kind
	Message string
	// Outcome is set for [ErrCommitTimeout], and for kinds below [ErrDelivery]. Of another retriable
	// error it is [Unknown] if an attempt of the call had no answer: the call may take effect.
	Outcome Outcome

	Topic          string
	Partition      int32
	ProducerID     int64 // 0: the batch was never sent, or without idempotence
	Epoch          int32
	Sequence       int64 // of the batch's last record: a batch is stored whole or not at all
	Offset         int64
	LogStartOffset int64
	HighWatermark  int64
	NextOffset     int64
	LastSequence   int64
	CurrentEpoch   int32
	LeaderID       int32
	LeaderAddress  string
	ProducerName   string
	Field          string
	Limit          string
	// Lacks is the missing permission, of [ErrNotAuthorized].
	Lacks Need
	// RetryAfter of [ErrThrottled]: sooner it is of no use; 0: not known.
	RetryAfter time.Duration
	Count      int64

	cause  error
	told   bool // by a node
	unsent bool // the call was not sent: there was no connection
}

// Need is the permission that a call requires: an operation of a principal, on a resource of a
// kind.
type Need struct{ Principal, Operation, Kind, Name string }

// Error returns the message, or the reason if there is none.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Kind.Reason
	}
	return e.Message
}

// Is reports whether target is the error's kind or one above it.
func (e *Error) Is(target error) bool {
	k, ok := target.(*Kind)
	return ok && e.Kind.is(k)
}

// Unwrap returns the cause of the error, if that is an error too.
func (e *Error) Unwrap() error { return e.cause }

// Retriable reports whether the same call may succeed later.
func (e *Error) Retriable() bool { return e.Kind.is(ErrRetriable) }

// Timeout reports whether time was up: it makes an error of a net.Error's form.
func (e *Error) Timeout() bool {
	return e.Kind == ErrRequestTimeout || e.Kind == ErrBufferFull || e.Kind == ErrDeliveryTimeout ||
		e.Kind == ErrCommitTimeout
}

// fail makes an error. Kinds below ErrDelivery are not_stored until something else is said.
func fail(k *Kind, format string, args ...any) *Error {
	e := &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
	if k == ErrCommitTimeout || k == ErrTransactionCommitted { // the latter is stored
		e.Outcome = Unknown
	} else if k.is(ErrDelivery) {
		e.Outcome = NotStored
	}
	return e
}

// withOutcome returns a copy with this outcome, if the error is of a kind that has one.
func (e *Error) withOutcome(outcome Outcome) *Error {
	if !e.Kind.is(ErrDelivery) {
		return e
	}
	twin := *e
	twin.Outcome = outcome
	return &twin
}

// asError returns any err as an *Error.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: ErrInternal, Message: err.Error(), cause: err}
}

func isRetriable(err error) bool { return errors.Is(err, ErrRetriable) }
