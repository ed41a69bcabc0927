"""An event loop without sockets, whose time moves only when the simulation says so.

    World --run, tick--> Loop --> the tasks of nodes' wiring

Every task belongs to the node that began it, as tasks inherit their context. A node that stops
cancels its tasks.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Coroutine
from heapq import heappop, heappush
from itertools import count
from typing import Any

# A timer beyond it is a limit of a call, which no run waits for.
HORIZON = 5.0
OWNER: contextvars.ContextVar[set[asyncio.Task[Any]]] = contextvars.ContextVar("owner")


class Loop:
    """The part of asyncio.AbstractEventLoop that tasks need. now: seconds.

    A task that fails with another error than `expected` ends the run.
    """

    def __init__(self, expected: tuple[type[Exception], ...] = ()) -> None:
        self._expected = expected
        self._self: Any = self
        self.now = 0.0
        self.failure: BaseException | None = None
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()

    # -- what asyncio asks of a loop ------------------------------------------------------

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._self)

    def create_task(self, work: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self._self, **more)
        context = more.get("context")
        owned = OWNER.get() if context is None else context[OWNER]
        owned.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            owned.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, self._expected):
                self.failure = self.failure or error

        task.add_done_callback(done)
        return task

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._self, context)
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: `tick` passes it over."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failure = self.failure or context.get("exception")

    # -- the simulation -------------------------------------------------------------------

    @staticmethod
    def context(owned: set[asyncio.Task[Any]]) -> contextvars.Context:
        """Returns one for a node's tasks; the tasks that they begin are the node's, too."""
        context = contextvars.copy_context()
        context.run(OWNER.set, owned)
        return context

    def run(self) -> None:
        """Runs until nothing is left to do at this moment."""
        ready = self._ready
        if not ready and self._next() > self.now:
            return
        events._set_running_loop(self._self)
        try:
            while ready or self._next() <= self.now:
                if not ready:
                    ready.append(heappop(self._timers)[2])
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(None)
        if self.failure is not None:
            raise self.failure

    def tick(self) -> None:
        """Lets time pass until the next timer, unless that is far away."""
        if self._next() <= self.now + HORIZON:
            self.now = self._next()
        self.run()

    def _next(self) -> float:
        while self._timers and self._timers[0][2]._cancelled:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")
