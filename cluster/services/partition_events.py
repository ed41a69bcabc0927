"""Wait for news of partitions, shared by long polls and batches that wait for a predecessor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from cluster.partition.replica import Partition


class Listening:
    """Counts the news of some partitions while it is entered; several tasks may wait.

    A waiter reads `count` before it looks, so that it misses no news in between.
    """

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._partitions = set(partitions)
        self._event = asyncio.Event()
        self.count = 0

    def add(self, partition: Partition) -> None:
        """Listen to one more partition, while entered."""
        self._partitions.add(partition)
        partition.listeners.add(self._on_news)

    def __enter__(self) -> Listening:
        for partition in self._partitions:
            partition.listeners.add(self._on_news)
        return self

    def __exit__(self, *exc: object) -> None:
        for partition in self._partitions:
            partition.listeners.discard(self._on_news)

    def _on_news(self) -> None:
        self.count += 1
        self._event.set()

    async def wait(self, seen: int, deadline: float) -> bool:
        """Return whether news beyond the count `seen` came before the deadline (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                while self.count == seen:
                    self._event.clear()
                    await self._event.wait()
        except TimeoutError:
            return False
        return True
