"""Timers of open transactions: find those idle, or open, for too long. Pure.

    KeepAlive, commands --renew--> Timers --due--> abort, proposed by the metadata leader

Time is the leader's monotonic clock, passed in: no jump of a wall clock ends a transaction. Nothing
of it is replicated, and a new leader starts to count again. So an owner that keeps its transaction
alive never loses it to a change of leaders; an abandoned one is found at most one timeout later. An
overdue transaction is aborted by a command; the first of abort and commit in the log is the
decision.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import TransactionState


class Timers:
    """Times of the open transactions, as this leader knows them. Lives one leadership."""

    def __init__(self) -> None:
        # transaction -> (first seen, last sign of life)
        self._seen: dict[int, tuple[float, float]] = {}

    def renew(self, transaction_id: int, now: float) -> None:
        """Notes a sign of life of the owner."""
        first, _ = self._seen.get(transaction_id, (now, now))
        self._seen[transaction_id] = (first, now)

    def due(self, unfinished: Iterable[TransactionRow], now: float) -> list[TransactionRow]:
        """Returns the open transactions past their time; call it regularly."""
        seen, self._seen = self._seen, {}
        found = []
        for row in unfinished:
            if row.state is not TransactionState.OPEN:
                continue
            first, last = self._seen[row.transaction_id] = seen.get(row.transaction_id, (now, now))
            idle, total = (now - last) * 1000, (now - first) * 1000
            if idle >= row.idle_ms or total >= row.total_ms:
                found.append(row)
        return found
