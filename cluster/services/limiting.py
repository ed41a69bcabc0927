"""What a call counts for in its principal's quotas, and how long it waits for them.

    Guarding ------------------Limited----> Usage (security/quotas.py)
    Appender, ProducerService --new_producer, staging-'

A unary call waits MAX_DELAY at most; what would wait longer is THROTTLED, and the answer says
how long. A stream is not read on, or not written on, until its principal's rates are kept
again, which gRPC's flow control carries to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from math import ceil
from typing import Any

from cluster.dedup.verdict import Kind, Verdict
from cluster.partition.replica import Partition
from cluster.security.quotas import (
    IN_BYTES,
    NEW_PRODUCERS,
    OUT_BYTES,
    REQUESTS,
    USAGE,
    ExceededError,
    Usage,
)
from cluster.services.decoding import Undecodable
from oncelog.errors import ThrottledError

MAX_DELAY = 1.0  # seconds that a unary call waits
LOOK_AGAIN = 1.0  # seconds until a stream that waits looks whether its quota was changed
# By what one that begins again, as its answer was lost, is known. A sink has one at a time.
_BEGINS: Mapping[str, Callable[[Any], Hashable]] = {
    "/oncelog.v1.TransactionService/BeginTransaction": lambda one: (one.producer_id, one.nonce),
    "/oncelog.v1.SinkService/BeginBatch": lambda request: request.sink,
}
# Who waited with these would lose what they keep alive; they count, and do not wait.
_UNDELAYED = frozenset(
    {
        "/oncelog.v1.GroupService/JoinGroup",
        "/oncelog.v1.GroupService/GroupHeartbeat",
        "/oncelog.v1.TransactionService/KeepTransactionsAlive",
    }
)
# What has nothing to do with the other direction does not wait for it.
_RATES = {
    "/oncelog.v1.LogService/Produce": (REQUESTS, IN_BYTES),
    "/oncelog.v1.LogService/ProduceStream": (REQUESTS, IN_BYTES),
    "/oncelog.v1.LogService/Fetch": (REQUESTS, OUT_BYTES),
    "/oncelog.v1.LogService/Subscribe": (REQUESTS, OUT_BYTES),
    "/oncelog.v1.ProducerService/LeaseProducer": (REQUESTS, IN_BYTES, OUT_BYTES, NEW_PRODUCERS),
}
_OTHER = (REQUESTS, IN_BYTES, OUT_BYTES)


class Limited:
    """One method's calls, for any principal."""

    def __init__(self, method: str) -> None:
        self._rates = () if method in _UNDELAYED else _RATES.get(method, _OTHER)
        self._begins = _BEGINS.get(method)
        self._commits = method == "/oncelog.v1.TransactionService/CommitTransaction"
        self._leases = NEW_PRODUCERS in self._rates

    async def answer(self, usage: Usage, request: Any, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to one request. Raises ExceededError."""
        if usage.limits():
            await self._admit(usage, request)
        if self._begins is not None and not isinstance(request, Undecodable):
            with usage.begin(self._begins(request)) as begun:
                answer = await call()
                begun(answer.transaction_id)
        elif self._commits and not isinstance(request, Undecodable):
            answer = await self._committed(usage, request, call)
        else:
            answer = await call()
        if OUT_BYTES in usage.limits() and answer is not None:
            usage.take(OUT_BYTES, size_of(answer))
        return answer

    async def _committed(
        self, usage: Usage, request: Any, call: Callable[[], Awaitable[Any]]
    ) -> Any:
        """The next transaction takes the place of the one that ends, if that is within the quota;
        else the caller begins it, and is told."""
        number = request.transaction_id
        if request.HasField("begin_next") and not usage.may_begin_after(number):
            request.ClearField("begin_next")
        answer = await call()
        if answer is not None and answer.HasField("next"):
            begun = (request.producer_id, request.begin_next.nonce)
            usage.begun_next(answer.next.transaction_id, begun)
        return answer

    async def _admit(self, usage: Usage, request: Any) -> None:
        """Counted when it comes: so only as many wait as the rate lets through in MAX_DELAY."""
        seconds, name = usage.wait(self._rates)
        if seconds > MAX_DELAY:
            raise usage.exceeded(name, f"used up for {seconds:.1f} s", seconds)
        self.received(usage, request)
        if self._leases:
            usage.take(NEW_PRODUCERS, 1)
        if seconds:
            usage.delayed(name, seconds)
            await asyncio.sleep(seconds)

    def received(self, usage: Usage, request: Any) -> None:
        """Counts a request, or a message of a stream of them."""
        limits = usage.limits()
        if limits:
            usage.take(REQUESTS, 1)
            if IN_BYTES in limits and not isinstance(request, Undecodable):
                usage.take(IN_BYTES, size_of(request))

    async def pause(self, usage: Usage) -> None:
        """Until the rates are kept again. The quota may be changed meanwhile."""
        while True:
            seconds, name = usage.wait(self._rates)
            if not seconds:
                return
            seconds = min(seconds, LOOK_AGAIN)
            usage.delayed(name, seconds)
            await asyncio.sleep(seconds)

    async def messages(self, usage: Usage, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The messages of a stream, each once it may be read."""
        await self.pause(usage)
        async for request in requests:
            self.received(usage, request)
            yield request
            await self.pause(usage)


def size_of(message: Any) -> int:
    return len(message) if isinstance(message, bytes) else int(message.ByteSize())


def throttled(error: ExceededError) -> ThrottledError:
    return ThrottledError(str(error), retry_after_ms=ceil(error.retry_after_s * 1000))


def new_producer(replica: Partition, producer_id: int) -> Verdict | None:
    """Why the caller may not make one more producer id known to a partition."""
    usage = USAGE.get()
    if usage is None:
        return None
    known = replica.last_seen.known
    try:
        usage.check_producer(
            replica.group.config.group, producer_id, lambda pid: known(pid) is not None
        )
    except ExceededError as error:
        return Verdict(Kind.THROTTLED, message=str(error))
    return None


def staging(usage: Usage | None) -> Verdict | None:
    """Why the caller may not stage one more batch."""
    if usage is None:
        return None
    try:
        usage.check_staging()
    except ExceededError as error:
        return Verdict(Kind.THROTTLED, message=str(error))
    return None
