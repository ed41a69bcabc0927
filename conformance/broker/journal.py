"""Journal of the client's behaviour: every call, batch and answer, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN = 15  # events after a failed case


@dataclass(frozen=True, slots=True)
class Event:
    """One entry. `facts` can be named in a case's `where`; `message` is the protobuf message."""

    call: str
    facts: Mapping[str, Any]
    message: Any


def matches(where: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Checks facts against a case's `where`.

    A list of values means any of them, unless the fact is a list itself. `covers` means that the
    batch holds the sequence.
    """
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

    def newest(self) -> list[str]:
        """Returns the last calls as lines, which tell where a client has stopped."""
        return [f"seen: {event.call} {dict(event.facts)}"[:200] for event in self.events[-SHOWN:]]

    def count(self, call: str, where: Mapping[str, Any]) -> int:
        return sum(event.call == call and matches(where, event.facts) for event in self.events)

    async def reached(self, call: str, where: Mapping[str, Any], count: int) -> None:
        """Waits until the journal holds this many matching events."""
        while self.count(call, where) < count:
            await self._grown.wait()
