"""The producer's IO against a scripted node, for answers that no real node gives in time.

The node keeps each batch that arrives until the test chooses the answer, on real gRPC streams.
Tests in tests/integration cover everything that a real node can be brought to do.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from oncelog import (
    BrokerUnavailableError,
    DeliveryError,
    DeliveryTimeoutError,
    FencedError,
    InvalidBatchError,
    NotAuthorizedError,
    OncelogError,
    Producer,
    ProducerFatalError,
    UndeliveredRecordsError,
)
from oncelog._engine.produce.stream import Lane, ProduceStream
from oncelog.v1 import (
    batch_pb2,
    cluster_pb2,
    cluster_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    producer_pb2,
    producer_pb2_grpc,
)
from oncelog.wire.batch import decode_payload
from oncelog.wire.status import to_status

WAIT = 20.0
V = log_pb2


@dataclass(frozen=True, slots=True)
class Arrived:
    """A batch that a node got, and the stream to answer on."""

    batch: batch_pb2.Batch
    stream: queue.Queue[log_pb2.ProduceResponse | OncelogError | None]

    def answer(self, verdict: Any, **fields: Any) -> None:
        result = log_pb2.BatchResult(id=self.batch.id, verdict=verdict, **fields)
        self.stream.put(log_pb2.ProduceResponse(results=[result]))

    def end_stream(self, error: OncelogError | None = None) -> None:
        self.stream.put(error)

    @property
    def value(self) -> bytes | None:
        return decode_payload(self.batch.payload).values()[0]

    @property
    def identity(self) -> tuple[int, int, int]:
        header = self.batch.header
        return header.producer_id, header.epoch, header.base_sequence

    @property
    def bytes(self) -> bytes:
        """All but the attempt's own number."""
        return batch_pb2.Batch(
            header=self.batch.header, payload=self.batch.payload
        ).SerializeToString()


@dataclass(slots=True)
class Script:
    """The answers of all nodes, and the requests they received."""

    leases: list[producer_pb2.LeaseProducerRequest] = field(default_factory=list)
    opens: list[producer_pb2.OpenProducerRequest] = field(default_factory=list)
    lifetime_ms: int = 60_000
    open_answers: list[producer_pb2.OpenedPartition] = field(default_factory=list)
    lease_errors: list[OncelogError] = field(default_factory=list)
    addresses: dict[int, str] = field(default_factory=dict)


class Node(
    log_pb2_grpc.LogServiceServicer,
    cluster_pb2_grpc.ClusterServiceServicer,
    producer_pb2_grpc.ProducerServiceServicer,
):
    """Says that node 1 leads the only partition of topic `t`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.arrived: queue.Queue[Arrived] = queue.Queue()
        self.streams = 0  # that were opened
        self.server = grpc.server(ThreadPoolExecutor(16))
        for add in (
            log_pb2_grpc.add_LogServiceServicer_to_server,
            cluster_pb2_grpc.add_ClusterServiceServicer_to_server,
            producer_pb2_grpc.add_ProducerServiceServicer_to_server,
        ):
            add(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def DescribeTopics(self, request: Any, context: Any) -> cluster_pb2.DescribeTopicsResponse:
        info = cluster_pb2.PartitionInfo(partition=0, leader_id=1, term=1, replicas=[1, 2])
        return cluster_pb2.DescribeTopicsResponse(
            topics=[cluster_pb2.TopicInfo(name="t", topic_id=1, partitions=[info])],
            nodes=[
                cluster_pb2.NodeInfo(node_id=node, address=address, alive=True)
                for node, address in self.script.addresses.items()
            ],
        )

    def LeaseProducer(
        self, request: producer_pb2.LeaseProducerRequest, context: Any
    ) -> producer_pb2.LeaseProducerResponse:
        self.script.leases.append(request)
        if self.script.lease_errors:
            code, text, trailing = to_status(self.script.lease_errors.pop(0))
            context.set_trailing_metadata(trailing)
            context.abort(code, text)
        named = bool(request.producer_name)
        number = len(self.script.leases)
        return producer_pb2.LeaseProducerResponse(
            producer_id=7 if named else 100 + number,
            epoch=number if named else 0,
            lifetime_ms=self.script.lifetime_ms,
            lease_token=b"token %d" % number,
        )

    def OpenProducer(
        self, request: producer_pb2.OpenProducerRequest, context: Any
    ) -> producer_pb2.OpenProducerResponse:
        self.script.opens.append(request)
        opened = producer_pb2.OpenedPartition(topic="t", partition=0, last_sequence=-1)
        if self.script.open_answers:
            opened = self.script.open_answers.pop(0)
        return producer_pb2.OpenProducerResponse(partitions=[opened])

    def ProduceStream(
        self, requests: Iterator[log_pb2.ProduceRequest], context: Any
    ) -> Iterator[log_pb2.ProduceResponse]:
        out: queue.Queue[log_pb2.ProduceResponse | OncelogError | None] = queue.Queue()
        self.streams += 1

        def read() -> None:
            try:
                for request in requests:
                    for batch in request.batches:
                        self.arrived.put(Arrived(batch, out))
            except grpc.RpcError:
                pass  # the client has gone
            out.put(None)

        threading.Thread(target=read, daemon=True).start()
        while isinstance(answer := out.get(), log_pb2.ProduceResponse):
            yield answer
        if answer is not None:
            code, text, trailing = to_status(answer)
            context.set_trailing_metadata(trailing)
            context.abort(code, text)

    def next(self, count: int = 1) -> list[Arrived]:
        return [self.arrived.get(timeout=WAIT) for _ in range(count)]

    def one(self) -> Arrived:
        return self.next()[0]


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    script = Script()
    made = [Node(script), Node(script)]
    script.addresses.update({1: made[0].address, 2: made[1].address})
    yield made
    for node in made:
        node.server.stop(None)


@pytest.fixture
def node(nodes: list[Node]) -> Node:
    return nodes[0]


def producer(node: Node, **settings: Any) -> Producer:
    return Producer(
        bootstrap_servers=node.address, **{"linger_ms": 0, "retry_backoff_ms": 1, **settings}
    )


def send(client: Producer, *values: bytes) -> list[Any]:
    return [client.send_batch("t", 0, [value]) for value in values]


def stored(arrived: list[Arrived], offset: int = 0) -> None:
    for number, one in enumerate(arrived):
        one.answer(V.VERDICT_APPENDED, base_offset=offset + number)


def test_the_first_batch_of_a_chain_and_an_open_carry_the_token(node: Node) -> None:
    with producer(node) as client:
        futures = send(client, b"0", b"1")
        first, second = node.next(2)
        assert (first.batch.lease_token, second.batch.lease_token) == (b"token 1", b"")
        first.answer(V.VERDICT_NOT_READY)
        again = node.next(2)
        assert [one.batch.lease_token for one in again] == [b"token 1", b""], "in all attempts"
        stored(again)
        assert [future.result(WAIT).base_offset for future in futures] == [0, 1]
    named = producer_pb2.OpenedPartition(topic="t", partition=0, last_sequence=4)
    node.script.open_answers.append(named)
    with producer(node, producer_name="n") as client:
        (future,) = send(client, b"5")
        goes_on = node.one()
        assert node.script.opens[0].lease_token == b"token 2"
        assert goes_on.batch.lease_token == b"", "the open made the epoch known"
        stored([goes_on], 5)
        assert future.result(WAIT).base_offset == 5


def test_all_ways_into_a_batch_agree(node: Node) -> None:
    """`send` puts the common case in by itself, everything else goes a longer way."""
    reported: list[Any] = []
    ways: list[dict[str, Any]] = [
        {},
        {"key": b"k"},
        {},
        {"headers": {"h": b"1"}},
        {"key": b"", "headers": [("h", None)]},
        {"timestamp_ms": 5},
        {},
        {"value": None},
        {"value": "text", "partition": 0},
        {"value": bytearray(b"array"), "on_delivery": lambda *seen: reported.append(seen)},
        {},
    ]
    with producer(node, linger_ms=60_000, delivery_timeout_ms=120_000) as client:
        before = time.time_ns() // 1_000_000
        futures = [client.send("t", **{"value": b"%d" % n, **ways[n]}) for n in range(len(ways))]
        after = time.time_ns() // 1_000_000
        flushing = threading.Thread(target=client.flush)
        flushing.start()
        arrived = node.one()
        arrived.answer(V.VERDICT_APPENDED, base_offset=40)
        flushing.join()
        stored = [future.result(WAIT) for future in futures]
    records = decode_payload(arrived.batch.payload, len(ways)).check().records()
    assert [r.value for r in records] == [
        b"0", b"1", b"2", b"3", b"4", b"5", b"6", None, b"text", b"array", b"10"
    ]  # fmt: skip
    assert [r.key for r in records] == [None, b"k", None, None, b"", *[None] * 6]
    assert [r.headers for r in records][3:6] == [(("h", b"1"),), (("h", None),), ()]
    assert [m.offset for m in stored] == list(range(40, 40 + len(ways)))
    assert [m.timestamp for m in stored] == [r.timestamp for r in records]
    for number, record in enumerate(records):
        assert record.timestamp == 5 if number == 5 else before <= record.timestamp <= after
    assert reported == [(stored[9], None)]


def test_one_acknowledgement_delayed_while_the_next_five_arrive(node: Node) -> None:
    with producer(node, max_in_flight=6) as client:
        futures = send(client, b"0", b"1", b"2", b"3", b"4", b"5")
        arrived = node.next(6)
        stored(arrived[1:], 1)
        assert [f.result(WAIT).base_offset for f in futures[1:]] == [1, 2, 3, 4, 5]
        assert not futures[0].done()
        arrived[0].answer(V.VERDICT_APPENDED, base_offset=0)
        assert futures[0].result(WAIT).base_offset == 0
        assert client.metrics()["batches_retried"] == 0


def test_a_retriable_refusal_while_successors_arrive_first(node: Node) -> None:
    with producer(node) as client:
        futures = send(client, b"0", b"1", b"2")
        first = node.next(3)
        first[1].answer(V.VERDICT_OUT_OF_ORDER, last_sequence=-1)
        first[2].answer(V.VERDICT_OUT_OF_ORDER, last_sequence=-1)
        first[0].answer(V.VERDICT_THROTTLED)
        again = node.next(3)
        assert [one.value for one in again] == [b"0", b"1", b"2"], "from the head on, in order"
        assert [one.bytes for one in again] == [one.bytes for one in first], "byte-identical"
        assert {one.batch.id for one in again}.isdisjoint({one.batch.id for one in first})
        stored(again)
        assert [f.result(WAIT).base_offset for f in futures] == [0, 1, 2]


def test_a_stream_that_ends_is_opened_again(node: Node) -> None:
    with producer(node) as client:
        futures = send(client, b"0", b"1")
        first = node.next(2)
        first[0].answer(V.VERDICT_APPENDED, base_offset=5)
        assert futures[0].result(WAIT).base_offset == 5
        first[1].end_stream()
        again = node.one()
        assert again.bytes == first[1].bytes
        again.answer(V.VERDICT_DUPLICATE, base_offset=6)
        assert futures[1].result(WAIT).duplicate


def test_not_leader_leads_to_the_node_named(nodes: list[Node]) -> None:
    one, two = nodes
    with producer(one) as client:
        (future,) = send(client, b"0")
        one.one().answer(V.VERDICT_NOT_LEADER, leader_id=2, leader_address=two.address)
        moved = two.one()
        assert moved.value == b"0"
        moved.answer(V.VERDICT_APPENDED, base_offset=3)
        assert future.result(WAIT).base_offset == 3


def test_no_answer_at_all_breaks_the_stream_and_sends_again(node: Node) -> None:
    with producer(node, request_timeout_ms=1500) as client:
        (future,) = send(client, b"0")
        first = node.one()
        again = node.one()
        assert again.bytes == first.bytes
        assert again.stream is not first.stream
        again.answer(V.VERDICT_APPENDED, base_offset=0)
        assert future.result(WAIT).base_offset == 0


def test_a_new_producer_id_at_ninety_percent_after_draining(node: Node) -> None:
    node.script.lifetime_ms = 400
    with producer(node) as client:
        (old,) = send(client, b"0")
        arrived = node.one()
        leased = client.producer_id
        while client.producer_id == leased:  # the tick leases the next id
            threading.Event().wait(0.01)
        (new,) = send(client, b"1")
        assert node.arrived.empty(), "it waits for what is in flight under the old id"
        arrived.answer(V.VERDICT_APPENDED, base_offset=0)
        following = node.one()
        following.answer(V.VERDICT_APPENDED, base_offset=1)
        assert arrived.identity[1:] == following.identity[1:] == (0, 0)
        assert following.identity[0] > arrived.identity[0]
        assert old.result(WAIT).producer_id != new.result(WAIT).producer_id


def test_an_expired_producer_id_is_replaced_and_nothing_is_lost(node: Node) -> None:
    with producer(node) as client:
        futures = send(client, b"0", b"1")
        for arrived in node.next(2):
            arrived.answer(V.VERDICT_PRODUCER_EXPIRED)
        again = node.next(2)
        assert [(one.value, one.identity) for one in again] == [
            (b"0", (102, 0, 0)), (b"1", (102, 0, 1)),
        ]  # fmt: skip
        stored(again)
        assert [f.result(WAIT).base_offset for f in futures] == [0, 1]


def test_a_verdict_from_the_future_is_not_repeated(node: Node) -> None:
    with producer(node) as client:
        (future,) = send(client, b"0")
        node.one().answer(99)
        error = future.exception(WAIT)
        assert isinstance(error, InvalidBatchError)
        assert "verdict 99" in str(error)


def test_fenced_fails_everything_pending_and_all_that_follows(node: Node) -> None:
    client = producer(node)
    futures = send(client, b"0", b"1", b"2")
    node.next(3)[0].answer(V.VERDICT_FENCED, current_epoch=4)
    found = [future.exception(WAIT) for future in futures[:2]]
    assert all(isinstance(error, FencedError) for error in found)
    assert found[0].current_epoch == 4
    with pytest.raises(FencedError):
        client.send("t", b"after")
    with pytest.raises(UndeliveredRecordsError, match="1 records"):
        client.close()  # the third result, which nobody has read


# A refusal must arrive before the call's time is up, on a busy machine too.
@pytest.mark.parametrize(("how", "timeout_ms"), [("refused", 60_000), ("timed out", 2000)])
def test_nothing_is_stored_behind_a_gap_in_the_applications_sequences(
    node: Node, how: str, timeout_ms: int
) -> None:
    """A mirror would lose the failed records unseen: the target's position is behind them."""
    client = producer(node, request_timeout_ms=timeout_ms // 2, delivery_timeout_ms=timeout_ms)
    futures = [client.send_batch("t", 0, [b"%d" % n], sequences=[10 + n]) for n in range(3)]
    arrived = node.next(3)
    if how == "refused":
        arrived[0].answer(V.VERDICT_BATCH_TOO_LARGE)
    found = [future.exception(WAIT) for future in futures]
    assert all(isinstance(error, DeliveryError) for error in found)
    with pytest.raises(ProducerFatalError, match="sequences 10 to 10 failed"):
        client.send_batch("t", 0, [b"3"], sequences=[13])
    client.close()
    while not node.arrived.empty():
        arrived.append(node.one())
    assert {one.identity[0] for one in arrived} == {101}, "nothing under another producer id"


def test_a_name_is_leased_once_however_many_attempts_it_takes(node: Node) -> None:
    node.script.lease_errors = [BrokerUnavailableError("no quorum") for _ in range(6)]
    node.script.open_answers = [
        producer_pb2.OpenedPartition(topic="t", error="NOT_READY"),
        producer_pb2.OpenedPartition(topic="t", last_sequence=41),
    ]
    with producer(node, producer_name="n") as client:
        (future,) = send(client, b"0")
        arrived = node.one()
        assert arrived.identity == (7, 7, 42), "it goes on where the name stopped"
        arrived.answer(V.VERDICT_APPENDED, base_offset=0)
        assert future.result(WAIT).base_sequence == 42
    assert len({lease.nonce for lease in node.script.leases}) == 1
    assert node.script.leases[0].nonce != 0
    assert {lease.held_producer_id for lease in node.script.leases} == {0}
    assert {(o.producer_id, o.epoch) for o in node.script.opens} == {(7, 7)}


def test_a_name_taken_over_is_not_taken_back_at_renewal(node: Node) -> None:
    node.script.lifetime_ms = 2000  # all before its renewal is done by then
    client = producer(node, producer_name="n")
    (future,) = send(client, b"0")
    node.one().answer(V.VERDICT_APPENDED, base_offset=0)
    assert future.result(WAIT).epoch == 1
    node.script.lease_errors = [FencedError("taken over", current_epoch=9)]
    (pending,) = send(client, b"1")  # nobody answers it: the renewal ends it
    error = pending.exception(WAIT)
    assert isinstance(error, FencedError)
    assert (error.current_epoch, error.outcome) == (9, "unknown")
    with pytest.raises(FencedError):
        client.send("t", b"after")
    client.close()
    held = node.script.leases[1]
    assert (held.held_producer_id, held.held_epoch) == (7, 1)
    assert held.nonce != node.script.leases[0].nonce


def test_time_is_up_for_a_batch_that_holds_the_chain(node: Node) -> None:
    with producer(node, request_timeout_ms=150, delivery_timeout_ms=2000, retries=1000) as client:
        (future,) = send(client, b"0")
        error = future.exception(WAIT)
        assert isinstance(error, DeliveryTimeoutError)
        assert error.outcome == "unknown"
        attempts = []
        while not node.arrived.empty():
            attempts.append(node.one())
        assert len({one.bytes for one in attempts}) == 1
        (after,) = send(client, b"1")
        arrived = node.one()
        while arrived.value == b"0":
            arrived = node.one()
        assert arrived.identity == (102, 0, 0), "another producer id: the old chain is open"
        arrived.answer(V.VERDICT_APPENDED, base_offset=1)
        assert after.result(WAIT).base_offset == 1


# --- producers of one process --------------------------------------------------------


def test_producers_with_equal_settings_share_a_stream(node: Node) -> None:
    with producer(node) as one, producer(node) as other:
        futures = [*send(one, b"0"), *send(other, b"1"), *send(one, b"2")]
        arrived = node.next(3)
        assert len({id(batch.stream) for batch in arrived}) == 1 == node.streams
        assert len({batch.batch.id for batch in arrived}) == 3
        for batch in reversed(arrived):
            batch.answer(V.VERDICT_APPENDED, base_offset=int(batch.value or b""))
        assert [future.result(WAIT).base_offset for future in futures] == [0, 1, 2]


def test_who_leaves_a_stream_ends_it_for_nobody_else(node: Node) -> None:
    with producer(node) as stays:
        leaves = producer(node)
        (kept,), (lost,) = send(stays, b"0"), send(leaves, b"1")
        arrived = node.next(2)
        with pytest.raises(UndeliveredRecordsError):
            leaves.close(timeout_ms=0)
        assert isinstance(lost.exception(WAIT), DeliveryTimeoutError)
        stored(arrived)
        assert kept.result(WAIT)
        (more,) = send(stays, b"2")
        stored([node.one()])
        assert more.result(WAIT)
        assert node.streams == 1


def test_a_shared_stream_that_breaks_is_opened_once_and_all_send_again(node: Node) -> None:
    with producer(node) as one, producer(node) as other:
        futures = [*send(one, b"0"), *send(other, b"1")]
        first = node.next(2)
        first[0].end_stream()
        again = node.next(2)
        assert {batch.bytes for batch in again} == {batch.bytes for batch in first}
        stored(again)
        assert all(future.result(WAIT) for future in futures)
        assert node.streams == 2


def test_a_refusal_on_a_shared_stream_ends_only_the_producer_that_it_was_for(node: Node) -> None:
    with producer(node) as innocent:
        guilty = producer(node)
        (kept,), (lost,) = send(innocent, b"0"), send(guilty, b"1")
        node.next(2)[0].end_stream(NotAuthorizedError("no"))
        alone = {batch.value: batch for batch in node.next(2)}
        assert node.streams == 3, "each has its own"
        alone[b"1"].end_stream(NotAuthorizedError("no"))
        assert isinstance(lost.exception(WAIT), DeliveryError)
        stored([alone[b"0"]])
        assert kept.result(WAIT)
        guilty.close()
        (more,) = send(innocent, b"2")
        stored([node.one()])
        assert more.result(WAIT)


@pytest.mark.parametrize("settings", [{"producer_name": "n"}, {"enable_idempotence": False}])
def test_who_may_harm_its_neighbours_has_a_stream_of_its_own(
    node: Node, settings: dict[str, Any]
) -> None:
    with producer(node) as one, producer(node, **settings) as other:
        futures = [*send(one, b"0"), *send(other, b"1")]
        stored(node.next(2))
        assert all(future.result(WAIT) for future in futures)
        assert node.streams == 2


def test_a_small_batch_does_not_wait_behind_all_that_a_neighbour_has() -> None:
    """A message takes as many batches as fit, of each lane in turn."""

    async def messages() -> list[list[tuple[str, int]]]:
        stream = ProduceStream(
            "nowhere", Mock(channel_ready=asyncio.Event().wait), grpc.aio.Metadata(),
            connect_timeout_s=WAIT, commit_timeout_ms=1,
        )  # fmt: skip
        stream.opened = True
        many, few = (
            Lane(stream, on_open=Mock(), on_room=Mock(), on_result=Mock(), on_close=Mock())
            for _ in range(2)
        )
        names = {many: "many", few: "few"}
        for lane, size in [(many, 600_000)] * 3 + [(few, 100)] * 2:
            lane.outbox.append(([bytes(size)], size))
            stream.has_more(lane)
        found = []
        while stream.is_behind:
            _, sent = stream.next_message()
            found.append([(names[lane], size) for lane, size in sent])
        many.leave("over")
        few.leave("over")
        await few.wait_left()
        return found

    assert asyncio.run(messages()) == [
        [("many", 600_000), ("few", 100)],
        [("many", 600_000), ("few", 100)],
        [("many", 600_000)],
    ]
