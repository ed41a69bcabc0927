package oncelog

import (
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// identity is the right to write as (producerID, epoch). serial rises with each new one.
type identity struct {
	producerID int64
	epoch      int32
	serial     int
	renewAt    time.Time // when to get the next one
	expireAt   time.Time
	leaseToken []byte // proves it to a partition that does not know it yet
	provesEach bool   // nodes may know the caller: then each batch proves its owner
}

var never = time.Unix(1<<40, 0)

var noIdentity = &identity{renewAt: never, expireAt: never}

// sealedPayload is a batch's payload as it is sent. It outlives a change of sequences.
type sealedPayload struct {
	data         []byte
	crc          uint32
	maxTimestamp int64
}

// sealedBatch is a batch on its way. Sent batches never change; the rest is the state of
// its sending.
type sealedBatch struct {
	batch                                    *openBatch
	baseSequence, lastSequence, prevSequence int64
	header                                   *pb.BatchHeader
	leaseToken                               []byte
	deadline                                 time.Time
	attempts                                 int
	attemptID                                uint64 // 0: no attempt with an awaited answer
	sentAt, firstSentAt                      time.Time
	ambiguous                                bool // some attempt ended without an answer that tells its outcome,
	unanswered                               bool // or without any answer from the node in its time
	sentAsHead                               bool // all before it was acknowledged when it was last sent
	refused                                  bool // answered OUT_OF_ORDER while an earlier batch was being retried
	acked                                    bool
	// Its records have failed (delivery timeout), but it holds the chain for successors.
	abandoned bool
}

func (s *sealedBatch) size() int { return len(s.batch.payload.data) + len(s.leaseToken) + 100 }

// message returns an attempt to be sent: the same each time but for the id.
func (s *sealedBatch) message(attemptID uint64) *pb.Batch {
	return &pb.Batch{
		Header: s.header, Payload: s.batch.payload.data, Id: attemptID, LeaseToken: s.leaseToken,
	}
}

// encode makes the batch's payload, once.
func (b *openBatch) encode(c *compressor) error {
	if b.payload != nil {
		return nil
	}
	plain, err := b.columns.encode()
	if err != nil {
		return err
	}
	data, err := c.compress(plain)
	if err != nil {
		return err
	}
	b.payload = &sealedPayload{data, checksum(data), b.columns.maxTimestamp()}
	b.columns.reset()
	columnPool.Put(b.columns)
	b.columns = nil
	return nil
}

// seal numbers a batch; prev is the last sequence before it.
func seal(b *openBatch, id *identity, prev int64, deadline time.Time, c *compressor) (*sealedBatch, error) {
	if err := b.encode(c); err != nil {
		return nil, err
	}
	s := &sealedBatch{
		batch: b, deadline: deadline, baseSequence: -1, lastSequence: -1, prevSequence: prev,
		header: &pb.BatchHeader{
			Topic: b.lane.tp.Topic, Partition: b.lane.tp.Partition, RecordCount: int32(b.count),
			Codec: c.codec, Crc32C: b.payload.crc, MaxTimestampUs: b.payload.maxTimestamp,
		},
	}
	if b.expectedOffset >= 0 {
		s.header.ExpectedOffset = &b.expectedOffset
	}
	if b.transaction != nil {
		s.header.TransactionId = b.transaction.id
	}
	if id.producerID != 0 {
		counted := prev + int64(b.count)
		s.baseSequence, s.lastSequence = prev+1, counted
		if b.sequences != nil {
			s.baseSequence, s.lastSequence = b.sequences[0], b.sequences[len(b.sequences)-1]
		}
		s.header.ProducerId, s.header.Epoch = id.producerID, id.epoch
		s.header.BaseSequence = s.baseSequence
		if s.lastSequence != s.baseSequence+int64(b.count)-1 {
			s.header.LastSequence = &s.lastSequence
		}
		if prev != s.baseSequence-1 {
			s.header.PrevSequence = &s.prevSequence
		}
		if prev == -1 || id.provesEach {
			s.leaseToken = id.leaseToken
		}
	}
	b.delivery.stamp.Store(&stamp{id.producerID, id.epoch, s.baseSequence})
	return s, nil
}
