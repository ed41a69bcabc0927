"""A group's promises, checked from its log alone. Shares no code with the machines it checks.

entries, in order --applied--> owners      commits that were stored --committed--> checks
"""

from __future__ import annotations

from typing import Any


class Violation(Exception):
    """A promise was broken."""


class Checker:
    """Keeps its own picture of owners: plain assignments, in the order of the log."""

    def __init__(self) -> None:
        self.owner: dict[Any, tuple[str, int]] = {}
        self.instance: dict[str, tuple[str, int]] = {}
        self.moves: dict[Any, int] = {}
        self.newest: dict[Any, int] = {}  # the ownership of the newest commit
        self.commits = 0

    def applied(self, index: int, entry: Any) -> None:
        kind = type(entry).__name__
        if kind == "OwnerChanges":
            for part, expected, member in entry.changes:
                if self.owner.get(part, ("", 0))[1] == expected:
                    self._set(part, member, index)
        elif kind == "InstanceClaim":
            before = self.instance.get(entry.instance, ("", 0))
            if before[1] == entry.expected:
                self.instance[entry.instance] = (entry.member, index)
                for part, (member, _) in list(self.owner.items()):
                    if before[0] and member == before[0]:
                        self._set(part, entry.member, index)
        elif kind == "Remove":
            for part, (member, _) in list(self.owner.items()):
                if member == entry.member:
                    self._set(part, "", index)
            self.instance = {k: v for k, v in self.instance.items() if v[0] != entry.member}
        else:
            raise Violation(f"entry {index} is a {kind}")

    def _set(self, part: Any, member: str, index: int) -> None:
        if member:
            self.owner[part] = (member, index)
            self.moves[part] = self.moves.get(part, 0) + 1
        else:
            self.owner.pop(part, None)

    def committed(self, part: Any, member: str, span: tuple[int, int], stored: int) -> None:
        """Notes a stored commit: work on `span` is done, and `stored` was there before."""
        self.commits += 1
        owner, ownership = self.owner.get(part, ("", 0))
        if member != owner:
            raise Violation(f"{member} commits {part}, which is {owner or 'nobody'}'s")
        if span[1] < stored:
            raise Violation(f"{part} goes back from {stored} to {span[1]}")
        if span[0] > stored:
            raise Violation(f"{part}: {member} worked from {span[0]} on, {stored} was stored")
        if self.newest.get(part) != ownership and span[0] != stored:
            raise Violation(f"{part}: {member} does {span[0]}..{stored} a second time")
        self.newest[part] = ownership
