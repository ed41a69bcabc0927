"""Power cuts of one store, by images: its files as they are, the commit log cut at random.

An image is one possible disk after the power went: every file of RocksDB as it stands (the most
that can be there), and of the commit log any length from the last sync on, the next bytes being
torn, and any pages lost that no sync covered. Each image must open to the state after one of the
batches, none older than the last sync. A model in memory holds that state.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import keys
from storage.commitlog.log import BEGIN
from storage.commitlog.segment import HEADER_BYTES, numbers_in, path_of
from storage.database import Database
from storage.engine import Engine
from storage.flush_cycle import stored_place
from storage.kv import Family
from storage.options import KIB, EngineOptions
from storage.reclaim import Moved
from tests.unit.storage.small_store import copy_at_rest

OPTIONS = EngineOptions(
    min_free_bytes=0,
    segment_bytes=8 * KIB,
    max_replay_bytes=64 * KIB,
    memtable_bytes=64 * KIB,
    max_open_segments=2,
)
GROUPS = (1, 2, 3)
PAGE = 512
BATCHES = 250
IMAGES = 25

Rows = dict[tuple[Family, bytes], bytes]


class Writer:
    """Writes as a node does: entries, state, trims, conflicts; remembers each state."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.engine = engine
        self.rng = rng
        self.states: list[Rows] = [{}]
        # The state, segment and size that some sync reached, whichever thread asked for it.
        self.durable = (0, 1, 0)
        # Held by a sync until it is noted, and while the disk is copied.
        self.syncing = threading.Lock()
        assert engine._store is not None
        self.log = engine._store.log
        self._sync_log, self.log.sync = self.log.sync, self._noted  # type: ignore[method-assign]
        self.moved = 0  # entries that reclaiming copied out of old segments
        reclaimer = engine._store.reclaimer
        self._move, reclaimer._move = reclaimer._move, self._counted
        self._last = dict.fromkeys(GROUPS, 1)
        self._first = dict.fromkeys(GROUPS, 2)

    def write(self) -> None:
        rows = dict(self.states[-1])
        batch = self.engine.batch()
        for group in self.rng.sample(GROUPS, self.rng.randint(1, 3)):
            self._append(batch, rows, group)
            # The third is slow: its entries keep segments alive.
            if self.rng.random() < (0.02 if group == 3 else 0.2):
                self._trim(batch, rows, group)
        number = len(self.states)
        batch.put(Family.STATE, b"number", b"%d" % number)
        rows[Family.STATE, b"number"] = b"%d" % number
        self.engine.write(batch)
        self.states.append(rows)

    def _append(self, batch, rows: Rows, group: int) -> None:
        if self.rng.random() < 0.1:  # a conflict: entries from here on are replaced
            start = self.rng.randint(self._first[group], self._last[group] + 1)
            for index in range(start, self._last[group] + 1):
                batch.delete(Family.ENTRIES, keys.numbered(group, index))
                del rows[Family.ENTRIES, keys.numbered(group, index)]
            self._last[group] = start - 1
        for _ in range(self.rng.randint(1, 3)):
            self._last[group] += 1
            key = keys.numbered(group, self._last[group])
            value = self.rng.randbytes(self.rng.choice((0, 10, 300, 3000)))
            batch.put(Family.ENTRIES, key, value)
            batch.put(Family.OFFSETS, key, value[:8])
            rows[Family.ENTRIES, key], rows[Family.OFFSETS, key] = value, value[:8]

    def _trim(self, batch, rows: Rows, group: int) -> None:
        first = self.rng.randint(self._first[group], self._last[group] + 1)
        begin, end = keys.numbered(group, 0), keys.numbered(group, first)
        for family in (Family.ENTRIES, Family.OFFSETS):
            batch.delete_range(family, begin, end)
            for each in [k for k in rows if k[0] is family and begin <= k[1] < end]:
                del rows[each]
        self._first[group] = first

    def _noted(self) -> int:
        """Each sync of the log, also those that flushing and reclaiming ask for."""
        with self.syncing:
            written = len(self.states) - 1  # before the end, which another thread moves
            end = self.log.end
            number = self._sync_log()
            self.durable = max(self.durable, (written, end.segment, end.position))
            return number

    def _counted(self, entries: list[Moved]) -> None:
        self.moved += len(entries)
        self._move(entries)


def everything(engine: Engine) -> Rows:
    return {
        (family, key): value
        for family in Family
        for key, value in engine.scan(family, b"", b"\xff" * 32)
    }


def cut_power(
    store: Path, image: Path, rng: random.Random, writer: Writer, torn_at: int | None = None
) -> int:
    """Copies the store as a power cut may leave it; returns the oldest state that it may have.

    torn_at: bytes behind the durable end, or at random.
    """
    with writer.syncing:
        copy_at_rest(store, image)
        synced, segment, size = writer.durable
    log = image / "log"
    numbers = [n for n in numbers_in(log) if n >= segment]
    torn = rng.choice(numbers or [segment])  # no number: a segment that was begun meanwhile
    for number in numbers:
        file = path_of(log, number)
        whole = file.stat().st_size
        # The header of a file is durable before anything is written behind it.
        least = size if number == segment else min(HEADER_BYTES, whole)
        if number == torn:
            with file.open("r+b") as opened:
                opened.truncate(rng.randint(least, whole) if torn_at is None else least + torn_at)
                if rng.random() < 0.5 and whole >= HEADER_BYTES:
                    opened.seek(0, 2)
                    opened.write(rng.choice((b"\0", b"\xff")) * rng.randint(1, 5000))
        if torn_at is None and rng.random() < 0.3:
            lose_pages(file, least, rng)
    return synced


def lose_pages(file: Path, least: int, rng: random.Random) -> None:
    """Zeroes random pages: the disk writes in its own order, so later pages may be there."""
    content = bytearray(file.read_bytes())
    for page in range(least - least % PAGE, len(content), PAGE):
        begin, end = max(page, least), min(page + PAGE, len(content))
        if begin < end and rng.random() < 0.3:
            content[begin:end] = bytes(end - begin)
    file.write_bytes(content)


def check(image: Path, writer: Writer, synced: int) -> int:
    """Opens an image; which state it is."""
    with Engine.open(image, options=OPTIONS) as engine:
        found = everything(engine)
        number = int(engine.get(Family.STATE, b"number") or b"0")
        assert number >= synced, "a synced batch is lost"
        assert found == writer.states[number]
        for group in GROUPS:
            asked = [keys.numbered(group, index) for index in range(writer._last[group] + 2)]
            wanted = [found.get((Family.ENTRIES, key)) for key in asked]
            assert engine.get_many(Family.ENTRIES, asked) == wanted
    return number


def run(store: Path, images: Path, seed: int) -> Iterator[tuple[Path, Writer, int]]:
    rng = random.Random(seed)
    with Engine.open(store, options=OPTIONS) as engine:
        writer = Writer(engine, rng)
        cuts = set(rng.sample(range(BATCHES), IMAGES))
        for step in range(BATCHES):
            writer.write()
            if rng.random() < 0.4:
                engine.sync()
            if rng.random() < 0.1:
                # Its deletions and copies must be safe wherever the last sync ended.
                engine.reclaim()
            if step in cuts:
                image = images / str(step)
                synced = cut_power(store, image, rng, writer)
                yield image, writer, synced
                shutil.rmtree(image)


@pytest.mark.parametrize("seed", range(4))
def test_every_image_is_a_prefix_that_holds_all_synced(tmp_path: Path, seed: int) -> None:
    behind = moved = 0
    for image, writer, synced in run(tmp_path / "store", tmp_path / "images", seed):
        behind += len(writer.states) - 1 - check(image, writer, synced)
        moved = writer.moved
    assert behind, "no cut took anything: they are none"
    # The slow group's entries were copied out of old segments, which went. A thread decides where
    # segments end, and so which of them went.
    numbers = numbers_in(tmp_path / "store" / "log")
    assert moved
    assert len(numbers) < numbers[-1]


def test_an_image_goes_on_and_is_cut_again(tmp_path: Path) -> None:
    """Writes after a cut must not mix with the bytes that stood there before."""
    rng = random.Random(1)
    store = tmp_path / "0"
    states: list[Rows] = [{}]
    for round_ in range(1, 9):
        with Engine.open(store, options=OPTIONS) as engine:
            found = everything(engine)
            assert found in states
            writer = Writer(engine, rng)
            writer.states = [found]
            for group in GROUPS:
                indexes = [
                    keys.number_of(key)
                    for family, key in found
                    if family is Family.ENTRIES
                    and key < keys.group_range(group)[1]
                    and key >= keys.group_range(group)[0]
                ]
                writer._first[group] = min(indexes, default=2)
                writer._last[group] = max(indexes, default=1)
            for _ in range(20):
                writer.write()
            engine.sync()
            for _ in range(10):
                writer.write()
            image = tmp_path / str(round_)
            states = writer.states[cut_power(store, image, rng, writer) :]
        shutil.rmtree(store)
        store = image


def fill(engine: Engine, first: int, last: int) -> None:
    for index in range(first, last + 1):
        batch = engine.batch()
        batch.put(Family.ENTRIES, keys.numbered(1, index), bytes(3000))
        engine.write(batch)


def test_a_segment_is_deleted_only_after_a_sync(tmp_path: Path) -> None:
    """Otherwise a power cut takes the trim back, and the entries would be gone."""
    rng = random.Random(1)
    with Engine.open(tmp_path / "store", options=OPTIONS) as engine:
        writer = Writer(engine, rng)
        fill(engine, 2, 41)
        engine.sync()
        engine.reclaim()
        before = len(numbers_in(tmp_path / "store" / "log"))
        batch = engine.batch()
        batch.delete_range(Family.ENTRIES, keys.numbered(1, 0), keys.numbered(1, 41))
        engine.write(batch)
        engine.reclaim()
        assert len(numbers_in(tmp_path / "store" / "log")) < before
        cut_power(tmp_path / "store", tmp_path / "image", rng, writer, torn_at=0)
    with Engine.open(tmp_path / "image", options=OPTIONS) as engine:
        assert [key for key, _ in engine.scan(Family.ENTRIES, b"", b"\xff")] == [
            keys.numbered(1, 41)
        ]


def test_rocksdb_writes_no_table_by_itself(tmp_path: Path) -> None:
    """No power cut could take that table back, and the commit log may lack its data."""
    roomy = EngineOptions(min_free_bytes=0)
    with Engine.open(tmp_path, options=roomy) as engine:
        for number in range(300):
            batch = engine.batch()
            for family in (Family.STATE, Family.OFFSETS, Family.CHECKPOINTS):
                batch.put(family, b"%06d" % number, bytes(10_000))
            engine.write(batch)
        assert list((tmp_path / "rocksdb").glob("*.sst")) == []
        assert engine.stats().memtable_bytes > 300 * 30_000
    assert list((tmp_path / "rocksdb").glob("*.sst")) != []


def test_the_place_is_noted_after_the_tables_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_end = threading.Event(), threading.Event()
    really = Database.is_flushing

    def is_flushing(db: Database) -> bool:
        asked.set()
        return not may_end.is_set() or really(db)

    monkeypatch.setattr(Database, "is_flushing", is_flushing)
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        assert engine._store is not None
        fill(engine, 2, 60)
        engine.sync()
        assert asked.wait(30)
        assert stored_place(engine._store.db) == BEGIN, "the tables may not be in files yet"
        may_end.set()
        engine._store.cycle.run()
        assert stored_place(engine._store.db).number == 59
