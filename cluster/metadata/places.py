"""Places of nodes: their racks and machines, and the spread of a partition's replicas over them.

RegisterNode --> Tables.places --> Spread --> placement, balance, moves of leaving nodes, health

A rack and a machine are failure domains. A machine's name counts within its rack. A node without
a rack is a rack of its own; with a machine only, its machine is its rack. So without labels
all nodes are equal, and Spread prefers none.

The cost of a set of replicas is, in this order: the replicas beyond half of them in one rack, the
pairs on one machine, the pairs in one rack. Racks hold whole machines, so a set reaches the least
cost if each replica is chosen with the least `rank`, and also by swaps that each lower the cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from math import comb
from typing import NamedTuple

MAX_LABEL_CHARS = 64


class NodePlace(NamedTuple):
    """Labels of a node; empty: not given."""

    rack: str = ""
    machine: str = ""


Cost = tuple[int, int, int]
LEAST: Cost = (0, 0, 0)
_Domain = tuple[str | int, ...]


class Spread:
    """Spread of replicas over racks and machines."""

    def __init__(self, places: Mapping[int, NodePlace] | None = None) -> None:
        """Without places each node is a rack and a machine of its own."""
        self._racks = {node: _rack(node, place) for node, place in (places or {}).items()}
        self._machines = {
            node: (*self._racks[node], "machine", place.machine or node)
            for node, place in (places or {}).items()
        }

    @property
    def has_places(self) -> bool:
        """Whether any node has a label."""
        return bool(self._racks)

    def rank(self, node: int, chosen: Collection[int], count: int) -> Cost:
        """Returns how much worse the node makes a set of `count` replicas. chosen: so far."""
        rack = self._racks.get(node)
        if rack is None:
            return LEAST
        in_rack = sum(self._racks.get(one) == rack for one in chosen)
        if not in_rack:
            return LEAST
        machine = self._machines[node]
        on_machine = sum(self._machines.get(one) == machine for one in chosen)
        return int(in_rack >= count // 2), on_machine, in_rack

    def machines(self, nodes: Collection[int]) -> int:
        """Returns the number of machines that the nodes are on."""
        return len({self._machines.get(node, (node,)) for node in nodes})

    def least(self, nodes: Collection[int], count: int) -> Cost:
        """Returns the least cost of `count` replicas on these nodes."""
        chosen: list[int] = []
        left = sorted(nodes)
        while left and len(chosen) < count:
            chosen.append(min(left, key=lambda node: self.rank(node, chosen, count)))
            left.remove(chosen[-1])
        return self.cost(chosen)

    def cost(self, replicas: Collection[int]) -> Cost:
        """Returns the cost of the set, LEAST if no two replicas share a rack."""
        racks = Counter(self._racks.get(node, (node,)) for node in replicas)
        if len(racks) == len(replicas):
            return LEAST
        machines = Counter(self._machines.get(node, (node,)) for node in replicas)
        return (
            max(0, max(racks.values()) - len(replicas) // 2),
            sum(comb(held, 2) for held in machines.values()),
            sum(comb(held, 2) for held in racks.values()),
        )

    def rests_on_one(self, replicas: Collection[int]) -> bool:
        """Returns whether no majority is left without one rack, though there are three or more."""
        racks = Counter(self._racks.get(node, (node,)) for node in replicas)
        return len(racks) > 2 and 2 * max(racks.values()) >= len(replicas)

    def fullest(self, replicas: Collection[int], kind: str = "replicas") -> str:
        """Returns the rack that holds the most of them, for people."""
        racks = Counter(self._racks.get(node, ("node", node)) for node in replicas)
        (rack, held), *_ = racks.most_common(1)
        return f"{held} of its {len(replicas)} {kind} are in {' '.join(map(str, rack))}"


def _rack(node: int, place: NodePlace) -> _Domain:
    if place.rack:
        return ("rack", place.rack)
    return ("machine", place.machine) if place.machine else (node,)
