"""Nodes that share a partition are neighbours: few in a large cluster, also after moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.features import METADATA_LEARNERS, Finalized
from cluster.metadata.balance import plan
from cluster.metadata.node_loads import MANY_NODES, MAX_NEIGHBOURS, SLACK, NodeLoads
from cluster.metadata.nodes import NodesView
from cluster.metadata.placement import place, resized
from cluster.metadata.places import NodePlace, Spread
from cluster.metadata.tables import Tables
from cluster.metadata.topics import PartitionState, TopicSettings, TopicState
from cluster.node.replicas.node_changes import moves

MANY = 10_000
Placed = Sequence[Sequence[int]]


def loads(placed: Iterable[Sequence[int]], most: int = MAX_NEIGHBOURS) -> NodeLoads:
    made = NodeLoads()
    for nodes in placed:
        made.add(nodes)
    return made.copy(most)


def neighbours(placed: Placed) -> Counter[int]:
    pairs = {pair for nodes in placed for pair in combinations(sorted(nodes), 2)}
    return Counter(chain.from_iterable(pairs))


def gap(counts: Counter[int], nodes: Collection[int]) -> int:
    return max(counts[one] for one in nodes) - min(counts[one] for one in nodes)


def held(placed: Placed) -> Counter[int]:
    return Counter(chain.from_iterable(placed))


def state(placed: Placed) -> list[PartitionState]:
    return [PartitionState(16 + number, tuple(nodes)) for number, nodes in enumerate(placed)]


def in_steps(nodes: Collection[int], partitions: int, step: int) -> list[tuple[int, ...]]:
    """Places topics of `step` partitions, one after the other."""
    placed: list[tuple[int, ...]] = []
    now = loads(())
    while len(placed) < partitions:
        more = place(step, 3, nodes, nodes, now)
        for one in more:
            now.add(one)
        placed += more
    return placed


@pytest.mark.parametrize(
    ("number", "partitions", "step"),
    [(20, 200, 200), (20, 198, 6), (50, 500, 500), (100, 1000, 250)],
)
def test_new_partitions_give_a_node_few_neighbours(number: int, partitions: int, step: int) -> None:
    nodes = range(1, number + 1)
    placed = in_steps(nodes, partitions, step)
    assert max(neighbours(placed).values()) <= MAX_NEIGHBOURS
    assert gap(held(placed), nodes) <= SLACK + 1
    assert gap(Counter(one[0] for one in placed), nodes) <= 2
    apart = place(step, 3, nodes, nodes, NodeLoads())
    if step >= 200:
        assert min(neighbours(apart).values()) > MAX_NEIGHBOURS, "without the limit"


def test_racks_and_machines_come_first() -> None:
    """A hundred nodes in three racks, then sixteen processes on each of four machines."""
    racks = {node: NodePlace("abc"[node % 3]) for node in range(1, 101)}
    machines = {node: NodePlace("", f"m{node % 4}") for node in range(1, 65)}
    for labels in (racks, machines):
        spread = Spread(labels)
        placed = place(300, 3, labels, labels, loads(()), spread)
        least = spread.least(labels, 3)
        assert {spread.cost(nodes) for nodes in placed} == {least}
        assert max(neighbours(placed).values()) <= MAX_NEIGHBOURS + 2
        assert gap(held(placed), labels) <= SLACK + 4


@given(
    number=st.integers(MANY_NODES, 40),
    steps=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 5)), min_size=1, max_size=3),
    down=st.sets(st.integers(1, 40), max_size=3),
)
def test_counts_stay_level_and_the_answer_repeats(number, steps, down) -> None:
    nodes = range(1, number + 1)
    live = [node for node in nodes if node not in down]
    placed: list[tuple[int, ...]] = []
    for partitions, replicas in steps:
        found = place(partitions, replicas, nodes, live, loads(placed))
        assert found == place(partitions, replicas, nodes[::-1], live[::-1], loads(placed))
        assert all(len({*one}) == replicas and {*one} <= {*live} for one in found)
        placed += found
    counts = held(placed)
    least = min(counts[node] for node in live)
    assert gap(counts, live) <= max(SLACK, least // 8) + 1


@given(
    placed=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True), max_size=30),
    data=st.data(),
)
def test_loads_count_neighbours(placed, data) -> None:
    made = loads(placed)
    gone = data.draw(st.lists(st.sampled_from(range(len(placed))), unique=True)) if placed else []
    for number in gone:
        made.add(placed[number], times=-1)
    left = [nodes for number, nodes in enumerate(placed) if number not in gone]
    assert +made.neighbours == +neighbours(left)
    assert +made.copy().neighbours == +made.neighbours


def test_a_new_node_gets_the_next_replicas_and_few_neighbours() -> None:
    nodes = range(1, 41)
    placed = in_steps(nodes, 400, 20)
    more = place(20, 3, range(1, 42), range(1, 42), loads(placed))
    assert all(41 in one for one in more)
    assert neighbours(more)[41] <= MAX_NEIGHBOURS
    apart = place(20, 3, range(1, 42), range(1, 42), loads(placed, 0))
    assert neighbours(apart)[41] > MAX_NEIGHBOURS, "without the limit"


def test_a_lost_nodes_replicas_go_to_neighbours_of_those_that_stay() -> None:
    nodes = range(1, 41)
    placed = in_steps(nodes, 400, 400)
    left = range(2, 41)

    def after(most: int) -> Placed:
        topic = TopicState("t", 1, tuple(state(placed)), TopicSettings(), 0)
        targets = {record.group_id: list(record.placed) for record in topic.partitions}
        found = moves([topic], left, {1}, left, Spread(), loads(placed, most))
        targets |= {record.group_id: target for record, target in found}
        assert len(found) == held(placed)[1]
        return [*targets.values()]

    few, many = after(MAX_NEIGHBOURS), after(0)
    assert sum(neighbours(few).values()) <= sum(neighbours(placed).values())
    assert sum(neighbours(few).values()) < sum(neighbours(many).values())
    assert gap(held(few), left) <= SLACK + 4


def test_more_replicas_go_to_neighbours() -> None:
    nodes = range(1, 41)
    placed = in_steps(nodes, 200, 200)
    topic = TopicState("t", 1, tuple(state(placed)), TopicSettings(), 0)
    grown = [target for _, target in resized(topic, 4, nodes, nodes, {}, loads(placed))]
    apart = [target for _, target in resized(topic, 4, nodes, nodes, {}, loads(placed, 0))]
    assert len(grown) == 200
    assert sum(neighbours(grown).values()) < sum(neighbours(apart).values())


def test_a_balance_ends_level_with_the_fewest_moves_and_fewer_neighbours() -> None:
    """Five nodes came to forty."""
    placed = in_steps(range(1, 41), 400, 400)
    nodes = range(1, 46)

    def balanced(most: int) -> Placed:
        records, moved = state(placed), 0
        for _ in range(100):
            now = loads((one.replicas for one in records), most)
            found = plan(records, nodes, {}, 50, Spread(), now)
            assert len(found) <= 50
            if not found:
                break
            targets = {record.group_id: tuple(target) for record, target in found}
            moved += sum(len({*target} - {*record.replicas}) for record, target in found)
            records = [
                PartitionState(one.group_id, targets.get(one.group_id, one.replicas))
                for one in records
            ]
        else:
            raise AssertionError("it does not end")
        counts = held([one.replicas for one in records])
        assert gap(counts, nodes) <= 1
        had = held(placed)
        assert moved == sum(max(0, had[node] - counts[node]) for node in nodes)
        return [one.replicas for one in records]

    few, many = balanced(MAX_NEIGHBOURS), balanced(0)
    assert sum(neighbours(few).values()) < sum(neighbours(many).values())


@pytest.mark.parametrize(
    ("number", "features", "most"),
    [
        (MANY_NODES, {METADATA_LEARNERS}, MAX_NEIGHBOURS),
        (MANY_NODES - 1, {METADATA_LEARNERS}, 0),
        (MANY_NODES, set(), 0),
    ],
)
def test_the_limit_is_for_large_clusters_with_the_feature(
    number: int, features: set[str], most: int
) -> None:
    tables = Tables(finalized=Finalized(3, frozenset(features)))
    tables.nodes |= {node: f"host:{node}" for node in range(1, number + 1)}
    assert NodesView(tables).loads.most_neighbours == most
