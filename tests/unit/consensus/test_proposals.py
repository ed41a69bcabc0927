"""A leader's appends in one round, and the order of its answers."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.consensus.leader_term import LeaderTerm
from cluster.consensus.port import NO_OP
from cluster.consensus.proposals import (
    MAX_SLICE_BYTES,
    Abandoned,
    Applied,
    Outcome,
    Proposals,
    Undecided,
)

NEVER = float("inf")
THIRD = bytes(MAX_SLICE_BYTES // 3)


def test_a_round_has_a_limit_and_what_waits_for_confirmation_keeps_its_place():
    """Before, 64 MiB that waited for an fsync were written at once, on the event loop."""
    proposals, done = Proposals(), list[str]()

    def waiter(name: str):
        def answered(outcome: Outcome) -> None:
            done.append(name)

        return answered

    for number in range(4):
        proposals.propose(THIRD, waiter(f"batch {number}"))
    proposals.confirm(waiter("confirmed"))
    first = proposals.take()
    assert [data for data, _, _ in first] == [THIRD] * 3
    proposals.propose(b"later", waiter("later"))
    second = proposals.take()
    assert [data for data, _, _ in second] == [THIRD, NO_OP, b"later"]
    assert not proposals.queued
    for _, answered, _ in first + second:
        answered(Applied(1, None))
    assert done == [*(f"batch {number}" for number in range(4)), "confirmed", "later"]


def test_one_proposal_may_be_larger_than_a_round():
    proposals = Proposals()
    for _ in range(2):
        proposals.propose(bytes(2 * MAX_SLICE_BYTES), lambda outcome: None)
    assert [len(proposals.take()) for _ in range(2)] == [1, 1]


def test_what_was_never_appended_is_lost_and_the_log_decides_on_what_was():
    proposals, told = Proposals(), dict[str, Outcome]()

    def waiter(name: str):
        return lambda outcome: told.__setitem__(name, outcome)

    proposals.propose(b"appended", waiter("appended"))
    proposals.propose(b"waits", waiter("waits"), outlives_term=True)
    for index, (_, answered, outlives_term) in enumerate(proposals.take(), 5):
        proposals.appending(index, answered, outlives_term=outlives_term)
    proposals.propose(b"queued", waiter("queued"), outlives_term=True)
    proposals.confirm(waiter("confirms"))
    kept = proposals.abandon(2, "deposed")
    unknown, lost = Abandoned(2, "deposed"), Abandoned(2, "deposed", lost=True)
    assert told == {"appended": unknown, "confirms": unknown, "queued": lost}
    assert [index for index, _ in kept] == [6]
    for term, name in ((7, "committed"), (8, "overwritten")):
        undecided = Undecided()
        undecided.add(6, 7, waiter(name), NEVER)
        undecided.applied(5, 7, b"another")
        assert name not in told
        undecided.applied(6, term, b"result")
        assert not undecided
    assert told["committed"] == Applied(6, b"result")
    assert isinstance(told["overwritten"], Abandoned) and told["overwritten"].lost


def test_callers_of_a_slice_whose_append_fails_are_all_answered():
    """Before, those behind the entry that failed waited for ever."""
    proposals, told = Proposals(), dict[bytes, Outcome]()

    def append(data: bytes, index: int, term: int) -> None:
        if data == b"2":
            raise OSError("a fault")
        journal.last_index = index

    journal = SimpleNamespace(last_index=4, append=append)
    for data in (b"1", b"2", b"3", b"4"):
        proposals.propose(data, partial(told.__setitem__, data))
    term: Any = SimpleNamespace(proposals=proposals, _journal=journal, term=7)
    with pytest.raises(OSError, match="a fault"):
        LeaderTerm._append_proposals(term)
    assert not told
    assert not proposals.abandon(0, "stopped")
    unknown, lost = Abandoned(0, "stopped"), Abandoned(0, "stopped", lost=True)
    assert told == {b"1": unknown, b"2": unknown, b"3": lost, b"4": lost}


def test_terms_that_wrote_to_the_same_index_are_told_apart():
    undecided, told = Undecided(), list[Outcome]()
    for term in (3, 5):
        undecided.add(6, term, told.append, NEVER)
    undecided.applied(6, 5, b"of term 5")
    assert [isinstance(one, Applied) for one in told] == [False, True]
    undecided.add(7, 5, told.append, NEVER)
    undecided.abandon(Abandoned(0, "restarted from a snapshot"))
    assert told[2] == Abandoned(0, "restarted from a snapshot") and not undecided


def test_a_later_terms_entry_decides_on_what_is_above_it():
    """The log may end there, so that nothing is ever applied at their indexes."""
    undecided, told = Undecided(), list[int]()

    def add(index: int, term: int) -> None:
        undecided.add(index, term, lambda outcome: told.append(10 * index + term), NEVER)

    for index, term in ((5, 3), (6, 3), (7, 3), (7, 4), (8, 5)):
        add(index, term)
    undecided.applied(4, 2, None)
    undecided.applied(5, 3, None)
    assert told == [53]
    undecided.applied(6, 4, None)
    assert told == [53, 63, 73] and undecided
    undecided.applied(7, 4, None)
    assert told == [53, 63, 73, 74] and undecided, "that of term 5 may commit"


def test_the_waits_of_a_term_end_though_later_terms_wait():
    """Before, each term that ended without an entry of its own prolonged all waits."""
    undecided, told = Undecided(), dict[int, Outcome]()
    for term, until in ((3, 60.0), (5, 70.0), (7, 130.0)):
        for index in (term, term + 1):
            undecided.add(index, term, partial(told.__setitem__, 10 * index + term), until)
    gone = Abandoned(0, "the log has not decided")
    for now, ended in ((59.0, []), (60.0, [33, 43]), (75.0, [33, 43, 55, 65])):
        undecided.end_waits(now, gone)
        assert list(told) == ended
    undecided.applied(7, 7, b"result")
    undecided.end_waits(130.0, gone)
    assert told[77] == Applied(7, b"result")
    assert [told.pop(key) for key in (33, 43, 55, 65, 87)] == [gone] * 5 and not undecided


class CountedTerm(int):
    """A term that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedTerm.compared += 1
        return int(self) < int(other)

    def __ge__(self, other: int) -> bool:
        CountedTerm.compared += 1
        return int(self) >= int(other)


@pytest.mark.parametrize("overwritten_from", [None, 0, 500])
def test_many_entries_of_a_deposed_leader_are_decided_on_in_one_pass(
    overwritten_from: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each applied entry looked at all that wait: many batches stopped the loop."""
    monkeypatch.setattr(CountedTerm, "compared", 0)
    undecided, told, count = Undecided(), list[Outcome](), 1000
    for index in range(count):
        undecided.add(index, CountedTerm(7), told.append, NEVER)
    for index in range(count):
        term = 7 if overwritten_from is None or index < overwritten_from else 8
        undecided.applied(index, term, None)
    applied = count if overwritten_from is None else overwritten_from
    assert [isinstance(one, Applied) for one in told] == [
        *[True] * applied, *[False] * (count - applied)
    ]  # fmt: skip
    assert not undecided
    assert CountedTerm.compared <= 4 * count
