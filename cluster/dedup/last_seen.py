"""Last-seen map of a partition: its memory of each producer.

Part of the replicated state of one partition. It changes only when a log entry
is applied (advance, check, record; open; release), from nothing but the entry
and its own state, so equal logs give equal maps and equal `dump` bytes on every
replica. Time is the log's: the clock is the highest stamp applied.

A producer takes `RECORD_BYTES` (`cluster.dedup.record`) plus 16 bytes for id
and time (`cluster.dedup.pid_table`).

Forgetting never means accepting:

* Ids below the expiry watermark, which leaders stamp into entries, are gone for
  good, unless pinned: PRODUCER_EXPIRED, whether or not they were ever here.
* An id that falls idle above the watermark leaves its number behind (8 bytes)
  until the watermark has passed it, with the same verdict.
* An opened producer has a name and is pinned: its entry stays until `release`,
  for a successor may come much later and must still learn the last sequence. A
  named producer whose id is below the watermark has to open each partition
  before it writes there.
* Clients of Kafka's protocol take their ids from a space of their own (KAFKA_IDS), in a table of
  its own. Such an id lives KAFKA_LIFETIME_MS by log time, whatever the lease lifetime is, and is
  then forgotten without a trace, as Kafka does: the watermark never passes this space. So a first
  batch that is delayed for longer is taken.
* A new producer that finds the map full is THROTTLED. Only the leader keeps to
  the capacity, before it proposes: it is a node's own setting, on which apply
  must not depend. So it is no part of the state.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from cluster.dedup.pid_table import PidChunk, PidTable
from cluster.dedup.record import (
    FLAGS_AT,
    OPENED,
    PINNED,
    RECORD_BYTES,
    START,
    ReadableRun,
    append,
    first_record,
    is_pinned,
    last_offset,
    open_epoch,
    opened_record,
    published,
    published_first,
    resolve,
    stored_epoch,
    unpack,
    used_up,
    used_up_first,
)
from cluster.dedup.snapshot import packed, packed_bytes, unpack_state
from cluster.dedup.verdict import (
    KAFKA_IDS,
    MAX_INT64,
    BatchMeta,
    Kind,
    KnownProducer,
    RememberedBatch,
    ResolutionKind,
    Resolved,
    Verdict,
    admit,
    fenced,
    judge,
    validate_open,
)

DEFAULT_CAPACITY = 1 << 20
"""Producers that a partition remembers: about 128 MB of memory."""

KAFKA_LIFETIME_MS = 24 * 3600 * 1000
"""How long an id of Kafka's protocol is remembered after its last batch (Kafka's own default)."""


class ProducerEntry(NamedTuple):
    """One producer, as `describe` and `scan` return it.

    `last_append_ms` is the log time of its last batch or open, `last_offset` the
    offset of its last record (-1: none), `recent` oldest first. `opened`: the
    epoch has stored nothing yet, the numbers are its predecessor's.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_append_ms: int
    opened: bool
    pinned: bool
    recent: tuple[RememberedBatch, ...]


class LastSeen:
    """The replicated last-seen map of one partition."""

    def __init__(self, *, capacity: int = DEFAULT_CAPACITY) -> None:
        if not 1 <= capacity <= MAX_INT64:
            raise ValueError(f"capacity: {capacity} is not in 1..{MAX_INT64}")
        self._capacity = capacity
        self._table = PidTable(RECORD_BYTES, flags_at=FLAGS_AT, pin_mask=PINNED)
        self._kafka = PidTable(RECORD_BYTES, flags_at=FLAGS_AT, pin_mask=PINNED)
        self._retired = array("q")
        self._clock = 0
        self._expired_below = 0

    def __len__(self) -> int:
        return len(self._table) + len(self._kafka)

    @property
    def capacity(self) -> int:
        """The number of producers (retired ids included) that a leader lets in."""
        return self._capacity

    @property
    def clock_ms(self) -> int:
        """Log time: the highest stamp applied."""
        return self._clock

    @property
    def expired_below(self) -> int:
        """The expiry watermark."""
        return self._expired_below

    def memory_bytes(self) -> int:
        """The map's size in memory."""
        tables = self._table.memory_bytes() + self._kafka.memory_bytes()
        return tables + sys.getsizeof(self._retired)

    def _of(self, producer_id: int) -> PidTable:
        return self._table if producer_id < KAFKA_IDS else self._kafka

    # --- verdict and record

    def check(
        self,
        meta: BatchMeta,
        *,
        next_offset: int,
        new_in_flight: int = -1,
    ) -> Verdict:
        """Returns the verdict on a valid batch against the applied state; changes nothing.

        `next_offset` is the offset that the batch would get. `new_in_flight`: how many
        new producers a leader has in flight, so that it keeps to the capacity; apply
        must leave it out (-1: no limit).
        """
        pid = meta[0]
        if pid:
            place = (self._table if pid < KAFKA_IDS else self._kafka).find(pid)
            refusal = None
            if place is None:
                refusal = self._judge_new(meta, new_in_flight)
            else:
                chunk, at = place
                last_sequence, _, epoch, flags = START.unpack_from(chunk.records, at * RECORD_BYTES)
                # The usual batch is the next one; `judge` knows the others.
                if meta[4] != last_sequence or meta[1] != epoch or flags & OPENED:
                    refusal = judge(unpack(chunk.records, at * RECORD_BYTES), meta)
            if refusal is not None:
                return refusal
        return admit(meta, next_offset)

    def _judge_new(self, meta: BatchMeta, new_in_flight: int) -> Verdict | None:
        pid = meta.producer_id
        if self._is_expired(pid):
            return self._expired(pid)
        if meta.prev != -1:
            return Verdict(
                Kind.UNKNOWN_PRODUCER,
                message=f"producer_id: {pid} has stored nothing here,"
                f" so prev_sequence must be -1, not {meta.prev}",
            )
        return self._throttle(new_in_flight)

    def _throttle(self, new_in_flight: int) -> Verdict | None:
        used = len(self) + len(self._retired) + new_in_flight
        if new_in_flight < 0 or used < self._capacity:
            return None
        return Verdict(
            Kind.THROTTLED,
            message=f"the partition remembers {self._capacity} producers, its limit;"
            " a new one has to wait until others expire",
        )

    def _is_expired(self, pid: int) -> bool:
        if pid < self._expired_below:
            return True
        at = bisect_left(self._retired, pid)
        return at < len(self._retired) and self._retired[at] == pid

    def _expired(self, pid: int) -> Verdict:
        return Verdict(Kind.PRODUCER_EXPIRED, message=f"producer_id: the lease of {pid} has ended")

    def record(self, meta: BatchMeta, base_offset: int, time_ms: int, *, pin: bool = False) -> None:
        """Remembers a batch with the verdict APPENDED of `check`, at `base_offset`.

        `pin`: a name holds the id. It counts with the producer's first batch only: a
        name's id is the name's from the start, and once released it stays so.
        """
        if time_ms > self._clock:
            self._clock = time_ms
        pid = meta[0]
        if not pid:
            return
        table = self._table if pid < KAFKA_IDS else self._kafka
        place = table.find(pid)
        if place is None:
            pinned = PINNED if pin else 0
            table.insert(pid, self._clock, first_record(meta, base_offset, pinned))
            return
        chunk, row = place
        append(chunk.records, row * RECORD_BYTES, meta, base_offset)
        chunk.times[row] = self._clock

    def publish(
        self, producer_id: int, run: ReadableRun, time_ms: int, *, pin: bool = False
    ) -> None:
        """Remembers a transaction's published run, at the end of the producer's chain.

        An id that has expired meanwhile stays expired: nothing of it is accepted any more.
        """
        if time_ms > self._clock:
            self._clock = time_ms
        place = self._of(producer_id).find(producer_id)
        if place is not None:
            chunk, row = place
            at = row * RECORD_BYTES
            chunk.records[at : at + RECORD_BYTES] = published(chunk.records, at, run)
            chunk.times[row] = self._clock
        elif not self._is_expired(producer_id):
            record = published_first(run, PINNED if pin else 0)
            self._of(producer_id).insert(producer_id, self._clock, record)

    def use_up(
        self, producer_id: int, epoch: int, last: int, next_offset: int, time_ms: int
    ) -> None:
        """Remembers that an aborted run of Kafka's protocol used the sequences up to `last`.

        `next_offset`: the partition's. As in `publish`, an expired id stays expired.
        """
        if time_ms > self._clock:
            self._clock = time_ms
        table = self._of(producer_id)
        place = table.find(producer_id)
        if place is not None:
            chunk, row = place
            at = row * RECORD_BYTES
            record = used_up(chunk.records, at, epoch, last, next_offset)
            chunk.records[at : at + RECORD_BYTES] = record
            chunk.times[row] = self._clock
        elif not self._is_expired(producer_id):
            table.insert(producer_id, self._clock, used_up_first(epoch, last, next_offset))

    # --- open and release

    def check_open(
        self, producer_id: int, epoch: int, *, pin: bool = True, new_in_flight: int = -1
    ) -> Verdict:
        """Returns the verdict that `open` would give; changes nothing."""
        fault = validate_open(producer_id, epoch)
        if fault is not None:
            return fault
        place = self._of(producer_id).find(producer_id)
        if place is None:
            if not pin and self._is_expired(producer_id):
                return self._expired(producer_id)
            refusal = self._throttle(new_in_flight)
            if refusal is not None:
                return refusal
            return Verdict(Kind.APPENDED, current_epoch=epoch)
        chunk, row = place
        last_sequence, _, old_epoch, _ = START.unpack_from(chunk.records, row * RECORD_BYTES)
        if epoch < old_epoch:
            return fenced(epoch, old_epoch)
        offset = last_offset(chunk.records, row * RECORD_BYTES)
        return Verdict(Kind.APPENDED, offset, epoch, last_sequence)

    def open(self, producer_id: int, epoch: int, time_ms: int, *, pin: bool = True) -> Verdict:
        """Raise the producer's epoch, so that lower ones are FENCED from now on.

        APPENDED if it took effect, with the predecessor's `last_sequence` to go
        on from (-1: nothing stored) and, as `base_offset`, the offset of its last
        record (-1: none). Repeating it changes nothing. Else FENCED,
        PRODUCER_EXPIRED (only if not pinned) or INVALID_BATCH. `pin` says that a
        name holds the id.
        """
        verdict = self.check_open(producer_id, epoch, pin=pin)
        if verdict.kind != Kind.APPENDED:
            return verdict
        if time_ms > self._clock:
            self._clock = time_ms
        place = self._of(producer_id).find(producer_id)
        if place is None:
            expired = self._is_expired(producer_id)
            if expired and producer_id >= self._expired_below:
                del self._retired[bisect_left(self._retired, producer_id)]
            record = opened_record(epoch, pinned=pin, expired=expired)
            self._of(producer_id).insert(producer_id, self._clock, record)
            return verdict
        chunk, row = place
        chunk.times[row] = self._clock
        open_epoch(chunk.records, row * RECORD_BYTES, epoch, pin)
        return verdict

    def release(self, producer_id: int) -> bool:
        """Releases an id that no name holds any more, so that it expires. True if it was pinned."""
        table = self._of(producer_id)
        place = table.find(producer_id)
        if place is None:
            return False
        chunk, row = place
        if not is_pinned(chunk.records, row * RECORD_BYTES):
            return False
        if producer_id < self._expired_below:
            table.drop(producer_id)
            return True
        chunk.records[row * RECORD_BYTES + FLAGS_AT] &= ~PINNED
        table.lower_bound(chunk, chunk.times[row])
        return True

    def pinned(self) -> Iterator[int]:
        """Yields the ids that names hold, rising; the map must not change meanwhile."""
        return chain(self._table.pinned_ids(), self._kafka.pinned_ids())

    # --- time

    def advance(self, time_ms: int, *, lifetime_ms: int, expired_below: int = 0) -> int:
        """Moves log time on: drops expired producers and returns how many there were.

        To be called for every entry, with the stamps in it, before the entry is
        checked. Stamps and watermarks that go backwards are ignored. A producer
        goes when its id is below the watermark or when it was idle for more than
        `lifetime_ms`; a pinned one stays.
        """
        if time_ms > self._clock:
            self._clock = time_ms
        dropped = 0
        if expired_below > self._expired_below:
            dropped = self._table.drop_range(self._expired_below, expired_below)
            self._expired_below = expired_below
            del self._retired[: bisect_left(self._retired, expired_below)]
        if self._clock - self._table.oldest > lifetime_ms:
            idle = self._table.drop_idle(self._clock - lifetime_ms)
            if idle:
                dropped += len(idle)
                self._retired = array("q", sorted([*self._retired, *idle]))
        if self._clock - self._kafka.oldest > KAFKA_LIFETIME_MS:
            dropped += len(self._kafka.drop_idle(self._clock - KAFKA_LIFETIME_MS))
        return dropped

    # --- looking at it

    def known(self, producer_id: int) -> KnownProducer | None:
        """Returns the facts about a producer for `judge`; None: not in the map."""
        place = self._of(producer_id).find(producer_id)
        return None if place is None else unpack(place[0].records, place[1] * RECORD_BYTES)

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Returns the sequence that continues the producer's chain of that epoch; 0: none is."""
        place = self._of(producer_id).find(producer_id)
        if place is None:
            return 0
        start = START.unpack_from(place[0].records, place[1] * RECORD_BYTES)
        last_sequence, _, known_epoch, flags = start
        return last_sequence + 1 if known_epoch == epoch and not flags & OPENED else 0

    def describe(self, producer_id: int) -> ProducerEntry | None:
        """Returns one producer; None if the map does not know it."""
        place = self._of(producer_id).find(producer_id)
        return None if place is None else self._entry(*place)

    def scan(self, after: int = 0, limit: int = 1000) -> list[ProducerEntry]:
        """Returns at most `limit` producers with ids above `after`, rising."""
        found: list[ProducerEntry] = []
        if limit > 0:
            for chunk, row in chain(self._table.rows(after), self._kafka.rows(after)):
                found.append(self._entry(chunk, row))
                if len(found) == limit:
                    break
        return found

    @staticmethod
    def _entry(chunk: PidChunk, row: int) -> ProducerEntry:
        at = row * RECORD_BYTES
        known = unpack(chunk.records, at)
        return ProducerEntry(
            producer_id=chunk.pids[row],
            epoch=known.epoch,
            last_sequence=known.last_sequence,
            last_offset=last_offset(chunk.records, at),
            last_append_ms=chunk.times[row],
            opened=known.opened,
            pinned=is_pinned(chunk.records, at),
            recent=known.recent,
        )

    def resolve(self, producer_id: int, epoch: int, sequence: int) -> Resolved:
        """Tells whether a sequence of that epoch is stored, as far as the map knows.

        NEVER and COMMITTED are certain. NOT_YET: nothing forbids it to come.
        UNSPECIFIED: it cannot come any more, but it may have been stored before
        an epoch change or expiry that erased it here; the log can tell. A batch
        below the recent ones is COMMITTED with offset -1, and so is a sequence
        inside a batch with gaps.
        """
        place = self._of(producer_id).find(producer_id)
        if place is not None:
            return resolve(place[0].records, place[1] * RECORD_BYTES, epoch, sequence)
        gone = self._is_expired(producer_id)
        resolution = ResolutionKind.UNSPECIFIED if gone else ResolutionKind.NOT_YET
        return Resolved(resolution, -1, -1, -1)

    def stored_epoch(self, producer_id: int) -> int:
        """Returns the epoch of the chain that the map holds of a producer; 0 if it holds none."""
        place = self._of(producer_id).find(producer_id)
        return 0 if place is None else stored_epoch(place[0].records, place[1] * RECORD_BYTES)

    # --- snapshots

    def dump(self) -> bytes:
        """Returns the whole state; equal states give equal bytes."""
        return b"".join(self.parts())

    def parts(self) -> Iterator[bytes | bytearray]:
        """Returns the bytes of `dump` in parts, `dump_bytes` long; the state must stay as it is."""
        columns = [*self._table.columns(), *self._kafka.columns()]
        return packed(self._clock, self._expired_below, self._retired, columns)

    @property
    def dump_bytes(self) -> int:
        return packed_bytes(len(self), len(self._retired))

    @classmethod
    def load(cls, data: bytes, *, capacity: int = DEFAULT_CAPACITY) -> LastSeen:
        """Loads a map that `dump` wrote. Raises ValueError if the bytes are damaged."""
        state = unpack_state(data)
        last_seen = cls(capacity=capacity)
        last_seen._clock = state.clock
        last_seen._expired_below = state.expired_below
        last_seen._retired = state.retired
        pids, times, records = state.pids, state.times, state.records
        rows = bisect_left(pids, KAFKA_IDS)
        at = rows * RECORD_BYTES
        last_seen._table.fill(pids[:rows], times[:rows], records[:at])
        last_seen._kafka.fill(pids[rows:], times[rows:], records[at:])
        return last_seen
