"""Quota accounting of calls: counts each call for its principal, and delays it.

    Guarding ------------------Limited----> Usage (security/quotas.py)
    Appender, ProducerService --new_producer, staging-'

A unary call waits at most MAX_DELAY; a longer wait is THROTTLED, and the answer says how long.
A stream is neither read nor written until its principal is within its rates again; gRPC's flow
control carries that to the client.
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
from cluster.services.interceptors.decoding import Undecodable
from oncelog.errors import ThrottledError

MAX_DELAY = 1.0  # seconds that a unary call waits
LOOK_AGAIN = 1.0  # seconds until a stream that waits looks whether its quota was changed
# A repeated begin, after a lost answer, has the same key. A sink has one batch at a time.
_BEGINS: Mapping[str, Callable[[Any], Hashable]] = {
    "/oncelog.v1.TransactionService/BeginTransaction": lambda one: (one.producer_id, one.nonce),
    "/oncelog.v1.SinkService/BeginBatch": lambda request: request.sink,
}
# A delay would end the session or transaction that these keep alive: they only count.
_UNDELAYED = frozenset(
    {
        "/oncelog.v1.GroupService/JoinGroup",
        "/oncelog.v1.GroupService/GroupHeartbeat",
        "/oncelog.v1.TransactionService/KeepTransactionsAlive",
    }
)
# A call does not wait for the rate of the direction that it does not use.
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
        """Answer one request. Raises ExceededError."""
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
        """Commit; the next transaction replaces the ending one, if the quota allows it.

        Otherwise the caller begins the next transaction itself, and gets the refusal.
        """
        number = request.transaction_id
        if request.HasField("begin_next") and not usage.may_begin_after(number):
            request.ClearField("begin_next")
        answer = await call()
        if answer is not None and answer.HasField("next"):
            begun = (request.producer_id, request.begin_next.nonce)
            usage.begun_next(answer.next.transaction_id, begun)
        return answer

    async def _admit(self, usage: Usage, request: Any) -> None:
        """Count the request on arrival: so only as many wait as the rate admits in MAX_DELAY."""
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
        """Count a request, or a message of a stream of them."""
        limits = usage.limits()
        if limits:
            usage.take(REQUESTS, 1)
            if IN_BYTES in limits and not isinstance(request, Undecodable):
                usage.take(IN_BYTES, size_of(request))

    async def pause(self, usage: Usage) -> None:
        """Wait until the principal is within its rates. The quota may change meanwhile."""
        while True:
            seconds, name = usage.wait(self._rates)
            if not seconds:
                return
            seconds = min(seconds, LOOK_AGAIN)
            usage.delayed(name, seconds)
            await asyncio.sleep(seconds)

    async def messages(self, usage: Usage, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield a stream's messages, each once it may be read."""
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
    """Return why the caller may not make one more producer id known to a partition."""
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
    """Return why the caller may not stage one more batch."""
    if usage is None:
        return None
    try:
        usage.check_staging()
    except ExceededError as error:
        return Verdict(Kind.THROTTLED, message=str(error))
    return None
