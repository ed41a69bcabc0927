"""Repeated Fetches of a consumer that has read everything: one connection's.

    Session --the bytes of a Fetch--> IdlePolls --no news in time--> the answer before, again
                                         '-- news --> the Session works on it

A consumer at the end of its partitions asks the same each half second. Its request is known by its
bytes: it is not read again, and neither are its partitions, which report news. So a node bears many
idle consumers of every client; a session of KIP-227 would need a client that asks for one.

Now and then a request is worked on all the same: a log's start is no news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cluster.kafka.frames import Connection, Exchange
from cluster.kafka.versions import Head
from cluster.partition.replica import Partition

MAX_BODY_BYTES = 4096  # of a known request: some 120 partitions
LOOK_AGAIN = 60.0  # seconds until a known request is worked on all the same


class _Known(NamedTuple):
    """A request and its empty answer. tail: behind the answer's head."""

    version: int
    body: bytes
    wait: float
    tail: bytes
    partitions: Sequence[Partition]
    rules: int
    until: float


class Poll(NamedTuple):
    """A request that waits. body: its bytes behind the head. until: by the loop's clock."""

    connection: Connection
    exchange: Exchange
    head: Head
    body: memoryview
    since: float
    until: float


class IdlePolls:
    """rules_version: of the rights that a known request was let in by.

    answer: called with the answer's tail when a poll's wait is over. work: called on news.
    """

    def __init__(
        self,
        rules_version: Callable[[], int],
        answer: Callable[[Poll, bytes], None],
        work: Callable[[Poll], None],
    ) -> None:
        self._rules_version = rules_version
        self._answer = answer
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._known: _Known | None = None
        self._timer: asyncio.Handle | None = None  # of the request that waits
        self._poll: Poll | None = None

    def take(
        self, connection: Connection, exchange: Exchange, head: Head, body: memoryview
    ) -> bool:
        """Let a known request wait; False: it must be worked on."""
        known, now = self._known, self._loop.time()
        if known is None or self._timer is not None:
            return False
        # Bytes are compared faster than views.
        if known.version != head.version or known.body != bytes(body):
            return False
        if now >= known.until or known.rules != self._rules_version():
            self._forget()
            return False
        self._poll = Poll(connection, exchange, head, body, now, now + known.wait)
        self._timer = self._loop.call_at(self._poll.until, self._end, known.tail)
        return True

    def keep(
        self,
        head: Head,
        body: memoryview,
        wait: float,
        tail: bytes,
        partitions: Sequence[Partition],
    ) -> None:
        """Know a request that was answered without records. Nothing has changed since its look."""
        self._forget()
        if len(body) > MAX_BODY_BYTES or self._timer is not None:
            return
        until = self._loop.time() + LOOK_AGAIN
        rules = self._rules_version()
        self._known = _Known(head.version, bytes(body), wait, tail, partitions, rules, until)
        for one in partitions:
            one.listeners.add(self._on_news)

    def close(self) -> None:
        self._forget()
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, tail: bytes) -> None:
        self._answer(self._taken(), tail)

    def _on_news(self) -> None:
        self._forget()
        if self._timer is not None:
            # The partition applies entries just now: its other listeners come first.
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._work(self._taken())

    def _taken(self) -> Poll:
        poll, self._poll, self._timer = self._poll, None, None
        assert poll is not None, "a timer is a poll's"
        return poll

    def _forget(self) -> None:
        known, self._known = self._known, None
        for one in () if known is None else known.partitions:
            one.listeners.discard(self._on_news)
