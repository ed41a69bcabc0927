"""Consumer lag: the readable records between a group's or a consumer's position and the end.

Place in the flow: `Admin.group_lag` and `Consumer.lag` return it; the CLI and the metrics of the
nodes show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.errors import OncelogError
from oncelog.types import CommittedOffset, GroupDescription, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's progress in a partition; `lag` counts the readable records still to be read.

    `lag_ms`: append time of the newest batch minus that of the batch at the committed offset, so
    it does not grow while nobody writes.

    None for everything that is not known: `committed` and `lag` of a partition that a member owns
    and has not committed; offsets and `lag` if no leader answered, which `error` explains.
    """

    committed: CommittedOffset | None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    lag: int | None = None
    error: OncelogError | None = None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's lag in each partition that it has committed or that a member owns."""

    group: GroupDescription
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def lag(self) -> int:
        """Sum of the known lags."""
        return sum(one.lag or 0 for one in self.partitions.values())

    @property
    def lag_ms(self) -> int | None:
        """The largest of the known lags in time; None: none is known.

        0 is not the largest while a partition with records to be read has not told its time.
        """
        partitions = self.partitions.values()
        is_partial = any(one.lag and one.lag_ms is None for one in partitions)
        known = (one.lag_ms for one in partitions if one.lag_ms is not None)
        return max((ms for ms in known if ms or not is_partial), default=None)

    @property
    def errors(self) -> dict[TopicPartition, OncelogError]:
        """The partitions with an unknown lag, and the reasons."""
        return {tp: one.error for tp, one in self.partitions.items() if one.error is not None}


def records_behind(offset: int, log_start_offset: int, high_watermark: int) -> int:
    """Return the lag of a reader at `offset`: readable records below the start do not exist."""
    return max(0, high_watermark - max(offset, log_start_offset))


__all__ = ["GroupLag", "PartitionLag", "records_behind"]
