"""Weaknesses planted in the groups' machines: each takes one protection away. All must be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from cluster.groups.coordinator import GroupCoordinator, Hello
from cluster.groups.ownership import FENCED_MEMBER, GroupOwnership, Owner, TopicIdPartition
from oncelog._engine.consume.membership import MemberOwnerships

Plant = Callable[[], Any]


def any_member_commits() -> Any:
    """A commit is not checked against the owner."""
    return patch.object(GroupOwnership, "check_commit", lambda *args: "")


def member_id_is_enough() -> Any:
    """A commit is checked by the member's name, not by the ownership's number."""

    def check(
        self: GroupOwnership, part: TopicIdPartition, member: str, _: int, number: int
    ) -> str:
        owner = self.owners.get(part)
        known = owner is not None and owner.member == member and number >= owner.last_commit
        return "" if known else FENCED_MEMBER

    return patch.object(GroupOwnership, "check_commit", check)


def late_commits_count() -> Any:
    """A commit that was overtaken by a newer one is stored all the same."""
    whole = GroupOwnership.check_commit

    def check(self: GroupOwnership, part: TopicIdPartition, *args: Any) -> str:
        owner = self.owners.get(part)
        if owner is not None:
            self.owners[part] = owner._replace(last_commit=-1)
        return whole(self, part, *args)

    return patch.object(GroupOwnership, "check_commit", check)


def number_is_kept() -> Any:
    """A partition that is reassigned keeps the number of its first ownership."""

    def change(self: GroupOwnership, index: int, epoch: int, changes: Any) -> int:
        for part, expected, member in changes:
            known = self.owners.get(part)
            if (0 if known is None else known.number) != expected:
                continue
            if member:
                self.owners[part] = Owner(member, 1, -1)
            else:
                self.owners.pop(part, None)
        return 1

    return patch.object(GroupOwnership, "change", change)


def hello_tells_nothing() -> Any:
    """A returning member's list of partitions is ignored."""
    return patch.object(GroupCoordinator, "_take_back", lambda *args: None)


def late_hello_joins() -> Any:
    """A late hello replaces a newer one before its claim is applied."""
    whole = GroupCoordinator.hello

    def hello(self: GroupCoordinator, now: float, said: Hello) -> None:
        self._joining.pop(said.member, None)
        whole(self, now, said)

    return patch.object(GroupCoordinator, "hello", hello)


def rejoins_at_once() -> Any:
    """A member whose session has ended comes back to its old partitions."""
    whole = GroupCoordinator._begin

    def begin(self: GroupCoordinator, now: float, hello: Hello) -> None:
        self._dropped.discard(hello.member)
        whole(self, now, hello)

    return patch.object(GroupCoordinator, "_begin", begin)


def released_on_any_connection() -> Any:
    """A partition asked back on an older connection is given back silently on the new one."""
    whole = MemberOwnerships.released
    connect = MemberOwnerships.connect

    def released(self: MemberOwnerships, connection: int, parts: Any) -> Any:
        return whole(self, self.connection, parts) if connection else None

    def keep(self: MemberOwnerships) -> int:
        revoking = set(self._revoking)
        number = connect(self)
        self._revoking |= revoking
        return number

    return patch.multiple(MemberOwnerships, released=released, connect=keep)


def instance_without_compare() -> Any:
    """A second member gets an instance id that is in use."""
    whole = GroupOwnership.claim

    def claim(self: GroupOwnership, index: int, instance: str, _: int, member: str) -> bool:
        known = self.instances.get(instance)
        return whole(self, index, instance, 0 if known is None else known.number, member)

    return patch.object(GroupOwnership, "claim", claim)


def failover_waits_for_nobody() -> Any:
    """A new coordinator assigns at once the partitions of members it has not met."""
    whole = GroupCoordinator.__init__

    def init(self: GroupCoordinator, *args: Any) -> None:
        whole(self, *args)
        self._awaited.clear()

    return patch.object(GroupCoordinator, "__init__", init)
