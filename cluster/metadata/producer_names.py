"""Producer names: name -> (producer id, epoch), as the metadata group holds them.

Part of `MetadataState`; deterministic, in memory, bounded. A lease raises the epoch by one, which
fences the name's previous holder. A name without a lease for the expiry time becomes a tombstone.
It keeps its last producer id and epoch, but no longer holds the id, which then expires like any
other.

A revived tombstone gets a new producer id. Partitions may have forgotten the old
one by then, and a forgotten id that became valid again would let an old batch
in for a second time. Its epoch goes on from the tombstone, so a name's epochs
only ever rise while the name is known.

Both tables are ordered by the time of the last lease, so expiry and eviction
work at one end, and their order is part of the state that a snapshot keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster.metadata.topics import FENCED, PRODUCER_NAME_NOT_FOUND, Rejected, invalid

MAX_NAME_CHARS = 255
MAX_NAMES = 100_000  # tombstones included
MAX_EPOCH = 2**31 - 1
MAX_KAFKA_EPOCH = 32_766  # in 16 bits; Kafka keeps the last one back


class Leased(NamedTuple):
    """Result of a lease.

    fresh_id_used: whether it took the fresh producer id.
    forgotten: the tombstone that made room, by name; empty: none had to.
    """

    state: NameState
    fresh_id_used: bool = False
    forgotten: str = ""


@dataclass(frozen=True, slots=True)
class NameState:
    """Producer name. `last_nonce` belongs to the request that last raised the epoch.

    Epochs below `fence_epoch` were fenced on purpose: partition leaders refuse
    them without waiting until the next holder opens the partition.
    transaction_timeout_ms: of a client of Kafka's protocol, 0 for all others.
    """

    name: str
    producer_id: int
    epoch: int
    last_lease_ms: int
    tombstone: bool = False
    last_nonce: int = 0
    fence_epoch: int = 0
    transaction_timeout_ms: int = 0

    def lapsed(self, now_ms: int, expiry_ms: int) -> bool:
        """Whether the name no longer holds its producer id, swept or not."""
        return self.tombstone or self.last_lease_ms + expiry_ms <= now_ms


class ProducerNames:
    """Producer names. Times are the metadata group's clock, in milliseconds."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._active: OrderedDict[str, NameState] = OrderedDict()
        self._tombstones: OrderedDict[str, NameState] = OrderedDict()
        self._by_id: dict[int, str] = {}

    def __iter__(self) -> Iterator[NameState]:
        """Yields names in a snapshot's order: tombstones, then the others, oldest first."""
        yield from self._tombstones.values()
        yield from self._active.values()

    def __len__(self) -> int:
        return len(self._active) + len(self._tombstones)

    def get(self, name: str) -> NameState | None:
        return self._active.get(name) or self._tombstones.get(name)

    def holder(self, producer_id: int) -> NameState | None:
        """Returns the name that holds `producer_id`; tombstones hold nothing."""
        name = self._by_id.get(producer_id)
        return self._active[name] if name is not None else None

    def lease(
        self,
        name: str,
        nonce: int,
        now_ms: int,
        expiry_ms: int,
        fresh_id: int,
        held: tuple[int, int] | None = None,
        transaction_timeout_ms: int = 0,
    ) -> Leased:
        """Leases `name`. `transaction_timeout_ms`: see NameState.

        A repeat with the nonce of the last change returns that change's result.
        `held` is the (producer id, epoch) that the caller wants to replace; None
        takes the name over. Raises Rejected (FENCED if another lease came after
        `held`) and changes nothing.
        """
        check_producer_name(name)
        known, forgotten = self.get(name), ""
        if known is None:
            forgotten = self._make_room(now_ms, expiry_ms)
        elif nonce and nonce == known.last_nonce and not known.lapsed(now_ms, expiry_ms):
            return Leased(known)
        elif held not in (None, (known.producer_id, known.epoch)):
            if not known.lapsed(now_ms, expiry_ms):
                text = f"producer name {name!r} was leased again, its epoch is {known.epoch}"
                raise Rejected(FENCED, text)
        kafka = bool(transaction_timeout_ms)
        leased, used = _raised(known, name, now_ms, expiry_ms, fresh_id, kafka=kafka)
        leased = replace(
            leased,
            last_lease_ms=now_ms,
            last_nonce=nonce,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        self._tombstones.pop(name, None)
        self._put(leased)
        self._active.move_to_end(name)
        return Leased(leased, used, forgotten)

    def fence(self, name: str, nonce: int, now_ms: int, expiry_ms: int, fresh_id: int) -> Leased:
        """Raises the epoch of `name` without a new holder; its idle time goes on.

        Raises Rejected (PRODUCER_NAME_NOT_FOUND) and changes nothing.
        """
        check_producer_name(name)
        known = self._active.get(name)
        if known is None or known.lapsed(now_ms, expiry_ms):
            raise Rejected(PRODUCER_NAME_NOT_FOUND, f"producer name {name!r} is not known")
        if nonce and nonce == known.last_nonce:
            return Leased(known)
        kafka = bool(known.transaction_timeout_ms)
        fenced, used = _raised(known, name, now_ms, expiry_ms, fresh_id, kafka=kafka)
        self._put(
            replace(
                fenced,
                last_lease_ms=known.last_lease_ms,
                last_nonce=nonce,
                fence_epoch=fenced.epoch,
                transaction_timeout_ms=known.transaction_timeout_ms,
            )
        )
        return Leased(self._active[name], used)

    def renew(self, name: str, now_ms: int) -> None:
        """Counts the idle time of a name in use from now on.

        Clients of Kafka's protocol lease once, and then use the name for ever.
        """
        self._active[name] = replace(self._active[name], last_lease_ms=now_ms)
        self._active.move_to_end(name)

    def sweep(self, now_ms: int, expiry_ms: int) -> None:
        """Turns names that were idle for `expiry_ms` into tombstones."""
        while self._active:
            oldest = next(iter(self._active.values()))
            if not oldest.lapsed(now_ms, expiry_ms):
                return
            del self._active[oldest.name]
            del self._by_id[oldest.producer_id]
            self._tombstones[oldest.name] = replace(oldest, tombstone=True)

    def restore(self, names: Iterable[NameState]) -> None:
        """Fills an empty table from a snapshot, in the order of `__iter__`. Raises ValueError."""
        assert not len(self), "restore into a table that is not empty"
        last = (False, -1)
        for state in names:
            position = (not state.tombstone, state.last_lease_ms)
            if position < last:
                raise ValueError(f"producer name {state.name!r} is out of order")
            if self.get(state.name) or state.producer_id in self._by_id:
                raise ValueError(f"producer name {state.name!r} or its id stands twice")
            if state.tombstone:
                self._tombstones[state.name] = state
            else:
                self._put(state)
            last = position

    def _put(self, state: NameState) -> None:
        before = self._active.get(state.name)
        if before is not None:
            del self._by_id[before.producer_id]
        self._active[state.name] = state
        self._by_id[state.producer_id] = state.name

    def _make_room(self, now_ms: int, expiry_ms: int) -> str:
        """Drops the oldest tombstone if the table is full; returns its name.

        That is safe: its id is held by no name and older than any lease, so it
        stays expired. Only the name's epochs start over.
        """
        if len(self) < self._limit:
            return ""
        oldest = next(iter(self._active.values()), None)
        if not self._tombstones and (oldest is None or not oldest.lapsed(now_ms, expiry_ms)):
            text = f"{self._limit} names are in use, which is the limit"
            raise invalid("producer_name", text)
        self.sweep(now_ms, expiry_ms)
        return self._tombstones.popitem(last=False)[0]


def check_producer_name(name: str) -> None:
    """Raises Rejected unless `name` may name a producer."""
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        text = f"has {len(name)} characters, must have 1..{MAX_NAME_CHARS}"
        raise invalid("producer_name", text)
    # Not str.isprintable(): its answer depends on the Unicode tables of the
    # Python that asks, and replicas must agree.
    if any(char < " " or char == "\x7f" for char in name):
        raise invalid("producer_name", "must not contain control characters")


def _raised(
    known: NameState | None, name: str, now_ms: int, expiry_ms: int, fresh_id: int, *, kafka: bool
) -> tuple[NameState, bool]:
    """Returns the next (producer id, epoch) of a name, and whether it uses `fresh_id`."""
    if known is None or known.epoch >= (MAX_KAFKA_EPOCH if kafka else MAX_EPOCH):
        return NameState(name, fresh_id, 0, now_ms), True
    if known.lapsed(now_ms, expiry_ms):
        return NameState(name, fresh_id, known.epoch + 1, now_ms), True
    return replace(known, epoch=known.epoch + 1), False
