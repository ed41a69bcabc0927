"""Survivor of two voters: goes on alone if the other replica is gone for good. Pure.

    metadata: (node, instance) is lost or damaged --> Group.exclude_lost --> a majority of one
    it leads --> the one that is gone is removed by an entry of the log, as in any change

Each majority of two voters has both in it. So the voter that is left holds everything ever
acknowledged, and nothing was decided without it. This does not hold if both are gone, since each
would decide alone. It also does not hold if other replicas are a majority

    by a configuration in its log, and it does not know whether that is in force
    by the one before, which may be in force yet where its end was not heard of

The second case lasts until the next configuration. So two voters that come after other members are
confirmed by a configuration with the same members. A replica with that entry in its log knows that
the first is committed. A replica without it is elected by neither of the two (docs/adr/0084).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cluster.consensus.configuration import Configuration, Member, Members, Placed


def other_of_two(members: Members) -> Member | None:
    """Returns the other of exactly two voters, if this replica is one of them."""
    voters = members.configuration.voters
    if not members.is_voter or len(voters) != 2:
        return None
    return next(one for one in voters if one.node != members.node)


def is_survivor(members: Members, gone: Collection[tuple[int, int]]) -> bool:
    """Whether the other of two voters is gone, this one is not, and does not decide alone yet.

    gone: (node, instance).
    """
    other = other_of_two(members)
    return (
        other is not None
        and not members.is_alone
        and (other.node, other.instance) in gone
        and (members.node, members.instance) not in gone
    )


def who_else_decides(members: Members, configurations: Iterable[Placed]) -> str:
    """Returns how others may decide without this replica; empty: they cannot.

    configurations: those of its log, and the one before that in force.
    """
    now, known = members.configuration, {one.configuration.version: one for one in configurations}
    for version in sorted(known):
        later = known[version].configuration
        if version > now.version and not _is_needed(members, later):
            return f"others may decide without this replica, if this is in force: {later}"
    if not now.version:
        return ""
    before = known.get(now.version - 1)
    if before is None or not _is_needed(members, before.configuration):
        what = "not known" if before is None else str(before.configuration)
        return f"others may decide without this replica, by the replicas of before: {what}"
    return ""


def is_unconfirmed(members: Members, configurations: Iterable[Placed]) -> bool:
    """Whether there are two voters, and their configuration is not known to be in force."""
    now = members.configuration
    if len(now.voters) != 2 or not now.version:
        return False
    known = (one.configuration for one in configurations)
    return not any((one.version, one.voters) == (now.version - 1, now.voters) for one in known)


def _is_needed(members: Members, configuration: Configuration) -> bool:
    """Whether each majority has this replica in it."""
    voters = [(one.node, one.instance) for one in configuration.voters]
    return (members.node, members.instance) in voters and len(voters) <= 2
