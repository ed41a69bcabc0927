//go:build nodes

package oncelog

import (
	"errors"
	"os"
	"reflect"
	"testing"
)

// Against the real nodes that ONCELOG_TEST_SERVERS names: tests/clients starts them. Behaviour that
// the conformance kit has no verb for.

func TestAdminAtRealNodes(t *testing.T) {
	ctx, name := t.Context(), "admin-of-go"
	servers := os.Getenv("ONCELOG_TEST_SERVERS")
	admin, err := NewAdmin(servers)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	limit, retention := int32(100_000), int64(3_600_000)
	_, err = admin.CreateTopic(ctx, name, 2, 3, TopicConfig{MaxBatchBytes: &limit})
	check("create", err)
	topic, err := admin.AlterTopic(ctx, name, TopicConfig{RetentionMs: &retention, ExpectedOffsets: ExpectedOffsetsIgnored})
	check("alter", err)
	if *topic.Config.RetentionMs != retention || *topic.Config.MaxBatchBytes != limit || topic.Config.ExpectedOffsets != ExpectedOffsetsIgnored {
		t.Errorf("%+v", topic.Config)
	}
	info, err := admin.DescribeCluster(ctx)
	check("cluster", err)
	if len(info.Nodes) != 3 || info.ControllerID == 0 || info.Nodes[0].Release == "" {
		t.Errorf("%+v", info)
	}
	tp := TopicPartition{name, 1}
	topics, err := admin.DescribeTopics(ctx, name)
	check("topics", err)
	before := topics[0].Partitions[1].LeaderID
	after, err := admin.TransferLeadership(ctx, name, 1, 0)
	if check("transfer", err); after == before || after == 0 {
		t.Errorf("%d led, %d leads", before, after)
	}
	lease, err := admin.LeaseProducer(ctx, "")
	if check("lease", err); lease.ProducerID == 0 || len(lease.LeaseToken) == 0 || lease.Lifetime <= 0 {
		t.Errorf("%+v", lease)
	}
	producer, err := NewProducer(servers, func(c *ProducerConfig) { c.ProducerName = name })
	check("producer", err)
	m, err := producer.SendSync(ctx, Message{Topic: name, Value: []byte("v")}, ToPartition(1))
	check("send", err)
	states, err := admin.DescribeProducers(ctx, name, 1, 0, 10)
	check("producers", err)
	if len(states) != 1 || states[0].ProducerID != m.ProducerID || states[0].LastSequence != 0 || len(states[0].Recent) != 1 {
		t.Errorf("%+v", states)
	}
	resolved, err := admin.ResolveSequence(ctx, tp, m.ProducerID, m.Epoch, 0)
	if check("resolve", err); resolved.Resolution != Committed || resolved.Offset != m.Offset {
		t.Errorf("%+v", resolved)
	}
	_, epoch, err := admin.FenceProducer(ctx, name)
	if check("fence", err); epoch != m.Epoch+1 {
		t.Errorf("epoch %d, was %d", epoch, m.Epoch)
	}
	names, err := admin.ListProducerNames(ctx)
	if check("names", err); len(names) != 1 || names[0].Name != name || names[0].Epoch != epoch {
		t.Errorf("%+v", names)
	}
	if _, err := producer.SendSync(ctx, Message{Topic: name}, ToPartition(1)); !errors.Is(err, ErrFenced) {
		t.Error(err)
	}
	if err := producer.Close(ctx); err != nil {
		t.Error("its failure was looked at:", err)
	}
	check("commit", admin.CommitOffsets(ctx, "g", map[TopicPartition]OffsetCommit{tp: {Offset: 1, Metadata: "m"}}))
	group, err := admin.DescribeGroup(ctx, "g")
	if check("group", err); !group.Exists || group.Offsets[tp].Offset != 1 || group.Offsets[tp].Metadata != "m" {
		t.Errorf("%+v", group)
	}
	groups, err := admin.ListGroups(ctx)
	if check("groups", err); len(groups) != 1 || groups[0].Group != "g" {
		t.Errorf("%+v", groups)
	}
	existed, err := admin.DeleteGroup(ctx, "g")
	if check("delete group", err); !existed {
		t.Error("there was none")
	}
	nodes, err := admin.ListNodes(ctx)
	if check("nodes", err); len(nodes) != 3 || !nodes[2].Alive || nodes[2].Replicas == 0 || !nodes[2].Settled() {
		t.Errorf("%+v", nodes)
	}
	effects, err := admin.DrainNode(ctx, 3, true)
	if check("drain", err); len(effects) != 1 {
		t.Errorf("%+v", effects)
	}
	balance, err := admin.DescribeBalance(ctx)
	if check("balance", err); !balance.Settled() || len(balance.WaitsFor) != 0 {
		t.Errorf("%+v", balance)
	}
	rule := PermissionRule{Principal: "alice", Operations: []string{"read"}, Kind: "topic", Name: name}
	added, removed, err := admin.AlterPermissions(ctx, []PermissionRule{rule}, nil)
	if check("permissions", err); added != 1 || removed != 0 {
		t.Errorf("%d added, %d removed", added, removed)
	}
	permissions, err := admin.ListPermissions(ctx, "alice")
	if check("rules", err); len(permissions.Rules) != 1 || !reflect.DeepEqual(permissions.Rules[0], rule) {
		t.Errorf("%+v", permissions)
	}
	allowed, err := admin.CheckPermission(ctx, "read", "topic", name, "alice")
	if check("check", err); !allowed {
		t.Error("a rule allows it")
	}
	quota := Quota{QuotaKey{"alice", "streams"}, 3}
	check("quota", admin.AlterQuotas(ctx, []Quota{quota}, nil))
	quotas, err := admin.ListQuotas(ctx, "alice")
	if check("quotas", err); len(quotas) != 1 || quotas[0] != quota {
		t.Errorf("%+v", quotas)
	}
	check("no quota", admin.AlterQuotas(ctx, nil, []QuotaKey{{Principal: "alice"}}))
	sinks, err := admin.ListSinks(ctx)
	if check("sinks", err); len(sinks) != 0 {
		t.Errorf("%+v", sinks)
	}
	if err := admin.ResetSink(ctx, "no-such-sink"); !errors.Is(err, ErrUnknownTransaction) {
		t.Error(err)
	}
	check("delete", admin.DeleteTopic(ctx, name))
	if _, err := admin.DescribeTopics(ctx, "no-such-topic"); !errors.Is(err, ErrUnknownTopicOrPartition) {
		t.Error(err)
	}
}
