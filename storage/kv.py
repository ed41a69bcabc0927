"""Interface to the disk: ordered keys in four families, atomic batches, one sync.

Everything above (`raft_log`, `offset_index`, `checkpoints`) speaks only these
Protocols. `Engine` implements them over RocksDB, the simulator in memory with
the loss of unsynced writes.

Safety rests on this contract:

- a batch is applied whole or not at all, and batches in the order of `write`;
- after a crash the survivors are a prefix of the batches written, and it
  reaches at least to the last `sync` that returned;
- a read sees every batch written, synced or not.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Protocol


class Family(enum.Enum):
    """The column families. Every key in each begins with its group (`keys.group_range`)."""

    ENTRIES = "entries"
    STATE = "state"
    OFFSETS = "offsets"
    CHECKPOINTS = "checkpoints"


class WriteBatch(Protocol):
    """Changes that are written together, applied in the order of the calls."""

    def put(self, family: Family, key: bytes, value: bytes, checksum: int | None = None) -> None:
        """Puts a row. checksum: CRC-32C of `value`, if made before; it is stored."""

    def delete(self, family: Family, key: bytes) -> None: ...

    def delete_range(self, family: Family, begin: bytes, end: bytes) -> None:
        """Deletes begin <= key < end, also rows that this batch put before."""

    def __len__(self) -> int:
        """Number of operations."""


class KeyValue(Protocol):
    """One node's disk. Raises StorageError and its kinds."""

    def batch(self) -> WriteBatch: ...

    def write(self, batch: WriteBatch) -> None:
        """Applies the batch: atomic, ordered, visible at once, NOT yet durable."""

    def sync(self) -> None:
        """Blocks until all writes that returned before this call survive a power loss."""

    def get(self, family: Family, key: bytes) -> bytes | None: ...

    def get_unchecked(
        self, family: Family, key: bytes, *, cached_only: bool = False
    ) -> bytes | None:
        """Gets as `get`, but maybe damaged bytes: for a caller with a checksum of its own.

        cached_only: raises NotCachedError instead of waiting for the disk.
        """

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns values in the order of `keys`, None for missing ones."""

    def scan(
        self,
        family: Family,
        begin: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yields keys begin <= key < end, rising (falling with `reverse`), at most `limit`.

        Memory is bounded for a range of any size. Not a snapshot: rows written during the scan may
        or may not be seen.
        """

    def scan_keys(
        self,
        family: Family,
        begin: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[bytes]:
        """Yields the keys of `scan`, without reading their values, which may be damaged."""
