"""Batches behind a refused head: refused on its stream for the head's reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.dedup.verdict import Kind
from cluster.services.log import refused_heads
from cluster.services.log.produce import ProduceCall
from cluster.services.log.refused_heads import RefusedHeads
from oncelog.v1 import log_pb2
from tests.unit.services.log_rig import GROUP, PAYLOAD, TOPIC, LogNode, header, serving

PID = 1  # issued


class Stream:
    """One ProduceStream to a node, batch by batch."""

    def __init__(self, node: LogNode) -> None:
        self.node, self.stream = node, ProduceCall(node.appender)

    async def send(self, *sequences: int, **fields: Any) -> list[str]:
        """The verdicts on batches of one record that are sent in sequence."""
        fields = {"producer_id": PID, **fields}
        batches = [
            self.node.batch(header(base_sequence=sequence, **fields), PAYLOAD)
            for sequence in sequences
        ]

        async def requests() -> Any:
            yield log_pb2.ProduceRequest(batches=batches)

        await self.stream.read(requests())
        return [answer.verdict.kind.name for _, answer in await self.stream.next_results()]


@pytest.fixture
async def stream() -> Stream:
    return Stream(LogNode())


def not_ready(node: LogNode, still: bool) -> None:
    node.part.on_role(leader=True, ready=not still, term=2)


def full(node: LogNode, still: bool) -> None:
    node.storage_full = still


def led_elsewhere(node: LogNode, still: bool) -> None:
    node.leaders[GROUP] = 2 if still else 1


Refusal = Callable[[LogNode, bool], None]
REFUSALS = [(not_ready, "NOT_READY"), (full, "STORAGE_FULL"), (led_elsewhere, "NOT_LEADER")]


@pytest.mark.parametrize(("refuse", "reason"), REFUSALS)
async def test_a_new_id_that_pipelines_while_leadership_moves(stream, refuse, reason):
    """Before, the last two were UNKNOWN_PRODUCER, which tells a sound producer to stop."""
    refuse(stream.node, True)
    assert await stream.send(0, 1, 2) == [reason] * 3
    refuse(stream.node, False)
    assert await stream.send(3, 4) == [reason] * 2
    assert await stream.send(0, 1, 2, 3, 4) == ["APPENDED"] * 5


async def test_a_chain_that_goes_on_is_told_the_reason_of_its_gap(stream):
    assert await stream.send(0) == ["APPENDED"]
    full(stream.node, True)
    assert await stream.send(1) == ["STORAGE_FULL"]
    full(stream.node, False)
    assert await stream.send(2, 3) == ["STORAGE_FULL"] * 2
    assert await stream.send(1, 2, 3) == ["APPENDED"] * 3


async def test_without_it_they_were_told_to_stop(stream, monkeypatch):
    monkeypatch.setattr(RefusedHeads, "reason", lambda *_: None)
    full(stream.node, True)
    assert await stream.send(0) == ["STORAGE_FULL"]
    full(stream.node, False)
    assert await stream.send(1, 2) == ["UNKNOWN_PRODUCER"] * 2


async def test_a_head_that_was_stored_by_another_way_holds_nothing_up(stream):
    full(stream.node, True)
    assert await stream.send(0, 1) == ["STORAGE_FULL"] * 2
    full(stream.node, False)
    assert await Stream(stream.node).send(0, 1) == ["APPENDED"] * 2
    assert await stream.send(2) == ["APPENDED"]


async def test_who_sends_again_hears_the_truth(stream):
    full(stream.node, True)
    assert await stream.send(0) == ["STORAGE_FULL"]
    full(stream.node, False)
    assert await stream.send(1) == ["STORAGE_FULL"]
    assert await stream.send(1, 2) == ["UNKNOWN_PRODUCER"] * 2, "it gave the head up"


async def test_what_does_not_build_on_the_head_is_not_its_business(stream):
    full(stream.node, True)
    assert await stream.send(0) == ["STORAGE_FULL"]
    full(stream.node, False)
    assert await stream.send(1, producer_id=2) == ["UNKNOWN_PRODUCER"]
    assert await stream.send(0, producer_id=0) == ["APPENDED"]
    assert await stream.send(0, epoch=1) == ["APPENDED"]
    assert await stream.send(1) == ["FENCED"]


async def test_another_stream_knows_nothing_of_it(stream):
    full(stream.node, True)
    assert await stream.send(0) == ["STORAGE_FULL"]
    full(stream.node, False)
    assert await Stream(stream.node).send(1) == ["UNKNOWN_PRODUCER"]


async def test_what_a_stream_remembers_is_limited(stream, monkeypatch):
    monkeypatch.setattr(refused_heads, "MAX_HEADS", 2)
    full(stream.node, True)
    for producer_id in (1, 2, 3):
        await stream.send(0, producer_id=producer_id)
    full(stream.node, False)
    verdicts = [await stream.send(1, producer_id=producer_id) for producer_id in (1, 2, 3)]
    assert verdicts == [["UNKNOWN_PRODUCER"], ["STORAGE_FULL"], ["STORAGE_FULL"]]
    await stream.send(0, topic="x" * 100_000)
    keys = [key[0] for key in stream.stream._heads._heads]
    assert set(keys) == {TOPIC}


async def test_no_time_is_a_reason_that_may_have_stored(stream):
    assert Kind.TIMEOUT not in refused_heads._FOR_A_WHILE


async def test_over_a_raw_stream():
    """Five batches of a new id, one message each, while leadership moves behind the third."""
    node = LogNode()
    verdicts = []
    async with serving(node) as (stub, _):
        call = stub.ProduceStream()
        not_ready(node, True)
        for attempt in range(2):
            for sequence in range(5):
                if sequence == 3:
                    not_ready(node, False)
                batch = node.batch(header(producer_id=PID, base_sequence=sequence), PAYLOAD)
                batch.id = 10 * attempt + sequence
                await call.write(log_pb2.ProduceRequest(batches=[batch]))
                (result,) = (await call.read()).results
                assert result.id == batch.id
                verdicts.append(log_pb2.Verdict.Name(result.verdict))
        call.cancel()
    assert verdicts == ["VERDICT_NOT_READY"] * 5 + ["VERDICT_APPENDED"] * 5
