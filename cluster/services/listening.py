"""Waiting for news of partitions: what long polls and late predecessors have in common."""

from __future__ import annotations

import asyncio

from cluster.partition.replica import Partition


class Listening:
    """An event that is set when any of the partitions has news."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self._event = asyncio.Event()

    def __enter__(self) -> Listening:
        for partition in self._partitions:
            partition.listeners.add(self._event.set)
        return self

    def __exit__(self, *exc: object) -> None:
        for partition in self._partitions:
            partition.listeners.discard(self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, deadline: float) -> bool:
        """Returns whether there was news before the deadline (event loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
