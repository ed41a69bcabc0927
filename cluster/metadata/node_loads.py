"""Load of each node, updated as partitions are placed, so that no call counts them all again.

Tables.put_topic, drop_topic --> NodeLoads --a copy--> placement, moves, balance

Two nodes that share a partition are neighbours. In a large cluster a node should have few: it
exchanges heartbeats with each, and three lost nodes lose a partition only if they share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import permutations

MANY_NODES = 20  # from here on a node should have few neighbours
MAX_NEIGHBOURS = 12
# Replicas that a node may hold above the least loaded one before it gets new neighbours, at least.
SLACK = 2


class NodeLoads:
    """Replicas, preferred leaderships, and partitions shared by two nodes: by target.

    most_neighbours: that a node should have; 0: any number.
    """

    def __init__(self) -> None:
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.shared: Counter[tuple[int, int]] = Counter()
        self.neighbours: Counter[int] = Counter()
        self.most_neighbours = 0

    def add(self, replicas: Sequence[int], times: int = 1) -> None:
        """Adds a placement; times: -1 takes it away again."""
        self.leaders[replicas[0]] += times
        for node in replicas:
            self.replicas[node] += times
        for pair in permutations(replicas, 2):
            before = self.shared[pair]
            self.shared[pair] = after = before + times
            self.neighbours[pair[0]] += (after > 0) - (before > 0)

    def copy(self, most_neighbours: int = 0) -> NodeLoads:
        copied = NodeLoads()
        copied.replicas, copied.leaders = self.replicas.copy(), self.leaders.copy()
        copied.shared, copied.neighbours = self.shared.copy(), self.neighbours.copy()
        copied.most_neighbours = most_neighbours or self.most_neighbours
        return copied

    def near(self, nodes: Iterable[int], others: Collection[int]) -> list[int]:
        """Returns the nodes that may hold a partition with the others: all, or the best ones.

        Those are not loaded much more than the least loaded one, and of these the ones with the
        fewest new neighbours among the others beyond the limit.
        """
        found = list(nodes)
        if not self.most_neighbours or not others:
            return found
        least = min(self.replicas[node] for node in found)
        highest = least + max(SLACK, least // 8)
        level = [node for node in found if self.replicas[node] <= highest]
        beyond = {node: self.beyond(node, others) for node in level}
        fewest = min(beyond.values())
        return [node for node in level if beyond[node] == fewest]

    def beyond(self, node: int, others: Iterable[int]) -> int:
        """Returns how many others would become its neighbours beyond the limit of either."""
        most = self.most_neighbours
        if not most:
            return 0
        known, shared = self.neighbours, self.shared
        full = known[node] >= most
        return sum(not shared[node, one] and (full or known[one] >= most) for one in others)
