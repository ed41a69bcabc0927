"""Proposals of a leader, and the callers that wait for them.

    propose, confirm --> Proposals --entries--> journal
    applied, leadership lost -----> Proposals --Outcome--> callers

Every caller is answered exactly once, even if the leadership ends. Most are answered at that
moment, and retry. A caller whose command must not run twice waits on in `Undecided`:

    leadership lost --appended entries--> Undecided --applied, or overwritten--> callers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cluster.consensus.port import NO_OP

# Bytes of one group's proposals in one slice of a round; more goes to the next.
MAX_SLICE_BYTES = 2 * 1024 * 1024
MAX_SLICE_ENTRIES = 256


@dataclass(slots=True)
class Applied:
    """The proposal is committed and applied here; `result` is apply's result."""

    index: int
    result: object


@dataclass(slots=True)
class Abandoned:
    """This node no longer knows the outcome: the entry may commit or not.

    lost: it knows that the entry never commits, so the caller may propose it again.
    """

    leader_id: int
    reason: str
    lost: bool = False


_OVERWRITTEN = Abandoned(0, "another leader's entry took its place", lost=True)
Outcome = Applied | Abandoned
Done = Callable[[Outcome], None]


class Waiting(NamedTuple):
    """The caller of an appended entry; `outlives_term`: see Group.propose."""

    done: Done
    outlives_term: bool


class Proposals:
    """The proposals of one leader's term, before and after they are appended."""

    def __init__(self) -> None:
        self._queue: list[tuple[bytes, Waiting]] = []
        self._confirming: list[Done] = []
        self._waiting: dict[int, Waiting] = {}
        self.queued = False  # whether `take` would return something

    def propose(self, data: bytes, done: Done, *, outlives_term: bool = False) -> None:
        self._queue.append((data, Waiting(done, outlives_term)))
        self.queued = True

    def confirm(self, done: Done) -> None:
        self._confirming.append(done)
        self.queued = True

    def take(self) -> list[tuple[bytes, Waiting]]:
        """Takes this slice's entries, in order; one no-op serves all waiting confirmations."""
        if self._confirming:
            waiting, self._confirming = self._confirming, []

            def confirmed(outcome: Outcome) -> None:
                for done in waiting:
                    done(outcome)

            self._queue.append((NO_OP, Waiting(confirmed, outlives_term=False)))
        count = size = 0
        for data, _ in self._queue[: MAX_SLICE_ENTRIES + 1]:
            size += len(data)
            if count and (size > MAX_SLICE_BYTES or count >= MAX_SLICE_ENTRIES):
                break
            count += 1
        queue, self._queue = self._queue[:count], self._queue[count:]
        self.queued = bool(self._queue)
        return queue

    def appended(self, index: int, waiting: Waiting) -> None:
        assert index not in self._waiting
        self._waiting[index] = waiting

    def applied(self, index: int, result: object) -> None:
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            waiting.done(Applied(index, result))

    def abandon(self, leader_id: int, reason: str) -> list[tuple[int, Done]]:
        """Answers the callers; returns those of appended entries that outlive the term."""
        lost, unknown = Abandoned(leader_id, reason, lost=True), Abandoned(leader_id, reason)
        kept = [(index, one.done) for index, one in self._waiting.items() if one.outlives_term]
        answers = [(one.done, unknown) for one in self._waiting.values() if not one.outlives_term]
        answers += [(one.done, lost) for _, one in self._queue]
        answers += [(done, unknown) for done in self._confirming]
        self._waiting = {}
        self._queue = []
        self._confirming = []
        self.queued = False
        for done, outcome in answers:
            done(outcome)
        return kept


class Undecided:
    """Callers of entries that this node appended as the leader of terms that have ended.

    The log decides at the entry's index: it is applied, or an entry of another term is. The entry
    is known by index and term, since this node's later terms may write to the same index. An entry
    of a later term decides on all of earlier terms above it, too: terms never fall along a log.
    Else they would wait for entries that may never come there.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, Done]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, index: int, term: int, done: Done) -> None:
        self._waiting.setdefault(index, []).append((term, done))

    def applied(self, index: int, term: int, result: object) -> None:
        for own_term, done in self._waiting.pop(index, ()):
            if own_term == term:
                done(Applied(index, result))
            else:
                done(_OVERWRITTEN)
        for above in [one for one in self._waiting if one > index]:
            kept = [one for one in self._waiting[above] if one[0] >= term]
            lost = [done for own_term, done in self._waiting.pop(above) if own_term < term]
            if kept:
                self._waiting[above] = kept
            for done in lost:
                done(_OVERWRITTEN)

    def abandon(self, outcome: Abandoned) -> None:
        ended, self._waiting = self._waiting, {}
        for waiting in ended.values():
            for _, done in waiting:
                done(outcome)
