"""Placement: spread, balanced leaders, living nodes first, the same answer every time."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.metadata.node_loads import NodeLoads
from cluster.metadata.placement import place
from cluster.metadata.tables import Tables
from cluster.metadata.topics import PartitionState, Rejected, TopicSettings, TopicState


def topic(name: str, first_group: int, placed: list[tuple[int, ...]]) -> TopicState:
    partitions = tuple(PartitionState(first_group + i, nodes) for i, nodes in enumerate(placed))
    return TopicState(name, first_group, partitions, TopicSettings(), 0)


def held(*topics: TopicState) -> NodeLoads:
    """Replicas of these topics on each node."""
    tables = Tables()
    for one in topics:
        tables.put_topic(one)
    return tables.loads


def spread(counts: Counter, nodes) -> int:
    return max(counts[n] for n in nodes) - min(counts[n] for n in nodes)


def test_three_of_three_nodes_lead_two_of_six_partitions_each():
    placed = place(6, 3, [1, 2, 3], [1, 2, 3], held())
    assert Counter(nodes[0] for nodes in placed) == {1: 2, 2: 2, 3: 2}
    assert all(sorted(nodes) == [1, 2, 3] for nodes in placed)


def test_a_second_topic_evens_out_what_the_first_left_uneven():
    first = topic("a", 16, place(4, 1, [1, 2, 3], [1, 2, 3], held()))
    second = place(5, 1, [1, 2, 3], [1, 2, 3], held(first))
    total = Counter(p.replicas[0] for p in first.partitions) + Counter(n[0] for n in second)
    assert total == {1: 3, 2: 3, 3: 3}


def test_a_new_node_gets_the_next_replicas():
    old = topic("a", 16, place(10, 2, [1, 2], [1, 2], held()))
    assert all(nodes == (3,) for nodes in place(5, 1, [1, 2, 3], [1, 2, 3], held(old)))


def test_pairs_differ_so_that_a_lost_nodes_work_spreads():
    placed = place(12, 2, [1, 2, 3, 4], [1, 2, 3, 4], held())
    pairs = Counter(tuple(sorted(nodes)) for nodes in placed)
    assert len(pairs) == 6
    assert set(pairs.values()) == {2}


def test_dead_nodes_are_taken_last_and_never_preferred():
    assert all(3 not in nodes for nodes in place(6, 2, [1, 2, 3], [1, 2], held()))
    placed = place(6, 3, [1, 2, 3], [1, 3], held())
    assert Counter(nodes[0] for nodes in placed) == {1: 3, 3: 3}
    assert all(nodes[-1] == 2 for nodes in placed)


def test_leaderships_are_passed_on_to_who_has_none():
    """Chosen one by one, node 5 led three of these and node 8 none; they share no partition."""
    placed = place(18, 2, range(1, 13), range(1, 13), held())
    assert spread(Counter(p[0] for p in placed), range(1, 13)) == 1


@pytest.mark.parametrize(
    ("partitions", "replicas", "text"),
    [
        (0, 1, "partitions: 0 must be 1..1000"),
        (1001, 1, "partitions: 1001 must be 1..1000"),
        (1, 0, "replicas: 0 must be 1..9"),
        (1, 10, "replicas: 10 must be 1..9"),
        (1, 4, "replicas: 4 must be at most the number of nodes, 3"),
    ],
)
def test_numbers_that_do_not_fit(partitions, replicas, text):
    with pytest.raises(Rejected, match=text):
        place(partitions, replicas, [1, 2, 3], [1, 2, 3], held())


@given(
    nodes=st.sets(st.integers(1, 40), min_size=1, max_size=12),
    partitions=st.integers(1, 60),
    data=st.data(),
)
def test_any_cluster_is_balanced_and_the_answer_repeats(nodes, partitions, data):
    replicas = data.draw(st.integers(1, min(9, len(nodes))))
    placed = place(partitions, replicas, nodes, nodes, held())
    assert placed == place(partitions, replicas, sorted(nodes, reverse=True), nodes, held())
    assert all(len(set(p)) == replicas and set(p) <= nodes for p in placed)
    assert spread(Counter(chain.from_iterable(placed)), nodes) <= 1
    assert spread(Counter(p[0] for p in placed), nodes) <= 2
