"""The stored Raft log against a plain model, over the real engine, with restarts in between."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.engine import Engine
from storage.errors import CorruptionError
from storage.kv import Family
from storage.options import KIB, EngineOptions
from storage.raft_log import LogState, RaftLogStore

# Small enough that a run meets flushes and many segments.
SMALL = EngineOptions(
    segment_bytes=8 * KIB,
    max_replay_bytes=64 * KIB,
    memtable_bytes=64 * KIB,
    max_open_segments=2,
    min_free_bytes=0,
)
GROUPS = (1, 2, 2**40)


class LogModel:
    """Model of a log: entries with their terms, kept the obvious way."""

    def __init__(self) -> None:
        self.base = (1, 0)
        self.entries: dict[int, tuple[int, bytes]] = {}
        self.hard_state = (0, 0)

    @property
    def last(self) -> int:
        return max(self.entries, default=self.base[0])

    def term(self, index: int) -> int:
        return self.base[1] if index == self.base[0] else self.entries[index][0]


class LogMachine(RuleBasedStateMachine):
    """Random appends, truncations, trims, resets and restarts on several groups of one store."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="oncelog-test-"))
        self.engine = Engine.open(self.path, options=SMALL)
        self.models = {group: LogModel() for group in GROUPS}

    def teardown(self) -> None:
        self.engine.close()
        shutil.rmtree(self.path)

    def store(self, group: int) -> RaftLogStore:
        return RaftLogStore(self.engine, group)

    @initialize()
    def new_groups_are_empty(self) -> None:
        for group in GROUPS:
            assert self.store(group).load() == LogState(term_starts=[(1, 0)])

    @rule(
        group=st.sampled_from(GROUPS),
        sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=40),
        newer=st.integers(0, 2),
    )
    def append(self, group: int, sizes: list[int], newer: int) -> None:
        model, store, batch = self.models[group], self.store(group), self.engine.batch()
        term = model.term(model.last) + newer
        for size in sizes:
            index = model.last + 1
            if term != model.term(model.last):
                store.put_term_start(batch, index, term)
            data = (f"{group}/{index}/{term}/".encode() * (size // 8 + 1))[:size]
            store.put_entry(batch, index, data)
            model.entries[index] = (term, data)
        self.engine.write(batch)

    @rule(
        group=st.sampled_from(GROUPS),
        back=st.integers(0, 400),
        replace=st.booleans(),
    )
    def truncate(self, group: int, back: int, replace: bool) -> None:
        """Drops a tail, and in the same batch may put a conflicting entry of a newer term."""
        model, store, batch = self.models[group], self.store(group), self.engine.batch()
        if not model.entries:
            return
        index = max(model.base[0] + 1, model.last - back)
        store.truncate_from(batch, index, model.last)
        newer = model.term(model.last) + 1
        model.entries = {i: e for i, e in model.entries.items() if i < index}
        if replace:
            store.put_term_start(batch, index, newer)
            store.put_entry(batch, index, b"conflict")
            model.entries[index] = (newer, b"conflict")
        self.engine.write(batch)

    @rule(group=st.sampled_from(GROUPS), share=st.floats(0, 1))
    def trim(self, group: int, share: float) -> None:
        model, batch = self.models[group], self.engine.batch()
        index = model.base[0] + int((model.last - model.base[0]) * share)
        term = model.term(index)
        self.store(group).trim_to(batch, index, term)
        self.engine.write(batch)
        model.base = (index, term)
        model.entries = {i: e for i, e in model.entries.items() if i > index}

    @rule(group=st.sampled_from(GROUPS), ahead=st.integers(0, 100), newer=st.integers(0, 2))
    def reset(self, group: int, ahead: int, newer: int) -> None:
        model, batch = self.models[group], self.engine.batch()
        base = (model.last + ahead, model.term(model.last) + newer)
        self.store(group).reset(batch, *base)
        self.engine.write(batch)
        model.base, model.entries = base, {}

    @rule(group=st.sampled_from(GROUPS), term=st.integers(0, 9), vote=st.integers(0, 2**62))
    def hard_state(self, group: int, term: int, vote: int) -> None:
        batch = self.engine.batch()
        self.store(group).put_hard_state(batch, term, vote)
        self.engine.write(batch)
        self.models[group].hard_state = (term, vote)

    @rule(group=st.sampled_from(GROUPS))
    def destroy(self, group: int) -> None:
        batch = self.engine.batch()
        self.store(group).destroy(batch)
        self.engine.write(batch)
        self.models[group] = LogModel()

    @rule()
    def restart(self) -> None:
        self.engine.close()
        self.engine = Engine.open(self.path, options=SMALL)

    @rule()
    def sync(self) -> None:
        self.engine.sync()

    @rule()
    def reclaim(self) -> None:
        self.engine.reclaim()

    @precondition(lambda self: any(model.entries for model in self.models.values()))
    @rule(data=st.data())
    def read_some(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from([g for g in GROUPS if self.models[g].entries]))
        model = self.models[group]
        first = data.draw(st.integers(model.base[0] + 1, model.last))
        last = data.draw(st.integers(first, model.last))
        expected = [model.entries[index][1] for index in range(first, last + 1)]
        assert self.store(group).read(first, last) == expected

    @invariant()
    def loads_what_was_written(self) -> None:
        for group, model in self.models.items():
            state = self.store(group).load()
            assert (state.base_index, state.base_term) == model.base
            assert state.last_index == model.last
            assert (state.term, state.voted_for) == model.hard_state
            assert _terms(state) == {i: term for i, (term, _) in model.entries.items()}


def _terms(state: LogState) -> dict[int, int]:
    """Term of each entry by the table, found by walking, not by bisection."""
    assert state.term_starts[0] == (state.base_index, state.base_term)
    assert [first for first, _ in state.term_starts] == sorted({f for f, _ in state.term_starts})
    terms = {}
    for index in range(state.base_index + 1, state.last_index + 1):
        terms[index] = [term for first, term in state.term_starts if first <= index][-1]
    return terms


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestRaftLogAgainstModel = LogMachine.TestCase


@pytest.fixture
def engine(tmp_path: Path):
    with Engine.open(tmp_path, options=SMALL) as opened:
        yield opened


def _append(engine: Engine, group: int, first: int, last: int) -> RaftLogStore:
    store, batch = RaftLogStore(engine, group), engine.batch()
    for index in range(first, last + 1):
        store.put_entry(batch, index, b"%d" % index)
    engine.write(batch)
    return store


def test_a_missing_entry_is_named(engine: Engine) -> None:
    store = _append(engine, 7, 2, 20)
    batch = engine.batch()
    batch.delete_range(Family.ENTRIES, *_keys(7, 11, 12))
    engine.write(batch)
    with pytest.raises(CorruptionError, match="group 7, index 11, entry is missing") as caught:
        store.read(5, 15)
    assert (caught.value.group, caught.value.index) == (7, 11)
    assert store.read(12, 13) == [b"12", b"13"]


def test_groups_do_not_touch_each_other(engine: Engine) -> None:
    stores = {group: _append(engine, group, 2, 400) for group in (1, 2, 3)}
    batch = engine.batch()
    stores[2].destroy(batch)
    stores[1].truncate_from(batch, 3, 400)
    engine.write(batch)
    assert stores[3].read(2, 400) == [b"%d" % index for index in range(2, 401)]
    assert stores[1].load().last_index == 2
    assert stores[2].load().last_index == 1


def test_a_long_truncation_is_one_range(engine: Engine) -> None:
    store = _append(engine, 1, 2, 1000)
    batch = engine.batch()
    store.truncate_from(batch, 2, 1000)
    assert len(batch) == 2
    engine.write(batch)
    assert store.load().last_index == 1


def test_damaged_state_names_the_group(engine: Engine) -> None:
    batch = engine.batch()
    batch.put(Family.STATE, (9).to_bytes(8, "big") + b"\x01", b"short")
    engine.write(batch)
    with pytest.raises(CorruptionError, match="group 9"):
        RaftLogStore(engine, 9).load()


def _keys(group: int, first: int, end: int) -> tuple[bytes, bytes]:
    prefix = group.to_bytes(8, "big")
    return prefix + first.to_bytes(8, "big"), prefix + end.to_bytes(8, "big")
