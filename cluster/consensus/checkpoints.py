"""A replica's checkpoints, and how far they let its log's head go.

A checkpoint is the state machine's dump at an applied index. A restart begins
at the newest; the log's head is dropped only up to one, so that a follower
that is behind the log's start can be given exactly the state there, and goes
on with the entries that are still kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.consensus.journal import Journal
from cluster.consensus.replay_budget import ReplayBudget
from storage.checkpoints import CheckpointStore
from storage.errors import CorruptionError, StorageError, StorageFullError
from storage.kv import WriteBatch

log = logging.getLogger(__name__)

MAX_CHECKPOINTS = 16
UNTRIMMED = 1  # the base of a log that has dropped nothing: the state there is the empty one


class Checkpoints:
    """The checkpoints of one replica.

    every_bytes, every_entries: how much log a restart replays at most, about. budget: the
    same for all replicas of the node, who may be asked to save before that.
    applied_bytes: of all entries that were applied since the replica was opened.
    """

    def __init__(
        self,
        store: CheckpointStore,
        journal: Journal,
        batch: Callable[[], WriteBatch],
        dump: Callable[[], bytes],
        budget: ReplayBudget,
        *,
        group: int,
        every_bytes: int,
        every_entries: int,
    ) -> None:
        self._store, self._journal, self._batch, self._dump = store, journal, batch, dump
        self._every_bytes, self._every_entries = every_bytes, every_entries
        self.indexes = [info.index for info in store.list()]
        self.applied_bytes = self._saved_bytes = 0
        self._entries = 0  # applied since the last save
        self.due = False
        self.group, self.replay_cost, self.state_bytes = group, 0, 0
        self._budget = budget
        budget.join(self)

    def newest(self) -> tuple[int, bytes] | None:
        """(applied index, state), or None if nothing was ever dropped. Raises CorruptionError."""
        base = self._journal.base_index
        if base > UNTRIMMED and (not self.indexes or self.indexes[-1] < base):
            # To begin without it would be to forget all that the dropped entries did.
            text = "no checkpoint covers the entries that the log has dropped"
            raise CorruptionError(text, index=base)
        if not self.indexes:
            return None
        state = self._store.load(self.indexes[-1])
        self.state_bytes = len(state)
        return self.indexes[-1], state

    def applied(self, size: int) -> None:
        """An entry of `size` bytes was applied."""
        self.applied_bytes += size
        self._entries += 1
        grown = self.applied_bytes - self._saved_bytes
        self.due = grown >= self._every_bytes or self._entries >= self._every_entries
        self._budget.applied(self, size)

    def save(self) -> int | None:
        """Saves the state at the applied index, unless that is there already; its checksum."""
        index = self._journal.applied_index
        self._saved_bytes, self._entries = self.applied_bytes, 0
        self.due = False
        self._budget.saved(self)
        if index == UNTRIMMED or (self.indexes and self.indexes[-1] == index):
            return None
        batch, term, state = self._batch(), self._journal.term_at(index), self._dump()
        self.state_bytes = len(state)
        try:
            checksum = self._store.put(batch, index, term, state)
        except StorageFullError as error:
            # A large state is written at once. Without it a restart replays more; no harm done.
            log.warning("no checkpoint index=%d: %s", index, error)
            return None
        self.indexes.append(index)
        if len(self.indexes) > MAX_CHECKPOINTS:
            self._store.drop(batch, self._thin())
        return checksum

    def _thin(self) -> int:
        """Gives up the checkpoint whose neighbours are closest; never the first or last."""
        inner = range(1, len(self.indexes) - 1)
        at = min(inner, key=lambda i: self.indexes[i + 1] - self.indexes[i - 1])
        return self.indexes.pop(at)

    def compact(self, limit: int) -> None:
        """Drops the log's head up to the newest checkpoint at or below `limit`."""
        fit = [index for index in self.indexes if self._journal.base_index < index <= limit]
        if fit:
            self._journal.trim_to(fit[-1])
            self._store.drop_below(self._batch(), fit[-1])
            self.indexes = [index for index in self.indexes if index >= fit[-1]]

    def drop_from(self, index: int) -> None:
        """Drops those that a wrong state may be in, as far as the log has what follows."""
        batch = self._batch()
        while self.indexes and self.indexes[-1] >= max(index, self._journal.base_index + 1):
            self._store.drop(batch, self.indexes.pop())
            self._journal.dirty = True  # nothing else of a stopped replica makes a sync

    def base(self) -> tuple[int, int, bytes]:
        """(index, term, state) exactly at the log's base. Raises storage.StorageError."""
        index = self._journal.base_index
        try:
            return index, self._journal.base_term, self._store.load(index)
        except KeyError as error:
            # The base moved since the last round: its checkpoint is in the open batch.
            raise StorageError(f"checkpoint {index} is not written yet") from error

    def replace(self, index: int, term: int, state: bytes) -> None:
        """An installed snapshot takes the place of all that was saved."""
        batch = self._batch()
        self._store.put(batch, index, term, state)
        self._store.drop_below(batch, index)
