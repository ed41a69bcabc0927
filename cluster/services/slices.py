"""Walks over all partitions that yield to other tasks in between.

A cluster may have 20,000 partitions: at some microseconds each, a walk would hold up
everything else on the node for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE = 500  # of partitions, a few milliseconds


async def in_slices(items: Iterable[T], size: int = SLICE) -> AsyncIterator[T]:
    """Yield the items unchanged; others run after each `size` of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % size == 0:
            await asyncio.sleep(0)
