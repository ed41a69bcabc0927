"""Where the partitions of a node go that leaves."""

from __future__ import annotations

from cluster.metadata.topics import PartitionState, TopicSettings, TopicState
from cluster.node.node_changes import MAX_MOVES, moves


def topic(*replicas: tuple[int, ...]) -> TopicState:
    partitions = tuple(PartitionState(16 + number, held) for number, held in enumerate(replicas))
    return TopicState("t", 1, partitions, TopicSettings(), 0)


def targets(found: list[tuple[PartitionState, list[int]]]) -> list[list[int]]:
    return [target for _, target in found]


def test_each_replica_goes_to_a_living_node_that_holds_the_fewest() -> None:
    held = topic((3, 1), (1, 3), (4, 1), (1, 2))
    assert targets(moves([held], (1, 2, 4), {3}, {1, 2, 4})) == [[2, 1], [1, 4]]
    # What is moved to a dead node waits for it, and the node that leaves for that.
    assert targets(moves([held], (1, 2, 4), {3}, {1, 4})) == [[4, 1], [1, 4]]
    assert targets(moves([held], (1, 2, 4), {3}, {1})) == [[2, 1], [1, 4]], "none other is there"


def test_nothing_moves_that_has_nowhere_to_go_and_not_too_much_at_once() -> None:
    assert not moves([topic((3, 1))], (1,), {3}, {1})
    many = topic(*[(3, 1)] * (MAX_MOVES + 20))
    assert len(moves([many], (1, 2), {3}, {1, 2})) == MAX_MOVES
