"""From the user's event loop to the engine's thread and back.

Place in the flow: under all clients of this package. A coroutine runs on the engine's
loop, where the channels live; the caller awaits its result on his own.
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
    """Run a coroutine on the engine's thread. Cancelled here, it is cancelled there.

    It may have its effect nevertheless, and nobody has the result. So what must not be left half
    done goes on to its end (`whole`), and what makes something takes it back: `undo` runs on the
    engine's thread behind the cancelled coroutine, before the caller goes on.
    """
    future = asyncio.wrap_future(runtime.submit(coroutine))
    try:
        return await (asyncio.shield(future) if whole else future)
    except asyncio.CancelledError:
        if undo is not None:
            undone = asyncio.wrap_future(runtime.submit(undo()))
            while not undone.done():
                # It does not take long; a further cancellation wants what this one wants.
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
            # The loop ended before the client was closed: nobody waits any more.

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> None:
        """Return when it is set, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass

    # A delivery's watcher.

    def release(self) -> None:
        """Nothing to do while the delivery's lock is held."""

    def call_back(self) -> None:
        self.set()


async def wait_done(delivery: Delivery, timeout: float | None = None) -> bool:
    """Wait until a delivery is settled; False if it is not after `timeout` seconds."""
    if not delivery.done:
        signal = Signal()
        if delivery.watch(signal):
            await signal.wait(timeout)
    return delivery.done


__all__ = ["Signal", "on_engine", "wait_done"]
