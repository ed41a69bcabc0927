"""The replicated facts of one consumer group: who owns which partition. Deterministic, pure.

    coordinator --change, claim, remove--> entry of __offsets --apply--> GroupOwnership
    CommitOffsets --member, ownership, number--> check_commit --> stored, or refused for good

A commit is checked against these facts when it is applied, so a member that has lost a
partition cannot commit there, whichever node leads and however late its commit arrives.

Ownership has a number of its own: the index of the entry that gave the partition away. The
member and the group's epoch would not do: a member that lost a partition and got it back has
the same id, and what it worked out under the first ownership may have been done again by
somebody else meanwhile. (KIP-848 fences by member epoch, which has that gap.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MAX_MEMBERS = 1000  # of one group
MAX_OWNED = 10_000  # partitions of one group
MAX_CHANGES = 1000  # in one entry

FENCED_MEMBER = "FENCED_MEMBER"
GROUP_HAS_MEMBERS = "GROUP_HAS_MEMBERS"
OUT_OF_ORDER = "OUT_OF_ORDER"


UNIFORM, RANGE = "uniform", "range"


class GroupSettings(NamedTuple):
    """Of one group: what its first member chose. Times in seconds."""

    assignor: str = UNIFORM
    session_timeout: float = 10.0
    revoke_timeout: float = 60.0
    processing_timeout: float = 300.0


class TopicPartition(NamedTuple):
    """A partition of one creation of a topic; a topic that is made anew has another id."""

    topic_id: int
    partition: int


class Owner(NamedTuple):
    """Who owns a partition. `number`: of this ownership; `last_commit`: of the newest commit."""

    member: str
    number: int
    last_commit: int


class Instance(NamedTuple):
    """Which member id goes by an instance id (KIP-345). `number`: of this claim."""

    member: str
    number: int


class OwnerChange(NamedTuple):
    """One partition goes to `member` ("": to nobody), if its ownership is still `expected`."""

    partition: TopicPartition
    expected: int  # 0: nobody owns it
    member: str


class GroupOwnership:
    """The facts of one group. All changes are entries; `index` is the entry's, above 0.

    epoch:    of the newest assignment that any entry carried; it never falls.
    settings: so that the next leader waits for members as long as this one.
    """

    def __init__(self) -> None:
        self.epoch, self.settings = 0, GroupSettings()
        self.owners: dict[TopicPartition, Owner] = {}
        self.instances: dict[str, Instance] = {}

    @property
    def has_members(self) -> bool:
        """Whether the brokers share this group out; commits by hand are refused meanwhile."""
        return bool(self.owners or self.instances)

    def members(self) -> list[str]:
        """Who owns a partition or goes by an instance id, by name."""
        found = {owner.member for owner in self.owners.values()}
        return sorted(found | {one.member for one in self.instances.values()})

    def partitions_of(self, member: str) -> dict[TopicPartition, int]:
        """What a member owns, with the number of each ownership."""
        return {part: one.number for part, one in self.owners.items() if one.member == member}

    # -- apply ------------------------------------------------------------------------

    def change(self, index: int, epoch: int, changes: Iterable[OwnerChange]) -> int:
        """Partitions change hands; returns how many did. One that has moved since is left."""
        assert index > 0
        self.epoch = max(self.epoch, epoch)
        changed = 0
        for partition, expected, member in changes:
            known = self.owners.get(partition)
            if (0 if known is None else known.number) != expected:
                continue
            if not member:
                self.owners.pop(partition, None)
            elif known is not None or len(self.owners) < MAX_OWNED:
                self.owners[partition] = Owner(member, index, -1)
            changed += 1
        return changed

    def claim(self, index: int, instance: str, expected: int, member: str) -> bool:
        """`member` goes by this instance id from now on, if the claim is still `expected`.

        What the member before owned is the new one's, under new numbers: a restarted
        process goes on where it was, and the old one, if it still runs, is fenced.
        """
        assert index > 0 and instance and member
        known = self.instances.get(instance)
        if (0 if known is None else known.number) != expected:
            return False
        if known is None and len(self.instances) >= MAX_MEMBERS:
            return False
        self.instances[instance] = Instance(member, index)
        if known is not None:
            for partition in self.partitions_of(known.member):
                self.owners[partition] = Owner(member, index, -1)
        return True

    def remove(self, member: str) -> None:
        """The member has left, or its session ended: nothing is its any more."""
        for partition in self.partitions_of(member):
            del self.owners[partition]
        for name in [name for name, one in self.instances.items() if one.member == member]:
            del self.instances[name]

    def check_commit(
        self, partition: TopicPartition, member: str, ownership: int, number: int
    ) -> str:
        """Why a commit must not be stored; "" if it may. Changes nothing.

        member:    "" for a commit by hand, which needs a group without members.
        ownership: the number that came with the assignment.
        number:    of the commit, rising within a member's life, so that a late one is noticed.
                   One that repeats the newest may be stored again: it says the same.
        """
        refused = self.check_owner(partition, member, ownership)
        if refused or not member:
            return refused
        return OUT_OF_ORDER if number < self.owners[partition].last_commit else ""

    def check_owner(self, partition: TopicPartition, member: str, ownership: int) -> str:
        """Why this member ("": nobody who is one) has no say in the partition; "" if it has."""
        if not member:
            return GROUP_HAS_MEMBERS if self.has_members else ""
        owner = self.owners.get(partition)
        known = owner is not None and (owner.member, owner.number) == (member, ownership)
        return "" if known else FENCED_MEMBER

    def is_repeat(self, partition: TopicPartition, number: int) -> bool:
        """Whether the owner's newest commit has this number."""
        return self.owners[partition].last_commit == number

    def committed(self, partition: TopicPartition, number: int) -> None:
        """The owner's commit is stored."""
        self.owners[partition] = self.owners[partition]._replace(last_commit=number)
