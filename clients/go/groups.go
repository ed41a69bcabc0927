package oncelog

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	listPage = 1000
	// A node that hangs must not hold up a question that another one answers.
	groupAttempt = 2 * time.Second
)

// commitTerms is the member's part of a commit, or of a look at the offset to go on from.
type commitTerms struct {
	memberID   string
	number     int64
	ownerships map[TopicPartition]int64
}

// groups finds the node that keeps a group's offsets, and asks it.
type groups struct {
	cluster *cluster

	mu           sync.Mutex
	coordinators map[string]string
}

func newGroups(c *cluster) *groups {
	return &groups{cluster: c, coordinators: map[string]string{}}
}

// coordinator is the node to ask: the one that is known to keep the group, or one after the other.
func (g *groups) coordinator(group string) string {
	g.mu.Lock()
	known := g.coordinators[group]
	g.mu.Unlock()
	if known == "" {
		return g.cluster.addresses()[0]
	}
	return known
}

func (g *groups) answered(group, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.coordinators[group] = address
}

// failed: it is another node, perhaps; how long to wait until one is to be asked again.
func (g *groups) failed(group, address string, err error, failures int) time.Duration {
	hint := asError(err).LeaderAddress
	if hint == address {
		hint = ""
	}
	g.answered(group, hint)
	if hint == "" {
		g.cluster.avoid(address)
	} else if failures == 1 {
		return 0 // a hint needs no pause the first time; then somebody must be wrong
	}
	return g.cluster.backoff.after(err, failures)
}

// call asks the group's coordinator, wherever it is now.
func (g *groups) call(ctx context.Context, group string, m func(context.Context, pb.GroupServiceClient) error) error {
	return g.callNoting(ctx, group, &attempts{}, m)
}

// callNoting is the same, with the failed attempts for the caller.
func (g *groups) callNoting(ctx context.Context, group string, tried *attempts, m func(context.Context, pb.GroupServiceClient) error) error {
	deadline := time.Now().Add(g.cluster.config.RequestTimeout)
	for failures := 1; ; failures++ {
		address := g.coordinator(group)
		err := g.cluster.callAt(ctx, address, min(time.Until(deadline), groupAttempt),
			func(ctx context.Context, conn *grpc.ClientConn) error {
				return m(ctx, pb.NewGroupServiceClient(conn))
			})
		if err == nil {
			g.answered(group, address)
			return nil
		}
		if !isRetriable(err) {
			return tried.final(err)
		}
		tried.failed(err)
		pause := g.failed(group, address, err, failures)
		if !time.Now().Add(pause).Before(deadline) {
			return tried.err()
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// commits is the form on the wire; terms are of a member of the group.
func commits(offsets map[TopicPartition]OffsetCommit, terms *commitTerms) (all []*pb.OffsetCommit) {
	tps := slices.Collect(maps.Keys(offsets))
	sortPartitions(tps)
	for _, tp := range tps {
		commit := offsets[tp]
		one := &pb.OffsetCommit{
			Topic: tp.Topic, Partition: tp.Partition, Offset: commit.Offset, Metadata: commit.Metadata,
			ProducerId: commit.ProducerID, Epoch: commit.Epoch, Sequence: commit.Sequence,
		}
		if terms != nil {
			one.Ownership = terms.ownerships[tp]
		}
		all = append(all, one)
	}
	return all
}

// stage stores offsets with a transaction, all of them or none; a repeat has the same number.
func (g *groups) stage(ctx context.Context, t *transaction, group string, offsets map[TopicPartition]OffsetCommit, number int64, terms *commitTerms) error {
	request := &pb.StageOffsetsRequest{
		TransactionId: t.id, ProducerId: t.producerID, Epoch: t.epoch, Group: group,
		Number: number, Offsets: commits(offsets, terms),
	}
	if terms != nil {
		request.MemberId = terms.memberID
	}
	var answer *pb.StageOffsetsResponse
	err := g.call(ctx, group, func(ctx context.Context, stub pb.GroupServiceClient) (err error) {
		answer, err = stub.StageOffsets(ctx, request)
		return err
	})
	if err != nil || answer.GetError() == "" {
		return err
	}
	text := answer.GetMessage()
	if text == "" {
		text = answer.GetError()
	}
	k := travelling(answer.GetError())
	if answer.GetError() == "TRANSACTION_CONFLICT" {
		k = ErrNotReady // another one has to end first
	} else if k == nil {
		k = ErrInternal
	}
	return fail(k, "group %s: offsets not staged: %s", group, text)
}

func (g *groups) commit(ctx context.Context, group string, offsets map[TopicPartition]OffsetCommit, terms *commitTerms) error {
	request := &pb.CommitOffsetsRequest{Group: group, Offsets: commits(offsets, terms)}
	if terms != nil {
		request.MemberId, request.CommitNumber = terms.memberID, terms.number
	}
	var answer *pb.CommitOffsetsResponse
	err := g.call(ctx, group, func(ctx context.Context, stub pb.GroupServiceClient) (err error) {
		answer, err = stub.CommitOffsets(ctx, request)
		return err
	})
	if err != nil {
		return err
	}
	for _, result := range answer.GetResults() {
		if result.GetError() != "" {
			return refusedCommit(result)
		}
	}
	return nil
}

func refusedCommit(result *pb.OffsetCommitResult) error {
	text := result.GetMessage()
	if text == "" {
		text = result.GetError()
	}
	k := travelling(result.GetError())
	if k == nil {
		k = ErrInternal
	}
	e := fail(k, "%s-%d: offset not committed: %s", result.GetTopic(), result.GetPartition(), text)
	e.Topic, e.Partition = result.GetTopic(), result.GetPartition()
	e.CurrentEpoch, e.LastSequence = result.GetCurrentEpoch(), result.GetLastSequence()
	return e
}

func committedOffset(o *pb.CommittedOffset) (TopicPartition, CommittedOffset) {
	return TopicPartition{o.GetTopic(), o.GetPartition()}, CommittedOffset{
		OffsetCommit{o.GetOffset(), o.GetMetadata(), o.GetProducerId(), o.GetEpoch(), o.GetSequence()},
		o.GetCommitMs(),
	}
}

// committed returns the committed offsets of these partitions. terms are of a member of the group.
// A caller that only looks ends no transaction that has staged offsets there.
func (g *groups) committed(ctx context.Context, group string, tps []TopicPartition, terms *commitTerms, looks bool) (map[TopicPartition]CommittedOffset, error) {
	request := &pb.FetchOffsetsRequest{
		Group: group, Partitions: onWire(tps), IgnoreTransactions: looks,
	}
	if terms != nil {
		request.MemberId = terms.memberID
		for _, tp := range tps {
			request.Ownerships = append(request.Ownerships, terms.ownerships[tp])
		}
	}
	var answer *pb.FetchOffsetsResponse
	err := g.call(ctx, group, func(ctx context.Context, stub pb.GroupServiceClient) (err error) {
		answer, err = stub.FetchOffsets(ctx, request)
		return err
	})
	found := map[TopicPartition]CommittedOffset{}
	for _, offset := range answer.GetOffsets() {
		if offset.GetOffset() >= 0 {
			tp, known := committedOffset(offset)
			found[tp] = known
		}
	}
	return found, err
}

func (g *groups) describe(ctx context.Context, group string) (GroupDescription, error) {
	var answer *pb.DescribeGroupResponse
	err := g.call(ctx, group, func(ctx context.Context, stub pb.GroupServiceClient) (err error) {
		answer, err = stub.DescribeGroup(ctx, &pb.DescribeGroupRequest{Group: group})
		return err
	})
	found := GroupDescription{
		Group: group, Exists: answer.GetExists(), LastCommitMs: answer.GetLastCommitMs(),
		CoordinatorID: answer.GetCoordinatorId(), Offsets: map[TopicPartition]CommittedOffset{},
		Epoch: answer.GetEpoch(), Assignor: Assignor(answer.GetAssignor()),
	}
	for _, member := range answer.GetMembers() {
		found.Members = append(found.Members, describedMember(member))
	}
	for _, offset := range answer.GetOffsets() {
		if offset.GetOffset() >= 0 {
			tp, known := committedOffset(offset)
			found.Offsets[tp] = known
		}
	}
	return found, err
}

func describedMember(m *pb.GroupMember) GroupMember {
	found := GroupMember{
		MemberID: m.GetMemberId(), InstanceID: m.GetInstanceId(), ClientHost: m.GetClientHost(),
		Owned: map[TopicPartition]int64{}, Idle: time.Duration(m.GetIdleMs()) * ms,
		Connected: m.GetConnected(),
	}
	for _, p := range m.GetOwned() {
		found.Owned[TopicPartition{p.GetTopic(), p.GetPartition()}] = p.GetOwnership()
	}
	for _, p := range m.GetRevoking() {
		found.Revoking = append(found.Revoking, TopicPartition{p.GetTopic(), p.GetPartition()})
	}
	return found
}

func (g *groups) remove(ctx context.Context, group string) (existed bool, err error) {
	var tried attempts
	err = g.callNoting(ctx, group, &tried, func(ctx context.Context, stub pb.GroupServiceClient) error {
		answer, err := stub.DeleteGroup(ctx, &pb.DeleteGroupRequest{Group: group})
		// A lost answer to an earlier attempt may mean that we deleted it.
		existed = answer.GetExisted() || err == nil && tried.inDoubt
		return err
	})
	return existed, err
}

// all returns all groups, by name: each node tells those that it leads.
func (g *groups) all(ctx context.Context) ([]GroupInfo, error) {
	deadline := time.Now().Add(g.cluster.config.RequestTimeout)
	var tried attempts
	for failures := 1; ; failures++ {
		found := map[string]GroupInfo{}
		covered := map[int32]bool{}
		count := 0
		info, err := describeCluster(ctx, g.cluster)
		if err != nil {
			return nil, err
		}
		for _, node := range info.Nodes {
			if !node.Alive || node.Address == "" {
				continue
			}
			of, err := g.listNode(ctx, node.Address, found, covered)
			if err != nil {
				if !isRetriable(err) {
					return nil, err
				}
				tried.failed(err)
			}
			count = max(count, of)
		}
		if len(covered) >= count {
			names := slices.Sorted(maps.Keys(found))
			all := make([]GroupInfo, len(names))
			for i, name := range names {
				all[i] = found[name]
			}
			return all, nil
		}
		pause := g.cluster.backoff.delay(failures)
		if !time.Now().Add(pause).Before(deadline) {
			const text = "%d partitions of __offsets have no leader that answers"
			if tried.telling == nil {
				return nil, fail(ErrNotReady, text, count-len(covered))
			}
			return nil, tried.late(text, count-len(covered))
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func (g *groups) listNode(ctx context.Context, address string, found map[string]GroupInfo, covered map[int32]bool) (int, error) {
	request := &pb.ListGroupsRequest{Limit: listPage}
	for {
		var answer *pb.ListGroupsResponse
		err := g.cluster.callAt(ctx, address, 2*time.Second,
			func(ctx context.Context, conn *grpc.ClientConn) (err error) {
				answer, err = pb.NewGroupServiceClient(conn).ListGroups(ctx, request)
				return err
			})
		if err != nil {
			return 0, err
		}
		for _, info := range answer.GetGroups() {
			found[info.GetGroup()] = GroupInfo{info.GetGroup(), info.GetOffsets(), info.GetLastCommitMs()}
			request.AfterGroup = info.GetGroup()
		}
		if len(answer.GetGroups()) < listPage {
			for _, partition := range answer.GetPartitions() {
				covered[partition] = true
			}
			return int(answer.GetPartitionCount()), nil
		}
	}
}
