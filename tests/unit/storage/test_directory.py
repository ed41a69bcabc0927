"""A store belongs to its data directory: one that is gone, or another's, is not opened as new.

`data/format3.tar.xz` holds two data directories that the version before made, without ids
in the store: `close` was closed in order, `kill` was not. Each has 60 batches.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from storage.commitlog.segment import Segment, numbers_in
from storage.engine import Engine
from storage.errors import CorruptionError, IdentityError, MissingStoreError, StorageError
from storage.identity import StoreState, claim
from storage.keys import numbered
from storage.kv import Family
from storage.opening import DIRECTORY_KEY
from storage.options import KIB, EngineOptions
from storage.system import System
from storage.watermark import Watermark
from tests.unit.storage.small_store import put

OPTIONS = EngineOptions(min_free_bytes=0, segment_bytes=8 * KIB)
OLD_BATCHES = 60


def started(directory: Path, *keys: bytes, system: System | None = None) -> list[bytes]:
    """Starts as a node does, writes, and stops in order; returns the keys that were there."""
    with claim(directory, "prod", 1) as lock:
        with Engine.open(
            directory / "db", options=OPTIONS, directory=lock, system=system or System()
        ) as engine:
            there = [key for key, _ in engine.scan(Family.STATE, b"k", b"l")]
            for key in keys:
                put(engine, key, value=bytes(3000))
                engine.sync()
    return there


def files(directory: Path) -> dict[str, bytes]:
    """All but the lock, which holds a pid."""
    found = (file for file in directory.rglob("*") if file.is_file() and file.name != "lock")
    return {str(file.relative_to(directory)): file.read_bytes() for file in found}


def state(directory: Path) -> str:
    said: str = json.loads((directory / "identity.json").read_text())["store"]
    return said


def test_a_store_is_made_once(tmp_path: Path) -> None:
    with claim(tmp_path / "node", "prod", 1) as lock:
        assert lock.store is StoreState.NONE
    assert state(tmp_path / "node") == "none"
    assert started(tmp_path / "node", b"k1") == []
    assert state(tmp_path / "node") == "made"
    assert started(tmp_path / "node", b"k2") == [b"k1"]
    assert started(tmp_path / "node") == [b"k1", b"k2"]


def test_the_id_is_in_every_part(tmp_path: Path) -> None:
    with claim(tmp_path, "prod", 1) as lock:
        with Engine.open(tmp_path / "db", options=OPTIONS, directory=lock) as engine:
            for number in range(12):  # entries keep their segments
                batch = engine.batch()
                batch.put(Family.ENTRIES, numbered(1, number), bytes(3000))
                engine.write(batch)
        log = tmp_path / "db" / "log"
        headers = [Segment(log, number).header() for number in numbers_in(log)]
        assert len(headers) > 1
        assert {header and header.directory_id for header in headers} == {lock.directory_id}
        with Engine.open(tmp_path / "db", options=OPTIONS, directory=lock) as engine:
            assert engine._store is not None
            assert engine._store.db.noted(DIRECTORY_KEY) == lock.directory_id.to_bytes(8)


@pytest.mark.parametrize("part", ["db", "db/rocksdb", "db/log", "db/synced"])
def test_a_missing_part_is_named_and_nothing_is_made(tmp_path: Path, part: str) -> None:
    started(tmp_path, b"k1")
    shutil.move(tmp_path / part, tmp_path / "elsewhere")
    before = files(tmp_path)
    for _ in range(2):
        where = re.escape(str(tmp_path))
        with pytest.raises(MissingStoreError, match=rf"{where}/{part} is missing.*not mounted"):
            started(tmp_path)
    assert files(tmp_path) == before
    assert not (tmp_path / part).exists()
    shutil.move(tmp_path / "elsewhere", tmp_path / part)
    assert started(tmp_path) == [b"k1"]


@pytest.mark.parametrize("part", ["db", "db/rocksdb", "db/log"])
def test_an_empty_folder_is_no_store(tmp_path: Path, part: str) -> None:
    """An unmounted volume leaves an empty folder."""
    started(tmp_path, b"k1")
    (tmp_path / part).rename(tmp_path / "elsewhere")
    (tmp_path / part).mkdir()
    for _ in range(2):
        with pytest.raises(
            (MissingStoreError, CorruptionError), match=r"missing|create_if_missing is false"
        ):
            started(tmp_path)
    shutil.rmtree(tmp_path / part)
    (tmp_path / "elsewhere").rename(tmp_path / part)
    assert started(tmp_path) == [b"k1"]


def test_without_the_check_a_lost_store_opens_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(tmp_path, b"k1")
    shutil.rmtree(tmp_path / "db")
    with claim(tmp_path, "prod", 1) as lock:
        monkeypatch.setattr(lock, "check_store", lambda _: None)
        monkeypatch.setattr(type(lock), "store", StoreState.NONE)
        with Engine.open(tmp_path / "db", options=OPTIONS, directory=lock) as engine:
            assert engine.get(Family.STATE, b"k1") is None


@pytest.mark.parametrize(
    ("part", "is_flushed"),
    [("db", True), ("db", False), ("db/rocksdb", True), ("db/log", True), ("db/log", False)],
)
def test_a_part_of_another_directory_is_refused(
    tmp_path: Path, part: str, is_flushed: bool
) -> None:
    """Also if its tables hold nothing yet, so that only the log names its directory."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    for directory in (mine, other):
        with claim(directory, "prod", 1) as lock:
            engine = Engine.open(directory / "db", options=OPTIONS, directory=lock)
            put(engine, b"k1")
            engine.sync()
            if not is_flushed:
                shutil.copytree(directory, tmp_path / f"{directory.name}-killed")
            engine.close()
    if not is_flushed:
        mine, other = tmp_path / "mine-killed", tmp_path / "other-killed"
    shutil.rmtree(mine / part)
    shutil.copytree(other / part, mine / part)
    for _ in range(2):
        with pytest.raises(IdentityError, match="belongs to the data directory with id"):
            started(mine)


def test_an_interrupted_first_start_is_done_again(tmp_path: Path) -> None:
    """Interrupts at each call that changes a file: nothing was promised, so the next start makes
    it.
    """

    class Stopped(Exception):
        pass

    class Stopping(System):
        def __init__(self, at: int) -> None:
            self.left = at

        def _count(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise Stopped

        def fsync(self, descriptor: int) -> None:
            self._count()
            super().fsync(descriptor)

        def fdatasync(self, descriptor: int) -> None:
            self._count()
            super().fdatasync(descriptor)

        def rename(self, path: Path, target: Path) -> None:
            self._count()
            super().rename(path, target)

        def mkdir(self, path: Path) -> None:
            self._count()
            super().mkdir(path)

    stopped = 0
    for at in range(1, 100):
        directory = tmp_path / str(at)
        system = Stopping(at)
        try:
            with claim(directory, "prod", 1, system) as lock:
                engine = Engine.open(
                    directory / "db", options=OPTIONS, directory=lock, system=system
                )
                system.left = -1
                engine.close()
        except Stopped:
            stopped += 1
            image = tmp_path / f"{at}-image"
            shutil.copytree(directory, image) if directory.exists() else image.mkdir()
            assert started(image, b"k1") == []
            assert started(image) == [b"k1"]
        else:
            break
    assert 10 < stopped < 99


def test_new_folders_are_durable_with_their_parents(tmp_path: Path) -> None:
    done: list[tuple[str, Path]] = []

    class Noting(System):
        def mkdir(self, path: Path) -> None:
            done.append(("made", path))
            super().mkdir(path)

        def sync_directory(self, path: Path) -> None:
            done.append(("synced", path))
            super().sync_directory(path)

    directory, system = tmp_path / "deep" / "node", Noting()
    with claim(directory, "prod", 1, system) as lock:
        Engine.open(directory / "db", options=OPTIONS, directory=lock, system=system).close()
    made = [path for what, path in done if what == "made"]
    assert made == [
        tmp_path / "deep",
        directory,
        directory / "db",
        directory / "db" / "rocksdb",
        directory / "db" / "log",
    ]
    for path in made:
        assert ("synced", path.parent) in done[done.index(("made", path)) :]


# -- format 3 --------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent.parent / "data" / "format3.tar.xz") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def old_content(engine: Engine) -> list[bytes]:
    assert engine.get(Family.STATE, b"last") == b"%d" % OLD_BATCHES
    return [value for _, value in engine.scan(Family.ENTRIES, b"", b"\xff")]


@pytest.mark.parametrize("kind", ["kill", "close"])
def test_a_store_of_format_3_gets_its_id_once(old: Path, kind: str) -> None:
    directory = old / kind
    expected = [b"entry %d" % number * 50 for number in range(1, OLD_BATCHES + 1)]
    for round_ in range(3):
        with claim(directory, "prod", 1) as lock:
            assert lock.store is (StoreState.MADE if round_ else StoreState.OLD)
            with Engine.open(directory / "db", options=OPTIONS, directory=lock) as engine:
                assert engine._store is not None
                assert old_content(engine) == expected
                assert engine._store.db.noted(DIRECTORY_KEY) == lock.directory_id.to_bytes(8)
                put(engine, b"k%d" % round_)
                engine.sync()
                if not round_:  # also if it is killed then
                    shutil.copytree(directory, old / "killed")
        log = directory / "db" / "log"
        headed = [Segment(log, number).header() is not None for number in numbers_in(log)]
        assert headed == sorted(headed) and headed[-1]
    for number in range(2):
        there = started(old / "killed", b"k%d" % (number + 1))
        assert there == [b"k%d" % each for each in range(number + 1)]


def test_damage_to_the_old_part_is_still_found(old: Path) -> None:
    """The first record of the present format says that all of it was synced."""
    directory = old / "kill"
    Watermark(old / "mark").close()
    with claim(directory, "prod", 1) as lock:
        with Engine.open(directory / "db", options=OPTIONS, directory=lock) as engine:
            put(engine, b"k1")
            shutil.copytree(directory, old / "killed")
    log = old / "killed" / "db" / "log"
    last = max(number for number in numbers_in(log) if Segment(log, number).header() is None)
    file = log / f"{last:08d}.log"
    os.truncate(file, file.stat().st_size - 1)
    (old / "killed" / "db" / "synced").write_bytes((old / "mark").read_bytes())  # it lags
    with pytest.raises(CorruptionError, match="synced writes are missing"):
        started(old / "killed")


@pytest.mark.parametrize("kind", ["kill", "close"])
@pytest.mark.parametrize("part", ["db", "db/rocksdb", "db/log", "db/synced"])
def test_a_lost_store_of_format_3_is_not_a_new_one(old: Path, kind: str, part: str) -> None:
    (old / kind / part).rename(old / "elsewhere")
    with pytest.raises(MissingStoreError, match=rf"/{part} is missing"):
        started(old / kind)
    assert not (old / kind / part).exists()


def test_a_torn_end_of_format_3_is_cut_off(old: Path) -> None:
    log = old / "kill" / "db" / "log"
    with (log / f"{numbers_in(log)[-1]:08d}.log").open("ab") as file:
        file.write(b"\x17" * 100)
    with claim(old / "kill", "prod", 1) as lock:
        with Engine.open(old / "kill" / "db", options=OPTIONS, directory=lock) as engine:
            assert len(old_content(engine)) == OLD_BATCHES


def test_a_later_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    started(tmp_path)
    identity = json.loads((tmp_path / "identity.json").read_text())
    (tmp_path / "identity.json").write_text(json.dumps({**identity, "format": 8}))
    with pytest.raises(StorageError, match="format 8, this version reads 3, 4, 5, 6 and 7"):
        started(tmp_path)
