package oncelog

import (
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	// A producer that begins so soon after a commit is expected to do so again; for so long one is
	// kept.
	soonAfter = time.Second
	// Part of the idle time that may pass before it is taken: its first sign of life is due then.
	idleShare = 4
)

// transactionTerms name the transaction's owner and its longest open time.
type transactionTerms struct {
	identity *identity
	times    transactionTimes
}

// following is the transaction that a commit has begun for its producer's next begin, which saves
// a call. A ticket that is not taken soon is aborted: an open transaction keeps the cluster from
// forgetting ended ones. Pure; guarded by transactions.lock.
type following struct {
	begun    *pb.BeginTransactionResponse // that waits to be taken
	terms    *transactionTerms            // of the newest transaction
	expected bool
	endedAt  time.Time
}

func (f *following) noteBegin(terms transactionTerms, now time.Time) {
	f.terms, f.expected = &terms, now.Sub(f.endedAt) < soonAfter
}

// keep returns for how long it may be taken.
func (f *following) keep(begun *pb.BeginTransactionResponse) time.Duration {
	f.begun = begun
	return min(soonAfter, time.Duration(begun.GetIdleTimeoutMs())*ms/idleShare)
}

func (f *following) take() *pb.BeginTransactionResponse {
	begun := f.begun
	f.begun = nil
	return begun
}
