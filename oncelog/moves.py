"""Partition moves, as returned by `Admin.start_balance` and `resize_topic`."""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.types import TopicInfo


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition that moves, or would; the first node is preferred as leader."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    bytes: int  # size of the new replicas when complete
    copied: int  # bytes of them copied so far
    waits_for: str = ""  # the current step, or why it has to wait


@dataclass(frozen=True, slots=True)
class Balance:
    """Progress of all partition moves, of any origin; of a plan: the moves it would make."""

    balancing: bool  # further moves may begin
    moves: tuple[PartitionMove, ...]  # the first of `count`
    count: int
    bytes: int  # of all moves
    copied: int
    waits_for: tuple[str, ...] = ()  # moves left out, and why

    @property
    def settled(self) -> bool:
        """True if no move is in progress."""
        return not self.balancing and not self.count


@dataclass(frozen=True, slots=True)
class Resized:
    """A topic that gets more partitions, or another number of replicas."""

    topic: TopicInfo  # after the change
    # Partitions that are added or move: the first of `count`. An added one had no replicas.
    moves: tuple[PartitionMove, ...]
    count: int
