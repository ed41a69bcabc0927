"""Proposals of a leader, and the callers that wait for them.

    propose, confirm --> Proposals --entries--> journal
    applied, leadership lost -----> Proposals --Outcome--> callers

Every caller is answered exactly once, even if the leadership ends.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """This node no longer knows the outcome: the entry may commit or not."""

    leader_id: int
    reason: str


Outcome = Applied | Abandoned
Done = Callable[[Outcome], None]


class Proposals:
    """The proposals of one leader's term, before and after they are appended."""

    def __init__(self) -> None:
        self._queue: list[tuple[bytes, Done]] = []
        self._confirming: list[Done] = []
        self._waiting: dict[int, Done] = {}
        self.queued = False  # whether `take` would return something

    def propose(self, data: bytes, done: Done) -> None:
        self._queue.append((data, done))
        self.queued = True

    def confirm(self, done: Done) -> None:
        self._confirming.append(done)
        self.queued = True

    def take(self) -> list[tuple[bytes, Done]]:
        """Takes this slice's entries, in order; one no-op serves all waiting confirmations."""
        if self._confirming:
            waiting, self._confirming = self._confirming, []

            def confirmed(outcome: Outcome) -> None:
                for done in waiting:
                    done(outcome)

            self._queue.append((NO_OP, confirmed))
        count = size = 0
        for data, _ in self._queue[: MAX_SLICE_ENTRIES + 1]:
            size += len(data)
            if count and (size > MAX_SLICE_BYTES or count >= MAX_SLICE_ENTRIES):
                break
            count += 1
        queue, self._queue = self._queue[:count], self._queue[count:]
        self.queued = bool(self._queue)
        return queue

    def appended(self, index: int, done: Done) -> None:
        assert index not in self._waiting
        self._waiting[index] = done

    def applied(self, index: int, result: object) -> None:
        done = self._waiting.pop(index, None)
        if done is not None:
            done(Applied(index, result))

    def abandon(self, outcome: Abandoned) -> None:
        waiting = [*self._waiting.values(), *(done for _, done in self._queue), *self._confirming]
        self._waiting = {}
        self._queue = []
        self._confirming = []
        self.queued = False
        for done in waiting:
            done(outcome)
