package oncelog

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	maxMessage = 128 << 20
	// How long a topic that was created elsewhere may take to be known everywhere.
	unknownTopicGrace = 2 * time.Second
	// After so many failures in a row to reach the leader that one node names, another node is asked
	// for it: a node that is cut off from the others tells of a leader that is long gone.
	maxLeaderFailures = 4
	// A node that hangs must not hold up the answers of another.
	connectTimeout = 2 * time.Second
)

// backoff makes pauses that double, up to a limit, 20 % more or less by chance.
type backoff struct{ first, most time.Duration }

func (b backoff) delay(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	pause := b.most
	if doublings := min(failures-1, 30); b.first <= b.most>>doublings {
		pause = b.first << doublings
	}
	return time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64()))
}

// after is the same, and no less than a node asks for.
func (b backoff) after(err error, failures int) time.Duration {
	pause := b.delay(failures)
	if e := asError(err); e.Kind == ErrThrottled {
		return max(pause, e.RetryAfter)
	}
	return pause
}

// sleep waits, or returns why it was cut short.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cluster is the cluster as one thing to call: connections to its nodes, and calls that find
// a node that answers.
type cluster struct {
	config   ClientConfig
	leaders  *leaders
	backoff  backoff
	reached  *reachability
	founding founding

	mu        sync.Mutex
	conns     map[string]*grpc.ClientConn
	preferred string
	// Nodes that others are asked before, the one avoided last at the end.
	avoided []string
	// Topics of which the last node that was asked knew nothing: perhaps deleted.
	unknown map[string]bool
	closed  bool
}

func newCluster(config ClientConfig) *cluster {
	return &cluster{
		config:    config,
		leaders:   newLeaders(),
		reached:   newReachability(&config),
		backoff:   backoff{config.RetryBackoff, config.RetryBackoffMax},
		conns:     map[string]*grpc.ClientConn{},
		preferred: config.BootstrapServers[rand.IntN(len(config.BootstrapServers))],
		unknown:   map[string]bool{},
	}
}

func (c *cluster) conn(address string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fail(ErrClientClosed, "the client is closed")
	}
	if conn := c.conns[address]; conn != nil {
		return conn, nil
	}
	// A restarted node must be found again soon, not after two minutes. The name is looked up
	// at each attempt, for the address behind it may change.
	conn, err := grpc.NewClient("passthrough:///"+address, slices.Concat(c.config.Security.dialOptions(), c.founding.dialOptions(), []grpc.DialOption{
		grpc.WithUserAgent(c.config.ClientID),
		grpc.WithNoProxy(), // nodes are named one by one: no proxy of the environment stands between
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay:  max(100*ms, c.config.RetryBackoff),
				Multiplier: 2, Jitter: 0.2,
				MaxDelay: max(100*ms, c.config.RetryBackoffMax),
			},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(4 << 20), grpc.WithInitialConnWindowSize(8 << 20),
		grpc.WithWriteBufferSize(256 << 10), grpc.WithReadBufferSize(256 << 10),
	})...)
	if err != nil {
		return nil, fail(ErrInvalidRequest, "%s: %v", address, err)
	}
	c.conns[address] = conn
	return conn, nil
}

func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.conns {
		_ = conn.Close() // nothing is on its way any more
	}
}

// addresses returns all known nodes: the one that answered last, the others in random order, and
// avoided nodes at the end.
func (c *cluster) addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addressesLocked()
}

func (c *cluster) addressesLocked() []string {
	known := append(c.leaders.nodeAddresses(), c.config.BootstrapServers...)
	slices.Sort(known)
	known = slices.Compact(known)
	result := []string{c.preferred}
	for _, i := range rand.Perm(len(known)) {
		if known[i] != c.preferred && !slices.Contains(c.avoided, known[i]) {
			result = append(result, known[i])
		}
	}
	for _, address := range c.avoided {
		if address != c.preferred && slices.Contains(known, address) {
			result = append(result, address)
		}
	}
	return result
}

// avoid has the other nodes asked first, until they are avoided, too.
func (c *cluster) avoid(address string) {
	if address == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.avoided = slices.DeleteFunc(c.avoided, func(a string) bool { return a == address })
	c.avoided = append(c.avoided, address)
	if c.preferred == address {
		if all := c.addressesLocked(); len(all) > 1 {
			c.preferred = all[1]
		}
	}
}

// preferAnother: the node that was asked first knows too little; begin with another next time.
func (c *cluster) preferAnother() {
	c.mu.Lock()
	preferred := c.preferred
	c.mu.Unlock()
	c.avoid(preferred)
}

// leaderFailed: a node did not serve as the leader that it was said to be, so often in a row.
func (c *cluster) leaderFailed(address string, failures int) {
	c.avoid(address)
	if failures%maxLeaderFailures == 0 {
		c.preferAnother()
	}
}

// method is one call of a stub.
type method func(context.Context, *grpc.ClientConn) error

// callOptions say how long to try; 0: RequestTimeout.
type callOptions struct {
	total   time.Duration
	attempt time.Duration
	onRetry func(error)
	first   string // the node to begin with, if it is known; "": any
}

// callAt calls one node, once.
func (c *cluster) callAt(ctx context.Context, address string, limit time.Duration, m method) error {
	conn, err := c.conn(address)
	if err != nil {
		return err
	}
	attempt, cancel := context.WithTimeout(ctx, max(limit, 50*ms))
	defer cancel()
	if err = m(attempt, conn); err != nil {
		err = fromRPC(ctx, address, err)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && isSilence(err):
		c.reached.failed(err)
	default:
		c.reached.answered(address)
	}
	return err
}

// isSilence reports whether an error is no word of a node of this cluster: nobody answered.
func isSilence(err error) bool {
	e := asError(err)
	return e.Kind == ErrOtherCluster || !e.tells()
}

// call calls a method that any node answers, until it succeeds, fails for good, or time is up: the
// error is then the last one from a node, not that another attempt had no answer. It fails at once
// if no node of the client's own cluster answers, and one of another does.
func (c *cluster) call(ctx context.Context, options callOptions, m method) error {
	if options.total == 0 {
		options.total = c.config.RequestTimeout
	}
	if options.attempt == 0 {
		options.attempt = c.config.RequestTimeout
	}
	deadline := time.Now().Add(options.total)
	var tried attempts
	for failures := 1; ; failures++ {
		var last, other error
		addresses := c.addresses()
		if at := slices.Index(addresses, options.first); at > 0 && failures == 1 {
			addresses = slices.Insert(slices.Delete(addresses, at, at+1), 0, options.first)
		}
		for _, address := range addresses {
			err := c.callAt(ctx, address, min(options.attempt, time.Until(deadline)), m)
			if err == nil {
				c.mu.Lock()
				if address != options.first {
					c.preferred = address
				}
				c.mu.Unlock()
				return nil
			}
			if !isRetriable(err) || errors.Is(err, ErrUnknownTopicOrPartition) {
				return tried.final(err)
			}
			tried.failed(err)
			last = err
			if errors.Is(err, ErrOtherCluster) {
				other = err
			}
			if options.onRetry != nil {
				options.onRetry(err)
			}
			if !time.Now().Before(deadline) {
				return tried.err()
			}
		}
		if other != nil {
			return tried.withDoubt(asError(other))
		}
		pause := c.backoff.after(last, failures)
		if !time.Now().Add(pause).Before(deadline) {
			return tried.err()
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// ask makes one call, which any node answers, with a stub that newClient makes.
func ask[Client, Request, Answer any](
	ctx context.Context, c *cluster, newClient func(grpc.ClientConnInterface) Client,
	method func(Client, context.Context, Request, ...grpc.CallOption) (Answer, error), request Request,
) (answer Answer, err error) {
	err = c.call(ctx, callOptions{}, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = method(newClient(conn), ctx, request)
		return err
	})
	return answer, err
}

// callLeader calls a partition's leader, following it where it goes.
func (c *cluster) callLeader(ctx context.Context, tp TopicPartition, m method) error {
	deadline := time.Now().Add(c.config.RequestTimeout)
	if err := c.requireTopic(ctx, tp.Topic, c.config.RequestTimeout); err != nil {
		return err
	}
	if _, ok := c.leaders.leader(tp); !ok {
		return noPartition(tp)
	}
	var tried attempts
	for failures := 1; ; failures++ {
		address := c.leaders.address(tp)
		var err error = fail(ErrNotReady, "%s has no leader", tp)
		if address != "" {
			err = c.callAt(ctx, address, time.Until(deadline), m)
		}
		if err == nil || !isRetriable(err) {
			return tried.final(err)
		}
		tried.failed(err)
		hint := asError(err)
		hinted := hint.Kind == ErrNotLeader && hint.LeaderAddress != ""
		if hinted {
			c.leaders.hint(tp, hint.LeaderID, hint.LeaderAddress)
		} else {
			c.leaders.suspect(tp)
		}
		c.leaderFailed(address, failures)
		pause := c.backoff.after(err, failures)
		if hinted && failures == 1 {
			pause = 0
		}
		if !time.Now().Add(pause).Before(deadline) {
			return tried.err()
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		if failures > 1 || !hinted {
			err := c.requireTopic(ctx, tp.Topic, max(50*ms, time.Until(deadline)))
			if err != nil && isRetriable(err) && !errors.Is(err, ErrUnknownTopicOrPartition) {
				tried.failed(err)
				return tried.err()
			}
			if err != nil {
				return tried.final(err)
			}
		}
	}
}

func noPartition(tp TopicPartition) error {
	e := fail(ErrUnknownTopicOrPartition, "topic %q has no partition %d", tp.Topic, tp.Partition)
	e.Topic, e.Partition = tp.Topic, tp.Partition
	return e
}

// refresh asks for topics' leaders. A topic that does not exist is left out of the answer.
func (c *cluster) refresh(ctx context.Context, topics []string) error {
	return c.refreshWithin(ctx, topics, c.config.RequestTimeout)
}

func (c *cluster) refreshWithin(ctx context.Context, topics []string, total time.Duration) error {
	err := c.describe(ctx, topics, total)
	if !errors.Is(err, ErrUnknownTopicOrPartition) {
		if err == nil {
			c.setUnknown(topics, false)
		}
		return err
	}
	// The node may be behind, or cut off from the others: they are asked next.
	c.preferAnother()
	if len(topics) == 1 {
		c.setUnknown(topics, true)
		return nil
	}
	for _, topic := range topics {
		if err := c.refreshWithin(ctx, []string{topic}, total); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) setUnknown(topics []string, unknown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range topics {
		if unknown {
			c.unknown[topic] = true
		} else {
			delete(c.unknown, topic)
		}
	}
}

func (c *cluster) describe(ctx context.Context, topics []string, total time.Duration) error {
	var answer *pb.DescribeTopicsResponse
	request := &pb.DescribeTopicsRequest{Names: topics}
	err := c.call(ctx, callOptions{total: total, attempt: min(time.Second, total)},
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			answer, err = pb.NewClusterServiceClient(conn).DescribeTopics(ctx, request)
			return err
		})
	if err == nil {
		c.leaders.update(answer)
	}
	return err
}

// refreshAt takes over this node's view of a topic.
func (c *cluster) refreshAt(ctx context.Context, address, topic string) error {
	var answer *pb.DescribeTopicsResponse
	request := &pb.DescribeTopicsRequest{Names: []string{topic}}
	err := c.callAt(ctx, address, min(time.Second, c.config.RequestTimeout),
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			answer, err = pb.NewClusterServiceClient(conn).DescribeTopics(ctx, request)
			return err
		})
	if err == nil {
		c.leaders.update(answer)
	}
	return err
}

func (c *cluster) knows(topic string) bool {
	c.mu.Lock()
	unknown := c.unknown[topic]
	c.mu.Unlock()
	_, _, _, ok := c.leaders.topic(topic)
	return ok && !unknown
}

// requireTopic waits until the topic's metadata is known. A topic that does not exist is
// asked for again for a short while: it may have been created a moment ago at another node.
func (c *cluster) requireTopic(ctx context.Context, topic string, limit time.Duration) error {
	start := time.Now()
	var tried attempts
	for failures := 1; ; failures++ {
		left := max(50*ms, limit-time.Since(start))
		err := c.refreshWithin(ctx, []string{topic}, min(left, c.config.RequestTimeout))
		if err != nil {
			if !isRetriable(err) || ctx.Err() != nil {
				return err
			}
			tried.failed(err)
			if time.Since(start) >= limit {
				return tried.late("no metadata of topic %q within %s", topic, limit)
			}
		}
		if c.knows(topic) {
			return nil
		}
		if err == nil && time.Since(start) >= min(limit, unknownTopicGrace) {
			e := fail(ErrUnknownTopicOrPartition, "topic %q does not exist: oncelog topic create %s", topic, topic)
			e.Topic, e.Partition = topic, -1
			return e
		}
		pause := min(c.backoff.delay(min(failures, 4)), limit-time.Since(start))
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}
