"""Bridge from the user's event loop to the engine's thread and back.

Place in the flow: under all clients of this package. A coroutine runs on the engine's loop, with
the channels; the caller awaits its result on the user's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from oncelog._engine.net import runtime
from oncelog._engine.produce.futures import Delivery

T = TypeVar("T")


async def on_engine(
    coroutine: Coroutine[Any, Any, T],
    *,
    whole: bool = False,
    undo: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> T:
    """Run a coroutine on the engine's thread; a cancellation here cancels it there.

    A cancelled call may still have its effect, with the result lost. So a call that must not stop
    half way runs to its end (`whole`), and a call that creates something is undone: `undo` runs on
    the engine's thread after the cancelled coroutine, before the caller goes on.
    """
    future = asyncio.wrap_future(runtime.submit(coroutine))
    try:
        return await (asyncio.shield(future) if whole else future)
    except asyncio.CancelledError:
        if undo is not None:
            undone = asyncio.wrap_future(runtime.submit(undo()))
            while not undone.done():
                # The undo is short, and a second cancellation asks for the same.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(undone)
        raise


class Signal:
    """An event that any thread may set and one loop awaits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The loop ended before the client was closed: no reader waits any more.

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> None:
        """Return when it is set, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass

    # Methods of a delivery's watcher.

    def release(self) -> None:
        """Do nothing while the delivery's lock is held."""

    def call_back(self) -> None:
        self.set()


async def wait_done(delivery: Delivery) -> None:
    """Wait until a delivery is settled."""
    if not delivery.done:
        signal = Signal()
        if delivery.watch(signal):
            await signal.wait()


async def wait_told(delivery: Delivery, timeout: float | None) -> bool:
    """Wait until it is settled and its callbacks have returned; False after `timeout` seconds."""
    if not delivery.told:
        signal = Signal()
        if delivery.watch(signal, told=True):
            await signal.wait(timeout)
    return delivery.told


__all__ = ["Signal", "on_engine", "wait_done", "wait_told"]
