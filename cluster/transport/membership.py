"""Whether two nodes are of the same cluster: the same members, founded once.

    PeerLink, PeerListener --Hello--> Membership --learned--> the data directory

A node that does not know the founding yet learns it from the first member that does. Until
then it has no link, so it takes no part in any group. The rules are those of both sides of
a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)


class Membership:
    """What this node's data directory says of its cluster.

    founding: the number that all members share; 0: not known yet.
    learn:    makes what another member said durable. Raises OSError.
    """

    def __init__(self, members: tuple[int, ...], founding: int, learn: Callable[[int], None]):
        self.members, self.founding, self._learn = members, founding, learn

    def refusal(self, hello: pb.Hello) -> str:
        """Why there can be no link with a node that says so; empty if there can.

        If that is so and the founding was not known here, it is known, and durable, afterwards.
        """
        theirs, node = tuple(hello.members), hello.node_id
        if theirs != self.members:
            return (
                f"the cluster's members are {_listed(self.members)} on this side and "
                f"{_listed(theirs)} on node {node}: a setting cannot change them. Put `nodes` "
                f"back as it was"
            )
        if not hello.founding and not self.founding:
            return f"the cluster is not founded yet: node {min(self.members)} has to start first"
        if hello.founding and not self.founding:
            return self._take(hello)
        if hello.founding and hello.founding != self.founding:
            return (
                f"the cluster of this side was founded as {self.founding:016x}, that of node "
                f"{node} as {hello.founding:016x}: they are two clusters of one name. Remove the "
                f"data directory that does not belong here"
            )
        return ""

    def is_of(self, hello: pb.Hello) -> bool:
        """Whether it is known to come from this very cluster."""
        return hello.founding == self.founding != 0

    def differs(self, hello: pb.Hello) -> bool:
        """Whether it is of another cluster: each side refuses the other."""
        both = bool(hello.founding and self.founding)
        return tuple(hello.members) != self.members or (both and hello.founding != self.founding)

    def waits(self, hello: pb.Hello) -> bool:
        """Whether neither side can know the founding yet: not an error."""
        return tuple(hello.members) == self.members and not (hello.founding or self.founding)

    def _take(self, hello: pb.Hello) -> str:
        try:
            self._learn(hello.founding)
        except OSError as error:
            log.error("what cluster this is could not be stored: %s", error)
            return f"the founding could not be stored: {error}"
        self.founding = hello.founding
        log.info("learned the cluster's founding from node %d", hello.node_id)
        return ""


def _listed(members: tuple[int, ...]) -> str:
    return ", ".join(map(str, members)) or "none"
