"""The engine's thread: one event loop per process, shared by all clients in it.

Place in the flow: sync clients hand coroutines to it and wait. gRPC's asyncio side has one
poller for all loops of a process, so one loop is also the arrangement it likes best.

A forked child has no such thread; clients made before the fork are closed there, and new
ones start a new loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from oncelog._engine.net.threads import engine_threads, refuse_on_engine_thread

T = TypeVar("T")

_start_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


class Forkable(Protocol):
    def forked(self) -> None: ...


_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def loop() -> asyncio.AbstractEventLoop:
    """Return the running engine loop, started if needed."""
    global _loop
    with _start_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            started = threading.Event()
            thread = threading.Thread(
                target=_run, args=(_loop, started), name="oncelog-engine", daemon=True
            )
            thread.start()
            started.wait()
        return _loop


def _run(engine: asyncio.AbstractEventLoop, started: threading.Event) -> None:
    asyncio.set_event_loop(engine)
    engine_threads.add(threading.get_ident())
    engine.call_soon(started.set)
    engine.run_forever()


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the engine's thread."""
    return asyncio.run_coroutine_threadsafe(coroutine, loop())


def run(
    coroutine: Coroutine[Any, Any, T], timeout: float | None = None, *, whole: bool = False
) -> T:
    """Run a coroutine on the engine's thread and wait for its result.

    An exception that a signal raises here cancels it there, unless `whole`.
    """
    try:
        refuse_on_engine_thread("call a blocking method")
    except RuntimeError:
        coroutine.close()
        raise
    future = submit(coroutine)
    try:
        return future.result(timeout)
    except BaseException:
        if not whole:
            future.cancel()
        raise


def post(callback: Callable[..., object], *args: object) -> None:
    """Run a plain function on the engine's thread soon."""
    loop().call_soon_threadsafe(callback, *args)


def register(client: Forkable) -> None:
    """Have `client.forked()` called in a child process."""
    _clients.add(client)


def _after_fork() -> None:
    global _loop, _start_lock
    _loop = None
    _start_lock = threading.Lock()
    engine_threads.clear()
    for client in list(_clients):
        client.forked()
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)

__all__ = ["loop", "post", "register", "run", "submit"]
