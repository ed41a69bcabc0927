"""Which nodes vote on the metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.metadata.places import NodePlace, Spread
from cluster.metadata.voters import FEW, MOST, wanted

NINE = range(1, 10)
NOWHERE = Spread()


def test_up_to_five_nodes_all_vote() -> None:
    assert wanted((5, 1, 4, 2, 3), (1, 2), (1,), NOWHERE) == (1, 2, 3, 4, 5)


def test_those_that_vote_stay() -> None:
    assert wanted(NINE, (2, 4, 6, 8, 9), NINE, NOWHERE) == (2, 4, 6, 8, 9)
    assert wanted(NINE, (2, 4, 6, 8), NINE, NOWHERE) == (1, 2, 4, 6, 8), "one is missing"


def test_a_silent_one_is_replaced() -> None:
    living = {*NINE} - {4}
    assert wanted(NINE, (2, 4, 6, 8, 9), living, NOWHERE) == (1, 2, 6, 8, 9)
    assert wanted(NINE, (2, 4, 6, 8, 9), {2, 9}, NOWHERE) == (2, 4, 6, 8, 9), "by nobody"


@pytest.mark.parametrize(("machines", "votes"), [(2, FEW), (4, FEW), (5, MOST), (12, MOST)])
def test_fewer_machines_have_fewer_votes(machines: int, votes: int) -> None:
    nodes = range(1, 13)
    places = {node: NodePlace(machine=f"m{node % machines}") for node in nodes}
    chosen = wanted(nodes, nodes, nodes, Spread(places))
    assert len(chosen) == votes
    assert len({places[node] for node in chosen}) == min(machines, votes)


def test_racks_come_first() -> None:
    places = {node: NodePlace("abc"[node % 3]) for node in NINE}
    spread = Spread(places)
    chosen = wanted(NINE, (3, 6, 9, 1, 2), NINE, spread)
    assert not spread.cost(chosen)[0], "no rack has a majority"


places = st.dictionaries(
    st.integers(1, 20),
    st.builds(NodePlace, st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["", "m", "n"])),
    min_size=1,
)


@given(places, st.sets(st.integers(1, 20)), st.sets(st.integers(1, 20)))
def test_a_choice_is_the_next_ones_choice(
    labels: dict[int, NodePlace], voters: set[int], living: set[int]
) -> None:
    spread = Spread(labels)
    chosen = wanted(labels, voters, living, spread)
    assert wanted(labels, chosen, living, spread) == chosen, "else votes would move for ever"
    assert len(chosen) % 2 or len(labels) <= MOST
