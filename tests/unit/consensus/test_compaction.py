"""Checkpoints and the log's head: nothing is dropped that a restart would miss."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crc32c import crc32c

import cluster.consensus.checkpoints as module
from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.environment import Environment, GroupConfig
from cluster.consensus.peer_window import PeerWindows
from cluster.consensus.raft import open_raft
from cluster.consensus.replay_budget import ReplayBudget
from cluster.features import OlderReleaseError
from cluster.metadata.machine import MetadataMachine
from cluster.metadata.state import MetadataState
from storage.checkpoints import CheckpointStore
from storage.errors import CorruptionError
from storage.kv import Family
from storage.raft_log import RaftLogStore
from tests.unit.consensus.raft_parts import GROUP, Parts, reads_at_once


def number(state: bytes) -> bytes:
    """Loads a state. Raises CorruptionError unless it is a number."""
    if not state.isdigit():
        raise CorruptionError(f"a state that does not load: {state!r}")
    return state


def checkpoints(parts: Parts, reads: BackgroundReads | None = None) -> Checkpoints:
    """Checkpoints as a replica makes them when it opens; its state is the applied index, as
    text.
    """
    return Checkpoints(
        CheckpointStore(parts.disk, GROUP),
        parts.journal,
        lambda: parts.batch,
        lambda: iter([b"%d" % parts.journal.applied_index]),
        number,
        reads or reads_at_once(),
        ReplayBudget(1 << 40),
        lambda: 0.0,
        group=GROUP,
        every_bytes=1 << 30,
        every_entries=1 << 30,
    )


def restored(made: Checkpoints) -> tuple[int, bytes | None]:
    """The index and the state at which a restart begins."""
    states: list[Any] = []
    index = made.restore(lambda state, index: states.append(state))
    return index, states[-1]


def compacted(*saved: int, limit: int) -> Parts:
    """Entries 2 to 20, checkpoints at `saved`, the head dropped as far as `limit` allows."""
    parts = Parts()
    parts.fill(*[1] * 19)
    parts.sync()
    made = checkpoints(parts)
    for index in saved:
        parts.apply(index)
        made.save()
        parts.sync()
    made.compact(limit)
    parts.sync()
    return parts


def test_a_log_that_dropped_nothing_needs_no_checkpoint():
    parts = compacted(limit=20)
    parts.journal = parts.new_journal()
    assert parts.journal.base_index == 1
    assert restored(checkpoints(parts)) == (1, None)


def test_the_head_goes_up_to_a_checkpoint_and_a_restart_begins_at_the_newest():
    parts = compacted(5, 9, 14, limit=12)
    assert parts.journal.base_index == 9
    parts.journal = parts.new_journal()
    made = checkpoints(parts)
    assert made.indexes == [9, 14]
    assert restored(made) == (14, b"14")
    assert made.state_at(9) == b"9"


@pytest.mark.parametrize("left", [0, 1], ids=["none is left", "an older one is left"])
def test_a_log_without_the_checkpoint_that_covers_its_head_is_not_opened(left):
    """A start from the empty state would give offsets again and forget every producer."""
    parts = compacted(5, 9, limit=12)
    batch = parts.disk.batch()
    for key, _ in list(parts.disk.scan(Family.CHECKPOINTS, b"", b"\xff" * 32)):
        batch.delete(Family.CHECKPOINTS, key)
    if left:
        CheckpointStore(parts.disk, GROUP).put(batch, 5, 1, b"5")
    parts.disk.write(batch)
    parts.disk.sync()
    parts.journal = parts.new_journal()
    made = checkpoints(parts)
    assert made.indexes == [5] * left
    with pytest.raises(CorruptionError, match="no checkpoint covers") as caught:
        restored(made)
    assert caught.value.index == 9


def test_a_checkpoint_beyond_the_log_is_corruption_and_not_our_mistake():
    parts = Parts()
    parts.fill(1, 1)
    stored, state = CheckpointStore(parts.disk, GROUP), MetadataState()
    stored.put(parts.batch, 9, 1, state.dump())
    parts.sync()
    env = Environment(
        lambda: 0.0,
        random.Random(1),
        lambda: parts.batch,
        lambda: 0,
        reads_at_once(),
        ReplayBudget(1 << 40),
        PeerWindows(),
        lambda: None,
        lambda group: None,
        lambda: True,
    )
    machine = MetadataMachine(state, lambda index: None)
    log, config = RaftLogStore(parts.disk, GROUP), GroupConfig(GROUP, 1, (2, 3))
    with pytest.raises(CorruptionError, match=f"group {GROUP}, index 9, .* beyond the log's last"):
        open_raft(config, log, stored, machine, env)
    parts.fill(*[1] * 7)
    parts.sync()
    assert open_raft(config, log, stored, machine, env).journal.applied_index == 9


def with_unsound(parts: Parts, made: Checkpoints, *indexes: int) -> None:
    """Saves states that do not load."""
    pieces, made._pieces = made._pieces, lambda: iter([b"unsound"])
    for index in indexes:
        parts.apply(index)
        made.save()
        parts.sync()
    made._pieces = pieces


def test_a_state_that_does_not_load_is_never_the_only_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = compacted(5, limit=5)
    made = checkpoints(parts)
    with_unsound(parts, made, 9, 12)
    made.compact(20)
    parts.sync()
    assert (parts.journal.base_index, made.indexes) == (5, [5, 9]), "the older one and the log stay"
    assert "checkpoint does not load" in caplog.text and "index=12" in caplog.text
    made.compact(20)
    parts.apply(15)
    made.save()
    parts.sync()
    made.compact(20)
    assert (parts.journal.base_index, made.indexes) == (15, [15]), "the next one that loads"


@pytest.mark.parametrize(("saved", "begins"), [((), 1), ((5,), 5)], ids=["whole log", "trimmed"])
def test_a_restart_begins_at_the_newest_that_loads(saved: tuple[int, ...], begins: int) -> None:
    parts = compacted(*saved, limit=5)
    with_unsound(parts, checkpoints(parts), 9, 12)
    parts.journal = parts.new_journal()
    made = checkpoints(parts)
    assert restored(made) == (begins, b"5" if saved else None)
    assert made.indexes == list(saved)
    parts.apply(12)
    made.save()
    parts.sync()
    parts.journal = parts.new_journal()
    assert restored(checkpoints(parts)) == (12, b"12"), "it takes the place of the one from before"


def test_the_only_state_of_a_trimmed_log_does_not_load() -> None:
    parts = compacted(5, limit=5)
    CheckpointStore(parts.disk, GROUP).put(parts.batch, 5, 1, b"unsound")
    parts.sync()
    parts.journal = parts.new_journal()
    with pytest.raises(CorruptionError, match="does not load"):
        restored(checkpoints(parts))


def test_a_release_that_is_too_old_does_not_begin_at_an_older_state() -> None:
    parts = compacted(5, 9, limit=5)
    parts.journal = parts.new_journal()

    def restore(state: object, index: int) -> None:
        raise OlderReleaseError("the cluster was upgraded")

    with pytest.raises(OlderReleaseError):
        checkpoints(parts).restore(restore)


def test_the_head_goes_when_a_thread_has_loaded_the_state() -> None:
    """The caller does none of that work, and a closed replica drops nothing."""
    waiting: list[Callable[[], None]] = []

    def later(read: Callable[[], object], done: Callable[[object], None]) -> None:
        waiting.append(lambda: done(read()))

    reads = BackgroundReads(later, lambda group: None)
    parts = Parts()
    parts.fill(*[1] * 19)
    parts.sync()
    made = checkpoints(parts, reads)
    parts.apply(9)
    made.save()
    made.compact(20)
    waiting.pop()()
    assert parts.journal.base_index == 1, "it was not written yet"
    parts.sync()
    made.compact(20)
    made.compact(20)
    assert parts.journal.base_index == 1 and len(waiting) == 1
    waiting.pop()()
    assert parts.journal.base_index == 9
    reads.next_round()
    parts.apply(12)
    made.save()
    parts.sync()
    made.compact(20)
    made._budget.leave(GROUP)
    waiting.pop()()
    assert parts.journal.base_index == 9


def large(parts: Parts, pieces: Callable[[], Iterator[bytes]]) -> Checkpoints:
    made = checkpoints(parts)
    made._pieces = pieces
    return made


def save_whole(made: Checkpoints) -> None:
    made.save()
    made.save_rest()


def test_a_large_state_is_saved_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_PIECES", 2)
    parts = Parts()
    parts.fill(*[1] * 9)
    parts.sync()
    parts.apply(6)
    made = large(parts, lambda: iter([b"a", b"b", b"c", b"d", b"e"]))
    made.save()
    made.save()  # still in progress
    assert (made.is_saving, made.indexes, made.saved) == (True, [], (0, 0))
    slices = 1
    while made.is_saving:
        made.save_on()
        slices += 1
    assert slices == 3 and made.indexes == [6]
    parts.sync()
    assert made.state_at(6) == b"abcde"
    assert made.saved == (6, crc32c(b"abcde")) and made.state_bytes == 5


@pytest.mark.parametrize("slices", [1, 2])
def test_of_a_save_that_fails_nothing_is_left(slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part saved before the failure is not taken for the whole state."""
    monkeypatch.setattr(module, "SLICE_PIECES", 1)

    def damaged() -> Iterator[bytes]:
        yield from [b"good"] * (slices - 1)
        raise CorruptionError("a damaged state")

    parts = Parts()
    parts.fill(*[1] * 9)
    parts.sync()
    parts.apply(6)
    made = large(parts, damaged)
    with pytest.raises(CorruptionError, match="damaged state"):
        save_whole(made)
    assert not made.is_saving and made.indexes == []
    made = large(parts, lambda: iter([b"sound"]))
    save_whole(made)
    parts.sync()
    assert made.state_at(6) == b"sound"
