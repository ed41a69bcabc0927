"""The leader's view: its verdicts equal those of the map once everything in flight is applied.

The model here is the applied state with the proposals played on top, computed again each time; a
repeat of a batch in flight is JOINED to it. Apply may also reject proposals for a reason that the
leader did not see.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cluster.dedup.in_flight import InFlight
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import BatchMeta, Kind
from tests.unit.dedup.test_verdict_model import KNOWN, answer_of, batches, meta_of
from tests.unit.dedup.verdict_model import Batch, Model

CRC = 77


def batch(pid: int, epoch: int, first: int, last: int, prev: int, x: int = -1) -> BatchMeta:
    return BatchMeta(pid, epoch, first, last, prev, last - first + 1, CRC, x)


class Leader:
    """A map, the batches in flight over it, and the log between the two."""

    def __init__(self, capacity: int = 1000) -> None:
        self.last_seen = LastSeen(capacity=capacity)
        self.in_flight = InFlight(self.last_seen)
        self.next_offset = 0
        self.log: deque[tuple[int, BatchMeta]] = deque()
        self.tokens = 0

    def send(self, meta: BatchMeta) -> tuple[Kind, int]:
        """(verdict, its token or base offset)."""
        verdict = self.in_flight.check(meta, next_offset_applied=self.next_offset)
        if verdict.kind is Kind.APPENDED:
            self.tokens += 1
            self.in_flight.add(meta, self.tokens)
            self.log.append((self.tokens, meta))
            return verdict.kind, self.tokens
        if verdict.kind is Kind.JOINED:
            return verdict.kind, verdict.token
        return verdict.kind, verdict.base_offset

    def apply(self, count: int = 1) -> None:
        for _ in range(count):
            token, meta = self.log.popleft()
            verdict = self.last_seen.check(meta, next_offset=self.next_offset)
            if verdict.kind is Kind.APPENDED:
                self.last_seen.record(meta, self.next_offset, 0)
                self.next_offset += meta.count
            self.in_flight.applied(token, verdict.kind is Kind.APPENDED)


def test_a_producer_pipelines_and_repeats_are_joined() -> None:
    leader = Leader()
    sent = [batch(7, 0, first, first + 9, first - 1) for first in range(0, 200, 10)]
    tokens = [leader.send(meta)[1] for meta in sent]
    assert len(leader.in_flight) == 20 and leader.in_flight.next_offset == 200
    # At any depth, not only for the last five.
    assert [leader.send(meta) for meta in sent] == [(Kind.JOINED, t) for t in tokens]
    leader.apply(15)
    # Five are still known with their offset, five are older, and five in flight.
    stored = [(Kind.DUPLICATE, -1)] * 10 + [(Kind.DUPLICATE, o) for o in range(100, 150, 10)]
    joined = [(Kind.JOINED, t) for t in tokens[15:]]
    assert [leader.send(meta) for meta in sent] == stored + joined


@pytest.mark.parametrize(
    ("meta", "kind"),
    [
        (batch(7, 0, 10, 19, 9)._replace(crc=1), Kind.SEQUENCE_CONFLICT),
        (batch(7, 0, 10, 19, 9)._replace(count=9), Kind.SEQUENCE_CONFLICT),
        (batch(7, 0, 10, 14, 9), Kind.OUT_OF_ORDER),
        (batch(7, 0, 0, 19, -1), Kind.OUT_OF_ORDER),
        (batch(7, 0, 5, 14, 4), Kind.OUT_OF_ORDER),
        (batch(7, 0, 15, 24, 14), Kind.OUT_OF_ORDER),
        (batch(7, 0, 30, 39, 29), Kind.OUT_OF_ORDER),
        (batch(7, 0, 20, 29, 19), Kind.APPENDED),
        (batch(7, 1, 0, 9, -1), Kind.APPENDED),
        (batch(7, 1, 20, 29, 19), Kind.OUT_OF_ORDER),
        (batch(8, 0, 0, 9, -1), Kind.APPENDED),
        (batch(8, 0, 10, 19, 9), Kind.UNKNOWN_PRODUCER),
        (batch(7, 0, 20, 29, 19, x=20), Kind.APPENDED),
        (batch(7, 0, 20, 29, 19, x=10), Kind.OFFSET_MISMATCH),
        (batch(0, 0, 0, 0, -1, x=20), Kind.APPENDED),
        (batch(0, 0, 0, 0, -1, x=0), Kind.OFFSET_MISMATCH),
        (batch(7, 0, 10, 19, 9, x=3), Kind.JOINED),
    ],
)
def test_against_two_batches_in_flight(meta: BatchMeta, kind: Kind) -> None:
    leader = Leader()
    leader.send(batch(7, 0, 0, 9, -1))
    leader.send(batch(7, 0, 10, 19, 9))
    assert leader.send(meta)[0] is kind


def test_a_higher_epoch_in_flight_fences() -> None:
    leader = Leader()
    leader.send(batch(7, 0, 0, 9, -1))
    leader.apply()
    leader.send(batch(7, 3, 0, 4, -1))
    verdict = leader.in_flight.check(batch(7, 2, 0, 9, -1), next_offset_applied=10)
    assert verdict.kind is Kind.FENCED and verdict.current_epoch == 3
    # The same base sequence in two epochs: each its own batch.
    assert leader.send(batch(7, 3, 0, 4, -1))[0] is Kind.JOINED
    assert leader.send(batch(7, 0, 0, 9, -1))[0] is Kind.FENCED


def test_an_open_in_flight_fences_and_hands_over() -> None:
    leader = Leader()
    leader.send(batch(7, 0, 0, 9, -1))
    opened = leader.in_flight.check_open(7, 1)
    assert (opened.kind, opened.last_sequence) == (Kind.APPENDED, 9)
    leader.in_flight.add_open(7, 1, "open")
    assert leader.in_flight.check_open(7, 0).kind is Kind.FENCED
    assert leader.send(batch(7, 0, 10, 19, 9))[0] is Kind.FENCED
    assert leader.send(batch(7, 1, 5, 9, 4))[0] is Kind.OUT_OF_ORDER
    assert leader.send(batch(7, 1, 10, 19, 9))[0] is Kind.APPENDED
    assert leader.send(batch(7, 1, 0, 9, -1))[0] is Kind.OUT_OF_ORDER


def test_what_is_stored_under_another_epoch_is_no_original() -> None:
    leader = Leader()
    leader.send(batch(7, 0, 0, 19, -1))
    leader.apply()
    leader.send(batch(7, 1, 0, 9, -1))
    assert leader.send(batch(7, 1, 0, 4, -1))[0] is Kind.OUT_OF_ORDER
    leader = Leader()
    leader.send(batch(7, 0, 0, 19, -1))
    leader.apply()
    leader.last_seen.open(7, 1, 0)
    assert leader.send(batch(7, 1, 20, 29, 19))[0] is Kind.APPENDED
    # It went on, so it can neither begin again nor repeat its predecessor.
    assert leader.send(batch(7, 1, 0, 4, -1))[0] is Kind.OUT_OF_ORDER
    assert leader.send(batch(7, 1, 0, 19, -1))[0] is Kind.OUT_OF_ORDER
    assert leader.send(batch(7, 1, 20, 29, 19))[0] is Kind.JOINED


def test_the_last_sequence_told_counts_what_is_in_flight() -> None:
    leader = Leader()
    leader.send(batch(7, 0, 0, 9, -1))
    leader.apply()
    leader.send(batch(7, 0, 10, 19, 9))
    for other in (batch(7, 0, 0, 9, -1)._replace(crc=1), batch(7, 0, 0, 4, -1)):
        verdict = leader.in_flight.check(other, next_offset_applied=10)
        assert verdict.kind in (Kind.SEQUENCE_CONFLICT, Kind.OUT_OF_ORDER)
        assert verdict.last_sequence == 19


def test_an_open_repeated_in_flight_opens_once() -> None:
    leader = Leader()
    leader.in_flight.add_open(7, 1, "open")
    leader.send(batch(7, 1, 0, 9, -1))
    leader.in_flight.add_open(7, 1, "again")
    assert leader.send(batch(7, 1, 0, 4, -1))[0] is Kind.OUT_OF_ORDER
    assert leader.send(batch(7, 1, 10, 19, 9))[0] is Kind.APPENDED


def test_a_rejected_proposal_takes_its_successors_along() -> None:
    leader = Leader()
    sent = [batch(7, 0, first, first + 9, first - 1) for first in (0, 10, 20)]
    other = batch(8, 0, 0, 4, -1)
    tokens = [leader.send(meta)[1] for meta in [sent[0], other, *sent[1:]]]
    leader.log.popleft()
    leader.in_flight.applied(tokens[0], accepted=False)
    # Two of the three that are left are lost; only the second producer's counts.
    assert leader.in_flight.next_offset == 5
    assert leader.send(sent[1])[0] is Kind.UNKNOWN_PRODUCER
    assert leader.send(other) == (Kind.JOINED, tokens[1])
    again = leader.send(sent[0])
    assert again[0] is Kind.APPENDED
    leader.apply(4)
    assert leader.next_offset == leader.in_flight.next_offset == 15
    assert len(leader.in_flight) == 0
    assert leader.send(sent[0]) == (Kind.DUPLICATE, 5)


def test_a_full_map_counts_new_producers_in_flight() -> None:
    leader = Leader(capacity=2)
    assert leader.send(batch(1, 0, 0, 9, -1))[0] is Kind.APPENDED
    assert leader.send(batch(2, 0, 0, 9, -1))[0] is Kind.APPENDED
    refused = leader.in_flight.check(batch(3, 0, 0, 9, -1), next_offset_applied=0)
    assert refused.kind is Kind.THROTTLED and "2 producers" in refused.message
    assert leader.in_flight.check_open(3, 0).kind is Kind.THROTTLED
    leader.apply(2)
    assert leader.send(batch(3, 0, 0, 9, -1))[0] is Kind.THROTTLED
    assert leader.send(batch(1, 0, 10, 19, 9))[0] is Kind.APPENDED
    # Apply must not depend on a node's own limit.
    assert leader.last_seen.check(batch(3, 0, 0, 9, -1), next_offset=0).kind is Kind.APPENDED


def test_fifty_conditional_writes_for_one_offset() -> None:
    leader = Leader()
    leader.send(batch(0, 0, 0, 6, -1))
    answers = [leader.send(batch(pid, 0, 0, 0, -1, x=7))[0] for pid in range(1, 51)]
    assert answers == [Kind.APPENDED] + [Kind.OFFSET_MISMATCH] * 49
    leader.apply(2)
    assert leader.send(batch(60, 0, 0, 0, -1, x=8))[0] is Kind.APPENDED


def test_the_callers_offset_counts_when_nothing_is_in_flight() -> None:
    in_flight = InFlight(LastSeen(), next_offset=3)
    assert in_flight.next_offset == 3
    nobody = batch(0, 0, 0, 1, -1, x=40)
    assert in_flight.check(nobody, next_offset_applied=40).kind is Kind.APPENDED
    in_flight.add(nobody, 1)
    # A caller whose log has applied it before `applied` reports it is not counted twice.
    verdict = in_flight.check(nobody._replace(expected_offset=-1), next_offset_applied=42)
    assert verdict.base_offset == in_flight.next_offset == 42
    in_flight.applied(1, accepted=True)
    assert in_flight.next_offset == 42


def test_proposals_are_applied_in_order() -> None:
    leader = Leader()
    leader.send(batch(1, 0, 0, 9, -1))
    leader.send(batch(2, 0, 0, 9, -1))
    with pytest.raises(AssertionError, match="order"):
        leader.in_flight.applied(2, accepted=True)


@dataclass
class Proposal:
    token: int
    batch: Batch | None
    pid: int = 0
    epoch: int = 0


class InFlightMachine(RuleBasedStateMachine):
    """A leader that pipelines, with a model of applying in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = 0
        self.log: deque[Proposal] = deque()
        self.sent: list[Batch] = []
        self.start(1000)

    @initialize(capacity=st.sampled_from([2, 1000]))
    def start(self, capacity: int) -> None:
        self.last_seen = LastSeen(capacity=capacity)
        self.in_flight = InFlight(self.last_seen)
        self.model = Model(capacity)

    def ahead(self) -> Model:
        """The model with all proposals played, the ones that fail left out."""
        model = self.model.copy()
        self.doomed = set()
        for p in self.log:
            if p.batch is None:
                ok = model.open_verdict(p.pid, p.epoch, True)[0] == "APPENDED"
                if ok:
                    model.open(p.pid, p.epoch, True)
            else:
                ok = model.verdict(p.batch)[0] == "APPENDED"
                if ok:
                    model.append(p.batch, in_flight=True)
            if not ok:
                self.doomed.add(p.token)
        return model

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        model = self.ahead()
        b = data.draw(batches(model, self.sent, wide=False), label="batch")
        self.sent.append(b)
        meta = meta_of(b)
        verdict = self.in_flight.check(meta, next_offset_applied=self.model.next_offset)
        expected = model.verdict(b)
        if expected[0] == "JOINED":
            assert verdict.kind is Kind.JOINED
            [original] = [p for p in self.log if p.token == verdict.token]
            assert original.batch is not None
            o = original.batch
            assert (o.pid, o.epoch, o.first, o.last) == (b.pid, b.epoch, b.first, b.last)
        else:
            assert answer_of(verdict) == expected
        if verdict.kind is Kind.APPENDED:
            self.tokens += 1
            self.in_flight.add(meta, self.tokens)
            self.log.append(Proposal(self.tokens, b))

    @rule(pid=KNOWN, up=st.sampled_from([1, 1, 0, -1]))
    def open(self, pid: int, up: int) -> None:
        model = self.ahead()
        known = model.producers.get(pid)
        epoch = max(0, (known.epoch if known else 0) + up)
        expected = model.open_verdict(pid, epoch, True)
        verdict = self.in_flight.check_open(pid, epoch)
        assert verdict.kind.name == expected[0]
        if verdict.kind is Kind.APPENDED:
            assert verdict.last_sequence == expected[1]
            self.tokens += 1
            self.in_flight.add_open(pid, epoch, self.tokens)
            self.log.append(Proposal(self.tokens, None, pid, epoch))

    @precondition(lambda self: self.log)
    @rule(rejected=st.sampled_from([False, False, False, False, True]))
    def apply(self, rejected: bool) -> None:
        self.ahead()
        p = self.log.popleft()
        accepted = not rejected
        if p.batch is None:
            if accepted:
                accepted = self.last_seen.open(p.pid, p.epoch, 0).kind is Kind.APPENDED
            if accepted:
                self.model.open(p.pid, p.epoch, True)
        else:
            at = self.model.next_offset
            meta = meta_of(p.batch)
            verdict = self.last_seen.check(meta, next_offset=at)
            accepted = accepted and verdict.kind is Kind.APPENDED
            if accepted:
                self.last_seen.record(meta, at, 0)
                self.model.append(p.batch)
        if not rejected:
            assert accepted == (p.token not in self.doomed)
        self.in_flight.applied(p.token, accepted)

    @rule()
    def lose_leadership(self) -> None:
        self.in_flight = InFlight(self.last_seen, next_offset=self.model.next_offset)
        self.log.clear()

    @invariant()
    def the_offset_counts_what_is_in_flight(self) -> None:
        assert self.in_flight.next_offset == self.ahead().next_offset
        assert len(self.in_flight) == len(self.log)


def test_in_flight_equals_applying_in_order() -> None:
    run_state_machine_as_test(
        InFlightMachine, settings=settings(max_examples=150, stateful_step_count=40)
    )
