"""Producer ids: blocks in the replicated state, and a node's hand-out from its block.

Ids rise and are never issued twice. The metadata group gives a node a block of
ids (`IssuedBlocks` remembers when); the node hands them out one by one
(`ProducerIdBlocks`) and forgets the rest of its block when it stops.

An id's lease runs from the moment its block was issued, because that moment is
in the log: all ids below the first block younger than a lease are expired, and
every replica of every partition can tell so from one number. A node therefore
stops using a block after a small part of a lease (`max_age_s`).
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator

# Blocks issued within this part of a lease share a record. That bounds the
# records, and lets ids expire up to this much late, never early.
BLOCKS_PER_LIFETIME = 1000


class IssuedBlocks:
    """When blocks were issued, oldest first, as columns. Part of `MetadataState`.

    Holds at most about `BLOCKS_PER_LIFETIME` records: what is older than a lease
    is dropped, and all ids below the first record are expired for good.
    """

    __slots__ = ("_first", "_issued", "_node")

    def __init__(self) -> None:
        self._first = array("q")
        self._issued = array("q")
        self._node = array("i")

    def __len__(self) -> int:
        return len(self._first)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(first producer id, issued ms, node id) in rising order."""
        return zip(self._first, self._issued, self._node, strict=True)

    def add(self, first_id: int, now_ms: int, node_id: int, lifetime_ms: int) -> None:
        """Record that the ids from `first_id` on were issued at `now_ms`."""
        assert not self._first or first_id > self._first[-1], "producer ids must rise"
        assert not self._issued or now_ms >= self._issued[-1], "the log's clock must not fall"
        span = max(1, lifetime_ms // BLOCKS_PER_LIFETIME)
        if self._issued and self._issued[-1] // span == now_ms // span:
            self._issued[-1] = now_ms
            self._node[-1] = node_id
        else:
            self.restore(first_id, now_ms, node_id)

    def restore(self, first_id: int, issued_ms: int, node_id: int) -> None:
        """Append a record of a snapshot as it is."""
        self._first.append(first_id)
        self._issued.append(issued_ms)
        self._node.append(node_id)

    def forget(self, now_ms: int, lifetime_ms: int) -> None:
        """Drop the records whose leases are over."""
        count = bisect_right(self._issued, now_ms - lifetime_ms)
        if count:
            del self._first[:count], self._issued[:count], self._node[:count]

    def expired_below(self, now_ms: int, lifetime_ms: int, next_id: int) -> int:
        """First id whose lease is not over; `next_id`, the first unissued one, if all are."""
        position = bisect_right(self._issued, now_ms - lifetime_ms)
        return self._first[position] if position < len(self._first) else next_id

    def issued_ms(self, producer_id: int) -> int | None:
        """When the lease of an issued `producer_id` began; None if it is forgotten, so over."""
        position = bisect_right(self._first, producer_id) - 1
        return self._issued[position] if position >= 0 else None


def max_block_age_s(lifetime_ms: int) -> float:
    """How old a node's block may get: a small part of a lease, but not shorter than commits."""
    lifetime_s = lifetime_ms / 1000
    return max(lifetime_s / 100, min(lifetime_s / 4, 1.0))


class ProducerIdBlocks:
    """Hands out producer ids of this node's blocks. In memory only, on purpose.

    `allocate` gets a block of `size` ids from the metadata group and returns the
    first. However many callers wait, one allocation is in flight; if it fails,
    its error goes to all of them. `clock` is monotonic, in seconds.
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
        """How old a block may get; leases have become shorter."""
        assert max_age_s > 0, max_age_s
        self._max_age_s = max_age_s

    async def next_id(self) -> int:
        """A producer id that nobody else has or will get. Raises what `allocate` raises."""
        while True:
            if self._next < self._end and self._clock() - self._taken_at < self._max_age_s:
                taken = self._next
                self._next += 1
                return taken
            if self._refill is None:
                self._refill = asyncio.create_task(self._take_block())
                # All who wait may have given up; its error is then nobody's.
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
            self._next, self._end = first, first + self._size
            self._highest = self._end - 1
            self._taken_at = asked_at
        finally:
            self._refill = None
