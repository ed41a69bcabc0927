"""What a node keeps on disk: one RocksDB for all Raft groups of the node.

    cluster --RaftLogStore, OffsetIndex, CheckpointStore--> KeyValue --> Engine --> RocksDB

`kv` is the narrow waist: everything above it is stateless and works over any
`KeyValue`, so a simulator can put a disk in memory under the real code. This
package imports nothing else of ours.
"""

from __future__ import annotations

from storage.errors import (
    CorruptionError,
    IdentityError,
    LockedError,
    StorageError,
    StorageFullError,
)

__all__ = [
    "CorruptionError",
    "IdentityError",
    "LockedError",
    "StorageError",
    "StorageFullError",
]
