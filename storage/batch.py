"""Write batch of the engine: a list of operations until it is written.

It has nothing of RocksDB, so it outlives a reopening of the store and can be written again after a
stall or a full disk. Values are referenced, not copied.
"""

from __future__ import annotations

from storage.kv import Family

# Batches with values up to this size pass below the reserve, down to a quarter of it: votes, small
# state. Trimming ones among them always pass: they make room.
HOUSEKEEPING_BYTES = 4096


class Batch:
    """See `kv.WriteBatch`.

    put_bytes: size of all values. checksums: given with a value, by the number of its operation.
    """

    __slots__ = ("checksums", "deletes_range", "operations", "put_bytes")

    def __init__(self) -> None:
        # (family, key or begin, value or end or None, is it a range)
        self.operations: list[tuple[Family, bytes, bytes | None, bool]] = []
        self.checksums: dict[int, int] = {}
        self.put_bytes = 0
        self.deletes_range = False

    def put(self, family: Family, key: bytes, value: bytes, checksum: int | None = None) -> None:
        if checksum is not None:
            self.checksums[len(self.operations)] = checksum
        self.operations.append((family, key, value, False))
        self.put_bytes += len(value)

    def delete(self, family: Family, key: bytes) -> None:
        self.operations.append((family, key, None, False))

    def delete_range(self, family: Family, begin: bytes, end: bytes) -> None:
        assert begin <= end, (begin, end)
        self.operations.append((family, begin, end, True))
        self.deletes_range = True

    def __len__(self) -> int:
        return len(self.operations)

    def fits(self, free_bytes: int, reserve: int) -> bool:
        """Whether the batch may be written to a disk with this much space left."""
        if free_bytes >= reserve:
            return True
        small = self.put_bytes <= HOUSEKEEPING_BYTES
        return small and (self.deletes_range or free_bytes >= reserve // 4)
