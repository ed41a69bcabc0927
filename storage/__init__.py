"""Storage of a node: one store on disk for all its Raft groups.

    cluster --RaftLogStore, OffsetIndex, CheckpointStore--> KeyValue --> Engine
                               commit log: every batch, the entries <------|
                               RocksDB: their places, everything else   <--|

`kv` is the narrow interface: everything above it is stateless and works over any `KeyValue`, so a
simulator can put an in-memory disk under the real code. This package imports nothing else of ours.
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
