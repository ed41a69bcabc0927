"""Background tasks of a node, its periodic ones, and pools whose threads start with the node."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cluster.errors import ClusterError
from storage.errors import StorageError

log = logging.getLogger(__name__)

LOOK_PERIOD = 0.5  # seconds between looks at leaders and at followers that need a snapshot


class Tasks:
    """Background tasks; a failed task is an error in the log."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a duty failed", exc_info=task.exception())


async def every(period: float, work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(period)
        try:
            work()
        except StorageError as error:
            log.warning("a duty was not done this time: %s", error)


def start_all(pool: ThreadPoolExecutor, count: int) -> ThreadPoolExecutor:
    """Start the `count` threads that the pool may have. Raises ClusterError.

    A pool starts its threads one by one, as work comes. If the system has none left by then (a
    limit of the user's or of the container's), the node's work in threads fails, and the node
    ends. So a node does not start without them.
    """
    together = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(together.wait)  # it takes a thread of its own: the others wait, too
    except RuntimeError as error:
        together.abort()
        raise ClusterError(
            f"threads: {error}; raise the limit of threads of the node's process (ulimit -u, "
            "pids.max, TasksMax=)"
        ) from error
    together.wait()
    return pool
