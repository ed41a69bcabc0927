"""Pace of calls: counts each for its principal, and delays it.

    a protocol --Pace--> Usage (security/quotas.py)

A call with one request waits at most MAX_DELAY; a longer wait is an error that says how long. A
stream is neither read nor written until its principal is within its rates again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from math import ceil
from typing import Protocol, TypeVar

from cluster.security.quotas import (
    IN_BYTES,
    NEW_PRODUCERS,
    OUT_BYTES,
    REQUESTS,
    ExceededError,
    Usage,
)
from oncelog.errors import ThrottledError

MAX_DELAY = 1.0  # seconds that a call with one request waits
LOOK_AGAIN = 1.0  # seconds until a stream that waits looks whether its quota was changed


class SizedMessage(Protocol):
    """A message of protobuf, or one that knows its size as such do."""

    def ByteSize(self) -> int: ...


MessageT = TypeVar("MessageT", bound=SizedMessage)


class Pace:
    """Calls of one kind, of any principal. rates: those that delay them."""

    def __init__(self, rates: Sequence[str]) -> None:
        self._rates = rates
        self._leases = NEW_PRODUCERS in rates

    async def admit(self, usage: Usage, request: SizedMessage) -> None:
        """Count the request on arrival: so only as many wait as the rate admits in MAX_DELAY.

        Raises ExceededError.
        """
        if not usage.limits():
            return
        seconds, name = usage.wait(self._rates)
        if seconds > MAX_DELAY:
            raise usage.exceeded(name, f"used up for {seconds:.1f} s", seconds)
        self.received(usage, request)
        if seconds:
            usage.delayed(name, seconds)
            await asyncio.sleep(seconds)

    def wait(self, usage: Usage) -> float:
        """Return the seconds until the principal is within its rates."""
        return usage.wait(self._rates)[0]

    def received(self, usage: Usage, request: SizedMessage | int) -> None:
        """Count a request, or a message of a stream of them; or its size."""
        limits = usage.limits()
        if limits:
            usage.take(REQUESTS, 1)
            if self._leases:
                usage.take(NEW_PRODUCERS, 1)
            if IN_BYTES in limits:
                usage.take(IN_BYTES, size_of(request))

    def answered(self, usage: Usage, answer: SizedMessage | bytes | int | None) -> None:
        """Count an answer; None: it was sent as an error."""
        if OUT_BYTES in usage.limits() and answer is not None:
            usage.take(OUT_BYTES, size_of(answer))

    async def pause(self, usage: Usage) -> None:
        """Wait until the principal is within its rates. The quota may change meanwhile."""
        while True:
            seconds, name = usage.wait(self._rates)
            if not seconds:
                return
            seconds = min(seconds, LOOK_AGAIN)
            usage.delayed(name, seconds)
            await asyncio.sleep(seconds)

    async def messages(
        self, usage: Usage, requests: AsyncIterator[MessageT]
    ) -> AsyncIterator[MessageT]:
        """Yield a stream's messages, each once it may be read."""
        await self.pause(usage)
        async for request in requests:
            self.received(usage, request)
            yield request
            await self.pause(usage)


def size_of(message: SizedMessage | bytes | int) -> int:
    if isinstance(message, int):
        return message
    return len(message) if isinstance(message, bytes) else int(message.ByteSize())


def throttled(error: ExceededError) -> ThrottledError:
    return ThrottledError(str(error), retry_after_ms=ceil(error.retry_after_s * 1000))
