"""Placement of replicas: of new partitions, and of topics that get more or fewer replicas.

Pure: the same state and live nodes give the same answer.

Each partition gets live nodes first, then those that spread it best over racks and machines
(`places.py`), then, in a large cluster, nodes that share partitions already (`node_loads.py`),
then those that hold the fewest replicas. Among equals it gets the nodes that share the fewest
partitions with the nodes already chosen, so that a lost node's work spreads. The first replica is
the preferred leader: the live node of the set that leads the fewest.

A partition that gets more replicas keeps its present ones. A partition that gets fewer keeps its
leader, and then live replicas that are well spread, on the nodes that hold the fewest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence

from cluster.metadata.node_loads import NodeLoads
from cluster.metadata.places import Cost, Spread
from cluster.metadata.topics import (
    MAX_PARTITIONS,
    PartitionState,
    TopicState,
    check_partition_count,
    check_replica_count,
    invalid,
)

NO_PLACES = Spread()


def place(
    partitions: int,
    replicas: int,
    nodes: Collection[int],
    live: Collection[int],
    held: NodeLoads,
    spread: Spread = NO_PLACES,
) -> list[tuple[int, ...]]:
    """Returns nodes for each of `partitions` partitions, the preferred leader first.

    `nodes` may hold replicas, `live` are those that answer now, `held` is the present placement.
    Raises Rejected if the numbers do not fit.
    """
    check_partition_count(partitions)
    check_nodes(replicas, nodes)
    load = _Load(nodes, live, held, spread)
    placed = []
    for _ in range(partitions):
        chosen = load.choose(replicas)
        load.add(chosen)
        placed.append(chosen)
    return level_leaders(placed, load.leaders, live, MAX_PARTITIONS)


def resized(
    topic: TopicState,
    replicas: int,
    nodes: Collection[int],
    live: Collection[int],
    leaders: Mapping[int, int],
    held: NodeLoads,
    spread: Spread = NO_PLACES,
) -> list[tuple[PartitionState, tuple[int, ...]]]:
    """Returns the partitions of the topic to give another number of replicas, and their nodes.

    leaders: group -> its leader, if known. Partitions that are already changing to that number are
    skipped. Raises Rejected if the numbers do not fit.
    """
    check_nodes(replicas, nodes)
    load = _Load(nodes, live, held, spread)
    changed = []
    for record in topic.partitions:
        target = record.placed
        if len(target) != replicas:
            load.add(target, times=-1)
            target = load.resize(record, replicas, leaders.get(record.group_id, 0))
            load.add(target)
            changed.append((record, target))
    return changed


def check_nodes(replicas: int, nodes: Collection[int]) -> None:
    """Raises Rejected unless these nodes can hold so many replicas of a partition."""
    check_replica_count(replicas)
    if replicas > len(nodes):
        text = f"{replicas} must be at most the number of nodes, {len(nodes)}"
        raise invalid("replicas", text, f"1..{len(nodes)}")


def level_leaders(
    placed: Sequence[tuple[int, ...]], leaders: Counter[int], live: Collection[int], limit: int
) -> list[tuple[int, ...]]:
    """Returns the partitions, with other preferred leaders if one node leads much more.

    Placement one by one may leave a node without leaderships that could be passed on to it from
    replica to replica. leaders: of all partitions; it is changed. limit: on changed partitions; a
    chain of steps that exceeds it is not begun.
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
    """Returns steps that pass a leadership from a node to one that leads at least two fewer.

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


def best(
    nodes: Collection[int],
    live: Collection[int],
    spread: Spread,
    chosen: Collection[int],
    count: int,
    loads: NodeLoads,
) -> list[int]:
    """Returns the nodes to choose from for one more of `count` replicas, beside the chosen ones.

    They live, if any does, cost the least in places, and keep neighbours few.
    """
    costs = {node: (node not in live, spread.rank(node, chosen, count)) for node in nodes}
    least = min(costs.values())
    return loads.near((node for node in nodes if costs[node] == least), chosen)


class _Load:
    """Replicas and leaderships of each node, including the newly placed ones."""

    def __init__(
        self, nodes: Collection[int], live: Collection[int], held: NodeLoads, spread: Spread
    ) -> None:
        self._nodes = sorted(nodes)
        self._live = frozenset(live)
        self._loads = held.copy()
        self._spread = spread
        self.add = self._loads.add
        self.leaders = self._loads.leaders

    def choose(self, count: int) -> tuple[int, ...]:
        chosen = self._filled((), count)
        # Followers in the same order: the next to lead should not lead much either.
        order = sorted(chosen, key=lambda n: (n not in self._live, self.leaders[n], n))
        return tuple(order)

    def resize(self, record: PartitionState, count: int, leader: int) -> tuple[int, ...]:
        """Returns the target nodes of a partition; none of `record` counts at present."""
        held = [node for node in record.replicas if node in self._nodes]
        unsound = {node for node, _ in record.to_remove} | {one.node for one in record.damaged}
        lead = leader or record.replicas[0]

        kept: list[int] = []

        def worth(node: int) -> tuple[bool, bool, bool, int, Cost, int, int]:
            # Prefer the oldest replicas during a change: the newer ones are still filled.
            age = record.instance_of(node) if record.target else 0
            dead, rank = node not in self._live, self._spread.rank(node, kept, count)
            return node != lead, node in unsound, dead, age, rank, self._loads.replicas[node], node

        while held and len(kept) < count:
            kept.append(min(held, key=worth))
            held.remove(kept[-1])
        kept.sort(key=record.replicas.index)
        if lead in kept and record.replicas[0] not in kept:
            kept.sort(key=lambda node: node != lead)
        return tuple(self._filled(kept, count))

    def _filled(self, kept: Sequence[int], count: int) -> list[int]:
        """Returns these nodes and more, up to the wanted number."""
        chosen = list(kept)
        while len(chosen) < count:
            left = [node for node in self._nodes if node not in chosen]
            near = best(left, self._live, self._spread, chosen, count, self._loads)
            chosen.append(min(near, key=lambda node: self._rank(node, chosen)))
        return chosen

    def _rank(self, node: int, chosen: Sequence[int]) -> tuple[int, int, int, int]:
        shared = sum(self._loads.shared[node, other] for other in chosen)
        return self._loads.replicas[node], shared, self.leaders[node], node
