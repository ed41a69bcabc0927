"""A produce stream's time: a batch that is not committed in time, and an idle stream's cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.services.log import produce as producing
from cluster.services.log.produce import ProduceCall
from oncelog.v1 import log_pb2
from tests.unit.services.log_rig import PAYLOAD, LogNode, header


async def ask(stream: ProduceCall, node: LogNode, *, timeout_ms: int = 0) -> str:
    """The verdict on one batch."""

    async def requests() -> Any:
        batch = node.batch(header(), PAYLOAD)
        yield log_pb2.ProduceRequest(batches=[batch], timeout_ms=timeout_ms)

    await stream.read(requests())
    ((_, answer),) = await stream.next_results()
    stream.taken(1)
    return answer.verdict.kind.name


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays of all timers that the loop of this test is asked for."""
    monkeypatch.setattr(producing, "SWEEP", 0.001)
    return []


def counted(timers: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(delay: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *args, **kwargs)

    monkeypatch.setattr(loop, "call_later", noted)


async def test_a_batch_that_is_not_committed_in_time_is_answered(timers, monkeypatch):
    node = LogNode()
    monkeypatch.setattr(node.log, "propose", lambda data, done, **_: None)
    counted(timers, monkeypatch)
    stream = ProduceCall(node.appender)
    assert await ask(stream, node, timeout_ms=5) == "TIMEOUT"
    assert timers
    assert await stream.next_results() == []  # the end: all is answered


async def test_an_idle_stream_asks_for_no_timer(timers, monkeypatch):
    node = LogNode()
    stream = ProduceCall(node.appender)
    assert await ask(stream, node) == "APPENDED"
    stream._ended = False  # the client sends nothing for now
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    results = asyncio.ensure_future(stream.next_results())
    loop.call_later(0.01, over.set)  # the sweep of the answered batch is over by then
    await over.wait()
    over.clear()
    loop.call_later(0.05, over.set)
    counted(timers, monkeypatch)
    await over.wait()
    assert not results.done()
    assert timers == []
    results.cancel()
