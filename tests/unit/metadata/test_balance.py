"""The balance: which replicas move, how few, and that it ends."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.metadata.balance import MIN_SLACK, plan
from cluster.metadata.topics import PartitionState

MANY = 10_000
GB = 2**30


def state(*placed: tuple[int, ...]) -> list[PartitionState]:
    return [PartitionState(16 + number, nodes) for number, nodes in enumerate(placed)]


def carried_out(records, moves) -> list[PartitionState]:
    targets = {record.group_id: tuple(target) for record, target in moves}
    return [
        PartitionState(one.group_id, targets.get(one.group_id, one.replicas)) for one in records
    ]


def counts(records, at=slice(None)) -> Counter:
    return Counter(node for one in records for node in one.replicas[at])


def come(moves) -> int:
    return sum(len({*target} - {*record.replicas}) for record, target in moves)


@pytest.mark.parametrize(
    ("records", "nodes", "moved", "held"),
    [
        ([], [1, 2], 0, {}),
        (state((1, 2, 3)), [1, 2, 3, 4], 0, {1: 1, 2: 1, 3: 1}),
        # A new node gets a fourth of twelve.
        (state(*[(1, 2, 3)] * 4), [1, 2, 3, 4], 3, {1: 3, 2: 3, 3: 3, 4: 3}),
        (state(*[(1,)] * 6), [1, 2, 3], 4, {1: 2, 2: 2, 3: 2}),
        # A node that does not answer gives nothing and gets nothing.
        (state(*[(1, 2)] * 4), [2, 3], 2, {1: 4, 2: 2, 3: 2}),
        (state(*[(1, 2)] * 4), [], 0, {1: 4, 2: 4}),
    ],
)  # fmt: skip
def test_counts(records, nodes, moved, held) -> None:
    moves = plan(records, nodes, {}, MANY)
    assert come(moves) == moved
    assert counts(carried_out(records, moves)) == held


def test_leaders_go_without_a_copy() -> None:
    records = state(*[(1, 2, 3)] * 6)
    moves = plan(records, [1, 2, 3], {}, MANY)
    assert come(moves) == 0
    assert counts(carried_out(records, moves), slice(1)) == {1: 2, 2: 2, 3: 2}


def test_of_equal_counts_bytes_are_levelled_by_exchange() -> None:
    records = state((1,), (1,), (2,), (2,))
    sizes = {16: 10 * GB, 17: 6 * GB, 18: GB, 19: GB}
    moves = plan(records, [1, 2], sizes, MANY)
    after = carried_out(records, moves)
    assert counts(after) == {1: 2, 2: 2}
    assert [one.replicas for one in after] == [(1,), (2,), (1,), (2,)] or come(moves) == 2
    assert not plan(after, [1, 2], sizes, MANY)


@pytest.mark.parametrize("small", [0, MIN_SLACK // 2])
def test_what_is_not_worth_a_copy_stays(small: int) -> None:
    records = state((1,), (2,))
    assert not plan(records, [1, 2], {16: small, 17: 0}, MANY)


def test_the_large_ones_move_if_that_levels_the_bytes() -> None:
    records = state((1,), (1,), (1,), (1,))
    sizes = {16: 8 * GB, 17: GB, 18: GB, 19: 6 * GB}
    after = carried_out(records, plan(records, [1, 2], sizes, MANY))
    held = {node: sum(sizes[o.group_id] for o in after if node in o.replicas) for node in (1, 2)}
    assert sorted(held.values()) in ([7 * GB, 9 * GB], [8 * GB, 8 * GB])


def test_what_moves_or_was_lost_is_not_moved_anew() -> None:
    busy = PartitionState(16, (1, 2), target=(1, 3))
    lost = PartitionState(17, (1, 2), lost=((2, 0),))
    moves = plan([busy, lost, *state((1, 2))[1:]], [1, 2, 3, 4], {}, MANY)
    assert not {16, 17} & {record.group_id for record, _ in moves}
    assert counts([PartitionState(16, busy.target)]) == {1: 1, 3: 1}


def test_a_limit_is_kept_and_leaders_wait() -> None:
    records = state(*[(1, 2)] * 20)
    moves = plan(records, [1, 2, 3, 4], {}, 5)
    assert come(moves) == len(moves) == 5
    assert not plan(records, [1, 2, 3, 4], {}, 0)


clusters = st.integers(1, 7).flatmap(
    lambda nodes: st.tuples(
        st.just(nodes),
        st.lists(
            st.lists(st.integers(1, nodes), min_size=1, max_size=min(3, nodes), unique=True).map(
                tuple
            ),
            max_size=40,
        ),
        st.sets(st.integers(1, nodes)),
        st.integers(0, 2**32),
    )
)


@given(clusters)
def test_any_cluster_ends_level_with_the_fewest_moves(drawn) -> None:
    number, placed, down, seed = drawn
    records, rng = state(*placed), random.Random(seed)
    nodes = sorted({*range(1, number + 1)} - down)
    moves = plan(records, nodes, {}, MANY)
    after = carried_out(records, moves)
    for before, now in zip(records, after, strict=True):
        assert len(now.replicas) == len(before.replicas) == len({*now.replicas})
        assert {*now.replicas} - {*before.replicas} <= {*nodes}
        assert {*before.replicas} - {*now.replicas} <= {*nodes}, "of nodes that are down none goes"
    held, led = counts(after), counts(after, slice(1))
    assert all(held[a] - held[b] <= 1 for a in nodes for b in nodes)
    # The fewest moves: no node both gives and takes.
    had = counts(records)
    assert come(moves) == sum(max(0, had[node] - held[node]) for node in nodes)
    least = sum(had[node] for node in nodes) // len(nodes) if nodes else 0
    assert come(moves) >= sum(max(0, had[node] - least - 1) for node in nodes)
    assert not plan(after, nodes, {}, MANY), "what is level stays as it is"
    assert sum(led.values()) == len(placed)
    # In steps, in any order, with sizes that grow: it ends as level.
    sizes = {one.group_id: rng.randrange(GB) for one in records}
    for _ in range(200):
        some = plan(records, nodes, sizes, rng.randint(1, 6))
        if not some:
            break
        records = carried_out(records, rng.sample(some, rng.randint(1, len(some))))
    else:
        raise AssertionError("it does not end")
    held = counts(records)
    assert all(held[a] - held[b] <= 1 for a in nodes for b in nodes)


@given(clusters)
def test_bytes_never_get_less_level(drawn) -> None:
    number, placed, _, seed = drawn
    records, rng = state(*placed), random.Random(seed)
    nodes = list(range(1, number + 1))
    records = carried_out(records, plan(records, nodes, {}, MANY))
    sizes = {one.group_id: int(GB * rng.paretovariate(1)) for one in records}

    def spread(of) -> int:
        held = Counter(dict.fromkeys(nodes, 0))
        for one in of:
            for node in one.replicas:
                held[node] += sizes[one.group_id]
        return max(held.values()) - min(held.values())

    after = carried_out(records, plan(records, nodes, sizes, MANY))
    assert spread(after) <= spread(records)
    assert not plan(after, nodes, sizes, MANY)
