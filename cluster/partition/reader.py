"""Reader of a replica's batches: by offset, backwards, by time. Committed and applied ones only.

services --reading, offset_at--> ReplicaReader --> StoredBatches (rows) --> Journal (memory or disk)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import nlargest
from typing import NamedTuple

from cluster.consensus.checkpoints import UNTRIMMED
from cluster.consensus.group import Group
from cluster.consensus.journal import Journal
from cluster.partition.batch_index import is_intact
from cluster.partition.stored_batches import StoredBatches
from storage.errors import NotCachedError
from storage.offset_index import IndexEntry

SEARCH_ROWS = 512  # read in one step of a search
LATEST = 16  # batches with the highest timestamps


class ReadBatch(NamedTuple):
    """A stored batch: its Raft entry with the offset that it got."""

    base_offset: int
    data: bytes


class OffsetOutOfRangeError(Exception):
    """The offset is below the log's start or above its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of {start}..{end}")
        self.offset = offset
        self.start = start
        self.end = end


class MissingRowError(Exception):
    """The index lacks a batch's row for now, and a search would pass over it; see `Read.run`."""


class Read:
    """Read of batches that are stored when it is made; `run` returns them.

    From memory it takes as long as a copy. From the disk it may take long, so another thread runs
    it, without this replica's state. Applied batches never change, so the result is right despite
    later changes; they may be deleted, though: see `is_outdated`.

    places: if a list, `run` adds the row of each batch.
    """

    def __init__(
        self, stored: StoredBatches, journal: Journal, offset: int, max_bytes: int, max_batches: int
    ) -> None:
        """Begins a read. Raises OffsetOutOfRangeError."""
        if not stored.log_start <= offset <= stored.next_offset:
            raise OffsetOutOfRangeError(offset, stored.log_start, stored.next_offset)
        self._stored = stored
        self._journal = journal
        self._offset = offset
        self._max_bytes = max_bytes
        self._max_batches = max_batches
        self._end = stored.next_offset
        self.places: list[IndexEntry] | None = None
        self._base_index = journal.base_index
        # The first page of rows, if in memory: with a full disk it may not be stored yet.
        self._recent = stored.index.recent(offset) if offset < self._end else []
        self._in_memory = bool(self._recent) and journal.is_in_memory(
            _oldest(stored, self._recent, 0).raft_index
        )

    @property
    def is_outdated(self) -> bool:
        """Whether its batches may have been deleted since."""
        return self._offset < self._stored.log_start or self._journal.base_index > self._base_index

    def run(self, *, cached_only: bool = False) -> list[ReadBatch]:
        """Returns stored batches from the one that holds the offset on; at least one if there is
        one.

        cached_only: only batches in memory or the page cache; storage.NotCachedError if the first
        is not. Raises OffsetOutOfRangeError, storage.CorruptionError.
        """
        index, out, size, offset = self._stored.index, list[ReadBatch](), 0, self._offset
        end, base_index, rows = self._end, self._base_index, self.places
        max_bytes, max_batches = self._max_bytes, self._max_batches
        covering = index.recent if self._in_memory else index.stored
        entry = _entries(self._journal, in_memory=self._in_memory, cached_only=cached_only)
        while offset < end:
            places = (self._recent if offset == self._offset else []) or covering(offset)
            if not places:  # the newest rows wait to be written, for long if the disk is full
                # A replica that was given a state lacks rows until their replacement is applied.
                lacks = index.may_lack_rows or base_index > UNTRIMMED
                assert out or lacks, f"no index entry for offset {offset} of {end}"
                return out
            for place in places:
                # After a restart the index is ahead of the applied state.
                last = place.last_offset
                if last >= end:
                    return out
                # Another row may have come in its place since the one before was read.
                if place.base_offset != offset and out:
                    return out
                if place.base_offset > offset:
                    # A run that began below the state this replica was given.
                    raise OffsetOutOfRangeError(offset, place.base_offset, end)
                if place.raft_index <= base_index:
                    raise OffsetOutOfRangeError(offset, last + 1, end)
                full = size + place.payload_bytes > max_bytes
                if out and (full or len(out) >= max_batches):
                    return out
                try:
                    data = entry(place.raft_index, partial(is_intact, place))
                except NotCachedError:
                    if not out:
                        raise
                    return out
                out.append(ReadBatch(place.base_offset, data))
                if rows is not None:
                    rows.append(place)
                size += place.payload_bytes
                offset = last + 1
        return out


def _oldest(stored: StoredBatches, places: list[IndexEntry], first: int) -> IndexEntry:
    """Returns the place with the oldest entry. It is the first one's, if nothing was carried."""
    if not stored.carried:
        return places[first]
    return min(places, key=lambda place: place.raft_index)


def _entries(
    journal: Journal, *, in_memory: bool, cached_only: bool
) -> Callable[[int, Callable[[bytes], bool]], bytes]:
    return journal.entry if in_memory else partial(journal.stored_entry, cached_only=cached_only)


class BackwardRead:
    """As `Read`, for at most `max_batches` kept batches that begin below the offset."""

    def __init__(
        self, stored: StoredBatches, journal: Journal, offset: int, max_bytes: int, max_batches: int
    ) -> None:
        self._stored = stored
        self._journal = journal
        self._offset = offset
        self._max_bytes = max_bytes
        self._max_batches = max_batches
        self._log_start = stored.log_start
        self._base_index = journal.base_index
        self._recent = stored.index.recent_below(offset, max_batches)
        self._in_memory = bool(self._recent) and journal.is_in_memory(
            _oldest(stored, self._recent, -1).raft_index
        )

    @property
    def is_outdated(self) -> bool:
        """Whether its batches may have been deleted since."""
        return self._journal.base_index > self._base_index

    def run(self, *, cached_only: bool = False) -> list[tuple[IndexEntry, bytes]] | None:
        """Returns rows and Raft entries, newest first; at least one if there is one.

        None: the log no longer has the entry of the newest, or the index not yet its row. Raises
        storage.CorruptionError, and NotCachedError if `cached_only` and one is on the disk only.
        """
        index, size, out = self._stored.index, 0, list[tuple[IndexEntry, bytes]]()
        below = self._offset
        entry = _entries(self._journal, in_memory=self._in_memory, cached_only=cached_only)
        for place in self._recent or index.stored_below(self._offset, self._max_batches):
            if place.last_offset < self._log_start:
                break
            if place.raft_index <= self._base_index or place.last_offset + 1 < below:
                return out or None
            below = place.base_offset
            out.append((place, entry(place.raft_index, partial(is_intact, place))))
            size += place.payload_bytes
            if size >= self._max_bytes:
                break
        return out if out or below <= self._log_start else None


class ReplicaReader:
    """Reader of one replica's batches."""

    def __init__(self, stored: StoredBatches, group: Group) -> None:
        self._stored = stored
        self._group = group

    def reading(self, offset: int, max_bytes: int, max_batches: int) -> Read:
        """Makes a `Read`. Raises OffsetOutOfRangeError."""
        return Read(self._stored, self._group.journal, offset, max_bytes, max_batches)

    def reading_back(self, offset: int, max_bytes: int, max_batches: int) -> BackwardRead:
        return BackwardRead(self._stored, self._group.journal, offset, max_bytes, max_batches)

    def offset_at(self, timestamp_us: int, start: int = 0) -> Iterator[int | None]:
        """Finds the first batch from `start` on with a timestamp at or after; gives its offset.

        Client timestamps need not rise, so it reads every row. A search in steps, for any thread:
        each gives None, but the last gives the offset, -1 if there is none. Raises MissingRowError.
        """
        return self._first_at(timestamp_us, self._rows(start))

    def latest(self) -> Iterator[list[tuple[int, int]] | None]:
        """Finds the offset and highest timestamp of up to LATEST batches: the latest first.

        Of equal milliseconds the first batch comes first. A search in steps, like `offset_at`.
        """
        return _latest(self._rows(0))

    def _first_at(self, timestamp_us: int, rows: Iterator[IndexEntry]) -> Iterator[int | None]:
        for number, place in enumerate(rows, 1):
            if place.max_timestamp_us >= timestamp_us:
                yield max(place.base_offset, self._stored.log_start)
                return
            if number % SEARCH_ROWS == 0:
                yield None
        yield -1

    def _rows(self, start: int) -> Iterator[IndexEntry]:
        """Returns the rows of all batches that there are now, from `start` on."""
        return self._covering(max(start, self._stored.log_start), self._stored.next_offset)

    def _covering(self, offset: int, end: int) -> Iterator[IndexEntry]:
        """Yields the rows from `offset` to `end`. Raises MissingRowError."""
        stored = self._stored
        for place in stored.index.all_from(offset):
            if min(place.base_offset, end) > max(offset, stored.log_start):
                break
            if place.base_offset >= end:
                return
            yield place
            offset = max(offset, place.last_offset + 1)
        if max(offset, stored.log_start) < end:
            raise MissingRowError(f"this replica has yet to index its log from offset {offset} on")


def _latest(rows: Iterator[IndexEntry]) -> Iterator[list[tuple[int, int]] | None]:
    found: list[IndexEntry] = []
    for number, place in enumerate(rows, 1):
        found.append(place)
        if number % SEARCH_ROWS == 0:
            found = nlargest(LATEST, found, key=_time_ms)
            yield None
    found = nlargest(LATEST, found, key=_time_ms)
    yield [(one.base_offset, one.max_timestamp_us) for one in found]


def _time_ms(place: IndexEntry) -> int:
    return place.max_timestamp_us // 1000
