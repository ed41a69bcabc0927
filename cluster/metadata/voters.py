"""Voters of the metadata group: the choice among all nodes that hold it. Pure.

    nodes, places, who answers --wanted--> steps of the metadata's leader (node/replicas/votes.py)

Up to MOST nodes all vote. Of more nodes MOST do, or FEW where that many machines are not there. The
voters are spread over racks and machines as replicas are. Living nodes come first, then the least
cost of places, then those that vote already.
"""

from __future__ import annotations

from collections.abc import Collection

from cluster.metadata.places import Spread

MOST = 5
FEW = 3


def wanted(
    nodes: Collection[int],
    voters: Collection[int],
    living: Collection[int],
    spread: Spread,
    most: int = MOST,
) -> tuple[int, ...]:
    """Returns the nodes that shall vote.

    voters: those that do. living: voters that were heard, and learners that may be promoted now.
    """
    if len(nodes) <= most:
        return tuple(sorted(nodes))
    count = most if spread.machines(nodes) >= most else FEW
    chosen: list[int] = []
    left = sorted(nodes)
    while left and len(chosen) < count:
        chosen.append(
            min(
                left,
                key=lambda node: (
                    node not in living,
                    spread.rank(node, chosen, count),
                    node not in voters,
                    node,
                ),
            )
        )
        left.remove(chosen[-1])
    return tuple(sorted(chosen))
