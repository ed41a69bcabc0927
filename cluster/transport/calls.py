"""Requests to one peer over its link, and the callers that wait for answers.

    PeerLink.ask --Request--> (frames) --> PeerStream --> PeerListener.answer
                 <-Response-- the same connection back ---------'

An answer comes over the connection that the request took. When that breaks, its callers get an
error at once. Requests have a queue of their own beside the messages', and take turns with them.
"""

from __future__ import annotations

import asyncio
from collections import deque

from cluster.v1 import peer_pb2 as pb

MAX_REQUESTS = 1024  # without an answer, over one connection


class PeerCallError(Exception):
    """A peer did not answer a request, or gave a wrong answer. It may have taken the request."""


class NotSentError(PeerCallError):
    """A request was not sent: the peer has not taken it."""


class Calls:
    """Requests of one link: numbered, in order, and bounded in number."""

    def __init__(self) -> None:
        self._numbers = 0
        self._queue: deque[pb.Request] = deque()
        self._waiting: dict[int, asyncio.Future[pb.Response]] = {}

    def __bool__(self) -> bool:
        """Whether a request waits to be sent."""
        return bool(self._queue)

    async def ask(self, request: pb.Request) -> pb.Response:
        """Queues the request at once, then waits. Raises PeerCallError."""
        if len(self._waiting) >= MAX_REQUESTS:
            raise NotSentError(f"{MAX_REQUESTS} requests wait for their answers")
        self._numbers += 1
        number = request.id = self._numbers
        future: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._queue.append(request)
        try:
            response = await future
        finally:
            self._waiting.pop(number, None)
        if response.error:
            raise PeerCallError(response.error)
        return response

    def pop(self) -> pb.Request:
        """Returns the request to send next."""
        return self._queue.popleft()

    def answered(self, response: pb.Response) -> None:
        future = self._waiting.get(response.id)
        if future is not None and not future.done():
            future.set_result(response)

    def lost(self) -> None:
        """Fails all requests: the connection broke, so no answer will come."""
        unsent = {request.id for request in self._queue}
        self._queue.clear()
        for number, future in self._waiting.items():
            if not future.done():
                kind = NotSentError if number in unsent else PeerCallError
                future.set_exception(kind("the connection broke"))
