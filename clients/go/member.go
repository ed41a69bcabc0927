package oncelog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// change is work for the user's goroutine.
type change struct {
	connection int64
	step       step
	deadline   time.Time // of the revoked partitions
	ended      bool      // the membership: the user has to come back before another begins
}

// groupMember is a consumer's place in its group, over all connections and memberships, until
// leave: a stream that brings assignments, and calls that answer.
//
//	coordinator --JoinGroup stream--> groupMember --> membership --change--> fetchBuffer
//	coordinator <--GroupHeartbeat---- groupMember <-- rebalance, on the user's goroutine
//
// Changes are put before the user's goroutine as an interruption; nothing of the user's
// changes without it. All but the hello goes by calls, not by the stream: an answer shows that the
// coordinator still has this member, and while none comes for a session's length nothing is given
// out.
type groupMember struct {
	config    *ConsumerConfig
	cluster   *cluster
	groups    *groups
	buffer    *fetchBuffer
	group, id string

	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	joined chan struct{} // closed when the group has answered, or will not
	wake   chan struct{}

	mu        sync.Mutex
	machine   membership
	topics    []string
	claim     int64
	wasMember bool
	hasJoined bool
	isIn      bool   // an assignment came over the present connection
	address   string // of the coordinator, while connected
	err       *Error // for good
	whyNot    error  // it has not joined yet
	cameBack  chan struct{}
	isBack    bool
	ping      time.Duration
	session   time.Duration
	outbox    []*pb.JoinGroupRequest // nil: hello again
}

// errHelloAgain ends a connection that is to be followed by another at once.
var errHelloAgain = errors.New("hello again")

func startMember(config *ConsumerConfig, c *cluster, g *groups, buffer *fetchBuffer, topics []string) *groupMember {
	ctx, cancel := context.WithCancel(context.Background())
	back := make(chan struct{})
	close(back)
	m := &groupMember{
		config: config, cluster: c, groups: g, buffer: buffer, group: config.GroupID, id: uuid(),
		ctx: ctx, cancel: cancel, ended: make(chan struct{}), joined: make(chan struct{}),
		wake: make(chan struct{}, 1), machine: newMembership(), topics: topics,
		cameBack: back, isBack: true, session: config.SessionTimeout,
	}
	go m.run()
	return m
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// --- the user's questions ------------------------------------------------------------

// awaitJoined returns when the group has answered, or the error in the way.
func (m *groupMember) awaitJoined(ctx context.Context) error {
	timer := time.NewTimer(m.config.RequestTimeout)
	defer timer.Stop()
	select {
	case <-m.joined:
		return m.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return fail(ErrRequestTimeout, "group %s not joined within %s: %v",
		m.group, m.config.RequestTimeout, m.whyNot)
}

// failure returns the error that has ended the membership for good.
func (m *groupMember) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		return nil
	}
	return m.err
}

// subscribe: other topics from now on.
func (m *groupMember) subscribe(topics []string) {
	m.mu.Lock()
	m.topics = topics
	m.mu.Unlock()
	m.send(nil)
}

// askedBack returns those of the revoked that still have to be given back on this connection.
func (m *groupMember) askedBack(c change) (asked []TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.connection != m.machine.connection {
		return nil // asked again on the new one, if at all
	}
	for _, tp := range c.step.revoked {
		if m.machine.revoking[tp] {
			asked = append(asked, tp)
		}
	}
	return asked
}

// release gives back finished and committed partitions; it returns the partitions that are kept all
// the same.
func (m *groupMember) release(c change, tps []TopicPartition) (kept []TopicPartition) {
	m.answer(c.connection, tps)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tp := range tps {
		if _, owned := m.machine.owned[tp]; owned {
			kept = append(kept, tp)
		}
	}
	return kept
}

// stillOwned returns those that are owned under the same number.
func (m *groupMember) stillOwned(numbers map[TopicPartition]int64) map[TopicPartition]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	still := map[TopicPartition]int64{}
	for tp, number := range numbers {
		if m.machine.owned[tp] == number {
			still[tp] = number
		}
	}
	return still
}

// owned returns terms for a look at where to go on.
func (m *groupMember) owned() *commitTerms {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &commitTerms{m.id, 0, maps.Clone(m.machine.owned)}
}

// comesBack: the user knows that the membership has ended; another one may begin.
func (m *groupMember) comesBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isBack {
		m.isBack = true
		close(m.cameBack)
	}
}

// commitTerms returns the member's part of the next commit, for records that were read under
// ownerships of these numbers.
func (m *groupMember) commitTerms(offsets map[TopicPartition]OffsetCommit, numbers map[TopicPartition]int64) (*commitTerms, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for tp := range offsets {
		number, given := numbers[tp]
		owned, ok := m.machine.owned[tp]
		if !ok || !given || owned != number {
			return nil, fail(ErrFencedMember,
				"%s: offset not committed: it is not part of this consumer's assignment", tp)
		}
	}
	return &commitTerms{m.id, m.machine.nextCommit(), numbers}, nil
}

// leave ends the membership; that of a named instance ends with its session only.
func (m *groupMember) leave() {
	m.mu.Lock()
	address := m.address
	m.mu.Unlock()
	if address != "" && m.config.GroupInstanceID == "" {
		// Without an answer the session will end.
		_, _ = m.say(m.ctx, &pb.JoinGroupRequest{
			Message: &pb.JoinGroupRequest_Leave{Leave: &pb.MemberLeave{}},
		})
	}
	m.cancel()
	<-m.ended
}

// --- connections ---------------------------------------------------------------------

func (m *groupMember) run() {
	defer close(m.ended)
	failures := 0
	for m.failure() == nil {
		m.mu.Lock()
		back := m.cameBack
		m.mu.Unlock()
		select {
		case <-back: // one that is stuck would only be given partitions that nobody reads then
		case <-m.ctx.Done():
			return
		}
		address := m.groups.coordinator(m.group)
		err := m.connection(m.ctx, address)
		m.mu.Lock()
		wasIn := m.isIn
		m.address, m.isIn = "", false
		if err != nil && err != errHelloAgain {
			m.whyNot = err
		}
		m.mu.Unlock()
		switch {
		case m.ctx.Err() != nil:
			return
		case err == nil || err == errHelloAgain:
			failures = 0
			continue
		case !isRetriable(err):
			m.fail(asError(err))
			return
		case wasIn:
			failures = 1
		default:
			failures++
		}
		if sleep(m.ctx, m.groups.failed(m.group, address, err, failures)) != nil {
			return
		}
	}
}

// connection lasts until the coordinator, or this member, wants another one.
func (m *groupMember) connection(ctx context.Context, address string) error {
	m.mu.Lock()
	number := m.machine.connect()
	hello := m.hello(number)
	m.outbox = nil
	m.mu.Unlock()
	conn, err := m.cluster.conn(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	overdue := time.AfterFunc(groupAttempt, func() {
		cancel(fail(ErrUnavailable, "%s: no answer to a hello", address))
	})
	defer overdue.Stop()
	sent := time.Now()
	stream, err := pb.NewGroupServiceClient(conn).JoinGroup(ctx)
	if err != nil {
		return fromRPC(ctx, address, err)
	}
	_ = stream.Send(&pb.JoinGroupRequest{ // errors are told by the records that are read
		Message: &pb.JoinGroupRequest_Hello{Hello: hello},
	})
	answers, ended := make(chan *pb.JoinGroupResponse), make(chan error, 2)
	go func() { ended <- m.listen(ctx, address, stream, answers) }()
	for beats := false; ; {
		select {
		case answer := <-answers:
			if !beats {
				beats = overdue.Stop()
				m.groups.answered(m.group, address)
				m.connected(address, answer, sent)
				go func() { ended <- m.beat(ctx, number, answers) }()
			}
			if goesOn, err := m.takeOver(number, answer); !goesOn {
				return err
			}
		case err := <-ended:
			return err
		}
	}
}

func (m *groupMember) listen(ctx context.Context, address string, stream pb.GroupService_JoinGroupClient, answers chan<- *pb.JoinGroupResponse) error {
	for {
		answer, err := stream.Recv()
		if err == io.EOF {
			return fail(ErrNotLeader, "the coordinator has ended the stream")
		}
		if err != nil {
			return fromRPC(ctx, address, err)
		}
		select {
		case answers <- answer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (m *groupMember) connected(address string, answer *pb.JoinGroupResponse, sent time.Time) {
	m.mu.Lock()
	m.address = address
	m.ping = time.Duration(max(answer.GetPingIntervalMs(), 100)) * ms
	m.session = 3 * m.ping
	m.mu.Unlock()
	m.confirmed(sent)
}

// confirmed: the coordinator had this member when it answered the messages of that time.
func (m *groupMember) confirmed(sent time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.buffer.holdFrom(sent.Add(m.session))
}

func (m *groupMember) hello(connection int64) *pb.MemberHello {
	host, _ := os.Hostname() // for people
	client := []rune(m.config.ClientID + "@" + host)
	return &pb.MemberHello{
		Group: m.group, MemberId: m.id, Connection: connection, Topics: m.topics,
		InstanceId: m.config.GroupInstanceID, Epoch: m.machine.epoch, Claim: m.claim,
		Owned: onWire(m.machine.held()), Assignor: string(m.config.Assignor),
		SessionTimeoutMs:    int32(m.config.SessionTimeout / ms),
		RevokeTimeoutMs:     int32(m.config.RevokeTimeout / ms),
		ProcessingTimeoutMs: int32(m.config.ProcessingTimeout / ms),
		ClientHost:          string(client[:min(len(client), 255)]),
	}
}

// beat sends the next message, or a sign of life; it returns the error that ends the connection.
func (m *groupMember) beat(ctx context.Context, connection int64, answers chan<- *pb.JoinGroupResponse) error {
	m.mu.Lock()
	timer := time.NewTimer(m.ping)
	m.mu.Unlock()
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		request, more := m.nextRequest()
		if request == nil {
			return errHelloAgain
		}
		sent := time.Now()
		answer, err := m.say(ctx, request)
		switch {
		case err != nil:
			return err
		case answer.GetConnection() != connection:
			return fail(ErrNotLeader, "the coordinator does not know this connection")
		case answer.GetFenced() != nil:
			select {
			case answers <- answer:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		m.confirmed(sent)
		if more {
			m.rouse()
		}
		m.mu.Lock()
		timer.Reset(m.ping)
		m.mu.Unlock()
	}
}

// nextRequest returns the next message, nil for a new hello, and whether there is more.
func (m *groupMember) nextRequest() (request *pb.JoinGroupRequest, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.outbox) == 0 {
		return &pb.JoinGroupRequest{Message: &pb.JoinGroupRequest_Ping{
			Ping: &pb.MemberPing{IdleMs: m.buffer.idle().Milliseconds()},
		}}, false
	}
	request, m.outbox = m.outbox[0], m.outbox[1:]
	return request, len(m.outbox) > 0
}

func (m *groupMember) say(ctx context.Context, request *pb.JoinGroupRequest) (answer *pb.JoinGroupResponse, err error) {
	m.mu.Lock()
	address, limit := m.address, min(groupAttempt, max(m.ping, 500*ms))
	call := &pb.GroupHeartbeatRequest{
		Group: m.group, MemberId: m.id, Connection: m.machine.connection, Request: request,
	}
	m.mu.Unlock()
	err = m.cluster.callAt(ctx, address, limit, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = pb.NewGroupServiceClient(conn).GroupHeartbeat(ctx, call)
		return err
	})
	return answer, err
}

// answer tells which partitions are still held, without these.
func (m *groupMember) answer(connection int64, tps []TopicPartition) {
	m.mu.Lock()
	ok := m.machine.released(connection, tps)
	owned := &pb.MemberOwned{Epoch: m.machine.epoch, Partitions: onWire(m.machine.held())}
	m.mu.Unlock()
	if ok {
		m.send(&pb.JoinGroupRequest{Message: &pb.JoinGroupRequest_Owned{Owned: owned}})
	}
}

func (m *groupMember) send(request *pb.JoinGroupRequest) {
	m.mu.Lock()
	m.outbox = append(m.outbox, request)
	m.mu.Unlock()
	m.rouse()
}

func (m *groupMember) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// --- messages that come ----------------------------------------------------------------

// takeOver takes note of a message; false: another connection is needed, after this error.
func (m *groupMember) takeOver(connection int64, answer *pb.JoinGroupResponse) (goesOn bool, err error) {
	switch {
	case answer.GetAssignment() != nil:
		m.assigned(connection, answer.GetAssignment())
	case answer.GetFenced() != nil:
		return false, m.fenced(answer.GetFenced().GetReason())
	case answer.GetInstanceHeld() != nil:
		m.mu.Lock()
		m.claim = answer.GetInstanceHeld().GetClaim()
		was := m.wasMember
		m.mu.Unlock()
		if was {
			m.fail(m.taken())
		}
		return false, nil
	}
	return true, nil
}

func (m *groupMember) assigned(connection int64, answer *pb.GroupAssignment) {
	numbers := map[TopicPartition]int64{}
	for _, p := range answer.GetPartitions() {
		numbers[TopicPartition{p.GetTopic(), p.GetPartition()}] = p.GetOwnership()
	}
	var revoke []TopicPartition
	for _, p := range answer.GetRevoke() {
		revoke = append(revoke, TopicPartition{p.GetTopic(), p.GetPartition()})
	}
	m.mu.Lock()
	s := m.machine.assignment(connection, answer.GetEpoch(), numbers, revoke)
	m.claim, m.wasMember, m.isIn = 0, true, true
	unheard := slices.ContainsFunc(revoke, func(tp TopicPartition) bool {
		_, owned := m.machine.owned[tp]
		return !owned
	})
	m.mu.Unlock()
	if !s.isEmpty() {
		m.buffer.interrupt(change{connection, s, time.Now().Add(m.config.RevokeTimeout), false})
	}
	if unheard {
		// Given and asked back before this member heard of it: only the newest assignment is
		// sent. There is nothing to finish.
		m.answer(connection, nil)
	}
	m.tellJoined()
}

func (m *groupMember) tellJoined() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.hasJoined {
		m.hasJoined = true
		close(m.joined)
	}
}

// fenced returns an error of ErrThrottled where the group is full.
func (m *groupMember) fenced(reason string) error {
	switch reason {
	case "INSTANCE_TAKEN":
		m.fail(m.taken())
	case "GROUP_FULL":
		return fail(ErrThrottled, "group %s has as many members as it may", m.group)
	default:
		m.mu.Lock()
		if m.isBack {
			m.isBack, m.cameBack = false, make(chan struct{})
		}
		m.mu.Unlock()
		m.loseAll()
	}
	return nil
}

func (m *groupMember) loseAll() {
	m.mu.Lock()
	lost := m.machine.fenced()
	m.mu.Unlock()
	m.buffer.interrupt(change{step: step{lost: lost}, ended: true})
}

func (m *groupMember) taken() *Error {
	return fail(ErrFencedMember, "another process goes by GroupInstanceID %q", m.config.GroupInstanceID)
}

func (m *groupMember) fail(err *Error) {
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
	m.loseAll()
	m.tellJoined()
}
