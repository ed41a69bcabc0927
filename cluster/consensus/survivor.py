"""When one of two voters goes on without the other, whose replica is gone for good. Pure.

    metadata: (node, instance) is lost or damaged --> Group.exclude_lost --> a majority of one
    it leads --> the one that is gone is removed by an entry of the log, as in any change

Each majority of two voters has both in it. So the one that is left holds all that was ever
acknowledged, and nothing was decided without it. That is not so
in two cases: both are gone, and each would decide alone; or its log has a configuration in
which others are a majority, and it does not know whether that is in force.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cluster.consensus.configuration import Member, Members, Placed


def other_of_two(members: Members) -> Member | None:
    """The other one, if there are two voters, and this replica is one of them."""
    voters = members.configuration.voters
    if not members.is_voter or len(voters) != 2:
        return None
    return next(one for one in voters if one.node != members.node)


def is_survivor(members: Members, gone: Collection[tuple[int, int]]) -> bool:
    """Whether the other one of two voters is gone, this one is not, and does not decide alone yet.

    gone: (node, instance).
    """
    other = other_of_two(members)
    return (
        other is not None
        and not members.is_alone
        and (other.node, other.instance) in gone
        and (members.node, members.instance) not in gone
    )


def unknown_change(members: Members, configurations: Iterable[Placed]) -> str:
    """A change by which others may have decided without this replica; empty: there is none.

    configurations: all that are in its log.
    """
    own = (members.node, members.instance)
    for placed in configurations:
        now = placed.configuration
        voters = [(one.node, one.instance) for one in now.voters]
        if placed.index > members.placed.index and (own not in voters or len(voters) > 2):
            return f"others may decide without this replica, if this is in force: {now}"
    return ""
