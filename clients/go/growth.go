package oncelog

import (
	"slices"
	"sync"
)

// growth follows topics that get more partitions while they are read by subscription, outside of
// a group; a member of one is given them by its coordinator.
//
//	fetcher, each MetadataMaxAge --take--> growth --more cursors--> fetchBuffer
//	positions --beginsAtStart--> growth
//
// A reader that begins at the end reads a partition that is younger than it is from its start:
// earlier records would be lost otherwise. Since when a group reads nobody knows, so
// for a group each partition counts as younger that its topic did not begin with.
type growth struct {
	leaders *leaders
	buffer  *fetchBuffer
	inGroup bool

	mu     sync.Mutex     // the followed partitions fit the assigned ones
	counts map[string]int // of the topics that are followed
	came   map[TopicPartition]bool
}

// subscribe reads all partitions of these topics, with known metadata.
func (g *growth) subscribe(topics []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts = map[string]int{}
	var tps []TopicPartition
	for _, topic := range topics {
		tps = append(tps, g.follow(topic)...)
	}
	g.buffer.assign(tps)
}

// assign reads exactly these, and follows nothing.
func (g *growth) assign(tps []TopicPartition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts = nil
	g.buffer.assign(tps)
}

// follow returns the partitions that the topic has beyond those that are followed.
func (g *growth) follow(topic string) (tps []TopicPartition) {
	_, _, partitions, _ := g.leaders.topic(topic)
	for partition := g.counts[topic]; partition < partitions; partition++ {
		tps = append(tps, TopicPartition{topic, int32(partition)})
	}
	g.counts[topic] = max(g.counts[topic], partitions)
	return tps
}

// anew: the partition is of another topic of the same name, all of which is news.
func (g *growth) anew(tp TopicPartition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.came == nil {
		g.came = map[TopicPartition]bool{}
	}
	g.came[tp] = true
}

// dropGone stops reading partitions that a topic lost when it was created anew.
func (g *growth) dropGone(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _, partitions, _ := g.leaders.topic(topic)
	if followed, ok := g.counts[topic]; !ok || partitions == 0 || followed <= partitions {
		return
	}
	g.counts[topic] = partitions
	g.buffer.assign(slices.DeleteFunc(g.buffer.assignment(), func(tp TopicPartition) bool {
		return tp.Topic == topic && int(tp.Partition) >= partitions
	}))
}

// take reads new partitions, too.
func (g *growth) take() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var fresh []TopicPartition
	for topic := range g.counts {
		fresh = append(fresh, g.follow(topic)...)
	}
	if len(fresh) == 0 {
		return
	}
	if g.came == nil {
		g.came = map[TopicPartition]bool{}
	}
	for _, tp := range fresh {
		g.came[tp] = true
	}
	g.buffer.assign(slices.Concat(g.buffer.assignment(), fresh))
}

// beginsAtStart: a reader without a position goes to its start, though others begin at the end.
func (g *growth) beginsAtStart(tp TopicPartition) bool {
	known, _ := g.leaders.leader(tp)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.came[tp] || g.inGroup && known.added
}
