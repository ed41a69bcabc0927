"""Record of one producer in the last-seen map: epoch, last sequence, recent batches.

A record is `RECORD_BYTES` long. It holds the newest batch in full and the older
ones of the window backwards, each relative to the next newer one, so that a new
batch only shifts them. If a number does not fit its field (sequences or offsets
2**32 apart, more than 65,535 records with gaps among them), the batches older
than that leave the window: a repeat of theirs is still a DUPLICATE, its offset
unknown. Unused bytes are zero, so equal states are equal bytes.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import NamedTuple

from cluster.dedup.verdict import (
    MAX_UINT32,
    WINDOW,
    BatchMeta,
    KnownProducer,
    RememberedBatch,
    ResolutionKind,
    Resolved,
)

# Last sequence, base offset of the newest batch, epoch, flags, extra, then the
# newest batch's last - first, count and crc.
HEAD = struct.Struct("<qqiBIIII")
# The part that tells whether a batch is simply the next one.
START = struct.Struct("<qqiB")
# An older batch: sequences from its last to the first of the next newer batch,
# last - first, offsets from its base to that of the next newer batch, crc,
# count (0: as many records as sequences).
_OLDER = struct.Struct("<IIIIH")
_HEAD_OLDER = struct.Struct("<qqiBIIIIIIIIH")
_OPENED_PART = struct.Struct("<iBI")  # epoch, flags, extra
_EPOCH_AT = 16
FLAGS_AT = 20
_OLDER_AT = HEAD.size
_SHIFT_TO = _OLDER_AT + _OLDER.size
RECORD_BYTES = _OLDER_AT + (WINDOW - 1) * _OLDER.size
_SHIFT_END = RECORD_BYTES - _OLDER.size
_NO_OLDER = bytes(RECORD_BYTES - _OLDER_AT)

RECENT = 0x07  # how many recent batches the record holds
# The epoch was opened and has stored nothing; extra: the epoch that stored the rest.
OPENED = 0x08
# Unknown batches may precede: the chain does not begin at 0, or the producer was opened after
# it expired. extra (unless OPENED): last sequence - floor, at most 2**32 - 1.
FLOORED = 0x10
PINNED = 0x20
ALL_FLAGS = RECENT | OPENED | FLOORED | PINNED


def first_record(meta: BatchMeta, base_offset: int, pinned: int = 0) -> bytes:
    """Makes the record of a chain that begins with this batch; `pinned` is PINNED or 0."""
    if not meta.first:
        return _lone(meta, base_offset, pinned, 0)
    extra = min(meta.last - meta.first + 1, MAX_UINT32)
    return _lone(meta, base_offset, pinned | FLOORED, extra)


def _lone(meta: BatchMeta, base_offset: int, flags: int, extra: int) -> bytes:
    """Makes a record with only this batch in its window, or none if its span does not fit."""
    span = meta.last - meta.first
    if span > MAX_UINT32:
        span = 0
    else:
        flags |= 1
    head = HEAD.pack(meta.last, base_offset, meta.epoch, flags, extra, span, meta.count, meta.crc)
    return head + _NO_OLDER


def opened_record(epoch: int, *, pinned: bool, expired: bool) -> bytes:
    """Makes the record of a producer that has opened and, as far as is known, stored nothing.

    `expired`: it could have been here and forgotten.
    """
    flags = OPENED | (PINNED if pinned else 0) | (FLOORED if expired else 0)
    return HEAD.pack(-1, 0, epoch, flags, 0, 0, 0, 0) + _NO_OLDER


def append(records: bytearray, at: int, meta: BatchMeta, base_offset: int) -> None:
    """Put an admitted batch into the record at byte `at`."""
    _, epoch, first, last, prev, count, crc, *_ = meta
    old_last, old_base, old_epoch, flags, extra, old_span, old_count, old_crc = HEAD.unpack_from(
        records, at
    )
    if epoch != old_epoch or flags & OPENED:
        records[at : at + RECORD_BYTES] = first_record(meta, base_offset, flags & PINNED)
        return
    follows = prev == old_last and base_offset > old_base
    assert follows, "only an admitted batch is recorded"  # in memory: last_seen's table
    if flags & FLOORED:
        extra = min(extra + last - old_last, MAX_UINT32)
    span = last - first
    gap = first - old_last
    offsets = base_offset - old_base
    short = 0 if old_count == old_span + 1 else old_count
    recent = flags & RECENT
    if (
        not recent
        or gap > MAX_UINT32
        or offsets > MAX_UINT32
        or short > 0xFFFF
        or span > MAX_UINT32
    ):
        lone = _lone(meta, base_offset, flags & ~RECENT, extra)
        records[at : at + RECORD_BYTES] = lone
        return
    if recent < WINDOW:
        flags += 1
    records[at + _SHIFT_TO : at + RECORD_BYTES] = records[at + _OLDER_AT : at + _SHIFT_END]
    _HEAD_OLDER.pack_into(
        records, at,
        last, base_offset, epoch, flags, extra, span, count, crc,
        gap, old_span, offsets, old_crc, short,
    )  # fmt: skip


class ReadableRun(NamedTuple):
    """Published run of one producer: sequences first..last of `epoch`.

    `recent`: its newest batches with their offsets, oldest first; `whole`: these are all.
    """

    epoch: int
    first: int
    last: int
    last_offset: int
    recent: tuple[RememberedBatch, ...]
    whole: bool


def published(records: bytearray, at: int, run: ReadableRun) -> bytes:
    """Returns the record at byte `at` after its run was published."""
    _, _, epoch, flags = START.unpack_from(records, at)
    pinned = flags & PINNED
    if epoch > run.epoch:
        # The run's successor has opened and waits for its last sequence.
        stored = not flags & OPENED
        assert not stored, "nothing is stored beside an open run"  # in memory: last_seen's table
        return _opened_behind(epoch, run, pinned)
    same = epoch == run.epoch
    assert same, "a run raises its producer's epoch when it begins"  # in memory: last_seen's table
    if flags & OPENED:
        return published_first(run, pinned)
    if not run.whole:
        return _chain(run, unpack(records, at).floor, pinned)
    record = bytearray(records[at : at + RECORD_BYTES])
    for batch in run.recent:
        last_sequence: int = START.unpack_from(record)[0]
        append(record, 0, _meta(batch, run.epoch, last_sequence), batch.base_offset)
    return bytes(record)


def published_first(run: ReadableRun, pinned: int = 0) -> bytes:
    """Makes the record of a chain that begins with this run; `pinned` is PINNED or 0."""
    return _chain(run, run.first - 1, pinned)


def used_up(records: bytearray, at: int, epoch: int, last: int, next_offset: int) -> bytes:
    """Returns the record at byte `at` after a run of Kafka's protocol up to `last` was aborted.

    Its client does not send these sequences again.
    """
    _, _, known_epoch, flags = START.unpack_from(records, at)
    if known_epoch > epoch:  # a successor has opened: its chain begins anew
        return bytes(records[at : at + RECORD_BYTES])
    return used_up_first(epoch, last, next_offset, flags & PINNED)


def used_up_first(epoch: int, last: int, next_offset: int, pinned: int = 0) -> bytes:
    """Makes the record of a chain that goes on behind an aborted run; `pinned` is PINNED or 0.

    Nothing up to `last` is called a duplicate. The chain's next offset is `next_offset` or higher.
    """
    run = ReadableRun(epoch, last + 1, last, next_offset - 1, (), True)
    return _chain(run, last, pinned)


def _meta(batch: RememberedBatch, epoch: int, prev: int) -> BatchMeta:
    return BatchMeta(0, epoch, batch.first, batch.last, prev, batch.count, batch.crc)


def _chain(run: ReadableRun, floor: int, pinned: int) -> bytes:
    """Makes a record with a run's known batches in its window, in a chain with that floor."""
    if not run.recent:
        record = bytearray(HEAD.pack(run.last, run.last_offset, run.epoch, pinned, 0, 0, 1, 0))
        record += _NO_OLDER
    else:
        oldest = run.recent[0]
        lone = _lone(_meta(oldest, run.epoch, -1), oldest.base_offset, pinned, 0)
        record = bytearray(lone)
        for before, batch in pairwise(run.recent):
            append(record, 0, _meta(batch, run.epoch, before.last), batch.base_offset)
    if floor >= 0:
        flags = record[FLAGS_AT] | FLOORED
        _OPENED_PART.pack_into(
            record, _EPOCH_AT, run.epoch, flags, min(run.last - floor, MAX_UINT32)
        )
    return bytes(record)


def _opened_behind(epoch: int, run: ReadableRun, pinned: int) -> bytes:
    """Makes the record of a producer that opened `epoch` before its predecessor's run ended."""
    record = bytearray(_chain(run, run.first - 1, pinned))
    _OPENED_PART.pack_into(record, _EPOCH_AT, epoch, record[FLAGS_AT] | OPENED, run.epoch)
    return bytes(record)


def open_epoch(records: bytearray, at: int, epoch: int, pinned: bool) -> None:
    """Raise the epoch of the record at byte `at`; the same epoch only pins."""
    old_epoch, flags, extra = _OPENED_PART.unpack_from(records, at + _EPOCH_AT)
    if pinned:
        flags |= PINNED
    if epoch > old_epoch and not flags & OPENED:
        flags |= OPENED
        extra = old_epoch
    _OPENED_PART.pack_into(records, at + _EPOCH_AT, epoch, flags, extra)


def unpack(records: bytearray, at: int) -> KnownProducer:
    """Unpacks the record at byte `at`."""
    last_sequence, base, epoch, flags, extra, span, count, crc = HEAD.unpack_from(records, at)
    recent = []
    first = last_sequence - span
    if flags & RECENT:
        recent.append(RememberedBatch(first, last_sequence, base, count, crc))
    at += _OLDER_AT
    for _ in range((flags & RECENT) - 1):
        gap, span, offsets, crc, short = _OLDER.unpack_from(records, at)
        at += _OLDER.size
        last = first - gap
        first = last - span
        base -= offsets
        recent.append(RememberedBatch(first, last, base, short or span + 1, crc))
    recent.reverse()
    opened = bool(flags & OPENED)
    floor = last_sequence - extra if flags & FLOORED and not opened else -1
    return KnownProducer(epoch, last_sequence, opened, floor, tuple(recent))


def is_pinned(records: bytearray, at: int) -> bool:
    """Whether the record at byte `at` belongs to a producer with a name."""
    return bool(records[at + FLAGS_AT] & PINNED)


def last_offset(records: bytearray, at: int) -> int:
    """The offset of the last record that the producer stored; -1: none."""
    head = HEAD.unpack_from(records, at)
    base_offset: int = head[1]
    count: int = head[6]
    return base_offset + count - 1 if count else -1


def stored_epoch(records: bytearray, at: int) -> int:
    """The epoch whose chain the record at byte `at` holds: before its first batch, the former's."""
    head = HEAD.unpack_from(records, at)
    epoch, flags, extra, count = head[2], head[3], head[4], head[6]
    return int(extra if flags & OPENED and count else epoch)


def resolve(records: bytearray, at: int, epoch: int, sequence: int) -> Resolved:
    """Tells whether that sequence is stored, by the record at byte `at`; see LastSeen.resolve."""
    head = HEAD.unpack_from(records, at)
    flags, extra, count = head[3], head[4], head[6]
    known = unpack(records, at)
    resolution, offset = ResolutionKind.UNSPECIFIED, -1
    if epoch > known.epoch or (epoch == known.epoch and known.opened):
        resolution = ResolutionKind.NOT_YET
    elif epoch == known.epoch:
        if sequence > known.last_sequence:
            resolution = ResolutionKind.NOT_YET
        else:
            resolution, offset = _locate(known, sequence, sequence > known.floor)
    elif known.opened and not count:
        if not flags & FLOORED:
            resolution = ResolutionKind.NEVER
    elif known.opened and epoch > extra:
        # Raised again before it stored anything.
        resolution = ResolutionKind.NEVER
    elif known.opened and epoch == extra:
        if sequence > known.last_sequence:
            resolution = ResolutionKind.NEVER
        else:
            # The open overwrote the floor of that chain, if it had one.
            resolution, offset = _locate(known, sequence, not flags & FLOORED)
    return Resolved(resolution, offset, known.last_sequence, known.epoch)


def _locate(known: KnownProducer, sequence: int, stored_below: bool) -> tuple[ResolutionKind, int]:
    """Returns the place of a sequence up to the last one.

    `stored_below`: this chain stored everything below the recent batches.
    """
    if sequence < 0:
        return ResolutionKind.NEVER, -1
    for first, last, base_offset, count, _ in known.recent:
        if sequence < first:
            break
        if sequence <= last:
            if count == last - first + 1 or sequence == first:
                return ResolutionKind.COMMITTED, base_offset + sequence - first
            return ResolutionKind.COMMITTED, base_offset + count - 1 if sequence == last else -1
    if known.recent and sequence > known.recent[0].first:
        return ResolutionKind.NEVER, -1  # in a gap between two batches
    return (ResolutionKind.COMMITTED if stored_below else ResolutionKind.UNSPECIFIED), -1
