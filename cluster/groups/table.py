"""Ownerships of all groups with members in one partition of `__offsets`. Deterministic, pure.

OffsetsTable.apply --command--> OwnershipTable --> GroupOwnership of the group
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.groups.ownership import (
    GroupOwnership,
    GroupSettings,
    Instance,
    Owner,
    OwnerChange,
    TopicIdPartition,
)
from cluster.v1 import offsets_pb2 as pb

MAX_GROUPS_WITH_MEMBERS = 2000  # in one partition of __offsets


class OwnershipTable:
    """Ownerships by group. It holds only groups with members."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOwnership] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def of(self, group: str) -> GroupOwnership:
        """Return the facts of a group; without members, empty ones that are not kept."""
        return self._groups.get(group) or GroupOwnership()

    def names(self) -> list[str]:
        return sorted(self._groups)

    # -- apply ------------------------------------------------------------------------

    def change_owners(self, index: int, command: pb.ChangeOwners) -> bool:
        changes = [
            OwnerChange(TopicIdPartition(one.topic_id, one.partition), one.expected, one.member)
            for one in command.changes
        ]
        facts = self._grown(command.group)
        done = facts is not None and facts.change(index, command.epoch, changes) > 0
        if facts is not None:
            facts.settings = settings_of(command.terms)
        self._trim(command.group)
        return done

    def claim_instance(self, index: int, command: pb.ClaimInstance) -> bool:
        facts = self._grown(command.group)
        return facts is not None and facts.claim(
            index, command.instance, command.expected, command.member
        )

    def remove_member(self, command: pb.RemoveMember) -> bool:
        facts = self._groups.get(command.group)
        if facts is None:
            return False
        facts.remove(command.member)
        self._trim(command.group)
        return True

    def _grown(self, group: str) -> GroupOwnership | None:
        """Return the facts to change; None: one group more would be too many."""
        if group not in self._groups and len(self._groups) >= MAX_GROUPS_WITH_MEMBERS:
            return None
        return self._groups.setdefault(group, GroupOwnership())

    def _trim(self, group: str) -> None:
        facts = self._groups.get(group)
        if facts is not None and not facts.has_members:
            del self._groups[group]

    # -- snapshots ----------------------------------------------------------------------

    def records(self) -> Iterable[pb.OwnershipRecord]:
        """Yield records by group; equal states give equal records."""
        for group, facts in sorted(self._groups.items()):
            yield pb.OwnershipRecord(
                group=group,
                epoch=facts.epoch,
                terms=terms_of(facts.settings),
                owners=[
                    pb.OwnerRecord(
                        topic_id=part.topic_id,
                        partition=part.partition,
                        member=owner.member,
                        number=owner.number,
                        last_commit=owner.last_commit,
                    )
                    for part, owner in sorted(facts.owners.items())
                ],
                instances=[
                    pb.InstanceRecord(instance=name, member=one.member, number=one.number)
                    for name, one in sorted(facts.instances.items())
                ],
            )

    def load(self, records: Iterable[pb.OwnershipRecord]) -> None:
        for record in records:
            facts = self._groups[record.group] = GroupOwnership()
            facts.epoch, facts.settings = record.epoch, settings_of(record.terms)
            facts.owners = {
                TopicIdPartition(one.topic_id, one.partition): Owner(
                    one.member, one.number, one.last_commit
                )
                for one in record.owners
            }
            facts.instances = {
                one.instance: Instance(one.member, one.number) for one in record.instances
            }


def terms_of(settings: GroupSettings) -> pb.GroupTerms:
    return pb.GroupTerms(
        assignor=settings.assignor,
        session_timeout_ms=round(settings.session_timeout * 1000),
        revoke_timeout_ms=round(settings.revoke_timeout * 1000),
        processing_timeout_ms=round(settings.processing_timeout * 1000),
    )


def settings_of(terms: pb.GroupTerms) -> GroupSettings:
    return GroupSettings(
        terms.assignor,
        terms.session_timeout_ms / 1000,
        terms.revoke_timeout_ms / 1000,
        terms.processing_timeout_ms / 1000,
    )
