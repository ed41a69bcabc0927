"""Sinks through the raw API of real nodes: batches of many tasks, replays, resets, kills."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from harness.api import CALL_TIMEOUT, batch, reason, verdict
from harness.local_cluster import LocalCluster
from oncelog.cli.app import run as oncelog_command
from oncelog.v1 import sink_pb2 as pb
from tests.integration.waiting import answered


class Run:
    """One run of a query, by hand: a driver and its tasks."""

    def __init__(self, cluster: LocalCluster, topic: str, sink: str, query: str = "") -> None:
        self.cluster, self.topic, self.sink, self.query = cluster, topic, sink, query or topic
        self.ticket = self.call("DrawTicket", pb.DrawTicketRequest(sink=sink)).ticket

    def call(self, method: str, request: Any) -> Any:
        def ask(api: Any) -> Any:
            return getattr(api.sinks, method)(request, timeout=CALL_TIMEOUT)

        return answered(self.cluster, ask, method)

    def begin(self, number: int, reset: str = "") -> int:
        request = pb.BeginBatchRequest(
            sink=self.sink, query=self.query, run="r", ticket=self.ticket, batch=number, reset=reset
        )
        return int(self.call("BeginBatch", request).transaction_id)

    def attempt(self, transaction: int, partition: int, records: int) -> pb.Winner:
        """A task's attempt stages records under a producer id of its own."""
        lease = self.cluster.api(1).lease()
        one = batch(
            self.topic, partition, lease.producer_id, 0, b"x",
            epoch=lease.epoch, count=records, transaction_id=transaction,
        )  # fmt: skip
        assert verdict(self.cluster.produce(one)) == "STAGED"
        return pb.Winner(
            producer_id=lease.producer_id,
            topic=self.topic,
            partition=partition,
            record_count=records,
            last_sequence=records - 1,
        )

    def end(self, number: int, transaction: int, winners: list[pb.Winner], digest: int = 7) -> Any:
        count = sum(winner.record_count for winner in winners)
        return self.end_as(number, transaction, winners, count, digest)

    def end_as(self, number: int, transaction: int, winners: Any, count: int, digest: int) -> Any:
        request = pb.EndBatchRequest(
            sink=self.sink, query=self.query, batch=number, transaction_id=transaction,
            winners=winners, record_count=count, digest=digest,
        )  # fmt: skip
        return self.call("EndBatch", request)

    def described(self) -> pb.SinkDescription:
        described: pb.SinkDescription
        described = self.call("DescribeSink", pb.DescribeSinkRequest(sink=self.sink)).sink
        return described

    def readable(self, partition: int) -> list[tuple[int, int]]:
        """(producer id, records) of all batches."""
        api = self.cluster.api(self.cluster.leader(self.topic, partition))
        return [
            (one.header.producer_id, one.header.record_count)
            for one in api.stored(self.topic, partition, any_replica=False)
        ]


def refused(ask: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        ask()
    return reason(caught.value), caught.value.details() or ""


@pytest.fixture
def run(cluster: LocalCluster, topic: str) -> Run:
    cluster.api(1).create_topic(topic, partitions=2, replicas=3)
    return Run(cluster, topic, topic)


def test_winners_are_published_in_their_order_and_losers_dropped(run: Run) -> None:
    number = run.begin(0)
    assert run.begin(0) == number, "each task asks, and gets the same"
    loser, first, second = (run.attempt(number, 0, n) for n in (5, 2, 3))
    other = run.attempt(number, 1, 1)
    described = run.described()
    assert (described.open_transaction_id, described.open_batch) == (number, 0)
    assert not run.readable(0)
    answer = run.end(0, number, [second, first, other])
    assert {(one.partition, one.base_offset, one.record_count) for one in answer.runs} == {
        (0, 0, 3), (0, 3, 2), (1, 0, 1),
    }  # fmt: skip
    assert run.readable(0) == [(second.producer_id, 3), (first.producer_id, 2)]
    assert loser.producer_id not in dict(run.readable(0))
    assert run.end(0, number, [second, first, other]) == answer, "repeated"
    described = run.described()
    assert (described.committed_batch, described.record_count, described.digest) == (0, 6, 7)
    assert described.query == run.topic and not described.open_transaction_id


def test_a_replay_is_known_by_its_rows(run: Run) -> None:
    number = run.begin(0)
    run.end(0, number, [run.attempt(number, 0, 2)])
    again = Run(run.cluster, run.topic, run.sink)
    assert again.begin(0) == 0
    assert again.end_as(0, 0, [], 2, 7).already
    assert refused(lambda: again.end_as(0, 0, [], 2, 8))[0] == "BATCH_CHANGED"
    assert refused(lambda: again.end_as(0, 0, [], 3, 7))[0] == "BATCH_CHANGED"
    assert refused(lambda: run.begin(1))[0] == "FENCED", "the run before"
    assert refused(lambda: again.begin(2))[0] == "BATCH_GAP"
    assert again.begin(1) > number


def test_a_new_run_ends_what_the_one_before_had_open(run: Run) -> None:
    number = run.begin(0)
    winner = run.attempt(number, 0, 2)
    second = Run(run.cluster, run.topic, run.sink)
    assert run.begin(0) == number, "a ticket that is drawn fences nothing"
    other = second.begin(0)
    assert refused(lambda: run.end(0, number, [winner]))[0] == "TRANSACTION_ABORTED"
    second.end(0, other, [second.attempt(other, 0, 1)])
    assert [count for _, count in run.readable(0)] == [1]


def test_another_query_needs_a_token_which_works_once(run: Run) -> None:
    number = run.begin(4)
    run.end(4, number, [run.attempt(number, 0, 1)])
    other = Run(run.cluster, run.topic, run.sink, query=run.topic + " other")
    name, text = refused(lambda: other.begin(0))
    assert name == "OTHER_QUERY" and run.topic in text
    token = text.split("sinkReset=")[1].split(maxsplit=1)[0]
    taken = other.begin(0, token)
    other.end(0, taken, [other.attempt(taken, 0, 1)])
    assert refused(lambda: Run(run.cluster, run.topic, run.sink).begin(5, token))[0] == (
        "OTHER_QUERY"
    )
    renamed = Run(run.cluster, run.topic, run.sink + "2", query=run.topic + " other")
    assert refused(lambda: renamed.begin(1))[0] == "OTHER_SINK"
    assert other.described().before.batch == 4
    run.call("ResetSink", pb.ResetSinkRequest(sink=run.sink))
    assert Run(run.cluster, run.topic, run.sink).begin(0) > 0


def test_a_transaction_of_a_sink_is_ended_by_its_sink_only(run: Run) -> None:
    number = run.begin(0)
    winner = run.attempt(number, 0, 1)
    other = Run(run.cluster, run.topic, run.sink + "3", query=run.topic + " x")
    assert refused(lambda: other.end(0, number, [winner]))[0] == "INVALID_REQUEST"
    abort = pb.AbortBatchRequest(sink=other.sink, transaction_id=number)
    assert refused(lambda: run.call("AbortBatch", abort))[0] == "INVALID_REQUEST"
    assert refused(lambda: run.end_as(0, number, [winner], 2, 7))[0] == "INVALID_REQUEST"
    abort.sink = run.sink
    run.call("AbortBatch", abort)
    assert refused(lambda: run.end(0, number, [winner]))[0] == "TRANSACTION_ABORTED"
    listed = run.call("ListSinks", pb.ListSinksRequest(limit=1000)).sinks
    assert run.sink in [one.sink for one in listed]


def test_the_command_shows_and_resets_sinks(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", run.cluster.addresses[1])

    def said(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as exited:
            oncelog_command(list(arguments))
        assert exited.value.code == code
        return "".join(capsys.readouterr())

    number = run.begin(4)
    run.end(4, number, [run.attempt(number, 0, 3)])
    sinks = json.loads(said("sink", "list", "--format", "json"))
    (listed,) = [one for one in sinks if one["sink"] == run.sink]
    assert (listed["committed_batch"], listed["record_count"], listed["query"]) == (4, 3, run.topic)
    assert run.sink in said("sink", "list")
    assert "last batch        4" in said("sink", "describe", run.sink)
    assert "there is no sink 'none'" in said("sink", "describe", "none", code=1)
    assert "takes any batch" in said("sink", "reset", run.sink, "--yes")
    assert "before the reset  query" in said("sink", "describe", run.sink)
    assert Run(run.cluster, run.topic, run.sink).begin(0) > number


def test_the_metadata_leader_is_killed_between_the_calls_of_a_batch(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster()
    cluster.api(1).create_topic("t", partitions=2, replicas=3)
    run = Run(cluster, "t", "s")
    number = run.begin(0)
    winners = [run.attempt(number, partition, 3) for partition in range(2)]
    killed = cluster.api(1).describe().controller_id
    cluster.nodes[killed].kill()
    assert run.begin(0) == number
    run.end(0, number, winners)
    cluster.nodes[killed].start()
    assert Run(cluster, "t", "s").begin(0) == 0
    assert [run.readable(partition)[0][1] for partition in range(2)] == [3, 3]
