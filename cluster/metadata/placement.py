"""Where the replicas of a new topic go. Pure: the same state and live nodes, the same answer.

Each partition gets the nodes that hold the fewest replicas, living ones first;
among equals those that share the fewest partitions with the nodes already
chosen, so that a lost node's work spreads over all others. The first replica is
the preferred leader: the living one of the set that leads the fewest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import permutations

from cluster.metadata.topics import (
    MAX_PARTITIONS,
    TopicState,
    check_partition_count,
    check_replica_count,
    invalid,
)


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
    return level_leaders(placed, load.leaders, live, MAX_PARTITIONS)


def level_leaders(
    placed: Sequence[tuple[int, ...]], leaders: Counter[int], live: Collection[int], limit: int
) -> list[tuple[int, ...]]:
    """The partitions with other preferred leaders where one leads much more than another.

    What was chosen one by one may leave a node without any, though leaderships could
    be passed on to it from replica to replica. leaders: of all partitions; it is changed.
    limit: on how many are changed; what needs more than that is not begun.
    """
    level, alive = list(placed), frozenset(live)
    while (path := _passing_on(level, leaders, alive)) and len(path) <= limit:
        limit -= len(path)
        for number, successor in path:
            leader, *others = level[number]
            others[others.index(successor)] = leader
            level[number] = (successor, *others)
            leaders[leader] -= 1
            leaders[successor] += 1
    return level


def _passing_on(
    placed: Sequence[tuple[int, ...]], leaders: Mapping[int, int], live: frozenset[int]
) -> list[tuple[int, int]]:
    """How a node hands a leadership on, step by step, to one that leads at least two fewer.

    Each step is (partition, its next leader). Empty: there is no such node.
    """
    led: dict[int, list[int]] = {}
    for number, replicas in enumerate(placed):
        led.setdefault(replicas[0], []).append(number)
    for start in sorted(live & led.keys(), key=lambda node: (-leaders[node], node)):
        paths: dict[int, list[tuple[int, int]]] = {start: []}
        to_look_at = deque([start])
        while to_look_at:
            node = to_look_at.popleft()
            if leaders[node] <= leaders[start] - 2:
                return paths[node]
            for number in led.get(node, ()):
                for other in placed[number][1:]:
                    if other in live and other not in paths:
                        paths[other] = [*paths[node], (number, other)]
                        to_look_at.append(other)
    return []


class _Load:
    """How much each node has: replicas, preferred leaderships, partitions shared with another."""

    def __init__(self, nodes: Collection[int], live: Collection[int]) -> None:
        self._nodes = sorted(nodes)
        self._live = frozenset(live)
        self._replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self._shared: Counter[tuple[int, int]] = Counter()

    def add(self, replicas: Sequence[int]) -> None:
        self._replicas.update(replicas)
        self.leaders[replicas[0]] += 1
        self._shared.update(permutations(replicas, 2))

    def choose(self, count: int) -> tuple[int, ...]:
        chosen: list[int] = []
        for _ in range(count):
            left = (node for node in self._nodes if node not in chosen)
            chosen.append(min(left, key=lambda node: self._rank(node, chosen)))
        # Followers in the same order: the next to lead should not lead much either.
        order = sorted(chosen, key=lambda n: (n not in self._live, self.leaders[n], n))
        return tuple(order)

    def _rank(self, node: int, chosen: Sequence[int]) -> tuple[bool, int, int, int, int]:
        shared = sum(self._shared[node, other] for other in chosen)
        return (
            node not in self._live,
            self._replicas[node],
            shared,
            self.leaders[node],
            node,
        )
