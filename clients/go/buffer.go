package oncelog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// chunk is one stored batch, decoded when it is first looked at.
type chunk struct {
	tp         TopicPartition
	header     *pb.BatchHeader
	payload    []byte
	carried    bool // compaction made it: some of its records may be blanks
	base, end  int64
	next       atomic.Int64 // the user's place in it
	generation int
	decoded    *decoded // of the polling goroutine
}

// open decodes the batch. An error stays: nothing of the batch is ever skipped.
func (c *chunk) open(checkCRC bool) error {
	if c.decoded != nil {
		return nil
	}
	err := func() (err error) {
		if checkCRC && checksum(c.payload) != c.header.GetCrc32C() {
			return fail(ErrInvalidBatch, "checksum differs")
		}
		plain, err := decompress(c.header.GetCodec(), c.payload)
		if err != nil {
			return err
		}
		c.decoded, err = decodePayload(plain, int(c.header.GetRecordCount()))
		return err
	}()
	if err == nil {
		return nil
	}
	return corrupt(c.tp, c.base, "batch at offset %d: %v", c.base, err)
}

func corrupt(tp TopicPartition, offset int64, format string, args ...any) *Error {
	e := fail(ErrCorruptLog, "%s: "+format, append([]any{tp}, args...)...)
	e.Topic, e.Partition, e.Offset = tp.Topic, tp.Partition, offset
	return e
}

// take appends up to limit records from the user's place on, which passes over blanks.
func (c *chunk) take(into []Record, limit int) []Record {
	next := c.next.Load()
	for ; next < c.end; next++ {
		if c.carried && c.decoded.isBlank(int(next-c.base)) {
			continue
		}
		if limit == 0 {
			break
		}
		into = append(into, Record{Topic: c.tp.Topic, Partition: c.tp.Partition, Offset: next})
		c.decoded.record(int(next-c.base), &into[len(into)-1])
		limit--
	}
	c.next.Store(next)
	return into
}

const unknownPosition = -1

// cursor says where one partition stands.
type cursor struct {
	tp            TopicPartition
	group         int         // partitions of one group share a Fetch
	position      int64       // next offset for the user, at the start of the first chunk
	begin         OffsetReset // without a position: go there; "": as the group and the settings say
	fetchOffset   int64       // next offset to ask for
	generation    int         // rises with each seek
	chunks        []*chunk
	buffered      int
	highWatermark int64
	paused        bool
	err           error  // returned when the chunks are taken
	refusedAt     int64  // a fetch ahead here was out of range; it is asked again without chunks
	topicID       uint64 // of the topic that it reads; 0: not known yet
	// The position was reached by reading, so the records before it did exist.
	byReading bool
}

// hasRoom reports whether to fetch more for the partition.
func (c *cursor) hasRoom(limit int) bool {
	return c.buffered < limit && (len(c.chunks) == 0 || c.fetchOffset != c.refusedAt)
}

// wanted is a partition's next position to fetch.
type wanted struct {
	tp         TopicPartition
	group      int
	offset     int64
	generation int
	begin      OffsetReset
}

type added int

const (
	addedOK      added = iota
	addedStale         // the user has gone elsewhere, or takes the records before an error first
	addedRefused       // the answer carries an error; nothing was added
	addedAnew          // it is of another topic of the same name; nothing was added
	addedBehind        // the node has not heard of that yet; nothing was added
)

// fetchBuffer holds fetched records that are not yet taken. The fetcher fills it, the user empties
// it. Batches of a partition follow each other without a hole, an answer to a question from before
// a seek is thrown away, and records come before an error or a reset behind them.
type fetchBuffer struct {
	partitionBytes int
	onRoom         func()
	topicID        func(topic string) uint64 // as far as is known, else 0

	mu      sync.Mutex
	cursors map[TopicPartition]*cursor
	turns   []TopicPartition // partitions with chunks, in turn
	failed  []TopicPartition // those with an error, in turn; and some without one by now
	closed  bool
	changed chan struct{} // closed and made anew with each change
	// Of cursors and seeks: never given twice, so that no answer is taken for another's.
	generations int
	// Work of the user's goroutine before it gets more records: changes of its partitions.
	interruptions []change
	// From this time on nothing is given out: the group may have gone on without; zero: never.
	heldFrom time.Time
	// When the user last came back for records, and whether he waits for some.
	cameBack time.Time
	waits    bool
}

func newFetchBuffer(partitionBytes int, topicID func(string) uint64, onRoom func()) *fetchBuffer {
	return &fetchBuffer{
		partitionBytes: partitionBytes, onRoom: onRoom, topicID: topicID,
		cursors: map[TopicPartition]*cursor{}, changed: make(chan struct{}), cameBack: time.Now(),
	}
}

func (b *fetchBuffer) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// --- the user's side -----------------------------------------------------------------

// assign: read exactly these; those that are kept keep their place.
func (b *fetchBuffer) assign(tps []TopicPartition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.cursors
	b.cursors = map[TopicPartition]*cursor{}
	for i, tp := range tps {
		if b.cursors[tp] = old[tp]; old[tp] == nil {
			b.generations++
			b.cursors[tp] = &cursor{
				tp: tp, position: unknownPosition, highWatermark: -1, generation: b.generations,
				topicID: b.topicID(tp.Topic),
			}
		}
		b.cursors[tp].group = i / mostFetched
	}
	b.turns = slices.DeleteFunc(b.turns, func(tp TopicPartition) bool { return b.cursors[tp] == nil })
	b.notify()
}

func (b *fetchBuffer) assignment() []TopicPartition {
	b.mu.Lock()
	defer b.mu.Unlock()
	tps := make([]TopicPartition, 0, len(b.cursors))
	for tp := range b.cursors {
		tps = append(tps, tp)
	}
	return tps
}

func (b *fetchBuffer) assigned(tp TopicPartition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cursors[tp] == nil {
		return invalid("partition", "%s is not assigned", tp)
	}
	return nil
}

// seek goes on at offset.
func (b *fetchBuffer) seek(tp TopicPartition, offset int64) { b.goTo(tp, 0, offset, "") }

// seekTo goes where the log begins or ends or, with "", where the group and the settings say, when
// the leader can be asked.
func (b *fetchBuffer) seekTo(tp TopicPartition, place OffsetReset) {
	b.goTo(tp, 0, unknownPosition, place)
}

// reset goes there after an answer to w; a seek in the meantime wins.
func (b *fetchBuffer) reset(w wanted, place OffsetReset) {
	b.goTo(w.tp, w.generation, unknownPosition, place)
}

// goTo does nothing after a seek since that generation; 0: any.
func (b *fetchBuffer) goTo(tp TopicPartition, since int, offset int64, begin OffsetReset) {
	b.mu.Lock()
	if c := b.cursors[tp]; c != nil && (since == 0 || c.generation == since) {
		b.generations++
		c.generation = b.generations
		c.position, c.fetchOffset, c.begin = offset, max(offset, 0), begin
		c.chunks, c.buffered, c.err, c.byReading = nil, 0, nil, false
		b.turns = slices.DeleteFunc(b.turns, func(other TopicPartition) bool { return other == tp })
		b.notify()
	}
	b.mu.Unlock()
	b.onRoom()
}

// found: the start position was found out; a seek in the meantime wins.
func (b *fetchBuffer) found(tp TopicPartition, generation int, offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.cursors[tp]; c != nil && c.generation == generation && c.position == unknownPosition {
		c.position, c.fetchOffset = offset, offset
		b.notify()
	}
}

// fail has the user's next call return this, once.
func (b *fetchBuffer) fail(tp TopicPartition, generation int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.cursors[tp]; c != nil && c.generation == generation {
		b.failCursor(c, err)
	}
}

func (b *fetchBuffer) failCursor(c *cursor, err error) {
	c.err = err
	b.failed = append(b.failed, c.tp)
	b.notify()
}

// takeError returns the first error whose partition has no records before it.
func (b *fetchBuffer) takeError() error {
	b.failed = slices.DeleteFunc(b.failed, func(tp TopicPartition) bool {
		c := b.cursors[tp]
		return c == nil || c.err == nil
	})
	for i, tp := range b.failed {
		if c := b.cursors[tp]; len(c.chunks) == 0 {
			b.failed = slices.Delete(b.failed, i, i+1)
			err := c.err
			c.err = nil
			b.onRoom()
			return err
		}
	}
	return nil
}

// peek returns the oldest chunk of the partition that is next; nil if there is none, and then the
// signal to wait for. An error comes first; with mayFail false it stays where it is.
func (b *fetchBuffer) peek(mayFail bool) (*chunk, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, fail(ErrClientClosed, "the consumer is closed")
	}
	if len(b.interruptions) > 0 {
		return nil, closedChannel, nil
	}
	if mayFail {
		if err := b.takeError(); err != nil {
			return nil, nil, err
		}
	}
	if b.heldFrom.IsZero() || time.Now().Before(b.heldFrom) {
		for _, tp := range b.turns {
			if c := b.cursors[tp]; !c.paused {
				return c.chunks[0], nil, nil
			}
		}
	}
	return nil, b.changed, nil
}

var closedChannel = func() chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// comesBack: the user asks for records, and waits for them or does not any more.
func (b *fetchBuffer) comesBack(waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cameBack, b.waits = time.Now(), waits
}

// idle returns for how long the user has not come back for records.
func (b *fetchBuffer) idle() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits {
		return 0
	}
	return time.Since(b.cameBack)
}

// interrupt has the user's goroutine look at this before it is given more records.
func (b *fetchBuffer) interrupt(c change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interruptions = append(b.interruptions, c)
	b.notify()
}

// interruption returns the next work of the user's goroutine, if there is some.
func (b *fetchBuffer) interruption() (c change, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.interruptions) == 0 {
		return change{}, false
	}
	c, b.interruptions = b.interruptions[0], b.interruptions[1:]
	return c, true
}

// holdFrom gives out nothing from that time on, unless it is put off.
func (b *fetchBuffer) holdFrom(moment time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heldFrom = moment
	b.notify()
}

// forgetGroup: it was not joined after all; its answers in the meantime mean nothing.
func (b *fetchBuffer) forgetGroup() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interruptions, b.heldFrom = nil, time.Time{}
	b.notify()
}

// advance: the user has moved chunk.next.
func (b *fetchBuffer) advance(taken *chunk) {
	if taken.next.Load() < taken.end {
		return
	}
	b.mu.Lock()
	c := b.cursors[taken.tp]
	if c == nil || c.generation != taken.generation || len(c.chunks) == 0 || c.chunks[0] != taken {
		b.mu.Unlock()
		return
	}
	hadRoom := c.hasRoom(b.partitionBytes)
	c.chunks = c.chunks[1:]
	c.position, c.byReading = taken.end, true
	c.buffered -= len(taken.payload)
	b.turns = slices.DeleteFunc(b.turns, func(tp TopicPartition) bool { return tp == taken.tp })
	if len(c.chunks) > 0 {
		b.turns = append(b.turns, taken.tp)
	}
	room := !hadRoom && c.hasRoom(b.partitionBytes)
	if room {
		b.notify()
	}
	b.mu.Unlock()
	if room {
		b.onRoom()
	}
}

// place returns the user's place; unknownPosition also for unassigned partitions.
func (b *fetchBuffer) place(tp TopicPartition) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.cursors[tp]
	switch {
	case c == nil:
		return unknownPosition
	case len(c.chunks) > 0:
		return c.chunks[0].next.Load()
	default:
		return c.position
	}
}

// position returns the user's place, or unknownPosition and the signal to wait for. It takes the
// error of a start that is not known.
func (b *fetchBuffer) position(tp TopicPartition) (int64, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.cursors[tp]
	if c == nil {
		return 0, nil, invalid("partition", "%s is not assigned", tp)
	}
	if c.err != nil && c.position == unknownPosition {
		err := c.err
		c.err = nil
		b.onRoom()
		return 0, nil, err
	}
	if len(c.chunks) > 0 {
		return c.chunks[0].next.Load(), nil, nil
	}
	return c.position, b.changed, nil
}

func (b *fetchBuffer) paused() (tps []TopicPartition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tp, c := range b.cursors {
		if c.paused {
			tps = append(tps, tp)
		}
	}
	return tps
}

func (b *fetchBuffer) pause(tp TopicPartition, paused bool) {
	b.mu.Lock()
	if c := b.cursors[tp]; c != nil {
		c.paused = paused
		b.notify()
	}
	b.mu.Unlock()
	b.onRoom()
}

func (b *fetchBuffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.notify()
}

// --- the fetcher's side --------------------------------------------------------------

// withoutPosition returns the partitions without a known start.
func (b *fetchBuffer) withoutPosition() (missing []wanted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.cursors {
		if c.position == unknownPosition && c.err == nil {
			missing = append(missing, wanted{c.tp, c.group, 0, c.generation, c.begin})
		}
	}
	return missing
}

// wanted returns the partitions to fetch now: position known, room in the buffer.
func (b *fetchBuffer) wanted() (all []wanted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.cursors {
		if c.position != unknownPosition && c.err == nil && !c.paused && c.hasRoom(b.partitionBytes) {
			all = append(all, wanted{c.tp, c.group, c.fetchOffset, c.generation, c.begin})
		}
	}
	return all
}

// awaitRoom reports whether to read on as wanted, when there is room.
func (b *fetchBuffer) awaitRoom(ctx context.Context, w wanted) bool {
	for {
		b.mu.Lock()
		c := b.cursors[w.tp]
		gone := b.closed || c == nil || c.generation != w.generation || c.paused || c.err != nil
		room := !gone && c.hasRoom(b.partitionBytes)
		changed := b.changed
		b.mu.Unlock()
		if gone || room {
			return room
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// recreated returns the partitions of topics that were created anew under the same name, with the
// new id.
func (b *fetchBuffer) recreated() map[wanted]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[wanted]uint64{}
	for tp, c := range b.cursors {
		id := b.topicID(tp.Topic)
		if c.topicID != 0 && c.topicID < id {
			found[wanted{tp, c.group, c.fetchOffset, c.generation, c.begin}] = id
		}
		c.topicID = max(c.topicID, id)
	}
	return found
}

// beginAnew: the topic has this id by now. Positions in the former one do not apply.
func (b *fetchBuffer) beginAnew(w wanted, id uint64) {
	b.mu.Lock()
	if c := b.cursors[w.tp]; c != nil {
		c.topicID = max(c.topicID, id)
	}
	b.mu.Unlock()
	b.reset(w, "")
}

// read reports whether the partition's position was reached by reading.
func (b *fetchBuffer) read(tp TopicPartition) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.cursors[tp]
	return c != nil && c.byReading
}

// add takes over one partition's answer.
func (b *fetchBuffer) add(w wanted, answer *pb.PartitionRecords) added {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.cursors[w.tp]
	if c == nil || c.generation != w.generation {
		return addedStale
	}
	switch id := answer.GetTopicId(); {
	case id != 0 && id < c.topicID: // ids only rise
		return addedBehind
	case answer.GetError() == pb.PartitionError_PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION:
		return addedRefused
	case c.topicID != 0 && id > c.topicID:
		return addedAnew
	case answer.GetError() == pb.PartitionError_PARTITION_ERROR_OFFSET_OUT_OF_RANGE && len(c.chunks) > 0:
		c.refusedAt = w.offset
		return addedStale
	case answer.GetError() != pb.PartitionError_PARTITION_ERROR_NONE:
		return addedRefused
	}
	c.topicID = max(c.topicID, answer.GetTopicId())
	c.highWatermark = max(c.highWatermark, answer.GetHighWatermark())
	if w.offset != c.fetchOffset {
		return addedStale // another answer has already brought these
	}
	for _, stored := range answer.GetBatches() {
		base := stored.GetBaseOffset()
		end := base + int64(stored.GetHeader().GetRecordCount())
		at := c.fetchOffset
		// It may begin before the position: batches are sent whole, and may have been cut anew.
		if base > at || end <= at {
			b.failCursor(c, corrupt(w.tp, at, "after offset %d came a batch with offsets %d to %d", at-1, base, end-1))
			break
		}
		fresh := &chunk{
			tp: w.tp, header: stored.GetHeader(), payload: stored.GetPayload(),
			carried: stored.GetCarried(), base: base, end: end, generation: c.generation,
		}
		fresh.next.Store(at)
		c.chunks = append(c.chunks, fresh)
		c.buffered += len(stored.GetPayload())
		c.fetchOffset = end
	}
	if len(c.chunks) > 0 && !slices.Contains(b.turns, w.tp) {
		b.turns = append(b.turns, w.tp)
		b.notify()
	}
	return addedOK
}
