"""A node's hand-out of producer ids from the blocks that the metadata group gives it.

    LeaseProducer --> ProducerIdBlocks.next_id --one block at a time--> metadata group

An id's lease runs from the moment its block was issued, so a node stops using a block
after a small part of a lease, and forgets the rest of it when it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


def max_block_age_s(lifetime_ms: int) -> float:
    """Return how old a node's block may get: a small part of a lease, no shorter than commits."""
    lifetime_s = lifetime_ms / 1000
    return max(lifetime_s / 100, min(lifetime_s / 4, 1.0))


class ProducerIdBlocks:
    """Hands out producer ids of this node's blocks. In memory only, on purpose.

    `allocate` gets a block of `size` ids from the metadata group and returns the
    first. All waiting callers share one allocation; if it fails, its error goes to
    all of them. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        allocate: Callable[[], Awaitable[int]],
        size: int,
        max_age_s: float,
        clock: Callable[[], float],
    ) -> None:
        assert size >= 1 and max_age_s > 0, (size, max_age_s)
        self._allocate = allocate
        self._size = size
        self._max_age_s = max_age_s
        self._clock = clock
        self._next = 0
        self._end = 0
        self._taken_at = 0.0
        self._highest = 0
        self._refill: asyncio.Task[None] | None = None

    def set_max_age(self, max_age_s: float) -> None:
        """Set how old a block may get; leases have become shorter."""
        assert max_age_s > 0, max_age_s
        self._max_age_s = max_age_s

    async def next_id(self) -> int:
        """Return a producer id that no other caller gets. Raises the errors of `allocate`."""
        while True:
            if self._next < self._end and self._clock() - self._taken_at < self._max_age_s:
                taken = self._next
                self._next += 1
                return taken
            if self._refill is None:
                self._refill = asyncio.create_task(self._take_block())
                # All waiters may have given up; no one is left to take the error.
                self._refill.add_done_callback(lambda task: task.cancelled() or task.exception())
            # Shielded: one caller that gives up must not end the others' wait.
            await asyncio.shield(self._refill)

    async def close(self) -> None:
        """End an allocation in flight; its ids are lost, which is allowed."""
        if self._refill is not None:
            self._refill.cancel()
            await asyncio.wait([self._refill])

    async def _take_block(self) -> None:
        # The block's age counts from before the request: it may have been issued
        # long before its answer came.
        asked_at = self._clock()
        try:
            first = await self._allocate()
            assert first > self._highest, f"producer id {first} was issued before"
            self._next = first
            self._end = first + self._size
            self._highest = self._end - 1
            self._taken_at = asked_at
        finally:
            self._refill = None
