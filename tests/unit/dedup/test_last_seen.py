"""The last-seen map: opening, expiry, the limits of its record, resolving, snapshots."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.pid_table import CHUNK_ROWS
from cluster.dedup.verdict import BatchMeta, Kind, ResolutionKind

FAR = 2**32 - 1
HOUR = 3600 * 1000
DAY = 24 * HOUR
COMMITTED, NEVER, NOT_YET = ResolutionKind.COMMITTED, ResolutionKind.NEVER, ResolutionKind.NOT_YET
UNKNOWN = ResolutionKind.UNSPECIFIED


class Log:
    """A map with a log end: appends each batch that the map admits."""

    def __init__(self) -> None:
        self.map = LastSeen()
        self.next_offset = 0

    def append(
        self,
        pid: int,
        epoch: int,
        first: int,
        last: int,
        prev: int,
        *,
        count: int | None = None,
        time: int = 0,
    ) -> Kind:
        size = last - first + 1 if count is None else count
        meta = BatchMeta(pid, epoch, first, last, prev, size, 1)
        verdict = self.map.check(meta, next_offset=self.next_offset)
        if verdict.kind is Kind.APPENDED:
            self.map.record(meta, self.next_offset, time)
            self.next_offset += size
        return verdict.kind

    def dense(self, pid: int, epoch: int, batches: int, *, time: int = 0) -> None:
        """Batches of ten from 0."""
        for first in range(0, 10 * batches, 10):
            assert self.append(pid, epoch, first, first + 9, first - 1, time=time) is Kind.APPENDED


# --- open and release


def test_open_tells_the_newcomer_where_to_go_on() -> None:
    log = Log()
    log.append(0, 0, 0, 0, 0, count=100)
    log.dense(7, 0, 3)
    opened = log.map.open(7, 1, 5)
    assert opened.kind is Kind.APPENDED
    assert (opened.last_sequence, opened.base_offset, opened.current_epoch) == (29, 129, 1)
    assert log.append(7, 0, 30, 39, 29) is Kind.FENCED
    assert log.append(7, 1, 30, 39, 29) is Kind.APPENDED
    shown = log.map.describe(7)
    assert shown is not None and [r.first for r in shown.recent] == [30]


def test_an_open_repeated_or_raised_before_the_first_write_forgets_nothing() -> None:
    log = Log()
    log.dense(7, 0, 3)
    log.map.open(7, 1, 0)
    before = log.map.dump()
    assert log.map.open(7, 1, 0).last_sequence == 29
    assert log.map.dump() == before
    assert log.map.open(7, 5, 0).last_sequence == 29
    assert log.append(7, 5, 30, 39, 29) is Kind.APPENDED
    # A late repeat of the open neither reopens the epoch nor hides its batches.
    assert log.map.open(7, 5, 0).last_sequence == 39
    assert log.append(7, 5, 0, 9, -1) is Kind.OUT_OF_ORDER
    assert log.append(7, 5, 30, 39, 29) is Kind.DUPLICATE


def test_open_refuses_lower_epochs_and_nonsense() -> None:
    log = Log()
    log.dense(7, 3, 1)
    before = log.map.dump()
    fenced = log.map.open(7, 2, 9)
    assert fenced.kind is Kind.FENCED and fenced.current_epoch == 3
    for pid, epoch, field in [
        (0, 0, "producer_id"),
        (-1, 0, "producer_id"),
        (1 << 63, 0, "producer_id"),
        (7, -1, "epoch"),
        (7, 1 << 31, "epoch"),
    ]:
        refused = log.map.open(pid, epoch, 9)
        assert refused.kind is Kind.INVALID_BATCH and refused.message.startswith(f"{field}: ")
    assert log.map.dump() == before


def test_a_named_producer_silent_for_eight_days_is_still_known() -> None:
    log = Log()
    log.map.open(7, 0, 0)
    log.dense(7, 0, 2)
    assert log.map.advance(8 * DAY, lifetime_ms=DAY, expired_below=1000) == 0
    assert log.append(7, 0, 10, 19, 9) is Kind.DUPLICATE
    assert log.map.open(7, 1, 8 * DAY).last_sequence == 19


def test_a_name_opens_a_partition_that_it_never_used_below_the_watermark() -> None:
    log = Log()
    log.map.advance(DAY, lifetime_ms=DAY, expired_below=1000)
    assert log.append(7, 4, 0, 9, -1) is Kind.PRODUCER_EXPIRED
    assert log.map.open(7, 4, DAY, pin=False).kind is Kind.PRODUCER_EXPIRED
    assert log.map.open(7, 4, DAY).kind is Kind.APPENDED
    assert log.append(7, 4, 0, 9, -1) is Kind.APPENDED


def test_release_lets_a_producer_expire() -> None:
    log = Log()
    for pid in (7, 2000):
        log.map.open(pid, 0, 0)
        log.dense(pid, 0, 1)
    log.map.advance(3 * DAY, lifetime_ms=DAY, expired_below=1000)
    assert len(log.map) == 2
    assert log.map.release(7) and log.map.release(2000)
    # Below the watermark a released id goes at once, above it when it is found idle.
    assert [e.producer_id for e in log.map.scan()] == [2000]
    assert log.map.advance(3 * DAY, lifetime_ms=DAY) == 1
    assert log.append(7, 0, 10, 19, 9) is Kind.PRODUCER_EXPIRED
    assert log.append(2000, 0, 10, 19, 9) is Kind.PRODUCER_EXPIRED
    assert not log.map.release(7) and not log.map.release(12345)


# --- expiry


def test_idle_means_longer_than_the_lifetime_in_log_time() -> None:
    log = Log()
    log.dense(7, 0, 1, time=1000)
    log.dense(8, 0, 1, time=1001)
    assert log.map.advance(1000 + DAY, lifetime_ms=DAY) == 0
    assert log.map.advance(1001 + DAY, lifetime_ms=DAY) == 1
    assert log.append(7, 0, 0, 9, -1) is Kind.PRODUCER_EXPIRED
    assert log.append(8, 0, 0, 9, -1) is Kind.DUPLICATE
    # A stamp of a leader with a late clock moves nothing back.
    assert log.map.advance(5, lifetime_ms=DAY) == 0
    assert log.map.clock_ms == 1001 + DAY
    assert log.append(8, 0, 10, 19, 9, time=5) is Kind.APPENDED
    shown = log.map.describe(8)
    assert shown is not None and shown.last_append_ms == 1001 + DAY


def test_an_idle_producer_above_the_watermark_is_never_taken_for_a_new_one() -> None:
    """Its first batch, delayed for days, must not be stored again."""
    log = Log()
    log.dense(700, 0, 1)
    assert log.map.advance(2 * DAY, lifetime_ms=DAY, expired_below=650) == 1
    assert len(log.map) == 0
    assert log.append(700, 0, 0, 9, -1) is Kind.PRODUCER_EXPIRED
    log.map = LastSeen.load(log.map.dump())
    assert log.append(700, 0, 0, 9, -1) is Kind.PRODUCER_EXPIRED
    assert log.append(701, 0, 0, 9, -1) is Kind.APPENDED
    log.map.advance(2 * DAY, lifetime_ms=DAY, expired_below=701)
    assert log.append(700, 0, 0, 9, -1) is Kind.PRODUCER_EXPIRED


def test_retired_ids_count_towards_the_capacity_until_the_watermark_passes() -> None:
    last_seen = LastSeen(capacity=2)
    for pid in (5, 6):
        last_seen.record(BatchMeta(pid, 0, 0, 0, -1, 1, 1), pid, 0)
    last_seen.advance(DAY, lifetime_ms=HOUR)
    new = BatchMeta(9, 0, 0, 0, -1, 1, 1)
    assert last_seen.check(new, next_offset=7, new_in_flight=0).kind is Kind.THROTTLED
    assert last_seen.check_open(9, 0, new_in_flight=0).kind is Kind.THROTTLED
    last_seen.advance(DAY, lifetime_ms=HOUR, expired_below=6)
    assert last_seen.check(new, next_offset=7, new_in_flight=0).kind is Kind.APPENDED
    assert last_seen.check(new, next_offset=7, new_in_flight=1).kind is Kind.THROTTLED


def test_opening_a_retired_id_brings_it_back() -> None:
    last_seen = LastSeen()
    last_seen.record(BatchMeta(5, 0, 0, 0, -1, 1, 1), 0, 0)
    last_seen.advance(DAY, lifetime_ms=HOUR)
    assert last_seen.open(5, 1, DAY, pin=False).kind is Kind.PRODUCER_EXPIRED
    assert last_seen.open(5, 1, DAY).kind is Kind.APPENDED
    assert LastSeen.load(last_seen.dump()).dump() == last_seen.dump()
    stale = last_seen.check(BatchMeta(5, 0, 0, 0, -1, 1, 1), next_offset=1)
    assert stale.kind is Kind.FENCED


def test_a_lifetime_that_changes_takes_effect_at_once() -> None:
    log = Log()
    log.dense(7, 0, 1)
    assert log.map.advance(2 * HOUR, lifetime_ms=DAY) == 0
    assert log.map.advance(2 * HOUR, lifetime_ms=HOUR) == 1


# --- limits of a record

# Two batches of one producer: (first, last, count) and (prev + gap, ...), records of
# others between them, how many recent batches remain.
DENSE = (0, 9, 10)
WIDTHS = [
    ("dense", DENSE, (10, 19, 10), 0, 2),
    ("widest gap", DENSE, (9 + FAR, 9 + FAR, 1), 0, 2),
    ("gap too wide", DENSE, (10 + FAR, 10 + FAR, 1), 0, 1),
    ("most offsets between", DENSE, (10, 19, 10), FAR - 10, 2),
    ("too many offsets between", DENSE, (10, 19, 10), FAR - 9, 1),
    ("widest batch", DENSE, (10, 10 + FAR, 3), 0, 2),
    ("batch too wide", DENSE, (10, 11 + FAR, 3), 0, 0),
    ("widest batch before", (0, FAR, 3), (FAR + 1, FAR + 1, 1), 0, 2),
    ("batch too wide before", (0, FAR + 1, 3), (FAR + 2, FAR + 2, 1), 0, 1),
    ("most records with gaps", (0, 99_999, 65_535), (100_000, 100_000, 1), 0, 2),
    ("too many records with gaps", (0, 99_999, 65_536), (100_000, 100_000, 1), 0, 1),
    ("most records without", (0, 2**31 - 2, 2**31 - 1), (2**31 - 1, 2**31 - 1, 1), 0, 2),
]


@pytest.mark.parametrize(
    ("a", "b", "others", "recent"), [w[1:] for w in WIDTHS], ids=[w[0] for w in WIDTHS]
)
def test_the_window_drops_what_it_cannot_describe(
    a: tuple[int, int, int], b: tuple[int, int, int], others: int, recent: int
) -> None:
    log = Log()
    assert log.append(7, 0, a[0], a[1], -1, count=a[2]) is Kind.APPENDED
    log.next_offset += others
    at = log.next_offset
    assert log.append(7, 0, b[0], b[1], a[1], count=b[2]) is Kind.APPENDED
    shown = log.map.describe(7)
    assert shown is not None
    expected = [(*a, 0), (*b, at)][2 - recent :]
    assert [(r.first, r.last, r.count, r.base_offset) for r in shown.recent] == expected
    assert (shown.last_sequence, shown.last_offset) == (b[1], at + b[2] - 1)
    # Dropped batches are still known to be stored.
    for first, last, count in (a, b):
        again = log.map.check(BatchMeta(7, 0, first, last, -1, count, 1), next_offset=0)
        known = [r.base_offset for r in shown.recent if r.first == first]
        assert (again.kind, again.base_offset) == (Kind.DUPLICATE, known[0] if known else -1)
    assert LastSeen.load(log.map.dump()).describe(7) == shown


def test_below_the_window_and_the_start_of_the_chain() -> None:
    log = Log()
    log.append(7, 0, 100, 109, -1)
    for first in range(110, 200, 10):
        log.append(7, 0, first, first + 9, first - 1)
    assert log.append(7, 0, 100, 109, -1) is Kind.DUPLICATE
    assert log.append(7, 0, 110, 119, 109) is Kind.DUPLICATE
    assert log.append(7, 0, 90, 99, -1) is Kind.OUT_OF_ORDER
    assert log.append(7, 0, 95, 104, -1) is Kind.OUT_OF_ORDER
    assert log.append(7, 0, 99, 99, -1) is Kind.OUT_OF_ORDER


def test_the_start_of_a_chain_is_forgotten_in_the_safe_direction() -> None:
    """2**32 sequences later an old batch is refused rather than called stored."""
    log = Log()
    log.append(7, 0, 5, 5, -1)
    log.append(7, 0, 9, 9, 5)
    log.append(7, 0, 4 + FAR, 4 + FAR, 9)
    for n in range(5):
        log.append(7, 0, 5 + n + FAR, 5 + n + FAR, 4 + n + FAR)
    assert log.append(7, 0, 5, 5, -1) is Kind.OUT_OF_ORDER
    assert log.append(7, 0, 9, 9, 5) is Kind.OUT_OF_ORDER
    assert log.append(7, 0, 10, 10, 9) is Kind.DUPLICATE  # in a gap that is forgotten
    # A chain that begins at 0 does not need that memory.
    log.append(8, 0, 0, 0, -1)
    log.append(8, 0, 2 * FAR, 2 * FAR, 0)
    assert log.append(8, 0, 0, 0, -1) is Kind.DUPLICATE


# --- resolve

RESOLVE = [
    # Epoch 2 of 7 stored 0..69, ten in a batch; 20..69 are recent.
    ("in the newest batch", 7, 2, 65, COMMITTED, 65),
    ("its first", 7, 2, 60, COMMITTED, 60),
    ("its last", 7, 2, 69, COMMITTED, 69),
    ("in the oldest recent batch", 7, 2, 20, COMMITTED, 20),
    ("below", 7, 2, 19, COMMITTED, -1),
    ("the first of all", 7, 2, 0, COMMITTED, -1),
    ("next", 7, 2, 70, NOT_YET, -1),
    ("a later epoch", 7, 3, 0, NOT_YET, -1),
    # Epoch 1 may have stored it before epoch 2 began; only the log knows.
    ("an earlier epoch", 7, 1, 5, UNKNOWN, -1),
    ("not a sequence", 7, 2, -1, NEVER, -1),
    # 8 stored 11..14 (two records) at 70, 20 at 72, 30..39 at 73.
    ("sparse: first", 8, 0, 11, COMMITTED, 70),
    ("sparse: last", 8, 0, 14, COMMITTED, 71),
    ("sparse: within", 8, 0, 12, COMMITTED, -1),
    ("sparse: single", 8, 0, 20, COMMITTED, 72),
    ("sparse: dense part", 8, 0, 33, COMMITTED, 76),
    ("in a gap", 8, 0, 25, NEVER, -1),
    ("before the chain", 8, 0, 10, UNKNOWN, -1),
    # 9 stored 0..9 under epoch 4 at 83, then 5 and 6 were opened.
    ("opened: the predecessor's", 9, 4, 3, COMMITTED, 86),
    ("opened: fenced before it came", 9, 4, 10, NEVER, -1),
    ("opened: never wrote", 9, 5, 3, NEVER, -1),
    ("opened: older", 9, 3, 3, UNKNOWN, -1),
    ("opened: the newcomer's", 9, 6, 3, NOT_YET, -1),
    # 10 was opened under epoch 3 and had not been here before.
    ("opened, empty: older", 10, 2, 0, NEVER, -1),
    ("opened, empty: the newcomer's", 10, 3, 0, NOT_YET, -1),
    # 11 stored 0..9 under epoch 0 and went on under epoch 1: 10..19 at 103.
    ("continued: its own", 11, 1, 12, COMMITTED, 105),
    ("continued: the predecessor's number", 11, 1, 3, UNKNOWN, -1),
    ("continued: the predecessor", 11, 0, 3, UNKNOWN, -1),
    # 12: like 11 with more batches, then opened by epoch 2.
    ("opened after continued: recent", 12, 1, 65, COMMITTED, 178),
    ("opened after continued: below", 12, 1, 12, UNKNOWN, -1),
    ("opened after continued: beyond", 12, 1, 70, NEVER, -1),
    ("expired", 3, 0, 0, UNKNOWN, -1),
    # 2 and 60 were opened when they had expired; their stored sequences are forgotten.
    ("opened after the watermark passed: older", 2, 0, 5, UNKNOWN, -1),
    ("opened after it was idle: older", 60, 0, 5, UNKNOWN, -1),
    ("opened after it was idle: the newcomer's", 60, 1, 5, NOT_YET, -1),
    ("not here yet", 50, 0, 0, NOT_YET, -1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pid", "epoch", "sequence", "resolution", "offset"),
    [r[1:] for r in RESOLVE],
    ids=[r[0] for r in RESOLVE],
)
def test_resolve(
    pid: int, epoch: int, sequence: int, resolution: ResolutionKind, offset: int
) -> None:
    log = Log()
    log.map.record(BatchMeta(60, 0, 0, 9, -1, 10, 1), 0, 0)
    assert log.map.advance(HOUR, lifetime_ms=0) == 1
    log.dense(7, 2, 7)
    log.append(8, 0, 11, 14, -1, count=2)
    log.append(8, 0, 20, 20, 14)
    log.append(8, 0, 30, 39, 20)
    log.dense(9, 4, 1)
    for opened in ((9, 5), (9, 6), (10, 3)):
        log.map.open(*opened, 0)
    log.dense(11, 0, 1)
    log.map.open(11, 1, 0)
    log.append(11, 1, 10, 19, 9)
    log.dense(12, 0, 1)
    log.map.open(12, 1, 0)
    for first in range(10, 70, 10):
        log.append(12, 1, first, first + 9, first - 1)
    log.map.open(12, 2, 0)
    log.map.advance(0, lifetime_ms=DAY, expired_below=4)
    log.map.open(2, 1, 0)
    log.map.open(60, 1, HOUR)
    found = log.map.resolve(pid, epoch, sequence)
    assert (found.resolution, found.offset) == (resolution, offset)
    shown = log.map.describe(pid)
    if shown is None:
        assert (found.last_sequence, found.current_epoch) == (-1, -1)
    else:
        assert (found.last_sequence, found.current_epoch) == (shown.last_sequence, shown.epoch)


def test_resolve_without_a_window() -> None:
    log = Log()
    log.append(7, 0, 0, FAR + 1, -1, count=3)
    assert log.map.resolve(7, 0, 5) == (COMMITTED, -1, FAR + 1, 0)
    log.map.open(7, 1, 0)
    assert log.map.resolve(7, 0, 5) == (COMMITTED, -1, FAR + 1, 1)
    assert log.map.resolve(7, 0, FAR + 2) == (NEVER, -1, FAR + 1, 1)


# --- snapshots


def some_map() -> LastSeen:
    log = Log()
    log.dense(20, 0, 1, time=1)
    log.dense(7, 2, 7, time=50)
    log.append(8, 0, 11, 14, -1, count=2, time=60)
    log.map.open(9, 5, 60)
    log.map.advance(70, lifetime_ms=30, expired_below=5)
    return log.map


def test_a_dump_holds_everything() -> None:
    original = some_map()
    assert (len(original), original.clock_ms, original.expired_below) == (3, 70, 5)
    copy = LastSeen.load(original.dump(), capacity=9)
    assert copy.dump() == original.dump()
    assert copy.scan() == original.scan()
    assert (copy.clock_ms, copy.expired_below, copy.capacity) == (70, 5, 9)
    assert copy.check(BatchMeta(20, 0, 0, 9, -1, 10, 1), next_offset=0).kind is (
        Kind.PRODUCER_EXPIRED
    )
    # Copy and original expire the same producers at the same times.
    for replica in (original, copy):
        assert replica.advance(81, lifetime_ms=30) == 1
        assert replica.advance(91, lifetime_ms=30) == 1
    assert copy.dump() == original.dump()


def test_equal_states_are_equal_bytes_whatever_came_before() -> None:
    straight, winding = LastSeen(), LastSeen()
    pids = list(range(1, 3 * CHUNK_ROWS))
    metas = {pid: BatchMeta(pid, 1, 0, 9, -1, 10, pid) for pid in pids}
    for pid in pids:
        straight.record(metas[pid], 10 * pid, 5)
    shuffled = random.Random(3).sample(pids, len(pids))
    for pid in shuffled:
        # A longer past in an older epoch, whose window has to leave no trace.
        for first in range(0, 60, 10):
            winding.record(BatchMeta(pid, 0, first, first + 9, first - 1, 10, 9), first, 1)
    for pid in shuffled:
        winding.record(metas[pid], 10 * pid, 5)
    winding.record(BatchMeta(10_000, 0, 0, 9, -1, 10, 9), 0, 5)
    winding.open(10_000, 1, 5)
    for replica in (straight, winding):
        replica.advance(5, lifetime_ms=9, expired_below=1)
    assert winding.dump() != straight.dump()
    winding.release(10_000)
    assert straight.advance(10, lifetime_ms=99) == winding.advance(10, lifetime_ms=99) == 0
    for replica in (straight, winding):
        replica.advance(10, lifetime_ms=99, expired_below=20_000)
    assert winding.dump() == straight.dump()


def test_any_damage_is_found() -> None:
    data = some_map().dump()
    for at in range(len(data)):
        for bit in (1, 128):
            damaged = bytearray(data)
            damaged[at] ^= bit
            with pytest.raises(ValueError, match="last-seen map"):
                LastSeen.load(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(ValueError, match="last-seen map"):
            LastSeen.load(data[:size])
    with pytest.raises(ValueError, match="last-seen map"):
        LastSeen.load(data + b"\0")


HEAD = struct.Struct("<4sHHqqQQ")


@pytest.mark.parametrize(
    ("at", "number", "message"),
    [
        (4, struct.pack("<H", 2), "version 2"),
        (6, struct.pack("<H", 64), "64 bytes"),
        (8, struct.pack("<q", -1), "negative"),
        (8, struct.pack("<q", 59), "time"),
        (16, struct.pack("<q", -1), "negative"),
        (16, struct.pack("<q", 8), "not pinned"),
        (16, struct.pack("<q", 21), "watermark"),
        (HEAD.size, struct.pack("<q", 9), "retired"),
        (HEAD.size, struct.pack("<q", 0), "rising"),
        (HEAD.size + 8, struct.pack("<q", 8), "rising"),
        (HEAD.size + 8, struct.pack("<q", 0), "rising"),
        (HEAD.size + 32, struct.pack("<q", -1), "time"),
        (HEAD.size + 56 + 20, b"\x06", "flags"),
        (HEAD.size + 56 + 20, b"\x81", "flags"),
    ],
)
def test_a_wrong_number_under_a_right_checksum_is_found(
    at: int, number: bytes, message: str
) -> None:
    body = bytearray(some_map().dump()[:-4])
    body[at : at + len(number)] = number
    with pytest.raises(ValueError, match=message):
        LastSeen.load(bytes(body) + struct.pack("<I", zlib.crc32(body)))


def test_an_empty_map() -> None:
    empty = LastSeen()
    copy = LastSeen.load(empty.dump())
    assert copy.dump() == empty.dump() and len(copy) == 0 and copy.scan() == []
    assert copy.describe(1) is None
    copy.record(BatchMeta(1, 0, 0, 0, -1, 1, 1), 0, 3)
    assert copy.advance(10, lifetime_ms=5) == 1
    with pytest.raises(ValueError, match="capacity"):
        LastSeen(capacity=0)


def test_scan_pages() -> None:
    log = Log()
    pids = list(range(1, 3 * CHUNK_ROWS, 2))
    for pid in pids:
        log.append(pid, 0, 0, 0, -1)
    seen: list[int] = []
    while page := log.map.scan(after=seen[-1] if seen else 0, limit=97):
        assert len(page) <= 97
        seen += [e.producer_id for e in page]
    assert seen == pids
    assert log.map.scan(limit=0) == [] and log.map.scan(after=10**9) == []
