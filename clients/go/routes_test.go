package oncelog

import (
	"testing"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

func TestANearReplicaThatHangsIsTriedLessAndLessOften(t *testing.T) {
	tp := TopicPartition{"t", 0}
	config := ConsumerConfig{ClientConfig: ClientConfig{BootstrapServers: []string{"n1:1"}}, Rack: "b"}
	c := newCluster(config.ClientConfig)
	c.leaders.update(&pb.DescribeTopicsResponse{
		Nodes: []*pb.NodeInfo{
			{NodeId: 1, Address: "n1:1", Rack: "a"}, {NodeId: 2, Address: "n2:1", Rack: "b"},
		},
		Topics: []*pb.TopicInfo{{Name: "t", TopicId: 5, Partitions: []*pb.PartitionInfo{
			{LeaderId: 1, Term: 1, Replicas: []int32{1, 2}},
		}}},
	})
	r := newRoutes(&config, c)
	near := placeOf{tp, "n2:1"}
	for _, seconds := range []time.Duration{10, 20, 40, 60, 60} {
		r.failed(tp, near.address)
		left := r.far[near]
		if left.pause != seconds*time.Second || r.address(tp) != "n1:1" {
			t.Fatalf("left out for %v, not %v s; %s is read", left.pause, seconds, r.address(tp))
		}
		r.far[near] = leftOut{time.Now(), left.pause} // it is over
		if r.address(tp) != near.address {
			t.Fatal("it is not tried again")
		}
	}
	r.answered(tp, near.address)
	r.failed(tp, near.address)
	if r.far[near].pause != farFor {
		t.Fatal("an answer does not end the row of failures")
	}
	if topics := r.takeOutdated(); len(topics) != 1 || len(r.takeOutdated()) != 0 {
		t.Fatal(topics, "may have moved")
	}
}
