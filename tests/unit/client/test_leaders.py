"""A client's view of leaders when nodes disagree, and the node it asks next."""

from __future__ import annotations

from oncelog._engine.net.cluster import Cluster
from oncelog._engine.net.leaders import LeaderCache
from oncelog.config import ProducerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import cluster_pb2

TP = TopicPartition("t", 0)
NODES = {1: "a:1", 2: "b:2", 3: "c:3"}


def answer(leader: int, term: int, topic_id: int = 5) -> cluster_pb2.DescribeTopicsResponse:
    info = cluster_pb2.PartitionInfo(partition=0, leader_id=leader, term=term, replicas=NODES)
    return cluster_pb2.DescribeTopicsResponse(
        topics=[cluster_pb2.TopicInfo(name="t", topic_id=topic_id, partitions=[info])],
        nodes=[cluster_pb2.NodeInfo(node_id=n, address=at) for n, at in NODES.items()],
    )


def sized(partitions: int, topic_id: int = 5) -> cluster_pb2.DescribeTopicsResponse:
    infos = [
        cluster_pb2.PartitionInfo(partition=n, leader_id=1, term=1, added_ms=9 if n > 2 else 0)
        for n in range(partitions)
    ]
    return cluster_pb2.DescribeTopicsResponse(
        topics=[cluster_pb2.TopicInfo(name="t", topic_id=topic_id, partitions=infos)],
        nodes=[cluster_pb2.NodeInfo(node_id=1, address="a:1")],
    )


def test_a_count_of_partitions_is_taken_over_whole_and_never_falls() -> None:
    leaders = LeaderCache()
    leaders.update(sized(3))
    seen = leaders.topics["t"].partitions
    leaders.update(sized(6))
    assert len(seen) == 3, "who has taken it up places all keys by three"
    assert [one.added for one in leaders.topics["t"].partitions] == [False] * 3 + [True] * 3
    leaders.update(sized(3))
    assert len(leaders.topics["t"].partitions) == 6, "that node is behind"
    leaders.update(sized(2, topic_id=6))
    assert len(leaders.topics["t"].partitions) == 2, "another topic"


def test_the_higher_term_is_believed() -> None:
    leaders = LeaderCache()
    assert leaders.update(answer(1, term=3)) == [TP]
    assert leaders.update(answer(2, term=2)) == []
    assert leaders.address(TP) == "a:1"
    assert leaders.update(answer(2, term=4)) == [TP]
    assert leaders.address(TP) == "b:2"


def test_a_hint_lasts_until_it_leads_nowhere() -> None:
    """A hint names no term. A node that refused does not lead again in the same term."""
    leaders = LeaderCache()
    leaders.update(answer(1, term=3))
    assert leaders.hint(TP, 2, "b:2")
    assert leaders.update(answer(3, term=2)) == []
    assert leaders.address(TP) == "b:2"
    assert leaders.update(answer(1, term=3)) == [], "it has refused"
    assert leaders.address(TP) == "b:2"
    leaders.suspect(TP)  # the second refuses, too, and names nobody
    assert leaders.address(TP) == "b:2"
    assert leaders.update(answer(1, term=3)) == [TP], "nobody else leads in that term"
    assert leaders.address(TP) == "a:1"
    assert leaders.update(answer(2, term=3)) == [], "one leader in a term"


def test_what_nodes_say_of_the_same_term_takes_the_place_of_a_hint() -> None:
    leaders = LeaderCache()
    leaders.update(answer(1, term=3))
    leaders.hint(TP, 2, "b:2")
    assert leaders.update(answer(3, term=3)) == [TP]
    assert leaders.address(TP) == "c:3"
    assert leaders.update(answer(2, term=3)) == [], "one leader in a term"


def test_a_topic_made_anew_is_not_taken_back() -> None:
    leaders = LeaderCache()
    leaders.update(answer(1, term=30))
    leaders.update(answer(2, term=1, topic_id=6))
    assert (leaders.topics["t"].topic_id, leaders.address(TP)) == (6, "b:2")
    assert leaders.update(answer(1, term=30)) == []
    assert (leaders.topics["t"].topic_id, leaders.address(TP)) == (6, "b:2")


def test_nodes_that_were_avoided_are_asked_last() -> None:
    cluster = Cluster(ProducerConfig(bootstrap_servers=tuple(NODES.values())))
    first = cluster.addresses()[0]
    cluster.avoid(first)
    second = cluster.addresses()[0]
    assert cluster.addresses()[-1] == first
    cluster.prefer_another()
    third = cluster.addresses()[0]
    assert {first, second, third} == set(NODES.values()), "before one is asked again"
    assert cluster.addresses() == [third, first, second]
    cluster.prefer_another()
    assert cluster.addresses() == [first, second, third]


def test_a_partition_is_available_while_its_leader_is_known_and_can_be_reached() -> None:
    leaders = LeaderCache()
    leaders.update(answer(1, term=3))
    assert leaders.is_available(TP)
    leaders.forget(TP, "a:1")
    assert not leaders.is_available(TP)
    leaders.update(answer(1, term=3))
    leaders.unreachable.add("a:1")
    assert not leaders.is_available(TP)
    leaders.update(answer(2, term=4))
    assert leaders.is_available(TP), "another one leads"
    assert leaders.lacking() == (set(), set()), "nobody needs the first one"


def test_a_partition_for_which_a_node_names_nobody_is_not_available() -> None:
    leaders = LeaderCache()
    leaders.update(answer(1, term=3))
    leaders.update(answer(0, term=2))
    assert leaders.is_available(TP), "that node is behind"
    leaders.update(answer(0, term=3))
    assert not leaders.is_available(TP)
    assert leaders.address(TP) == "a:1", "that node may be the one that is cut off"
    assert leaders.lacking() == ({"t"}, set())
    leaders.hint(TP, 2, "b:2")
    assert leaders.is_available(TP)
    leaders.update(answer(0, term=4))
    assert not leaders.is_available(TP)
    leaders.update(answer(3, term=5))
    assert leaders.is_available(TP)


def test_a_topic_made_anew_begins_with_nothing_known_of_its_leaders() -> None:
    leaders = LeaderCache()
    leaders.update(answer(0, term=3))
    leaders.update(answer(1, term=1, topic_id=6))
    assert leaders.is_available(TP)
