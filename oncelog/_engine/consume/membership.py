"""Membership of a consumer in its group: partitions owned, and those to give back. Pure.

    stream --assignment, fenced--> MemberOwnerships --Step--> on_lost, on_revoked, on_assigned
    on_revoked is done --released--> Owned --> stream

An ownership has a number. The same partition under another number is another ownership: records
read and not committed under the first may belong to another member, so it is lost first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

Part = TypeVar("Part", bound=tuple[Any, int])  # topic, by name or id, and partition


class Owned(NamedTuple, Generic[Part]):
    """Answer to an assignment that asked for something back: the partitions still held."""

    connection: int
    epoch: int
    partitions: frozenset[Part]


class Step(NamedTuple, Generic[Part]):
    """Steps of an assignment, in the order in which they are to be done.

    lost:     gone already: drop positions, abort transactions, commit nothing.
    revoked:  finish the records read, commit, then call `released`.
    assigned: read from the committed offset on; with the number for commits.
    """

    lost: tuple[Part, ...]
    revoked: tuple[Part, ...]
    assigned: dict[Part, int]


class MemberOwnerships(Generic[Part]):
    """One member's ownerships over all its connections.

    connection: of the newest hello; rises.
    epoch:      of the newest assignment; 0: none yet, or fenced since.
    """

    def __init__(self) -> None:
        self.connection = self.epoch = 0
        self._owned: dict[Part, int] = {}
        self._revoking: set[Part] = set()
        self._commits = 0

    @property
    def owned(self) -> Mapping[Part, int]:
        return self._owned

    def connect(self) -> int:
        """Begin a new connection; returns its number. Owned partitions stay owned.

        The hello that follows reports them, and the coordinator asks again for those it wants back.
        """
        self.connection += 1
        self._revoking.clear()
        return self.connection

    def may_poll(self, part: Part) -> bool:
        """Tell whether new records of it may be handed out."""
        return part in self._owned and part not in self._revoking

    def next_commit(self, part: Part) -> tuple[int, int] | None:
        """(ownership, number) for a commit of this partition; None: it is not owned."""
        if part not in self._owned:
            return None
        self._commits += 1
        return self._owned[part], self._commits

    def assignment(
        self, connection: int, epoch: int, partitions: Mapping[Part, int], revoke: Iterable[Part]
    ) -> Step[Part]:
        """Apply the newest assignment. One of an older connection changes nothing."""
        if connection != self.connection:
            return Step((), (), {})
        self.epoch = epoch
        asked = set(revoke)
        lost = sorted(
            part
            for part, number in self._owned.items()
            if (part not in asked if part not in partitions else partitions[part] != number)
        )
        for part in lost:
            del self._owned[part]
        assigned = {part: one for part, one in partitions.items() if part not in self._owned}
        self._owned |= assigned
        revoked = sorted((asked & self._owned.keys()) - self._revoking)
        self._revoking = asked & self._owned.keys()
        return Step(tuple(lost), tuple(revoked), assigned)

    def released(self, connection: int, parts: Iterable[Part]) -> Owned[Part] | None:
        """Return the message that gives these finished and committed partitions back.

        None if a new connection has begun since they were asked back: its hello reported them as
        held, so they are, until they are asked back there.
        """
        if connection != self.connection:
            return None
        for part in self._revoking.intersection(parts):
            self._revoking.discard(part)
            del self._owned[part]
        return Owned(self.connection, self.epoch, frozenset(self._owned))

    def fenced(self) -> tuple[Part, ...]:
        """End the membership as the coordinator did; returns the lost partitions."""
        lost = tuple(sorted(self._owned))
        self._owned.clear()
        self._revoking.clear()
        self.epoch = 0
        return lost
