package oncelog

import "maps"

// membership is a consumer's part in its group: its partitions, and those it has to give back.
// Pure.
//
//	stream --assignment, fenced--> membership --step--> OnLost, OnRevoked, OnAssigned
//	OnRevoked is done --released--> owned --> stream
//
// An ownership has a number. The same partition under another number is another ownership: records
// read and not committed under the first may belong to another member, so it is lost first.
type membership struct {
	connection int64 // of the newest hello; rises
	epoch      int64 // of the newest assignment; 0: none yet, or fenced since
	owned      map[TopicPartition]int64
	revoking   map[TopicPartition]bool
	commits    int64
}

// step lists the consequences of an assignment, in the order in which they are to be done.
type step struct {
	// Gone already: drop positions, abort transactions, commit nothing.
	lost []TopicPartition
	// Finish the records that were read, commit, then call released.
	revoked []TopicPartition
	// Read from the committed offset on; with the number for commits.
	assigned map[TopicPartition]int64
}

func (s step) isEmpty() bool { return len(s.lost)+len(s.revoked)+len(s.assigned) == 0 }

func newMembership() membership {
	return membership{owned: map[TopicPartition]int64{}, revoking: map[TopicPartition]bool{}}
}

// connect: a new connection begins; its number. Owned partitions stay owned: the hello that follows
// says so, and the same partitions are asked back again.
func (m *membership) connect() int64 {
	m.connection++
	clear(m.revoking)
	return m.connection
}

// nextCommit returns the number of a commit.
func (m *membership) nextCommit() int64 {
	m.commits++
	return m.commits
}

// assignment takes the newest one over. One of an older connection changes nothing.
func (m *membership) assignment(connection, epoch int64, partitions map[TopicPartition]int64, revoke []TopicPartition) step {
	if connection != m.connection {
		return step{}
	}
	m.epoch = epoch
	asked := map[TopicPartition]bool{}
	for _, tp := range revoke {
		asked[tp] = true
	}
	s := step{assigned: map[TopicPartition]int64{}}
	for tp, number := range m.owned {
		if kept, ok := partitions[tp]; ok && kept != number || !ok && !asked[tp] {
			s.lost = append(s.lost, tp)
			delete(m.owned, tp)
		}
	}
	for tp, number := range partitions {
		if _, ok := m.owned[tp]; !ok {
			s.assigned[tp] = number
		}
	}
	maps.Copy(m.owned, s.assigned)
	revoking := map[TopicPartition]bool{}
	for tp := range asked {
		if _, ok := m.owned[tp]; ok {
			revoking[tp] = true
			if !m.revoking[tp] {
				s.revoked = append(s.revoked, tp)
			}
		}
	}
	m.revoking = revoking
	sortPartitions(s.lost)
	sortPartitions(s.revoked)
	return s
}

// released: the work on these is finished and committed; partitions still held are to be named.
// False if a new connection has begun since they were asked back: its hello said that they are
// held, so they are, until they are asked back there.
func (m *membership) released(connection int64, tps []TopicPartition) bool {
	if connection != m.connection {
		return false
	}
	for _, tp := range tps {
		if m.revoking[tp] {
			delete(m.revoking, tp)
			delete(m.owned, tp)
		}
	}
	return true
}

// fenced: the coordinator has ended the membership; the partitions lost by that.
func (m *membership) fenced() []TopicPartition {
	lost := m.held()
	clear(m.owned)
	clear(m.revoking)
	m.epoch = 0
	return lost
}

func (m *membership) held() []TopicPartition {
	tps := make([]TopicPartition, 0, len(m.owned))
	for tp := range m.owned {
		tps = append(tps, tp)
	}
	sortPartitions(tps)
	return tps
}
