package oncelog

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// Admin manages topics, nodes, permissions and quotas, and looks at the cluster, its producers,
// groups, transactions and sinks. It is for use by any number of goroutines. Calls are tried at other nodes while errors are retriable.
type Admin struct {
	config  AdminConfig
	cluster *cluster
	groups  *groups
}

// NewAdmin makes an admin client. servers is "host:port,...", or "" for the default of
// [ClientConfig]; options change the defaults.
func NewAdmin(servers string, options ...func(*AdminConfig)) (*Admin, error) {
	config := AdminConfig{defaultClient(servers)}
	for _, option := range options {
		option(&config)
	}
	var l limits
	if config.ClientConfig.check(&l); l.err != nil {
		return nil, l.err
	}
	c := newCluster(config.ClientConfig)
	return &Admin{config: config, cluster: c, groups: newGroups(c)}, nil
}

// Close frees everything.
func (a *Admin) Close() { a.cluster.close() }

// --- topics --------------------------------------------------------------------------

// heldFor: for a call that the node may hold for `limit`; inDoubt: an earlier attempt may be done.
func heldFor(limit time.Duration, inDoubt *bool) callOptions {
	return callOptions{
		total: limit + time.Second, attempt: limit + time.Second, onRetry: doubting(inDoubt),
	}
}

func doubting(inDoubt *bool) func(error) {
	return func(err error) { *inDoubt = *inDoubt || asError(err).mayHaveBeenDone() }
}

// CreateTopic creates a topic and waits, up to half a minute or until ctx ends, until each
// partition has a leader. 0 partitions or replicas: the cluster's default.
func (a *Admin) CreateTopic(ctx context.Context, name string, partitions, replicas int32, config TopicConfig) (TopicInfo, error) {
	limit := waitLimit(ctx)
	request := &pb.CreateTopicRequest{
		Name: name, Partitions: partitions, Replicas: replicas,
		Config: config.message(), TimeoutMs: int32(max(limit/ms, 1)),
	}
	var answer *pb.CreateTopicResponse
	inDoubt := false
	err := a.cluster.call(ctx, heldFor(limit, &inDoubt),
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			answer, err = pb.NewClusterServiceClient(conn).CreateTopic(ctx, request)
			return err
		})
	if err == nil {
		return topicInfo(answer.GetTopic()), nil
	}
	if !errors.Is(err, ErrTopicAlreadyExists) || !inDoubt {
		return TopicInfo{}, err
	}
	// After a call without an answer it may be the topic of this call.
	topics, problem := a.DescribeTopics(ctx, name)
	if problem != nil {
		return TopicInfo{}, err
	}
	found := topics[0]
	if partitions != 0 && int(partitions) != len(found.Partitions) ||
		replicas != 0 && int(replicas) != found.replicas() || !found.Config.fits(config) {
		return TopicInfo{}, err
	}
	return found, nil
}

// waitLimit returns how long new partitions may take to have a leader.
func waitLimit(ctx context.Context) time.Duration {
	limit := 30 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return limit
}

// fits reports whether a topic has the settings that a call gives; nodes may omit defaults.
func (c TopicConfig) fits(asked TopicConfig) bool {
	has, wants := reflect.ValueOf(c), reflect.ValueOf(asked)
	for i := range wants.NumField() {
		given, value := wants.Field(i), has.Field(i)
		if !given.IsZero() && !value.IsZero() && !reflect.DeepEqual(given.Interface(), value.Interface()) {
			return false
		}
	}
	return true
}

func (t *TopicInfo) replicas() (most int) {
	for _, partition := range t.Partitions {
		most = max(most, len(partition.Replicas))
	}
	return most
}

// DeleteTopic deletes a topic with its records.
func (a *Admin) DeleteTopic(ctx context.Context, name string) error {
	inDoubt := false
	err := a.cluster.call(ctx, callOptions{onRetry: doubting(&inDoubt)},
		func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := pb.NewClusterServiceClient(conn).DeleteTopic(ctx, &pb.DeleteTopicRequest{Name: name})
			return err
		})
	if inDoubt && errors.Is(err, ErrUnknownTopicOrPartition) {
		return nil // a lost answer to an earlier attempt may mean that we deleted it
	}
	return err
}

// AlterTopic changes the settings that are given. Leaders hear of it a moment later.
func (a *Admin) AlterTopic(ctx context.Context, name string, config TopicConfig) (TopicInfo, error) {
	request := &pb.AlterTopicRequest{
		Name: name, Config: config.message(), SetExpectedOffsets: config.ExpectedOffsets != "",
	}
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.AlterTopic, request)
	return topicInfo(answer.GetTopic()), err
}

// DescribeTopics returns these topics, in this order, or all, by name.
func (a *Admin) DescribeTopics(ctx context.Context, names ...string) ([]TopicInfo, error) {
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.DescribeTopics, &pb.DescribeTopicsRequest{Names: names})
	if err != nil {
		if errors.Is(err, ErrUnknownTopicOrPartition) {
			// The node may be behind: another call asks another node.
			a.cluster.preferAnother()
		}
		return nil, err
	}
	a.cluster.leaders.update(answer)
	found := map[string]TopicInfo{}
	for _, topic := range answer.GetTopics() {
		found[topic.GetName()] = topicInfo(topic)
	}
	if len(names) == 0 {
		for name := range found {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	topics := make([]TopicInfo, len(names))
	for i, name := range names {
		topic, ok := found[name]
		if !ok {
			e := fail(ErrUnknownTopicOrPartition, "topic %q does not exist", name)
			e.Topic, e.Partition = name, -1
			return nil, e
		}
		topics[i] = topic
	}
	return topics, nil
}

func (c TopicConfig) message() *pb.TopicConfig {
	message := &pb.TopicConfig{
		RetentionMs: c.RetentionMs, RetentionBytes: c.RetentionBytes, MaxBatchBytes: c.MaxBatchBytes,
		MinCompactionLagMs: c.MinCompactionLagMs, MaxCompactionLagMs: c.MaxCompactionLagMs,
		DeleteRetentionMs: c.DeleteRetentionMs, MinCleanableDirtyRatio: c.MinCleanableDirtyRatio,
	}
	switch c.CleanupPolicy {
	case CleanupPolicyDelete:
		message.CleanupPolicy = pb.CleanupPolicy_CLEANUP_POLICY_DELETE.Enum()
	case CleanupPolicyCompact:
		message.CleanupPolicy = pb.CleanupPolicy_CLEANUP_POLICY_COMPACT.Enum()
	case CleanupPolicyCompactDelete:
		message.CleanupPolicy = pb.CleanupPolicy_CLEANUP_POLICY_COMPACT_DELETE.Enum()
	}
	switch c.Formats {
	case TopicFormatsColumnar:
		message.Formats = pb.TopicFormats_TOPIC_FORMATS_COLUMNAR.Enum()
	case TopicFormatsKafka:
		message.Formats = pb.TopicFormats_TOPIC_FORMATS_KAFKA.Enum()
	case TopicFormatsBoth:
		message.Formats = pb.TopicFormats_TOPIC_FORMATS_BOTH.Enum()
	}
	switch c.ExpectedOffsets {
	case ExpectedOffsetsIgnored:
		message.ExpectedOffsets = pb.ExpectedOffsets_EXPECTED_OFFSETS_IGNORED
	case ExpectedOffsetsRequired:
		message.ExpectedOffsets = pb.ExpectedOffsets_EXPECTED_OFFSETS_REQUIRED
	}
	return message
}

func topicInfo(topic *pb.TopicInfo) TopicInfo {
	info := TopicInfo{
		Name: topic.GetName(), TopicID: topic.GetTopicId(), CreatedMs: topic.GetCreatedMs(),
		Config: TopicConfig{
			ExpectedOffsets: ExpectedOffsetsChecked, Formats: TopicFormatsColumnar,
			CleanupPolicy: CleanupPolicyDelete,
		},
	}
	if config := topic.GetConfig(); config != nil {
		info.Config.RetentionMs, info.Config.RetentionBytes = config.RetentionMs, config.RetentionBytes
		info.Config.MaxBatchBytes = config.MaxBatchBytes
		info.Config.MinCompactionLagMs = config.MinCompactionLagMs
		info.Config.MaxCompactionLagMs = config.MaxCompactionLagMs
		info.Config.DeleteRetentionMs = config.DeleteRetentionMs
		info.Config.MinCleanableDirtyRatio = config.MinCleanableDirtyRatio
		switch config.GetFormats() {
		case pb.TopicFormats_TOPIC_FORMATS_KAFKA:
			info.Config.Formats = TopicFormatsKafka
		case pb.TopicFormats_TOPIC_FORMATS_BOTH:
			info.Config.Formats = TopicFormatsBoth
		}
		switch config.GetCleanupPolicy() {
		case pb.CleanupPolicy_CLEANUP_POLICY_COMPACT:
			info.Config.CleanupPolicy = CleanupPolicyCompact
		case pb.CleanupPolicy_CLEANUP_POLICY_COMPACT_DELETE:
			info.Config.CleanupPolicy = CleanupPolicyCompactDelete
		}
		switch config.GetExpectedOffsets() {
		case pb.ExpectedOffsets_EXPECTED_OFFSETS_IGNORED:
			info.Config.ExpectedOffsets = ExpectedOffsetsIgnored
		case pb.ExpectedOffsets_EXPECTED_OFFSETS_REQUIRED:
			info.Config.ExpectedOffsets = ExpectedOffsetsRequired
		}
	}
	for _, p := range topic.GetPartitions() {
		info.Partitions = append(info.Partitions, PartitionInfo{
			Partition: p.GetPartition(), LeaderID: p.GetLeaderId(), Term: p.GetTerm(),
			Replicas: p.GetReplicas(), LogStartOffset: p.GetLogStartOffset(),
			HighWatermark: p.GetHighWatermark(), GroupID: p.GetGroupId(),
			Target: p.GetTarget(), AddedMs: p.GetAddedMs(),
		})
	}
	return info
}

// --- cluster -------------------------------------------------------------------------

// DescribeCluster returns the cluster, as the answering node sees it.
func (a *Admin) DescribeCluster(ctx context.Context) (ClusterInfo, error) {
	return describeCluster(ctx, a.cluster)
}

func describeCluster(ctx context.Context, c *cluster) (ClusterInfo, error) {
	answer, err := ask(ctx, c, pb.NewClusterServiceClient, pb.ClusterServiceClient.DescribeCluster, &pb.DescribeClusterRequest{AskLeaders: true})
	info := ClusterInfo{
		ClusterID: answer.GetClusterId(), AnsweringNodeID: answer.GetAnsweringNodeId(),
		ControllerID: answer.GetControllerId(), Topics: answer.GetTopics(),
		Partitions: answer.GetPartitions(), LeaderlessPartitions: answer.GetLeaderlessPartitions(),
		UnderReplicatedPartitions: answer.GetUnderReplicatedPartitions(),
		MaxMessageBytes:           answer.GetMaxMessageBytes(),
		Upgrade:                   upgradeInfo(answer.GetUpgrade()),
		Settings:                  settingsOf(answer.GetSettings()),
		DamagedReplicas:           answer.GetDamagedReplicas(),
		Founding:                  answer.GetFounding(),
	}
	for _, node := range answer.GetNodes() {
		info.Nodes = append(info.Nodes, NodeInfo{
			NodeID: node.GetNodeId(), Address: node.GetAddress(), Alive: node.GetAlive(),
			ClockDisagrees: node.GetClockDisagrees(), Release: node.GetRelease(),
			OldestClusterVersion: node.GetOldestClusterVersion(),
			NewestClusterVersion: node.GetNewestClusterVersion(), Features: node.GetFeatures(),
			Insecure: node.GetInsecure(),
		})
	}
	return info, err
}

func upgradeInfo(upgrade *pb.UpgradeInfo) UpgradeInfo {
	// A node of an older release says nothing of it: its cluster was never upgraded.
	version := max(upgrade.GetClusterVersion(), 1)
	return UpgradeInfo{
		version, upgrade.GetFeatures(), max(upgrade.GetTargetVersion(), version),
		upgrade.GetTargetFeatures(), upgrade.GetHinderedBy(),
	}
}

// FinalizeUpgrade turns on the features of the newest release; no node can go back to an older one
// afterwards. It returns the features that are on, or an error of [ErrNotSupported] that names the
// nodes in the way.
func (a *Admin) FinalizeUpgrade(ctx context.Context) (UpgradeInfo, error) {
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.FinalizeUpgrade, &pb.FinalizeUpgradeRequest{})
	return upgradeInfo(answer.GetUpgrade()), err
}

// SetClusterSetting sets a setting of all nodes, and returns all such settings.
func (a *Admin) SetClusterSetting(ctx context.Context, name string, value int64) (map[string]int64, error) {
	request := &pb.SetClusterSettingRequest{Setting: &pb.ClusterSetting{Name: name, Value: value}}
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.SetClusterSetting, request)
	return settingsOf(answer.GetSettings()), err
}

func settingsOf(settings []*pb.ClusterSetting) map[string]int64 {
	all := map[string]int64{}
	for _, setting := range settings {
		all[setting.GetName()] = setting.GetValue()
	}
	return all
}

// TransferLeadership has another replica lead (0: the most caught-up one) and returns its id.
func (a *Admin) TransferLeadership(ctx context.Context, topic string, partition, targetNodeID int32) (int32, error) {
	request := &pb.TransferLeadershipRequest{Topic: topic, Partition: partition, TargetNodeId: targetNodeID}
	var answer *pb.TransferLeadershipResponse
	err := a.cluster.callLeader(ctx, TopicPartition{topic, partition},
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			answer, err = pb.NewClusterServiceClient(conn).TransferLeadership(ctx, request)
			return err
		})
	return answer.GetLeaderId(), err
}

// --- producers -----------------------------------------------------------------------

// LeaseProducer leases a producer id; with a name, its id with the epoch raised by one.
func (a *Admin) LeaseProducer(ctx context.Context, producerName string) (ProducerLease, error) {
	request := &pb.LeaseProducerRequest{ProducerName: producerName}
	if producerName != "" {
		request.Nonce = nonce()
	}
	answer, err := ask(ctx, a.cluster, pb.NewProducerServiceClient, pb.ProducerServiceClient.LeaseProducer, request)
	return ProducerLease{
		answer.GetProducerId(), answer.GetEpoch(), answer.GetExpireMs(),
		time.Duration(answer.GetLifetimeMs()) * ms, answer.GetLeaseToken(),
	}, err
}

// FenceProducer raises a name's epoch for nobody, and returns its producer id and epoch.
func (a *Admin) FenceProducer(ctx context.Context, producerName string) (producerID int64, epoch int32, err error) {
	request := &pb.FenceProducerRequest{ProducerName: producerName, Nonce: nonce()}
	answer, err := ask(ctx, a.cluster, pb.NewProducerServiceClient, pb.ProducerServiceClient.FenceProducer, request)
	return answer.GetProducerId(), answer.GetEpoch(), err
}

// ListProducerNames returns all names, as the node that answers knows them.
func (a *Admin) ListProducerNames(ctx context.Context) ([]ProducerName, error) {
	answer, err := ask(ctx, a.cluster, pb.NewProducerServiceClient, pb.ProducerServiceClient.ListProducerNames, &pb.ListProducerNamesRequest{})
	names := make([]ProducerName, 0, len(answer.GetNames()))
	for _, name := range answer.GetNames() {
		names = append(names, ProducerName{
			name.GetName(), name.GetProducerId(), name.GetEpoch(), name.GetLastLeaseMs(),
		})
	}
	return names, err
}

// DescribeProducers returns the producers that a partition remembers, or one of them (0: all), at
// most limit.
func (a *Admin) DescribeProducers(ctx context.Context, topic string, partition int32, producerID int64, limit int) ([]ProducerState, error) {
	var states []ProducerState
	after := int64(0)
	for len(states) < limit {
		page := min(limit-len(states), listPage)
		request := &pb.DescribeProducersRequest{
			Topic: topic, Partition: partition, ProducerId: producerID,
			AfterProducerId: after, Limit: int32(page),
		}
		var answer *pb.DescribeProducersResponse
		err := a.cluster.callLeader(ctx, TopicPartition{topic, partition},
			func(ctx context.Context, conn *grpc.ClientConn) (err error) {
				answer, err = pb.NewProducerServiceClient(conn).DescribeProducers(ctx, request)
				return err
			})
		if err != nil {
			return nil, err
		}
		for _, p := range answer.GetProducers() {
			after = p.GetProducerId()
			state := ProducerState{ProducerID: after, Epoch: p.GetEpoch(), LastSequence: p.GetLastSequence(), LastAppendMs: p.GetLastAppendMs()}
			for _, r := range p.GetRecent() {
				state.Recent = append(state.Recent, RecentBatch{
					r.GetFirstSequence(), r.GetLastSequence(), r.GetBaseOffset(), r.GetRecordCount(), r.GetCrc32C(),
				})
			}
			states = append(states, state)
		}
		if producerID != 0 || len(answer.GetProducers()) < page {
			break
		}
	}
	return states, nil
}

// ResolveSequence returns the outcome of a record without an acknowledgement.
func (a *Admin) ResolveSequence(ctx context.Context, tp TopicPartition, producerID int64, epoch int32, sequence int64) (ResolvedSequence, error) {
	return resolveSequence(ctx, a.cluster, tp, producerID, epoch, sequence)
}

// --- groups --------------------------------------------------------------------------

// ListGroups returns all groups that have committed offsets, by name.
func (a *Admin) ListGroups(ctx context.Context) ([]GroupInfo, error) { return a.groups.all(ctx) }

// DescribeGroup returns a group's committed offsets, and its members.
func (a *Admin) DescribeGroup(ctx context.Context, group string) (GroupDescription, error) {
	return a.groups.describe(ctx, group)
}

// CommitOffsets has a group go on at these offsets. It fails as Consumer.CommitOffsets does.
func (a *Admin) CommitOffsets(ctx context.Context, group string, offsets map[TopicPartition]OffsetCommit) error {
	return a.groups.commit(ctx, group, offsets, nil)
}

// DeleteGroup forgets a group and its offsets, and tells whether there was one: true also if an
// attempt without an answer may have deleted it.
func (a *Admin) DeleteGroup(ctx context.Context, group string) (bool, error) {
	return a.groups.remove(ctx, group)
}
