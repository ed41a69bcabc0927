"""Cleaning by key: a table after any cleanings is the table of all records."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Sequence

import pytest
from crc32c import crc32c

from cluster.cleaning import by_key, messages, passes
from cluster.cleaning.by_key import BatchToClean, CleaningTerms, Kept, NewestByKey
from cluster.cleaning.passes import CleaningPass, Piece, SourceBatch
from cluster.entries import (
    BatchEntry,
    KeyTombstone,
    is_intact,
    pack_batch,
    payload_of,
    unpack_batch,
    unpack_carried,
)
from oncelog.wire.batch import decode_payload, encode_payload
from oncelog.wire.compression import LZ4, NONE, ZSTD, compress, decompress

KEEP_MS = 1000
PLENTY = 1 << 30
Row = tuple[bytes | None, bytes | None]


def plain(
    base: int, rows: Iterable[Row], index: int = 1, codec: int = NONE, *, joined: bool = False
) -> SourceBatch:
    keys, values = zip(*rows, strict=True)
    stamps = [base + i + 1 for i in range(len(keys))]
    payload = compress(codec, encode_payload(values, stamps, keys))
    count, crc = len(keys), crc32c(payload)
    entry = BatchEntry(codec, count, 1, 0, crc, 0, 0, -1, -1, 0, base + count, index, 1, 0)
    end = base + count
    return SourceBatch(base, end, index, index, joined, pack_batch(entry, payload))


def damaged(batch: SourceBatch) -> SourceBatch:
    data = bytearray(batch.data)
    data[100] ^= 1
    return batch._replace(data=bytes(data))


def as_stored(piece: Piece, index: int) -> SourceBatch:
    """Returns the carried batch as it lies in the log, at that index."""
    entry = unpack_carried(piece.data)
    assert is_intact(piece.data)
    assert (entry.base_offset, entry.record_count) == (
        piece.base_offset, piece.end - piece.base_offset,
    )  # fmt: skip
    return SourceBatch(piece.base_offset, piece.end, index, entry.append_time_ms, False, piece.data)


def rows_of(batch: SourceBatch) -> list[Row]:
    data = bytes(batch.data)
    header = unpack_batch(data)
    payload = decode_payload(decompress(header.codec, payload_of(data)), header.record_count)
    return list(zip(payload.keys(), payload.values(), strict=True))


def cleaned(
    batches: Sequence[SourceBatch], terms: CleaningTerms, noted: Sequence[SourceBatch] | None = None
) -> list[Piece]:
    one = CleaningPass(terms, PLENTY)
    assert one.note(batches if noted is None else noted) is None
    return list(one.clean(batches))


class Reader:
    """Reads all records, some at a time, and keeps the newest value of each key."""

    def __init__(self) -> None:
        self.position = self.steps = 0
        self.known: dict[bytes, bytes] = {}

    def read(self, log: Iterable[SourceBatch], end: int) -> None:
        self.steps += 1
        for batch in log:
            if batch.end <= self.position:
                continue
            for offset, (key, value) in enumerate(rows_of(batch), batch.base_offset):
                if self.position <= offset < end and key is not None:
                    self.known.pop(key, None)
                    self.known |= {} if value is None else {key: value}
        self.position = max(self.position, end)


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    batches = [plain(5, [(b"a", b"1"), (b"b", b"1"), (None, b"x")], 3), plain(8, [(b"a", b"2")], 9)]
    (piece,) = cleaned(batches, CleaningTerms(50, KEEP_MS))
    stored, entry = as_stored(piece, 10), unpack_carried(piece.data)
    assert rows_of(stored) == [(None, None), (b"b", b"1"), (None, b"x"), (b"a", b"2")]
    payload = decode_payload(decompress(entry.codec, payload_of(piece.data)))
    assert payload.timestamps_us() == [0, 7, 8, 9]
    assert (entry.base_offset, entry.record_count, entry.codec) == (5, 4, ZSTD)
    assert (entry.guard, entry.append_time_ms, entry.max_timestamp_us) == (9, 9, 9)
    assert entry.freed_bytes == sum(len(batch.data) for batch in batches)


def test_a_search_by_time_stops_at_no_blank() -> None:
    newest = plain(7, [(b"a", b"2")], 2)
    for rows, highest in (([(b"b", b"1"), (b"a", b"1")], 6), ([(b"a", b"1")] * 2, -(2**63))):
        batch = plain(5, rows, 1)
        (piece,) = cleaned([batch], CleaningTerms(50, KEEP_MS), [batch, newest])
        assert unpack_carried(piece.data).max_timestamp_us == highest


def test_a_record_without_key_and_value_becomes_a_blank_and_has_no_time() -> None:
    """No other record of the batch goes."""
    for rows, highest in (([(b"a", b"1"), (None, None)], 6), ([(None, None)], -(2**63))):
        (piece,) = cleaned([plain(5, rows)], CleaningTerms(50, KEEP_MS))
        assert unpack_carried(piece.data).max_timestamp_us == highest
        assert not cleaned([as_stored(piece, 2)], CleaningTerms(60, KEEP_MS))[0].data


@pytest.mark.parametrize("codec", [NONE, ZSTD, LZ4])
def test_a_batch_that_keeps_all_keeps_its_bytes(codec: int) -> None:
    batch = plain(0, [(b"a", b"1"), (b"b", b"1")], codec=codec)
    (piece,) = cleaned([batch], CleaningTerms(50, KEEP_MS))
    assert payload_of(piece.data) == payload_of(bytes(batch.data))
    assert not cleaned([as_stored(piece, 2)], CleaningTerms(60, KEEP_MS))[0].data, "it is clean"


def test_keys_beyond_the_memory_wait_for_the_next_pass() -> None:
    batches = [plain(0, [(b"a", b"1"), (b"b", b"1")]), plain(2, [(b"c", b"1"), (b"d", b"1")])]
    room = by_key.KEY_BYTES + 1
    assert CleaningPass(CleaningTerms(1, 1), 3 * room).note(batches) == 2
    assert CleaningPass(CleaningTerms(1, 1), 4 * room).note(batches) is None
    assert CleaningPass(CleaningTerms(1, 1), 1).note(batches[:1]) is None, "one batch always fits"
    joined = [batches[0]._replace(joined=True), batches[1]]
    assert CleaningPass(CleaningTerms(1, 1), 1).note(joined) is None, "it is one transaction"


def test_a_key_takes_no_more_memory_than_is_counted() -> None:
    newest, rows = NewestByKey(PLENTY), [(b"key %06d" % i, b"") for i in range(40_000)]
    batch = passes._decoded(plain(0, rows))
    tracemalloc.start()
    try:
        assert newest.add(batch)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / len(rows) < by_key.KEY_BYTES + len(rows[0][0])


@pytest.mark.parametrize("delete_retention_ms", [0, KEEP_MS])
def test_a_tombstone_stays_for_its_time_from_the_first_cleaning_on(
    delete_retention_ms: int,
) -> None:
    batch, now = plain(0, [(b"a", None)]), 50
    gone_at = now + delete_retention_ms
    (piece,) = cleaned([batch], CleaningTerms(now, delete_retention_ms))
    assert unpack_carried(piece.data).tombstones == (KeyTombstone(0, gone_at),)
    batch = as_stored(piece, 10)
    for passed in (0, delete_retention_ms // 2, delete_retention_ms):
        (piece,) = cleaned([batch], CleaningTerms(now + passed, delete_retention_ms))
        assert not piece.data, "cleanings do not renew it"
        # A record beside it goes, so that it is carried again.
        beside = plain(1, [(b"b", b"1"), (b"b", b"2")], 11)
        (piece,) = cleaned([batch, beside], CleaningTerms(now + passed, delete_retention_ms))
        assert unpack_carried(piece.data).tombstones == (KeyTombstone(0, gone_at),)
    (piece,) = cleaned([batch], CleaningTerms(gone_at + 1, delete_retention_ms))
    assert rows_of(as_stored(piece, 99)) == [(None, None)]
    assert not unpack_carried(piece.data).tombstones


def test_a_tombstone_behind_a_batch_that_stays_is_not_marked() -> None:
    """That batch may have an older record of its key, which would come back."""
    batches = [damaged(plain(0, [(b"a", b"1")])), plain(1, [(b"a", None)])]
    left, piece = cleaned(batches, CleaningTerms(50, 0))
    assert "checksum" in left.error and not left.data
    assert not unpack_carried(piece.data).tombstones
    assert rows_of(as_stored(piece, 5)) == [(b"a", None)]
    clean = [plain(0, [(b"a", b"1")]), as_stored(piece, 5)]
    entry = unpack_carried(cleaned(clean, CleaningTerms(60, 0))[0].data)
    assert entry.tombstones == (KeyTombstone(1, 60),)


def test_a_tombstone_behind_a_group_that_stays_is_not_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One batch of the group cannot be written again; another has an older record of the key."""
    payload = encode_payload([b"1"], [1], [b"x"], [[("name", b"")]]).replace(b"name", b"\xff\xffme")
    entry = BatchEntry(NONE, 1, 1, 0, crc32c(payload), 0, 0, -1, -1, 0, 1, 1, 1, 0)
    strange = SourceBatch(1, 2, 1, 1, False, pack_batch(entry, payload))
    batches = [plain(0, [(b"a", b"1")]), strange, plain(2, [(b"a", None)])]
    monkeypatch.setattr(passes, "GROUP_BYTES", by_key.RECORD_BYTES + len(payload))
    left, piece = cleaned(batches, CleaningTerms(50, 0))
    assert "UTF-8" in left.error and (left.base_offset, left.end) == (0, 2)
    assert not unpack_carried(piece.data).tombstones
    assert rows_of(as_stored(piece, 5)) == [(b"a", None)]


def test_an_old_batch_is_carried_again() -> None:
    """The Raft log is kept from the oldest one on."""
    (piece,) = cleaned([plain(0, [(b"a", b"1"), (b"b", None)])], CleaningTerms(50, KEEP_MS))
    stored = as_stored(piece, 10)
    assert not cleaned([stored], CleaningTerms(60, KEEP_MS, again_below=10))[0].data
    (again,) = cleaned([stored], CleaningTerms(60, KEEP_MS, again_below=11))
    assert rows_of(as_stored(again, 20)) == rows_of(stored)
    first, second = unpack_carried(piece.data), unpack_carried(again.data)
    assert second.guard == 10 and second.tombstones == first.tombstones


def test_a_damaged_batch_does_not_end_a_cleaning() -> None:
    batches = [
        plain(0, [(b"a", b"1")]), damaged(plain(1, [(b"a", b"2")])), plain(2, [(b"a", b"3")]),
    ]  # fmt: skip
    found = cleaned(batches, CleaningTerms(50, KEEP_MS))
    assert [(one.base_offset, one.end, bool(one.data)) for one in found] == [
        (0, 1, True), (1, 2, False), (2, 3, True),
    ]  # fmt: skip
    assert rows_of(as_stored(found[0], 9)) == [(None, None)]


@pytest.mark.parametrize("fails", [(1,), (1, 2)])
def test_a_batch_that_needs_too_much_memory_stays(
    monkeypatch: pytest.MonkeyPatch, fails: tuple[int, ...]
) -> None:
    """Even if there is enough by the second time: its keys are not known, so its tombstones do not
    hide older records."""
    tries, huge = 0, 1 << 20

    def decode(codec: int, payload: bytes) -> bytes | memoryview:
        nonlocal tries
        tries += len(payload) > huge
        if len(payload) > huge and tries in fails:
            raise MemoryError
        return decompress(codec, payload)

    monkeypatch.setattr(passes, "decompress", decode)
    first, large = plain(0, [(b"a", b"1")]), plain(1, [(b"a", None), (b"b", b"." * huge)])
    batches = [first, large, plain(3, [(b"a", None)])]
    found = cleaned(batches, CleaningTerms(50, KEEP_MS))
    assert [(one.base_offset, bool(one.data)) for one in found] == [
        (0, True),
        (1, False),
        (3, True),
    ]
    assert "cleaner_memory_bytes" in found[1].error
    assert not unpack_carried(found[2].data).tombstones


class Full(dict[bytes | None, int]):
    """Newest offsets, for which the memory ends in the middle of a batch."""

    def update(self, rows: Iterable[tuple[bytes | None, int]]) -> None:  # type: ignore[override]
        for count, (key, offset) in enumerate(rows):
            if count == 2:
                raise MemoryError
            self[key] = offset


def test_a_record_without_a_key_stays_if_the_memory_ends_while_a_batch_is_noted() -> None:
    one = CleaningPass(CleaningTerms(50, KEEP_MS), PLENTY)
    first = plain(0, [(None, b"x"), (b"a", b"1")])
    large = plain(2, [(b"a", b"2"), (None, b"y"), (b"b", b"1")])
    assert one.note([first]) is None
    one._newest.offsets = Full(one._newest.offsets)
    assert one.note([large]) is None
    carried, left = one.clean([first, large])
    assert rows_of(as_stored(carried, 9)) == [(None, b"x"), (None, None)]
    assert left.error and not left.data


def test_groups_are_bounded_and_transactions_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "GROUP_BYTES", 400)
    alone = [plain(i, [(b"%d" % i, b"v")]) for i in range(12)]
    spans = [(one.base_offset, one.end) for one in cleaned(alone, CleaningTerms(1, 1))]
    assert len(spans) > 2 and max(end - base for base, end in spans) > 1
    larger = CleaningPass(CleaningTerms(1, 1), PLENTY)
    assert larger.note(alone) is None
    larger.go_on(1, 0, growth=4)
    assert 4 * len(list(larger.clean(alone))) <= len(spans) + 3
    joined = [one._replace(joined=i < 11) for i, one in enumerate(alone)]
    (piece,) = cleaned(joined, CleaningTerms(1, 1))
    assert (piece.base_offset, piece.end) == (0, 12)


@pytest.mark.parametrize(
    ("rows", "later", "blanks"),
    [
        ([(b"a", b"1"), (b"b", b"2")], [b"a"], 0),
        ([(b"a", b"1"), (b"b", b"2")], [b"b"], 1),
        ([(b"a", b"1"), (b"b", b"2")], [b"a", b"b"], 2),
        ([(b"a", b"1"), (b"b", None), (None, None)], [b"a"], 1),  # a tombstone is a record
        ([(None, b"1"), (b"b", b"2")], [b"b"], 1),
    ],
)
def test_a_carried_batch_counts_the_blanks_behind_its_last_record(
    rows: list[Row], later: list[bytes], blanks: int
) -> None:
    base = len(rows)
    newer = plain(base, [(key, b"new") for key in later], index=2)
    terms = CleaningTerms(10, KEEP_MS)
    (piece,) = cleaned([plain(0, rows)], terms, [plain(0, rows), newer])
    assert unpack_carried(piece.data).blanks_behind == blanks
    # Its batch, with nothing more to remove, in one with the next.
    again = terms._replace(again_below=9)
    (alone,) = cleaned([as_stored(piece, 5)], again)
    assert unpack_carried(alone.data).blanks_behind == blanks
    moved = as_stored(alone, 6)._replace(base_offset=base, end=2 * base)
    (both,) = cleaned([as_stored(piece, 5), moved], again)
    assert unpack_carried(both.data).blanks_behind == blanks + (base if blanks == base else 0)


def test_small_carried_batches_become_one() -> None:
    """Of like size only, so that each record is carried few times."""
    terms, log = CleaningTerms(1, 1), list[SourceBatch]()
    carries = 0
    for i in range(256):
        log.append(plain(i, [(b"%d" % i, b"v")]))
        again = list[SourceBatch]()
        for piece in cleaned(log, terms):
            inside = [one for one in log if piece.base_offset <= one.base_offset < piece.end]
            carries += len(piece.data) > 0 and piece.end - piece.base_offset
            again += [as_stored(piece, i)] if piece.data else inside
        log = again
    assert len(log) == 1 and carries == 256 * 257 / 2, "a group with anything new is carried"


def test_requests_and_replies_are_those_of_a_pass() -> None:
    batches = [plain(0, [(b"a", b"1")]), damaged(plain(1, [(b"c", None)])), plain(2, [(b"a", b"")])]
    terms, worker = CleaningTerms(50, KEEP_MS), messages.CleaningWorker()
    assert worker.answer(messages.begin(terms, PLENTY)) == b""
    assert messages.full_at(worker.answer(messages.note(batches))) is None
    reply = worker.answer(messages.clean(batches, 50, 0, 1, left=False))
    assert list(messages.pieces(reply)) == cleaned(batches, terms)
    tombstone = plain(3, [(b"t", None)])
    for left in (False, True):
        worker.answer(messages.begin(terms, 1))
        assert messages.full_at(worker.answer(messages.note([tombstone]))) is None
        assert messages.full_at(worker.answer(messages.note(batches))) == 0
        request = messages.clean([tombstone], 50, 0, 1, left=left)
        (piece,) = messages.pieces(worker.answer(request))
        assert len(unpack_carried(piece.data).tombstones) == (not left)


READ_STEPS, STEP_MS = 20, KEEP_MS // 20  # each reader is done in time


def _walk(seed: int) -> tuple[int, int]:
    """Appends, cleans and reads at random; returns how many rows and tombstones stayed."""
    rng, now, end = random.Random(seed), 0, 0
    log, whole, readers = list[SourceBatch](), Reader(), list[Reader]()
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
            log = _passed(rng, log, CleaningTerms(now, KEEP_MS), 1000 + index)
        readers.append(Reader())
        for reader in readers:
            is_last = reader.steps == READ_STEPS - 1
            reader.read(log, end if is_last else rng.randint(reader.position, end))
        for reader in [reader for reader in readers if reader.position == end]:
            assert reader.known == whole.known, (seed, index)
            readers.remove(reader)
    assert [batch.base_offset for batch in log] == [0, *(batch.end for batch in log)][:-1]
    kept = [row for batch in log for row in rows_of(batch) if row[0] is not None]
    return len(kept), sum(value is None for _, value in kept)


def _passed(
    rng: random.Random, log: list[SourceBatch], terms: CleaningTerms, index: int
) -> list[SourceBatch]:
    """One pass from the log's start on, in pieces, as far as its keys fit; it may break off."""
    one = CleaningPass(terms, rng.choice((1, 700, PLENTY)))
    stop = one.note(log[rng.randrange(len(log)) :])
    done, rest = list[SourceBatch](), list(log)
    while rest and (stop is None or rest[0].base_offset < stop) and rng.random() < 0.95:
        chunk = [rest.pop(0)]
        while rest and rng.random() < 0.6 and (stop is None or rest[0].base_offset < stop):
            chunk.append(rest.pop(0))
        for piece in one.clean(chunk):
            inside = [old for old in chunk if piece.base_offset <= old.base_offset < piece.end]
            done += [as_stored(piece, index)] if piece.data else inside
    return done + rest


def test_every_reader_ends_with_the_newest_values() -> None:
    walks = [_walk(seed) for seed in range(20)]
    assert min(rows for rows, _ in walks) < 60 and max(marks for _, marks in walks) > 0


def test_a_tombstone_that_goes_at_once_is_missed_by_a_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(by_key, "_mark", lambda offset, known, terms: KeyTombstone(offset, -1))
    with pytest.raises(AssertionError):
        [_walk(seed) for seed in range(30)]


def test_a_pass_that_drops_what_it_does_not_know_loses_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(
        batch: BatchToClean, newest: dict[bytes | None, int], terms: CleaningTerms
    ) -> Kept:
        return kept(batch, dict.fromkeys(batch.payload.keys(), 1 << 40) | newest, terms)

    kept = by_key.kept
    monkeypatch.setattr(passes, "kept", careless)
    with pytest.raises(AssertionError):
        [_walk(seed) for seed in range(30)]
