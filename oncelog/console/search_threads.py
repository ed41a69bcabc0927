"""Threads that search records: few, and shared fairly by the sessions.

A session that runs fewer searches than another goes first, so nobody waits for all searches of a
busy one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from oncelog.errors import ThrottledError

T = TypeVar("T")

MAX_THREADS = 4
MAX_SEARCHES = 2  # of one session, with those that wait


class SearchThreads:
    """Runs calls in threads. Must be used on one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_THREADS, "oncelog-console-search")
        self._running: Counter[object] = Counter()
        self._waiting: list[tuple[object, asyncio.Future[None]]] = []

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, session: object, call: Callable[..., T], *given: object) -> T:
        """Run a call when it is the session's turn. Raises ThrottledError."""
        queued = sum(waiter is session for waiter, _ in self._waiting)
        if self._running[session] + queued >= MAX_SEARCHES:
            raise ThrottledError("two searches of this session are running; wait for them")
        await self._turn(session)
        done = self._threads.submit(call, *given)
        loop = asyncio.get_running_loop()

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended before the thread
                loop.call_soon_threadsafe(self._end, session)

        # The turn lasts as long as the thread, which goes on if the page is closed.
        done.add_done_callback(ended)
        return await asyncio.wrap_future(done)

    async def _turn(self, session: object) -> None:
        """Wait for a free thread; the caller must end the turn."""
        if self._running.total() < MAX_THREADS:
            self._running[session] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((session, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(session)
            else:
                self._waiting = [one for one in self._waiting if one[1] is not turn]
            raise

    def _end(self, session: object) -> None:
        """End a turn; the next is of the waiting session that runs the fewest searches."""
        self._running[session] -= 1
        if not self._running[session]:
            del self._running[session]
        while self._waiting and self._running.total() < MAX_THREADS:
            chosen = min(self._waiting, key=lambda one: self._running[one[0]])
            self._waiting.remove(chosen)
            if not chosen[1].done():
                self._running[chosen[0]] += 1
                chosen[1].set_result(None)


__all__ = ["SearchThreads"]
