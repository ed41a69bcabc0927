"""A node's cleaner over one replica: when it is due, transactions beside it, restarts."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c

from cluster.cleaning import messages, passes
from cluster.cleaning.messages import CleaningWorker
from cluster.consensus.background_reads import BackgroundReads
from cluster.entries import BatchEntry, pack_batch, payload_of, unpack_batch, unpack_carried
from cluster.features import FEATURES, Features, Finalized
from cluster.node.cleaning import due, reading
from cluster.node.cleaning.cleaner import (
    ANSWER,
    HELD,
    IDLE_LOOKS,
    MEASURED,
    Cleaner,
    CleanerSettings,
)
from cluster.partition import batch_index, carried
from cluster.partition.batch_index import BatchIndex
from cluster.partition.replica import MIN_SAVED_BYTES
from cluster.partition.types import Cleanup
from oncelog.wire.batch import decode_payload, encode_payload
from oncelog.wire.compression import decompress
from storage.errors import StorageError
from storage.offset_index import IndexEntry
from tests.unit.partition.test_staged_partition import HOUR, Replica
from tests.unit.services.log_rig import GROUP

Row = tuple[bytes | None, bytes | None]
KEYS = 6
DELETE_RETENTION_MS = 500


class Compacted(Replica):
    """A replica that leads a compacted partition, and the cleaner of its node, step by step."""

    def __init__(self, **policy: Any) -> None:
        self.now_ms, self.term = 1000, 1
        self.policy: dict[str, Any] = {
            "cleanup": Cleanup.COMPACT,
            "delete_retention_ms": DELETE_RETENTION_MS,
            "min_cleanable_dirty_ratio": 0.0,
            **policy,
        }
        super().__init__()
        self.written: list[Row] = []  # all that were ever readable
        self.staged: dict[int, list[Row]] = {}
        self.calls: deque[Callable[[], None]] = deque()
        self.dies, self.hangs, self.closes = False, False, 0
        self.hung: Callable[[], None] | None = None  # tells that the request is not answered
        self.timers: list[Callable[[], None]] = []  # that wait for an answer of the worker
        self.held: list[tuple[float, Callable[[], None]]] = []  # after unexpected errors
        self.lead()

    def lead(self) -> None:
        """Begins a leadership, with a cleaner that knows nothing."""
        on = Features(lambda: Finalized(3, frozenset(FEATURES)))
        self.part._node = replace(self.part._node, features=on, now_ms=lambda: self.now_ms)
        self.part.alter(replace(self.part.policy, **self.policy))
        self.saves = list[int]()  # the last entries of saved states
        self.log.__dict__.update(
            term=self.term, applied_index=len(self.log.entries), checkpoints=self._checkpoints()
        )
        self.part.on_role(leader=True, ready=True, term=self.term)
        self.worker, self.calls = CleaningWorker(), deque()
        port: Any = self
        settings = CleanerSettings(0, 3 * 250, 0)
        reads = BackgroundReads(
            lambda read, done: self.calls.append(lambda: done(read())),
            lambda group: reads.next_round(),
        )
        self.cleaner = Cleaner(settings, {GROUP: self.part}, reads, port, self._later)

    def _checkpoints(self) -> SimpleNamespace:
        def save() -> None:
            self.saves.append(len(self.log.entries))

        return SimpleNamespace(grown_bytes=0, state_bytes=0, save=save, compact=lambda limit: None)

    def restart(self, state: bytes | None = None, applied: int = 0) -> None:
        super().restart(state, applied)
        self.term += 1
        self.lead()

    # -- the cleaner's ports ------------------------------------------------------------

    def ask(self, request: bytes, done: Callable[[bytes | None], None]) -> None:
        """Answers the worker's requests."""
        worker = self.worker
        if self.hangs:
            self.hung = lambda: done(None)
            return
        self.calls.append(lambda: done(None if self.dies else worker.answer(request)))

    def close(self) -> None:
        self.closes += 1
        self.worker = CleaningWorker()
        hung, self.hung = self.hung, None
        if hung is not None:
            self.calls.append(hung)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        if seconds >= HELD and seconds != ANSWER:
            self.held.append((seconds, call))
        else:
            (self.timers if seconds == ANSWER else self.calls).append(call)

    def step(self) -> None:
        if self.calls:
            self.calls.popleft()()

    def clean(self) -> None:
        self.cleaner.look()
        while self.calls:
            self.step()

    # -- records ------------------------------------------------------------------------

    def put_rows(self, rows: list[Row], first: int, number: int = 0, pid: int = 1) -> str:
        keys, values = zip(*rows, strict=True)
        payload = encode_payload(values, [1] * len(rows), keys)
        count, last = len(rows), first + len(rows) - 1
        crc, times = crc32c(payload), (1, self.now_ms)
        entry = BatchEntry(
            0, count, pid, 0, crc, first, last, first - 1, -1, number, *times, HOUR, 0
        )
        kind = str(self.put(pack_batch(entry, payload)).verdict.kind.name)
        if kind == "APPENDED":
            self.written += rows
        elif kind == "STAGED":
            self.staged.setdefault(number, []).extend(rows)
        return kind

    def finish(self, number: int, pid: int, last: int, *, commit: bool) -> None:
        rows = self.staged.pop(number)
        self.end(number, *([(pid, len(rows), last)] if commit else []), stamp_ms=self.now_ms)
        self.written += rows if commit else []

    def shown(self, start: int = 0) -> list[Row]:
        """Returns the rows that a reader gets, from an offset on."""
        found, offset = list[Row](), start
        while offset < self.part.high_watermark:
            for base, data in self.part.reading(offset, 10_000, 50).run():
                header = unpack_batch(data)
                payload = decompress(header.codec, payload_of(data))
                columns = decode_payload(payload, header.record_count)
                assert base == start + len(found) == offset
                found += zip(columns.keys(), columns.values(), strict=True)
                offset = base + header.record_count
        return found

    def check(self) -> int:
        """Checks that no record is lost or changed; returns the number of blanks."""
        shown, newest = self.shown(), dict[bytes | None, int]()
        assert len(shown) == len(self.written)
        for offset, (key, _) in enumerate(self.written):
            newest[key] = offset
        blanks = 0
        for offset, (row, before) in enumerate(zip(shown, self.written, strict=True)):
            if row == before:
                continue
            assert row == (None, None), (offset, row, before)
            assert newest[before[0]] > offset or before[1] is None, (offset, before)
            blanks += 1
        return blanks


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "GROUP_BYTES", 500)
    monkeypatch.setattr(reading, "CHUNK_BATCHES", 6)
    monkeypatch.setattr(batch_index, "COPIED_BATCHES", 2)


def rows(rng: random.Random, count: int) -> list[Row]:
    values = (None, b"%d" % rng.randrange(1000), b"%d" % rng.randrange(1000))
    return [(b"%d" % rng.randrange(KEYS), rng.choice(values)) for _ in range(count)]


# -- when ------------------------------------------------------------------------------------------


def filled(count: int = 10, **policy: Any) -> Compacted:
    replica = Compacted(**policy)
    for first in range(count):
        replica.now_ms += 10
        replica.put_rows([(b"key", b"%d" % first)], first)
    return replica


def test_a_partition_is_cleaned_when_enough_of_it_is_dirty() -> None:
    replica = filled(min_cleanable_dirty_ratio=0.5)
    due = replica.cleaner.due_of(replica.part)
    assert due is not None and (due.dirty_from, due.end, due.share) == (0, 10, 1.0)
    replica.clean()
    assert replica.check() == 9 and replica.cleaner.counters.passes == 1
    due = replica.cleaner.due_of(replica.part)
    assert due is not None and (due.dirty_from, due.end, due.share) == (10, 10, 0.0)
    shares = []
    for first in range(10, 20):
        replica.put_rows([(b"key", b"%d" % first)], first)
        due = replica.cleaner.due_of(replica.part)
        assert due is not None and due.is_due == (due.share >= 0.5)
        shares.append(due.share)
    assert shares == sorted(shares) and shares[0] < 0.5 < shares[-1]


def test_young_records_stay_as_they_are() -> None:
    replica = filled(min_compaction_lag_ms=45)
    replica.clean()
    assert replica.check() == 4, "of the first five, written up to 50 ms ago, the last one stays"
    replica.now_ms += 20
    due = replica.cleaner.due_of(replica.part)
    assert due is not None and (due.dirty_from, due.end) == (5, 7)


def test_old_records_are_cleaned_however_few_they_are() -> None:
    replica = filled(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50)
    replica.clean()
    replica.put_rows([(b"key", b"new")], 10)
    replica.now_ms += 50
    replica.clean()
    assert replica.check() == 9
    replica.now_ms += 1
    replica.clean()
    assert replica.check() == 10


@pytest.mark.parametrize("cleanup", list(Cleanup))
def test_retention_is_for_topics_with_a_policy_of_deletion(cleanup: Cleanup) -> None:
    replica = filled(cleanup=cleanup, retention_ms=20)
    replica.now_ms += 10
    replica.part.retain()
    assert (replica.part.log_start_offset > 0) == (cleanup != Cleanup.COMPACT)
    replica.clean()
    counters = replica.cleaner.counters
    assert counters.passes == (cleanup != Cleanup.DELETE) and not counters.broken_off


def test_a_cleaning_follows_the_log_start() -> None:
    replica = filled(20, cleanup=Cleanup.COMPACT_DELETE, retention_ms=150)
    replica.cleaner.look()
    for _ in range(6):
        replica.step()
    replica.part.retain()
    assert replica.part.log_start_offset == 4
    while replica.calls:
        replica.step()
    assert replica.cleaner.counters.passes == 1
    assert replica.part.reading(4, 10_000).run()[0].base_offset == 4


def test_a_worker_that_died_ends_a_pass_and_the_next_look_begins_one() -> None:
    replica = filled()
    replica.dies = True
    replica.clean()
    counters = replica.cleaner.counters
    assert (counters.broken_off, counters.errors) == (1, {"t/0": "the worker ended"})
    replica.dies = False
    replica.clean()
    assert counters.passes == 1 and not counters.errors and replica.check() == 9


def test_a_worker_that_does_not_answer_is_ended_and_the_next_look_begins_one() -> None:
    replica = filled()
    replica.cleaner.look()
    replica.step()
    replica.hangs = True
    while replica.calls:
        replica.step()
    assert replica.cleaner.is_cleaning and replica.hung is not None
    *answered, waiting = replica.timers
    for timer in answered:
        timer()
    assert answered and replica.hung is not None, "those were answered in time"
    waiting()
    replica.hangs = False
    while replica.calls:
        replica.step()
    counters = replica.cleaner.counters
    text = "the worker did not answer within 120 s"
    assert (counters.broken_off, counters.errors) == (1, {"t/0": text})
    replica.clean()
    assert counters.passes == 1 and not counters.errors and replica.check() == 9
    for timer in replica.timers:
        timer()
    assert not replica.calls


@pytest.mark.parametrize("step", ["full_at", "pieces"])
def test_an_unexpected_error_is_told_and_the_partition_is_cleaned_later(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replica = filled()
    counters = replica.cleaner.counters

    def wrong(reply: bytes) -> None:
        raise ValueError("a bug")

    with monkeypatch.context() as planted:
        planted.setattr(messages, step, wrong)
        for number in (1, 2):
            replica.clean()
            assert not replica.cleaner.is_cleaning
            assert (counters.broken_off, counters.errors) == (number, {"t/0": "ValueError: a bug"})
            replica.clean()
            assert counters.broken_off == number, "it waits"
            replica.held[-1][1]()
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2 and all(record.exc_info for record in told)
    waits = [seconds for seconds, _ in replica.held]
    assert waits == [HELD, 2 * HELD]
    replica.clean()
    assert counters.passes == 1 and not counters.errors and replica.check() == 9
    with monkeypatch.context() as planted:
        planted.setattr(messages, step, wrong)
        replica.put_rows([(b"key", b"new")], 10)
        replica.clean()
    assert replica.held[-1][0] == HELD, "a good pass ends the doubling"


def test_an_unexpected_error_of_a_read_ends_the_pass_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the pass waited for the read for ever, and no partition was cleaned any more."""
    replica = filled()

    def wrong(read: reading.CleaningRead) -> None:
        raise ValueError("a bug")

    with monkeypatch.context() as planted:
        planted.setattr(reading.CleaningRead, "run", wrong)
        replica.clean()
    assert not replica.cleaner.is_cleaning
    assert replica.cleaner.counters.errors == {"t/0": "ValueError: a bug"}
    replica.held[-1][1]()
    replica.clean()
    assert replica.cleaner.counters.passes == 1 and replica.check() == 9


def test_errors_of_partitions_that_are_led_elsewhere_are_forgotten() -> None:
    replica = filled()
    replica.dies = True
    replica.clean()
    assert replica.cleaner.counters.errors
    replica.part.on_role(leader=False, ready=False, term=2)
    replica.clean()
    assert not replica.cleaner.counters.errors


def test_the_worker_ends_after_some_looks_that_find_nothing() -> None:
    replica, closes = filled(), list[int]()
    for _ in range(IDLE_LOOKS):  # the first one has a look behind its pass
        replica.clean()
        closes.append(replica.closes)
    assert replica.cleaner.counters.passes == 1
    assert closes == [0] * (IDLE_LOOKS - 1) + [1]


def test_a_closed_cleaner_begins_nothing() -> None:
    replica = filled()
    replica.cleaner.look()
    replica.cleaner.close()
    while replica.calls:
        replica.step()
    replica.clean()
    assert not replica.cleaner.is_cleaning and not replica.check()


def test_a_damaged_payload_stays_and_is_counted() -> None:
    """Its bytes are those that the client sent."""
    replica = filled()
    payload = b"not columns"
    entry = BatchEntry(0, 1, 1, 0, crc32c(payload), 10, 10, 9, -1, 0, 1, replica.now_ms, HOUR, 0)
    replica.put(pack_batch(entry, payload))
    replica.put_rows([(b"key", b"last")], 11)
    replica.clean()
    counters = replica.cleaner.counters
    assert (counters.passes, counters.left_batches) == (1, 1)
    before = counters.carried_batches
    replica.clean()
    assert counters.carried_batches == before, "nothing is due"
    assert replica.part.reading(10, 1).run()[0].data.endswith(payload)


def test_a_deleted_key_stays_deleted_when_a_batch_that_was_left_is_cleaned_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its passes do not know the key of the tombstone behind it, and there is memory again."""
    replica, lacks_memory = Compacted(delete_retention_ms=0), True

    def unpack(codec: int, payload: bytes) -> bytes | memoryview:
        if lacks_memory and len(payload) > 300:
            raise MemoryError
        return decompress(codec, payload)

    monkeypatch.setattr(passes, "decompress", unpack)
    replica.put_rows([(b"key", b"." * 300)], 0)
    replica.put_rows([(b"key", None)], 1)
    replica.clean()
    assert replica.cleaner.counters.left_batches == 1
    lacks_memory = False
    assert _table_after_cleanings(replica, 2) == {b"other"}
    assert replica.cleaner.counters.left_batches == 1


def test_a_deleted_key_stays_deleted_when_the_log_starts_within_a_large_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was too large to be cleaned, and its rest is not."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 900)
    replica = Compacted(delete_retention_ms=0)
    for number in range(4):
        replica.put_rows([(b"%d" % number, b"." * 300)], number, number=7, pid=2)
    replica.finish(7, 2, 3, commit=True)
    replica.put_rows([(b"3", None)], 0)
    replica.clean()
    assert replica.cleaner.counters.left_batches == 1
    replica.part.delete_below(3, lambda outcome: None)
    assert replica.part.log_start_offset == 3
    assert _table_after_cleanings(replica, 1) == {b"other"}
    assert replica.cleaner.counters.left_batches == 1


def _table_after_cleanings(replica: Compacted, first: int) -> set[bytes]:
    """Returns the keys that a new reader knows after some more cleanings."""
    for number in range(first, first + 3):
        replica.now_ms += 1000
        replica.put_rows([(b"other", b"%d" % number)], number)
        replica.clean()
    newest = dict(replica.shown(replica.part.log_start_offset))
    return {key for key, value in newest.items() if key is not None and value is not None}


def test_a_large_clean_part_is_measured_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Compacted(min_cleanable_dirty_ratio=0.5)
    for first in range(60):
        replica.put_rows([(b"%d" % first, b"." * 400)], first)
    replica.clean()
    replica.put_rows([(b"new", b"." * 400)], 60)
    whole = replica.cleaner.due_of(replica.part)
    monkeypatch.setattr(due, "MOST_ROWS", 8)
    replica.cleaner._due.forget(GROUP)
    read = list[int]()
    index = replica.part.machine.stored.index
    monkeypatch.setattr(
        index, "all_from", lambda offset, rows=index.all_from: map(_noted(read), rows(offset))
    )
    sampled = replica.cleaner.due_of(replica.part)
    assert whole is not None and sampled is not None and len(read) == 8
    assert abs(sampled.share - whole.share) < 0.01


def test_a_look_measures_a_few_clean_parts_and_leaves_the_others_for_later() -> None:
    """A new leader of 1,000 partitions knew none of them: one look held the loop for 2.5 s."""
    replicas = [filled(min_cleanable_dirty_ratio=0.9) for _ in range(MEASURED + 3)]
    for replica in replicas:
        replica.clean()
        assert replica.cleaner.counters.passes == 1
        replica.put_rows([(b"key", b"new")], 10)
    for number, replica in enumerate(replicas):
        replica.log.config.group = GROUP + number
    first = replicas[0]
    first.cleaner._due = sizes = due.CleaningDue(0)
    led: Any = first.cleaner._by_group
    led |= {GROUP + number: replica.part for number, replica in enumerate(replicas)}
    first.cleaner.look()
    measured = [sizes.measured]
    while first.calls:
        first.step()
        measured.append(sizes.measured)
    assert measured == [MEASURED + more for more in range(4)]
    first.cleaner.look()
    assert sizes.measured == MEASURED + 3 and not first.calls, "nothing is due"


def _noted(read: list[int]) -> Callable[[IndexEntry], IndexEntry]:
    def noted(place: IndexEntry) -> IndexEntry:
        read.append(place.base_offset)
        return place

    return noted


def test_a_partition_of_too_many_batches_gets_larger_ones_and_says_when_it_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carried, "MAX_RANGES", 8)
    replica = Compacted()
    counters, stored = replica.cleaner.counters, replica.part.machine.stored
    for key in range(60):
        replica.put_rows([(b"%d" % key, b"." * 400)], key)
        replica.clean()
        if key < 20:
            assert not counters.errors and len(stored.carried) <= 8
    (text,) = counters.errors.values()
    assert "as many carried batches as it may have" in text
    assert stored.carried.is_full and stored.carried.end_from(0) > 24


def test_a_partition_that_cannot_be_cleaned_does_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(begin: int, end: int) -> bool:
        raise StorageError("no such row")

    replica, broken = filled(), filled()
    broken.log.config.group = GROUP + 1
    index = broken.part.machine.stored.index
    monkeypatch.setattr(index, "cuts_run", unreadable)
    both: Any = replica.cleaner._by_group
    both.clear()
    both |= {GROUP + 1: broken.part, GROUP: replica.part}
    counters = replica.cleaner.counters
    for _ in range(3):
        replica.clean()
        assert not replica.cleaner.is_cleaning and counters.errors == {"t/0": "no such row"}
    assert replica.check() == 9 and counters.broken_off == 3


def test_the_log_is_not_kept_for_keys_that_never_change() -> None:
    """Old carried batches are carried again, as fast as new records come."""
    replica, ends = Compacted(), list[int]()
    for first in range(0, 20, 2):
        cold: list[Row] = [(b"%d" % key, b"." * 90) for key in (first, first + 1)]
        assert replica.put_rows(cold, first) == "APPENDED"
    for round_ in range(6):
        for first in range(20 + 10 * round_, 30 + 10 * round_):
            replica.put_rows([(b"hot", b"%d" % first * 50)], first)
        replica.clean()
        ends.append(len(replica.log.entries))
    carried = replica.part.machine.stored.carried
    assert len(carried) > 3 and carried.oldest_index(0) > ends[-3]
    assert replica.check() == 59


def test_a_state_is_saved_before_a_cleaning_so_that_the_log_may_go() -> None:
    """The log is dropped up to a checkpoint, and carried batches lie behind it."""
    replica = filled()
    replica.log.__dict__["applied_index"] = before = len(replica.log.entries)
    checkpoints = replica.log.__dict__["checkpoints"]
    checkpoints.grown_bytes = MIN_SAVED_BYTES
    replica.clean()
    assert not replica.saves, "it is not worth it"
    replica = filled()
    limits = list[int]()
    replica.log.__dict__["checkpoints"].__dict__.update(
        grown_bytes=MIN_SAVED_BYTES + 1, compact=limits.append
    )
    replica.cleaner.look()
    assert replica.saves == [before]
    while replica.calls:
        replica.log.__dict__["applied_index"] = len(replica.log.entries)
        replica.step()
    assert limits[-1] >= before, "all entries before the cleaning may go"


@pytest.mark.parametrize("ending", ["goes on", "closed", "failed"])
def test_a_replica_that_ends_in_the_last_pause_of_a_cleaning_saves_and_drops_nothing(
    ending: str,
) -> None:
    """Its data is erased, or its state may be wrong."""
    whole, steps = filled(), 0
    whole.cleaner.look()
    while whole.cleaner.is_cleaning:
        whole.step()
        steps += 1
    replica, limits = filled(), list[int]()
    replica.cleaner.look()
    for _ in range(steps - 1):
        replica.step()
    checkpoints = replica.log.__dict__["checkpoints"]
    checkpoints.__dict__.update(grown_bytes=MIN_SAVED_BYTES + 1, compact=limits.append)
    replica.log.__dict__["applied_index"] = len(replica.log.entries)
    if ending == "closed":
        replica.part.close()
    elif ending == "failed":
        replica.log.failed = StorageError("its state differs")
    replica.step()
    assert not replica.cleaner.is_cleaning
    assert bool(replica.saves) == bool(limits) == (ending == "goes on")


def test_a_cleaning_ends_when_its_topic_is_compacted_no_more() -> None:
    replica = filled(20)
    counters = replica.cleaner.counters
    replica.cleaner.look()
    while replica.calls and not counters.carried_batches:
        replica.step()
    before = replica.check()
    replica.part.alter(replace(replica.part.policy, cleanup=Cleanup.DELETE))
    while replica.calls:
        replica.step()
    assert (counters.carried_batches, counters.broken_off, counters.passes) == (1, 1, 0)
    assert 0 < before == replica.check()


def test_the_time_of_a_tombstone_counts_from_its_own_batch_on() -> None:
    """A pass may take hours: a reader may begin in the middle of it."""
    replica = filled()
    replica.put_rows([(b"key", None)], 10)
    replica.cleaner.look()
    while replica.calls and not replica.cleaner.counters.carried_batches:
        replica.step()
    replica.now_ms += 1000
    while replica.calls:
        replica.step()
    stored = [data for _, data in replica.part.reading(0, 10_000).run()]
    (tombstone,) = [mark for data in stored for mark in unpack_carried(data).tombstones]
    assert tombstone == (10, replica.now_ms + DELETE_RETENTION_MS)


# -- transactions beside carried batches -----------------------------------------------------------


class Walk:
    """Random plain batches, transactions, cleanings that go on beside them, and restarts."""

    def __init__(self, seed: int) -> None:
        self.rng, self.replica = random.Random(seed), Compacted()
        self.next = {1: 0, 2: 0, 3: 0}  # producer -> its next sequence
        self.open: dict[int, tuple[int, int]] = {}  # producer -> transaction, first sequence
        self.number = 0
        self.saved: list[tuple[int, bytes]] = []

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.replica.now_ms += self.rng.randrange(40)
            self._step()
            if self.rng.random() < 0.1:
                self.replica.check()
        for pid in list(self.open):
            self._end(pid)
        self.replica.clean()
        self.replica.clean()

    def _step(self) -> None:
        rng, replica = self.rng, self.replica
        chance = rng.random()
        if chance < 0.3:
            self._put(1, 0)
        elif chance < 0.6:
            pid = rng.choice((2, 3))
            if pid not in self.open:
                self.number += 1
                self.open[pid] = (self.number, self.next[pid])
            self._put(pid, self.open[pid][0])
        elif chance < 0.66 and self.open:
            self._end(rng.choice(list(self.open)))
        elif chance < 0.72:
            replica.cleaner.look()
        elif chance < 0.95:
            replica.step()
        elif chance < 0.97:
            self.saved.append((len(replica.log.entries), replica.part.dump()))
        elif self.saved:
            applied, state = rng.choice(self.saved)
            before = replica.part.dump()
            replica.restart(state, applied)
            assert replica.part.dump() == before
            replica.check()

    def _put(self, pid: int, number: int) -> None:
        records = rows(self.rng, self.rng.randint(1, 3))
        kind = self.replica.put_rows(records, self.next[pid], number, pid)
        assert kind == ("STAGED" if number else "APPENDED")
        self.next[pid] += len(records)

    def _end(self, pid: int) -> None:
        number, first = self.open.pop(pid)
        commit = self.rng.random() < 0.7
        self.replica.finish(number, pid, self.next[pid] - 1, commit=commit)
        if not commit:
            self.next[pid] = first


def walked(seeds: range) -> tuple[int, int, int]:
    """Returns blanks, carried batches, and cleanings that broke off."""
    blanks = batches = broken_off = 0
    for seed in seeds:
        walk = Walk(seed)
        walk.run(150)
        blanks += walk.replica.check()
        counters = walk.replica.cleaner.counters
        batches += counters.carried_batches
        broken_off += counters.broken_off
    return blanks, batches, broken_off


@pytest.mark.parametrize("batches", [1, 3], ids=["rows copied", "one row for the run"])
def test_a_record_stays_whose_key_is_newer_only_in_an_aborted_transaction(batches: int) -> None:
    """Also at a replica that was away over the abort and the cleaning."""
    replica = filled(4)
    state, applied = replica.part.dump(), len(replica.log.entries)
    for first in range(batches):
        assert replica.put_rows([(b"key", None)], first, number=7, pid=2) == "STAGED"
    replica.clean()
    replica.finish(7, 2, batches - 1, commit=False)
    replica.put_rows([(b"other", b"1")], 4)
    replica.clean()
    assert replica.check() == 3
    before = replica.part.dump()
    replica.restart(state, applied)
    assert (replica.check(), replica.part.dump()) == (3, before)


def test_transactions_beside_carried_batches() -> None:
    blanks, batches, broken_off = walked(range(20))
    assert blanks > 250 and batches > 50 and not broken_off, (blanks, batches, broken_off)


def test_cleanings_that_would_cut_transactions_break_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk above has such transactions, and the leader refuses a part of one."""
    monkeypatch.setattr(BatchIndex, "long_runs", lambda self, begin, end: [])
    assert walked(range(10))[2] > 0
