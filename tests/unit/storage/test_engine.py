"""The engine over real RocksDB: order, pages, closing, kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.database import Database, Row
from storage.engine import Engine
from storage.errors import CorruptionError, LockedError, NotCachedError, StorageError
from storage.flush_cycle import MAX_RANGE_DELETES
from storage.kv import Family, KeyValue
from storage.options import KIB, MIB, EngineOptions
from storage.page import PAGE_BYTES, PAGE_ROWS
from storage.raft_log import RaftLogStore
from tests.integration.waiting import eventually
from tests.unit.storage.small_store import OPTIONS, copy_at_rest, put


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


def test_who_does_not_wait_for_the_disk_gets_what_is_in_memory(
    engine: Engine, tmp_path: Path
) -> None:
    values = {b"%08d" % number: bytes([number]) * 9000 for number in range(20)}
    batch = engine.batch()
    for key, value in values.items():
        batch.put(Family.ENTRIES, key, value)
    engine.write(batch)
    engine.sync()

    def read(key: bytes) -> bytes | None:
        return engine.get_unchecked(Family.ENTRIES, key, cached_only=True)

    assert {key: read(key) for key in values} == values
    for file in tmp_path.rglob("*.log"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    last = max(values)
    with pytest.raises(NotCachedError, match="9000 bytes"):
        read(last)
    assert engine.get_unchecked(Family.ENTRIES, last) == values[last]
    assert read(last) == values[last]


def test_an_empty_batch_is_nothing(engine: Engine) -> None:
    engine.write(engine.batch())
    engine.sync()


def test_empty_values_exist(engine: Engine) -> None:
    put(engine, b"k", value=b"")
    assert engine.get(Family.STATE, b"k") == b""
    assert list(engine.scan(Family.STATE, b"a", b"z")) == [(b"k", b"")]


@pytest.mark.parametrize("count", [0, 1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 3 * PAGE_ROWS])
def test_scan_both_ways_over_pages(engine: Engine, count: int) -> None:
    keys = [b"k%06d" % number for number in range(count)]
    put(engine, b"a", *keys, b"z")
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
    put(engine, b"a", b"b", b"c", b"d", b"e", value=value)
    assert [k for k, _ in engine.scan(Family.STATE, b"b", b"e")] == [b"b", b"c", b"d"]
    assert [k for k, _ in engine.scan(Family.STATE, b"b", b"e", reverse=True)] == [
        b"d",
        b"c",
        b"b",
    ]
    assert list(engine.scan(Family.STATE, b"e", b"b")) == []


def test_a_suspended_scan_does_not_keep_the_store_open(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path, options=OPTIONS)
    put(engine, *[b"%06d" % number for number in range(2 * PAGE_ROWS)])
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
    put(engine, b"k")
    engine.close()
    engine.close()
    for call in (
        lambda: engine.get(Family.STATE, b"k"),
        lambda: engine.get_many(Family.STATE, [b"k"]),
        lambda: put(engine, b"k"),
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
        put(engine, b"k")
        engine.sync()

    put(engine, b"k")
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


@pytest.mark.parametrize("field", ["max_open_files", "segment_bytes", "max_replay_bytes"])
def test_options_out_of_range_name_the_field(field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field} is -1, allowed are \d+ to \d+"):
        EngineOptions(**{field: -1})


def test_stats_and_reclaim(tmp_path: Path) -> None:
    options = EngineOptions(min_free_bytes=0, segment_bytes=256 * KIB)
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
        engine.reclaim()
        assert engine.stats().log_bytes < 2 * 256 * KIB
        assert [len(entry) for entry in store.read(191, 201)] == [20_000] * 11


def test_the_open_segment_is_freed_if_it_is_mostly_garbage(tmp_path: Path) -> None:
    with Engine.open(tmp_path, options=EngineOptions(min_free_bytes=0)) as engine:
        store = RaftLogStore(engine, 1)
        for index in range(2, 102):
            batch = engine.batch()
            store.put_entry(batch, index, bytes(50_000))
            engine.write(batch)
        engine.sync()
        engine.reclaim()
        assert engine.stats().log_bytes > 100 * 50_000, "all is needed"
        batch = engine.batch()
        store.trim_to(batch, 95, 1)
        engine.write(batch)
        engine.reclaim()
        assert engine.stats().log_bytes < 10 * 50_000
        assert [len(entry) for entry in store.read(96, 101)] == [50_000] * 6


def test_a_slow_group_does_not_keep_the_others_garbage(tmp_path: Path) -> None:
    """Each segment has one small entry of the slow group: they are copied out, and the segments
    go.
    """
    options = EngineOptions(min_free_bytes=0, segment_bytes=64 * KIB)
    slow = [b"slow%d" % index for index in range(200)]
    with Engine.open(tmp_path, options=options) as engine:
        fast, kept = RaftLogStore(engine, 1), RaftLogStore(engine, 2)
        for index in range(200):
            batch = engine.batch()
            fast.put_entry(batch, index + 2, bytes(20_000))
            kept.put_entry(batch, index + 2, slow[index])
            engine.write(batch)
            engine.sync()
        batch = engine.batch()
        fast.trim_to(batch, 200, 1)
        engine.write(batch)
        for _ in range(100):  # each call copies no more than a share
            engine.reclaim()
        stats = engine.stats()
        assert stats.log_bytes < 4 * 64 * KIB
        assert stats.log_garbage_bytes <= stats.log_bytes
        assert kept.read(2, 201) == slow
    with Engine.open(tmp_path, options=options) as engine:
        assert RaftLogStore(engine, 2).read(2, 201) == slow


def test_what_a_restart_replays_is_bounded(tmp_path: Path) -> None:
    options = EngineOptions(min_free_bytes=0, segment_bytes=256 * KIB, max_replay_bytes=2 * MIB)
    with Engine.open(tmp_path, options=options) as engine:
        put(engine, b"idle")
        store = RaftLogStore(engine, 1)
        for index in range(2, 402):
            batch = engine.batch()
            store.put_entry(batch, index, bytes(50_000))
            engine.write(batch)
            engine.sync()
        assert engine.stats().replay_bytes < 4 * 2 * MIB + 256 * KIB + 50_000
        assert engine.stats().log_bytes > 400 * 50_000
        assert engine.get(Family.STATE, b"idle") == b"v"


def test_memory_is_bounded_though_nobody_syncs(tmp_path: Path) -> None:
    """A large checkpoint is written piece by piece without a sync between."""
    options = EngineOptions(min_free_bytes=0, memtable_bytes=1 * MIB, segment_bytes=4 * MIB)
    with Engine.open(tmp_path, options=options) as engine:
        most = 0
        for number in range(40):
            batch = engine.batch()
            batch.put(Family.CHECKPOINTS, b"%06d" % number, os.urandom(MIB))
            engine.write(batch)
            most = max(most, engine.stats().memtable_bytes)
        assert most < 10 * MIB
        assert len(list(engine.scan(Family.CHECKPOINTS, b"", b"\xff"))) == 40


def test_range_deletes_do_not_pile_up_in_memory(engine: Engine) -> None:
    for number in range(MAX_RANGE_DELETES):
        batch = engine.batch()
        batch.delete_range(Family.OFFSETS, b"%06d" % number, b"%06d" % (number + 1))
        engine.write(batch)
    before = engine.stats().memtable_bytes
    engine.sync()
    eventually(lambda: engine.stats().memtable_bytes < before / 2, "the marks are in a file")


def test_a_replay_gives_rocksdb_its_rows_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(tmp_path / "live", options=OPTIONS) as engine:
        for number in range(60):
            put(engine, b"%04d" % number, value=bytes(100_000))
            store, batch = RaftLogStore(engine, 1), engine.batch()
            store.put_entry(batch, number + 2, b"small")  # its size must not count
            engine.write(batch)
        copy_at_rest(tmp_path / "live", tmp_path / "killed")
    given: list[int] = []
    really = Database.write

    def write(db: Database, rows: Sequence[Row]) -> None:
        given.append(sum(len(value or b"") for _, _, value, _ in rows))
        really(db, rows)

    monkeypatch.setattr(Database, "write", write)
    with Engine.open(tmp_path / "killed", options=OPTIONS) as engine:
        assert len(list(engine.scan(Family.STATE, b"0", b"9"))) == 60
    assert len(given) > 4 and max(given) < 2 * MIB


# -- kill -9 ----------------------------------------------------------------------------

_WRITER = """
import sys
from storage.engine import Engine
from storage.options import EngineOptions
from storage.raft_log import RaftLogStore
from tests.integration.waiting import eventually

options = EngineOptions(min_free_bytes=0, segment_bytes=1 << 18, max_replay_bytes=1 << 20)
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


def test_keys_are_read_without_their_values(tmp_path: Path) -> None:
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        batch = engine.batch()
        for number in range(600):
            batch.put(Family.ENTRIES, b"k%03d" % number, b"%03d" % number * 100)
        engine.write(batch)
        engine.sync()
        keys = [b"k%03d" % number for number in range(600)]
        assert list(engine.scan_keys(Family.ENTRIES, b"k", b"l")) == keys
        assert list(engine.scan_keys(Family.ENTRIES, b"k", b"l", reverse=True)) == keys[::-1]
        assert list(engine.scan_keys(Family.ENTRIES, b"k010", b"k500", limit=3)) == keys[10:13]
        last = engine.scan_keys(Family.ENTRIES, b"k010", b"k500", limit=513, reverse=True)
        assert list(last) == keys[10:500][::-1]
        # The scan reads no byte of the commit log.
        (segment,) = (tmp_path / "log").glob("*.log")
        os.truncate(segment, 0)
        assert list(engine.scan_keys(Family.ENTRIES, b"k", b"l")) == keys
        with pytest.raises(CorruptionError):
            list(engine.scan(Family.ENTRIES, b"k", b"l"))
