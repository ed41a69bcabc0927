"""Partitions on their way to other nodes, as `Admin.balance` and `resize_topic` tell of them."""

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
    bytes: int  # that the replicas which come hold when they are whole
    copied: int  # and hold by now
    waits_for: str = ""  # what is done, or why it is not


@dataclass(frozen=True, slots=True)
class Balance:
    """How far partitions are that move, whoever has decided that; of a plan: what would move."""

    balancing: bool  # more may begin
    moves: tuple[PartitionMove, ...]  # the first of `count`
    count: int
    bytes: int  # of all of them
    copied: int
    waits_for: tuple[str, ...] = ()  # what is left out, and why

    @property
    def settled(self) -> bool:
        """Nothing is under way."""
        return not self.balancing and not self.count


@dataclass(frozen=True, slots=True)
class Resized:
    """A topic that gets more partitions, or another number of replicas."""

    topic: TopicInfo  # afterwards
    # What comes, or moves: the first of `count`. A partition that comes had no replicas.
    moves: tuple[PartitionMove, ...]
    count: int
