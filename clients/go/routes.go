package oncelog

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

type placeOf struct {
	tp      TopicPartition
	address string
}

const (
	// How long a near replica is left out after a failure; doubled by each further one,
	farFor = 10 * time.Second
	// up to this.
	mostFarFor = time.Minute
)

// leftOut is a near replica that has failed.
type leftOut struct {
	until time.Time
	pause time.Duration
}

// routes says which node a consumer asks for a partition, and when: the leader, a near replica or,
// if any replica will do, one of them that is not known to be damaged; after a failure not before
// a pause that grows.
type routes struct {
	config  *ConsumerConfig
	cluster *cluster

	mu        sync.Mutex
	notBefore map[TopicPartition]time.Time
	failures  map[TopicPartition]int
	// Replicas that cannot read their log, where another may be asked.
	damaged  map[placeOf]bool
	far      map[placeOf]leftOut
	outdated map[string]bool
}

func newRoutes(config *ConsumerConfig, c *cluster) *routes {
	return &routes{
		config: config, cluster: c, notBefore: map[TopicPartition]time.Time{},
		failures: map[TopicPartition]int{}, damaged: map[placeOf]bool{},
		far: map[placeOf]leftOut{}, outdated: map[string]bool{},
	}
}

// address returns where to go for records; "": it is not known.
func (r *routes) address(tp TopicPartition) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if near := r.nearLocked(tp); near != "" {
		return near
	}
	return r.addressLocked(tp)
}

// offsetAddress returns where to ask for an offset; "": it is not known.
func (r *routes) offsetAddress(tp TopicPartition) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addressLocked(tp)
}

// nearLocked returns a replica in the client's rack; "": the leader is to be asked.
func (r *routes) nearLocked(tp TopicPartition) string {
	known, ok := r.cluster.leaders.leader(tp)
	if r.config.Rack == "" || !ok {
		return ""
	}
	var near []int32
	for _, id := range known.replicas {
		if r.cluster.leaders.rack(id) == r.config.Rack {
			near = append(near, id)
		}
	}
	if len(near) == 0 || slices.Contains(near, known.nodeID) {
		return ""
	}
	for i := range near {
		address := r.cluster.leaders.node(near[(int(tp.Partition)+i)%len(near)])
		if !time.Now().Before(r.far[placeOf{tp, address}].until) {
			return address
		}
	}
	return ""
}

// isNear reports whether this node is asked because it is near, not because it leads.
func (r *routes) isNear(tp TopicPartition, address string) bool {
	return r.config.Rack != "" && address != "" && r.cluster.leaders.address(tp) != address
}

func (r *routes) addressLocked(tp TopicPartition) string {
	known, ok := r.cluster.leaders.leader(tp)
	if !ok || !r.config.AnyReplica {
		return known.address
	}
	if chosen := r.config.ReplicaNodeID; chosen != 0 {
		if slices.Contains(known.replicas, chosen) {
			return r.cluster.leaders.node(chosen)
		}
		return ""
	}
	var all, sound []string
	for _, id := range known.replicas {
		if address := r.cluster.leaders.node(id); address != "" {
			all = append(all, address)
			if !r.damaged[placeOf{tp, address}] {
				sound = append(sound, address)
			}
		}
	}
	if len(sound) == 0 {
		sound = all
	}
	if len(sound) == 0 {
		return ""
	}
	// Spread, but always the same for a partition until it fails.
	return sound[(int(tp.Partition)+r.failures[tp])%len(sound)]
}

// readyAt returns the time from which the partition may be asked for.
func (r *routes) readyAt(tp TopicPartition) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notBefore[tp]
}

func (r *routes) answered(tp TopicPartition, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failures, tp)
	delete(r.far, placeOf{tp, address})
}

// takeOutdated returns topics to ask for again: a near replica has failed, and may have moved.
func (r *routes) takeOutdated() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	topics := slices.Collect(maps.Keys(r.outdated))
	clear(r.outdated)
	return topics
}

// failed: nothing from this node. Ask for the leader, after a pause that grows.
func (r *routes) failed(tp TopicPartition, address string) {
	r.mu.Lock()
	r.failures[tp]++
	failures := r.failures[tp]
	r.notBefore[tp] = time.Now().Add(r.cluster.backoff.delay(failures - 1))
	if r.isNear(tp, address) {
		place := placeOf{tp, address}
		pause := min(max(farFor, 2*r.far[place].pause), mostFarFor)
		r.far[place] = leftOut{time.Now().Add(pause), pause}
		r.outdated[tp.Topic] = true
	}
	r.mu.Unlock()
	r.cluster.leaders.forget(tp, address)
	r.cluster.leaderFailed(address, failures)
}

// leadsElsewhere: the node refused, and perhaps named the leader.
func (r *routes) leadsElsewhere(tp TopicPartition, address string, leaderID int32, leaderAddress string) {
	r.failed(tp, address)
	if leaderAddress != address {
		r.cluster.leaders.hint(tp, leaderID, leaderAddress)
	}
}

// elsewhere reports, after an error, whether the replica is damaged and a sound one may be asked.
func (r *routes) elsewhere(tp TopicPartition, address string, err pb.PartitionError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == pb.PartitionError_PARTITION_ERROR_STORAGE && r.isNear(tp, address) {
		return true
	}
	if err == pb.PartitionError_PARTITION_ERROR_STORAGE && r.config.AnyReplica {
		r.damaged[placeOf{tp, address}] = true
	}
	return r.damaged[placeOf{tp, address}] && !r.damaged[placeOf{tp, r.addressLocked(tp)}]
}

func comparePartitions(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func sortPartitions(tps []TopicPartition) { slices.SortFunc(tps, comparePartitions) }
