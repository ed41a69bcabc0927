"""Cleaning by key: keeps the newest record of each key, and tombstones for a while. Pure.

    stored batches --NewestByKey--> {key: offset} --kept--> batches --carried--> one carried batch

A record that goes leaves a blank in its place, without key and value, so offsets have no holes.
A tombstone (a key without a value) stays until log time passes a moment that is set when it is
carried for the first time. It keeps this moment through later cleanings: else a topic that is
cleaned often would keep its tombstones for ever.

A pass takes the batches from the log's start on, in order. So when a tombstone is carried for the
first time, the older records of its key are blanks, and it may go later without bringing one back.
A tombstone gets no moment from a pass that left a batch before it, or did not note its key: a batch
that an earlier pass left may be cleaned by now, with an older record of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress as chosen
from operator import le, mul
from typing import NamedTuple

from crc32c import crc32c

from cluster.entries import KAFKA_V2, CarriedEntry, KeyTombstone, pack_carried
from oncelog.types import Header
from oncelog.wire.batch import DecodedPayload, encode_payload
from oncelog.wire.compression import compress

ZSTD = 1
KEY_BYTES = 200  # of memory for each key, beside its own; measured: 150 to 190
RECORD_BYTES = 17  # of a payload for each record, beside its key, value and headers
_BLANK_HEADERS: tuple[Header, ...] = ()
_NO_TIME = -(2**63)  # of a batch of blanks: below each record's


class BatchToClean(NamedTuple):
    """A stored batch that is to be cleaned.

    stored: its payload as it is stored, in that codec. tombstones: of a batch that was carried.
    """

    base_offset: int
    raft_index: int
    entry_bytes: int
    append_time_ms: int
    max_timestamp_us: int
    payload: DecodedPayload
    codec: int
    stored: bytes | memoryview
    was_carried: bool = False
    tombstones: Sequence[KeyTombstone] = ()

    @property
    def end(self) -> int:
        return self.base_offset + len(self.payload)


class CleaningTerms(NamedTuple):
    """Log time now, and how long a tombstone stays after its first cleaning.

    again_below: Raft index; a carried batch with a lower one is carried again, even if it loses
    nothing.
    marks: whether tombstones are given their moment. Not behind a batch that cannot be cleaned: an
    older record of the key may be there.
    """

    log_time_ms: int
    delete_retention_ms: int
    marks: bool = True
    again_below: int = 0


class NewestByKey:
    """Newest offset of each key, in bounded memory.

    A new key counts as many bytes as the keys of its batch have on average, so no Python code runs
    per record. A batch of a few long new keys among short known ones counts too little by up to
    their length: a key is shorter than its batch, and the process may take some more memory.
    """

    def __init__(self, most_bytes: int) -> None:
        self.offsets: dict[bytes | None, int] = {}  # no None
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, batch: BatchToClean, *, always: bool = False) -> bool:
        """Adds a batch as a whole; returns False, and adds nothing, if there is no room for it.

        The first batch always has room. always: so has this one.
        """
        keys, known = batch.payload.keys(), self.offsets
        section = batch.payload.layout.keys
        size = KEY_BYTES * len(keys)  # if all are new
        if section is not None:
            size += section.size
        if known and not always and self._bytes + size > self._most_bytes:
            new = {key for key in keys if key not in known and key is not None}
            exact = sum(map(len, new)) + KEY_BYTES * len(new)
            if new and self._bytes + exact > self._most_bytes:
                return False
        count = len(known)
        try:
            known.update(zip(keys, range(batch.base_offset, batch.end), strict=True))
        finally:  # also if the memory ends in the middle: a record without a key stays
            known.pop(None, None)
        self._bytes += size * (len(known) - count) // len(keys)
        return True


class Kept(NamedTuple):
    """The records of a batch that stay, as columns; None: all of them do.

    size: of its payload, not compressed.
    """

    batch: BatchToClean
    tombstones: tuple[KeyTombstone, ...]
    size: int
    columns: KeptColumns | None

    @property
    def is_changed(self) -> bool:
        return self.columns is not None or self.tombstones != tuple(self.batch.tombstones)


class KeptColumns(NamedTuple):
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Sequence[Header]]
    stamps: list[int]


def kept(batch: BatchToClean, newest: Mapping[bytes | None, int], terms: CleaningTerms) -> Kept:
    """Returns the batch without the records that go. Raises InvalidBatchError."""
    payload, layout = batch.payload, batch.payload.layout
    keys, offsets = payload.keys(), range(batch.base_offset, batch.end)
    # No Python code runs per record, here and in the columns, but for records without a value.
    stays = list(map(le, map(newest.get, keys, offsets), offsets))
    tombstones = list[KeyTombstone]()
    if layout.value_validity is not None:
        known, unmarked = dict(batch.tombstones), terms._replace(marks=False)
        for place in [place for place, value in enumerate(payload.values()) if value is None]:
            if keys[place] is None:
                stays[place] = batch.was_carried  # a blank from now on, without time and headers
            elif stays[place]:
                # Only if this pass knows its key: an earlier pass may have left an older record.
                is_noted = newest.get(keys[place]) == offsets[place]
                mark = _mark(offsets[place], known, terms if is_noted else unmarked)
                stays[place] = mark is None or mark.drop_after_ms >= terms.log_time_ms
                tombstones += [mark] if mark is not None and stays[place] else []
    if all(stays):
        return Kept(batch, tuple(tombstones), layout.total, None)
    columns = _columns(payload, keys, stays)
    size = sum(map(len, filter(None, columns.keys))) + sum(map(len, filter(None, columns.values)))
    return Kept(batch, tuple(tombstones), size + RECORD_BYTES * len(keys), columns)


def _columns(
    payload: DecodedPayload, keys: list[bytes | None], stays: Sequence[bool] = ()
) -> KeptColumns:
    """Returns the records that stay, and blanks between them; all records without `stays`."""
    values, stamps = payload.values(), payload.timestamps_us()
    headers: list[Sequence[Header]] = [*payload.headers()]
    if stays:
        keys = [key if stay else None for key, stay in zip(keys, stays, strict=True)]
        values = [value if stay else None for value, stay in zip(values, stays, strict=True)]
        stamps = [*map(mul, stamps, stays)]
        if payload.layout.header_count:
            rows = zip(headers, stays, strict=True)
            headers = [row if stay else _BLANK_HEADERS for row, stay in rows]
    return KeptColumns(keys, values, headers, stamps)


def _mark(offset: int, known: Mapping[int, int], terms: CleaningTerms) -> KeyTombstone | None:
    """Returns the tombstone with the moment that was set when it was carried first."""
    if offset in known:
        return KeyTombstone(offset, known[offset])
    if not terms.marks:
        return None
    return KeyTombstone(offset, terms.log_time_ms + terms.delete_retention_ms)


def carried(group: Sequence[Kept], terms: CleaningTerms) -> bytes:
    """Returns the carried batch in place of adjoining ones."""
    batches = [one.batch for one in group]
    first = batches[0]
    if len(group) == 1 and group[0].columns is None and first.codec != KAFKA_V2:
        codec, payload = first.codec, bytes(first.stored)
    else:
        codec, payload = ZSTD, compress(ZSTD, _encoded(group), level=1)
    entry = CarriedEntry(
        codec=codec,
        record_count=batches[-1].end - first.base_offset,
        crc=crc32c(payload),
        base_offset=first.base_offset,
        guard=max(batch.raft_index for batch in batches),
        freed_bytes=sum(batch.entry_bytes for batch in batches),
        append_time_ms=max(batch.append_time_ms for batch in batches),
        max_timestamp_us=max(map(_highest_time, group)),
        stamp_ms=terms.log_time_ms,
        tombstones=tuple(mark for one in group for mark in one.tombstones),
        blanks_behind=_blanks_behind(group),
    )
    return pack_carried(entry, payload)


def _highest_time(one: Kept) -> int:
    """Returns that of the records that stay: a search by time must not stop at a blank."""
    if one.columns is None:
        return one.batch.max_timestamp_us
    keys, values, _, times = one.columns
    rows = zip(keys, values, strict=True)
    live = [key is not None or value is not None for key, value in rows]
    return max(chosen(times, live), default=_NO_TIME)


def _blanks_behind(group: Sequence[Kept]) -> int:
    """Counts the blanks behind the last record."""
    blanks = 0
    for one in reversed(group):
        payload = one.batch.payload
        if one.columns is None and payload.layout.value_validity is None:
            break  # each record has a value
        keys, values, *_ = one.columns or (payload.keys(), payload.values())
        for key, value in zip(reversed(keys), reversed(values), strict=True):
            if key is not None or value is not None:
                return blanks
            blanks += 1
    return blanks


def _encoded(group: Sequence[Kept]) -> bytes:
    whole, end = KeptColumns([], [], [], []), group[0].batch.base_offset
    for one in group:
        assert one.batch.base_offset == end, "they adjoin"
        end = one.batch.end
        part = one.columns or _columns(one.batch.payload, one.batch.payload.keys())
        whole.keys.extend(part.keys)
        whole.values.extend(part.values)
        whole.headers.extend(part.headers)
        whole.stamps.extend(part.stamps)
    return encode_payload(whole.values, whole.stamps, whole.keys, whole.headers)
