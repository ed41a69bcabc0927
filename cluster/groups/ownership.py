"""Replicated facts of one consumer group: the owner of each partition. Deterministic, pure.

    coordinator --change, claim, remove--> entry of __offsets --apply--> GroupOwnership
    CommitOffsets --member, ownership, number--> check_commit --> stored, or refused for good

A commit is checked against these facts when it is applied. So a member that has lost a
partition cannot commit there, under any leader and however late its commit arrives.

Each ownership has a number: the index of the entry that gave the partition away. The member's
id and the group's epoch are not enough. A member that lost a partition and got it back has the
same id, and another member may have repeated its work of the first ownership meanwhile.
(KIP-848 fences by member epoch, which has that gap.)
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
    """Settings of one group, from its first member. Times in seconds."""

    assignor: str = UNIFORM
    session_timeout: float = 10.0
    revoke_timeout: float = 60.0
    processing_timeout: float = 300.0


class TopicIdPartition(NamedTuple):
    """A partition of one creation of a topic; a recreated topic has another id."""

    topic_id: int
    partition: int


class Owner(NamedTuple):
    """A partition's owner. `number`: of this ownership; `last_commit`: of the newest commit."""

    member: str
    number: int
    last_commit: int


class Instance(NamedTuple):
    """The member id behind an instance id (KIP-345). `number`: of this claim."""

    member: str
    number: int


class OwnerChange(NamedTuple):
    """One partition goes to `member` ("": to none), if its ownership is still `expected`."""

    partition: TopicIdPartition
    expected: int  # 0: no owner
    member: str


class GroupOwnership:
    """The facts of one group. All changes are entries; `index` is the entry's, above 0.

    epoch:    of the newest assignment that any entry carried; it never falls.
    settings: so that the next leader waits for members as long as this one.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.settings = GroupSettings()
        self.owners: dict[TopicIdPartition, Owner] = {}
        self.instances: dict[str, Instance] = {}

    @property
    def has_members(self) -> bool:
        """Return whether the brokers assign this group; commits by hand are refused meanwhile."""
        return bool(self.owners or self.instances)

    def members(self) -> list[str]:
        """List the members that own a partition or hold an instance id, by name."""
        found = {owner.member for owner in self.owners.values()}
        return sorted(found | {one.member for one in self.instances.values()})

    def partitions_of(self, member: str) -> dict[TopicIdPartition, int]:
        """Return a member's partitions, with the number of each ownership."""
        return {part: one.number for part, one in self.owners.items() if one.member == member}

    # -- apply ------------------------------------------------------------------------

    def change(self, index: int, epoch: int, changes: Iterable[OwnerChange]) -> int:
        """Change owners; returns how many changed. A partition that has moved since is left."""
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
        """Give this instance id to `member`, if the claim is still `expected`.

        The new member takes over the former one's partitions, under new numbers: a restarted
        process continues, and the old process, if it still runs, is fenced.
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
        """Remove all of a member that has left, or whose session ended."""
        for partition in self.partitions_of(member):
            del self.owners[partition]
        for name in [name for name, one in self.instances.items() if one.member == member]:
            del self.instances[name]

    def check_commit(
        self, partition: TopicIdPartition, member: str, ownership: int, number: int
    ) -> str:
        """Return why a commit must not be stored; "" if it may. Changes nothing.

        member:    "" for a commit by hand, which needs a group without members.
        ownership: the number that came with the assignment.
        number:    of the commit, rising within a member's life, so that a late one is noticed.
                   A repeat of the newest number may be stored again: it has the same content.
        """
        refused = self.check_owner(partition, member, ownership)
        if refused or not member:
            return refused
        return OUT_OF_ORDER if number < self.owners[partition].last_commit else ""

    def check_owner(self, partition: TopicIdPartition, member: str, ownership: int) -> str:
        """Return why this member ("": none) does not own the partition; "" if it does."""
        if not member:
            return GROUP_HAS_MEMBERS if self.has_members else ""
        owner = self.owners.get(partition)
        known = owner is not None and (owner.member, owner.number) == (member, ownership)
        return "" if known else FENCED_MEMBER

    def is_repeat(self, partition: TopicIdPartition, number: int) -> bool:
        """Return whether the owner's newest commit has this number."""
        return self.owners[partition].last_commit == number

    def committed(self, partition: TopicIdPartition, number: int) -> None:
        """Note the owner's stored commit."""
        self.owners[partition] = self.owners[partition]._replace(last_commit=number)
