"""A replica's staged runs on its rows: reads, kept and dropped runs, the state after a restart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import crc32c
import pytest

from cluster.entries import BatchEntry, LogStartEntry, pack_batch, pack_log_start
from cluster.partition import batch_index
from cluster.partition.lookup import Found, Miss, find_batch
from cluster.partition.reader import OffsetOutOfRangeError
from cluster.partition.replica import Partition
from cluster.partition.retention import freed_by
from cluster.partition.types import NodeView, Policy
from cluster.transactions.run_records import pack_marker
from cluster.transactions.types import Expected, Marker
from storage.errors import CorruptionError
from storage.kv import Family
from storage.offset_index import OffsetIndex
from tests.sim.disk import Disk
from tests.unit.services.log_rig import GROUP, OneLog

HOUR = 3_600_000


class Replica:
    """A partition whose entries a test writes itself."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.log = OneLog(self.disk)
        self.part = self.open()

    def open(self) -> Partition:
        view = NodeView(lambda: 0, lambda: None, lambda: False, lambda: True)
        return Partition("t", 0, OffsetIndex(self.disk, GROUP), Policy(), view, self.log.open)

    def put(self, data: bytes) -> Any:
        results: list[Any] = []
        self.log.propose(data, lambda applied: results.append(applied.result))
        return results[0]

    def batch(
        self, first: int, count: int = 1, number: int = 0, pid: int = 1, **fields: Any
    ) -> Any:
        """One batch of `count` records; number 0: a plain one."""
        payload = b"%d/%d" % (number, first)
        entry = BatchEntry(
            0, count, pid, 0, crc32c.crc32c(payload), first, first + count - 1, first - 1, -1,
            number, fields.get("timestamp_us", first), fields.get("stamp_ms", 1), HOUR, 0,
        )  # fmt: skip
        return self.put(pack_batch(entry, payload)).verdict

    def end(self, number: int, *runs: tuple[int, int, int], stamp_ms: int = 1) -> Any:
        """Commits the runs (producer, records, last), or aborts if there are none."""
        expected = []
        for pid, records, last in runs:
            found = self.part.machine.runs.confirm(
                number, {pid: (records, last)}, only_winners=True
            )
            assert isinstance(found, dict), found
            expected.append(found[pid])
        return self.put(pack_marker(Marker(number, bool(runs), tuple(expected), stamp_ms, 1)))

    def restart(self, state: bytes | None = None, applied: int = 0) -> None:
        """A new replica on the same rows; it applies the log after its checkpoint again."""
        self.part = self.open()
        machine = self.part.machine
        machine.restore(None if state is None else machine.load(state))
        for index, data in list(enumerate(self.log.entries, 1))[applied:]:
            batch = self.disk.batch()
            self.part.apply(index, 1, data, batch)
            self.disk.write(batch)

    def read(self, offset: int = 0) -> list[tuple[int, bytes]]:
        """(offset, payload) of all batches from `offset` on, asked page by page."""
        found: list[tuple[int, bytes]] = []
        while offset < self.part.high_watermark:
            for base, data in self.part.reading(offset, 10_000, 50).run():
                found.append((base, data[96:]))
                offset = base + int.from_bytes(data[4:8], "little")
        return found

    def rows(self) -> int:
        return len(list(self.disk.scan(Family.OFFSETS, b"", b"\xff" * 40)))


@pytest.fixture(params=[16, 1], ids=["rows copied", "one row for the run"])
def replica(request: Any, monkeypatch: pytest.MonkeyPatch) -> Replica:
    monkeypatch.setattr(batch_index, "COPIED_BATCHES", request.param)
    return Replica()


def mixed(replica: Replica) -> list[tuple[int, bytes]]:
    """Plain batches of producer 2, a run of producer 1 staged between them, then published."""
    replica.batch(0, 2, number=5)
    replica.batch(0, 3, pid=2)
    replica.batch(2, 4, number=5)
    replica.batch(3, 1, pid=2)
    replica.batch(6, 1, number=5)
    assert replica.read() == [(0, b"0/0"), (3, b"0/3")]
    replica.end(5, (1, 7, 6))
    replica.batch(4, 1, pid=2)
    return [(0, b"0/0"), (3, b"0/3"), (4, b"5/0"), (6, b"5/2"), (10, b"5/6"), (11, b"0/4")]


def test_a_run_is_read_once_it_is_published_and_lies_together(replica: Replica) -> None:
    expected = mixed(replica)
    assert replica.read() == expected
    for offset in range(12):
        base, data = replica.part.reading(offset, 1).run()[0]
        assert (base, data[96:]) == max(found for found in expected if found[0] <= offset)


def test_batches_are_found_backwards(replica: Replica) -> None:
    expected = mixed(replica)
    for below in (12, 11, 10, 6, 4, 3):
        found, at = [], below
        while read := replica.part.reading_back(at, 10_000, 2).run():
            found += [place.base_offset for place, _ in read]
            at = found[-1]
        assert found == [base for base, _ in reversed(expected) if base < below]


def test_an_abort_leaves_nothing(replica: Replica) -> None:
    replica.batch(0, 2, number=5)
    replica.batch(2, 2, number=5)
    before = replica.part.machine.producers.last_seen.dump()
    replica.end(5)
    assert replica.read() == [] and replica.rows() == 0
    assert replica.part.machine.producers.last_seen.dump() == before
    assert replica.batch(0, 2, number=6).kind.name == "STAGED"


def test_only_the_prefix_that_was_decided_is_published(replica: Replica) -> None:
    replica.batch(0, 2, number=5)
    replica.batch(2, 2, number=5)
    found = replica.part.machine.runs.confirm(5, {1: (4, 3)}, only_winners=False)
    assert isinstance(found, dict)
    replica.batch(4, 3, number=5)
    replica.put(pack_marker(Marker(5, True, (found[1],), 1, 1)))
    assert replica.read() == [(0, b"5/0"), (2, b"5/2")]
    assert replica.part.high_watermark == 4
    stored = replica.part.machine.stored
    assert stored.stored_bytes == sum(len(data) for data in replica.log.entries[:2])


@pytest.mark.parametrize("applied", [0, 1, 3, 5, 6, 7])
def test_a_restart_at_any_checkpoint_reads_the_same(replica: Replica, applied: int) -> None:
    other = Replica()
    mixed(other)
    expected = mixed(replica)
    states: list[bytes | None] = [None]
    fresh = Replica()
    for data in replica.log.entries:
        fresh.put(data)
        states.append(fresh.part.dump())
    replica.restart(states[applied], applied)
    assert replica.read() == expected
    assert replica.part.dump() == other.part.dump()


def test_a_restart_before_a_commit_whose_records_were_deleted_reads_nothing(
    replica: Replica,
) -> None:
    """A follower answers readers while it applies the commit once more; its rows are gone."""
    for first in range(2):
        replica.batch(first, number=5)
    state = replica.part.dump()
    replica.end(5, (1, 2, 1))
    replica.put(pack_log_start(LogStartEntry(0, 2, replica.part.machine.stored.stored_bytes, 1)))
    replica.part = replica.open()
    replica.part.machine.restore(replica.part.machine.load(state))
    for index, data in list(enumerate(replica.log.entries, 1))[2:]:
        batch = replica.disk.batch()
        replica.part.apply(index, 1, data, batch)
        replica.disk.write(batch)
        assert replica.part.reading(replica.part.log_start_offset, 1).run() == []
    assert (replica.part.log_start_offset, replica.part.high_watermark) == (2, 2)


def test_a_state_without_transactions_is_as_it_was() -> None:
    replica = Replica()
    replica.batch(0, 2)
    assert replica.part.dump()[4:6] == b"\x02\x00"
    replica.batch(2, 2, number=5)
    state = replica.part.dump()
    assert state[4:6] == b"\x03\x00"
    with pytest.raises(CorruptionError):
        replica.part.load(state[:-1])
    replica.restart(state, 2)
    assert replica.part.dump() == state


def test_age_counts_from_the_marker(replica: Replica) -> None:
    replica.batch(0, 2, number=5, stamp_ms=1)
    replica.batch(2, 2, number=5, stamp_ms=1)
    replica.end(5, (1, 4, 3), stamp_ms=25 * HOUR)
    policy, stored = Policy(retention_ms=24 * HOUR), replica.part.machine.stored
    assert freed_by(policy, stored, 26 * HOUR, 26 * HOUR) is None
    entry = freed_by(policy, stored, 50 * HOUR, 50 * HOUR)
    assert entry is not None and entry.log_start_offset == 4


def test_retention_frees_a_part_of_a_run(replica: Replica) -> None:
    for first in range(0, 20, 2):
        replica.batch(first, 2, number=5)
    replica.end(5, (1, 20, 19))
    stored = replica.part.machine.stored
    half = sum(len(data) for data in replica.log.entries[5:10])
    entry = freed_by(Policy(retention_ms=-1, retention_bytes=half), stored, 1, 1)
    assert entry is not None and entry.log_start_offset == 10
    replica.put(pack_log_start(entry))
    assert stored.stored_bytes == half
    replica.restart()
    stored = replica.part.machine.stored
    assert [base for base, _ in replica.read(10)] == [10, 12, 14, 16, 18]
    with pytest.raises(OffsetOutOfRangeError):
        replica.part.reading(9, 1).run()
    replica.put(pack_log_start(LogStartEntry(10, 20, half, 1)))
    assert replica.rows() == 0


def test_staged_bytes_do_not_count_until_they_are_published(replica: Replica) -> None:
    replica.batch(0, 2, number=5)
    assert replica.part.machine.stored.stored_bytes == 0
    replica.end(5, (1, 2, 1))
    assert replica.part.machine.stored.stored_bytes == len(replica.log.entries[0])


def test_times_are_found_inside_a_run(replica: Replica) -> None:
    replica.batch(0, 1, pid=2, timestamp_us=10)
    for first in range(5):
        replica.batch(first, 1, number=5, timestamp_us=100 * (first + 1))
    replica.end(5, (1, 5, 4))
    for timestamp, offset in ((5, 0), (11, 1), (250, 3), (500, 5), (501, -1)):
        assert list(replica.part.offset_at(timestamp)) == [offset]


async def test_a_lookup_says_of_no_batch_whose_row_waits_that_it_is_absent(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk in the round of a long run's commit: no newer row is in memory, either."""
    assert await find_batch(replica.part, 1, 0, 0, below=0) is Miss.ABSENT
    assert await find_batch(replica.part, 1, 0, 0, below=1) is Miss.UNKNOWN
    replica.batch(0)
    replica.batch(1, number=5)
    replica.batch(2, number=5)
    with monkeypatch.context() as full:
        full.setattr(replica.disk, "write", lambda batch: None)
        replica.end(5, (1, 2, 2))
    replica.part.machine.stored.index.forget_recent(has_carried=False)
    assert await find_batch(replica.part, 1, 0, 1, below=3) is Miss.UNKNOWN
    assert isinstance(await find_batch(replica.part, 1, 0, 0, below=1), Found)


def test_the_log_is_kept_from_the_first_batch_of_a_run(replica: Replica) -> None:
    limits: list[int] = []
    checkpoints = SimpleNamespace(save=lambda: None, compact=limits.append)
    replica.log.__dict__.update(applied_index=0, checkpoints=checkpoints)

    def compacted() -> int:
        limits.clear()
        replica.log.__dict__["applied_index"] = len(replica.log.entries)
        replica.part.compact()
        return limits[0] if limits else 0

    for first in range(20):
        replica.batch(first, 1, pid=2)
    replica.batch(0, 1, number=5)  # entry 21
    for first in range(20, 30):
        replica.batch(first, 1, pid=2)
    replica.put(pack_log_start(LogStartEntry(0, 30, 0, 1)))
    assert compacted() == 20, "nothing else is kept, but the run is open"
    replica.batch(1, 1, number=5)
    replica.batch(30, 1, pid=2)
    replica.end(5, (1, 2, 1))
    assert compacted() <= 20, "it lies behind a later batch, its entries before that one's"
    assert replica.read(30)[0] == (30, b"0/30")
    replica.put(pack_log_start(LogStartEntry(30, 33, 0, 1)))
    assert compacted() == len(replica.log.entries)


def test_a_replica_whose_log_begins_inside_a_run(replica: Replica) -> None:
    """Its rows begin there, too: the rows below were deleted, as the log's start shows."""
    for first in range(0, 8, 2):
        replica.batch(first, 2, number=5)
    state, applied = Replica(), 2
    for data in replica.log.entries[:applied]:
        state.put(data)
    follower = Replica()
    follower.log.entries = list(replica.log.entries)
    follower.restart(state.part.dump(), applied)
    replica.end(5, (1, 8, 7))
    follower.put(replica.log.entries[-1])
    assert follower.part.dump() == replica.part.dump()
    with pytest.raises(OffsetOutOfRangeError):
        follower.part.reading(0, 1).run()
    assert [base for base, _ in follower.read(4)] == [4, 6]
    start = pack_log_start(LogStartEntry(0, 4, 0, 1))
    assert (follower.put(start), follower.part.log_start_offset) == (None, 4)


def test_damage_in_a_staged_entry_is_found_when_it_is_read(replica: Replica) -> None:
    replica.batch(0, 2, number=5)
    replica.batch(2, 2, number=5)
    replica.end(5, (1, 4, 3))
    data = replica.log.entries[1]
    intact = replica.part.machine.stored.index.stored(2)
    assert batch_index.is_intact(intact[0], data)
    assert not batch_index.is_intact(intact[0], data[:-1] + b"x")


async def test_an_old_batch_of_a_run_is_found_in_the_log(replica: Replica) -> None:
    for first in range(0, 40, 2):
        replica.batch(first, 2, number=5)
    replica.end(5, (1, 40, 39))
    replica.log.__dict__.setdefault("failed", None)
    found = await find_batch(replica.part, 1, 0, 7, below=40)
    assert isinstance(found, Found) and found.offset_of(7) == 7


def test_discard_leaves_no_row(replica: Replica) -> None:
    mixed(replica)
    replica.batch(7, 1, number=6)
    batch = replica.disk.batch()
    replica.part.discard(batch)
    replica.disk.write(batch)
    assert replica.rows() == 0


def test_a_marker_that_names_what_is_not_there_stops_the_replica() -> None:
    replica = Replica()
    replica.batch(0, 2, number=5)
    marker = Marker(5, True, (Expected(0, 1, 3, 2),), 1, 1)
    with pytest.raises(CorruptionError, match="was decided"):
        replica.put(pack_marker(marker))


def test_plain_batches_wait_for_the_marker(replica: Replica) -> None:
    replica.batch(0, 2, number=5)
    assert replica.batch(2, 1).kind.name == "TRANSACTION_CONFLICT"
    replica.end(5, (1, 2, 1))
    assert replica.batch(2, 1).kind.name == "APPENDED"
    assert replica.part.high_watermark == 3
