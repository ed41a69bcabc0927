"""Proposals of a leader, and the callers that wait for them.

    propose, confirm --> Proposals --entries--> journal
    applied, leadership lost -----> Proposals --Outcome--> callers

Every caller is answered exactly once, even if the leadership ends. Most are answered at that
moment, and retry. A caller whose command must not run twice waits on in `Undecided`:

    leadership lost --appended entries--> Undecided --applied, or overwritten--> callers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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


# Data, its caller, and whether that outlives the term: see Group.propose.
Proposal = tuple[bytes, Done, bool]


class Proposals:
    """The proposals of one leader's term, before and after they are appended."""

    def __init__(self) -> None:
        self._queue: list[Proposal] = []
        self._confirming: list[Done] = []
        self._waiting: dict[int, Done] = {}
        self._outliving: set[int] = set()  # of the indexes in `_waiting`
        self.queued = False  # whether `take` would return something

    def propose(self, data: bytes, done: Done, *, outlives_term: bool = False) -> None:
        self._queue.append((data, done, outlives_term))
        self.queued = True

    def confirm(self, done: Done) -> None:
        self._confirming.append(done)
        self.queued = True

    def take(self) -> list[Proposal]:
        """Takes this slice's entries, in order; one no-op serves all waiting confirmations."""
        if self._confirming:
            waiting, self._confirming = self._confirming, []

            def confirmed(outcome: Outcome) -> None:
                for done in waiting:
                    done(outcome)

            self._queue.append((NO_OP, confirmed, False))
        count = size = 0
        for data, _, _ in self._queue[: MAX_SLICE_ENTRIES + 1]:
            size += len(data)
            if count and (size > MAX_SLICE_BYTES or count >= MAX_SLICE_ENTRIES):
                break
            count += 1
        queue, self._queue = self._queue[:count], self._queue[count:]
        self.queued = bool(self._queue)
        return queue

    def put_back(self, rest: Iterable[Proposal]) -> None:
        """Puts back those that were taken and never appended, as the first."""
        self._queue[:0] = rest

    def appending(self, index: int, done: Done, *, outlives_term: bool) -> None:
        assert index not in self._waiting
        self._waiting[index] = done
        if outlives_term:
            self._outliving.add(index)

    def applied(self, index: int, result: object) -> None:
        done = self._waiting.pop(index, None)
        if done is not None:
            self._outliving.discard(index)
            done(Applied(index, result))

    def abandon(self, leader_id: int, reason: str) -> list[tuple[int, Done]]:
        """Answers the callers; returns those of appended entries that outlive the term."""
        lost, unknown = Abandoned(leader_id, reason, lost=True), Abandoned(leader_id, reason)
        kept = [(index, self._waiting.pop(index)) for index in sorted(self._outliving)]
        answers = [(done, unknown) for done in self._waiting.values()]
        answers += [(done, lost) for _, done, _ in self._queue]
        answers += [(done, unknown) for done in self._confirming]
        self._waiting = {}
        self._outliving = set()
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
    Else they would wait for entries that may never come there. Where a majority is gone the log
    decides nothing, so the waits of each term have an end.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, Done]]] = {}
        self._oldest = 0  # no term of those that wait is lower
        self._ends: dict[int, float] = {}  # term -> when its waits end, by the group's clock

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, index: int, term: int, done: Done, until: float) -> None:
        self._ends.setdefault(term, until)
        self._oldest = min(self._oldest, term) if self._waiting else term
        self._waiting.setdefault(index, []).append((term, done))

    def applied(self, index: int, term: int, result: object) -> None:
        for own_term, done in self._waiting.pop(index, ()):
            if own_term == term:
                done(Applied(index, result))
            else:
                done(_OVERWRITTEN)
        if self._waiting and self._oldest < term:
            self._oldest = term
            self._answer_older(term, index, _OVERWRITTEN)

    def end_waits(self, now: float, outcome: Abandoned) -> None:
        """Answers those whose wait is over."""
        for term in [term for term, until in self._ends.items() if until <= now]:
            del self._ends[term]
            self._answer_older(term + 1, 0, outcome)

    def _answer_older(self, term: int, index: int, outcome: Abandoned) -> None:
        """Answers those of earlier terms above the index; looks at all, so once for each term."""
        for above in [one for one in self._waiting if one > index]:
            kept = [one for one in self._waiting[above] if one[0] >= term]
            ended = [done for own_term, done in self._waiting.pop(above) if own_term < term]
            if kept:
                self._waiting[above] = kept
            for done in ended:
                done(outcome)

    def abandon(self, outcome: Abandoned) -> None:
        ended, self._waiting = self._waiting, {}
        for waiting in ended.values():
            for _, done in waiting:
                done(outcome)
