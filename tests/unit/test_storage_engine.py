"""The engine over real RocksDB: order, pages, kills, full disks, failed syncs, closing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from storage.engine import MAX_RANGE_DELETES, Engine
from storage.errors import LockedError, StorageError, StorageFullError
from storage.kv import Family, KeyValue
from storage.options import KIB, MIB, EngineOptions
from storage.page import PAGE_BYTES, PAGE_ROWS
from storage.raft_log import RaftLogStore

OPTIONS = EngineOptions(min_free_bytes=0)


def _put(engine: Engine, *keys: bytes, value: bytes = b"v") -> None:
    batch = engine.batch()
    for key in keys:
        batch.put(Family.STATE, key, value)
    engine.write(batch)


@pytest.fixture
def engine(tmp_path: Path):
    with Engine.open(tmp_path, options=OPTIONS) as opened:
        yield opened


# -- the contract of KeyValue ------------------------------------------------------


def test_is_a_key_value(engine: Engine) -> None:
    def narrow(kv: KeyValue) -> KeyValue:
        return kv

    assert narrow(engine) is engine


def test_a_batch_applies_in_order(engine: Engine) -> None:
    batch = engine.batch()
    batch.put(Family.STATE, b"a", b"1")
    batch.put(Family.STATE, b"b", b"1")
    batch.delete_range(Family.STATE, b"a", b"b")
    batch.put(Family.STATE, b"a", b"2")
    batch.delete(Family.STATE, b"b")
    batch.put(Family.OFFSETS, b"b", b"other family")
    assert len(batch) == 6
    engine.write(batch)
    assert engine.get_many(Family.STATE, [b"a", b"b", b"a"]) == [b"2", None, b"2"]
    assert engine.get(Family.OFFSETS, b"b") == b"other family"
    assert engine.get_many(Family.STATE, []) == []


def test_an_empty_batch_is_nothing(engine: Engine) -> None:
    engine.write(engine.batch())
    engine.sync()


def test_empty_values_exist(engine: Engine) -> None:
    _put(engine, b"k", value=b"")
    assert engine.get(Family.STATE, b"k") == b""
    assert list(engine.scan(Family.STATE, b"a", b"z")) == [(b"k", b"")]


@pytest.mark.parametrize("count", [0, 1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 3 * PAGE_ROWS])
def test_scan_both_ways_over_pages(engine: Engine, count: int) -> None:
    keys = [b"k%06d" % number for number in range(count)]
    _put(engine, b"a", *keys, b"z")
    up = [key for key, _ in engine.scan(Family.STATE, b"k", b"l")]
    down = [key for key, _ in engine.scan(Family.STATE, b"k", b"l", reverse=True)]
    assert up == keys
    assert down == keys[::-1]
    for limit in (0, 1, PAGE_ROWS, PAGE_ROWS + 5):
        assert [k for k, _ in engine.scan(Family.STATE, b"k", b"l", limit=limit)] == keys[:limit]
        last = [k for k, _ in engine.scan(Family.STATE, b"k", b"l", limit=limit, reverse=True)]
        assert last == keys[::-1][:limit]


def test_scan_of_large_values_and_exact_bounds(engine: Engine) -> None:
    value = bytes(PAGE_BYTES // 2 + 1)
    _put(engine, b"a", b"b", b"c", b"d", b"e", value=value)
    assert [k for k, _ in engine.scan(Family.STATE, b"b", b"e")] == [b"b", b"c", b"d"]
    assert [k for k, _ in engine.scan(Family.STATE, b"b", b"e", reverse=True)] == [
        b"d",
        b"c",
        b"b",
    ]
    assert list(engine.scan(Family.STATE, b"e", b"b")) == []


def test_a_suspended_scan_does_not_keep_the_store_open(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path, options=OPTIONS)
    _put(engine, *[b"%06d" % number for number in range(2 * PAGE_ROWS)])
    scan = engine.scan(Family.STATE, b"0", b"9")
    next(scan)
    engine.close()
    Engine.open(tmp_path, options=OPTIONS).close()
    with pytest.raises(StorageError, match="closed"):
        list(scan)


# -- life cycle -------------------------------------------------------------------------


def test_reopen_keeps_everything(tmp_path: Path) -> None:
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        store, batch = RaftLogStore(engine, 1), engine.batch()
        for index in range(2, 200):
            store.put_entry(batch, index, bytes([index]) * 5000)
        engine.write(batch)
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        entries = RaftLogStore(engine, 1).read(2, 199)
    assert entries == [bytes([index]) * 5000 for index in range(2, 200)]


def test_closed_means_closed(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path, options=OPTIONS)
    _put(engine, b"k")
    engine.close()
    engine.close()
    for call in (
        lambda: engine.get(Family.STATE, b"k"),
        lambda: engine.get_many(Family.STATE, [b"k"]),
        lambda: _put(engine, b"k"),
        engine.sync,
        engine.stats,
    ):
        with pytest.raises(StorageError, match="closed"):
            call()


def test_close_waits_for_calls_in_flight(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path, options=OPTIONS)
    faults: list[Exception] = []
    started = threading.Barrier(3)

    def work(step) -> None:
        started.wait()
        try:
            while True:
                step()
        except StorageError as error:
            faults.append(error)

    def read() -> None:
        assert engine.get_many(Family.STATE, [b"k"] * 50) == [b"v"] * 50

    def write() -> None:
        _put(engine, b"k")
        engine.sync()

    _put(engine, b"k")
    threads = [threading.Thread(target=work, args=(step,)) for step in (read, write)]
    for thread in threads:
        thread.start()
    started.wait()
    for _ in range(20):
        engine.stats()
    engine.close()
    for thread in threads:
        thread.join()
    assert len(faults) == 2
    assert all("closed" in str(fault) for fault in faults)
    Engine.open(tmp_path, options=OPTIONS).close()


def test_two_engines_on_one_directory(tmp_path: Path) -> None:
    with Engine.open(tmp_path, options=OPTIONS):
        with pytest.raises(LockedError):
            Engine.open(tmp_path, options=OPTIONS)


@pytest.mark.parametrize("field", ["max_open_files", "entries_memtables", "max_wal_bytes"])
def test_options_out_of_range_name_the_field(field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field} is -1, allowed are \d+ to \d+"):
        EngineOptions(**{field: -1})


def test_stats_and_reclaim(tmp_path: Path) -> None:
    options = EngineOptions(min_free_bytes=0, entries_memtable_bytes=256 * KIB)
    with Engine.open(tmp_path, options=options) as engine:
        store = RaftLogStore(engine, 1)
        for index in range(2, 202):
            batch = engine.batch()
            store.put_entry(batch, index, os.urandom(20_000))
            engine.write(batch)
        engine.sync()
        full = engine.stats()
        assert full.disk_bytes > 200 * 20_000
        assert full.free_disk_bytes > 0
        assert full.memtable_bytes > 0
        assert not full.stalled
        batch = engine.batch()
        store.trim_to(batch, 190, 1)
        engine.write(batch)
        for _ in range(4):  # each call moves no more than a share
            engine.reclaim()
        assert engine.stats().blob_bytes < 2 * 11 * 20_000
        assert [len(entry) for entry in store.read(191, 201)] == [20_000] * 11


def test_the_wal_is_bounded_though_other_families_idle(tmp_path: Path) -> None:
    options = EngineOptions(
        min_free_bytes=0, entries_memtable_bytes=256 * KIB, max_wal_bytes=2 * MIB
    )
    with Engine.open(tmp_path, options=options) as engine:
        _put(engine, b"idle")  # pins the first WAL until this family is flushed
        store = RaftLogStore(engine, 1)
        for index in range(2, 402):
            batch = engine.batch()
            store.put_entry(batch, index, bytes(50_000))
            engine.write(batch)
            engine.sync()
        assert engine.stats().wal_bytes < 6 * MIB
        assert engine.get(Family.STATE, b"idle") == b"v"


def test_range_deletes_do_not_pile_up_in_memory(engine: Engine) -> None:
    for number in range(MAX_RANGE_DELETES):
        batch = engine.batch()
        batch.delete_range(Family.OFFSETS, b"%06d" % number, b"%06d" % (number + 1))
        engine.write(batch)
    before = engine.stats().memtable_bytes
    engine.sync()
    assert engine.stats().memtable_bytes < before / 2


# -- kill -9 ----------------------------------------------------------------------------

_WRITER = """
import sys
from storage.engine import Engine
from storage.options import EngineOptions
from storage.raft_log import RaftLogStore

options = EngineOptions(min_free_bytes=0, entries_memtable_bytes=1 << 20, max_wal_bytes=4 << 20)
engine = Engine.open(sys.argv[1], options=options)
store = RaftLogStore(engine, 1)
index = store.load().last_index
while True:
    batch = engine.batch()
    for _ in range(3):
        index += 1
        store.put_entry(batch, index, b"%08d" % index * 1000)
    store.put_hard_state(batch, index, 1)
    engine.write(batch)
    engine.sync()
    print(index, flush=True)
"""


def _run_writer(path: Path, root: Path, lines: int) -> int:
    """Runs the writer, kills it in full flight, returns the last index it said was synced."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.read().splitlines(keepends=True)
    return int([line for line in said if line.endswith(b"\n")][-1])


def test_kill_keeps_all_that_was_synced(tmp_path: Path, root: Path) -> None:
    synced = 1
    for lines in (5, 60, 200):
        synced = max(synced, _run_writer(tmp_path, root, lines))
        with Engine.open(tmp_path, options=OPTIONS) as engine:
            state = RaftLogStore(engine, 1).load()
            assert state.last_index >= synced >= lines
            assert state.term == state.last_index, "batches are atomic"
            entries = RaftLogStore(engine, 1).read(2, state.last_index)
        assert entries == [b"%08d" % i * 1000 for i in range(2, state.last_index + 1)]
        assert not (tmp_path / "wal-found").exists()


# -- faults of the disk --------------------------------------------------------------------


def _wal_descriptors(path: Path) -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(str(path)) and target.endswith(".log"):
            found.append(int(name))
    return found


def _redirect_wal(path: Path, target: int) -> None:
    """Puts another file under RocksDB's feet: its next WAL write really fails."""
    descriptors = _wal_descriptors(path)
    assert descriptors
    for descriptor in descriptors:
        os.dup2(target, descriptor)
    os.close(target)


def test_a_full_disk_with_nothing_in_doubt_is_waited_out(tmp_path: Path) -> None:
    """Everything before the refused batch was synced, so the same batch may be written again."""
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        _put(engine, b"synced")
        engine.sync()
        _redirect_wal(tmp_path, os.open("/dev/full", os.O_WRONLY))
        batch = engine.batch()
        batch.put(Family.STATE, b"refused", b"v")
        with pytest.raises(StorageFullError, match="No space left on device") as caught:
            engine.write(batch)
        assert caught.value.recoverable_in_place
        with pytest.raises(StorageFullError):
            engine.sync()
        assert engine.get_many(Family.STATE, [b"synced", b"refused"]) == [b"v", None]
        engine.write(batch)  # there is space again: the store is opened anew
        engine.sync()
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        assert engine.get_many(Family.STATE, [b"synced", b"refused"]) == [b"v", b"v"]


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(tmp_path: Path) -> None:
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        _put(engine, b"synced")
        engine.sync()
        _put(engine, b"in doubt")
        _redirect_wal(tmp_path, os.open("/dev/full", os.O_WRONLY))
        with pytest.raises(StorageFullError, match="No space left on device") as caught:
            _put(engine, b"lost")
        assert not caught.value.recoverable_in_place
        for refused in (lambda: _put(engine, b"later"), engine.sync, engine.reclaim):
            with pytest.raises(StorageFullError, match="refused since an earlier fault") as caught:
                refused()
            assert not caught.value.recoverable_in_place
        assert engine.get(Family.STATE, b"synced") == b"v"
        failure = engine.failure
        assert isinstance(failure, StorageFullError)
        engine.recover()
        failure = engine.failure
        assert failure is None
        assert engine.get_many(Family.STATE, [b"synced", b"lost"]) == [b"v", None]
        _put(engine, b"later")
        engine.sync()
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        assert engine.get_many(Family.STATE, [b"synced", b"later"]) == [b"v", b"v"]


def test_recover_is_refused_while_there_is_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        _put(engine, b"k")
        engine.sync()
        engine.recover()  # nothing failed: nothing to do
        _redirect_wal(tmp_path, os.open("/dev/full", os.O_WRONLY))
        with pytest.raises(StorageFullError):
            _put(engine, b"lost")
        monkeypatch.setattr(engine, "_free_bytes", lambda: 0)
        for call in (engine.recover, lambda: _put(engine, b"lost")):
            with pytest.raises(StorageFullError, match="recovery needs") as caught:
                call()
            assert caught.value.recoverable_in_place
        assert engine.get(Family.STATE, b"k") == b"v"
        monkeypatch.undo()
        engine.recover()
        _put(engine, b"k2")


def test_a_failed_sync_is_never_retried(tmp_path: Path) -> None:
    """The pages may be gone though the second fsync says yes. Only a restart helps."""
    engine = Engine.open(tmp_path, options=OPTIONS)
    _put(engine, b"synced")
    engine.sync()
    _, pipe = os.pipe()  # takes writes, cannot be synced
    _redirect_wal(tmp_path, pipe)
    _put(engine, b"unsynced")
    with pytest.raises(StorageError, match="fdatasync") as caught:
        engine.sync()
    assert not isinstance(caught.value, StorageFullError)
    for refused in (engine.sync, lambda: _put(engine, b"later"), engine.recover):
        with pytest.raises(StorageError, match="fdatasync"):
            refused()
    assert engine.get(Family.STATE, b"synced") == b"v"
    engine.close()
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        assert engine.get(Family.STATE, b"synced") == b"v"


def test_the_reserve_refuses_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [8 * MIB]
    with Engine.open(tmp_path, options=EngineOptions(min_free_bytes=4 * MIB)) as engine:
        monkeypatch.setattr(engine, "_free_bytes", lambda: free[0])
        store = RaftLogStore(engine, 1)

        def entry(index: int, size: int) -> None:
            batch = engine.batch()
            store.put_entry(batch, index, bytes(size))
            engine.write(batch)

        entry(2, 10_000)
        free[0] = 3 * MIB
        with pytest.raises(StorageFullError, match="min_free_bytes = 4194304") as caught:
            entry(3, 10_000)
        assert caught.value.recoverable_in_place
        assert engine.failure is None
        batch = engine.batch()
        store.put_hard_state(batch, 1, 1)
        engine.write(batch)  # a vote still passes
        free[0] = 0
        with pytest.raises(StorageFullError):
            entry(3, 10)
        batch = engine.batch()
        store.trim_to(batch, 2, 1)
        engine.write(batch)  # what makes room passes always
        engine.sync()
        free[0] = 8 * MIB
        entry(3, 10_000)
        assert store.load().last_index == 3


_SMALL_DISK = """
import os, subprocess, sys
from storage.engine import Engine
from storage.errors import StorageFullError
from storage.options import EngineOptions
from storage.raft_log import RaftLogStore

path = sys.argv[1]
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", path]).returncode:
    sys.exit(77)
options = EngineOptions(min_free_bytes=0, entries_memtable_bytes=2 << 20, entries_memtables=2)
engine = Engine.open(path + "/store", options=options)
store, synced = RaftLogStore(engine, 1), 1

def refused():
    try:
        engine.write(batch)
    except StorageFullError as error:
        assert error.recoverable_in_place
        return True
    return False

def entry(index):
    batch = engine.batch()
    store.put_entry(batch, index, os.urandom(65536))
    return batch

batch, in_a_row = entry(synced + 1), 0
while in_a_row < 5:
    if refused():
        in_a_row += 1
        assert len(store.read(2, synced)) == synced - 1
        continue
    # There was room, perhaps again: a flush that ends gives back what its log took.
    engine.sync()
    synced, in_a_row = synced + 1, 0
    batch = entry(synced + 1)
assert synced > 100, synced
subprocess.run(["mount", "-o", "remount,size=64m", path], check=True)
engine.write(batch)
assert store.load().last_index == synced + 1
assert len(store.read(2, synced + 1)) == synced
batch = engine.batch()
store.put_entry(batch, synced + 2, b"more")
engine.write(batch)
engine.close()
engine = Engine.open(path + "/store", options=options)
assert len(RaftLogStore(engine, 1).read(2, synced)) == synced - 1
assert RaftLogStore(engine, 1).read(synced + 2, synced + 2) == [b"more"]
engine.close()
"""


def test_a_really_full_disk(tmp_path: Path, root: Path) -> None:
    """A small file system of its own, filled by flushes and WAL alike, then enlarged."""
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("this machine lets no user mount a small file system")
    run = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", _SMALL_DISK, str(tmp_path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == 77:
        pytest.skip("this machine lets no user mount a small file system")
    assert run.returncode == 0, run.stderr
