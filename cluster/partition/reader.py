"""Reading a replica's batches: by offset, backwards, by time. Committed and applied ones only.

services --read, offset_at--> Reader --> StoredBatches (rows) --> Journal (memory or disk)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from cluster.consensus.group import Group
from cluster.partition.batch_index import is_intact
from cluster.partition.stored_batches import StoredBatches
from storage.offset_index import IndexEntry


class ReadBatch(NamedTuple):
    """A stored batch: its Raft entry with the offset that it got."""

    base_offset: int
    data: bytes


class OffsetOutOfRangeError(Exception):
    """The offset is below the log's start or above its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of {start}..{end}")
        self.offset, self.start, self.end = offset, start, end


class Reader:
    """Reads what one replica has stored."""

    def __init__(self, stored: StoredBatches, group: Group) -> None:
        self._stored, self._group = stored, group

    def read(self, offset: int, max_bytes: int, max_batches: int) -> list[ReadBatch]:
        """Stored batches from the one that holds `offset` on; at least one if there is one.

        Raises OffsetOutOfRangeError, storage.CorruptionError.
        """
        stored, journal = self._stored, self._group.journal
        if not stored.log_start <= offset <= stored.next_offset:
            raise OffsetOutOfRangeError(offset, stored.log_start, stored.next_offset)
        out: list[ReadBatch] = []
        size = 0
        while offset < stored.next_offset:
            places = stored.index.covering(offset)
            # A long run's row may wait to be written: the disk is full.
            waits = not places and stored.index.has_runs
            assert places or waits, f"no index entry for offset {offset} below the high watermark"
            if waits:
                return out
            for place in places:
                # After a restart the index is ahead of what has been applied again.
                if place.base_offset >= stored.next_offset:
                    return out
                missing = place.base_offset > offset
                if missing and out:
                    return out
                if missing:  # a run that began below what this replica was given
                    raise OffsetOutOfRangeError(offset, place.base_offset, stored.next_offset)
                if place.raft_index <= journal.base_index:
                    raise OffsetOutOfRangeError(offset, place.last_offset + 1, stored.next_offset)
                if out and (size + place.payload_bytes > max_bytes or len(out) >= max_batches):
                    return out
                data = journal.entry(place.raft_index, partial(is_intact, place))
                out.append(ReadBatch(place.base_offset, data))
                size += place.payload_bytes
                offset = place.last_offset + 1
        return out

    def places_below(self, offset: int, limit: int) -> list[IndexEntry]:
        """Index entries of at most `limit` kept batches that begin below `offset`, newest first."""
        places = self._stored.index.below(offset, limit)
        return [place for place in places if place.last_offset >= self._stored.log_start]

    def offset_at(self, timestamp_us: int) -> Iterator[int | None]:
        """First offset of the first batch with a timestamp at or after; -1 if there is none.

        A search in steps: each gives None, but the last gives the offset.
        """
        stored = self._stored
        for place in stored.index.find_timestamp(timestamp_us):
            if place is None:
                yield None
            elif place.base_offset < stored.next_offset:
                yield max(place.base_offset, stored.log_start)
                return
        yield -1
