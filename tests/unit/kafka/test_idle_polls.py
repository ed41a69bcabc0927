"""Consumers that have read everything, over a real partition: answers without a look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.access.gate import Gate
from cluster.kafka import idle_polls
from cluster.kafka.brokers import Brokers
from cluster.kafka.codec import Source, encode
from cluster.kafka.errors import Error
from cluster.kafka.fetch import Fetched, Fetching
from cluster.kafka.frames import Exchange
from cluster.kafka.messages import FETCH, FetchPartition, FetchRequest, FetchTopic
from cluster.kafka.needs import Rights
from cluster.kafka.sent import Sent
from cluster.kafka.session import Session
from cluster.kafka.versions import Head
from cluster.metrics.requests import Requests
from cluster.security.caller import Caller
from tests.unit.kafka.kafka_bytes import batch
from tests.unit.kafka.test_logs import delete
from tests.unit.kafka.test_produce import Answers, Rig
from tests.unit.services.log_rig import TOPIC

LONG = 60_000


class Consumer:
    """One connection. looks: Fetches that were worked on."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.looks, self.rules, self.correlation = rig, 0, 0, 0
        self.fetching = Fetching(rig.node, Brokers(rig.node))
        gate = Gate(None, None, None, rules_version=lambda: self.rules)
        rights = Rights(gate, Caller(), Sent(1))
        self.requests = Requests()
        self.session = Session(rights, {FETCH.key: self._fetch}, rig.producing, self.requests)
        self.answers = Answers()

    async def _fetch(self, rights: Rights, head: Head, request: Any) -> Fetched:
        self.looks += 1
        return await self.fetching.fetch(rights, head, request)

    def ask(self, offset: int, wait_ms: int = 0, version: int = 12) -> Exchange:
        """Sends a request."""
        self.correlation += 1
        head = Head(FETCH, version, self.correlation, "", True)
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20)
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request.topics = [FetchTopic(TOPIC, [part])]
        out = bytearray()
        encode(request, out, version, flexible=head.flexible)
        exchange = Exchange(self.answers, memoryview(out))  # type: ignore[arg-type]
        self.answers.exchanges.append(exchange)
        connection: Any = self.answers
        self.session.begin(connection, exchange, head, Source(exchange.request))
        return exchange

    async def fetch(self, offset: int, wait_ms: int = 0) -> tuple[int, int, int, int]:
        """The error, the high watermark, the log's start, the bytes of records."""
        return await self.result(self.ask(offset, wait_ms))

    async def result(self, exchange: Exchange) -> tuple[int, int, int, int]:
        async with asyncio.timeout(20):
            while exchange.parts is None:
                self.answers._news.clear()
                await self.answers._news.wait()
        data = b"".join(bytes(one) for one in exchange.parts)
        assert int.from_bytes(data[:4], "big") == self.correlation
        return _read(data)

    @property
    def listens(self) -> int:
        return len(self.rig.node.part.listeners)


def _read(data: bytes) -> tuple[int, int, int, int]:
    """Of the only partition of an answer of version 12."""
    at = 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(TOPIC) + 1 + 4
    error = int.from_bytes(data[at : at + 2], "big")
    marks = [int.from_bytes(data[at + 2 + 8 * n : at + 10 + 8 * n], "big") for n in (0, 2)]
    return error, marks[0], marks[1], len(data) - at - 2 - 24 - 1 - 4 - 4


async def test_the_same_question_without_news_is_answered_without_a_look() -> None:
    rig = Rig()
    rig.begin(batch(3))
    consumer = Consumer(rig)
    first = await consumer.fetch(3)
    assert (first[:3], consumer.looks) == ((0, 3, 0), 1)
    assert await consumer.fetch(3) == first and await consumer.fetch(3, 0) == first
    assert consumer.looks == 1
    # Another wait is another question, and so is another offset.
    assert await consumer.fetch(3, 1) == first and consumer.looks == 2
    assert (await consumer.fetch(0))[3] > first[3] and consumer.looks == 3
    consumer.session.close()
    assert not consumer.listens


async def test_news_end_the_wait() -> None:
    rig = Rig()
    consumer = Consumer(rig)
    waiting = consumer.ask(0, LONG)
    await asyncio.sleep(0)
    rig.begin(batch(1))
    assert (await consumer.result(waiting))[3] > 0
    end = await consumer.fetch(1, 1)
    assert consumer.looks == 2 and consumer.listens == 1
    known = consumer.session._idle_polls._known
    assert known is not None
    consumer.session._idle_polls._known = known._replace(wait=LONG)
    waiting = consumer.ask(1, 1)
    assert consumer.looks == 2, "it waits for the partition alone"
    rig.begin(batch(2))
    error, end_now, _, size = await consumer.result(waiting)
    assert (error, end_now, consumer.looks) == (0, 3, 3) and size > end[3]
    assert not consumer.listens


async def test_a_leader_that_is_deposed_says_so_at_once() -> None:
    rig = Rig()
    consumer = Consumer(rig)
    await consumer.fetch(0, 1)
    known = consumer.session._idle_polls._known
    assert known is not None
    consumer.session._idle_polls._known = known._replace(wait=LONG)
    waiting = consumer.ask(0, 1)
    rig.node.leaders[16] = 2
    rig.node.part.notify()  # as the node does
    assert (await consumer.result(waiting))[0] == Error.NOT_LEADER_OR_FOLLOWER


async def test_other_rules_and_an_older_look_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.begin(batch(3))
    rig.begin(batch(3))
    consumer = Consumer(rig)
    await consumer.fetch(6)
    consumer.rules = 1
    await consumer.fetch(6)
    assert consumer.looks == 2
    assert await delete(rig, 3) == (0, 3)
    monkeypatch.setattr(idle_polls, "LOOK_AGAIN", 0.0)
    consumer.rules = 2
    assert (await consumer.fetch(6))[2] == 3
    await consumer.fetch(6)
    assert consumer.looks == 4, "a log's start is no news"


async def test_a_request_that_waits_goes_with_its_connection() -> None:
    rig = Rig()
    consumer = Consumer(rig)
    await consumer.fetch(0, 1)
    consumer.ask(0, 1)
    timer = consumer.session._idle_polls._timer
    consumer.session.close()
    assert timer is not None and timer.cancelled() and not consumer.listens
