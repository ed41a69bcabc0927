"""A classic group's promises, checked from its log alone. Shares no code with the machines.

entries, in order --applied--> generations      commits that were stored --committed--> checks
"""

from __future__ import annotations

from typing import Any


class Violation(Exception):
    """A promise was broken."""


def parts_of(assignment: bytes) -> list[str]:
    return assignment.decode().split(",") if assignment else []


class Checker:
    """Keeps its own picture of the newest generation."""

    def __init__(self) -> None:
        self.generation = 0
        self.shares: dict[str, list[str]] = {}  # member -> partitions
        self.instances: dict[str, str] = {}  # member -> instance
        self.begun: set[tuple[int, str, str]] = set()  # generation, member, partition
        self.commits = self.rebalances = 0

    def applied(self, record: Any) -> None:
        """Notes an entry: a generation, or the same one with another process of an instance."""
        shares = {one.member: parts_of(one.assignment) for one in record.members}
        instances = {one.member: one.instance for one in record.members}
        given = [part for parts in shares.values() for part in parts]
        if len(given) != len(set(given)):
            raise Violation(f"generation {record.generation} gives a partition twice: {shares}")
        if record.generation < self.generation:
            raise Violation(f"generation {record.generation} follows {self.generation}")
        if record.generation == self.generation:
            before = sorted((self.instances[one] or one, self.shares[one]) for one in self.shares)
            if before != sorted((instances[one] or one, shares[one]) for one in shares):
                raise Violation(f"generation {record.generation} is two: {before}, {shares}")
        else:
            self.rebalances += 1
        self.generation = record.generation if shares else 0
        self.shares, self.instances = shares, instances

    def committed(
        self, part: str, member: str, generation: int, span: tuple[int, int], stored: int
    ) -> None:
        """Notes a stored commit: work on `span` is done, and `stored` was there before."""
        self.commits += 1
        if generation != self.generation:
            raise Violation(f"{member} of {generation} commits {part} in {self.generation}")
        if part not in self.shares.get(member, ()):
            raise Violation(f"{member} commits {part}, which is not its own")
        if span[1] < stored:
            raise Violation(f"{part} goes back from {stored} to {span[1]}")
        if span[0] > stored:
            raise Violation(f"{part}: {member} worked from {span[0]} on, {stored} was stored")
        key = generation, member, part
        if key not in self.begun and span[0] != stored:
            raise Violation(f"{part}: {member} does {span[0]}..{stored} a second time")
        self.begun.add(key)
