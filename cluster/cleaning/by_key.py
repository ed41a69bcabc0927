"""Cleaning by key: keeps the newest record of each key, and tombstones for a while. Pure.

    stored batches --newest_by_key--> {key: offset} --cleaned--> one carried batch

A record that goes leaves a blank in its place, without key and value, so offsets have no holes.
A tombstone (a key without a value) stays until log time passes a moment that is set when it is
carried for the first time. It keeps this moment through later cleanings: else a topic that is
cleaned often would keep its tombstones for ever.

A pass takes the batches from the log's start on, in order. So when a tombstone is carried for the
first time, the older records of its key are blanks, and it may go later without bringing one back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from crc32c import crc32c

from cluster.entries import CarriedEntry, KeyTombstone
from oncelog.types import Header
from oncelog.wire.batch import DecodedPayload, encode_payload
from oncelog.wire.compression import compress

ZSTD = 1


class BatchToClean(NamedTuple):
    """A stored batch that is to be cleaned. tombstones: of a batch that was carried before."""

    base_offset: int
    raft_index: int
    entry_bytes: int
    append_time_ms: int
    max_timestamp_us: int
    payload: DecodedPayload
    tombstones: Sequence[KeyTombstone] = ()


class CleaningTerms(NamedTuple):
    """Log time now, and how long a tombstone stays after its first cleaning."""

    log_time_ms: int
    delete_retention_ms: int


def newest_by_key(
    batches: Iterable[BatchToClean], most_keys: int
) -> tuple[dict[bytes, int], int | None]:
    """Returns the newest offset of each key, and the offset where the keys became too many.

    None: it has seen all batches. A batch counts as a whole or not at all.
    """
    newest: dict[bytes, int] = {}
    for batch in batches:
        keys = batch.payload.keys()
        if len(newest) + len({*keys} - newest.keys()) > most_keys and newest:
            return newest, batch.base_offset
        offsets = range(batch.base_offset, batch.base_offset + len(keys))
        newest |= {key: at for key, at in zip(keys, offsets, strict=True) if key is not None}
    return newest, None


def cleaned(
    batches: Sequence[BatchToClean], newest: Mapping[bytes, int], terms: CleaningTerms
) -> tuple[CarriedEntry, bytes]:
    """Returns the carried batch in place of adjoining ones: its header and payload."""
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    headers: list[Sequence[Header]] = []
    stamps: list[int] = []
    tombstones: list[KeyTombstone] = []
    for batch in batches:
        assert batch.base_offset == batches[0].base_offset + len(values), "they adjoin"
        known = dict(batch.tombstones)
        columns = (batch.payload.keys(), batch.payload.values(), batch.payload.headers())
        rows = zip(*columns, batch.payload.timestamps_us(), strict=True)
        for offset, (key, value, header, stamp) in enumerate(rows, batch.base_offset):
            stays = key is None or newest.get(key, offset) <= offset
            if stays and key is not None and value is None:
                mark = _marked(offset, known, terms)
                stays = mark.drop_after_ms >= terms.log_time_ms
                tombstones += [mark] if stays else []
            keys.append(key if stays else None)
            values.append(value if stays else None)
            headers.append(header if stays else ())
            stamps.append(stamp if stays else 0)
    payload = compress(ZSTD, encode_payload(values, stamps, keys, headers))
    entry = CarriedEntry(
        codec=ZSTD,
        record_count=len(values),
        crc=crc32c(payload),
        base_offset=batches[0].base_offset,
        guard=max(batch.raft_index for batch in batches),
        freed_bytes=sum(batch.entry_bytes for batch in batches),
        append_time_ms=max(batch.append_time_ms for batch in batches),
        max_timestamp_us=max(batch.max_timestamp_us for batch in batches),
        stamp_ms=terms.log_time_ms,
        tombstones=tuple(tombstones),
    )
    return entry, payload


def _marked(offset: int, known: Mapping[int, int], terms: CleaningTerms) -> KeyTombstone:
    """Returns the tombstone with the moment that was set when it was carried first."""
    return KeyTombstone(offset, known.get(offset, terms.log_time_ms + terms.delete_retention_ms))
