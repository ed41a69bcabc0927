"""Checkpoints of a replica; they limit how far the log's head may be dropped.

A checkpoint is the state machine's state at an applied index. A restart begins at the newest one.
The log's head is dropped only up to a checkpoint: a follower behind the log's start gets that
state, and then the entries that are still kept.

    save() --a slice--> is_saving? --save_on(), a slice each--> saved

Writing a large state takes long, so it is done in slices, and the node does other work between
them. The replica applies nothing meanwhile, so that the state stays at one index.

The log's head is dropped only up to a checkpoint that loads. A thread reads the checkpoint back and
loads it beside the live state. A checkpoint that does not load is deleted; the older one stays,
with the log that follows it (docs/adr/0092).

    compact() --a thread: load--> sound: the head goes up to it
                              '-> not:   an error in the log, the checkpoint goes
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.journal import Journal
from cluster.consensus.replay_budget import ReplayBudget
from storage.checkpoints import CheckpointStore, CheckpointWriter
from storage.errors import CorruptionError, StorageError, StorageFullError
from storage.kv import WriteBatch

log = logging.getLogger(__name__)

MAX_CHECKPOINTS = 16
# Bytes in one slice. Pieces may be small and expensive to make.
SLICE_BYTES = 2 * 1024 * 1024
SLICE_PIECES = 16
SLICE_SECONDS = 0.005
UNTRIMMED = 1  # base of a log that has dropped nothing: the state there is empty


@dataclass(frozen=True, slots=True)
class _Save:
    """A save in progress: the state at `index`, and the `pieces` still to come."""

    index: int
    pieces: Iterator[bytes]
    writer: CheckpointWriter


class Checkpoints:
    """Checkpoints of one replica.

    every_bytes, every_entries: how much log a restart replays at most, about.
    budget: shared by all replicas of the node; it may ask for an earlier save.
    applied_bytes: of all entries applied since the replica was opened.
    is_saving: a save is in progress; nothing may be applied until `save_on` has ended it.
    saved: index and checksum of the state that this object saved last.
    load: loads a state beside the live one; any thread may call it.
    """

    def __init__(
        self,
        store: CheckpointStore,
        journal: Journal,
        batch: Callable[[], WriteBatch],
        pieces: Callable[[], Iterator[bytes]],
        load: Callable[[bytes], object],
        reads: BackgroundReads,
        budget: ReplayBudget,
        clock: Callable[[], float],
        *,
        group: int,
        every_bytes: int,
        every_entries: int,
    ) -> None:
        self._store = store
        self._journal = journal
        self._batch = batch
        self._pieces = pieces
        self._load = load
        self._reads = reads
        self._sound: set[int] = set()  # indexes of checkpoints that are known to load
        self._checking = 0
        self._every_bytes = every_bytes
        self._every_entries = every_entries
        self.indexes = [info.index for info in store.list()]
        self.applied_bytes = self._saved_bytes = 0
        self._entries = 0  # applied since the last save
        self.due = self.is_saving = False
        self._under_way: _Save | None = None
        self.saved = (0, 0)
        self.group = group
        self.replay_cost = 0
        self.state_bytes = 0
        self._budget = budget
        self._clock = clock
        budget.join(self)

    def restore(
        self, restore: Callable[[object, int], None], installed: tuple[bytes, object] | None = None
    ) -> int:
        """Restores the newest checkpoint that loads; returns its index. Raises CorruptionError.

        A state that differs from the written one is an error, too: the disk is damaged.
        installed: the bytes of a snapshot, and the state that a thread loaded from them.
        """
        base = self._journal.base_index
        if base > UNTRIMMED and (not self.indexes or self.indexes[-1] < base):
            # Starting without it would lose the effects of the dropped entries.
            text = "no checkpoint covers the entries that the log has dropped"
            raise CorruptionError(text, index=base)
        failure: CorruptionError | None = None
        for index in reversed([index for index in self.indexes if index >= base]):
            if index > self._journal.last_index:
                text = f"a checkpoint is beyond the log's last entry, {self._journal.last_index}"
                raise CorruptionError(text, group=self.group, index=index)
            state = self._store.load(index)
            try:
                if installed is not None and installed[0] == state:
                    restore(installed[1], index)
                else:
                    restore(self._load(state), index)
            except CorruptionError as error:  # an older one, with its log, gives the same
                self._unsound(index, error)
                failure = failure or error
                continue
            self.state_bytes = len(state)
            self._sound.add(index)
            del self.indexes[self.indexes.index(index) + 1 :]
            return index
        if failure is not None and base > UNTRIMMED:
            raise failure
        restore(None, base)
        self.indexes.clear()
        return base

    @property
    def grown_bytes(self) -> int:
        """Bytes of the entries applied since the last save."""
        return self.applied_bytes - self._saved_bytes

    def applied(self, size: int) -> None:
        """Counts an applied entry of `size` bytes."""
        self.applied_bytes += size
        self._entries += 1
        self.due = self.grown_bytes >= self._every_bytes or self._entries >= self._every_entries
        self._budget.applied(self, size)

    def save(self) -> None:
        """Begins to save the state at the applied index, unless it is saved or being saved."""
        if self.is_saving:
            return
        index = self._journal.applied_index
        self._saved_bytes = self.applied_bytes
        self._entries = 0
        self.due = False
        self._budget.saved(self)
        if index == UNTRIMMED or (self.indexes and self.indexes[-1] == index):
            return
        writer = self._store.writer(index, self._journal.term_at(index))
        self._under_way = _Save(index, self._pieces(), writer)
        self.is_saving = True
        self.save_on()

    def save_on(self) -> None:
        """Saves one slice of the save in progress. A failed save leaves nothing behind."""
        save, self._under_way, self.is_saving = self._under_way, None, False
        assert save is not None and save.index == self._journal.applied_index
        try:
            is_whole = _slice(save, self._clock)
            if is_whole:
                self._finish(save, save.writer.finish(self._batch()))
            else:
                self._under_way = save
                self.is_saving = True
        except StorageFullError as error:
            # A large state is written at once. Without this checkpoint a restart only replays more.
            log.warning("no checkpoint index=%d: %s", save.index, error)

    def save_rest(self) -> None:
        """Saves the rest of the save in progress."""
        while self.is_saving:
            self.save_on()

    def _finish(self, save: _Save, checksum: int) -> None:
        self.state_bytes = save.writer.size
        self.saved = (save.index, checksum)
        self.indexes.append(save.index)
        self._sound.discard(save.index)
        if len(self.indexes) > MAX_CHECKPOINTS:
            self._store.drop(self._batch(), self._thin())

    def _thin(self) -> int:
        """Deletes the checkpoint with the closest neighbours; never the first or last."""
        inner = range(1, len(self.indexes) - 1)
        at = min(inner, key=lambda i: self.indexes[i + 1] - self.indexes[i - 1])
        return self.indexes.pop(at)

    def compact(self, limit: int) -> None:
        """Drops the log's head up to the newest checkpoint at or below `limit` that loads.

        If it is not known whether that checkpoint loads, a thread checks it first and the head is
        dropped later.
        """
        fit = [index for index in self.indexes if self._journal.base_index < index <= limit]
        if fit and fit[-1] not in self._sound and not self._checking:
            self._checking = fit[-1]
            check, done = partial(self._check, fit[-1]), partial(self._loaded, fit[-1])
            self._reads.ask(self.group, check, done, self._is_open)
        self._trim([index for index in fit if index in self._sound])

    def _trim(self, sound: list[int]) -> None:
        if sound and sound[-1] > self._journal.base_index:
            self._journal.trim_to(sound[-1])
            self._store.drop_below(self._batch(), sound[-1])
            self.indexes = [index for index in self.indexes if index >= sound[-1]]

    def _check(self, index: int) -> None:
        """Loads the checkpoint, in any thread. Raises what a start would meet."""
        self._load(self.state_at(index))

    def _loaded(self, index: int, error: Exception | None) -> None:
        self._checking = 0
        if not self._is_open() or index not in self.indexes:
            return
        if error is None:
            self._sound.add(index)
            self._trim([index])
        elif isinstance(error, CorruptionError) or not isinstance(
            error, StorageError | MemoryError
        ):
            self._unsound(index, error)
            self.indexes.remove(index)
            self._store.drop(self._batch(), index)
        # If it could not be read, the next compaction checks it again.

    def _unsound(self, index: int, error: Exception) -> None:
        text = "checkpoint does not load, the older one and the log stay group=%d index=%d: %s"
        log.error(text, self.group, index, error, exc_info=error)

    def _is_open(self) -> bool:
        """Whether the replica still runs on this object's checkpoints."""
        return self._budget.has(self)

    def drop_from(self, index: int) -> None:
        """Drops checkpoints with a maybe wrong state, as far as the log has the entries after."""
        batch = self._batch()
        while self.indexes and self.indexes[-1] >= max(index, self._journal.base_index + 1):
            self._store.drop(batch, self.indexes.pop())
            self._journal.dirty = True  # a stopped replica causes no other sync

    def state_at(self, index: int) -> bytes:
        """Returns a saved state; any thread may call it. Raises storage.StorageError."""
        try:
            return self._store.load(index)
        except KeyError as error:
            # The base moved since the last round: its checkpoint is in the open batch.
            raise StorageError(f"checkpoint {index} is not written yet") from error

    def replace(self, index: int, term: int, state: bytes) -> None:
        """Replaces all saved checkpoints by an installed snapshot."""
        batch = self._batch()
        self._store.put(batch, index, term, state)
        self._store.drop_below(batch, index)


def _slice(save: _Save, clock: Callable[[], float]) -> bool:
    """Takes some pieces; returns whether they were the last."""
    stop, stop_at = save.writer.size + SLICE_BYTES, clock() + SLICE_SECONDS
    for _ in range(SLICE_PIECES):
        piece = next(save.pieces, None)
        if piece is None:
            return True
        save.writer.add(piece)
        if save.writer.size >= stop or clock() >= stop_at:
            break
    return False
