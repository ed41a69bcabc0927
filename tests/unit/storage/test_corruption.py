"""Damaged files: a flipped byte gives CorruptionError or no change at all, never wrong data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage.commitlog.segment import HEADER_BYTES
from storage.engine import Engine
from storage.errors import CorruptionError
from storage.options import EngineOptions
from storage.raft_log import RaftLogStore
from storage.watermark import Watermark

OPTIONS = EngineOptions(min_free_bytes=0)
LAST = 60


def _data(index: int) -> bytes:
    """Small and large ones."""
    return b"%04d" % index * (10 if index % 2 else 2000)


def _fill(path: Path) -> None:
    """Each entry synced; one copy from before it is closed: the commit log is all there is."""
    engine = Engine.open(path / "live", options=OPTIONS)
    store = RaftLogStore(engine, 3)
    for index in range(2, LAST + 1):
        batch = engine.batch()
        store.put_entry(batch, index, _data(index))
        store.put_hard_state(batch, index, 1)
        engine.write(batch)
        engine.sync()
    shutil.copytree(path / "live", path / "killed")
    engine.close()
    shutil.copytree(path / "live", path / "closed")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores")
    _fill(path)
    return path


def _check(path: Path) -> bool:
    """True when everything is there and right, False when the damage was reported."""
    try:
        with Engine.open(path, options=OPTIONS) as engine:
            store = RaftLogStore(engine, 3)
            state = store.load()
            assert (state.last_index, state.term) == (LAST, LAST)
            assert store.read(2, LAST) == [_data(index) for index in range(2, LAST + 1)]
    except CorruptionError:
        return False
    return True


def _log(target: Path) -> Path:
    (file,) = (target / "log").glob("*.log")
    return file


def _flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def _flip_in_entry(index: int, stores: Path, work: Path) -> Path:
    """A copy of the closed store with a bit flipped in that entry's data."""
    target = work / "store"
    shutil.copytree(stores / "closed", target)
    _flip(_log(target), _log(target).read_bytes().index(_data(index)) + 100)
    return target


def test_undamaged_copies_are_whole(stores: Path, tmp_path: Path) -> None:
    for kind in ("killed", "closed"):
        shutil.copytree(stores / kind, tmp_path / kind)
        assert _check(tmp_path / kind)


@pytest.mark.parametrize("position", [step / 40 for step in range(41)])
def test_a_flipped_byte_in_a_log_not_yet_in_tables(
    stores: Path, tmp_path: Path, position: float
) -> None:
    """Also in the last record, where it looks like a torn write: it was synced."""
    target = tmp_path / "store"
    shutil.copytree(stores / "killed", target)
    _flip(_log(target), int(position * (_log(target).stat().st_size - 1)))
    assert not _check(target)
    assert not _check(target), "the next start does not forget"


def test_a_flipped_byte_in_the_log_below_the_tables(stores: Path, tmp_path: Path) -> None:
    """Entries are all that is read there, and it is nearly all that is there."""
    size = _log(stores / "closed").stat().st_size
    noticed = 0
    for step in range(41):
        target = tmp_path / str(step)
        shutil.copytree(stores / "closed", target)
        _flip(_log(target), int(step / 40 * (size - 1)))
        noticed += not _check(target)
    assert noticed > 30


@pytest.mark.parametrize("position", [step / 40 for step in range(41)])
def test_a_flipped_byte_in_a_table(stores: Path, tmp_path: Path, position: float) -> None:
    target = tmp_path / "store"
    shutil.copytree(stores / "closed", target)
    for file in (target / "rocksdb").glob("*.sst"):
        _flip(file, int(position * (file.stat().st_size - 1)))
    _check(target)  # tables have parts that no read needs


@pytest.mark.parametrize("position", [step / 40 for step in range(40)])
def test_a_flipped_byte_that_a_lagging_mark_does_not_cover(
    stores: Path, tmp_path: Path, position: float
) -> None:
    """After a power cut the mark may be seconds old; each entry was acknowledged."""
    target = tmp_path / "store"
    shutil.copytree(stores / "killed", target)
    (target / "synced").unlink()
    mark = Watermark(target / "synced")
    mark.advance(1)
    mark.close()
    content = _log(target).read_bytes()
    last = content.rindex(content[HEADER_BYTES : HEADER_BYTES + 8])  # of the last record
    _flip(_log(target), int(position * last))
    assert not _check(target)
    assert not _check(target), "the next start does not forget"


@pytest.mark.parametrize("name", ["MANIFEST-*", "synced"])
def test_a_flipped_byte_in_the_bookkeeping(stores: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "store"
    shutil.copytree(stores / "closed", target)
    (file,) = target.rglob(name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)
    assert not _check(target)


@pytest.mark.parametrize("kind", ["killed", "closed"])
@pytest.mark.parametrize("share", [step / 20 for step in range(20)])
def test_a_cut_manifest(stores: Path, tmp_path: Path, kind: str, share: float) -> None:
    """The manifest is a log, so a cut may leave a sound, older one: never with fewer entries."""
    target = tmp_path / "store"
    shutil.copytree(stores / kind, target)
    (file,) = (target / "rocksdb").glob("MANIFEST-*")
    with file.open("r+b") as opened:
        opened.truncate(int(share * file.stat().st_size))
    whole = _check(target)
    assert not whole or share > 0.1


@pytest.mark.parametrize("kind", ["killed", "closed"])
def test_a_missing_current_file_does_not_begin_a_new_store(
    stores: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "store"
    shutil.copytree(stores / kind, target)
    (target / "rocksdb" / "CURRENT").unlink()
    assert not _check(target)
    shutil.copy(stores / kind / "rocksdb" / "CURRENT", target / "rocksdb")
    assert _check(target), "nothing was lost by the attempt"


def test_a_reader_with_a_checksum_of_its_own_finds_the_damage(stores: Path, tmp_path: Path) -> None:
    """Without the store's checksums the damaged bytes do come, and the reader refuses them."""
    target = _flip_in_entry(30, stores, tmp_path)
    seen: list[bytes] = []

    def is_intact(data: bytes) -> bool:
        seen.append(data)
        return data == _data(30)

    with Engine.open(target, options=OPTIONS) as engine:
        store = RaftLogStore(engine, 3)
        with pytest.raises(CorruptionError, match="group 3, index 30"):
            store.read_checked_by(30, is_intact)
        (data,) = seen
        assert len(data) == len(_data(30)) and data != _data(30)
        assert store.read_checked_by(32, lambda data: data == _data(32)) == _data(32)
        with pytest.raises(CorruptionError, match="index 32"):
            store.read_checked_by(32, lambda data: False)


def test_a_damaged_entry_names_group_and_index(stores: Path, tmp_path: Path) -> None:
    target = _flip_in_entry(30, stores, tmp_path)
    with Engine.open(target, options=OPTIONS) as engine:
        store = RaftLogStore(engine, 3)
        assert store.load().last_index == LAST
        with pytest.raises(CorruptionError, match="group 3, index 30") as caught:
            store.read(20, 40)
        assert (caught.value.group, caught.value.index) == (3, 30)
        assert store.read(31, 40) == [_data(index) for index in range(31, 41)]


@pytest.mark.parametrize("kind", ["killed", "closed"])
@pytest.mark.parametrize("pattern", ["log/*.log", "rocksdb/*.sst"])
def test_a_file_that_is_gone(stores: Path, tmp_path: Path, kind: str, pattern: str) -> None:
    target = tmp_path / "store"
    shutil.copytree(stores / kind, target)
    gone = list(target.glob(pattern))
    for file in gone:
        file.unlink()
    assert _check(target) == (not gone)


@pytest.mark.parametrize("fill", [0, 1, 7, 255])
@pytest.mark.parametrize("size", [1, 6, 19, 20, 300, 40_000])
def test_a_torn_tail_that_was_never_synced_is_dropped(
    stores: Path, tmp_path: Path, fill: int, size: int
) -> None:
    target = tmp_path / "store"
    shutil.copytree(stores / "killed", target)
    with _log(target).open("ab") as file:
        file.write(bytes([fill]) * size)
    assert _check(target)
    assert _check(target)


def test_a_torn_tail_that_was_synced_is_not(stores: Path, tmp_path: Path) -> None:
    target = tmp_path / "store"
    shutil.copytree(stores / "killed", target)
    with _log(target).open("r+b") as file:
        file.truncate(file.seek(0, 2) - 1)
    with pytest.raises(CorruptionError, match="1 synced writes are missing"):
        Engine.open(target, options=OPTIONS)
