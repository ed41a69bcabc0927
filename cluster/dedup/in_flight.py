"""Leader's check of a batch before it proposes it.

`InFlight` lays the batches that a leader has proposed and not yet applied over the last-seen map.
So a batch can be refused, or joined to the proposal it repeats, before it costs an entry, and a
producer can pipeline. The verdict is early, not final: apply decides.

    Leadership -> InFlight.check -> Raft -> LastSeen.advance
                                            LastSeen.check
                                            LastSeen.record
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import (
    BatchMeta,
    Kind,
    KnownProducer,
    Verdict,
    admit,
    conflict,
    fenced,
    judge,
    out_of_order,
    rebuilt,
    same_content,
)

_APPENDED = Kind.APPENDED


class _PendingEntry:
    """A proposed entry: a batch, or an open (`meta` is None)."""

    __slots__ = ("doomed", "epoch", "meta", "pin", "producer_id", "token")

    def __init__(
        self,
        token: Hashable,
        producer_id: int,
        epoch: int,
        meta: BatchMeta | None = None,
        pin: bool = False,
    ) -> None:
        self.token = token
        self.producer_id = producer_id
        self.epoch = epoch
        self.meta = meta
        self.pin = pin
        # An earlier proposal was rejected, so this one will be, too: it waits
        # for its turn in `applied` but counts for nothing.
        self.doomed = False


class _Ahead:
    """State of a producer once its proposed entries are applied."""

    __slots__ = ("entries", "epoch", "last_sequence", "new", "opened")

    def __init__(self, epoch: int, last_sequence: int, opened: bool, new: bool) -> None:
        self.epoch = epoch
        self.last_sequence = last_sequence
        self.opened = opened
        self.new = new  # the map does not know this producer id yet
        self.entries = 0

    def open(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.opened = True

    def append(self, meta: BatchMeta) -> None:
        self.epoch = meta.epoch
        self.opened = False
        self.last_sequence = meta.last


class InFlight:
    """Leader's view: the applied map with the proposals of its term on top.

    Entries leave in the order in which they were added. The verdicts equal those that the map gives
    once everything in flight is applied, with one difference: a repeat of a batch in flight is
    JOINED to it. An entry that takes offsets without a producer counts as a batch of producer 0.
    The caller bounds the number in flight.
    """

    def __init__(self, last_seen: LastSeen, *, next_offset: int = 0) -> None:
        self._map = last_seen
        self._pending: deque[_PendingEntry] = deque()
        self._ahead: dict[int, _Ahead] = {}
        # (producer id, epoch, first, last) of each batch in flight
        self._batches: dict[tuple[int, int, int, int], _PendingEntry] = {}
        self._applied_next = next_offset
        self._records = 0
        self._new_producers = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def next_offset(self) -> int:
        """The offset after everything in flight."""
        return self._applied_next + self._records

    @property
    def new_producers(self) -> int:
        """Producers in flight that the map does not know yet."""
        return self._new_producers

    def has(self, producer_id: int) -> bool:
        """Whether batches or opens of the producer are in flight."""
        return producer_id in self._ahead

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Returns the sequence that continues the producer's chain of that epoch; 0: none is."""
        ahead = self._ahead.get(producer_id)
        if ahead is None:
            return self._map.next_sequence(producer_id, epoch)
        return ahead.last_sequence + 1 if ahead.epoch == epoch and not ahead.opened else 0

    def published(self, records: int) -> None:
        """Notes that records took offsets without having been in flight here."""
        self._applied_next += records

    def check(self, meta: BatchMeta, *, next_offset_applied: int) -> Verdict:
        """Returns the verdict on `meta` after everything in flight; changes nothing.

        `next_offset_applied` is the offset after the applied batches, without those in flight.
        THROTTLED if the map is full and the producer new.
        """
        if not self._pending:
            # With proposals in flight the caller may be ahead of `applied`.
            self._applied_next = next_offset_applied
        next_offset = self._applied_next + self._records
        ahead = self._ahead.get(meta.producer_id)
        if ahead is None:
            return self._map.check(meta, next_offset=next_offset, new_in_flight=self._new_producers)
        if meta.prev != ahead.last_sequence or meta.epoch != ahead.epoch or ahead.opened:
            refusal = self._judge_ahead(ahead, meta)
            if refusal is not None:
                return refusal
        return admit(meta, next_offset)

    def _judge_ahead(self, ahead: _Ahead, meta: BatchMeta) -> Verdict | None:
        last_sequence = ahead.last_sequence
        if meta.epoch != ahead.epoch or ahead.opened or meta.last > last_sequence:
            # None of these rows looks at the chain below its last sequence.
            return judge(KnownProducer(ahead.epoch, last_sequence, ahead.opened, -1, ()), meta)
        original = self._batches.get((meta.producer_id, meta.epoch, meta.first, meta.last))
        if original is not None and original.meta is not None:
            if same_content(original.meta, meta):
                text = rebuilt(original.meta, meta)
                return Verdict(Kind.JOINED, message=text, token=original.token)
            return conflict(meta, last_sequence)
        # Not in flight. Only batches stored by the same epoch can be repeated.
        stored = self._map.known(meta.producer_id)
        if (
            stored is not None
            and stored.epoch == meta.epoch
            and not stored.opened
            and meta.last <= stored.last_sequence
        ):
            return judge(stored._replace(last_sequence=last_sequence), meta)
        return out_of_order(
            last_sequence,
            ahead.epoch,
            f"sequences {meta.first}..{meta.last} are not a batch as it was sent;"
            f" the last one in flight is {last_sequence}",
        )

    def check_open(self, producer_id: int, epoch: int, *, pin: bool = True) -> Verdict:
        """Returns the verdict on an open after everything in flight; see `LastSeen.open`."""
        ahead = self._ahead.get(producer_id)
        if ahead is None:
            return self._map.check_open(
                producer_id, epoch, pin=pin, new_in_flight=self._new_producers
            )
        if epoch < ahead.epoch:
            return fenced(epoch, ahead.epoch)
        return Verdict(_APPENDED, current_epoch=epoch, last_sequence=ahead.last_sequence)

    def add(self, meta: BatchMeta, token: Hashable) -> None:
        """Adds a proposed batch, right after `check` said APPENDED.

        `token` stands for the proposal; a duplicate is JOINED to it.
        """
        pending = _PendingEntry(token, meta.producer_id, meta.epoch, meta)
        self._pending.append(pending)
        self._track(pending)

    def add_open(self, producer_id: int, epoch: int, token: Hashable, *, pin: bool = True) -> None:
        """Adds a proposed open, right after `check_open` said APPENDED."""
        pending = _PendingEntry(token, producer_id, epoch, None, pin)
        self._pending.append(pending)
        self._track(pending)

    def _track(self, pending: _PendingEntry) -> None:
        meta = pending.meta
        if meta is not None:
            self._records += meta.count
        pid = pending.producer_id
        if pid == 0:
            return
        ahead = self._ahead.get(pid)
        if ahead is None:
            ahead = self._ahead[pid] = self._start(pid)
        ahead.entries += 1
        if meta is None:
            ahead.open(pending.epoch)
        else:
            ahead.append(meta)
            self._batches[pid, meta.epoch, meta.first, meta.last] = pending

    def _start(self, producer_id: int) -> _Ahead:
        known = self._map.known(producer_id)
        if known is None:
            self._new_producers += 1
            return _Ahead(-1, -1, False, True)
        return _Ahead(known.epoch, known.last_sequence, known.opened, False)

    def applied(self, token: Hashable, accepted: bool) -> None:
        """Removes the oldest proposal, which was applied; the map already shows its effect.

        `accepted` is False if apply rejected it. Proposals that built on it will be rejected as
        well and no longer count.
        """
        pending = self._pending.popleft()
        assert pending.token == token, "proposals are applied in the order they were made"
        meta = pending.meta
        if accepted and meta is not None:
            self._applied_next += meta.count
        if accepted == pending.doomed:
            self._rebuild()
            return
        if not accepted:
            return
        if meta is not None:
            self._records -= meta.count
        pid = pending.producer_id
        if pid == 0:
            return
        ahead = self._ahead[pid]
        if ahead.new:
            ahead.new = False
            self._new_producers -= 1
        ahead.entries -= 1
        if not ahead.entries:
            del self._ahead[pid]
        if meta is not None:
            del self._batches[pid, meta.epoch, meta.first, meta.last]

    def _rebuild(self) -> None:
        """Replays the proposals in flight against the map."""
        self._ahead.clear()
        self._batches.clear()
        self._records = self._new_producers = 0
        for pending in self._pending:
            if pending.meta is None:
                verdict = self.check_open(pending.producer_id, pending.epoch, pin=pending.pin)
            else:
                verdict = self.check(pending.meta, next_offset_applied=self._applied_next)
            pending.doomed = verdict.kind != _APPENDED
            if not pending.doomed:
                self._track(pending)
