package oncelog

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// identities knows the producer's identity: leases of producer ids, names, and where a partition
// goes on. All partitions share one identity; one that was reset gets its own, so the others
// are left alone.
type identities struct {
	config  *ProducerConfig
	cluster *cluster
	current atomic.Pointer[identity]

	// Held by the leasing goroutine.
	leasing turn
	serial  int
	// A lease under the name that has had no answer yet. It is repeated, not made anew: if it took
	// effect, another one would be refused as its successor.
	unanswered *leaseAttempt
	// Why the call in progress has no answer yet; nil: there is none, or its first attempt.
	hindered atomic.Pointer[Error]
	// The newest epoch that this producer has leased under its name.
	newest *identity
}

type leaseAttempt struct {
	nonce uint64
	start time.Time
}

func newIdentities(config *ProducerConfig, c *cluster) *identities {
	return &identities{config: config, cluster: c, leasing: newTurn()}
}

func (i *identities) attempt() time.Duration { return min(2*time.Second, i.config.RequestTimeout) }

// acquire returns an identity that the partition has not used, and its last sequence there. It
// goes on trying while errors are retriable; records have their own deadline.
func (i *identities) acquire(ctx context.Context, tp TopicPartition, used *identity) (*identity, int64, error) {
	id, err := i.unused(ctx, used)
	if err != nil {
		return nil, 0, err
	}
	if i.config.ResumeFrom != nil {
		return id, i.config.ResumeFrom.NextSequences[tp] - 1, nil
	}
	if i.config.ProducerName == "" {
		return id, -1, nil
	}
	last, err := i.open(ctx, tp, id)
	return id, last, err
}

func (i *identities) unused(ctx context.Context, used *identity) (*identity, error) {
	if err := i.leasing.hold(ctx); err != nil {
		return nil, err
	}
	defer i.leasing.letGo()
	id := i.current.Load()
	if id == nil || !time.Now().Before(id.expireAt) {
		id, err := i.lease(ctx)
		if err == nil {
			i.current.Store(id)
		}
		return id, err
	}
	if id.serial <= used.serial {
		return i.lease(ctx)
	}
	return id, nil
}

// forTransaction returns an identity that lasts for a transaction, if leases last so long.
//
// It is not renewed while one is open: that would raise the name's epoch, and fence it. usedUp
// says whether one will not do.
func (i *identities) forTransaction(ctx context.Context, total time.Duration, usedUp func(*identity) bool) (*identity, error) {
	if err := i.leasing.hold(ctx); err != nil {
		return nil, err
	}
	defer i.leasing.letGo()
	id := i.newest
	if id == nil || !id.lasts(time.Now(), total) || usedUp(id) {
		var err error
		if id, err = i.lease(ctx); err != nil {
			return nil, err
		}
	}
	i.current.Store(id)
	return id, nil
}

// lasts reports whether it need not be renewed for so long, or for half of its lifetime.
func (id *identity) lasts(now time.Time, total time.Duration) bool {
	if id.renewAt.Equal(never) {
		return true
	}
	// The last tenth of a lease lies between its renewal and its end.
	lifetime := id.expireAt.Sub(id.renewAt) * 10
	return id.renewAt.Sub(now) >= min(total, lifetime/2)
}

// renewIfDue leases the next id at 90 % of the lifetime; partitions change over when drained.
// It returns without a lease while somebody else leases, or isTransactional says so.
func (i *identities) renewIfDue(ctx context.Context, now time.Time, isTransactional func() bool) error {
	current := i.current.Load()
	if current == nil || now.Before(current.renewAt) {
		return nil
	}
	select {
	case i.leasing <- struct{}{}:
	default:
		return nil
	}
	defer i.leasing.letGo()
	// A transaction that begins is paused first, and then waits for the leasing goroutine.
	if current = i.current.Load(); isTransactional() || now.Before(current.renewAt) {
		return nil
	}
	bounded, cancel := context.WithTimeoutCause(ctx, time.Second,
		fail(ErrRequestTimeout, "the lease was not renewed in time"))
	defer cancel()
	id, err := i.lease(bounded)
	if err == nil {
		i.current.Store(id)
	} else if isRetriable(err) {
		return nil // it is tried again
	}
	return err
}

func (i *identities) lease(ctx context.Context) (*identity, error) {
	i.serial++
	if initial := i.config.ResumeFrom; initial != nil {
		return &identity{
			initial.ProducerID, initial.Epoch, i.serial, never, never, initial.LeaseToken,
			i.config.Security.secured(),
		}, nil
	}
	// Counted from before the first call, so that it ends too early rather than too late.
	start := time.Now()
	request := &pb.LeaseProducerRequest{ProducerName: i.config.ProducerName}
	if request.ProducerName != "" {
		// One number for all attempts of this lease: the epoch rises by one at most.
		if i.unanswered == nil {
			i.unanswered = &leaseAttempt{nonce(), start}
		}
		request.Nonce, start = i.unanswered.nonce, i.unanswered.start
		if i.newest != nil {
			// A name that another instance has leased since must not be taken back.
			request.HeldProducerId, request.HeldEpoch = i.newest.producerID, i.newest.epoch
		}
	}
	var answer *pb.LeaseProducerResponse
	defer i.hindered.Store(nil)
	var tried attempts
	for failures := 1; ; failures++ {
		err := i.cluster.call(ctx, callOptions{attempt: i.attempt(), onRetry: func(err error) { i.note(&tried, err) }},
			func(ctx context.Context, conn *grpc.ClientConn) (err error) {
				answer, err = pb.NewProducerServiceClient(conn).LeaseProducer(ctx, request)
				return err
			})
		if err == nil {
			break
		}
		if !isRetriable(err) || ctx.Err() != nil {
			return nil, err
		}
		if err := sleep(ctx, i.cluster.backoff.delay(failures)); err != nil {
			return nil, err
		}
	}
	id := &identity{
		answer.GetProducerId(), answer.GetEpoch(), i.serial, never, never, answer.GetLeaseToken(),
		i.config.Security.secured(),
	}
	if lifetime := time.Duration(answer.GetLifetimeMs()) * ms; lifetime > 0 {
		id.renewAt, id.expireAt = start.Add(lifetime/10*9), start.Add(lifetime)
	}
	if i.config.ProducerName != "" {
		i.newest, i.unanswered = id, nil
	}
	return id, nil
}

func (i *identities) note(tried *attempts, err error) {
	tried.failed(err)
	i.hindered.Store(tried.telling)
}

// nonce is one number for all attempts of a call: repeated, it raises an epoch once.
func nonce() uint64 { return rand.Uint64() | 1 }

// open fences the predecessor in this partition and returns the last stored sequence.
func (i *identities) open(ctx context.Context, tp TopicPartition, id *identity) (int64, error) {
	request := &pb.OpenProducerRequest{
		ProducerId: id.producerID, Epoch: id.epoch, LeaseToken: id.leaseToken,
		Partitions: []*pb.TopicPartition{{Topic: tp.Topic, Partition: tp.Partition}},
	}
	defer i.hindered.Store(nil)
	var tried attempts
	for failures := 1; ; failures++ {
		address := i.cluster.leaders.address(tp)
		opened, err := i.openAt(ctx, address, request)
		if err != nil && !isRetriable(err) {
			return 0, err
		}
		if err == nil {
			switch opened.GetError() {
			case "":
				return opened.GetLastSequence(), nil
			case "FENCED":
				e := fail(ErrFenced, "%s: ProducerName %q was taken over, epoch %d",
					tp, i.config.ProducerName, opened.GetCurrentEpoch())
				e.CurrentEpoch = opened.GetCurrentEpoch()
				return 0, e
			case "UNKNOWN_PRODUCER", "PRODUCER_EXPIRED":
				return 0, fail(ErrUnknownProducer, "%s: %s: %s", tp, opened.GetError(), opened.GetMessage())
			}
		}
		if err == nil {
			err = fail(ErrNotReady, "%s: %s: %s", tp, opened.GetError(), opened.GetMessage())
		}
		i.note(&tried, err)
		i.cluster.leaderFailed(address, failures)
		if err := sleep(ctx, i.cluster.backoff.delay(failures)); err != nil {
			return 0, err
		}
		if opened.GetError() == "NOT_LEADER" && failures == 1 {
			i.cluster.leaders.hint(tp, opened.GetLeaderId(), opened.GetLeaderAddress())
			continue
		}
		i.cluster.leaders.suspect(tp)
		if err := i.cluster.refresh(ctx, []string{tp.Topic}); err != nil && !isRetriable(err) {
			return 0, err
		}
		if _, there := i.cluster.leaders.leader(tp); !there {
			return 0, gone(tp)
		}
	}
}

func (i *identities) openAt(ctx context.Context, address string, request *pb.OpenProducerRequest) (*pb.OpenedPartition, error) {
	if address == "" {
		return nil, fail(ErrNotReady, "no leader is known")
	}
	var answer *pb.OpenProducerResponse
	err := i.cluster.callAt(ctx, address, i.attempt(),
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			answer, err = pb.NewProducerServiceClient(conn).OpenProducer(ctx, request)
			return err
		})
	if err != nil {
		return nil, err
	}
	if len(answer.GetPartitions()) != 1 {
		return nil, fail(ErrInternal, "the node gave %d answers to 1 question", len(answer.GetPartitions()))
	}
	return answer.GetPartitions()[0], nil
}

// lastStored returns the producer's last sequence in a partition, from its leader; -1: none.
func (i *identities) lastStored(ctx context.Context, tp TopicPartition, id *identity) (int64, error) {
	request := &pb.DescribeProducersRequest{
		Topic: tp.Topic, Partition: tp.Partition, ProducerId: id.producerID, Limit: 1,
	}
	var answer *pb.DescribeProducersResponse
	err := i.cluster.callLeader(ctx, tp, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = pb.NewProducerServiceClient(conn).DescribeProducers(ctx, request)
		return err
	})
	if err != nil || len(answer.GetProducers()) == 0 {
		return -1, err
	}
	return answer.GetProducers()[0].GetLastSequence(), nil
}
