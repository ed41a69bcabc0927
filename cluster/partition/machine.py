"""State machine of a partition: every replica applies each entry kind by one handler.

    Group --entry--> PartitionMachine --BATCH, KAFKA_, LOG_START-> StoredBatches
                                      --CARRIED-----------------> StoredBatches
                                      --BATCH staged, MARKER----> RunTable, StoredBatches
                                      --OPEN_, RELEASE_PRODUCERS-> ProducerTable
                                      --OFFSETS, STAGED_, MARKER-> OffsetsTable

Apply decides: the verdict and the offset are a function of the entry and the state
before it. No clock, no randomness, no setting of this node takes part, so equal logs
give equal states and equal `pieces`. A new kind of entry is a handler and a line
in the table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import BatchMeta, Kind, Verdict
from cluster.entries import (
    BATCH,
    CARRIED,
    CLASSIC_GROUPS,
    GROUP_MEMBERS,
    HELD,
    KAFKA_BATCH,
    KAFKA_V2,
    LOG_START,
    MARKER,
    OFFSETS,
    OPEN_PRODUCER,
    RELEASE_PRODUCERS,
    STAGED_OFFSETS,
    BatchEntry,
    OpenProducerEntry,
    ReleaseEntry,
    unpack_batch,
    unpack_carried,
    unpack_log_start,
    unpack_open_producer,
    unpack_release,
)
from cluster.partition.carried import CarriedRanges
from cluster.partition.group_offsets import OffsetsTable
from cluster.partition.group_state import CommitResult
from cluster.partition.producers import ProducerTable
from cluster.partition.stored_batches import StoredBatches
from cluster.partition.types import Answer
from cluster.transactions.run_records import unpack_marker
from cluster.transactions.runs import Marked, RunTable
from storage.errors import CorruptionError
from storage.kv import WriteBatch
from storage.offset_index import OffsetIndex
from storage.pieces import joined

_STATE = struct.Struct("<4sHxxqqqQQQ")
_MAGIC, _VERSION = b"OLPS", 2
# The version with staged runs after the last-seen map. A state without runs has the version before,
# so that a release without transactions reads it.
_WITH_RUNS = 3
# The version with carried ranges after the runs, of which there may be none.
_WITH_CARRIED = 4
_SIZE = struct.Struct("<Q")  # of runs, and of carried ranges


class Loaded(NamedTuple):
    """A saved state, parsed from `pieces`."""

    next_offset: int
    log_start: int
    clock_ms: int
    stored_bytes: int
    carried: CarriedRanges
    names_index: int
    last_seen: LastSeen
    runs: RunTable
    group_offsets: OffsetsTable


Handler = Callable[[int, bytes, WriteBatch], object]


class PartitionMachine:
    """The replicated state of one partition.

    clock_ms: log time, the highest stamp applied; milliseconds since the Unix epoch.
    listeners: called when batches were added.
    """

    def __init__(
        self, offsets: OffsetIndex, *, capacity: int, listeners: set[Callable[[], None]]
    ) -> None:
        self._capacity = capacity
        self._listeners = listeners
        self.clock_ms = 0
        self.stored = StoredBatches(offsets)
        self.producers = ProducerTable(capacity)
        self.runs = RunTable()
        self.group_offsets = OffsetsTable()
        self._handlers: dict[int, Handler] = {
            BATCH: self._apply_batch,
            KAFKA_BATCH: self._apply_batch,
            CARRIED: self._apply_carried,
            LOG_START: self._apply_log_start,
            OPEN_PRODUCER: self._apply_open,
            RELEASE_PRODUCERS: self._apply_release,
            MARKER: self._apply_marker,
            OFFSETS: self._apply_offsets,
            STAGED_OFFSETS: self._apply_offsets,
            GROUP_MEMBERS: self._apply_offsets,
            CLASSIC_GROUPS: self._apply_offsets,
        }

    def apply(self, index: int, data: bytes, batch: WriteBatch) -> object:
        """Applies an entry; rows go into `batch`. Raises storage.CorruptionError."""
        handler = self._handlers.get(data[0])
        if handler is None:
            raise CorruptionError(f"entry {index} is of unknown type {data[0]:#04x}")
        return handler(index, data, batch)

    # -- handlers -------------------------------------------------------------------

    def _apply_batch(self, index: int, data: bytes, batch: WriteBatch) -> Answer:
        entry = unpack_batch(data)
        last_seen, stored, meta = self.producers.last_seen, self.stored, meta_of(entry)
        self._advance(entry)
        if entry.transaction_id:
            return self._stage(index, entry, data, batch)
        verdict = last_seen.check(meta, next_offset=stored.next_offset)
        if self.runs.by_producer:
            verdict = self.runs.check_plain(meta, verdict)
        if verdict.kind is Kind.APPENDED:
            base = stored.append(index, entry, data, batch)
            last_seen.record(meta, base, self.clock_ms, pin=bool(entry.flags & HELD))
            verdict = Verdict(Kind.APPENDED, base_offset=base)
            for listener in list(self._listeners):
                listener()
        return Answer(verdict, entry.stamp_ms)

    def _stage(self, index: int, entry: BatchEntry, data: bytes, batch: WriteBatch) -> Answer:
        meta, last_seen, number = meta_of(entry), self.producers.last_seen, entry.transaction_id
        verdict = self.runs.check(meta, number, last_seen)
        if verdict.kind is Kind.STAGED:
            relative = self.runs.stage(
                meta,
                number,
                last_seen,
                index=index,
                size=len(data),
                max_timestamp_us=entry.max_timestamp_us,
                time_ms=self.clock_ms,
                pin=bool(entry.flags & HELD),
            )
            self.stored.stage(index, relative, entry, data, batch)
        return Answer(verdict, entry.stamp_ms)

    def _apply_marker(self, index: int, data: bytes, batch: WriteBatch) -> Marked:
        marker = unpack_marker(data)
        self.clock_ms = max(self.clock_ms, marker.stamp_ms)
        marked = self.runs.mark(
            marker,
            self.producers.last_seen,
            index=index,
            next_offset=self.stored.next_offset,
            time_ms=self.clock_ms,
        )
        for run in marked.dropped:
            self.stored.index.drop(batch, run.transaction_id, run.producer_id)
        for published in marked.published:
            self.stored.publish(published.run, published.expected, self.clock_ms, batch)
        ended = False
        if not marked.repeated:
            named = {one.consumer_group: one.last for one in marker.expected if one.consumer_group}
            stored = named if marker.committed else None
            ended = self.group_offsets.end(marker.transaction_id, stored, marker.stamp_ms)
        if marked.published or marked.dropped or ended:
            for listener in list(self._listeners):
                listener()
        return marked

    def _apply_carried(self, index: int, data: bytes, batch: WriteBatch) -> bool:
        """Replaces stored batches; returns False if they changed since they were read."""
        entry = unpack_carried(data, with_tombstones=False)
        self.clock_ms = max(self.clock_ms, entry.stamp_ms)
        return self.stored.carry(index, entry, data, batch)

    def _apply_log_start(self, index: int, data: bytes, batch: WriteBatch) -> None:
        entry = unpack_log_start(data)
        self.clock_ms = max(self.clock_ms, entry.stamp_ms)
        self.stored.move_start(entry, batch)

    def _apply_open(self, index: int, data: bytes, batch: WriteBatch) -> Answer:
        entry = unpack_open_producer(data)
        self._advance(entry)
        return Answer(self.producers.open(entry, self.clock_ms), entry.stamp_ms)

    def _apply_release(self, index: int, data: bytes, batch: WriteBatch) -> None:
        entry = unpack_release(data)
        self._advance(entry)
        self.producers.release(entry)

    def _apply_offsets(
        self, index: int, data: bytes, batch: WriteBatch
    ) -> list[CommitResult] | CommitResult | bool | str:
        return self.group_offsets.apply(index, data[1:], self.runs.over)

    def _advance(self, entry: BatchEntry | OpenProducerEntry | ReleaseEntry) -> None:
        """Moves log time and the expiry watermark on to the entry's, never back."""
        if entry.stamp_ms > self.clock_ms:
            self.clock_ms = entry.stamp_ms
        self.producers.last_seen.advance(
            self.clock_ms, lifetime_ms=entry.lifetime_ms, expired_below=entry.expired_below
        )

    # -- saved states ---------------------------------------------------------------

    def pieces(self) -> Iterator[bytes]:
        """Returns the whole state: equal states give equal bytes. It must not change meanwhile."""
        return joined(self._parts())

    def _parts(self) -> Iterator[bytes | bytearray]:
        last_seen = self.producers.last_seen
        runs = b"" if self.runs.is_new else self.runs.dump()
        carried = self.stored.carried.dump()
        yield _STATE.pack(
            _MAGIC,
            _WITH_CARRIED if carried else _WITH_RUNS if runs else _VERSION,
            self.stored.next_offset,
            self.stored.log_start,
            self.clock_ms,
            self.stored.stored_bytes,
            self.producers.names_index,
            last_seen.dump_bytes,
        )
        yield from last_seen.parts()
        if runs or carried:
            yield _SIZE.pack(len(runs))
            yield runs
        if carried:
            yield _SIZE.pack(len(carried))
            yield carried
        yield from self.group_offsets.parts()

    def restore(self, loaded: Loaded | None) -> None:
        """Replaces the state by a loaded one; None: the empty state."""
        if loaded is None:
            last_seen = LastSeen(capacity=self._capacity)
            nothing = (CarriedRanges(), 0, last_seen, RunTable(), OffsetsTable())
            loaded = Loaded(0, 0, 0, 0, *nothing)
        self.clock_ms = loaded.clock_ms
        self.group_offsets = loaded.group_offsets
        self.runs = loaded.runs
        self.stored.restore(
            loaded.next_offset, loaded.log_start, loaded.stored_bytes, loaded.carried
        )
        self.producers.restore(loaded.last_seen, loaded.names_index)

    def load(self, state: bytes) -> Loaded:
        """Parses `pieces` beside the present state. Raises storage.CorruptionError."""
        if len(state) < _STATE.size:
            raise CorruptionError(f"a partition's state of {len(state)} bytes is too short")
        magic, version, *fields = _STATE.unpack_from(state)
        if magic != _MAGIC or version not in (_VERSION, _WITH_RUNS, _WITH_CARRIED):
            raise CorruptionError(f"not a partition's state of version {_VERSION}: {state[:6]!r}")
        next_offset, log_start, clock_ms, stored_bytes, names_index, map_bytes = fields
        if not 0 <= log_start <= next_offset or clock_ms < 0:
            raise CorruptionError(f"a partition's state: its numbers {fields} cannot be")
        end = _STATE.size + map_bytes
        try:
            last_seen = LastSeen.load(state[_STATE.size : end], capacity=self._capacity)
            runs, carried = RunTable(), CarriedRanges()
            if version >= _WITH_RUNS:
                part, end = _sized(state, end)
                runs = RunTable.load(part) if part else runs
            if version >= _WITH_CARRIED:
                part, end = _sized(state, end)
                carried = CarriedRanges.load(part, log_start, next_offset)
            group_offsets = OffsetsTable.load(state[end:])
        except (ValueError, DecodeError, struct.error) as error:
            raise CorruptionError(f"a partition's state: {error}") from error
        numbers = (next_offset, log_start, clock_ms, stored_bytes)
        return Loaded(*numbers, carried, names_index, last_seen, runs, group_offsets)


def _sized(state: bytes, begin: int) -> tuple[bytes, int]:
    """Returns a part of the state that follows its size, and the part's end."""
    start = begin + _SIZE.size
    end = start + _SIZE.unpack_from(state, begin)[0]
    return state[start:end], end


def meta_of(entry: BatchEntry) -> BatchMeta:
    """Returns the facts about a stored batch that the verdict needs."""
    return BatchMeta(
        entry.producer_id,
        entry.epoch,
        entry.first,
        entry.last,
        entry.prev,
        entry.record_count,
        entry.crc,
        entry.expected_offset,
        entry.codec == KAFKA_V2,
    )
