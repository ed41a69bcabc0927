"""Load of each node, updated as partitions are placed, so that no call counts them all again.

Tables.put_topic, drop_topic --> NodeLoads --a copy--> placement
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations


class NodeLoads:
    """Replicas, preferred leaderships, and partitions shared by two nodes: by target."""

    def __init__(self) -> None:
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.shared: Counter[tuple[int, int]] = Counter()

    def add(self, replicas: Sequence[int], times: int = 1) -> None:
        """Adds a placement; times: -1 takes it away again."""
        self.leaders[replicas[0]] += times
        for node in replicas:
            self.replicas[node] += times
        for pair in permutations(replicas, 2):
            self.shared[pair] += times

    def copy(self) -> NodeLoads:
        copied = NodeLoads()
        copied.replicas, copied.leaders = self.replicas.copy(), self.leaders.copy()
        copied.shared = self.shared.copy()
        return copied
