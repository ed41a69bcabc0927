"""Producer ids: issue times of their blocks, as the metadata group remembers them.

Ids rise and are never issued twice. The metadata group gives a node a block of
ids, which the node hands out one by one (`cluster.node.metadata.producer_id_blocks`).

An id's lease runs from the moment its block was issued, because that moment is
in the log: all ids below the first block younger than a lease are expired, and
every replica of every partition can tell so from one number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

# Blocks issued within this part of a lease share a record. That bounds the
# records, and lets ids expire up to this much late, never early.
BLOCKS_PER_LIFETIME = 1000


class IssuedBlocks:
    """Issue times of blocks, oldest first, as columns. Part of `MetadataState`.

    Holds at most about `BLOCKS_PER_LIFETIME` records: a record older than a lease is dropped, and
    all ids below the first record are expired for good.
    """

    __slots__ = ("_first", "_issued", "_node")

    def __init__(self) -> None:
        self._first = array("q")
        self._issued = array("q")
        self._node = array("i")

    def __len__(self) -> int:
        return len(self._first)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yields (first producer id, issued ms, node id) in rising order."""
        return zip(self._first, self._issued, self._node, strict=True)

    def add(self, first_id: int, now_ms: int, node_id: int, lifetime_ms: int) -> None:
        """Records that the ids from `first_id` on were issued at `now_ms`."""
        assert not self._first or first_id > self._first[-1], "producer ids must rise"
        assert not self._issued or now_ms >= self._issued[-1], "the log's clock must not fall"
        span = max(1, lifetime_ms // BLOCKS_PER_LIFETIME)
        if self._issued and self._issued[-1] // span == now_ms // span:
            self._issued[-1] = now_ms
            self._node[-1] = node_id
        else:
            self.restore(first_id, now_ms, node_id)

    def restore(self, first_id: int, issued_ms: int, node_id: int) -> None:
        """Appends a record of a snapshot as it is."""
        self._first.append(first_id)
        self._issued.append(issued_ms)
        self._node.append(node_id)

    def forget(self, now_ms: int, lifetime_ms: int) -> None:
        """Drops the records of ended leases."""
        count = bisect_right(self._issued, now_ms - lifetime_ms)
        if count:
            del self._first[:count], self._issued[:count], self._node[:count]

    def expired_below(self, now_ms: int, lifetime_ms: int, next_id: int) -> int:
        """Returns the first id with a running lease; `next_id`, the first unissued, if none has."""
        position = bisect_right(self._issued, now_ms - lifetime_ms)
        return self._first[position] if position < len(self._first) else next_id

    def issued_ms(self, producer_id: int) -> int | None:
        """Returns when the lease of an issued id began; None: it is over and forgotten."""
        position = bisect_right(self._first, producer_id) - 1
        return self._issued[position] if position >= 0 else None
