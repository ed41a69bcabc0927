package oncelog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const (
	// How long an offset above a leader's high watermark may last: a new leader learns how far
	// the log is committed a moment after its election.
	aheadGrace = 10 * time.Second
	mostWait   = time.Minute // a node's limit
	// A poll that is late by so much: others are asked for the leader.
	lateBy = time.Second
	// A node takes no more partitions in a Fetch.
	mostFetched = 1000
)

// fetcher is the consumer's IO: long polls to each leader, streams where there is much to read.
// One poll is on its way per node and 1000 partitions; it covers those that the node leads, that
// have room and that no stream brings. Leader changes, restarts and broken connections never reach
// the user. All its state belongs to the goroutine of run.
type fetcher struct {
	config    *ConsumerConfig
	cluster   *cluster
	routes    *routes
	positions *positions
	buffer    *fetchBuffer
	growth    *growth

	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}
	wakeUp chan struct{}
	events chan func()

	polls map[place]*poll
	// Partitions of polls that were refused for good, each with a group of its own until it is read.
	alone      map[TopicPartition]int
	locating   map[TopicPartition]bool
	aheadSince map[TopicPartition]time.Time
	refreshing bool
	lastAlone  int
	// Partitions that are not polled because a stream brings them.
	streams map[TopicPartition]*catchUp
}

// place is where a Fetch goes, and for which partitions.
type place struct {
	address string
	group   int
}

// poll is a Fetch on its way.
type poll struct {
	asked  map[TopicPartition]int // with the generation
	cancel context.CancelFunc
}

func newFetcher(config *ConsumerConfig, c *cluster) *fetcher {
	ctx, cancel := context.WithCancelCause(context.Background())
	f := &fetcher{
		config: config, cluster: c, routes: newRoutes(config, c),
		ctx: ctx, cancel: cancel, ended: make(chan struct{}),
		wakeUp: make(chan struct{}, 1), events: make(chan func(), 64),
		polls: map[place]*poll{}, locating: map[TopicPartition]bool{}, alone: map[TopicPartition]int{},
		aheadSince: map[TopicPartition]time.Time{},
		streams:    map[TopicPartition]*catchUp{},
	}
	f.positions = &positions{config: config, cluster: c, routes: f.routes, groups: newGroups(c)}
	f.buffer = newFetchBuffer(config.MaxPartitionFetchBytes, c.leaders.id, f.wake)
	f.growth = &growth{leaders: c.leaders, buffer: f.buffer, inGroup: config.GroupID != ""}
	f.positions.beginsAtStart = f.growth.beginsAtStart
	go f.run()
	return f
}

func (f *fetcher) wake() {
	select {
	case f.wakeUp <- struct{}{}:
	default:
	}
}

func (f *fetcher) post(event func()) {
	select {
	case f.events <- event:
	case <-f.ended:
	}
}

func (f *fetcher) stop() {
	f.cancel(fail(ErrClientClosed, "the consumer is closed"))
	<-f.ended
}

func (f *fetcher) run() {
	defer close(f.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	metadata := time.NewTicker(f.config.MetadataMaxAge)
	defer metadata.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case event := <-f.events:
			event()
		case <-f.wakeUp:
		case <-timer.C:
		case <-metadata.C:
			f.refresh(f.cluster.leaders.topicNames())
		}
		if next := f.dispatch(time.Now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// --- groups and coordinators ----------------------------------------------------------

// dispatch starts polls where there is something to ask, and returns when to look again.
func (f *fetcher) dispatch(now time.Time) (next time.Time) {
	next = f.locateMissing(now)
	if !f.refreshing {
		f.refresh(f.routes.takeOutdated())
	}
	byPlace := map[place][]wanted{}
	lost := map[string]bool{}
	for _, w := range f.buffer.wanted() {
		if f.isStreamed(w) {
			continue
		}
		if readyAt := f.routes.readyAt(w.tp); readyAt.After(now) {
			next = sooner(next, readyAt)
			continue
		}
		if address := f.routes.address(w.tp); address == "" {
			lost[w.tp.Topic] = true
		} else {
			at := place{address, cmp.Or(f.alone[w.tp], w.group)}
			byPlace[at] = append(byPlace[at], w)
		}
	}
	for at, partitions := range byPlace {
		running := f.polls[at]
		if running != nil && running.covers(partitions) {
			continue
		}
		if running != nil {
			// A partition has room again, or was sought elsewhere: do not let it wait for the
			// poll that is on its way.
			running.cancel()
		}
		f.startPoll(at, partitions)
	}
	if len(lost) > 0 {
		topics := make([]string, 0, len(lost))
		for topic := range lost {
			topics = append(topics, topic)
		}
		f.refresh(topics)
		next = sooner(next, now.Add(50*ms))
	}
	return next
}

func (p *poll) covers(partitions []wanted) bool {
	for _, w := range partitions {
		if generation, ok := p.asked[w.tp]; !ok || generation != w.generation {
			return false
		}
	}
	return true
}

func (f *fetcher) refresh(topics []string) {
	if f.refreshing || len(topics) == 0 {
		return
	}
	f.refreshing = true
	go func() {
		err := f.cluster.refresh(f.ctx, topics) // without an answer it is asked again
		f.growth.take()
		f.post(func() {
			f.refreshing = false
			if errors.Is(err, ErrOtherCluster) {
				f.fail(topics, err)
			}
			f.checkTopics()
		})
	}()
}

// fail has the user's next poll return an error, once.
func (f *fetcher) fail(topics []string, err error) {
	for _, w := range f.buffer.wanted() {
		if slices.Contains(topics, w.tp.Topic) {
			f.buffer.fail(w.tp, w.generation, err)
		}
	}
}

// checkTopics looks whether a topic was deleted and created again: its offsets mean nothing there.
func (f *fetcher) checkTopics() {
	for w, id := range f.buffer.recreated() {
		f.growth.dropGone(w.tp.Topic)
		if _, there := f.cluster.leaders.leader(w.tp); there {
			f.beginAnew(w, id)
		} // else callers are told that there is none
	}
}

// beginAnew goes on where the group stands in the new topic, or else at its start.
func (f *fetcher) beginAnew(w wanted, id uint64) {
	delete(f.aheadSince, w.tp)
	f.growth.anew(w.tp)
	f.buffer.beginAnew(w, id)
}

// --- asking --------------------------------------------------------------------------

func (f *fetcher) startPoll(at place, partitions []wanted) {
	ctx, cancel := context.WithCancel(f.ctx)
	p := &poll{asked: map[TopicPartition]int{}, cancel: cancel}
	request := &pb.FetchRequest{
		MinBytes: int32(f.config.FetchMinBytes), MaxBytes: int32(f.config.FetchMaxBytes),
		MaxWaitMs: int32(min(f.config.FetchMaxWait, mostWait) / ms), AnyReplica: f.config.AnyReplica,
		Near: f.config.Rack != "",
	}
	for _, w := range partitions {
		p.asked[w.tp] = w.generation
		request.Partitions = append(request.Partitions, &pb.PartitionFetch{
			Topic: w.tp.Topic, Partition: w.tp.Partition, Offset: w.offset,
			MaxBytes: int32(f.config.MaxPartitionFetchBytes),
		})
	}
	f.polls[at] = p
	go func() {
		defer cancel()
		answer, err := f.fetch(ctx, at.address, request, partitions)
		f.post(func() {
			if f.polls[at] == p { // else it was given up
				delete(f.polls, at)
				f.polled(at.address, partitions, answer, err)
			}
		})
	}()
}

// fetch asks the node, unless it says nothing and another one leads by now. A node that hangs
// keeps its connections, so the request would time out first.
func (f *fetcher) fetch(ctx context.Context, address string, request *pb.FetchRequest, partitions []wanted) (*pb.FetchResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		limit := time.Duration(request.GetMaxWaitMs())*ms + lateBy
		for sleep(ctx, limit) == nil {
			limit = lateBy
			f.cluster.avoid(address)
			_ = f.cluster.refresh(ctx, topicsOf(partitions)) // it is asked again
			for _, w := range partitions {
				if f.routes.address(w.tp) != address || f.routes.isNear(w.tp, address) {
					cancel(fail(ErrUnavailable, "%s: silent, and no longer leads", address))
				}
			}
		}
	}()
	var answer *pb.FetchResponse
	err := f.cluster.callAt(ctx, address, f.config.RequestTimeout,
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			answer, err = pb.NewLogServiceClient(conn).Fetch(ctx, request)
			return err
		})
	if err == nil && len(answer.GetPartitions()) != len(partitions) {
		err = fail(ErrInternal, "the node gave %d answers to %d questions",
			len(answer.GetPartitions()), len(partitions))
	}
	return answer, err
}

func topicsOf(partitions []wanted) []string {
	seen := map[string]bool{}
	var topics []string
	for _, w := range partitions {
		if !seen[w.tp.Topic] {
			seen[w.tp.Topic] = true
			topics = append(topics, w.tp.Topic)
		}
	}
	return topics
}

func (f *fetcher) polled(address string, partitions []wanted, answer *pb.FetchResponse, err error) {
	for i, w := range partitions {
		switch {
		case err != nil && isRetriable(err):
			f.routes.failed(w.tp, address)
			if errors.Is(err, ErrOtherCluster) {
				f.buffer.fail(w.tp, w.generation, err)
			}
		case err != nil && len(partitions) > 1: // which of them is the cause?
			f.lastAlone--
			f.alone[w.tp] = f.lastAlone
		case err != nil:
			f.buffer.fail(w.tp, w.generation, err)
		default:
			f.took(address, w, answer.GetPartitions()[i])
		}
	}
}

func (f *fetcher) took(address string, w wanted, records *pb.PartitionRecords) {
	switch f.buffer.add(w, records) {
	case addedRefused:
		f.refused(w, records, address)
	case addedAnew:
		f.beginAnew(w, records.GetTopicId())
		f.refresh([]string{w.tp.Topic})
	case addedBehind:
		f.routes.failed(w.tp, address)
	case addedOK:
		f.routes.answered(w.tp, address)
		delete(f.aheadSince, w.tp)
		delete(f.alone, w.tp)
		if len(f.streams) < mostStreams && worthIt(f.config, records) {
			f.startStream(address, wanted{w.tp, w.group, endOffset(records), w.generation, ""})
		}
	}
}

func endOffset(records *pb.PartitionRecords) int64 {
	last := records.GetBatches()[len(records.GetBatches())-1]
	return last.GetBaseOffset() + int64(last.GetHeader().GetRecordCount())
}

func (f *fetcher) refused(w wanted, records *pb.PartitionRecords, address string) {
	switch problem := records.GetError(); {
	case problem == pb.PartitionError_PARTITION_ERROR_NOT_LEADER:
		f.routes.leadsElsewhere(w.tp, address, records.GetLeaderId(), records.GetLeaderAddress())
	case problem == pb.PartitionError_PARTITION_ERROR_NOT_READY:
		f.routes.failed(w.tp, address)
	case problem == pb.PartitionError_PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION:
		f.routes.failed(w.tp, address)
		go f.confirmUnknown(w)
	case problem == pb.PartitionError_PARTITION_ERROR_OFFSET_OUT_OF_RANGE:
		f.outOfRange(w, records, address)
	case f.routes.elsewhere(w.tp, address, problem):
		f.routes.failed(w.tp, address)
	default:
		f.buffer.fail(w.tp, w.generation, corrupt(w.tp, w.offset, "%s", partitionText(problem, records.GetMessage())))
	}
}

func partitionText(problem pb.PartitionError, message string) string {
	if message == "" {
		return problem.String()
	}
	return message
}

// confirmUnknown: a topic may vanish from one node's view for a moment; really gone is an error.
func (f *fetcher) confirmUnknown(w wanted) {
	err := f.cluster.requireTopic(f.ctx, w.tp.Topic, 5*time.Second)
	f.post(func() {
		f.checkTopics()
		if _, there := f.cluster.leaders.leader(w.tp); err == nil && !there {
			err = noPartition(w.tp)
		}
		if errors.Is(err, ErrUnknownTopicOrPartition) {
			f.growth.dropGone(w.tp.Topic)
			f.buffer.fail(w.tp, w.generation, err)
		}
	})
}

func (f *fetcher) outOfRange(w wanted, records *pb.PartitionRecords, address string) {
	ahead := w.offset > records.GetHighWatermark()
	if ahead && (f.buffer.read(w.tp) || f.config.AnyReplica || f.config.Rack != "") {
		// These records were read once, so they exist: the node lags, wait for it.
		since, ok := f.aheadSince[w.tp]
		if !ok {
			since = time.Now()
			f.aheadSince[w.tp] = since
			go func() { // or it is another topic of that name
				_ = f.cluster.refreshAt(f.ctx, address, w.tp.Topic)
				f.post(f.checkTopics)
			}()
		}
		if time.Since(since) < aheadGrace {
			f.routes.failed(w.tp, address)
			return
		}
	} else if f.config.AutoOffsetReset != NoReset {
		// The group's own offset would lead there again.
		f.buffer.reset(w, f.config.AutoOffsetReset)
		return
	}
	e := fail(ErrOffsetOutOfRange, "%s: offset %d is out of range, the log has %d to %d",
		w.tp, w.offset, records.GetLogStartOffset(), records.GetHighWatermark())
	e.Topic, e.Partition, e.Offset = w.tp.Topic, w.tp.Partition, w.offset
	e.LogStartOffset, e.HighWatermark = records.GetLogStartOffset(), records.GetHighWatermark()
	f.buffer.fail(w.tp, w.generation, e)
}

// --- positions -----------------------------------------------------------------------

// locateMissing finds out where to start partitions without a position, each as soon as it can be
// known, and returns when to look again.
func (f *fetcher) locateMissing(now time.Time) (next time.Time) {
	missing := map[TopicPartition]wanted{}
	for _, w := range f.buffer.withoutPosition() {
		if f.locating[w.tp] {
			continue
		}
		if readyAt := f.routes.readyAt(w.tp); readyAt.After(now) {
			next = sooner(next, readyAt)
			continue
		}
		f.locating[w.tp] = true
		missing[w.tp] = w
	}
	if len(missing) == 0 {
		return next
	}
	go func() {
		f.positions.start(f.ctx, missing, func(tp TopicPartition, offset int64, err error) {
			if err != nil {
				f.growth.dropGone(tp.Topic)
				f.buffer.fail(tp, missing[tp].generation, err)
			} else {
				f.buffer.found(tp, missing[tp].generation, offset)
			}
			f.wake()
		})
		f.post(func() {
			for tp := range missing {
				delete(f.locating, tp)
			}
		})
	}()
	return next
}
