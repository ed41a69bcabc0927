"""Racks and machines: replicas stay spread in every placement, compared with all other choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.metadata.balance import plan
from cluster.metadata.node_loads import NodeLoads
from cluster.metadata.placement import place, resized
from cluster.metadata.places import NodePlace, Spread
from cluster.metadata.topics import OFFSETS_TOPIC, PartitionState, TopicSettings, TopicState
from cluster.node.replicas.node_changes import internal_growth, moves

MANY = 10_000
Labels = Mapping[int, NodePlace]


def badness(labels: Labels, replicas: Sequence[int]) -> tuple[int, int, int]:
    """How badly they are spread: those beyond half in one rack; pairs on machines, in racks."""

    def rack(node: int) -> object:
        place = labels.get(node, NodePlace())
        return place.rack or (place.machine and [place.machine]) or node

    def machine(node: int) -> object:
        place = labels.get(node, NodePlace())
        return place.machine or node

    same = [(a, b) for a, b in combinations(replicas, 2) if rack(a) == rack(b)]
    most = max(sum(rack(one) == rack(other) for other in replicas) for one in replicas)
    beyond = max(0, most - len(replicas) // 2) if len(replicas) > 1 else 0
    return beyond, sum(machine(a) == machine(b) for a, b in same), len(same)


def best(
    labels: Labels, kept: Iterable[int], among: Iterable[int], count: int
) -> tuple[int, int, int]:
    """The least badness of any set that holds `kept`."""
    left = sorted({*among} - {*kept})
    more = count - len({*kept})
    return min(badness(labels, (*kept, *some)) for some in combinations(left, more))


@st.composite
def clusters(draw: st.DrawFn, low: int = 1) -> dict[int, NodePlace]:
    """Up to seven nodes; some labels are missing."""
    label = st.builds(
        NodePlace, st.sampled_from(("", "a", "b", "c", "d")), st.sampled_from(("", "", "m", "n"))
    )
    number = draw(st.integers(low, 7))
    return {node: draw(label) for node in range(1, number + 1)}


def state(placed: Iterable[Sequence[int]]) -> list[PartitionState]:
    return [PartitionState(16 + number, tuple(nodes)) for number, nodes in enumerate(placed)]


def topic(records: Sequence[PartitionState], name: str = "t") -> TopicState:
    return TopicState(name, 1, tuple(records), TopicSettings(), 0)


def loads(records: Iterable[PartitionState]) -> NodeLoads:
    made = NodeLoads()
    for record in records:
        made.add(record.placed)
    return made


def known(labels: Labels) -> Spread:
    """The spread over the nodes that have a label, as the metadata keeps them."""
    return Spread({node: label for node, label in labels.items() if any(label)})


def drawn(data: st.DataObject, nodes: Iterable[int], count: int = 0) -> list[tuple[int, ...]]:
    """Partitions anywhere, as they are before nodes have labels."""
    low, high = (count, count) if count else (1, min(5, len([*nodes])))
    one = st.lists(st.sampled_from(sorted(nodes)), min_size=low, max_size=high, unique=True)
    return data.draw(st.lists(one.map(tuple), min_size=1, max_size=6))


@given(labels=clusters(), data=st.data())
def test_new_partitions_are_spread_as_well_as_they_can_be(labels, data) -> None:
    live = data.draw(st.sets(st.sampled_from(sorted(labels))))
    count = data.draw(st.integers(1, len(labels)))
    for nodes in place(8, count, labels, live, NodeLoads(), known(labels)):
        first = live if len(live) >= count else labels
        if len(live) >= count:
            assert {*nodes} <= live
        kept = () if first is live else live
        assert badness(labels, nodes)[0] <= best(labels, kept, first, count)[0]
        if len(live) in (0, *range(count, 10)):
            assert badness(labels, nodes) == best(labels, (), first, count)


@given(labels=clusters(2), data=st.data())
def test_added_replicas_spread_what_is_kept(labels, data) -> None:
    records = state(drawn(data, labels))
    count = data.draw(st.integers(1, len(labels)))
    spread, held = known(labels), loads(records)
    for record, target in resized(topic(records), count, labels, labels, {}, held, spread):
        lead = record.replicas[0]
        if count > len(record.replicas):
            assert badness(labels, target) == best(labels, record.replicas, labels, count)
        else:
            assert badness(labels, target) == best(labels, (lead,), record.replicas, count)


@given(labels=clusters(2), data=st.data())
def test_a_leaving_nodes_replicas_go_where_they_spread(labels, data) -> None:
    gone = data.draw(st.sampled_from(sorted(labels)))
    left = sorted({*labels} - {gone})
    records = state(drawn(data, labels))
    for record, target in moves([topic(records)], left, {gone}, left, known(labels)):
        kept = [node for node in record.replicas if node != gone]
        assert badness(labels, target) == best(labels, kept, left, len(target))


@given(labels=clusters(2), data=st.data())
def test_internal_topics_grow_to_a_spread(labels, data) -> None:
    records = state(drawn(data, labels))
    for record, target in internal_growth(
        [topic(records, OFFSETS_TOPIC)], labels, 3, known(labels)
    ):
        assert badness(labels, target) == best(labels, record.replicas, labels, len(target))


@given(labels=clusters(), data=st.data())
def test_a_balance_spreads_all_partitions_and_ends(labels, data) -> None:
    records, spread = state(drawn(data, labels)), known(labels)
    down = data.draw(st.sets(st.sampled_from(sorted(labels)), max_size=2))
    nodes = sorted({*labels} - down)
    sizes = {one.group_id: data.draw(st.integers(0, 2**33)) for one in records}
    limit = data.draw(st.sampled_from((1, 3, MANY)))
    for _ in range(300):
        found = plan(records, nodes, sizes, limit, spread)
        assert len(found) <= limit + 1, "a swap is two"
        if not found:
            break
        targets = {record.group_id: tuple(target) for record, target in found}
        for record, target in found:
            assert badness(labels, target) <= badness(labels, record.replicas)
        records = [
            PartitionState(one.group_id, targets.get(one.group_id, one.replicas)) for one in records
        ]
    else:
        raise AssertionError("it does not end")
    for record in records:
        kept = down.intersection(record.replicas)
        assert badness(labels, record.replicas) == best(
            labels, kept, {*nodes, *kept}, len(record.replicas)
        )
    held = Counter(chain.from_iterable(one.replicas for one in records))
    for one, other in combinations(nodes, 2):
        if labels[one] == labels[other] == NodePlace(labels[one].rack) and labels[one].rack:
            assert abs(held[one] - held[other]) <= 1, "within a rack all can be exchanged"


@given(labels=clusters(2), data=st.data())
def test_labels_that_all_differ_change_nothing(labels, data) -> None:
    """No label, and a rack or a machine for each node, give the same placements and moves."""
    kind = data.draw(st.sampled_from(("rack", "machine")))
    own = Spread({node: NodePlace(**{kind: f"n{node}"}) for node in labels})
    records, live = state(drawn(data, labels)), data.draw(st.sets(st.sampled_from(sorted(labels))))
    held, count = loads(records), data.draw(st.integers(1, len(labels)))
    assert place(9, count, labels, live, held, own) == place(9, count, labels, live, held)
    size = resized(topic(records), count, labels, live, {}, held)
    assert resized(topic(records), count, labels, live, {}, held, own) == size
    assert plan(records, live, {}, MANY, own) == plan(records, live, {}, MANY)
    left = sorted({*labels} - {1})
    leaving = moves([topic(records)], left, {1}, live)
    assert moves([topic(records)], left, {1}, live, own) == leaving


@pytest.mark.parametrize("nodes", [6, 9, 30])
def test_three_racks_hold_alike(nodes: int) -> None:
    """As issue 35 measured: without racks 67 to 76 % had a majority in one."""
    labels = {node: NodePlace("abc"[node % 3]) for node in range(1, nodes + 1)}
    placed = place(600, 3, labels, labels, NodeLoads(), known(labels))
    assert not any(badness(labels, one)[0] for one in placed)
    held, led = Counter(chain.from_iterable(placed)), Counter(one[0] for one in placed)
    assert max(held.values()) - min(held.values()) <= 1
    assert max(led.values()) - min(led.values()) <= 2
    apart = place(600, 3, labels, labels, NodeLoads())
    assert sum(badness(labels, one)[0] > 0 for one in apart) > 300, "and without racks"


def test_a_machines_processes_share_no_partition() -> None:
    labels = {node: NodePlace("", f"m{node // 4}") for node in range(16)}
    placed = place(200, 3, labels, labels, NodeLoads(), known(labels))
    assert not any(badness(labels, one)[1] for one in placed)
    assert known(labels).fullest((0, 1, 4)) == "2 of its 3 replicas are in machine m0"


@pytest.mark.parametrize(
    ("racks", "rests"),
    [("aabb", False), ("aab", False), ("aabc", True), ("aabbc", False), ("aaabbcc", False),
     ("aaabbc", True), ("aabbcc", False), ("aabc--", False), ("aaabc--", False), ("----", False)],
)  # fmt: skip
def test_the_metadata_must_not_rest_on_one_rack(racks: str, rests: bool) -> None:
    labels = {node: NodePlace(rack) for node, rack in enumerate(racks) if rack != "-"}
    assert known(labels).rests_on_one(range(len(racks))) == rests
