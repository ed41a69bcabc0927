"""Choice of the partition that is cleaned next, and of its part. Pure but for rows that it reads.

    Cleaner --partitions that this node leads--> CleaningDue --> Due: from, to, dirty share

The batches from the log's start on that were carried are its clean part. The rest is dirty.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from cluster.partition.replica import Partition
from cluster.partition.stored_batches import StoredBatches
from cluster.partition.types import Policy

MOST_ROWS = 512  # of the clean part that are read to measure it, or twice; one takes about 5 us


class Due(NamedTuple):
    """Dirty part of a partition, dirty_from to end (exclusive), and its share of the bytes.

    is_due: it is to be cleaned now.
    """

    dirty_from: int
    end: int
    share: float
    is_due: bool


@dataclass(slots=True)
class _Clean:
    """Bytes of the clean part, for as long as it is the same."""

    key: tuple[int, int, int]
    size: int


class CleaningDue:
    """The dirty parts of partitions that this node leads.

    min_dirty_bytes: a smaller dirty part waits for its max_compaction_lag_ms.
    """

    def __init__(self, min_dirty_bytes: int) -> None:
        self._min_dirty_bytes = min_dirty_bytes
        self._clean: dict[int, _Clean] = {}
        # Group -> the leader's term, and how far it has cleaned. Some batches there may stay as
        # they are, so that the carried ones do not tell.
        self._cleaned_to: dict[int, tuple[int, int]] = {}
        self.measured = 0  # clean parts, so far

    def cleaned(self, partition: Partition, end: int) -> None:
        """Notes that a pass over the partition is complete up to `end`."""
        group = partition.group
        self._cleaned_to[group.config.group] = (group.term, end)
        self._clean.pop(group.config.group, None)

    def forget(self, group: int) -> None:
        self._clean.pop(group, None)
        self._cleaned_to.pop(group, None)

    def of(self, partition: Partition, now_ms: int, *, may_measure: bool = True) -> Due | None:
        """Returns the dirty part. It is empty if dirty_from is its end.

        may_measure: else None, if the size of its clean part is not known.
        """
        stored, policy = partition.machine.stored, partition.policy
        group = partition.group
        term, cleaned_to = self._cleaned_to.get(group.config.group, (0, 0))
        begin = stored.carried.end_from(stored.log_start)
        if term == group.term:
            begin = max(begin, min(cleaned_to, stored.next_offset))
        end = _cleanable_end(stored, begin, policy, now_ms)
        if end <= begin:
            return Due(begin, begin, 0.0, False)
        clean = self._clean_bytes(group.config.group, stored, begin, may_measure=may_measure)
        if clean is None:
            return None
        size = max(stored.stored_bytes - clean, 0)
        dirty = size * (end - begin) // (stored.next_offset - begin)
        share = dirty / max(stored.stored_bytes, 1)
        is_much = dirty >= self._min_dirty_bytes and share >= policy.min_cleanable_dirty_ratio
        return Due(begin, end, share, is_much or _is_overdue(stored, begin, policy, now_ms))

    def _clean_bytes(
        self, group: int, stored: StoredBatches, begin: int, *, may_measure: bool
    ) -> int | None:
        if begin <= stored.log_start:
            return 0
        key = (stored.log_start, begin, len(stored.carried))
        known = self._clean.get(group)
        if known is None or known.key != key:
            if not may_measure:
                return None
            self.measured += 1
            known = self._clean[group] = _Clean(key, _bytes_below(stored, begin))
        return known.size


def _bytes_below(stored: StoredBatches, end: int) -> int:
    """Returns the bytes of the batches below an offset; of many batches, an estimate.

    The node's loop waits for it, so it reads no more than MOST_ROWS rows.
    """
    start = stored.log_start
    places = list(islice(stored.index.all_from(start), MOST_ROWS))
    if len(places) < MOST_ROWS or places[-1].last_offset + 1 >= end:
        return sum(place.payload_bytes for place in places if place.base_offset < end)
    # Each row is found as often as it has offsets, so the mean of bytes an offset is that of all.
    step = max((end - start) // MOST_ROWS, 1)
    sampled = [stored.index.at(offset) for offset in range(start, end, step)]
    shares = [place.payload_bytes / place.record_count for place in sampled if place is not None]
    return int(sum(shares) / max(len(shares), 1) * (end - start))


def _cleanable_end(stored: StoredBatches, begin: int, policy: Policy, now_ms: int) -> int:
    """Returns the end of the batches that are old enough to be cleaned."""
    if policy.min_compaction_lag_ms <= 0 or begin >= stored.next_offset:
        return stored.next_offset
    newest, low, high = now_ms - policy.min_compaction_lag_ms, begin, stored.next_offset
    while low < high:  # times rise with offsets
        place = stored.index.at((low + high) // 2)
        if place is None or place.append_time_ms > newest:
            high = (low + high) // 2 if place is None else place.base_offset
        else:
            low = place.last_offset + 1
    return max(min(low, stored.next_offset), begin)


def _is_overdue(stored: StoredBatches, begin: int, policy: Policy, now_ms: int) -> bool:
    if policy.max_compaction_lag_ms < 0:
        return False
    place = stored.index.at(begin)
    return place is not None and now_ms - place.append_time_ms > policy.max_compaction_lag_ms
