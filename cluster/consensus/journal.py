"""Log of one replica: the disk as the core and the replicator see it.

    core/guard --add, truncate, term--> Journal --> the node's open write batch
    replicator <------entries---------- Journal <-- memory tail, else the store

Every change goes into memory at once and into the write batch that the driver
writes and syncs for all groups together. `durable_index` says how far the last
sync reached; nothing above it is applied, acknowledged or counted. `durable_term` is the
term, with the vote in it, that the sync reached: nobody leads in one above it.

The log begins with a base: an index and a term without an entry, below which
everything is covered by a checkpoint. Terms are kept as a short list of
(first index, term), so no entry is read for its term. In memory are only the
entries above the durable and applied ones plus a bounded tail of recent ones.

An entry's checksum is made here by the leader that appends it. It goes with the entry
into the messages to followers and into the store of each replica, and is compared
wherever the entry is received or read.

The commit index is volatile, as in the Raft paper: after a restart it begins at the checkpoint that
the state was restored from, and the leader moves it on. It is written where a restart must know it.
The first case is a configuration: the index goes into the batch that has the entry. A replica with
configuration n + 1 in its log must know after a restart, too, that n is in force (docs/adr/0038).
The second case is an action of the node that follows from the metadata.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from cluster.consensus.configuration import (
    CONFIGURATION,
    NOBODY,
    Configuration,
    Placed,
    pack_placed,
    unpack_configuration,
    unpack_placed,
)
from storage.kv import WriteBatch
from storage.raft_log import RaftLogStore

EntryHeader = tuple[bytes, int, int]


class Journal:
    """The log of one group. Implements `port.CoreJournal`.

    batch:  returns the write batch that the driver will write next.
    founding: the configuration that the group began with.
    tail_bytes: returns the memory that this log may use for entries that are
        already durable and applied.
    """

    def __init__(
        self,
        store: RaftLogStore,
        batch: Callable[[], WriteBatch],
        *,
        tail_bytes: Callable[[], int],
        founding: Configuration = NOBODY,
    ) -> None:
        self._store = store
        self._batch = batch
        self._tail_bytes = tail_bytes
        state = store.load()
        self.base_index = state.base_index
        self.base_term = state.base_term
        self.last_index = state.last_index
        self.term = state.term
        self.voted_for = state.voted_for
        self._starts = [first for first, _ in state.term_starts]
        self._terms = [term for _, term in state.term_starts]
        self.durable_index = self.last_index
        self.durable_term = self.term
        self.applied_index = self.base_index
        # Entries in memory: indexes last_index - len(_tail) + 1 .. last_index.
        self._tail: dict[int, tuple[bytes, int]] = {}  # with their checksums
        self._tail_size = 0
        self.dirty = False
        self._pending_index = self.last_index
        self._pending_term = self.term
        assert self.base_index <= self.last_index
        self._committed = min(state.commit_index, self.last_index)
        # Rising; those above the applied index are not in force yet.
        self.configurations = [Placed(0, 0, founding)]
        self.configurations += [unpack_placed(stored) for _, stored in state.configurations]
        self._forget_configurations()

    # -- terms --------------------------------------------------------------

    def term_at(self, index: int) -> int:
        """Returns the term of an entry between base and last."""
        assert self.base_index <= index <= self.last_index, (index, self.last_index)
        if index == self.base_index:
            return self.base_term
        return self._terms[bisect_right(self._starts, index) - 1]

    @property
    def last_term(self) -> int:
        if self.last_index == self.base_index:
            return self.base_term
        return self._terms[-1]

    def first_index_of_term_at(self, index: int) -> int:
        """Returns the first index, above the base, of the run of entries with `index`'s term."""
        if index == self.base_index:
            return index
        return max(self._starts[bisect_right(self._starts, index) - 1], self.base_index + 1)

    # -- configurations -------------------------------------------------------

    def configuration_at(self, index: int) -> Placed:
        """Returns the configuration in force once the entry at `index` is applied."""
        assert index >= self.base_index
        return next(one for one in reversed(self.configurations) if one.index <= index)

    def save_commit(self, index: int) -> None:
        """Saves `index` as committed; a restart knows it if the open batch is durable by then."""
        self._committed = max(self._committed, min(index, self.last_index))
        self._store.put_commit(self._batch(), self._committed)
        self.dirty = True

    def _forget_configurations(self) -> None:
        """Drops configurations up to the base, except the newest two (survivor.py)."""
        while len(self.configurations) > 2 and self.configurations[2].index <= self.base_index:
            del self.configurations[0]

    # -- writing --------------------------------------------------------------

    def append(self, data: bytes, index: int, term: int, checksum: int | None = None) -> None:
        """Appends an entry. checksum: the one that came with it; none yet for a leader's own."""
        assert index == self.last_index + 1, (index, self.last_index)
        assert term >= self.last_term, "terms never fall along a log"
        batch = self._batch()
        if not self._terms or self._terms[-1] != term:
            self._starts.append(index)
            self._terms.append(term)
            self._store.put_term_start(batch, index, term)
        if checksum is None:
            checksum = crc32c(data)
        self._store.put_entry(batch, index, data, checksum)
        self._tail[index] = data, checksum
        self._tail_size += len(data)
        self.last_index = index
        self.dirty = True
        if data[0] == CONFIGURATION:
            placed = Placed(index, term, unpack_configuration(data))
            self.configurations.append(placed)
            self._store.put_configuration(batch, index, pack_placed(placed))

    def truncate_from(self, index: int) -> None:
        """Drops the entries from `index` on: they conflict with the leader's."""
        assert index > self.applied_index, "an applied entry is never truncated"
        assert index > self.base_index
        if index > self.last_index:
            return
        self._store.truncate_from(self._batch(), index, self.last_index)
        while self._starts and self._starts[-1] >= index:
            self._starts.pop()
            self._terms.pop()
        for gone in range(max(index, self.first_in_memory), self.last_index + 1):
            self._forget(gone)
        if self.configurations[-1].index >= index:
            self._store.drop_configurations(self._batch(), index, self.last_index + 1)
            while self.configurations[-1].index >= index:
                self.configurations.pop()
        self.last_index = index - 1
        self.durable_index = min(self.durable_index, self.last_index)
        self._pending_index = min(self._pending_index, self.last_index)
        self.dirty = True

    def set_hard_state(self, term: int, voted_for: int) -> None:
        assert term >= self.term, "a term never falls"
        self.term = term
        self.voted_for = voted_for
        self._store.put_hard_state(self._batch(), term, voted_for)
        self.dirty = True

    def trim_to(self, index: int) -> None:
        """Moves the base up to `index`, which a checkpoint covers exactly."""
        assert self.base_index < index <= min(self.applied_index, self.durable_index)
        term = self.term_at(index)
        self._store.trim_to(self._batch(), index, term)
        keep = bisect_right(self._starts, index + 1) - 1
        if keep > 0:
            del self._starts[:keep]
            del self._terms[:keep]
        if self.last_index == index:
            self._starts.clear()
            self._terms.clear()
        self.base_index = index
        self.base_term = term
        for gone in range(self.first_in_memory, index + 1):
            self._forget(gone)
        if len(self.configurations) > 2:
            self._forget_configurations()
            self._store.drop_configurations(self._batch(), 0, self.configurations[0].index)

    def reset(self, index: int, term: int, placed: Placed) -> None:
        """Restarts the log above an installed snapshot, with the configuration in force there."""
        self._store.reset(self._batch(), index, term)
        if placed.index or self.configurations[-1].index:
            self._store.drop_configurations(self._batch(), 0, self.last_index + 1)
            self.configurations = [placed]
            if placed.index:
                self._store.put_configuration(self._batch(), placed.index, pack_placed(placed))
        self.base_index = index
        self.base_term = term
        self.last_index = index
        self._starts.clear()
        self._terms.clear()
        self._tail.clear()
        self._tail_size = 0
        self.applied_index = index
        self.durable_index = self._pending_index = min(self.durable_index, index)
        self.dirty = True

    # -- durability -----------------------------------------------------------

    def begin_sync(self) -> None:
        """Notes that the open batch is on its way to stable storage."""
        self._pending_index = self.last_index
        self._pending_term = self.term
        self.dirty = False

    def end_sync(self) -> None:
        self.durable_index = self._pending_index
        self.durable_term = self._pending_term
        self._shrink()

    def _shrink(self) -> None:
        """Drops the oldest entries in memory beyond the allowance."""
        allowance = self._tail_bytes()
        keep_from = min(self.applied_index, self.durable_index)
        first = self.first_in_memory
        while self._tail_size > allowance and first <= keep_from:
            self._forget(first)
            first += 1

    def _forget(self, index: int) -> None:
        """Drops the entry from memory."""
        self._tail_size -= len(self._tail.pop(index)[0])

    # -- reading --------------------------------------------------------------

    @property
    def first_in_memory(self) -> int:
        return self.last_index - len(self._tail) + 1

    def entry(self, index: int, is_intact: Callable[[bytes], bool] | None = None) -> bytes:
        """Returns an entry. Raises storage.CorruptionError if the disk's copy is damaged.

        is_intact: compares a checksum that the caller has, in place of the store's own check.
        """
        assert self.base_index < index <= self.last_index, (index, self.base_index)
        found = self._tail.get(index)
        if found is not None:
            return found[0]
        if is_intact is not None:
            return self._store.read_checked_by(index, is_intact)
        return self._store.read(index, index)[0]

    def is_in_memory(self, index: int) -> bool:
        return index in self._tail

    def stored_entry(
        self, index: int, is_intact: Callable[[bytes], bool], *, cached_only: bool
    ) -> bytes:
        """Reads an applied entry from the disk, in any thread. See RaftLogStore.read_checked_by."""
        return self._store.read_checked_by(index, is_intact, cached_only=cached_only)

    def in_memory(self, index: int) -> tuple[bytes, int] | None:
        """Returns an entry and its checksum; None: it is on the disk only."""
        return self._tail.get(index)

    def stored(self, index: int) -> bytes:
        """Reads an entry from the disk, in any thread. Raises storage.StorageError."""
        return self._store.read(index, index)[0]

    def entries(self, first: int, last: int) -> list[bytes]:
        """Returns entries first..last. Raises storage.CorruptionError."""
        assert self.base_index < first <= last <= self.last_index
        in_memory = max(first, self.first_in_memory)
        tail = [self._tail[index][0] for index in range(in_memory, last + 1)]
        if first >= in_memory:
            return tail
        return self._store.read(first, min(last, in_memory - 1)) + tail

    def terms(self, first: int, last: int) -> tuple[int, ...]:
        at = bisect_right(self._starts, first) - 1
        if at + 1 == len(self._starts) or self._starts[at + 1] > last:
            return (self._terms[at],) * (last - first + 1)
        return tuple(self.term_at(index) for index in range(first, last + 1))

    # -- calls by the core ------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int, checksum: int | None = None) -> None:
        self.append(command, idx, term, checksum)

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        self.truncate_from(self.base_index + entryFrom)

    def __len__(self) -> int:
        return self.last_index - self.base_index + 1

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            start, stop, step = item.indices(len(self))
            assert step == 1
            return _Headers(self, self.base_index + start, max(0, stop - start))
        index = self.base_index + item if item >= 0 else self.last_index + 1 + item
        return (b"", index, self.term_at(index))

    def setCurrentTerm(self, term: int, votedForNodeId: int | None) -> None:  # noqa: N802, N803
        self.set_hard_state(term, votedForNodeId or 0)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        return self.voted_for or None

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Sets the volatile commit index; see the module's text."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return max(self.applied_index, self._committed)

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """The core's hook for saving the commit index; there is nothing to save."""

    def _destroy(self) -> None:
        """The store belongs to the node."""


class _Headers:
    """A lazy slice: the core slices the whole log to look at its first entry."""

    __slots__ = ("_first", "_journal", "_length")

    def __init__(self, journal: Journal, first: int, length: int) -> None:
        self._journal = journal
        self._first = first
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: int) -> EntryHeader:
        if not 0 <= position < self._length:
            raise IndexError(position)
        index = self._first + position
        return (b"", index, self._journal.term_at(index))
