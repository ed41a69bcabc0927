"""Waits for the engine's thread: they end with an error if it cannot run.

Place in the flow: `runtime` notes its thread here. Each wait of a user's thread goes through
`wait`. It fails if the engine's thread has ended, is frozen by the interpreter's end, is the
caller's own, waits for a lock that the caller holds, or does not run for another reason.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from oncelog.errors import ClientClosedError, RequestTimeoutError

FIRST_S = 0.05
SLICE_S = 1.0
# Slices, not seconds: a process that was stopped for an hour has missed only one.
MOST_SLICES = 30

# The machine's clock and the source of time.monotonic here; nothing replaces it.
_CLOCK = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
_REPLACED = (
    "another clock is in the place of the machine's (freezegun does so). Have it ignore asyncio, "
    "grpc and oncelog"
)

engine_threads: set[int] = set()
# Locks of user threads and the engine's thread. Any: RLock's `_is_owned` has no stub.
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


class EngineThread:
    """A thread with an event loop. `rounds` rises with each answer to `ask`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self.loop = loop
        self.thread = thread
        self.rounds = 0

    def ask(self) -> None:
        # By a timer: a clock that stands still must be noticed, too.
        self.loop.call_soon_threadsafe(self.loop.call_later, 0.001, self._answer)

    def _answer(self) -> None:
        self.rounds += 1

    def why_not(self) -> str:
        """Return why it cannot run; "" if it can."""
        if sys.is_finalizing():
            return "the interpreter is ending"
        return "" if self.thread.is_alive() else "the client's thread has ended"

    def has_its_clock(self) -> bool:
        now = time.clock_gettime(_CLOCK)
        return abs(time.monotonic() - now) < 1.0 and abs(self.loop.time() - now) < 1.0

    def place(self) -> str:
        """Return the innermost lines of its stack."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        lines = traceback.format_stack(frame)[-3:] if frame is not None else []
        return " ".join(" ".join(lines).split())


engine: EngineThread | None = None


def shared_lock() -> Any:
    """Return a lock for user threads and the engine's thread; an RLock."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


class SharedCondition(threading.Condition):
    """A condition that holds its lock after a wait, also if a signal handler raised within it.

    The wait of `threading.Condition` gives the lock back and takes it again between lines of
    Python code; a handler that raises there would leave it with nobody.
    """

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return super().wait(timeout)
        finally:
            if not self._is_owned():  # type: ignore[attr-defined]
                self.acquire()


def refuse_on_engine_thread(what: str) -> None:
    if threading.get_ident() in engine_threads:
        raise RuntimeError(f"a callback of the client must not {what}: it would wait for itself")


def refuse_to_wait(what: str) -> None:
    """Raise RuntimeError if a wait would never end: the engine's thread waits for this one."""
    refuse_on_engine_thread(what)
    if _holds_a_lock():
        raise RuntimeError(
            f"cannot {what} here: this thread is inside the client already, below a signal handler "
            "or a log handler. Set a flag or raise SystemExit there, and call the client later"
        )


def _holds_a_lock() -> bool:
    while True:
        try:
            return any(lock._is_owned() for lock in tuple(_locks))
        except RuntimeError:
            pass  # another thread has made a client in the meantime


def check() -> None:
    """Raise ClientClosedError if the engine's thread cannot run any more."""
    if engine is not None and (why := engine.why_not()):
        raise ClientClosedError(f"the client cannot go on: {why}")


def wait(attempt: Callable[[float], bool], timeout: float | None, what: str) -> bool:
    """Call `attempt(seconds)`, which waits so long at most, until it is true or time is up.

    `what`: the caller's verb. Raises ClientClosedError if the engine's thread cannot run any more,
    RequestTimeoutError if it has not run for `MOST_SLICES` slices, RuntimeError as `refuse_to_wait`
    does.
    """
    refuse_on_engine_thread(what)
    missed, rounds, left = 0, -1, timeout
    seconds = FIRST_S  # most waits end within it, at no further cost
    while True:
        if left is not None:
            seconds = min(seconds, left)
        if attempt(seconds):
            return True
        if left is not None:
            left -= seconds
            if left <= 0:
                return False
        seconds = SLICE_S
        refuse_to_wait(what)
        asked = engine
        if asked is None:
            continue
        if why := asked.why_not():
            raise ClientClosedError(f"cannot {what}: {why}")
        if not asked.has_its_clock():
            raise RuntimeError(f"cannot {what}: {_REPLACED}")
        missed += 1
        if asked.rounds != rounds:
            missed, rounds = 0, asked.rounds
            asked.ask()
        elif missed >= MOST_SLICES:
            raise RequestTimeoutError(
                f"cannot {what}: the client's thread has not run for {MOST_SLICES * SLICE_S:g} s. "
                f"It stands in {asked.place()}"
            )
