"""Fetch with and without waiting, Subscribe, ListOffsets, bounds."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import grpc
import pytest

from harness.api import CALL_TIMEOUT, Api, as_call, batch, verdict
from harness.local_cluster import LocalCluster
from oncelog.v1 import log_pb2
from tests.integration.conftest import MakeCluster

WAIT_MS = 15_000


@pytest.fixture
def leader(cluster: LocalCluster, topic: str) -> Api:
    """The leader of the test's own topic."""
    cluster.api(1).create_topic(topic, 1, 3)
    return cluster.api(cluster.leader(topic, 0))


def write(leader: Api, topic: str, payload: bytes, count: int = 1) -> int:
    (result,) = leader.produce(batch(topic, 0, 0, 0, payload, count=count))
    assert verdict(result) == "APPENDED", result
    return result.base_offset


def test_fetch_gives_whole_batches_within_its_limit(leader: Api, topic: str) -> None:
    for number in range(10):
        write(leader, topic, b"%d" % number * 1000, count=3)
    records = leader.fetch(topic, 0, 4, max_bytes=2500)
    assert records.high_watermark == 30
    assert [b.base_offset for b in records.batches] == [3, 6], "the first holds offset 4"
    large = leader.fetch(topic, 0, 0, max_bytes=1)
    assert len(large.batches) == 1, "the first batch comes whatever its size"
    assert leader.fetch(topic, 0, 30).batches == []


@pytest.mark.parametrize("offset", [-1, 2, 10**12])
def test_fetch_out_of_range(leader: Api, topic: str, offset: int) -> None:
    write(leader, topic, b"x")
    records = leader.fetch(topic, 0, offset)
    assert records.error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
    assert str(offset) in records.message


def test_a_long_poll_is_answered_by_the_next_batch(leader: Api, topic: str) -> None:
    write(leader, topic, b"old")
    request = log_pb2.FetchRequest(
        partitions=[log_pb2.PartitionFetch(topic=topic, partition=0, offset=1)],
        min_bytes=1,
        max_wait_ms=WAIT_MS,
    )
    call = leader.log.Fetch.future(request, timeout=CALL_TIMEOUT)
    write(leader, topic, b"new")
    (records,) = call.result().partitions
    assert [b.payload for b in records.batches] == [b"new"]


def test_a_long_poll_waits_for_min_bytes(leader: Api, topic: str) -> None:
    request = log_pb2.FetchRequest(
        partitions=[log_pb2.PartitionFetch(topic=topic, partition=0, offset=0)],
        min_bytes=1500,
        max_wait_ms=WAIT_MS,
    )
    call = leader.log.Fetch.future(request, timeout=CALL_TIMEOUT)
    write(leader, topic, b"a" * 1000)
    write(leader, topic, b"b" * 1000)
    (records,) = call.result().partitions
    assert len(records.batches) == 2


def test_a_long_poll_ends_when_its_time_is_over(leader: Api, topic: str) -> None:
    records = leader.fetch(topic, 0, 0, min_bytes=1, max_wait_ms=50)
    assert not records.error
    assert records.batches == []


def test_a_poll_at_a_follower_names_the_leader(
    cluster: LocalCluster, leader: Api, topic: str
) -> None:
    node = cluster.leader(topic, 0)
    write(leader, topic, b"x")
    cluster.wait_level(topic)
    for other in set(cluster.nodes) - {node}:
        records = cluster.api(other).fetch(topic, 0, 0)
        assert records.error == log_pb2.PARTITION_ERROR_NOT_LEADER
        assert (records.leader_id, records.leader_address) == (node, leader.address)
        assert len(cluster.api(other).fetch(topic, 0, 0, any_replica=True).batches) == 1


def test_subscribe_delivers_what_is_there_and_what_comes(leader: Api, topic: str) -> None:
    for number in range(20):
        write(leader, topic, b"%d" % number)
    call = leader.log.Subscribe(
        log_pb2.SubscribeRequest(
            partitions=[log_pb2.PartitionFetch(topic=topic, partition=0, offset=0)]
        ),
        timeout=CALL_TIMEOUT,
    )
    got: queue.Queue[bytes] = queue.Queue()

    def read(answers: Iterator[log_pb2.FetchResponse]) -> None:
        try:
            for answer in answers:
                for stored in answer.partitions[0].batches:
                    got.put(stored.payload)
        except grpc.RpcError:
            return  # cancelled at the end of the test

    reader = threading.Thread(target=read, args=(call,))
    reader.start()
    try:
        assert [got.get(timeout=60) for _ in range(20)] == [b"%d" % n for n in range(20)]
        for number in range(20, 40):
            write(leader, topic, b"%d" % number)
            assert got.get(timeout=60) == b"%d" % number
    finally:
        call.cancel()
        reader.join()
    assert got.empty(), "something came twice"


def test_a_partition_that_is_far_behind_does_not_keep_others_waiting(
    make_cluster: MakeCluster, topic: str
) -> None:
    single = make_cluster(1)
    node = single.api(1)
    node.create_topic(topic, 3, 1)
    for partition in range(3):
        for _ in range(8):
            result = single.produce(batch(topic, partition, 0, 0, bytes(1000)))
            assert verdict(result) == "APPENDED"
    call = node.log.Subscribe(
        log_pb2.SubscribeRequest(
            partitions=[
                log_pb2.PartitionFetch(topic=topic, partition=partition, offset=0)
                for partition in range(3)
            ],
            max_bytes=2000,
        ),
        timeout=CALL_TIMEOUT,
    )
    first = [next(call) for _ in range(6)]
    call.cancel()
    served = [{part.partition for part in answer.partitions} for answer in first]
    assert set.union(*served[:3]) == set.union(*served[3:]) == {0, 1, 2}


def test_list_offsets(leader: Api, topic: str) -> None:
    assert leader.offset(topic, 0, "earliest") == leader.offset(topic, 0, "latest") == 0
    for number in range(3):
        one = batch(topic, 0, 0, 0, b"x", count=2)
        one.header.max_timestamp_us = 1000 * (number + 1)
        assert verdict(leader.produce(one)[0]) == "APPENDED"
    assert leader.offset(topic, 0, "latest") == 6

    def at(timestamp_us: int) -> int:
        answer = leader.log.ListOffsets(
            log_pb2.ListOffsetsRequest(
                queries=[log_pb2.OffsetQuery(topic=topic, partition=0, timestamp_us=timestamp_us)]
            ),
            timeout=CALL_TIMEOUT,
        )
        return int(answer.results[0].offset)

    assert [at(t) for t in (0, 1000, 1001, 3000, 3001)] == [0, 0, 2, 4, -1]


def test_fetch_of_nothing_is_refused(leader: Api) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        leader.log.Fetch(log_pb2.FetchRequest(), timeout=CALL_TIMEOUT)
    assert as_call(caught.value).code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "partitions" in (as_call(caught.value).details() or "")
