"""Balance of partitions over nodes: plans moves so that each node holds about as much. Pure.

    plan: spread over racks --> replicas by count --> by bytes --> preferred leaders by count

A partition that could be spread better over racks and machines (`places.py`) moves first, by swaps
that each lower its cost. No later step raises the cost of a partition.
Counts are level when no node holds two replicas more than another. Level counts take as few moves
as possible, in a large cluster with few new neighbours (`node_loads.py`), with the replicas that
level the bytes best. Then a large partition swaps with a small
one, until the fullest node is at most a tenth above the emptiest or no swap helps. A partition
never has fewer replicas, and level nodes stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, permutations

from cluster.metadata.node_loads import NodeLoads
from cluster.metadata.placement import NO_PLACES, level_leaders
from cluster.metadata.places import Cost, Spread
from cluster.metadata.topics import PartitionState

MAX_LOOKED_AT = 200  # partitions of one node to choose from
TOLERANCE = 10  # percent of the average bytes of a node; a smaller gap is not worth a copy
MIN_SLACK = 64 * 1024 * 1024  # bytes


def plan(
    records: Iterable[PartitionState],
    nodes: Collection[int],
    sizes: Mapping[int, int],
    limit: int,
    spread: Spread = NO_PLACES,
    loads: NodeLoads | None = None,
) -> list[tuple[PartitionState, list[int]]]:
    """Returns the partitions to move, each with its nodes, the preferred leader first.

    nodes: give and take replicas; replicas on other nodes stay there. sizes: bytes by group.
    limit: on moved partitions; leaders are left for later if it is reached. Moving and lost
        replicas count at their target and are not moved again.
    loads: of the same partitions, if neighbours should be few; changed as they move.
    """
    known = {record.group_id: record for record in records}
    balance = _Balance(known.values(), sorted(nodes), sizes, limit, spread, loads or NodeLoads())
    balance.mend_spread()
    balance.level_counts()
    balance.level_bytes()
    balance.level_leaders()
    return [(known[group], list(placed)) for group, placed in balance.changed().items()]


class _Balance:
    """Target nodes of each partition, and the load of each node."""

    def __init__(
        self,
        records: Iterable[PartitionState],
        nodes: Sequence[int],
        sizes: Mapping[int, int],
        limit: int,
        spread: Spread,
        loads: NodeLoads,
    ) -> None:
        self._nodes = nodes
        self._spread = spread
        self._loads = loads
        self._least: dict[tuple[int, frozenset[int]], Cost] = {}
        self._sizes = sizes
        self._limit = limit
        self._before = {one.group_id: one.placed for one in records}
        self._placed = dict(self._before)
        self._moved: set[int] = set()
        self._count: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        # In order, so that equal states give equal plans.
        self._held: dict[int, dict[int, None]] = {node: {} for node in nodes}
        busy = {one.group_id for one in records if one.target or one.lost or one.damaged}
        self._movable = [group for group in self._placed if group not in busy]
        for group, placed in self._placed.items():
            for node in placed:
                self._count[node] += 1
                self._bytes[node] += sizes.get(group, 0)
                if node in self._held and group not in busy:
                    self._held[node][group] = None

    def changed(self) -> dict[int, tuple[int, ...]]:
        return {group: now for group, now in self._placed.items() if now != self._before[group]}

    def mend_spread(self) -> None:
        for group in self._movable if self._spread.has_places else ():
            while self._is_crowded(group) and (group in self._moved or not self._is_full):
                swap = self._better(group)
                if swap is None:
                    break
                self._move(group, *swap)

    def level_counts(self) -> None:
        while not self._is_full and self._move_one():
            pass

    def level_bytes(self) -> None:
        """Levels the bytes; each step brings two nodes nearer to each other, so it ends."""
        if not self._nodes:
            return
        mean = sum(self._bytes[node] for node in self._nodes) // len(self._nodes)
        slack = max(MIN_SLACK, mean * TOLERANCE // 100)
        while not self._is_full and self._exchange(slack):
            pass

    def level_leaders(self) -> None:
        left = self._limit - len(self._moved)
        if left > 0:
            movable = {group: self._placed[group] for group in self._movable}
            leaders = Counter(placed[0] for placed in self._placed.values())
            changed = level_leaders(list(movable.values()), leaders, self._nodes, left)
            self._placed.update(zip(movable, changed, strict=True))

    @property
    def _is_full(self) -> bool:
        return len(self._moved) >= self._limit

    def _is_crowded(self, group: int) -> bool:
        """Returns whether the partition would cost less if all its nodes could be chosen anew."""
        placed = self._placed[group]
        cost = self._spread.cost(placed)
        if not any(cost):
            return False
        # Its nodes that do not answer count, too: their replicas stay.
        key = (len(placed), frozenset(placed).difference(self._held))
        if key not in self._least:
            self._least[key] = self._spread.least({*self._nodes, *key[1]}, len(placed))
        return cost > self._least[key]

    def _better(self, group: int) -> tuple[int, int] | None:
        """Returns the (giver, taker) that lowers the partition's cost the most, if one does."""
        placed = self._placed[group]

        def cost(swap: tuple[int, int]) -> tuple[Cost, int, int, int, int, int]:
            giver, taker = swap
            now = self._spread.cost([taker if node == giver else node for node in placed])
            beyond = self._beyond(group, giver, taker)
            return now, beyond, self._count[taker], self._bytes[taker], -self._count[giver], taker

        swaps = [(giver, taker) for giver in placed if giver in self._held
                 for taker in self._nodes if taker not in placed]  # fmt: skip
        best = min(swaps, key=cost, default=None)
        return best if best and cost(best)[0] < self._spread.cost(placed) else None

    def _move_one(self) -> bool:
        """Moves a replica from a node with many to one with at least two fewer, if there is one."""

        def rank(node: int) -> tuple[int, int, int]:
            return self._count[node], self._bytes[node], node

        rising = sorted(self._nodes, key=rank)
        for giver in reversed(rising):
            for taker in rising:
                if self._count[giver] - self._count[taker] < 2:
                    break
                gap = self._bytes[giver] - self._bytes[taker]
                able = list(islice(self._able(giver, taker), MAX_LOOKED_AT))
                if able:

                    def cost(
                        group: int, swap: tuple[int, int] = (giver, taker), gap: int = gap
                    ) -> tuple[bool, int, int]:
                        beyond = self._beyond(group, *swap)
                        return group in self._moved, beyond, abs(2 * self._size(group) - gap)

                    self._move(min(able, key=cost), giver, taker)
                    return True
        return False

    def _exchange(self, slack: int) -> bool:
        """Swaps a large partition for a small one, or for none where a node has one more."""
        rising = sorted(self._nodes, key=lambda node: (self._bytes[node], node))
        for heavy, light in permutations(reversed(rising), 2):
            gap = self._bytes[heavy] - self._bytes[light]
            if gap <= slack:
                continue
            large = sorted(self._able(heavy, light), key=self._size, reverse=True)[:MAX_LOOKED_AT]
            small = sorted(self._able(light, heavy), key=self._size)
            pairs: list[tuple[int, int | None]] = []
            if self._count[heavy] > self._count[light]:
                pairs += [(group, None) for group in large]
            sized = [self._size(group) for group in small]
            for group in large:
                at = bisect_left(sized, self._size(group) - gap // 2)
                pairs += [(group, small[near]) for near in (at - 1, at) if 0 <= near < len(small)]
            # A gain on one side must not be lost on the other.
            low, high = slack // 2, gap - slack // 2
            fitting = [pair for pair in pairs if low <= self._gain(pair) <= high]
            if fitting:
                large_one, small_one = min(fitting, key=partial(self._worth, heavy, light, gap))
                self._move(large_one, heavy, light)
                if small_one is not None:
                    self._move(small_one, light, heavy)
                return True
        return False

    def _worth(
        self, heavy: int, light: int, gap: int, pair: tuple[int, int | None]
    ) -> tuple[int, int]:
        large, small = pair
        beyond = self._beyond(large, heavy, light)
        if small is not None:
            beyond += self._beyond(small, light, heavy)
        return beyond, abs(2 * self._gain(pair) - gap)

    def _able(self, giver: int, taker: int) -> Iterator[int]:
        free = (group for group in self._held[giver] if taker not in self._placed[group])
        if not self._spread.has_places:
            return free
        return (group for group in free if self._stays_spread(group, giver, taker))

    def _stays_spread(self, group: int, giver: int, taker: int) -> bool:
        placed = self._placed[group]
        others = [node for node in placed if node != giver]
        before = self._spread.rank(giver, others, len(placed))
        return self._spread.rank(taker, others, len(placed)) <= before

    def _beyond(self, group: int, giver: int, taker: int) -> int:
        """Returns how many neighbours beyond the limit the move makes."""
        return self._loads.beyond(taker, (node for node in self._placed[group] if node != giver))

    def _gain(self, pair: tuple[int, int | None]) -> int:
        return self._size(pair[0]) - (0 if pair[1] is None else self._size(pair[1]))

    def _size(self, group: int) -> int:
        return self._sizes.get(group, 0)

    def _move(self, group: int, giver: int, taker: int) -> None:
        placed = self._placed[group]
        assert giver in placed and taker not in placed
        self._placed[group] = tuple(taker if node == giver else node for node in placed)
        self._loads.add(placed, times=-1)
        self._loads.add(self._placed[group])
        self._moved.add(group)
        del self._held[giver][group]
        self._held[taker][group] = None
        for node, sign in ((giver, -1), (taker, 1)):
            self._count[node] += sign
            self._bytes[node] += sign * self._size(group)
