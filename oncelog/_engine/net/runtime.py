"""Engine thread: one event loop per process, shared by all its clients.

Place in the flow: sync clients hand coroutines to it and wait. gRPC's asyncio side has one poller
for all loops of a process, so one loop suits it best.

A forked child has no such thread. Clients made before the fork are closed there. New clients start
a new loop, unless gRPC ran in the parent: then it cannot run in the child. gRPC's threads outlive
the last channel by some milliseconds, so a fork after the last close waits for their end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from oncelog._engine.net import diverting, threads
from oncelog._engine.net.threads import EngineThread, engine_threads
from oncelog.errors import ClientClosedError, RequestTimeoutError

T = TypeVar("T")

log = logging.getLogger("oncelog.client")

_START = "start the client"
_POLLER = "_poll_wrapper"  # gRPC's thread runs this function while there is a channel
_NATIVE = {"grpc_global_tim", "event_engine", "lifeguard", "grpc_shutdown"}  # its other threads
_TASKS = Path("/proc/self/task")
_FORK_PAUSES_S = tuple(0.001 * 2**n for n in range(12))  # 4 s in all
_FORKED = (
    "this process was forked while its parent used a client, and gRPC cannot run in it: start it "
    "with multiprocessing's method spawn or forkserver, or make the first client after the fork"
)

_GREEN = (
    "gevent or eventlet has replaced threads by its own, and gRPC would block all of them: leave "
    "threads out (gevent.monkey.patch_all(thread=False)), or use the client in another process"
)

_start_lock = threads.shared_lock()
_forked_under_grpc = _forking_under_grpc = False
_others_use_grpc = False  # its threads outlived the wait of an earlier fork
_of_the_parent: list[object] = []


class Forkable(Protocol):
    _closed: bool

    def _forked(self) -> None: ...


_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def loop() -> asyncio.AbstractEventLoop:
    """Return the running engine loop, started if needed. Raises ClientClosedError if it cannot."""
    engine = threads.engine
    return engine.loop if engine is not None else _start().loop


def _start() -> EngineThread:
    if _forked_under_grpc:
        raise ClientClosedError(_FORKED)
    if sys.is_finalizing():
        raise ClientClosedError(f"cannot {_START}: the interpreter is ending")
    threads.refuse_to_wait(_START)
    if _threads_are_replaced():
        raise RuntimeError(_GREEN)
    running = threading.Lock()
    running.acquire()
    with _start_lock:
        if threads.engine is None:
            diverting.begin()
            thread = threading.Thread(
                target=_run, args=(running.release,), name="oncelog-engine", daemon=True
            )
            thread.start()
            if not running.acquire(True, threads.SLICE_S * threads.MOST_SLICES):
                raise RequestTimeoutError(f"cannot {_START}: this process runs no new thread")
        assert threads.engine is not None, "the thread has noted itself"
        return threads.engine


def _threads_are_replaced() -> bool:
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    return (gevent is not None and gevent.is_module_patched("threading")) or (
        eventlet is not None and eventlet.is_monkey_patched("thread")
    )


def _run(started: Callable[[], None]) -> None:
    engine_threads.add(threading.get_ident())
    engine = asyncio.new_event_loop()  # on this thread: it logs
    engine.set_exception_handler(_report)
    asyncio.set_event_loop(engine)
    threads.engine = EngineThread(engine, threading.current_thread())
    engine.call_soon(started)
    while True:
        try:
            engine.run_forever()
        except BaseException:
            # A callback raised an error that ends programs: all other clients go on.
            log.exception("the client's thread goes on after an error")


def _report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.error("%s", context.get("message", ""), exc_info=context.get("exception"))


class _Call(Generic[T]):
    """A coroutine on the engine's thread, and the user's thread that waits for it.

    Not a Future: a signal could end a wait while the Future's lock is held, and the engine's thread
    would wait for that lock.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._running = threading.Lock()
        self._running.acquire()
        self._cancelled = False

    def start(self) -> None:
        if self._cancelled:
            self._coroutine.close()
            return
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved, whether the user's thread still waits or not
        self._running.release()

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._coroutine.close()  # its start was interrupted, too

    def wait(self, seconds: float) -> bool:
        return self._running.acquire(True, seconds)

    def result(self) -> T:
        assert self._task is not None, "it has been waited for"
        if self._task.cancelled():
            raise CancelledError
        return self._task.result()


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the engine's thread."""
    try:
        engine = loop()
        if threads.engine is not None and (why := threads.engine.why_not()):
            raise ClientClosedError(f"cannot call the cluster: {why}")
    except BaseException:
        coroutine.close()
        raise
    return asyncio.run_coroutine_threadsafe(coroutine, engine)


def run(
    coroutine: Coroutine[Any, Any, T], timeout: float | None = None, *, whole: bool = False
) -> T:
    """Run a coroutine on the engine's thread and wait for its result. Raises as `wait` does.

    An exception raised here by a signal cancels the coroutine, unless `whole`.
    """
    try:
        threads.refuse_to_wait("call a blocking method")
        engine = loop()
    except BaseException:
        coroutine.close()
        raise
    call = _Call(coroutine)
    try:
        engine.call_soon_threadsafe(call.start)
        if not threads.wait(call.wait, timeout, "call a blocking method"):
            raise TimeoutError
    except BaseException:
        if not whole:
            engine.call_soon_threadsafe(call.cancel)
        raise
    return call.result()


def can_close() -> bool:
    """Return False if the engine's thread cannot run any more, so no client can be closed.

    Raises RuntimeError if a close would wait for itself.
    """
    if is_over():
        return False
    threads.refuse_to_wait("close")
    return True


def is_over() -> bool:
    """Tell whether the engine's thread can never run again."""
    return sys.is_finalizing() or (threads.engine is not None and bool(threads.engine.why_not()))


def end_dropped(what: str, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Warn of an open client in `__del__`, and end it on the engine's thread."""
    engine = threads.engine
    if engine is None or is_over():
        return
    try:
        warnings.warn(f"{what} was dropped without close()", ResourceWarning, stacklevel=3)
    finally:
        engine.loop.call_soon_threadsafe(_end, ending)


def _end(ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
    task = asyncio.get_running_loop().create_task(ending())
    _endings.add(task)
    task.add_done_callback(_endings.discard)


_endings: set[asyncio.Task[None]] = set()


def register(client: Forkable) -> None:
    """Have `client._forked()` called in a child process."""
    global _others_use_grpc
    _others_use_grpc = False
    _clients.add(client)


def _before_fork() -> None:
    global _forking_under_grpc, _others_use_grpc
    if not _others_use_grpc and all(client._closed for client in list(_clients)):
        for pause in _FORK_PAUSES_S:
            if not _grpc_runs():
                break
            gc.collect()  # the last channel may be part of a cycle
            time.sleep(pause)  # no event: native threads that end
        else:
            _others_use_grpc = True
    _forking_under_grpc = _grpc_runs()


def _grpc_runs() -> bool:
    if any(_POLLER in thread.name for thread in threading.enumerate()):
        return True
    if threads.engine is None:
        return False
    # Systems without /proc do not tell when native threads end: a child is refused there.
    return not _TASKS.exists() or not _NATIVE.isdisjoint(_native_threads())


def _native_threads() -> set[str]:
    names = set()
    for task in _TASKS.iterdir():
        try:
            names.add((task / "comm").read_text().strip())
        except OSError:
            pass  # it has ended
    return names


def _after_fork() -> None:
    global _start_lock, _forked_under_grpc
    _forked_under_grpc = _forked_under_grpc or _forking_under_grpc
    # gRPC's objects of the parent must not be freed in the child: it would crash.
    _of_the_parent.extend([threads.engine, *_clients])
    threads.engine = None
    _start_lock = threads.shared_lock()
    engine_threads.clear()
    diverting.forked()
    for client in list(_clients):
        client._forked()
    _clients.clear()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
