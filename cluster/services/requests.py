"""Checks that several services share. A refusal names the field and its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cluster.services.context import NodeContext
from oncelog.errors import InvalidRequestError, RequestTimeoutError

MAX_TIMEOUT_MS = 600_000
MessageT = TypeVar("MessageT")
# Sends one message of a stream. Raises CancelledError if the client has gone.
Write = Callable[[Any], Awaitable[None]]


class Undecodable:
    """Placeholder for an undecodable message."""

    def __init__(self, fault: object) -> None:
        self.error = InvalidRequestError(f"message: {fault}", field="message")

    def ByteSize(self) -> int:
        """Return 0: nothing of it is kept."""
        return 0


def decoded(message: MessageT) -> MessageT:
    """Return `message` unchanged. Raises InvalidRequestError if it could not be decoded."""
    if isinstance(message, Undecodable):
        raise message.error
    return message


def invalid(field: str, text: str, limit: str = "") -> InvalidRequestError:
    """Return the refusal of a request because of one of its fields."""
    return InvalidRequestError(f"{field}: {text}", field=field, limit=limit)


def in_range(field: str, value: int, low: int, high: int) -> int:
    """Return `value` if it is from `low` to `high`. Raises InvalidRequestError."""
    if not low <= value <= high:
        limit = f"{low}..{high}"
        raise invalid(field, f"{value} must be {limit}", limit)
    return value


def count_in_range(field: str, count: int, low: int, high: int) -> None:
    """Raises InvalidRequestError for a field that is repeated too often, or not often enough."""
    if not low <= count <= high:
        limit = f"{low}..{high}"
        raise invalid(field, f"{count} given, {limit} are allowed", limit)


def timeout_s(timeout_ms: int, node: NodeContext) -> float:
    """Return how long a call may wait, in seconds; 0 stands for the node's default."""
    in_range("timeout_ms", timeout_ms, 0, MAX_TIMEOUT_MS)
    return (timeout_ms or node.config.request_timeout_ms) / 1000


class Deadline:
    """End of a request's waits, which may be several: `async with` each of them, one at a time.

    Raises RequestTimeoutError at the end: the outcome is not known. Behind it no wait begins.
    """

    def __init__(self, timeout_ms: int, node: NodeContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + timeout_s(timeout_ms, node)
        self._timeout = asyncio.timeout_at(self._ends)

    def left(self) -> float:
        """Return the seconds until the end."""
        return max(0.0, self._ends - self._loop.time())

    async def __aenter__(self) -> None:
        if not self.left():
            raise RequestTimeoutError("not begun: the time of the request is over")
        self._timeout = asyncio.timeout_at(self._ends)
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            self._ends = self._loop.time()  # a coarse clock's timer may be early
            raise RequestTimeoutError("not committed in time; it may be committed later") from None


def page_size(limit: int, default: int, most: int) -> int:
    """Return how many rows an answer may have; 0 stands for `default`."""
    return in_range("limit", limit, 0, most) or default


def not_negative(request: Any, *fields: str) -> None:
    """Raises InvalidRequestError for the first of these fields that is negative."""
    for field in fields:
        if getattr(request, field) < 0:
            raise invalid(field, f"{getattr(request, field)} must not be negative", "0..")
