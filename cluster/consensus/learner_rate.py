"""Rate limit of this node's leaders for filling learners, in bytes a second over all groups.

    Replicator, SnapshotSender --sent--> LearnerRate --is_open--> Replicator

No commit waits for a learner, so a limit costs only time. Voters have no limit: one that is behind
may be needed for the next majority. Nor have learners that had all entries once: they stay, and
need what is new as soon as voters do.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.consensus.port import Clock

BURST = 0.25  # seconds for which an unused part of the limit is kept


class LearnerRate:
    """Rate limit. limit: bytes a second, now; 0: none."""

    def __init__(self, clock: Clock, limit: Callable[[], int]) -> None:
        self._clock = clock
        self._limit = limit
        self._left = 0.0
        self._at = clock()

    def is_open(self) -> bool:
        """Whether more may be sent. Bytes sent beyond the limit delay the next send."""
        limit, now = self._limit(), self._clock()
        earned, self._at = (now - self._at) * limit, now
        if limit == 0:
            self._left = 0.0  # bytes sent without a limit are not owed under the next one
            return True
        self._left = min(limit * BURST, self._left + earned)
        return self._left > 0

    def sent(self, size: int) -> None:
        self._left -= size


def unlimited() -> LearnerRate:
    return LearnerRate(lambda: 0.0, lambda: 0)
