package oncelog

import (
	"context"
	"strings"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// TransactionInfo is a transaction, and how far it is.
type TransactionInfo struct {
	TransactionID  int64
	State          string // OPEN, COMMITTING, ABORTING, COMMITTED or ABORTED
	Reason         string // of an abort
	ProducerName   string // or the sink's
	Sink           bool
	ProducerID     int64
	Epoch          int32
	BegunMs, AgeMs int64
	IdleTimeout    time.Duration
	TotalTimeout   time.Duration
	StagedBytes    int64 // in all partitions that answer
	Partitions     []TransactionPart
}

// TransactionPart is the part of a transaction in one partition.
type TransactionPart struct {
	TopicPartition      // Topic is empty if it was deleted
	Ended          bool // the partition knows the outcome
	// Records staged there now; -1: the partition's leader does not answer.
	StagedRecords, StagedBytes int64
	StagedOffsets              int64 // in __offsets: of how many partitions
}

// ListTransactions returns at most limit (0: 100) transactions that have not ended everywhere, the
// oldest first: of a name (empty: of all), begun longer ago than olderThan.
func (a *Admin) ListTransactions(ctx context.Context, producerName string, olderThan time.Duration, limit int32) ([]TransactionInfo, error) {
	request := &pb.ListTransactionsRequest{
		ProducerName: producerName, OlderThanMs: olderThan.Milliseconds(), Limit: limit,
	}
	answer, err := ask(ctx, a.cluster, pb.NewTransactionServiceClient, pb.TransactionServiceClient.ListTransactions, request)
	var found []TransactionInfo
	for _, one := range answer.GetTransactions() {
		found = append(found, transactionInfo(one))
	}
	return found, err
}

// DescribeTransaction returns an open transaction, or an ended one if its owner has begun no other
// since; an error of [ErrUnknownTransaction] for any other.
func (a *Admin) DescribeTransaction(ctx context.Context, transactionID int64) (TransactionInfo, error) {
	request := &pb.DescribeTransactionRequest{TransactionId: transactionID}
	answer, err := ask(ctx, a.cluster, pb.NewTransactionServiceClient, pb.TransactionServiceClient.DescribeTransaction, request)
	if err != nil {
		return TransactionInfo{}, err
	}
	return transactionInfo(answer.GetTransaction()), nil
}

// AbortTransaction drops the staged records of any owner; an error of [ErrTransactionCommitted]
// if it is too late.
func (a *Admin) AbortTransaction(ctx context.Context, transactionID int64) error {
	request := &pb.AbortTransactionRequest{TransactionId: transactionID}
	_, err := ask(ctx, a.cluster, pb.NewTransactionServiceClient, pb.TransactionServiceClient.AbortTransaction, request)
	return err
}

func transactionInfo(t *pb.TransactionDescription) TransactionInfo {
	info := TransactionInfo{
		TransactionID: t.GetTransactionId(), State: strings.TrimPrefix(t.GetState().String(), "TRANSACTION_STATE_"),
		Reason: t.GetReason(), ProducerName: t.GetProducerName(), Sink: t.GetSink(),
		ProducerID: t.GetProducerId(), Epoch: t.GetEpoch(),
		BegunMs: t.GetBegunMs(), AgeMs: t.GetAgeMs(), StagedBytes: t.GetStagedBytes(),
		IdleTimeout:  time.Duration(t.GetIdleTimeoutMs()) * ms,
		TotalTimeout: time.Duration(t.GetTotalTimeoutMs()) * ms,
	}
	for _, part := range t.GetPartitions() {
		info.Partitions = append(info.Partitions, TransactionPart{
			TopicPartition{part.GetTopic(), part.GetPartition()}, part.GetEnded(),
			part.GetStagedRecords(), part.GetStagedBytes(), part.GetStagedOffsets(),
		})
	}
	return info
}
