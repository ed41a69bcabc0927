"""When an open transaction has been idle, or open, for too long. Lives one leadership. Pure.

    KeepAlive, commands --renew--> Timers --due--> abort, proposed by the metadata leader

Time is the leader's monotonic clock, passed in: no jump of a wall clock ends a transaction.
A new leader counts anew, so an owner that keeps its transaction alive never loses it to a
change of leaders, and one that is gone is found at most once more later. Nothing of it is
replicated. Who is due is aborted by a command, and whichever comes first in the log, that
or the commit, is the decision.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.transactions.transaction import Transaction
from cluster.transactions.types import State


class Timers:
    """What this leader knows of the open transactions' time."""

    def __init__(self) -> None:
        # transaction -> (first seen, last sign of life)
        self._seen: dict[int, tuple[float, float]] = {}

    def renew(self, transaction_id: int, now: float) -> None:
        """The owner is alive."""
        first, _ = self._seen.get(transaction_id, (now, now))
        self._seen[transaction_id] = (first, now)

    def due(self, unfinished: Iterable[Transaction], now: float) -> list[Transaction]:
        """The open transactions whose time is over; to be asked regularly."""
        seen, self._seen = self._seen, {}
        found = []
        for row in unfinished:
            if row.state is not State.OPEN:
                continue
            first, last = self._seen[row.transaction_id] = seen.get(row.transaction_id, (now, now))
            idle, total = (now - last) * 1000, (now - first) * 1000
            if idle >= row.idle_ms or total >= row.total_ms:
                found.append(row)
        return found
