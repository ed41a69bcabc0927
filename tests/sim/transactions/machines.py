"""Replicated state of the groups: the product's machines, and as little around them as will do."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.partition.group_offsets import OffsetsTable
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.run_records import pack_marker, unpack_marker
from cluster.transactions.runs import Marked, RunTable
from cluster.transactions.sinks import Asked
from cluster.transactions.types import COMMIT_STATES, Holder, Marker, Refused

LIFETIME_MS = 10**12
HOUR_MS = 3_600_000


class BatchEntry(NamedTuple):
    meta: BatchMeta
    transaction_id: int
    records: tuple[Any, ...]
    size: int = 100


class OpenEntry(NamedTuple):
    producer_id: int
    epoch: int


NOTHING = "nothing"  # an entry that only confirms a leader


class PartitionMachine:
    """A partition's replica: last-seen map, staged runs, next offset, offsets of groups."""

    def __init__(self) -> None:
        self.last_seen, self.runs, self.next_offset = LastSeen(), RunTable(), 0
        self.group_offsets = OffsetsTable()

    def apply(self, index: int, entry: Any) -> Any:
        if isinstance(entry, BatchEntry):
            return self._apply_batch(index, entry)
        if isinstance(entry, OpenEntry):
            return self.last_seen.open(entry.producer_id, entry.epoch, index)
        if isinstance(entry, Marker):
            return self._apply_marker(index, unpack_marker(pack_marker(entry)))
        if isinstance(entry, bytes):
            return self.group_offsets.apply(index, entry[1:], self.runs.over)
        return None

    def _apply_batch(self, index: int, entry: BatchEntry) -> Verdict:
        meta = entry.meta
        if entry.transaction_id:
            verdict = self.runs.check(meta, entry.transaction_id, self.last_seen)
            if verdict.kind is Kind.STAGED:
                self.runs.stage(
                    meta,
                    entry.transaction_id,
                    self.last_seen,
                    index=index,
                    size=entry.size,
                    max_timestamp_us=index,
                    time_ms=index,
                    pin=True,
                )
            return verdict
        verdict = self.last_seen.check(meta, next_offset=self.next_offset)
        verdict = self.runs.check_plain(meta, verdict)
        if verdict.kind is Kind.APPENDED:
            self.last_seen.record(meta, self.next_offset, index, pin=True)
            self.next_offset += meta.count
        return verdict

    def _apply_marker(self, index: int, marker: Marker) -> Marked:
        marked = self.runs.mark(
            marker, self.last_seen, index=index, next_offset=self.next_offset, time_ms=index
        )
        self.next_offset += sum(run.expected.records for run in marked.published)
        if not marked.repeated:
            wanted = marker.expected if marker.committed else ()
            stored = {one.consumer_group: one.last for one in wanted if one.consumer_group}
            self.group_offsets.end(marker.transaction_id, stored, marker.stamp_ms)
        return marked

    def dump(self) -> bytes:
        last_seen, runs, offsets = (
            self.last_seen.dump(),
            self.runs.dump(),
            self.group_offsets.dump(),
        )
        head = json.dumps([self.next_offset, len(last_seen), len(runs)]).encode()
        return b"\n".join((head, last_seen + runs + offsets))

    def load(self, data: bytes) -> None:
        head, rest = data.split(b"\n", 1)
        self.next_offset, size, more = json.loads(head)
        self.last_seen = LastSeen.load(rest[:size])
        self.runs = RunTable.load(rest[size : size + more])
        self.group_offsets = OffsetsTable.load(rest[size + more :])


class Named(NamedTuple):
    producer_id: int
    epoch: int
    nonce: int


class MetadataMachine:
    """The metadata group: names, partitions, and the coordinator."""

    def __init__(self) -> None:
        self.names: dict[str, Named] = {}
        self.groups: set[int] = set()
        self.coordinator = Coordinator(max_open=50)
        self.clock_ms = 0
        self.next_producer_id = 1

    def apply(self, index: int, entry: Any) -> Any:
        if entry == NOTHING:
            return None
        method, arguments = entry
        try:
            return getattr(self, method)(**arguments)
        except Refused as refused:
            return refused.reason, str(refused), refused.transaction_id

    def dump(self) -> bytes:
        numbers = [self.clock_ms, self.next_producer_id]
        head = json.dumps([sorted(self.names.items()), sorted(self.groups), numbers])
        return head.encode() + b"\n" + b"".join(self.coordinator.pieces())

    def load(self, data: bytes) -> None:
        head, rest = data.split(b"\n", 1)
        names, groups, (self.clock_ms, self.next_producer_id) = json.loads(head)
        self.names = {name: Named(*known) for name, known in names}
        self.groups = set(groups)
        self.coordinator.load(rest)

    def exists(self, group: int) -> bool:
        return group in self.groups

    # -- commands -------------------------------------------------------------------------

    def add_group(self, group: int) -> None:
        self.groups.add(group)

    def drop_group(self, group: int) -> None:
        self.groups.discard(group)
        self.coordinator.groups_gone({group})

    def lease(self, name: str, nonce: int) -> Named:
        known = self.names.get(name)
        if known is None:
            known = Named(self.allocate(), 0, nonce)
        elif known.nonce != nonce:
            known = Named(known.producer_id, known.epoch + 1, nonce)
        self.names[name] = known
        self.coordinator.fence(name, Holder(known.producer_id, known.epoch))
        return known

    def begin(self, name: str, holder: Holder, nonce: int, stamp_ms: int, after: int = 0) -> Any:
        self.clock_ms = max(self.clock_ms, stamp_ms)
        known = self.names[name]
        if (known.producer_id, known.epoch) != holder:
            raise Refused("FENCED", f"{name} has epoch {known.epoch}")
        row = self.coordinator.begin(
            name,
            holder,
            nonce,
            now_ms=self.clock_ms,
            idle_ms=60_000,
            total_ms=900_000,
            after=after,
        )
        return row.transaction_id

    def register(self, transaction_id: int, holder: Holder | None, group: int) -> Any:
        self.coordinator.register(transaction_id, holder, [group], self.exists)
        return "REGISTERED"

    def commit(
        self,
        transaction_id: int,
        holder: Holder | None,
        expected: Any,
        checked: int,
        digest: int = 0,
        next_nonce: int = 0,
    ) -> Any:
        records = sum(run.records for run in expected)
        row = self.coordinator.commit(
            transaction_id, holder, expected, checked, records=records, digest=digest
        )
        begun = 0
        if next_nonce and row.state in COMMIT_STATES and not row.sink:
            try:
                begun = self.begin(row.owner, row.holder, next_nonce, next_nonce, transaction_id)
            except Refused:
                pass  # the commit stands
        return row.state.name, row.reason, transaction_id, begun

    def abort(self, transaction_id: int, holder: Holder | None, reason: str) -> Any:
        row = self.coordinator.abort(transaction_id, holder, reason)
        return row.state.name, row.reason, transaction_id

    def markers_done(self, transaction_id: int, group: int, runs: Any) -> None:
        self.coordinator.markers_done(transaction_id, {group: runs})

    def draw_ticket(self, key: str) -> Any:
        return self.coordinator.draw_ticket(key, jobs=False)

    def begin_batch(self, key: str, query: str, run: str, ticket: int, batch: int) -> Any:
        begun = self.coordinator.begin_batch(
            Asked(key, query, run, ticket, batch), now_ms=self.clock_ms, total_ms=HOUR_MS
        )
        if begun.transaction is not None:
            return begun.transaction.transaction_id
        return ("BUSY" if begun.busy else "ALREADY", begun.records, begun.digest)

    def allocate(self) -> Any:
        """A fresh producer id."""
        self.next_producer_id += 1
        return self.next_producer_id - 1
