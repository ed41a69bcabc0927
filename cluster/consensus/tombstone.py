"""Tombstone of a replica that was removed from its group: answers in its place.

    configuration without it applied --> Tombstone --> the replica's directory, its answers
    polls, votes, appends of the others --> Removed: that entry is committed

Silence would leave the other replicas waiting. They may hold the entry without knowing that it is
committed, and need a majority of the set that this replica was in. So the tombstone proves it to
each replica that asks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cluster.consensus.configuration import Members
from cluster.consensus.message import (
    Append,
    GroupMessage,
    PreVote,
    Removed,
    TimeoutNow,
    Vote,
)
from storage.errors import CorruptionError

_LAYOUT = struct.Struct("<QQQQQ")
_ASKS: tuple[type, ...] = (Append, PreVote, TimeoutNow, Vote)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """index, index_term: the entry that removed it. term: its last. version: of the entry."""

    instance: int
    version: int
    index: int
    index_term: int
    term: int

    def removed(self, group: int, to_instance: int = 0) -> Removed:
        place = (self.index, self.index_term)
        return Removed(group, self.term, *place, self.version, self.instance, to_instance)

    def answer(self, message: GroupMessage) -> Removed | None:
        """Answers a message, never with a vote.

        None: nobody waits for an answer to it, or it is for a newer replica.
        """
        if message.to_instance > self.instance or not isinstance(message, _ASKS):
            return None
        return self.removed(message.group, message.from_instance)

    def pack(self) -> bytes:
        place = (self.index, self.index_term)
        return _LAYOUT.pack(self.instance, self.version, *place, self.term)


def tombstone_of(members: Members, term: int) -> Tombstone:
    """Makes the tombstone of a replica in this term that the configuration in force removed."""
    assert members.is_removed
    placed = members.placed
    return Tombstone(members.instance, members.version, placed.index, placed.term, term)


def unpack_tombstone(data: bytes) -> Tombstone:
    """Raises CorruptionError."""
    try:
        return Tombstone(*_LAYOUT.unpack(data))
    except struct.error as error:
        raise CorruptionError(f"tombstone of {len(data)} bytes: {error}") from error
