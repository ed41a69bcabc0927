"""Session of one known caller's connection: hands each request to its call.

    Login --Exchange, head--> Session --body--> Producing (at once, in order)
                                 '--a task each--> Handler --> answer

Produce is begun at once, in the order of the requests, and has no task. Every other request has
one; it ends with the connection. A commit waits for the one before it: the newest must be the last.
A client that joins or fetches offsets after its commits expects them done: Kafka works in order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from contextvars import Context, copy_context
from typing import Any, cast

from cluster.kafka.codec import CodecError, Source, decode, encode
from cluster.kafka.fetch import MAX_WAIT_MS, THROTTLE, Fetched
from cluster.kafka.frames import Connection, Exchange, Parts
from cluster.kafka.idle_polls import IdlePolls, Poll
from cluster.kafka.messages import (
    FETCH,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from cluster.kafka.needs import Rights
from cluster.kafka.produce import Producing
from cluster.kafka.sent import DelayedCallError
from cluster.kafka.versions import Head
from cluster.metrics.requests import FAILED, OK, Requests
from cluster.security.caller import CALLER, Caller

log = logging.getLogger(__name__)

KAFKA = "kafka"

# Calls of a connection that are answered one after the other.
IN_ORDER = frozenset((OFFSET_COMMIT.key, TXN_OFFSET_COMMIT.key, LEAVE_GROUP.key))
# Calls that wait for these, and hold up none.
BEHIND = frozenset((JOIN_GROUP.key, OFFSET_FETCH.key))
# Takes a request and returns an answer of `messages`; Fetch returns its finished parts.
Handler = Callable[[Rights, Head, Any], Awaitable[Any]]


class Session:
    """Requests of one connection. handlers: by the call's key."""

    def __init__(
        self,
        rights: Rights,
        handlers: Mapping[int, Handler],
        producing: Producing,
        requests: Requests,
    ) -> None:
        self._rights = rights
        self._handlers = handlers
        self._producing = producing
        self._requests = requests
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_polls = IdlePolls(rights.rules_version, self._answer_idle, self._work_on)
        self._turn = asyncio.Lock()
        self._context: Context = copy_context()
        self._context.run(CALLER.set, rights.caller)

    def begin(self, connection: Connection, exchange: Exchange, head: Head, source: Source) -> None:
        """Begin to work on a request. Raises CodecError."""
        if head.call is PRODUCE:
            self._requests.count(KAFKA, PRODUCE.name, OK)  # its answers have verdicts
            self._context.run(self._producing.begin, head, source, exchange)
            return
        body = exchange.request[source.at :]
        if head.call is FETCH and self._idle_polls.take(connection, exchange, head, body):
            return
        request = _decoded(head, source)
        self._begin(self._answer(connection, exchange, head, request, body))

    def _answer_idle(self, poll: Poll, tail: bytes) -> None:
        """Answer a consumer for which nothing has come."""
        head, exchange = poll.head, poll.exchange
        exchange.answer(_encoded(exchange, head, (head.begin_answer() + tail,)))
        self._requests.done(KAFKA, FETCH.name, OK, self._loop.time() - poll.since)

    def _work_on(self, poll: Poll) -> None:
        """Read for a consumer that had nothing to read before, in the rest of its wait."""
        request = _decoded(poll.head, Source(poll.body))
        left = poll.until - self._loop.time()
        request.max_wait_ms = round(max(0.0, left) * 1000)
        self._begin(self._answer(poll.connection, poll.exchange, poll.head, request, None))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        # Each has its own context: it notes the rules that its change was let in by.
        context = self._context.copy()
        task = self._loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def renew(self, caller: Caller) -> None:
        """Go on with a new proof of the same principal."""
        self._context.run(CALLER.set, caller)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._idle_polls.close()
        self._producing.close()

    async def _answer(
        self,
        connection: Connection,
        exchange: Exchange,
        head: Head,
        request: Any,
        body: memoryview | None,
    ) -> None:
        """body: the request's bytes, if it may be known by them."""
        started, code = time.monotonic(), FAILED
        try:
            if head.call.key in BEHIND:
                async with self._turn:
                    pass
            async with self._turn if head.call.key in IN_ORDER else nullcontext():
                answer = await self._handlers[head.call.key](self._rights, head, request)
            if isinstance(answer, Fetched):
                if answer.idle and body is not None:
                    wait = min(max(0, request.max_wait_ms), MAX_WAIT_MS) / 1000
                    tail = bytes(answer.parts[0][len(head.begin_answer()) :])
                    self._idle_polls.keep(head, body, wait, tail, answer.idle)
                answer = answer.parts
            exchange.answer(_encoded(exchange, head, answer))
            code = OK  # the codes in it are of its parts
        except (CodecError, DelayedCallError) as error:
            connection.refuse(str(error))
        except Exception:  # the last stop: a handler answers all errors that are expected
            log.exception("Kafka call %d failed client=%s", head.call.key, connection.address)
            connection.close()
        finally:
            self._requests.done(KAFKA, head.call.name, code, time.monotonic() - started)


def _decoded(head: Head, source: Source) -> Any:
    """Read a request. Raises CodecError."""
    kind = head.call.request
    assert kind is not None, "only Produce is read by hand"
    return decode(kind, source, head.version, flexible=head.flexible)


def _encoded(exchange: Exchange, head: Head, answer: Any) -> Parts:
    """Return an answer's parts, with the wait that its size makes for the client."""
    if head.call is FETCH:
        wait_ms = exchange.wait_ms(sum(map(len, answer)))
        if wait_ms:
            THROTTLE.pack_into(answer[0], len(head.begin_answer()), wait_ms)
        return cast(Parts, answer)
    out = head.begin_answer()
    encode(answer, out, head.version, flexible=head.flexible)
    wait_ms = exchange.wait_ms(len(out))
    if wait_ms and hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = wait_ms
        out = head.begin_answer()
        encode(answer, out, head.version, flexible=head.flexible)
    return (out,)
