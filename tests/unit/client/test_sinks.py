"""The stager's chains: the order of sends, retries and final failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog import errors
from oncelog._engine.produce.staged import MAX_REQUEST_BYTES, EncodedBatch, Stager
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2, producer_pb2

TP = TopicPartition("t", 0)
V = log_pb2


class Node:
    """Stands for a cluster: one leader, whose answers the test gives."""

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)  # of each request; an exception: no answer
        self.requests: list[list[int]] = []
        self.leaders, self.backoff = self, self

    def leader(self, tp: TopicPartition) -> object:
        return self

    def address(self, tp: TopicPartition) -> str:
        return "node:1"

    def hint(self, *place: Any) -> None: ...

    def leader_failed(self, address: str, failures: int) -> None: ...

    def delay(self, failures: int) -> float:
        return 0.0

    async def refresh(self, topics: list[str]) -> None: ...

    async def call(self, method: Any, request: Any, **more: Any) -> Any:
        if isinstance(request, producer_pb2.LeaseProducerRequest):
            return producer_pb2.LeaseProducerResponse(producer_id=9, lease_token=b"t")
        self.requests.append([batch.header.base_sequence for batch in request.batches])
        assert {batch.header.transaction_id for batch in request.batches} == {5}
        await asyncio.sleep(0)
        given = self.verdicts.pop(0) if self.verdicts else V.VERDICT_STAGED
        if isinstance(given, Exception):
            raise given
        each = given if isinstance(given, list) else [given] * len(request.batches)
        return V.ProduceResponse(results=[V.BatchResult(verdict=one) for one in each])


def stage(node: Node, *sizes: int, timeout_s: float = 60.0) -> dict[TopicPartition, Any]:
    async def run() -> dict[TopicPartition, Any]:
        stager = Stager(node, 5, timeout_s)  # type: ignore[arg-type]
        await stager.start()
        try:
            for size in sizes:
                await stager.put(TP, EncodedBatch(bytes(size), 10, 1))
            return await stager.flush()
        finally:
            await stager.close()

    return asyncio.run(run())


def test_what_waits_goes_together_and_no_request_is_too_large() -> None:
    node = Node()
    half = MAX_REQUEST_BYTES // 2
    assert stage(node, half, half, half, half, half) == {TP: (50, 49)}
    assert [one for request in node.requests for one in request] == [0, 10, 20, 30, 40]
    assert all(len(request) <= 2 for request in node.requests)


@pytest.mark.parametrize(
    "first",
    [
        errors.BrokerUnavailableError("gone"),
        errors.RequestTimeoutError("late"),
        V.VERDICT_NOT_LEADER,
        V.VERDICT_TIMEOUT,
        V.VERDICT_TRANSACTION_CONFLICT,
    ],
)
def test_what_may_be_tried_again_is(first: Any) -> None:
    node = Node(first)
    assert stage(node, 5) == {TP: (10, 9)}
    assert node.requests == [[0], [0]]


def test_only_what_is_not_there_goes_again() -> None:
    node = Node([V.VERDICT_STAGED, V.VERDICT_NOT_READY, V.VERDICT_OUT_OF_ORDER])
    assert stage(node, 5, 5, 5) == {TP: (30, 29)}
    assert node.requests == [[0, 10, 20], [10, 20]]


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (V.VERDICT_TRANSACTION_ABORTED, errors.TransactionAbortedError),
        (V.VERDICT_TRANSACTION_ENDED, errors.TransactionEndedError),
        (V.VERDICT_FENCED, errors.FencedError),
        (V.VERDICT_BATCH_TOO_LARGE, errors.BatchTooLargeError),
    ],
)
def test_what_is_final_ends_it(verdict: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        stage(Node(verdict), 5)


def test_a_batch_that_cannot_be_staged_fails_in_time() -> None:
    with pytest.raises(errors.NotReadyError, match="not staged in time: NOT_READY"):
        stage(Node(*[V.VERDICT_NOT_READY] * 3), 5, timeout_s=0.0)
