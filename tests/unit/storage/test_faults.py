"""Full disks and failed syncs: refused calls, calls that go on, faults that need a restart."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage.commitlog.log import BEGIN
from storage.database import Database
from storage.engine import Engine
from storage.errors import LockedError, StorageError, StorageFullError
from storage.flush_cycle import stored_place
from storage.kv import Family
from storage.options import MIB, EngineOptions
from storage.raft_log import RaftLogStore
from storage.system import System
from tests.unit.storage.small_store import OPTIONS, copy_at_rest, put


def _no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _redirect_log(path: Path, target: int) -> None:
    """Puts another file under the commit log's feet, so that its next call really fails."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(str(path / "log")):
                found.append(int(name))
        except FileNotFoundError:
            continue
    assert found
    for descriptor in found:
        os.dup2(target, descriptor)
    os.close(target)


def test_no_space_for_a_record_refuses_that_batch_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        put(engine, b"unsynced")
        monkeypatch.setattr(os, "pwritev", _no_space)
        batch = engine.batch()
        batch.put(Family.STATE, b"refused", b"v")
        for _ in range(2):
            with pytest.raises(StorageFullError, match="No space left on device") as caught:
                engine.write(batch)
            assert caught.value.recoverable_in_place
        assert engine.failure is None
        engine.sync()  # earlier writes are not in doubt
        assert engine.get_many(Family.STATE, [b"unsynced", b"refused"]) == [b"v", None]
        monkeypatch.undo()
        engine.write(batch)
        engine.sync()
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        assert engine.get_many(Family.STATE, [b"unsynced", b"refused"]) == [b"v", b"v"]


def test_no_space_for_tables_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB refuses all writes after a flush that failed; the commit log has everything."""

    def stopped(*_: object) -> None:
        raise Exception("IO error: No space left on device: While appending to file")

    with Engine.open(tmp_path, options=OPTIONS) as engine:
        put(engine, b"synced")
        engine.sync()
        put(engine, b"unsynced")
        with monkeypatch.context() as patched:
            patched.setattr(Database, "write", stopped)
            with pytest.raises(StorageFullError, match="No space left on device") as caught:
                put(engine, b"refused")
            assert caught.value.recoverable_in_place
        with pytest.raises(StorageFullError, match="refused since an earlier fault"):
            engine.reclaim()
        engine.sync()  # earlier writes are not in doubt
        assert engine.get(Family.STATE, b"unsynced") == b"v"
        with monkeypatch.context() as patched:
            patched.setattr(engine, "_free_bytes", lambda: 0)
            with pytest.raises(StorageFullError, match="recovery needs") as caught:
                put(engine, b"later")
            assert caught.value.recoverable_in_place
            assert engine.get(Family.STATE, b"synced") == b"v"
        put(engine, b"later")  # there is space: RocksDB is opened again
        assert engine.failure is None
        found = engine.get_many(Family.STATE, [b"synced", b"unsynced", b"refused", b"later"])
        assert found == [b"v", b"v", None, b"v"]
        engine.sync()
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        found = engine.get_many(Family.STATE, [b"synced", b"unsynced", b"refused", b"later"])
        assert found == [b"v", b"v", None, b"v"]


def test_tables_that_cannot_be_written_hang_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error may be there before anybody waits for the end of the flush."""
    met = [0]

    def flush_families(db: Database) -> None:
        met[0] += 1

    def refused(*_: object) -> None:
        raise Exception("IO error: No space left on device: While appending to file")

    with Engine.open(tmp_path, options=OPTIONS) as engine:
        assert engine._store is not None
        put(engine, b"k")
        engine.sync()
        with monkeypatch.context() as patched:
            patched.setattr(Database, "flush_families", flush_families)
            patched.setattr(Database, "background_errors", property(lambda _: met[0]))
            patched.setattr(Database, "is_flushing", lambda _: True)
            patched.setattr(Database, "note", refused)
            with pytest.raises(StorageFullError, match="No space left on device"):
                engine._guarded("reclaim", engine._store.cycle.run)
        before = stored_place(engine._store.db)
        put(engine, b"later")
        assert engine.failure is None
        assert before == BEGIN
        assert engine.get(Family.STATE, b"k") == b"v"


def test_a_failed_sync_is_never_retried(tmp_path: Path) -> None:
    """The pages may be gone though the second fsync says yes. Only a restart helps."""
    store = tmp_path / "store"
    engine = Engine.open(store, options=OPTIONS)
    put(engine, b"synced")
    engine.sync()
    put(engine, b"unsynced")
    _, pipe = os.pipe()  # cannot be synced
    _redirect_log(store, pipe)
    with pytest.raises(StorageError, match=r"sync .*Invalid argument") as caught:
        engine.sync()
    assert not isinstance(caught.value, StorageFullError)
    for refused in (engine.sync, lambda: put(engine, b"later"), engine.reclaim):
        with pytest.raises(StorageError, match="refused since an earlier fault"):
            refused()
    assert engine.get(Family.STATE, b"synced") == b"v"
    engine.close()
    # Closing must not put data into a table that the log may lack: RocksDB stays as it is.
    assert list((store / "rocksdb").glob("*.sst")) == []
    with pytest.raises(LockedError):
        Engine.open(store, options=OPTIONS)
    shutil.copytree(store, tmp_path / "restarted")
    with Engine.open(tmp_path / "restarted", options=OPTIONS) as engine:
        assert engine.get(Family.STATE, b"synced") == b"v"


def test_a_write_that_failed_otherwise_is_never_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    engine = Engine.open(tmp_path, options=OPTIONS)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", broken)
        with pytest.raises(StorageError, match="Input/output error"):
            put(engine, b"k")
    with pytest.raises(StorageError, match="refused since an earlier fault"):
        put(engine, b"k")
    engine.close()


def test_what_a_failed_sync_left_in_memory_is_written_again(tmp_path: Path) -> None:
    """After an fsync that failed the pages look clean: a start writes them once more."""
    engine = Engine.open(tmp_path / "store", options=OPTIONS)
    put(engine, b"unsynced")
    copy_at_rest(tmp_path / "store", tmp_path / "restarted")
    engine.close()
    log = next((tmp_path / "restarted" / "log").glob("*.log"))
    before = log.stat().st_mtime_ns
    with Engine.open(tmp_path / "restarted", options=OPTIONS) as engine:
        assert engine.get(Family.STATE, b"unsynced") == b"v"
        assert log.stat().st_mtime_ns > before


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
        engine.write(batch)  # writes that make room always pass
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
from storage.system import System

path = sys.argv[1]
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", path]).returncode:
    sys.exit(77)
options = EngineOptions(min_free_bytes=0, segment_bytes=1 << 20, max_replay_bytes=2 << 20)
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
    # There was room, perhaps again: RocksDB gives some back now and then.
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
    """A small file system of its own, filled by log and tables alike, then enlarged."""
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


_NO_DESCRIPTORS = """
import os, resource, sys, time
from storage.engine import Engine
from storage.errors import StorageFullError
from storage.kv import Family
from storage.options import EngineOptions

options = EngineOptions(min_free_bytes=0, segment_bytes=1 << 20, max_replay_bytes=2 << 20)
engine = Engine.open(sys.argv[1], options=options)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

def write(number):
    batch = engine.batch()
    batch.put(Family.STATE, b"%d" % number, os.urandom(65536))
    engine.write(batch)
    engine.sync()

write(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")), hard))
taken = []  # numbers below the limit that are free
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
written, refused = 1, 0
while refused < 3:  # tables and segments come due, and no file can be opened for them
    try:
        write(written)
        written += 1
    except StorageFullError as error:
        assert error.recoverable_in_place, error
        refused += 1
        time.sleep(0.01)
    assert written < 1000
assert len(engine.get(Family.STATE, b"0")) == 65536  # reads go on
for number in taken:
    os.close(number)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1024), hard))
for number in range(written, written + 100):
    write(number)
engine.reclaim()
assert engine.failure is None
engine.close()
with Engine.open(sys.argv[1], options=options) as engine:
    for number in range(written + 100):
        assert len(engine.get(Family.STATE, b"%d" % number)) == 65536, number
"""


def test_no_descriptors_are_waited_out(tmp_path: Path, root: Path) -> None:
    """A process without a descriptor left cannot open files: that is no failed sync."""
    run = subprocess.run(
        [sys.executable, "-c", _NO_DESCRIPTORS, str(tmp_path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("refused", ["following", "deleting"])
def test_a_file_that_cannot_be_opened_stops_no_store(tmp_path: Path, refused: str) -> None:
    class Scarce(System):
        scarce = False

        def open(self, path: Path, flags: int) -> int:
            if self.scarce:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().open(path, flags)

    system = Scarce()
    options = EngineOptions(min_free_bytes=0, segment_bytes=4096)
    with Engine.open(tmp_path, options=options, system=system) as engine:
        assert engine._store is not None
        put(engine, b"before", value=bytes(5000))
        engine.sync()
        log = engine._store.log
        number = log.end.segment
        if refused == "following":
            system.scarce = True
            assert log.following() is None
        else:
            log.roll(log.following())
            system.scarce = True
            with pytest.raises(StorageFullError, match="Too many open files"):
                engine._guarded("reclaim", lambda: log.delete([number]))
        assert engine.failure is None
        system.scarce = False
        put(engine, b"after")
        engine.sync()
