package oncelog

import (
	"errors"
	"fmt"
)

// attempts are the failed attempts of a call that is repeated until its time is over. The last one is
// cut short by the deadline: its timeout must not hide a node's refusal.
type attempts struct {
	last    *Error
	telling *Error // the last one of those that tell the most
	inDoubt bool   // a node may have taken one of them
}

func (a *attempts) failed(err error) {
	e := asError(err)
	a.last = e
	a.inDoubt = a.inDoubt || e.mayHaveBeenDone()
	if a.telling == nil || e.rank() >= a.telling.rank() {
		a.telling = e
	}
}

// err returns the most telling error. Its outcome is unknown if an attempt had no answer.
func (a *attempts) err() error { return a.withDoubt(a.telling) }

// final returns an answer that ends the call, with the doubt of an attempt that had none: that one
// may have been done, and a final refusal speaks for the last attempt alone.
func (a *attempts) final(err error) error {
	var e *Error
	if !a.inDoubt || !errors.As(err, &e) || !e.told && e.Kind != ErrUnknownTopicOrPartition {
		return err
	}
	twin := *e
	twin.Message = e.Error() + "; an earlier attempt had no answer and may have taken effect"
	if e.Retriable() {
		twin.Outcome = Unknown
	}
	return &twin
}

// late returns the same behind this text: a timeout, if no node has said anything.
func (a *attempts) late(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if a.telling == nil {
		return fail(ErrRequestTimeout, "%s", text)
	}
	late := a.withDoubt(a.telling)
	late.Message = text + ": " + late.Error()
	if !a.telling.tells() {
		late.Kind = ErrRequestTimeout
	}
	return late
}

// withDoubt returns a copy of this error that names the last attempt, if that tells less.
func (a *attempts) withDoubt(e *Error) *Error {
	twin := *e
	if a.last != e && !a.last.tells() && a.last.Error() != e.Error() {
		twin.Message = e.Error() + "; the last attempt: " + a.last.Error()
	}
	if a.inDoubt && e.Retriable() {
		twin.Outcome = Unknown
	}
	return &twin
}

// mayHaveBeenDone reports whether a node may have executed a call that ended so.
func (e *Error) mayHaveBeenDone() bool {
	lost := e.Kind == ErrRequestTimeout || e.Kind == ErrUnavailable
	return lost && !e.unsent || e.Outcome == Unknown
}

// tells reports whether a node has said this: its refusal, or its view of the cluster.
func (e *Error) tells() bool { return e.rank() > 1 }

func (e *Error) rank() int {
	switch {
	case e.told || e.Kind != ErrRequestTimeout && e.Kind != ErrUnavailable:
		return 2
	case e.Kind == ErrUnavailable:
		return 1 // more than a deadline of our own
	}
	return 0
}

// obstacles are the reasons why a partition's batches were not stored since the last success. A
// node's refusal is not hidden by later failures: a lost connection, no answer.
type obstacles struct{ refusal, last string }

func (o *obstacles) met(text string, told bool) {
	if told {
		o.refusal = text
	}
	o.last = text
}

func (o *obstacles) String() string {
	if o.refusal == "" || o.refusal == o.last {
		return o.last
	}
	return o.refusal + "; " + o.last
}
