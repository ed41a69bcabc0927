"""Reads that may wait for a disk: by threads of their own, so that the event loop does not.

services, lookup --without_waiting--> Read, BackwardRead --what is not in memory--> a thread
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from storage.errors import NotCachedError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

AT_A_TIME = 4  # more wait
POOL = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="read")  # a node starts its threads


class Reading(Protocol[T_co]):
    """A read that `reader` gives."""

    def run(self, *, cached_only: bool = False) -> T_co: ...


async def in_thread(step: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(POOL, step, *arguments)


async def without_waiting(reading: Reading[T]) -> T:
    """What the read gives: at once if it is in memory. Raises what its `run` does."""
    try:
        return reading.run(cached_only=True)
    except NotCachedError:
        return await in_thread(reading.run)
