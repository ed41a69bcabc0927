"""Background tasks of a node, and its periodic ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

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
