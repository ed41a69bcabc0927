"""Transactions through the raw API of real nodes: readable records at each step, and after
kills.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import grpc
import pytest

from harness.api import CALL_TIMEOUT, Batch, Lease, batch, reason, verdict
from harness.local_cluster import LocalCluster
from oncelog.v1 import producer_pb2
from oncelog.v1 import transaction_pb2 as pb
from tests.integration.waiting import answered, eventually

CALLS = 60.0  # seconds: nodes are killed meanwhile


class Sender:
    """One holder of a producer name, by hand. Calls are repeated until they are answered."""

    def __init__(self, cluster: LocalCluster, name: str, topic: str, partitions: int) -> None:
        self.cluster, self.name, self.topic, self.partitions = cluster, name, topic, partitions
        self.lease: Lease = self.call(lambda api: api.lease(name))
        self.nonces = count(1)
        self.last = [self._open(partition) for partition in range(partitions)]
        self.runs: dict[int, pb.StagedRun] = {}
        self.number = 0

    def call(self, ask: Callable[[Any], Any]) -> Any:
        return answered(self.cluster, ask, "a call of a holder", CALLS)

    def _open(self, partition: int) -> int:
        request = producer_pb2.OpenProducerRequest(
            producer_id=self.lease.producer_id,
            epoch=self.lease.epoch,
            partitions=[{"topic": self.topic, "partition": partition}],
        )

        def ask(api: Any) -> Any:
            (opened,) = api.producers.OpenProducer(request, timeout=CALL_TIMEOUT).partitions
            return opened

        found: list[Any] = []

        def is_open() -> bool:
            leader = self.cluster.leader(self.topic, partition)
            found.append(ask(self.cluster.api(leader)))
            return not found[-1].error

        eventually(is_open, "the partition is opened")
        return int(found[-1].last_sequence)

    def begin(self, **times: Any) -> int:
        request = pb.BeginTransactionRequest(
            producer_name=self.name,
            producer_id=self.lease.producer_id,
            epoch=self.lease.epoch,
            nonce=next(self.nonces),
            **times,
        )
        answer = self.call(lambda a: a.transactions.BeginTransaction(request, timeout=20))
        self.runs, self.number = {}, answer.transaction_id
        return self.number

    def batch(self, partition: int, records: int, number: int | None = None) -> Batch:
        run = self.runs.get(partition)
        last = self.last[partition] if run is None else run.last_sequence
        return batch(
            self.topic,
            partition,
            self.lease.producer_id,
            last + 1,
            b"%d %d" % (partition, last + 1),
            epoch=self.lease.epoch,
            count=records,
            prev=last,
            transaction_id=self.number if number is None else number,
        )

    def stage(self, partition: int, records: int) -> str:
        one = self.batch(partition, records)
        answer = verdict(self.cluster.produce(one))
        if answer == "STAGED":
            run = self.runs.setdefault(
                partition, pb.StagedRun(topic=self.topic, partition=partition)
            )
            run.record_count += records
            run.last_sequence = one.header.base_sequence + records - 1
        return answer

    def commit(self, number: int | None = None, **more: Any) -> Any:
        request = pb.CommitTransactionRequest(
            transaction_id=number or self.number,
            producer_id=self.lease.producer_id,
            epoch=self.lease.epoch,
            runs=self.runs.values(),
            **more,
        )
        answer = self.call(lambda a: a.transactions.CommitTransaction(request, timeout=20))
        for partition, run in self.runs.items():
            self.last[partition] = run.last_sequence
        return answer

    def abort(self, number: int | None = None) -> None:
        request = pb.AbortTransactionRequest(
            transaction_id=number or self.number,
            producer_id=self.lease.producer_id,
            epoch=self.lease.epoch,
        )
        self.call(lambda a: a.transactions.AbortTransaction(request, timeout=20))

    def readable(self, partition: int) -> list[tuple[int, int, int]]:
        """(offset, first sequence, transaction) of all batches."""
        api = self.cluster.api(self.cluster.leader(self.topic, partition))
        return [
            (one.base_offset, one.header.base_sequence, one.header.transaction_id)
            for one in api.stored(self.topic, partition, any_replica=False)
        ]


def listed(cluster: LocalCluster, node: int = 1) -> list[Any]:
    request = pb.ListTransactionsRequest()
    return list(cluster.api(node).transactions.ListTransactions(request, timeout=20).transactions)


def refused(ask: Callable[[], Any]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        ask()
    return reason(caught.value)


@pytest.fixture
def sender(cluster: LocalCluster, topic: str) -> Sender:
    cluster.api(1).create_topic(topic, partitions=3, replicas=3)
    return Sender(cluster, topic, topic, 3)


def test_a_commit_publishes_everything_at_once(sender: Sender) -> None:
    assert verdict(sender.cluster.produce(sender.batch(0, 2, 0))) == "APPENDED"
    sender.last[0] = 1
    number = sender.begin()
    assert [sender.stage(p, n) for p, n in ((0, 3), (1, 1), (0, 2), (2, 4))] == ["STAGED"] * 4
    assert [len(sender.readable(p)) for p in range(3)] == [1, 0, 0]
    (open_one,) = [one for one in listed(sender.cluster) if one.transaction_id == number]
    assert pb.TransactionState.Name(open_one.state) == "TRANSACTION_STATE_OPEN"
    assert len(open_one.partitions) == 3
    answer = sender.commit()
    places = {(run.partition, run.base_offset, run.record_count) for run in answer.runs}
    assert places == {(0, 2, 5), (1, 0, 1), (2, 0, 4)}
    assert sender.readable(0) == [(0, 0, 0), (2, 2, number), (5, 5, number)]
    assert sender.commit().runs == answer.runs
    eventually(
        lambda: not [one for one in listed(sender.cluster) if one.transaction_id == number],
        "the metadata have heard of it",
    )
    sender.cluster.wait_level(sender.topic)


def test_an_abort_leaves_nothing_and_its_sequences_are_free(sender: Sender) -> None:
    first = sender.begin()
    late = sender.batch(0, 2)
    assert sender.stage(0, 2) == "STAGED"
    sender.abort()
    eventually(lambda: verdict(sender.cluster.produce(late)) == "TRANSACTION_ABORTED", "dropped")
    assert refused(sender.commit) == "TRANSACTION_ABORTED"
    sender.runs = {}
    second = sender.begin()
    eventually(lambda: sender.stage(0, 2) == "STAGED", "it is staged")
    sender.commit()
    assert sender.readable(0) == [(0, 0, second)] and second > first
    assert refused(sender.abort) == "TRANSACTION_COMMITTED"


def test_a_successor_aborts_what_is_open_and_fences(sender: Sender) -> None:
    sender.begin()
    assert sender.stage(0, 2) == "STAGED"
    successor = Sender(sender.cluster, sender.name, sender.topic, 3)
    assert successor.last == [-1, -1, -1]
    assert refused(sender.commit) == "TRANSACTION_ABORTED"
    assert refused(sender.begin) == "FENCED"
    sender.runs = {}
    assert sender.stage(1, 1) in ("FENCED", "TRANSACTION_ABORTED", "TRANSACTION_ENDED")
    successor.begin()
    assert successor.stage(0, 1) == "STAGED"
    successor.commit()
    assert len(sender.readable(0)) == 1


def test_a_commit_must_name_what_is_staged(sender: Sender) -> None:
    sender.begin()
    sender.stage(0, 2)
    sender.stage(1, 1)
    held = sender.runs.pop(1)
    assert refused(sender.commit) == "COMMIT_INCOMPLETE"
    sender.runs[1] = pb.StagedRun(topic=sender.topic, partition=1, record_count=2, last_sequence=1)
    assert refused(sender.commit) == "COMMIT_INCOMPLETE"
    sender.runs[1] = held
    assert len(sender.commit().runs) == 2
    sender.runs[1] = pb.StagedRun(topic=sender.topic, partition=1, record_count=2, last_sequence=1)
    assert refused(sender.commit) == "COMMIT_DIFFERS"


def test_a_commit_begins_the_next_one(sender: Sender) -> None:
    number = sender.begin()
    for nonce in range(100, 120):
        assert sender.stage(0, 2) == "STAGED"
        assert sender.stage(1, 1) == "STAGED"
        following = {"nonce": nonce, "partitions": [{"topic": sender.topic, "partition": 0}]}
        answers = [sender.commit(at_decision=True, begin_next=following) for _ in range(2)]
        assert answers[0].next == answers[1].next
        assert answers[0].next.transaction_id > number
        number = sender.number = answers[0].next.transaction_id
        sender.runs = {}
    sender.abort()
    assert len(sender.readable(0)) == 20
    with pytest.raises(grpc.RpcError, match=r"begin_next\.nonce"):
        sender.commit(begin_next={})


def test_an_idle_transaction_is_aborted(sender: Sender) -> None:
    number = sender.begin(idle_timeout_ms=3000)
    sender.stage(0, 1)
    keep = pb.KeepTransactionsAliveRequest(transaction_ids=[number])
    kept = sender.call(lambda a: a.transactions.KeepTransactionsAlive(keep, timeout=20))
    assert not kept.ended
    eventually(
        lambda: not [one for one in listed(sender.cluster) if one.transaction_id == number],
        "it is aborted",
    )
    assert refused(sender.commit) == "TRANSACTION_ABORTED"
    kept = sender.call(lambda a: a.transactions.KeepTransactionsAlive(keep, timeout=20))
    assert list(kept.ended) == [number]
    assert not sender.readable(0)


def test_everybody_is_killed_around_commits(make_cluster: Any, topic: str) -> None:
    """Commits that were answered are whole, those that were not are whole or not there."""
    cluster = make_cluster()
    cluster.api(1).create_topic(topic, partitions=3, replicas=3)
    sender = Sender(cluster, topic, topic, 3)
    committed: list[int] = []
    for victim in (1, 2, 3, 0):
        for _ in range(5):
            committed.append(sender.begin())
            assert all(sender.stage(p, 2) == "STAGED" for p in range(3))
            sender.commit()
        number = sender.begin()
        assert all(sender.stage(p, 2) == "STAGED" for p in range(3))
        done = threading.Thread(target=sender.commit)
        done.start()
        victims = [victim] if victim else [1, 2, 3]
        cluster.kill(victims)
        cluster.start_nodes(victims)
        done.join(60)
        assert not done.is_alive()
        committed.append(number)
    cluster.wait_level(topic)
    for partition in range(3):
        found = sender.readable(partition)
        assert [number for _, _, number in found] == committed
        assert [first for _, first, _ in found] == [2 * n for n in range(len(committed))]


def test_retention_and_restart_with_an_open_transaction(make_cluster: Any, topic: str) -> None:
    cluster = make_cluster()
    cluster.api(1).create_topic(topic, partitions=1, replicas=3)
    sender = Sender(cluster, topic, topic, 1)
    number = sender.begin(idle_timeout_ms=300_000, total_timeout_ms=600_000)
    for _ in range(20):
        assert sender.stage(0, 2) == "STAGED"
    for node in (1, 2, 3):
        cluster.restart(node)
    assert sender.stage(0, 1) == "STAGED"
    assert not sender.readable(0)
    sender.commit()
    assert [found[2] for found in sender.readable(0)] == [number] * 21
    cluster.kill([1, 2, 3])
    cluster.start_nodes([1, 2, 3])
    assert len(sender.readable(0)) == 21
