"""The verdict table through the raw API: by one leader, and by its successor after kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from harness.api import CALL_TIMEOUT, Batch, Result, batch, verdict
from harness.local_cluster import LocalCluster
from harness.replicas import ReplicaView, compare, view
from oncelog.v1 import cluster_pb2, log_pb2
from tests.integration.conftest import STEADY
from tests.integration.log.verdict_rows import ROWS, Expected, Maker, Row, prepare
from tests.integration.waiting import eventually

IDS = [row.name.replace(" ", "-") for row in ROWS]


def check(result: Result, expected: Expected, maker: Maker) -> None:
    """Compares the fields that the row names; of a message, a part."""
    for name, wanted in expected.items():
        got = verdict(result) if name == "verdict" else getattr(result, name)
        if name == "message":
            assert wanted in got, result
        elif isinstance(wanted, set):
            assert got in wanted, result
        else:
            assert got == (maker.epoch if wanted == "epoch" else wanted), (name, result)


def store(cluster: LocalCluster, batches: list[Batch]) -> None:
    for one in batches:
        result = cluster.produce(one)
        assert verdict(result) == "APPENDED", result


def leader_view(cluster: LocalCluster, topic: str) -> ReplicaView:
    node = cluster.leader(topic, 0)
    return view(cluster.api(node), 0, topic, 0)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_row(cluster: LocalCluster, topic: str, row: Row) -> None:
    maker = prepare(cluster.api(1), row, topic)
    store(cluster, row.before(maker))
    request = row.request(maker)
    before = leader_view(cluster, topic)
    check(cluster.produce(request), row.answer, maker)
    between = leader_view(cluster, topic)
    if row.answer["verdict"] != "APPENDED":
        assert between == before, "a batch that was not appended changed something"
    check(cluster.produce(request), row.again, maker)
    if row.again["verdict"] != "APPENDED":
        assert leader_view(cluster, topic) == between, "the repeated batch changed something"
    cluster.wait_level(topic)
    assert compare({n: cluster.api(n) for n in cluster.nodes}, topic, [0]) == []


# -- the same rows, the leader killed between a request and its retry --------------------------


@dataclass(slots=True)
class Asked:
    """A row's request, its two answers, and the partition's state in between."""

    maker: Maker
    request: Batch
    first: Result
    held: ReplicaView
    second: Result | None = None
    leader: int = 0
    successor: int = 0


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Asked]]:
    """All rows asked; then each node killed once, and its rows asked again at once."""
    # A killed leader must not get its partitions back before its rows are asked.
    with LocalCluster(tmp_path_factory.mktemp("killed"), settings=STEADY) as cluster:
        rows: dict[str, Asked] = {}
        for number, row in enumerate(ROWS):
            maker = prepare(cluster.api(1), row, f"row-{number}")
            store(cluster, row.before(maker))
            request = row.request(maker)
            leader = cluster.leader(maker.topic, 0)
            (first,) = cluster.api(leader).produce_stream(request)
            held = leader_view(cluster, maker.topic)
            rows[row.name] = Asked(maker, request, first, held, leader=leader)
        for node in cluster.nodes:
            cluster.kill([node])
            for one in rows.values():
                if one.leader == node:
                    one.second = cluster.produce(one.request, stream=True)
                    one.successor = cluster.leader(one.maker.topic, 0)
            cluster.start_nodes([node])
            for one in rows.values():
                cluster.wait_level(one.maker.topic)
        apis = {node: cluster.api(node) for node in cluster.nodes}
        topics = [one.maker.topic for one in rows.values()]
        assert [text for topic in topics for text in compare(apis, topic, [0])] == []
        yield rows


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_row_with_the_leader_killed_before_the_retry(row: Row, asked: dict[str, Asked]) -> None:
    one = asked[row.name]
    check(one.first, row.answer, one.maker)
    assert one.successor not in (0, one.leader)
    assert one.second is not None
    check(one.second, row.again, one.maker)


def test_rows_were_led_by_all_nodes(asked: dict[str, Asked]) -> None:
    assert {one.leader for one in asked.values()} == {1, 2, 3}


# -- beyond a table of single batches ----------------------------------------------------------


def test_the_same_batch_in_flight_is_joined(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid = cluster.api(1).lease().producer_id
    leader = cluster.api(cluster.leader(topic, 0))
    cluster.produce(batch(topic, 0, 0, 0, b"another producer's"))
    first = batch(topic, 0, pid, 0, b"x" * 500_000, count=5)
    results = leader.produce(first, first, first)
    assert sorted(map(verdict, results)) == ["APPENDED", "DUPLICATE", "DUPLICATE"]
    assert {result.base_offset for result in results} == {1}
    assert leader.offset(topic, 0, "latest") == 6


def test_out_of_order_calls_wait_for_their_predecessor(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid = cluster.api(1).lease().producer_id
    leader = cluster.api(cluster.leader(topic, 0))
    cluster.produce(batch(topic, 0, pid, 0, b"0"))
    calls = [
        leader.log.Produce.future(
            log_pb2.ProduceRequest(batches=[batch(topic, 0, pid, sequence, b"%d" % sequence)]),
            timeout=CALL_TIMEOUT,
        )
        for sequence in (3, 2, 1)
    ]
    results = [call.result().results[0] for call in calls]
    assert [verdict(result) for result in results] == ["APPENDED"] * 3
    assert [result.base_offset for result in results] == [3, 2, 1]


def test_a_stream_keeps_the_order_and_answers_each_batch(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid = cluster.api(1).lease().producer_id
    leader = cluster.api(cluster.leader(topic, 0))
    cluster.produce(batch(topic, 0, pid, 0, b"0"))
    sent = [batch(topic, 0, pid, n, b"%d" % n, batch_id=n) for n in range(1, 301)]
    sent.append(batch(topic, 0, pid, 7, b"7", batch_id=1007))  # a retry
    sent.append(batch(topic, 0, pid, 400, b"gap", batch_id=1400))
    results = {result.id: result for result in leader.produce_stream(*sent)}
    assert len(results) == len(sent)
    for n in range(1, 301):
        assert (verdict(results[n]), results[n].base_offset) == ("APPENDED", n)
    assert (verdict(results[1007]), verdict(results[1400])) == ("DUPLICATE", "OUT_OF_ORDER")


def test_several_partitions_in_one_call(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 6, 3)
    pid = cluster.api(1).lease().producer_id
    leaders = [cluster.leader(topic, part) for part in range(6)]  # that are ready
    leader = leaders[0]
    results = cluster.api(leader).produce(
        *(batch(topic, part, pid, 0, b"x", batch_id=part + 10) for part in range(6))
    )
    for part, result in enumerate(results):
        assert result.id == part + 10
        assert verdict(result) == ("APPENDED" if leaders[part] == leader else "NOT_LEADER")


def answer_of(cluster: LocalCluster, node: int, topic: str) -> log_pb2.BatchResult:
    (result,) = cluster.api(node).produce(batch(topic, 0, 0, 0, b"x"))
    return result


def test_the_wrong_node_names_the_leader(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    leader = cluster.leader(topic, 0)
    for node in [node for node in cluster.nodes if node != leader]:
        # The node may not have heard of the election yet, and then names nobody.
        eventually(lambda: answer_of(cluster, node, topic).leader_id != 0, "it knows who leads")  # noqa: B023
        result = answer_of(cluster, node, topic)
        assert verdict(result) == "NOT_LEADER"
        assert result.leader_id == leader
        assert result.leader_address == cluster.addresses[leader]


def test_a_node_without_a_replica_names_the_leader(cluster: LocalCluster, topic: str) -> None:
    info = cluster.api(1).create_topic(topic, 1, 1)
    (replica,) = info.partitions[0].replicas
    assert cluster.leader(topic, 0) == replica  # it answers from now on
    for node in cluster.nodes:
        (result,) = cluster.api(node).produce(batch(topic, 0, 0, 0, b"x"))
        if node == replica:
            assert verdict(result) == "APPENDED"
        else:
            assert (verdict(result), result.leader_id) == ("NOT_LEADER", replica)


@pytest.mark.parametrize(
    ("name", "partition"), [("no-such-topic", 0), ("exists", 99), ("exists", -1)]
)
def test_unknown_topic_or_partition(cluster: LocalCluster, name: str, partition: int) -> None:
    names = {
        topic.name
        for topic in cluster.api(1)
        .cluster.DescribeTopics(cluster_pb2.DescribeTopicsRequest())
        .topics
    }
    if "exists" not in names:
        cluster.api(1).create_topic("exists", 2, 3)
    for node in cluster.nodes:
        (result,) = cluster.api(node).produce(batch(name, partition, 0, 0, b"x"))
        assert verdict(result) == "UNKNOWN_TOPIC_OR_PARTITION"
        records = cluster.api(node).fetch(name, partition, 0)
        assert records.error == log_pb2.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION


def test_resolve_sequence(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid = cluster.api(1).lease().producer_id
    store(cluster, [batch(topic, 0, pid, 0, b"a", count=4), batch(topic, 0, pid, 4, b"b")])
    leader = cluster.api(cluster.leader(topic, 0))

    def resolve(sequence: int, epoch: int = 0) -> log_pb2.ResolveSequenceResponse:
        answer: log_pb2.ResolveSequenceResponse = leader.log.ResolveSequence(
            log_pb2.ResolveSequenceRequest(
                topic=topic, partition=0, producer_id=pid, epoch=epoch, sequence=sequence
            ),
            timeout=CALL_TIMEOUT,
        )
        return answer

    committed = resolve(2)
    assert committed.resolution == log_pb2.RESOLUTION_COMMITTED
    assert (committed.offset, committed.last_sequence) == (2, 4)
    assert resolve(5).resolution == log_pb2.RESOLUTION_NOT_YET
