"""Pass of a cleaning, in the worker: learns the newest offset of each key, then cleans. Pure.

    Note(batches) --> NewestByKey            first the part that was never cleaned
    Clean(batches) -> groups -> carried batches   then all batches from the log's start on

Adjoining batches become one while their payload is below GROUP_BYTES. A group of which nothing
changes is left as it is, unless it has many small batches that were carried one by one, or an old
one: the Raft log is kept from there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cluster.cleaning.by_key import BatchToClean, CleaningTerms, Kept, NewestByKey, carried, kept
from cluster.entries import (
    CARRIED,
    CorruptEntryError,
    is_intact,
    payload_of,
    unpack_batch,
    unpack_carried,
)
from oncelog.errors import InvalidBatchError
from oncelog.wire.batch import decode_payload
from oncelog.wire.compression import decompress

GROUP_BYTES = 1 << 20
# Of one batch, which stays as it is. It may unpack to more than the worker's limit of memory.
UNCLEANABLE = (InvalidBatchError, CorruptEntryError, MemoryError)


class SourceBatch(NamedTuple):
    """A batch as it is stored. joined: it belongs to one transaction with the next batch."""

    base_offset: int
    end: int
    raft_index: int
    append_time_ms: int
    joined: bool
    data: bytes | memoryview


class Piece(NamedTuple):
    """Result for adjoining batches: a carried batch in their place, or none.

    error: why they cannot be cleaned.
    """

    base_offset: int
    end: int
    data: bytes = b""
    error: str = ""


class CleaningPass:
    """One pass over a partition."""

    def __init__(self, terms: CleaningTerms, most_bytes: int) -> None:
        self._terms = terms
        self._newest = NewestByKey(most_bytes)
        self._group_bytes = GROUP_BYTES
        self._unknown = dict[int, str]()  # offset of a batch that was not noted -> why

    def note(self, batches: Iterable[SourceBatch]) -> int | None:
        """Learns keys; returns the offset of a batch if no memory is left for its keys."""
        is_joined = False
        for stored in batches:
            try:
                has_room = self._newest.add(_decoded(stored), always=is_joined)
            except UNCLEANABLE as error:
                self._unknown[stored.base_offset] = _reason(error)
                has_room = True
            if not has_room:
                return stored.base_offset
            is_joined = stored.joined
        return None

    def go_on(self, log_time_ms: int, again_below: int, growth: int = 1) -> None:
        """Takes newer terms for the next batches; see CleaningTerms.

        growth: their groups are so many times as large.
        """
        self._group_bytes = GROUP_BYTES * growth
        self._terms = self._terms._replace(log_time_ms=log_time_ms, again_below=again_below)

    def left(self) -> None:
        """Notes that a batch stays as it is, uncleaned: an older record of any key may be there."""
        self._terms = self._terms._replace(marks=False)

    def clean(self, batches: Iterable[SourceBatch]) -> Iterator[Piece]:
        """Yields a result for each group of the batches, which adjoin."""
        group, size, is_joined = list[Kept](), 0, False
        for stored in batches:
            terms = self._terms
            one = self._kept(stored)
            if isinstance(one, str):
                yield from self._piece(group)
                group, size = [], 0
                self.left()
                yield Piece(stored.base_offset, stored.end, error=one)
                continue
            if group and not is_joined and self._ends(group, size, one):
                yield from self._piece(group)
                group, size = [], 0
                if self._terms is not terms:  # the group stays as it is
                    one = kept(one.batch, self._newest.offsets, self._terms)
            group.append(one)
            size += one.size
            is_joined = stored.joined
        yield from self._piece(group)

    def _kept(self, stored: SourceBatch) -> Kept | str:
        """Returns the rest of a batch; a text says why it cannot be cleaned."""
        if stored.base_offset in self._unknown:
            return self._unknown[stored.base_offset]
        try:
            return kept(_decoded(stored), self._newest.offsets, self._terms)
        except UNCLEANABLE as error:
            return _reason(error)

    def _ends(self, group: Sequence[Kept], size: int, following: Kept) -> bool:
        """Tells whether the group is whole without the batch that follows."""
        if size + following.size > self._group_bytes:
            return True
        was, comes = group[-1].batch.was_carried, following.batch.was_carried
        return was and not comes and size > self._group_bytes // 2

    def _piece(self, group: Sequence[Kept]) -> Iterator[Piece]:
        if not group:
            return
        base, end = group[0].batch.base_offset, group[-1].batch.end
        try:
            data = carried(group, self._terms) if _is_worth_it(group, self._terms) else b""
        except UNCLEANABLE as error:
            self.left()
            yield Piece(base, end, error=_reason(error))
        else:
            yield Piece(base, end, data)


def _reason(error: Exception) -> str:
    return str(error) or "it takes more memory than cleaner_memory_bytes allows"


def _is_worth_it(group: Sequence[Kept], terms: CleaningTerms) -> bool:
    if any(one.is_changed or not one.batch.was_carried for one in group):
        return True
    if any(one.batch.raft_index < terms.again_below for one in group):
        return True
    # Batches of like size become one, so each record is carried few times.
    sizes = [one.size for one in group]
    return 2 * max(sizes) <= sum(sizes)


def _decoded(stored: SourceBatch) -> BatchToClean:
    """Raises InvalidBatchError, CorruptEntryError."""
    data = bytes(stored.data)
    header, payload = unpack_batch(data), payload_of(data)
    if not is_intact(data):
        raise InvalidBatchError("its checksum differs")
    columns = decode_payload(decompress(header.codec, payload), header.record_count)
    was_carried = data[0] == CARRIED
    return BatchToClean(
        stored.base_offset,
        stored.raft_index,
        len(data),
        stored.append_time_ms,
        header.max_timestamp_us,
        columns,
        header.codec,
        payload,
        was_carried,
        unpack_carried(data).tombstones if was_carried else (),
    )
