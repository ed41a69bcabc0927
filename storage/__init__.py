"""What a node keeps on disk, for all its Raft groups together.

    cluster --RaftLogStore, OffsetIndex, CheckpointStore--> KeyValue --> Engine
                               commit log: every batch, the entries <------|
                               RocksDB: where they are, everything else <--|

`kv` is the narrow waist: everything above it is stateless and works over any
`KeyValue`, so a simulator can put a disk in memory under the real code. This
package imports nothing else of ours.
"""

from __future__ import annotations

from storage.errors import (
    CorruptionError,
    IdentityError,
    LockedError,
    MissingStoreError,
    StorageError,
    StorageFullError,
)

__all__ = [
    "CorruptionError",
    "IdentityError",
    "LockedError",
    "MissingStoreError",
    "StorageError",
    "StorageFullError",
]
