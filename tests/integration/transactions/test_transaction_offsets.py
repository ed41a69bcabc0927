"""Offsets of a group in transactions, through the raw API of real nodes."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import grpc
import pytest

from harness.api import CALL_TIMEOUT, reason
from harness.local_cluster import LocalCluster
from oncelog.v1 import group_pb2 as gpb
from oncelog.v1 import transaction_pb2 as pb
from tests.integration.transactions.test_transactions import Sender
from tests.integration.waiting import answered


def ask(cluster: LocalCluster, call: str, request: Any) -> Any:
    """Asks the group's leader: tries each node until one leads."""

    def once(api: Any) -> Any:
        return getattr(api.groups, call)(request, timeout=CALL_TIMEOUT)

    return answered(cluster, once, call)


class Worker:
    """Reads partition 0 of an input, which is only a number here, and writes to a topic."""

    def __init__(self, cluster: LocalCluster, topic: str, group: str, name: str = "") -> None:
        self.cluster, self.topic, self.group = cluster, topic, group
        self.sender = Sender(cluster, name or group, topic, 2)
        self.number = 0
        self.numbers: set[int] = set()  # of the calls that are staged
        self.offsets: list[pb.StagedOffsets] = []

    def begin(self) -> int:
        self.offsets, self.numbers = [], set()
        return self.sender.begin()

    def stage(self, offset: int, number: int = 0, **more: Any) -> gpb.StageOffsetsResponse:
        self.number = number or self.number + 1
        request = gpb.StageOffsetsRequest(
            transaction_id=self.sender.number,
            producer_id=self.sender.lease.producer_id,
            epoch=self.sender.lease.epoch,
            group=self.group,
            offsets=[{"topic": self.topic, "partition": 0, "offset": offset}],
            number=self.number,
            **more,
        )
        answer: gpb.StageOffsetsResponse = ask(self.cluster, "StageOffsets", request)
        if not answer.error:
            self.numbers.add(self.number)
            count = len(self.numbers)
            self.offsets = [
                pb.StagedOffsets(group=self.group, offset_count=count, last_number=self.number)
            ]
        return answer

    def fetch(self, **more: Any) -> int:
        request = gpb.FetchOffsetsRequest(
            group=self.group, partitions=[{"topic": self.topic, "partition": 0}], **more
        )
        return int(ask(self.cluster, "FetchOffsets", request).offsets[0].offset)

    def commit_by_hand(self, offset: int) -> str:
        request = gpb.CommitOffsetsRequest(
            group=self.group, offsets=[{"topic": self.topic, "partition": 0, "offset": offset}]
        )
        return str(ask(self.cluster, "CommitOffsets", request).results[0].error)


@pytest.fixture
def worker(cluster: LocalCluster, topic: str) -> Worker:
    cluster.api(1).create_topic(topic, partitions=2, replicas=3)
    return Worker(cluster, topic, topic)


def test_offsets_and_records_are_committed_together(worker: Worker) -> None:
    worker.begin()
    assert worker.sender.stage(0, 3) == "STAGED"
    assert not worker.stage(3).error
    assert worker.stage(3, worker.number).duplicate
    assert worker.stage(4, worker.number).error == "SEQUENCE_CONFLICT"
    assert not worker.stage(5, 7).error
    assert worker.stage(6, 6).error == "OUT_OF_ORDER"
    assert worker.fetch(ignore_transactions=True) == -1
    assert worker.commit_by_hand(9) == "TRANSACTION_CONFLICT"
    with pytest.raises(grpc.RpcError) as caught:
        worker.sender.commit()
    assert reason(caught.value) == "COMMIT_INCOMPLETE"
    worker.number = 7
    worker.offsets[0].last_number = 7
    (described,) = describe(worker)
    assert (described.staged_offsets, described.staged_records) == (2, 0)
    answer = worker.sender.commit(offsets=worker.offsets)
    assert [run.record_count for run in answer.runs] == [3]
    assert worker.fetch() == 5
    assert worker.commit_by_hand(9) == ""


def describe(worker: Worker) -> list[Any]:
    """Staged transactions in __offsets."""
    api = worker.cluster.api(1).transactions
    request = pb.DescribeTransactionRequest(transaction_id=worker.sender.number)
    found = api.DescribeTransaction(request, timeout=CALL_TIMEOUT).transaction
    assert found.staged_bytes > 0
    return [part for part in found.partitions if part.topic == "__offsets"]


def test_a_successor_ends_what_is_open_and_finds_what_was_decided(worker: Worker) -> None:
    worker.begin()
    worker.sender.stage(0, 1)
    worker.stage(1)
    worker.sender.commit(offsets=worker.offsets, at_decision=True)
    worker.sender.last[0] = 0
    assert worker.fetch() == 1
    worker.begin()
    worker.sender.stage(0, 1)
    worker.stage(2)
    # It uses another name, so nobody has fenced the first.
    successor = Worker(worker.cluster, worker.topic, worker.group, f"{worker.group} again")
    assert successor.fetch() == 1
    assert worker.stage(2).error in ("TRANSACTION_ABORTED", "TRANSACTION_ENDED")
    with pytest.raises(grpc.RpcError) as caught:
        worker.sender.commit(offsets=worker.offsets)
    assert reason(caught.value) == "TRANSACTION_ABORTED"
    successor.begin()
    successor.sender.stage(0, 1)
    successor.stage(2)
    successor.sender.commit(offsets=successor.offsets)
    assert successor.fetch() == 2
    assert len(worker.sender.readable(0)) == 2


def test_everybody_is_killed_and_a_successor_goes_on(make_cluster: Any, topic: str) -> None:
    """Each item of the input leads to one record, decided or not when they fell."""
    cluster = make_cluster()
    cluster.api(1).create_topic(topic, partitions=2, replicas=3)
    for victims in ([1], [1, 2, 3]):
        worker = Worker(cluster, topic, topic)
        start = max(0, worker.fetch())
        for item in (start, start + 1):
            worker.begin()
            assert worker.sender.stage(item % 2, 1) == "STAGED"
            assert not worker.stage(item + 1).error
            if item == start:
                worker.sender.commit(offsets=worker.offsets)
        dying = threading.Thread(target=outcome, args=(worker,))
        dying.start()
        cluster.kill(victims)
        cluster.start_nodes(victims)
        dying.join(60)
        assert not dying.is_alive()
    successor = Worker(cluster, topic, topic)
    offset = successor.fetch()
    assert offset >= 2
    assert sum(len(successor.sender.readable(partition)) for partition in (0, 1)) == offset


def outcome(worker: Worker) -> None:
    """Whichever: its successor finds out."""
    with contextlib.suppress(grpc.RpcError):
        worker.sender.commit(offsets=worker.offsets)
