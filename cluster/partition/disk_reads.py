"""Disk reads in threads of their own, so that the event loop never waits for a disk.

services, lookup --without_waiting--> Read, BackwardRead --not in memory--> a thread
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from storage.errors import NotCachedError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

AT_A_TIME = 4  # reads; further reads wait
POOL = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="read")  # the node starts its threads


class Reading(Protocol[T_co]):
    """A read made by `Reader`."""

    def run(self, *, cached_only: bool = False) -> T_co: ...


async def in_thread(step: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(POOL, step, *arguments)


async def without_waiting(reading: Reading[T]) -> T:
    """Runs the read, in a thread unless it is in memory. Raises the errors of its `run`."""
    try:
        return reading.run(cached_only=True)
    except NotCachedError:
        return await in_thread(reading.run)
