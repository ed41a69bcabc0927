package oncelog

import (
	"maps"
	"slices"
	"sync"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	defaultMaxBatchBytes = 4 << 20
	// Of a topic: far above the limits of a cluster.
	mostPartitions = 1_000_000
)

// leader is the known leader of a partition.
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

// leaders is a client's view of topics. News of an older term never replaces a newer leader, so
// a node that is behind cannot send a client back.
type leaders struct {
	mu     sync.RWMutex
	nodes  map[int32]string
	racks  map[int32]string // of the same nodes
	topics map[string]*topicView
	// Partitions of which the last word was that nobody leads them, and nodes that do not answer:
	// a record that may go elsewhere does.
	leaderless  map[TopicPartition]bool
	unreachable map[string]bool
}

func newLeaders() *leaders {
	return &leaders{
		nodes: map[int32]string{}, racks: map[int32]string{}, topics: map[string]*topicView{},
		leaderless: map[TopicPartition]bool{}, unreachable: map[string]bool{},
	}
}

func (l *leaders) update(answer *pb.DescribeTopicsResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, node := range answer.GetNodes() {
		if node.GetAddress() != "" {
			l.nodes[node.GetNodeId()] = node.GetAddress()
			l.racks[node.GetNodeId()] = node.GetRack()
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
			maps.DeleteFunc(l.leaderless, func(tp TopicPartition, _ bool) bool {
				return tp.Topic == topic.GetName()
			})
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
			tp := TopicPartition{topic.GetName(), info.GetPartition()}
			l.updateLeader(tp, &view.partitions[info.GetPartition()], info)
		}
	}
}

func (l *leaders) updateLeader(tp TopicPartition, known *leader, info *pb.PartitionInfo) {
	known.replicas, known.added = info.GetReplicas(), info.GetAddedMs() > 0
	address := l.nodes[info.GetLeaderId()]
	if info.GetTerm() < known.term {
		return
	}
	if address == "" {
		// The address that is known stays: this node may be the one that is cut off.
		l.leaderless[tp] = true
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
	delete(l.leaderless, tp)
}

// change calls f with the known leader of a partition, if there is one.
func (l *leaders) change(tp TopicPartition, f func(*leader)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if view := l.topics[tp.Topic]; view != nil && int(tp.Partition) < len(view.partitions) && tp.Partition >= 0 {
		f(&view.partitions[tp.Partition])
	}
}

// hint takes over the leader named by a node that refused as not the leader.
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
		delete(l.leaderless, tp)
	})
}

// suspect: the supposed leader does not lead, and names nobody. Any node's word may take its place.
func (l *leaders) suspect(tp TopicPartition) {
	l.change(tp, func(known *leader) { known.refused = "" })
}

// forget: this node does not lead the partition, in spite of the client's view.
func (l *leaders) forget(tp TopicPartition, address string) {
	l.change(tp, func(known *leader) {
		if known.address == address {
			known.address, known.hinted, known.refused = "", false, ""
			l.leaderless[tp] = true
		}
	})
}

// reached: this node answers, or does not.
func (l *leaders) reached(address string, answers bool) {
	l.mu.RLock()
	same := l.unreachable[address] != answers
	l.mu.RUnlock()
	if same {
		return // as nearly always
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if answers {
		delete(l.unreachable, address)
	} else {
		l.unreachable[address] = true
	}
}

// isAvailable reports whether a partition has a leader that can be reached, as far as is known.
func (l *leaders) isAvailable(tp TopicPartition) bool {
	known, _ := l.leader(tp)
	l.mu.RLock()
	defer l.mu.RUnlock()
	return known.address != "" && !l.leaderless[tp] && !l.unreachable[known.address]
}

// lacking returns topics to ask for again, and nodes to connect to again: somebody may be back.
func (l *leaders) lacking() (topics, addresses []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.leaderless)+len(l.unreachable) == 0 {
		return nil, nil
	}
	used := map[string]bool{}
	for name, view := range l.topics {
		lacks := false
		for partition, known := range view.partitions {
			used[known.address] = true
			lacks = lacks || l.leaderless[TopicPartition{name, int32(partition)}]
		}
		if lacks {
			topics = append(topics, name)
		}
	}
	maps.DeleteFunc(l.unreachable, func(address string, _ bool) bool { return !used[address] })
	return topics, slices.Collect(maps.Keys(l.unreachable))
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

// id returns a topic's id; 0: it is not known.
func (l *leaders) id(topic string) uint64 {
	id, _, _, _ := l.topic(topic)
	return id
}

func (l *leaders) node(id int32) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.nodes[id]
}

func (l *leaders) rack(id int32) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.racks[id]
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
