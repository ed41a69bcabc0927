"""Membership of this node: tells if another node is of the same cluster.

    PeerLink, PeerListener --Hello--> Membership

A node knows its founding before it says or hears a Hello (`find_cluster.py`): no Hello teaches it.
The rules are those of both sides of a connection.
"""

from __future__ import annotations

from cluster.v1 import peer_pb2 as pb


class Membership:
    """This node's cluster, as its data directory says. founding: 0: not known yet."""

    def __init__(self, members: tuple[int, ...], founding: int):
        self.members = members
        self.founding = founding

    def refusal(self, hello: pb.Hello) -> str:
        """Returns why there can be no link with the Hello's node; empty if there can."""
        theirs, node = tuple(hello.members), hello.node_id
        if not hello.founding:
            return (
                f"node {node} does not know its cluster yet, and its release asks nobody: start "
                f"it with the release that the other nodes run"
            )
        if theirs != self.members:
            return (
                f"the cluster's members are {_listed(self.members)} on this side and "
                f"{_listed(theirs)} on node {node}: a setting cannot change them. Put `nodes` "
                f"back as it was"
            )
        if hello.founding != self.founding:
            return (
                f"the cluster of this side was founded as {self.founding:016x}, that of node "
                f"{node} as {hello.founding:016x}: they are two clusters of one name. Keep both "
                f"data directories, stop the nodes of the cluster that is wrong, and start them "
                f"with empty ones"
            )
        return ""

    def is_of(self, hello: pb.Hello) -> bool:
        """Whether it is known to come from this very cluster."""
        return hello.founding == self.founding != 0

    def differs(self, hello: pb.Hello) -> bool:
        """Whether it is of another cluster: each side refuses the other."""
        both = bool(hello.founding and self.founding)
        return tuple(hello.members) != self.members or (both and hello.founding != self.founding)


def _listed(members: tuple[int, ...]) -> str:
    return ", ".join(map(str, members)) or "none"
