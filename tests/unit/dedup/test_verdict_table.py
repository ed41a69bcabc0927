"""One row for each case of docs/protocol.md's verdicts, and the corners it leaves open.

Each row plays the same short history and then asks for one more batch. Numbers
in a batch: (producer id, epoch, first, last, prev) and, where they matter,
count, crc and expected offset.
"""

from __future__ import annotations

from typing import Any

import pytest

from cluster.dedup.in_flight import InFlight
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import (
    BatchMeta,
    Formats,
    Kind,
    OffsetRule,
    ResolutionKind,
    Verdict,
    validate,
)
from oncelog.v1 import cluster_pb2, log_pb2

CRC = 0xC0FFEE
LIFETIME = 24 * 3600 * 1000


def batch(
    pid: int,
    epoch: int,
    first: int,
    last: int,
    prev: int,
    *,
    count: int | None = None,
    crc: int = CRC,
    x: int = -1,
) -> BatchMeta:
    """A batch; as many records as sequences unless told."""
    count = last - first + 1 if count is None else count
    return BatchMeta(pid, epoch, first, last, prev, count, crc, x)


def history() -> tuple[LastSeen, int]:
    """History that the partition has stored before each row; (map, next offset).

    PID 7   epoch 2, dense: seven batches of ten, 0..69, so 20..69 are the recent ones.
    ID 8   epoch 0, sparse: 11..14 (two records), 20..20, 30..39; prev proves the gaps.
    ID 9   opened under epoch 5 by a successor; epoch 4 had stored 0..9.
    ID 10  opened under epoch 3, nothing stored.
    ID 11  epoch 1 continues epoch 0 at 9: 10..19.
    ID 3   below the watermark (5) and without a name: expired.
    """
    last_seen = LastSeen()
    next_offset = 0

    def append(meta: BatchMeta) -> None:
        nonlocal next_offset
        verdict = last_seen.check(meta, next_offset=next_offset)
        assert verdict.kind == Kind.APPENDED, verdict
        last_seen.record(meta, next_offset, 1000)
        next_offset += meta.count

    append(batch(3, 0, 0, 9, -1))  # offsets 0..9
    for first in range(0, 70, 10):  # offsets 10..79
        append(batch(7, 2, first, first + 9, first - 1))
    append(batch(8, 0, 11, 14, -1, count=2))  # offset 80
    append(batch(8, 0, 20, 20, 14))  # offset 82
    append(batch(8, 0, 30, 39, 20))  # offset 83
    append(batch(9, 4, 0, 9, -1))  # offset 93
    append(batch(11, 0, 0, 9, -1))  # offset 103
    assert last_seen.open(9, 5, 1000).kind == Kind.APPENDED
    assert last_seen.open(10, 3, 1000).kind == Kind.APPENDED
    assert last_seen.open(11, 1, 1000).kind == Kind.APPENDED
    append(batch(11, 1, 10, 19, 9))  # offset 113
    last_seen.advance(2000, lifetime_ms=LIFETIME, expired_below=5)
    return last_seen, next_offset


NEXT = 123

# description, batch, verdict, the verdict's numbers
ROWS: list[tuple[str, BatchMeta, Kind, dict[str, int]]] = [
    # --- PID 0
    ("PID 0 appends", batch(0, 0, 0, 0, -1), Kind.APPENDED, {"base_offset": NEXT}),
    ("PID 0, any sequence", batch(0, -5, -9, -7, 40, count=1), Kind.APPENDED, {}),
    ("PID 0, x is next", batch(0, 0, 0, 0, -1, x=NEXT), Kind.APPENDED, {}),
    ("PID 0, x behind", batch(0, 0, 0, 0, -1, x=3), Kind.OFFSET_MISMATCH, {"next_offset": NEXT}),
    ("PID 0, x ahead", batch(0, 0, 0, 0, -1, x=124), Kind.OFFSET_MISMATCH, {"next_offset": NEXT}),
    # --- not in the map
    ("new PID, first batch", batch(20, 0, 0, 9, -1), Kind.APPENDED, {"base_offset": NEXT}),
    ("new PID, first batch, late start", batch(20, 6, 50, 59, -1), Kind.APPENDED, {}),
    ("new PID, not a first batch", batch(20, 0, 10, 19, 9), Kind.UNKNOWN_PRODUCER, {}),
    ("new PID, prev 0 is not first", batch(20, 0, 1, 9, 0), Kind.UNKNOWN_PRODUCER, {}),
    ("expired PID, repeat", batch(3, 0, 0, 9, -1), Kind.PRODUCER_EXPIRED, {}),
    ("expired PID, next", batch(3, 0, 10, 19, 9), Kind.PRODUCER_EXPIRED, {}),
    ("expired PID, higher epoch", batch(3, 1, 0, 9, -1), Kind.PRODUCER_EXPIRED, {}),
    ("expired PID, never seen here", batch(4, 0, 0, 9, -1), Kind.PRODUCER_EXPIRED, {}),
    ("the watermark itself is alive", batch(5, 0, 0, 9, -1), Kind.APPENDED, {}),
    # --- epochs
    ("E < e, next", batch(7, 1, 70, 79, 69), Kind.FENCED, {"current_epoch": 2}),
    ("E < e, first", batch(7, 0, 0, 9, -1), Kind.FENCED, {"current_epoch": 2}),
    ("E < e, repeat", batch(7, 1, 60, 69, 59), Kind.FENCED, {"current_epoch": 2}),
    ("E < e wins over x", batch(7, 1, 0, 9, -1, x=4), Kind.FENCED, {"current_epoch": 2}),
    ("E > e, first batch", batch(7, 3, 0, 9, -1), Kind.APPENDED, {}),
    ("E > e, epochs skipped", batch(7, 900, 0, 9, -1), Kind.APPENDED, {}),
    ("E > e, first batch, late start", batch(7, 3, 70, 79, -1), Kind.APPENDED, {}),
    (
        "E > e, not a first batch, though next",
        batch(7, 3, 70, 79, 69),
        Kind.OUT_OF_ORDER,
        {"last_sequence": -1, "current_epoch": 2},
    ),
    ("E > e, not first", batch(7, 3, 10, 19, 9), Kind.OUT_OF_ORDER, {"last_sequence": -1}),
    # --- repeats
    ("repeat of the newest", batch(7, 2, 60, 69, 59), Kind.DUPLICATE, {"base_offset": 70}),
    ("repeat of the oldest recent", batch(7, 2, 20, 29, 19), Kind.DUPLICATE, {"base_offset": 30}),
    ("repeat below the recent ones", batch(7, 2, 10, 19, 9), Kind.DUPLICATE, {"base_offset": -1}),
    ("repeat of the first, below", batch(7, 2, 0, 9, -1), Kind.DUPLICATE, {"base_offset": -1}),
    ("repeat wins over x", batch(7, 2, 60, 69, 59, x=5), Kind.DUPLICATE, {"base_offset": 70}),
    ("repeat below wins over x", batch(7, 2, 0, 9, -1, x=5), Kind.DUPLICATE, {"base_offset": -1}),
    ("repeat, prev not compared", batch(7, 2, 60, 69, 3), Kind.DUPLICATE, {"base_offset": 70}),
    ("repeat, sparse", batch(8, 0, 11, 14, -1, count=2), Kind.DUPLICATE, {"base_offset": 80}),
    ("other crc", batch(7, 2, 60, 69, 59, crc=1), Kind.SEQUENCE_CONFLICT, {"last_sequence": 69}),
    ("other count", batch(8, 0, 11, 14, -1, count=3), Kind.SEQUENCE_CONFLICT, {}),
    ("conflict wins over x", batch(7, 2, 60, 69, 59, crc=1, x=0), Kind.SEQUENCE_CONFLICT, {}),
    # --- other cuts of stored sequences
    ("part of a batch", batch(7, 2, 60, 64, 59), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("inside of a batch", batch(7, 2, 62, 64, 61), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("two batches as one", batch(7, 2, 50, 69, 49), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("over the window's edge", batch(7, 2, 15, 24, 14), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("window and all below", batch(7, 2, 0, 69, -1), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("inside a proven gap", batch(8, 0, 16, 18, 14), Kind.OUT_OF_ORDER, {"last_sequence": 39}),
    ("gap and batch", batch(8, 0, 18, 20, 14), Kind.OUT_OF_ORDER, {"last_sequence": 39}),
    ("before the chain", batch(8, 0, 0, 9, -1), Kind.OUT_OF_ORDER, {"last_sequence": 39}),
    ("last of before the chain", batch(8, 0, 10, 10, -1), Kind.OUT_OF_ORDER, {}),
    # --- the next batch
    ("prev = L", batch(7, 2, 70, 79, 69), Kind.APPENDED, {"base_offset": NEXT}),
    ("prev = L, one record", batch(7, 2, 70, 70, 69), Kind.APPENDED, {}),
    ("prev = L, sparse", batch(7, 2, 1000, 2000, 69, count=3), Kind.APPENDED, {}),
    ("prev = L, x is next", batch(7, 2, 70, 79, 69, x=NEXT), Kind.APPENDED, {}),
    ("next, x wrong", batch(7, 2, 70, 79, 69, x=0), Kind.OFFSET_MISMATCH, {"next_offset": NEXT}),
    ("new PID, x wrong", batch(20, 0, 0, 9, -1, x=0), Kind.OFFSET_MISMATCH, {"next_offset": NEXT}),
    ("prev > L", batch(7, 2, 80, 89, 79), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("prev > L by one", batch(7, 2, 71, 79, 70), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("prev > L wins over x", batch(7, 2, 80, 89, 79, x=0), Kind.OUT_OF_ORDER, {}),
    ("partly new", batch(7, 2, 65, 74, 64), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("partly new, all below too", batch(7, 2, 0, 70, -1), Kind.OUT_OF_ORDER, {"last_sequence": 69}),
    ("prev denies what is stored", batch(7, 2, 70, 79, 59), Kind.OUT_OF_ORDER, {}),
    ("prev = -1 denies it, too", batch(7, 2, 70, 79, -1), Kind.OUT_OF_ORDER, {}),
    # --- after an open
    ("opened: predecessor's next", batch(9, 4, 10, 19, 9), Kind.FENCED, {"current_epoch": 5}),
    ("opened: predecessor's repeat", batch(9, 4, 0, 9, -1), Kind.FENCED, {"current_epoch": 5}),
    ("opened: first batch", batch(9, 5, 0, 9, -1), Kind.APPENDED, {}),
    ("opened: first batch, late start", batch(9, 5, 10, 19, -1), Kind.APPENDED, {}),
    ("opened: continues", batch(9, 5, 10, 19, 9), Kind.APPENDED, {}),
    ("opened: continues, sparse", batch(9, 5, 15, 19, 9, count=1), Kind.APPENDED, {}),
    (
        "opened: second of a new chain came first",
        batch(9, 5, 20, 29, 19),
        Kind.OUT_OF_ORDER,
        {"last_sequence": 9},
    ),
    # Under epoch 5, 5..8 may be other records than epoch 4 stored under these numbers.
    ("opened: below L is no repeat", batch(9, 5, 5, 8, 4), Kind.OUT_OF_ORDER, {"last_sequence": 9}),
    ("opened: epoch above", batch(9, 6, 0, 9, -1), Kind.APPENDED, {}),
    ("opened: epoch above, continues", batch(9, 6, 10, 19, 9), Kind.OUT_OF_ORDER, {}),
    ("opened, empty: first batch", batch(10, 3, 0, 9, -1), Kind.APPENDED, {}),
    ("opened, empty: not first", batch(10, 3, 10, 19, 9), Kind.OUT_OF_ORDER, {"last_sequence": -1}),
    ("opened, empty: old epoch", batch(10, 2, 0, 9, -1), Kind.FENCED, {"current_epoch": 3}),
    ("continued: repeat", batch(11, 1, 10, 19, 9), Kind.DUPLICATE, {"base_offset": 113}),
    ("continued: next", batch(11, 1, 20, 29, 19), Kind.APPENDED, {}),
    # The predecessor's first batch, or that of a new chain whose second was taken for a
    # continuation. Not a duplicate, not stored again: an explicit refusal.
    ("continued: below start", batch(11, 1, 0, 9, -1), Kind.OUT_OF_ORDER, {"last_sequence": 19}),
]  # fmt: skip


def numbers(verdict: Verdict) -> dict[str, int]:
    """The fields that a client sees."""
    return {
        name: getattr(verdict, name)
        for name in ("base_offset", "current_epoch", "last_sequence", "next_offset")
    }


@pytest.mark.parametrize(
    ("meta", "kind", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_row(meta: BatchMeta, kind: Kind, expected: dict[str, int]) -> None:
    last_seen, next_offset = history()
    assert next_offset == NEXT
    before = last_seen.dump()
    verdict = last_seen.check(meta, next_offset=next_offset)
    assert verdict.kind is kind, verdict
    assert expected.items() <= numbers(verdict).items()
    assert (verdict.message == "") == (kind in (Kind.APPENDED, Kind.DUPLICATE))
    # Neither a question nor a refusal changes anything.
    assert last_seen.dump() == before
    # A leader with nothing in flight gives the same answers.
    assert InFlight(last_seen).check(meta, next_offset_applied=next_offset) == verdict


def test_every_verdict_of_the_map_has_a_row() -> None:
    outside = {
        Kind.UNSPECIFIED, Kind.JOINED, Kind.INVALID_BATCH, Kind.BATCH_TOO_LARGE, Kind.THROTTLED,
        Kind.NOT_LEADER, Kind.NOT_READY, Kind.TIMEOUT, Kind.STORAGE_FULL,
        Kind.UNKNOWN_TOPIC_OR_PARTITION, Kind.STAGED, Kind.STAGED_DUPLICATE,
        Kind.TRANSACTION_ABORTED, Kind.TRANSACTION_ENDED, Kind.TRANSACTION_CONFLICT,
        Kind.UNREGISTERED, Kind.UNSUPPORTED_FORMAT,
    }  # fmt: skip
    assert {row[2] for row in ROWS} == set(Kind) - outside
    assert len({row[0] for row in ROWS}) == len(ROWS)


GOOD = batch(7, 2, 70, 79, 69)
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"count": 0}, "record_count"),
    ({"count": -1}, "record_count"),
    ({"count": 11}, "record_count"),
    ({"count": 1 << 31, "last": 1 << 40}, "record_count"),
    ({"producer_id": -1}, "producer_id"),
    ({"producer_id": 1 << 63}, "producer_id"),
    ({"epoch": -1}, "epoch"),
    ({"epoch": 1 << 31}, "epoch"),
    ({"first": -1, "prev": -2, "last": 8}, "base_sequence"),
    ({"last": 69, "count": 1}, "last_sequence"),
    ({"last": 1 << 63}, "last_sequence"),
    ({"prev": -2}, "prev_sequence"),
    ({"prev": 70}, "prev_sequence"),
    ({"prev": 75}, "prev_sequence"),
    ({"crc": -1}, "crc32c"),
    ({"crc": 1 << 32}, "crc32c"),
    ({"expected_offset": -2}, "expected_offset"),
    ({"expected_offset": 1 << 63}, "expected_offset"),
    ({"producer_id": 0, "count": 0}, "record_count"),
    ({"producer_id": 0, "expected_offset": -2}, "expected_offset"),
]


@pytest.mark.parametrize(("change", "field"), INVALID, ids=[str(i[0]) for i in INVALID])
def test_invalid_batch_names_the_field(change: dict[str, Any], field: str) -> None:
    verdict = validate(GOOD._replace(**change), payload_size=100, max_payload=100)
    assert verdict is not None and verdict.kind is Kind.INVALID_BATCH
    assert verdict.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    "meta",
    [
        GOOD,
        batch(7, 0, 0, 0, -1),
        batch((1 << 63) - 1, (1 << 31) - 1, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 2),
        batch(7, 0, 0, (1 << 63) - 1, -1, count=(1 << 31) - 1, crc=(1 << 32) - 1, x=(1 << 63) - 1),
        batch(7, 0, 5, 9, -1, count=1, crc=0, x=0),
        batch(0, -1, -1, -9, 8, count=3),
    ],
)
def test_sound_batches_pass(meta: BatchMeta) -> None:
    assert validate(meta, payload_size=1, max_payload=1) is None


def test_the_size_of_a_payload() -> None:
    large = validate(GOOD, payload_size=101, max_payload=100)
    assert large is not None and large.kind is Kind.BATCH_TOO_LARGE
    assert "101" in large.message and "100" in large.message
    assert validate(GOOD, payload_size=100, max_payload=100) is None
    empty = validate(GOOD, payload_size=0, max_payload=100)
    assert empty is not None and empty.kind is Kind.INVALID_BATCH
    # An invalid count is reported before an excessive size.
    both = validate(GOOD._replace(count=0), payload_size=101, max_payload=100)
    assert both is not None and both.kind is Kind.INVALID_BATCH


def test_numbers_are_those_of_the_protocol() -> None:
    ours = {k.name: int(k) for k in Kind if k < Kind.JOINED}
    theirs = {name.removeprefix("VERDICT_"): n for name, n in log_pb2.Verdict.items()}
    assert ours == theirs
    assert max(log_pb2.Verdict.values()) < Kind.JOINED
    modes = {n.removeprefix("EXPECTED_OFFSETS_"): v for n, v in cluster_pb2.ExpectedOffsets.items()}
    assert {m.name: int(m) for m in OffsetRule} == modes
    formats = {n.removeprefix("TOPIC_FORMATS_"): v for n, v in cluster_pb2.TopicFormats.items()}
    assert {f.name: int(f) for f in Formats} == formats
    known = {n.removeprefix("RESOLUTION_"): v for n, v in log_pb2.Resolution.items()}
    assert {r.name: int(r) for r in ResolutionKind} == known
