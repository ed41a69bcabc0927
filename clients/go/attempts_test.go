package oncelog

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func failedWith(errs ...error) *attempts {
	a := &attempts{}
	for _, err := range errs {
		a.failed(err)
	}
	return a
}

func toldBy(node *Error) *Error {
	node.told = true
	return node
}

func TestATimeoutHidesNoRefusal(t *testing.T) {
	timeout := fail(ErrRequestTimeout, "n1: too late")
	refusal := toldBy(fail(ErrNotLeader, "not here"))
	refusal.LeaderID, refusal.LeaderAddress = 2, "n2"
	told := asError(failedWith(refusal, timeout).err())
	if told.Kind != ErrNotLeader || told.LeaderID != 2 || told.LeaderAddress != "n2" {
		t.Errorf("%v with leader %d at %q", told.Kind, told.LeaderID, told.LeaderAddress)
	}
	if told.Message != "not here; the last attempt: n1: too late" || told.Outcome != Unknown {
		t.Errorf("%q, outcome %q", told.Message, told.Outcome)
	}
	if refusal.Message != "not here" || refusal.Outcome != "" {
		t.Error("the attempt's own error has changed")
	}
	earlier := asError(failedWith(timeout, toldBy(fail(ErrNotReady, "wait"))).err())
	if earlier.Kind != ErrNotReady || earlier.Message != "wait" || earlier.Outcome != Unknown {
		t.Errorf("%v %q, outcome %q", earlier.Kind, earlier.Message, earlier.Outcome)
	}
	sure := asError(failedWith(refusal, fail(ErrNotReady, "no leader")).err())
	if sure.Kind != ErrNotReady || sure.Outcome != "" {
		t.Errorf("%v, outcome %q: no attempt is in doubt", sure.Kind, sure.Outcome)
	}
}

func TestAFinalAnswerSpeaksForTheLastAttemptAlone(t *testing.T) {
	timeout := fail(ErrRequestTimeout, "n1: too late")
	gone := toldBy(fail(ErrUnknownTopicOrPartition, "no such topic"))
	if err := failedWith(toldBy(fail(ErrNotReady, "wait"))).final(gone); asError(err) != gone {
		t.Errorf("%v: no attempt is in doubt", err)
	}
	if told := asError(failedWith(timeout).final(gone)); told.Outcome != Unknown || gone.Outcome != "" {
		t.Errorf("%v, outcome %q", told, told.Outcome)
	}
	exists := toldBy(fail(ErrTopicAlreadyExists, "there is one"))
	told := failedWith(timeout).final(exists)
	if !errors.Is(told, ErrTopicAlreadyExists) ||
		told.Error() != "there is one; an earlier attempt had no answer and may have taken effect" {
		t.Error(told)
	}
	if err := failedWith(timeout).final(nil); err != nil {
		t.Error(err)
	}
	if err := failedWith(timeout).final(context.Canceled); err != context.Canceled {
		t.Error(err)
	}
}

func TestALostConnectionTellsMoreThanATimeout(t *testing.T) {
	timeout := fail(ErrRequestTimeout, "n1: too late")
	lost := fail(ErrUnavailable, "n1: refused")
	if err := failedWith(lost, timeout).err(); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	if err := failedWith(lost, timeout).late("no metadata"); !errors.Is(err, ErrRequestTimeout) {
		t.Errorf("no node has said anything: %v", err)
	}
	majority := toldBy(fail(ErrUnavailable, "no majority"))
	err := asError(failedWith(majority, lost, timeout).late("no metadata"))
	if err.Kind != ErrUnavailable || err.Message != "no metadata: no majority; the last attempt: n1: too late" {
		t.Errorf("%v %q", err.Kind, err.Message)
	}
}

func TestACallThatWasNotSentLeavesNoDoubt(t *testing.T) {
	unsent := fromRPC(t.Context(), "n1:1", status.Error(codes.Unavailable, noConnection+`: refused"`))
	if failedWith(unsent).inDoubt || failedWith(failedWith(unsent).late("no metadata")).inDoubt {
		t.Error(unsent)
	}
	proxy := fromRPC(t.Context(), "n1:1", status.Error(codes.Unavailable, "a proxy: "+noConnection))
	if !failedWith(proxy).inDoubt {
		t.Error("a text that tells of another connection")
	}
}

func TestARecordIsToldTheRefusalAndWhatCameAfterIt(t *testing.T) {
	var o obstacles
	o.met("n1: no answer yet", false)
	o.met("n1: STORAGE_FULL", true)
	if o.String() != "n1: STORAGE_FULL" {
		t.Error(o.String())
	}
	o.met("n1: gone", false)
	if o.String() != "n1: STORAGE_FULL; n1: gone" {
		t.Error(o.String())
	}
}
