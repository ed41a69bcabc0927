package oncelog

import (
	"testing"
	"time"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

func begun() *transaction { return newTransaction(7, 1, 0, time.Minute) }

func TestWhatBecomesOfATransaction(t *testing.T) {
	unavailable, incomplete := fail(ErrUnavailable, "lost"), fail(ErrCommitIncomplete, "less")
	committed, unknown := fail(ErrTransactionCommitted, "it was"), fail(ErrUnknownTransaction, "none")
	type answer struct {
		err  *Error
		next endCall
	}
	for name, c := range map[string]struct {
		first   endCall
		answers []answer
		state   TransactionState
		kind    *Kind
		outcome Outcome
	}{
		"committed": {commitCall, []answer{{nil, noCall}}, TransactionCommitted, nil, ""},
		"an answer was lost": {
			commitCall, []answer{{unavailable, commitCall}, {nil, noCall}}, TransactionCommitted, nil, "",
		},
		"refused, and an abort tells that it was decided": {
			commitCall, []answer{{unavailable, commitCall}, {incomplete, abortCall}, {committed, commitCall}, {nil, noCall}},
			TransactionCommitted, nil, "",
		},
		"refused": {
			commitCall, []answer{{incomplete, abortCall}, {nil, noCall}},
			TransactionAborted, ErrCommitIncomplete, NotStored,
		},
		"nobody knows it, and no call had a chance": {
			commitCall, []answer{{unknown, noCall}}, TransactionAborted, ErrTransactionAborted, NotStored,
		},
		"nobody knows it any more": {
			commitCall, []answer{{unavailable, commitCall}, {unknown, noCall}},
			TransactionUnknown, ErrUnknownTransaction, Unknown,
		},
		"aborted": {abortCall, []answer{{unknown, noCall}}, TransactionAborted, ErrTransactionAborted, NotStored},
	} {
		x := begun()
		call := x.end(c.first)
		for i, a := range c.answers {
			if call = x.answered(call, a.err); call != a.next {
				t.Errorf("%s: after answer %d comes %d, not %d", name, i, call, a.next)
			}
		}
		if x.now() != c.state {
			t.Errorf("%s: it is %s, not %s", name, x.now(), c.state)
		}
		if c.kind != nil && (x.err().Kind != c.kind || x.err().Outcome != c.outcome) {
			t.Errorf("%s: %v with outcome %s", name, x.err().Kind, x.err().Outcome)
		}
	}
}

func TestATransactionThatFailed(t *testing.T) {
	x := begun()
	x.fail(fail(ErrInvalidBatch, "first"))
	x.fail(fail(ErrInvalidBatch, "second"))
	if e := asError(x.checkOpen()); e.Kind != ErrTransactionAborted || e.cause.Error() != "first" {
		t.Errorf("who goes on is told %v", e)
	}
	y := begun()
	y.fail(fail(ErrFenced, "a successor"))
	if call := y.end(commitCall); call != abortCall {
		t.Errorf("what has failed is ended by call %d", call)
	}
	y.answered(abortCall, nil)
	if y.err().Kind != ErrFenced {
		t.Errorf("what ended the producer comes as %v", y.err().Kind)
	}
}

func TestSequencesOfAnAbortedTransactionAreFree(t *testing.T) {
	b := newBench(t)
	b.put()
	first, _ := b.send()
	b.answer(first, appended)
	x := newTransaction(9, b.current.producerID, 0, time.Minute)
	b.accumulator.resume(x)
	d := b.put()
	staged, message := b.send()
	if message.GetHeader().GetTransactionId() != 9 || message.GetHeader().GetBaseSequence() != 1 {
		t.Errorf("sent as %v", message.GetHeader())
	}
	b.answer(staged, verdict(pb.Verdict_VERDICT_STAGED))
	if m, err := d.outcome(); err != nil || m.Offset != -1 {
		t.Errorf("staged it is at %d, %v", m.Offset, err)
	}
	if run := x.commitRequest(nil).GetRuns()[0]; run.GetRecordCount() != 1 || run.GetLastSequence() != 1 {
		t.Errorf("the commit names %v", run)
	}
	refused := b.put()
	s, _ := b.send()
	b.answer(s, invalidly)
	if e := b.failed(refused); e.Outcome != NotStored || x.failed() == nil {
		t.Errorf("a refused record: %v, %v", e, x.failed())
	}
	b.window.rollBack(x)
	b.accumulator.dropTransaction()
	b.accumulator.resume(nil)
	b.put()
	if _, again := b.send(); again.GetHeader().GetBaseSequence() != 1 {
		t.Errorf("the next one has sequence %d", again.GetHeader().GetBaseSequence())
	}
}

func TestMembership(t *testing.T) {
	a, b := TopicPartition{"t", 0}, TopicPartition{"t", 1}
	m := newMembership()
	one := m.connect()
	if s := m.assignment(one, 2, map[TopicPartition]int64{a: 5, b: 5}, nil); len(s.assigned) != 2 {
		t.Errorf("given: %v", s)
	}
	s := m.assignment(one, 3, map[TopicPartition]int64{a: 9}, []TopicPartition{b})
	if len(s.lost) != 1 || s.lost[0] != a || len(s.revoked) != 1 || s.revoked[0] != b || s.assigned[a] != 9 {
		t.Errorf("another number, and one asked back: %v", s)
	}
	two := m.connect()
	if m.released(one, []TopicPartition{b}) || len(m.held()) != 2 {
		t.Error("given back on a connection that is over")
	}
	if !m.assignment(one, 4, nil, nil).isEmpty() {
		t.Error("an old connection's assignment")
	}
	m.assignment(two, 5, map[TopicPartition]int64{a: 9}, []TopicPartition{b})
	if !m.released(two, []TopicPartition{b}) || len(m.held()) != 1 {
		t.Error("not given back")
	}
	if lost := m.fenced(); len(lost) != 1 || m.epoch != 0 || len(m.held()) != 0 {
		t.Errorf("fenced: %v", lost)
	}
}

func TestNothingIsGivenOutWhileItIsHeld(t *testing.T) {
	buffer := newFetchBuffer(1000, func(string) uint64 { return 1 }, func() {})
	tp := TopicPartition{"t", 0}
	buffer.assign([]TopicPartition{tp})
	before := buffer.withoutPosition()[0]
	buffer.assign(nil)
	buffer.assign([]TopicPartition{tp})
	if buffer.found(tp, before.generation, 5); len(buffer.withoutPosition()) != 1 {
		t.Error("an answer for an earlier ownership was taken")
	}
	buffer.cursors[tp].chunks = []*chunk{{tp: tp}}
	buffer.turns = []TopicPartition{tp}
	for _, c := range []struct {
		from  time.Time
		given bool
	}{{time.Time{}, true}, {time.Now().Add(time.Hour), true}, {time.Now(), false}} {
		buffer.holdFrom(c.from)
		if first, _, _ := buffer.peek(true); (first != nil) != c.given {
			t.Errorf("held from %v: %v", c.from, first)
		}
	}
	buffer.holdFrom(time.Time{})
	buffer.interrupt(change{})
	if first, _, _ := buffer.peek(true); first != nil {
		t.Error("given out before what changes was looked at")
	}
}
