"""Leader's check of a staged batch before it proposes it. Lives one leadership. Pure.

Like `cluster.dedup.in_flight`, for runs: it lays the proposed, unapplied batches over the applied
table. So a producer can pipeline, and a repeat joins its original. Its verdict is early, not final:
apply decides, and a refusal is checked against the applied state again. It may refuse too often,
but never lets a batch overtake another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import (
    BatchMeta,
    Kind,
    Verdict,
    conflict,
    out_of_order,
    same_content,
)
from cluster.transactions.runs import RunTable


class _PendingBatch:
    """A proposed batch. `counts`: no batch before it in its run was refused."""

    __slots__ = ("counts", "meta", "token", "transaction_id")

    def __init__(self, token: Hashable, meta: BatchMeta, transaction_id: int) -> None:
        self.token = token
        self.meta = meta
        self.transaction_id = transaction_id
        self.counts = True


class StagedInFlight:
    """State of each run once its proposed batches are applied."""

    def __init__(self, runs: RunTable) -> None:
        self._runs = runs
        self._pending: deque[_PendingBatch] = deque()
        self._ahead: dict[int, list[_PendingBatch]] = {}  # by producer id; only batches that count

    def __len__(self) -> int:
        return len(self._pending)

    def has(self, producer_id: int) -> bool:
        """Whether batches of the producer are in flight."""
        return producer_id in self._ahead

    def last_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Returns the last sequence in flight of the producer's epoch; None: none is."""
        ahead = self._ahead.get(producer_id)
        return ahead[-1].meta.last if ahead and ahead[-1].meta.epoch == epoch else None

    def check(
        self, meta: BatchMeta, transaction_id: int, last_seen: LastSeen, *, new_in_flight: int
    ) -> Verdict:
        """Returns the verdict on a batch after everything in flight; changes nothing.

        JOINED if it repeats one in flight.
        """
        applied = self._runs.check(meta, transaction_id, last_seen, new_in_flight=new_in_flight)
        ahead = self._ahead.get(meta.producer_id)
        if ahead is None:
            return applied
        newest = ahead[-1]
        if newest.transaction_id != transaction_id or newest.meta.epoch != meta.epoch:
            if applied.kind is not Kind.STAGED:
                return applied
            text = f"batches of transaction {newest.transaction_id} are on their way"
            return Verdict(Kind.TRANSACTION_CONFLICT, message=text)
        if applied.kind not in (Kind.STAGED, Kind.OUT_OF_ORDER, Kind.UNKNOWN_PRODUCER):
            return applied
        if meta.prev == newest.meta.last:
            return Verdict(Kind.STAGED)
        for pending in ahead:
            if (pending.meta.first, pending.meta.last) == (meta.first, meta.last):
                if same_content(pending.meta, meta):
                    return Verdict(Kind.JOINED, token=pending.token)
                return conflict(meta, newest.meta.last)
        text = f"prev_sequence: {meta.prev}; the last one in flight is {newest.meta.last}"
        return out_of_order(newest.meta.last, meta.epoch, text)

    def add(self, meta: BatchMeta, transaction_id: int, token: Hashable) -> None:
        """Adds a proposed batch, right after its verdict STAGED. `token` stands for it."""
        pending = _PendingBatch(token, meta, transaction_id)
        self._pending.append(pending)
        self._ahead.setdefault(meta.producer_id, []).append(pending)

    def applied(self, token: Hashable, accepted: bool) -> None:
        """Removes the oldest proposal, which was applied."""
        pending = self._pending.popleft()
        assert pending.token == token, "proposals are applied in the order they were made"
        if not pending.counts:
            return
        ahead = self._ahead[pending.meta.producer_id]
        assert ahead[0] is pending
        if accepted:
            del ahead[0]
            if not ahead:
                del self._ahead[pending.meta.producer_id]
        else:
            self._drop(pending.meta.producer_id)

    def ended(self, transaction_id: int) -> None:
        """Notes a marker: the transaction's batches in flight will be refused."""
        for producer_id, ahead in list(self._ahead.items()):
            if ahead[-1].transaction_id == transaction_id:
                self._drop(producer_id)

    def _drop(self, producer_id: int) -> None:
        for pending in self._ahead.pop(producer_id):
            pending.counts = False
