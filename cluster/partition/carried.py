"""Carried ranges of a partition: the part of its state that judges a carried batch. Pure.

    PartitionMachine --CARRIED--> StoredBatches --judge--> CarriedRanges --offsets, index--> rows

A cleaner reads stored batches, and later the leader proposes their replacement. Meanwhile another
replacement or the retention may have changed them. Rows on the disk cannot tell: after a
restart they are ahead of the state. Only carried batches and the log's start ever change a stored
batch, so the offsets and Raft indexes of carried batches tell all.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from cluster.entries import CarriedEntry

_RANGE = struct.Struct("<QQQQ")
_HOLE = struct.Struct("<Q")
# Of one partition: saves and compactions read all of them. Apply depends on it, so it may change
# only together with the cluster version.
MAX_RANGES = 16_384


class CarriedRange(NamedTuple):
    """Offsets of a carried batch, its Raft index, and the blanks behind its last record."""

    base_offset: int
    record_count: int
    raft_index: int
    blanks_behind: int = 0

    @property
    def end(self) -> int:
        return self.base_offset + self.record_count


class CarriedRanges:
    """Carried batches that are stored, by offset.

    hole: so many offsets directly below the log's start had no record when they were deleted.
    """

    def __init__(self, ranges: Iterable[CarriedRange] = (), hole: int = 0) -> None:
        self._ranges = list(ranges)
        self.hole = hole

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def is_full(self) -> bool:
        """Tells whether a batch can be carried only in place of carried ones."""
        return len(self._ranges) >= MAX_RANGES

    @property
    def is_half_full(self) -> bool:
        return 2 * len(self._ranges) > MAX_RANGES

    def judge(self, entry: CarriedEntry, log_start: int, next_offset: int) -> bool:
        """Tells whether the batch still replaces exactly the batches that its cleaner read."""
        begin, end = entry.base_offset, entry.base_offset + entry.record_count
        if not log_start <= begin < end <= next_offset:
            return False
        first, after = self._overlapping(begin, end)
        if first == after and self.is_full:
            return False
        return all(
            begin <= one.base_offset and one.end <= end and one.raft_index <= entry.guard
            for one in self._ranges[first:after]
        )

    def put(self, new: CarriedRange) -> None:
        """Puts a range in place of those that lie in it."""
        first, after = self._overlapping(new.base_offset, new.end)
        self._ranges[first:after] = [new]

    def is_cut_at(self, offset: int) -> bool:
        """Tells whether a carried batch lies on both sides of the offset."""
        first, after = self._overlapping(offset, offset + 1)
        return first < after and self._ranges[first].base_offset < offset

    def trim_below(self, offset: int, log_start: int) -> None:
        """Drops the ranges that end at or below the offset, the log's start from now on."""
        count, end = self._overlapping(offset, offset)[0], offset
        for one in reversed(self._ranges[:count]):
            if one.end != end:
                break
            end -= one.blanks_behind
            if end > one.base_offset:
                break
        self.hole = offset - end + (self.hole if end == log_start else 0)
        del self._ranges[:count]

    def end_from(self, offset: int) -> int:
        """Returns the end of the carried batches that lie at the offset without a gap."""
        first, _ = self._overlapping(offset, offset + 1)
        for one in self._ranges[first:]:
            if one.base_offset > offset:
                break
            offset = one.end
        return offset

    def oldest_index(self, default: int) -> int:
        """Returns the lowest Raft index of a carried batch; without one, `default`."""
        return min((one.raft_index for one in self._ranges), default=default)

    def oldest_part(self, share: float) -> int:
        """Returns the Raft index below which that share of the carried batches lies, or more."""
        indexes = sorted(one.raft_index for one in self._ranges)
        count = min(ceil(share * len(indexes)), len(indexes))
        return indexes[count - 1] + 1 if count > 0 else 0

    def _overlapping(self, begin: int, end: int) -> tuple[int, int]:
        """Returns the places of the ranges that hold any offset of begin..end (exclusive)."""
        first = bisect_right(self._ranges, begin, key=lambda one: one.end)
        return first, bisect_left(self._ranges, end, first, key=lambda one: one.base_offset)

    # -- saved states ---------------------------------------------------------------

    def dump(self) -> bytes:
        """Returns nothing if there is neither a range nor a hole."""
        if not self._ranges and not self.hole:
            return b""
        return _HOLE.pack(self.hole) + b"".join(_RANGE.pack(*one) for one in self._ranges)

    @classmethod
    def load(cls, data: bytes, log_start: int, next_offset: int) -> CarriedRanges:
        """Loads ranges that `dump` wrote. Raises ValueError."""
        try:
            (hole,) = _HOLE.unpack_from(data)
            ranges = list(map(CarriedRange._make, _RANGE.iter_unpack(data[_HOLE.size :])))
        except struct.error as error:
            raise ValueError(f"carried ranges of {len(data)} bytes: {error}") from error
        if hole > log_start:
            raise ValueError(f"a hole of {hole} offsets below the log's start at {log_start}")
        for one in ranges:
            if one.base_offset < log_start or not one.blanks_behind <= one.record_count > 0:
                raise ValueError(f"{one} lies where no batch can be")
            log_start = one.end
        if log_start > next_offset:
            raise ValueError(f"carried ranges end at {log_start}, the log at {next_offset}")
        return cls(ranges, hole)
