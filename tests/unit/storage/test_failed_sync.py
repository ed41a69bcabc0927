"""An fsync that fails while others wait to sync: nobody is told that lost pages are durable.

Threads as a node has them take turns as a seed says, over a disk that loses pages after a failed
fsync (`lossy_system`). In any order: data covered by a sync or the mark is there after a power cut,
and no table holds data that the log lacks.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage import flush_cycle
from storage.commitlog.log import CommitLog
from storage.database import Database
from storage.engine import Engine
from storage.errors import StorageError
from storage.kv import Family
from storage.watermark import Watermark
from tests.unit.storage.lossy_system import LossySystem, Turns, TurnsLock
from tests.unit.storage.small_store import OPTIONS, put

SEEDS = range(30)
SYNCS = 7  # in each run, at least


class Run:
    """One store and its promises."""

    def __init__(self, path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.rng = random.Random(seed)
        self.turns = Turns(self.rng)
        self.system = LossySystem(self.turns)
        self.engine = Engine.open(path / "store", options=OPTIONS, system=self.system)
        assert self.engine._store is not None
        self.store = self.engine._store
        self.acknowledged = 0
        self.flushed = 0
        self.written = 0
        really = Database.flush_families

        def flush_families(db: Database) -> None:
            self.flushed = self.written
            really(db)

        monkeypatch.setattr(Database, "flush_families", flush_families)
        self.write()
        self.sync()

    def write(self) -> None:
        put(self.engine, b"k%03d" % (self.written + 1))
        self.written += 1

    def sync(self) -> None:
        covered = self.written
        self.engine.sync()
        self.acknowledged = max(self.acknowledged, covered)

    def drive(self) -> None:
        """Runs some rounds, as a node's driver does."""
        for _ in range(4):
            self.write()
            self.sync()

    def flush(self) -> None:
        """Flushes as the upkeep thread does when something is due."""
        for _ in range(3):
            self.engine._guarded("flush", self.store.cycle.run)

    def problems(self) -> list[str]:
        """Promises that a power cut now would break."""
        mark, flushed = self.engine._mark.sequence, self.flushed
        self.system.cut_power(self.path / "store", self.path / "image")
        self.engine.close()
        try:
            with Engine.open(self.path / "image", options=OPTIONS) as engine:
                there = len(list(engine.scan(Family.STATE, b"k", b"l")))
        except StorageError as error:
            return [f"the image does not open: {error}"]
        promised = {"acknowledged": self.acknowledged, "flushed": flushed, "marked": mark}
        return [f"{count} were {how}, {there} are there" for how, count in promised.items()
                if count > there]  # fmt: skip


def retry(log: CommitLog) -> None:
    """Without the protection: a log that forgets its fault, as the kernel does."""


def run(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    each = Run(path, seed, monkeypatch)
    each.system.arm(each.rng.randint(1, SYNCS))
    each.turns.run(each.drive, each.flush)
    failed = [error for error in each.turns.errors if error is not None]
    assert all(isinstance(error, StorageError) for error in failed), failed
    if failed:
        for later in (each.write, each.sync, each.flush, each.engine.reclaim):
            with pytest.raises(StorageError, match="refused since an earlier fault"):
                later()
    return each.problems()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_promised_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert run(tmp_path, seed, monkeypatch) == []


def test_without_the_check_promises_are_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same interleavings, and a log that asks nobody: both threads are lied to."""
    monkeypatch.setattr(CommitLog, "refuse_if_failed", retry)
    found: list[str] = []
    for seed in SEEDS:
        each = Run(tmp_path / str(seed), seed, monkeypatch)
        each.system.arm(each.rng.randint(1, SYNCS))
        each.turns.run(each.drive, each.flush)
        found += each.problems()
    assert len(found) > len(SEEDS) // 4
    assert all("synced writes are missing" in text for text in found), found


def test_tables_that_are_written_out_before_the_log_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same interleavings, and memtables switched while somebody has just written."""
    monkeypatch.setattr(CommitLog, "is_synced", True)
    found: list[str] = []
    for seed in SEEDS:
        each = Run(tmp_path / str(seed), seed, monkeypatch)
        each.system.arm(each.rng.randint(1, SYNCS))
        each.turns.run(each.drive, each.flush)
        found += each.problems()
    assert found


@pytest.mark.parametrize("tries", [20, 0])
def test_a_writer_does_not_wait_for_an_fsync_of_the_flush_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """Without tries, as before, the cycle holds the writers' lock in a sync: a loop would wait."""
    monkeypatch.setattr(flush_cycle, "_TRIES", tries)
    each = Run(tmp_path, 1, monkeypatch)
    stood_still: list[int] = []
    lock = each.store.cycle._write_lock

    def syncing_while_held(descriptor: int) -> None:
        assert isinstance(lock, TurnsLock)
        if lock.is_held:
            stood_still.append(descriptor)
        really(descriptor)

    really = each.system.fdatasync
    monkeypatch.setattr(each.system, "fdatasync", syncing_while_held)
    each.turns.run(each.drive, each.drive, each.flush)
    assert each.flushed > 0
    assert bool(stood_still) == (tries == 0)
    each.engine.close()


def meet(each: Run, first: str) -> list[bool]:
    """Runs both threads; `first` is inside of the fdatasync that will fail when the second comes to
    the lock. Returns whether `first` saw a fault, and whether the second did.
    """
    works = {"driver": each.sync, "upkeep": each.flush}
    one = works.pop(first)
    (other,) = works.values()

    def behind() -> None:
        while not each.system.syncing:
            each.turns.pause()
        other()

    each.write()
    each.system.arm(1, is_met=True)
    each.turns.run(one, behind)
    return [isinstance(error, StorageError) for error in each.turns.errors]


@pytest.mark.parametrize("first", ["driver", "upkeep"])
def test_who_waits_behind_a_failed_sync_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    each = Run(tmp_path, 0, monkeypatch)
    assert meet(each, first) == [True, True]
    assert each.engine._mark.sequence == 1
    assert each.problems() == []


@pytest.mark.parametrize("first", ["driver", "upkeep"])
def test_without_the_check_who_waits_is_lied_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.setattr(CommitLog, "refuse_if_failed", retry)
    each = Run(tmp_path, 0, monkeypatch)
    assert meet(each, first) == [True, False]
    assert each.engine._mark.sequence == 2
    (text,) = each.problems()
    assert "synced writes are missing" in text


def test_a_mark_that_cannot_be_written_ends_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advance(mark: Watermark, sequence: int) -> None:
        raise OSError(5, "Input/output error")

    with Engine.open(tmp_path, options=OPTIONS) as engine:
        put(engine, b"k")
        with monkeypatch.context() as patched:
            patched.setattr(Watermark, "advance", advance)
            with pytest.raises(StorageError, match="Input/output error"):
                engine.sync()
        with pytest.raises(StorageError, match="refused since an earlier fault"):
            put(engine, b"k")


def test_a_failed_sync_after_a_full_disk_is_not_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB met a full disk, which may pass; the log then met an error that does not pass."""

    def stopped(*_: object) -> None:
        raise Exception("IO error: No space left on device: While appending to file")

    system = LossySystem(Turns(random.Random(0)))
    engine = Engine.open(tmp_path, options=OPTIONS, system=system)
    put(engine, b"unsynced")
    with monkeypatch.context() as patched:
        patched.setattr(Database, "write", stopped)
        with pytest.raises(StorageError, match="No space left on device"):
            put(engine, b"refused")
    system.arm(1)
    with pytest.raises(StorageError, match="Input/output error"):
        engine.sync()
    for later in (lambda: put(engine, b"later"), engine.sync):
        with pytest.raises(StorageError, match="refused since an earlier fault") as caught:
            later()
        assert type(caught.value) is StorageError
    engine.close()
    assert list((tmp_path / "rocksdb").glob("*.sst")) == []


def test_closing_after_a_failed_sync_writes_no_table(tmp_path: Path) -> None:
    """The last sync is well, the one before the tables is not: nobody knows the lost pages."""
    system = LossySystem(Turns(random.Random(0)))
    engine = Engine.open(tmp_path, options=OPTIONS, system=system)
    put(engine, b"k")
    system.arm(2)
    engine.close()
    assert list((tmp_path / "rocksdb").glob("*.sst")) == []
