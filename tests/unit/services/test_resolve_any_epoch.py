"""ResolveSequence without an epoch: what any epoch stored is never "never"."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.dedup.verdict import BatchMeta
from cluster.services.log.resolve import Resolver
from oncelog.v1 import log_pb2
from tests.unit.services.log_rig import PAYLOAD, TOPIC, LogNode, header

PRODUCER = 1


@pytest.fixture
async def node() -> LogNode:
    """Epoch 0 has stored sequence 0, at offset 0."""
    node = LogNode()
    await store(node, 0, 0)
    return node


async def store(node: LogNode, epoch: int, sequence: int, **fields: Any) -> None:
    sent = header(producer_id=PRODUCER, epoch=epoch, base_sequence=sequence, **fields)
    answer = await node.send(sent, PAYLOAD)
    assert answer.verdict.base_offset == node.part.high_watermark - 1


async def asked(node: LogNode, sequence: int) -> tuple[str, int, int]:
    request = log_pb2.ResolveSequenceRequest(
        topic=TOPIC, producer_id=PRODUCER, epoch=-1, sequence=sequence
    )
    found = await Resolver(node).answer(request)
    kind = log_pb2.Resolution.Name(found.resolution).removeprefix("RESOLUTION_")
    return kind, found.epoch, found.offset


async def test_an_expired_producers_later_epochs_are_searched_too(node: LogNode) -> None:
    await store(node, 2, 0, prev_sequence=-1)
    await store(node, 2, 1, prev_sequence=0)
    node.part.last_seen.advance(0, lifetime_ms=1, expired_below=PRODUCER + 1)
    assert await asked(node, 1) == ("COMMITTED", 2, 2)
    assert (await asked(node, 2))[0] == "NEVER"


async def test_an_epoch_that_the_confirmation_brings_is_asked(node: LogNode) -> None:
    confirm = node.log.confirm

    async def with_news() -> None:
        await store(node, 1, 0, prev_sequence=-1)
        await store(node, 1, 1, prev_sequence=0)

    def confirm_later(done: Any) -> None:
        node.log.confirm = confirm  # type: ignore[method-assign]
        coroutine = with_news()
        with pytest.raises(StopIteration):
            coroutine.send(None)  # it waits for nothing here
        confirm(done)

    node.log.confirm = confirm_later  # type: ignore[method-assign]
    assert await asked(node, 1) == ("COMMITTED", 1, 2)


async def test_what_is_staged_may_come_whatever_the_map_has_dropped(node: LogNode) -> None:
    staged = BatchMeta(PRODUCER, 1, 0, 1, -1, 2, 99)
    node.part.machine.runs.stage(
        staged, 1, node.part.last_seen,
        index=9, size=10, max_timestamp_us=0, time_ms=1, pin=False,
    )  # fmt: skip
    node.part.last_seen.advance(0, lifetime_ms=1, expired_below=PRODUCER + 1)
    assert (await asked(node, 1))[0] == "NOT_YET"
    assert (await asked(node, 2))[0] == "NEVER"
