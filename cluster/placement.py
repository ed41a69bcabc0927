"""Where the replicas of a new topic go. Pure: the same state and live nodes, the same answer.

Each partition gets the nodes that hold the fewest replicas, living ones first;
among equals those that share the fewest partitions with the nodes already
chosen, so that a lost node's work spreads over all others. The first replica is
the preferred leader: the living one of the set that leads the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import permutations

from cluster.topics import TopicState, check_partition_count, check_replica_count, invalid


def place(
    partitions: int,
    replicas: int,
    nodes: Collection[int],
    live: Collection[int],
    topics: Iterable[TopicState],
) -> list[tuple[int, ...]]:
    """Node ids for each of `partitions` partitions, the preferred leader first.

    `nodes` are all nodes that may hold replicas, `live` those that answer now,
    `topics` what is placed already. Raises Rejected if the numbers do not fit.
    """
    check_partition_count(partitions)
    check_replica_count(replicas)
    if replicas > len(nodes):
        raise invalid("replicas", f"{replicas} must be at most the number of nodes, {len(nodes)}")
    load = _Load(nodes, live)
    for topic in topics:
        for partition in topic.partitions:
            load.add(partition.replicas)
    placed = []
    for _ in range(partitions):
        chosen = load.choose(replicas)
        load.add(chosen)
        placed.append(chosen)
    return placed


class _Load:
    """How much each node has: replicas, preferred leaderships, partitions shared with another."""

    def __init__(self, nodes: Collection[int], live: Collection[int]) -> None:
        self._nodes = sorted(nodes)
        self._live = frozenset(live)
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self._shared: Counter[tuple[int, int]] = Counter()

    def add(self, replicas: Sequence[int]) -> None:
        self._replicas.update(replicas)
        self._leaders[replicas[0]] += 1
        self._shared.update(permutations(replicas, 2))

    def choose(self, count: int) -> tuple[int, ...]:
        chosen: list[int] = []
        for _ in range(count):
            left = (node for node in self._nodes if node not in chosen)
            chosen.append(min(left, key=lambda node: self._rank(node, chosen)))
        # Followers in the same order: the next to lead should not lead much either.
        order = sorted(chosen, key=lambda n: (n not in self._live, self._leaders[n], n))
        return tuple(order)

    def _rank(self, node: int, chosen: Sequence[int]) -> tuple[bool, int, int, int, int]:
        shared = sum(self._shared[node, other] for other in chosen)
        return (
            node not in self._live,
            self._replicas[node],
            shared,
            self._leaders[node],
            node,
        )
