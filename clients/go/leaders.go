package oncelog

import (
	"sync"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	defaultMaxBatchBytes = 4 << 20
	// Of a topic: far above what a cluster takes.
	mostPartitions = 1_000_000
)

// leader is what is known of a partition's leader.
type leader struct {
	nodeID  int32
	address string // "": not known
	term    int64
	// A node refused and named this one instead, without a term: another node may know better.
	hinted bool
	// The node that did so; "": none, or its word has been doubted since.
	refused  string
	replicas []int32
	added    bool // after the topic's creation
}

type topicView struct {
	id            uint64
	maxBatchBytes int
	partitions    []leader
}

// leaders is what a client knows of topics. News of an older term never replaces what is
// known of a newer one, so a node that is behind cannot send a client back.
type leaders struct {
	mu     sync.RWMutex
	nodes  map[int32]string
	topics map[string]*topicView
}

func newLeaders() *leaders {
	return &leaders{nodes: map[int32]string{}, topics: map[string]*topicView{}}
}

func (l *leaders) update(answer *pb.DescribeTopicsResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, node := range answer.GetNodes() {
		if node.GetAddress() != "" {
			l.nodes[node.GetNodeId()] = node.GetAddress()
		}
	}
	for _, topic := range answer.GetTopics() {
		view := l.topics[topic.GetName()]
		if view != nil && topic.GetTopicId() < view.id {
			continue // the node has not heard yet that this one was deleted: ids only rise
		}
		if view == nil || view.id != topic.GetTopicId() {
			// Deleted and created again: terms start anew.
			view = &topicView{id: topic.GetTopicId(), maxBatchBytes: defaultMaxBatchBytes}
			l.topics[topic.GetName()] = view
		}
		if limit := topic.GetConfig().GetMaxBatchBytes(); limit > 0 {
			view.maxBatchBytes = int(limit)
		}
		for _, info := range topic.GetPartitions() {
			if info.GetPartition() < 0 || info.GetPartition() >= mostPartitions {
				continue // no node says so
			}
			for len(view.partitions) <= int(info.GetPartition()) {
				view.partitions = append(view.partitions, leader{term: -1})
			}
			l.updateLeader(&view.partitions[info.GetPartition()], info)
		}
	}
}

func (l *leaders) updateLeader(known *leader, info *pb.PartitionInfo) {
	known.replicas, known.added = info.GetReplicas(), info.GetAddedMs() > 0
	address := l.nodes[info.GetLeaderId()]
	if info.GetTerm() < known.term || address == "" {
		return
	}
	if info.GetTerm() == known.term && known.address != "" {
		if address == known.refused {
			return // it led in this term, and does not any more
		}
		if !known.hinted && info.GetLeaderId() != known.nodeID {
			return // same term, same leader; but its address may be news
		}
	}
	known.nodeID, known.address = info.GetLeaderId(), address
	known.term, known.hinted, known.refused = info.GetTerm(), false, ""
}

// change calls f with what is known of a partition, if anything is.
func (l *leaders) change(tp TopicPartition, f func(*leader)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if view := l.topics[tp.Topic]; view != nil && int(tp.Partition) < len(view.partitions) && tp.Partition >= 0 {
		f(&view.partitions[tp.Partition])
	}
}

// hint takes over what a node said when it refused as not the leader.
func (l *leaders) hint(tp TopicPartition, nodeID int32, address string) {
	if address == "" {
		return
	}
	l.change(tp, func(known *leader) {
		if l.nodes[nodeID] == "" {
			l.nodes[nodeID] = address
		}
		if known.address != address {
			known.refused, known.hinted = known.address, true
		}
		known.nodeID, known.address = nodeID, address
	})
}

// suspect: who is said to lead does not, and names nobody. Any node's word may take its place.
func (l *leaders) suspect(tp TopicPartition) {
	l.change(tp, func(known *leader) { known.refused = "" })
}

// forget: this node does not lead the partition, whatever was known.
func (l *leaders) forget(tp TopicPartition, address string) {
	l.change(tp, func(known *leader) {
		if known.address == address {
			known.address, known.hinted, known.refused = "", false, ""
		}
	})
}

func (l *leaders) leader(tp TopicPartition) (leader, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	view := l.topics[tp.Topic]
	if view == nil || tp.Partition < 0 || int(tp.Partition) >= len(view.partitions) {
		return leader{}, false
	}
	return view.partitions[tp.Partition], true
}

func (l *leaders) address(tp TopicPartition) string {
	known, _ := l.leader(tp)
	return known.address
}

// topic returns a topic's id, largest payload and number of partitions.
func (l *leaders) topic(name string) (id uint64, maxBatchBytes, partitions int, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	view := l.topics[name]
	if view == nil {
		return 0, 0, 0, false
	}
	return view.id, view.maxBatchBytes, len(view.partitions), true
}

func (l *leaders) node(id int32) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.nodes[id]
}

func (l *leaders) nodeAddresses() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	addresses := make([]string, 0, len(l.nodes))
	for _, address := range l.nodes {
		addresses = append(addresses, address)
	}
	return addresses
}

func (l *leaders) topicNames() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	names := make([]string, 0, len(l.topics))
	for name := range l.topics {
		names = append(names, name)
	}
	return names
}
