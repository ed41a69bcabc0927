"""What the client was seen to do: every call, every batch, every answer to one, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """`facts` can be named in the `where` of a case; `message` is what came or went."""

    call: str
    facts: Mapping[str, Any]
    message: Any


def matches(where: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether the facts are as asked for. A list asks for one of its items, where the fact is
    none itself; `covers` for a batch that holds the sequence."""
    for name, wanted in where.items():
        if name == "covers":
            if not facts["first"] <= wanted <= facts["last"]:
                return False
        elif isinstance(wanted, list) and not isinstance(facts.get(name), list):
            if facts.get(name) not in wanted:
                return False
        elif facts.get(name) != wanted:
            return False
    return True


class Journal:
    """Events of one case."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._grown = asyncio.Event()

    def add(self, call: str, facts: Mapping[str, Any], message: Any) -> None:
        self.events.append(Event(call, dict(facts), message))
        self._grown.set()
        self._grown = asyncio.Event()

    def count(self, call: str, where: Mapping[str, Any]) -> int:
        return sum(event.call == call and matches(where, event.facts) for event in self.events)

    async def reached(self, call: str, where: Mapping[str, Any], count: int) -> None:
        """Returns when there are so many."""
        while self.count(call, where) < count:
            await self._grown.wait()
