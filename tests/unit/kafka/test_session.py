"""Order of one connection's calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.access.gate import Gate
from cluster.kafka.codec import Source, encode
from cluster.kafka.messages import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    Call,
    HeartbeatResponse,
)
from cluster.kafka.needs import Rights
from cluster.kafka.sent import Sent
from cluster.kafka.session import Session
from cluster.kafka.versions import Head
from cluster.metrics.requests import Requests
from cluster.security.caller import Caller
from tests.unit.kafka.test_produce import Answers, Rig

CALLS = (OFFSET_COMMIT, TXN_OFFSET_COMMIT, LEAVE_GROUP, JOIN_GROUP, OFFSET_FETCH, HEARTBEAT)


class Calls:
    """A session whose calls begin and wait until they are let go."""

    def __init__(self) -> None:
        self.begun: list[Call] = []
        self.go = asyncio.Event()
        self.answer: object = None  # instead of an empty one
        self.answers = Answers()
        rights = Rights(Gate(None, None, None), Caller(), Sent(1))
        handlers = {call.key: self._handle for call in CALLS}
        self.session = Session(rights, handlers, Rig().producing, Requests())

    async def _handle(self, rights: Rights, head: Head, request: Any) -> Any:
        self.begun.append(head.call)
        await self.go.wait()
        assert head.call.response is not None
        return self.answer or head.call.response()

    async def send(self, *calls: Call) -> None:
        """Sends the requests; returns when all that can begin have begun."""
        for call in calls:
            head = Head(call, call.newest, 1, "", True)
            out = bytearray()
            assert call.request is not None
            encode(call.request(), out, head.version, flexible=head.flexible)
            exchange = self.answers.exchange()
            source = Source(memoryview(out))
            self.session.begin(self.answers, exchange, head, source)  # type: ignore[arg-type]
        await settled()


async def settled() -> None:
    """Returns when nothing moves any more; the calls wait for nothing outside."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("commit", [OFFSET_COMMIT, TXN_OFFSET_COMMIT])
@pytest.mark.parametrize("call", [OFFSET_FETCH, JOIN_GROUP, OFFSET_COMMIT, LEAVE_GROUP])
async def test_a_call_comes_after_the_commits_before_it(commit: Call, call: Call) -> None:
    """Offsets that wait for newer metadata must not replace those sent behind them."""
    calls = Calls()
    await calls.send(commit, commit, call, HEARTBEAT)
    assert calls.begun == [commit, HEARTBEAT], "only the first, and one that need not wait"
    calls.go.set()
    await settled()
    assert calls.begun == [commit, HEARTBEAT, commit, call]


async def test_a_commit_need_not_wait_for_a_rebalance() -> None:
    calls = Calls()
    await calls.send(JOIN_GROUP, OFFSET_FETCH, OFFSET_COMMIT)
    assert calls.begun == [JOIN_GROUP, OFFSET_FETCH, OFFSET_COMMIT]
    calls.session.close()


async def test_an_answer_that_cannot_be_written_ends_the_connection() -> None:
    """Its place stayed empty, and held up every answer behind it."""
    calls = Calls()
    calls.answer = HeartbeatResponse(throttle_time_ms=1 << 40)
    calls.go.set()
    await calls.send(HEARTBEAT)
    await calls.answers.end()
