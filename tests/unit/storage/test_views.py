"""The offset index and the checkpoints over the real engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.checkpoints import CHUNK_BYTES, INLINE_BYTES, CheckpointStore
from storage.engine import Engine
from storage.errors import CorruptionError
from storage.kv import Family
from storage.offset_index import IndexEntry, OffsetIndex
from storage.options import EngineOptions

OPTIONS = EngineOptions(min_free_bytes=0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory):
    with Engine.open(tmp_path_factory.mktemp("store"), options=OPTIONS) as opened:
        yield opened


# -- offset index ------------------------------------------------------------------------


def _fill(engine: Engine, group: int, counts: list[int], stamps: list[int]) -> list[IndexEntry]:
    index, batch, offset = OffsetIndex(engine, group), engine.batch(), 0
    index.clear(batch)
    rows = []
    for number, (count, stamp) in enumerate(zip(counts, stamps, strict=True)):
        rows.append(IndexEntry(number + 2, offset, count, count * 10, stamp, number, number))
        index.put(batch, rows[-1])
        offset += count
    engine.write(batch)
    return rows


@settings(max_examples=60)
@given(data=st.data())
def test_index_against_a_list(engine: Engine, data: st.DataObject) -> None:
    batches = st.lists(
        st.tuples(st.integers(1, 500), st.integers(-5, 50).map(lambda n: n * 100)), max_size=60
    )
    drawn = data.draw(batches)
    rows = _fill(engine, 5, [c for c, _ in drawn], [s for _, s in drawn])
    _fill(engine, 4, [7], [1000])
    _fill(engine, 6, [7], [1000])
    index = OffsetIndex(engine, 5)
    end = rows[-1].last_offset + 1 if rows else 0
    low = data.draw(st.integers(0, end + 1))
    batch = engine.batch()
    index.trim_below(batch, low)
    engine.write(batch)
    rows = [row for row in rows if row.last_offset >= low]
    high = data.draw(st.integers(low, end + 1))
    batch = engine.batch()
    index.truncate(batch, high)
    engine.write(batch)
    rows = [row for row in rows if row.last_offset < high]

    assert index.find(0) == (rows[0] if rows else None)
    assert index.last() == (rows[-1] if rows else None)
    offset = data.draw(st.integers(-1, end + 2))
    wanted = [row for row in rows if row.last_offset >= offset]
    assert index.find(offset) == (wanted[0] if wanted else None)
    assert index.scan(offset, 7) == wanted[:7]


def test_index_clear_leaves_other_groups(engine: Engine) -> None:
    rows = {group: _fill(engine, group, [3, 4], [1, 2]) for group in (10, 11, 12)}
    batch = engine.batch()
    OffsetIndex(engine, 11).clear(batch)
    engine.write(batch)
    assert OffsetIndex(engine, 11).find(0) is None
    assert OffsetIndex(engine, 10).scan(0, 9) == rows[10]
    assert OffsetIndex(engine, 12).last() == rows[12][-1]


def test_index_row_that_does_not_fit_its_key(engine: Engine) -> None:
    key = (13).to_bytes(8, "big") + (99).to_bytes(8, "big")
    for value in (b"short", bytes(40)):
        batch = engine.batch()
        batch.put(Family.OFFSETS, key, value)
        engine.write(batch)
        with pytest.raises(CorruptionError, match="group 13") as caught:
            OffsetIndex(engine, 13).find(0)
        assert caught.value.group == 13


# -- checkpoints ----------------------------------------------------------------------------


def _put(engine: Engine, group: int, index: int, state: bytes) -> None:
    batch = engine.batch()
    CheckpointStore(engine, group).put(batch, index, index // 10, state)
    engine.write(batch)


@pytest.mark.parametrize(
    "size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, INLINE_BYTES, INLINE_BYTES + 1, 11 * CHUNK_BYTES]
)
def test_checkpoint_of_any_size(tmp_path: Path, size: int) -> None:
    state = os.urandom(size)
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        _put(engine, 1, 50, state)
    with Engine.open(tmp_path, options=OPTIONS) as engine:
        store = CheckpointStore(engine, 1)
        (info,) = store.list()
        assert (info.index, info.term, info.size) == (50, 5, size)
        assert store.load(50) == state


def test_checkpoint_is_not_there_before_its_batch(engine: Engine) -> None:
    store, state = CheckpointStore(engine, 2), os.urandom(INLINE_BYTES + 1)
    batch = engine.batch()
    store.put(batch, 10, 1, state)
    assert store.list() == []
    with pytest.raises(KeyError, match="group 2 has no checkpoint at index 10"):
        store.load(10)
    engine.write(batch)
    assert store.load(10) == state


def test_checkpoints_are_dropped_by_index(engine: Engine) -> None:
    store = CheckpointStore(engine, 3)
    for index in (10, 20, 30):
        _put(engine, 3, index, b"state %d" % index)
        _put(engine, 4, index, b"other")
    batch = engine.batch()
    store.put(batch, 40, 4, bytes(INLINE_BYTES + 1))  # never written: its chunks are orphans
    batch = engine.batch()
    store.drop_below(batch, 30)
    engine.write(batch)
    assert [info.index for info in store.list()] == [30]
    assert store.load(30) == b"state 30"
    batch = engine.batch()
    store.drop_below(batch, 50)
    engine.write(batch)
    assert store.list() == []
    begin, end = ((group).to_bytes(8, "big") for group in (3, 4))
    assert list(engine.scan(Family.CHECKPOINTS, begin, end)) == []
    assert len(CheckpointStore(engine, 4).list()) == 3


def test_checkpoint_with_a_chunk_missing_or_changed(engine: Engine) -> None:
    state = os.urandom(3 * CHUNK_BYTES)
    _put(engine, 6, 10, state)
    begin = (6).to_bytes(8, "big")
    chunks = [
        key for key, v in engine.scan(Family.CHECKPOINTS, begin, begin + b"\xff") if len(v) > 99
    ]
    assert len(chunks) == 3
    for change in (b"x" * CHUNK_BYTES, None):
        batch = engine.batch()
        if change is None:
            batch.delete(Family.CHECKPOINTS, chunks[1])
        else:
            batch.put(Family.CHECKPOINTS, chunks[1], change)
        engine.write(batch)
        with pytest.raises(CorruptionError, match="group 6, index 10"):
            CheckpointStore(engine, 6).load(10)


def test_the_same_index_again_replaces(engine: Engine) -> None:
    for size in (INLINE_BYTES + 5, 10, INLINE_BYTES + 6):
        state = os.urandom(size)
        _put(engine, 7, 10, state)
        assert CheckpointStore(engine, 7).load(10) == state
