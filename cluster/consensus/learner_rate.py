"""How fast this node's leaders fill learners, all of them together: a limit in bytes a second.

    Replicator, SnapshotSender --sent--> LearnerRate --is_open--> Replicator

Nothing that counts waits for a learner, so that a limit costs nothing but time. Voters have none:
one that is behind may be needed for the next majority.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.consensus.port import Clock

BURST = 0.25  # seconds: what was not used of the limit is kept for so long


class LearnerRate:
    """limit: bytes a second, now; 0: none."""

    def __init__(self, clock: Clock, limit: Callable[[], int]) -> None:
        self._clock, self._limit = clock, limit
        self._left, self._at = 0.0, clock()

    def is_open(self) -> bool:
        """Whether more may be sent. What was sent beyond the limit is waited for."""
        limit, now = self._limit(), self._clock()
        earned, self._at = (now - self._at) * limit, now
        if limit == 0:
            self._left = 0.0  # what was sent without a limit is not owed under the next one
            return True
        self._left = min(limit * BURST, self._left + earned)
        return self._left > 0

    def sent(self, size: int) -> None:
        self._left -= size


def unlimited() -> LearnerRate:
    return LearnerRate(lambda: 0.0, lambda: 0)
