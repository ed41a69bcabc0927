package oncelog

import (
	"maps"
	"slices"
	"time"
)

// The sender's work as time passes: it finds leaders anew, gives up expired batches, renews its
// lease, and suspects nodes that do not answer.

// suspect: the supposed leader does not. Ask others, until one of them names another leader.
//
// It may be cut off, and then tells every caller that it led last. So does a node that is
// cut off with it, or one that has not heard of the election yet.
func (s *sender) suspect(tp TopicPartition) {
	refused := s.sentTo[tp]
	s.cluster.avoid(refused)
	s.cluster.leaders.suspect(tp)
	if known, ok := s.cluster.leaders.leader(tp); ok && known.address == refused {
		s.suspected[tp] = suspect{refused, known.term}
	}
	s.stale[tp.Topic] = true
}

// refreshStale asks for the leaders of stale topics, again and again until all have one.
func (s *sender) refreshStale() {
	topics := slices.Collect(maps.Keys(s.stale))
	clear(s.stale)
	s.refreshing = true
	go func() {
		// Without an answer there are the same leaders as before, and the next round.
		err := s.cluster.refresh(s.ctx, topics)
		s.post(func() { s.refreshed(topics, err) })
	}()
}

func (s *sender) refreshed(topics []string, err error) {
	s.refreshing, s.noMetadata = false, err
	lacking := false
	for tp := range s.busy {
		if slices.Contains(topics, tp.Topic) && !s.reachable(tp) {
			lacking = true
			s.stale[tp.Topic] = true
		}
	}
	s.rounds++
	if !lacking && len(s.stale) == 0 {
		s.rounds = 1
	}
	if lacking && s.rounds%maxLeaderFailures == 0 {
		s.cluster.preferAnother()
	}
	s.refreshAt = time.Now().Add(leaderPauses.delay(s.rounds))
	s.accumulator.leaveUnavailable()
}

// search looks for leaders that are back. Records without a key avoid partitions without a leader,
// so nothing else would notice.
func (s *sender) search(now time.Time) {
	if now.Before(s.searchAt) {
		return
	}
	topics, addresses := s.cluster.leaders.lacking()
	for _, topic := range topics {
		s.stale[topic] = true
	}
	for _, address := range addresses {
		s.stream(address)
	}
	if s.searches++; len(topics)+len(addresses) == 0 {
		s.searches = 0
	}
	s.searchAt = now.Add(searchPauses.delay(s.searches))
}

func (s *sender) reachable(tp TopicPartition) bool {
	known, _ := s.cluster.leaders.leader(tp)
	stream := s.streams[known.address]
	suspected, is := s.suspected[tp]
	return stream != nil && stream.opened && (!is || suspected != suspect{known.address, known.term})
}

// --- time ----------------------------------------------------------------------------

func (s *sender) tick(now time.Time) {
	if s.stopped {
		return
	}
	late := now.Sub(s.tickedAt) > tickLate
	if s.tickedAt = now; late {
		return // the process was frozen: answers may be there that nobody has read yet
	}
	if why := s.identities.hindered.Load(); why != nil {
		for tp := range s.identifying {
			s.window(tp).obstacles.met("no producer id yet: "+why.Error(), why.tells())
		}
	}
	for _, batch := range s.accumulator.expire(now) {
		w := s.window(batch.lane.tp)
		s.react(w, w.expireUnsent(batch,
			w.late("not sent within DeliveryTimeout=%s", w.config.DeliveryTimeout)))
	}
	for _, w := range s.busy {
		s.react(w, w.expire(now))
	}
	s.checkStalls(now)
	s.search(now)
	if current := s.identities.current.Load(); current != nil && !now.Before(current.renewAt) {
		go func() {
			if err := s.identities.renewIfDue(s.ctx, now, s.accumulator.isTransactional); err != nil {
				// Taken over by another instance, most likely: to go on would be to fight.
				s.post(func() { s.fail(fatal(err)) })
			}
		}()
	}
	if now.Sub(s.askedAt) > s.config.MetadataMaxAge {
		s.askedAt = now
		for _, topic := range s.cluster.leaders.topicNames() {
			s.stale[topic] = true
		}
	}
}

func (s *sender) checkStalls(now time.Time) {
	stalled := map[string][]string{} // topic -> nodes that do not answer
	for tp, w := range s.busy {
		oldest, waiting := w.oldestAttempt()
		if !waiting {
			continue
		}
		address := s.sentTo[tp]
		if now.Sub(oldest) > s.config.RequestTimeout && s.streams[address] != nil {
			s.streams[address].close("no answer within RequestTimeout")
		} else if now.Sub(oldest) > stallAfter {
			stalled[tp.Topic] = append(stalled[tp.Topic], address)
		}
	}
	stalls := map[string]stall{}
	for topic, addresses := range stalled {
		known := s.stalls[topic]
		if !now.Before(known.due) {
			known = stall{known.asked + 1, now.Add(stallPauses.delay(known.asked + 1))}
			for _, address := range addresses {
				s.cluster.avoid(address)
				s.cluster.leaders.reached(address, false)
			}
			s.accumulator.leaveUnavailable()
			s.stale[topic] = true
		}
		stalls[topic] = known
	}
	s.stalls = stalls
}
