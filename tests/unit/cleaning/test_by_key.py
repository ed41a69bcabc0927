"""Cleaning by key: a table after any cleanings is the table of all records."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from cluster.cleaning import by_key
from cluster.cleaning.by_key import BatchToClean, CleaningTerms, cleaned, newest_by_key
from cluster.entries import CarriedEntry, KeyTombstone, pack_carried, unpack_carried
from oncelog.wire.batch import DecodedPayload, decode_payload, encode_payload
from oncelog.wire.compression import ZSTD, decompress

KEEP_MS = 1000
Row = tuple[bytes | None, bytes | None]


def plain(base: int, rows: Iterable[Row], index: int = 1) -> BatchToClean:
    keys, values = zip(*rows, strict=True)
    payload = encode_payload(values, [base + i + 1 for i in range(len(keys))], keys)
    return BatchToClean(base, index, len(payload), index, base + len(keys), DecodedPayload(payload))


def as_stored(entry: CarriedEntry, payload: bytes, index: int) -> BatchToClean:
    read = unpack_carried(pack_carried(entry, payload))
    decoded = decode_payload(decompress(read.codec, payload), read.record_count)
    size = len(pack_carried(entry, payload))
    times = (read.append_time_ms, read.max_timestamp_us)
    return BatchToClean(read.base_offset, index, size, *times, decoded, read.tombstones)


def rows_of(batch: BatchToClean) -> list[Row]:
    return list(zip(batch.payload.keys(), batch.payload.values(), strict=True))


class Reader:
    """Reads all records, some at a time, and keeps the newest value of each key."""

    def __init__(self) -> None:
        self.position = self.steps = 0
        self.known: dict[bytes, bytes] = {}

    def read(self, log: Iterable[BatchToClean], end: int) -> None:
        self.steps += 1
        for batch in log:
            for offset, (key, value) in enumerate(rows_of(batch), batch.base_offset):
                if self.position <= offset < end and key is not None:
                    self.known.pop(key, None)
                    self.known |= {} if value is None else {key: value}
        self.position = max(self.position, end)


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    batches = [plain(5, [(b"a", b"1"), (b"b", b"1"), (None, b"x")], 3), plain(8, [(b"a", b"2")], 9)]
    newest, end = newest_by_key(batches, 100)
    assert (newest, end) == ({b"a": 8, b"b": 6}, None)
    entry, payload = cleaned(batches, newest, CleaningTerms(50, KEEP_MS))
    stored = as_stored(entry, payload, 10)
    assert rows_of(stored) == [(None, None), (b"b", b"1"), (None, b"x"), (b"a", b"2")]
    assert stored.payload.timestamps_us() == [0, 7, 8, 9]
    assert (entry.base_offset, entry.record_count, entry.codec) == (5, 4, ZSTD)
    assert (entry.guard, entry.append_time_ms, entry.max_timestamp_us) == (9, 9, 9)
    assert entry.freed_bytes == sum(batch.entry_bytes for batch in batches)


def test_keys_beyond_the_memory_wait_for_the_next_pass() -> None:
    batches = [plain(0, [(b"a", b"1"), (b"b", b"1")]), plain(2, [(b"c", b"1"), (b"d", b"1")])]
    assert newest_by_key(batches, 3) == ({b"a": 0, b"b": 1}, 2)
    assert newest_by_key(batches[1:], 1) == ({b"c": 2, b"d": 3}, None), "one batch always fits"


@pytest.mark.parametrize("delete_retention_ms", [0, KEEP_MS])
def test_a_tombstone_stays_for_its_time_from_the_first_cleaning_on(
    delete_retention_ms: int,
) -> None:
    batch, now = plain(0, [(b"a", None)]), 50
    gone_at = now + delete_retention_ms
    for passed in (0, delete_retention_ms // 2, delete_retention_ms):
        terms = CleaningTerms(now + passed, delete_retention_ms)
        entry, payload = cleaned([batch], {b"a": 0}, terms)
        assert entry.tombstones == (KeyTombstone(0, gone_at),), "cleanings do not renew it"
        batch = as_stored(entry, payload, 10 + passed)
    entry, payload = cleaned([batch], {b"a": 0}, CleaningTerms(gone_at + 1, delete_retention_ms))
    assert rows_of(as_stored(entry, payload, 99)) == [(None, None)] and not entry.tombstones


READ_STEPS, STEP_MS = 20, KEEP_MS // 20  # each reader is done in time


def _walk(seed: int) -> tuple[int, int]:
    """Appends, cleans and reads at random; returns how many rows and tombstones stayed."""
    rng, now, end = random.Random(seed), 0, 0
    log, whole, readers = list[BatchToClean](), Reader(), list[Reader]()
    for index in range(1, 60):
        now += rng.randrange(STEP_MS)
        rows = [
            (rng.choice((b"a", b"b", b"c", b"d")), rng.choice((None, b"%d" % index)))
            for _ in range(rng.randint(1, 4))
        ]
        log.append(plain(end, rows, index))
        end += len(rows)
        whole.read(log[-1:], end)
        if rng.random() < 0.3:
            newest, stop = newest_by_key(log[rng.randrange(len(log)) :], rng.choice((1, 3, 100)))
            log = _passed(rng, log, newest, stop, CleaningTerms(now, KEEP_MS))
        readers.append(Reader())
        for reader in readers:
            is_last = reader.steps == READ_STEPS - 1
            reader.read(log, end if is_last else rng.randint(reader.position, end))
        for reader in [reader for reader in readers if reader.position == end]:
            assert reader.known == whole.known, (seed, index)
            readers.remove(reader)
    lengths = [len(batch.payload) for batch in log]
    assert [batch.base_offset for batch in log] == [sum(lengths[:i]) for i in range(len(log))]
    kept = [row for batch in log for row in rows_of(batch) if row[0] is not None]
    return len(kept), sum(value is None for _, value in kept)


def _passed(
    rng: random.Random,
    log: list[BatchToClean],
    newest: dict[bytes, int],
    stop: int | None,
    terms: CleaningTerms,
) -> list[BatchToClean]:
    """One pass from the log's start up to `stop`, in pieces."""
    done, rest = list[BatchToClean](), list(log)
    while rest and (stop is None or rest[0].base_offset < stop):
        piece = [rest.pop(0)]
        while rest and rng.random() < 0.6 and (stop is None or rest[0].base_offset < stop):
            piece.append(rest.pop(0))
        done.append(as_stored(*cleaned(piece, newest, terms), 1000))
    return done + rest


def test_every_reader_ends_with_the_newest_values() -> None:
    walks = [_walk(seed) for seed in range(10)]
    assert min(rows for rows, _ in walks) < 60 and max(marks for _, marks in walks) > 0


def test_a_tombstone_that_goes_at_once_is_missed_by_a_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(by_key, "_marked", lambda offset, known, terms: KeyTombstone(offset, -1))
    with pytest.raises(AssertionError):
        [_walk(seed) for seed in range(30)]
