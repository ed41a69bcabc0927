"""A replica's checkpoints, and how far they let its log's head go.

A checkpoint is the state machine's state at an applied index. A restart begins
at the newest; the log's head is dropped only up to one, so that a follower
that is behind the log's start can be given exactly the state there, and goes
on with the entries that are still kept.

    save() --a slice--> is_saving? --save_on(), a slice each--> saved

A large state takes long to write down, so that is done in slices, between which the node
does other things. The replica applies nothing meanwhile: it is the state at one index.

The log's head is dropped only up to a checkpoint that loads: a thread reads it back and loads it
beside the living state. One that does not load goes, and the older one stays with the log
behind it (docs/adr/0092).

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
# Of one slice. Pieces may be small, and dear to make.
SLICE_BYTES = 2 * 1024 * 1024
SLICE_PIECES = 16
SLICE_SECONDS = 0.005
UNTRIMMED = 1  # the base of a log that has dropped nothing: the state there is the empty one


@dataclass(frozen=True, slots=True)
class _Save:
    """One that is under way: the state at `index`, as far as `pieces` did not give it yet."""

    index: int
    pieces: Iterator[bytes]
    writer: CheckpointWriter


class Checkpoints:
    """The checkpoints of one replica.

    every_bytes, every_entries: how much log a restart replays at most, about. budget: the
    same for all replicas of the node, who may be asked to save before that.
    applied_bytes: of all entries that were applied since the replica was opened.
    is_saving: a save is under way; nothing may be applied before `save_on` has ended it.
    saved: index and checksum of the state that was saved last by this object.
    check: raises unless a state loads; for any thread.
    """

    def __init__(
        self,
        store: CheckpointStore,
        journal: Journal,
        batch: Callable[[], WriteBatch],
        pieces: Callable[[], Iterator[bytes]],
        check: Callable[[bytes], None],
        reads: BackgroundReads,
        budget: ReplayBudget,
        clock: Callable[[], float],
        *,
        group: int,
        every_bytes: int,
        every_entries: int,
    ) -> None:
        self._store, self._journal, self._batch, self._pieces = store, journal, batch, pieces
        self._check, self._reads = check, reads
        self._sound: set[int] = set()  # indexes of those that are known to load
        self._checking = 0
        self._every_bytes, self._every_entries = every_bytes, every_entries
        self.indexes = [info.index for info in store.list()]
        self.applied_bytes = self._saved_bytes = 0
        self._entries = 0  # applied since the last save
        self.due = self.is_saving = False
        self._under_way: _Save | None = None
        self.saved = (0, 0)
        self.group, self.replay_cost, self.state_bytes = group, 0, 0
        self._budget, self._clock = budget, clock
        budget.join(self)

    def restore(self, restore: Callable[[bytes | None, int], None]) -> int:
        """Begins at the newest one that loads; returns its index. Raises CorruptionError.

        A state that is not what was written is an error, too: the disk is damaged.
        """
        base = self._journal.base_index
        if base > UNTRIMMED and (not self.indexes or self.indexes[-1] < base):
            # To begin without it would be to forget all that the dropped entries did.
            text = "no checkpoint covers the entries that the log has dropped"
            raise CorruptionError(text, index=base)
        failure: CorruptionError | None = None
        for index in reversed([index for index in self.indexes if index >= base]):
            if index > self._journal.last_index:
                text = f"a checkpoint is beyond the log's last entry, {self._journal.last_index}"
                raise CorruptionError(text, group=self.group, index=index)
            state = self._store.load(index)
            try:
                restore(state, index)
            except CorruptionError as error:  # an older one gives the same, with the log behind it
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

    def applied(self, size: int) -> None:
        """An entry of `size` bytes was applied."""
        self.applied_bytes += size
        self._entries += 1
        grown = self.applied_bytes - self._saved_bytes
        self.due = grown >= self._every_bytes or self._entries >= self._every_entries
        self._budget.applied(self, size)

    def save(self) -> None:
        """Begins to save the state at the applied index, unless it is there, or under way."""
        if self.is_saving:
            return
        index = self._journal.applied_index
        self._saved_bytes, self._entries = self.applied_bytes, 0
        self.due = False
        self._budget.saved(self)
        if index == UNTRIMMED or (self.indexes and self.indexes[-1] == index):
            return
        writer = self._store.writer(index, self._journal.term_at(index))
        self._under_way = _Save(index, self._pieces(), writer)
        self.is_saving = True
        self.save_on()

    def save_on(self) -> None:
        """A slice of what is under way. Nothing of it is left if that fails."""
        save, self._under_way, self.is_saving = self._under_way, None, False
        assert save is not None and save.index == self._journal.applied_index
        try:
            is_whole = _slice(save, self._clock)
            if is_whole:
                self._finish(save, save.writer.finish(self._batch()))
            else:
                self._under_way, self.is_saving = save, True
        except StorageFullError as error:
            # A large state is written at once. Without it a restart replays more; no harm done.
            log.warning("no checkpoint index=%d: %s", save.index, error)

    def save_rest(self) -> None:
        """All that is left of what is under way."""
        while self.is_saving:
            self.save_on()

    def _finish(self, save: _Save, checksum: int) -> None:
        self.state_bytes, self.saved = save.writer.size, (save.index, checksum)
        self.indexes.append(save.index)
        self._sound.discard(save.index)
        if len(self.indexes) > MAX_CHECKPOINTS:
            self._store.drop(self._batch(), self._thin())

    def _thin(self) -> int:
        """Gives up the checkpoint whose neighbours are closest; never the first or last."""
        inner = range(1, len(self.indexes) - 1)
        at = min(inner, key=lambda i: self.indexes[i + 1] - self.indexes[i - 1])
        return self.indexes.pop(at)

    def compact(self, limit: int) -> None:
        """Drops the log's head up to the newest checkpoint at or below `limit` that loads.

        Whether that one loads is asked first, if it is not known: then the head goes later.
        """
        fit = [index for index in self.indexes if self._journal.base_index < index <= limit]
        if fit and fit[-1] not in self._sound and not self._checking:
            self._checking = fit[-1]
            read, done = partial(self._load, fit[-1]), partial(self._loaded, fit[-1])
            self._reads.ask(self.group, read, done, self._is_open)
        self._trim([index for index in fit if index in self._sound])

    def _trim(self, sound: list[int]) -> None:
        if sound and sound[-1] > self._journal.base_index:
            self._journal.trim_to(sound[-1])
            self._store.drop_below(self._batch(), sound[-1])
            self.indexes = [index for index in self.indexes if index >= sound[-1]]

    def _load(self, index: int) -> Exception | None:
        """For any thread: why the checkpoint does not load; None: it does."""
        try:
            self._check(self.state_at(index))
        except Exception as error:  # noqa: BLE001 - of whatever kind: a start would meet it
            return error
        return None

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
        # Else it could not be read: the next compaction asks again.

    def _unsound(self, index: int, error: Exception) -> None:
        text = "checkpoint does not load, the older one and the log stay group=%d index=%d: %s"
        log.error(text, self.group, index, error, exc_info=error)

    def _is_open(self) -> bool:
        """Whether the replica still runs on this object's checkpoints."""
        return self._budget.has(self)

    def drop_from(self, index: int) -> None:
        """Drops those that a wrong state may be in, as far as the log has what follows."""
        batch = self._batch()
        while self.indexes and self.indexes[-1] >= max(index, self._journal.base_index + 1):
            self._store.drop(batch, self.indexes.pop())
            self._journal.dirty = True  # nothing else of a stopped replica makes a sync

    def state_at(self, index: int) -> bytes:
        """A saved state; for any thread. Raises storage.StorageError."""
        try:
            return self._store.load(index)
        except KeyError as error:
            # The base moved since the last round: its checkpoint is in the open batch.
            raise StorageError(f"checkpoint {index} is not written yet") from error

    def replace(self, index: int, term: int, state: bytes) -> None:
        """An installed snapshot takes the place of all that was saved."""
        batch = self._batch()
        self._store.put(batch, index, term, state)
        self._store.drop_below(batch, index)


def _slice(save: _Save, clock: Callable[[], float]) -> bool:
    """Takes some pieces; whether those were the last."""
    stop, stop_at = save.writer.size + SLICE_BYTES, clock() + SLICE_SECONDS
    for _ in range(SLICE_PIECES):
        piece = next(save.pieces, None)
        if piece is None:
            return True
        save.writer.add(piece)
        if save.writer.size >= stop or clock() >= stop_at:
            break
    return False
