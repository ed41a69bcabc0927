"""Errors that storage can report.

    StorageError                 the disk or RocksDB refused; the text names the attempted step
    |-- StorageFullError         no space left, or less than the reserve, or no open files;
    |                            reads go on
    |-- CorruptionError          stored bytes fail their checksum, or synced ones are missing
    |-- NotCachedError           not in memory, and the caller does not wait for the disk
    |-- LockedError              another process holds the directory
    |-- IdentityError            the directory, or a part of it, belongs to another
    `-- MissingStoreError        the directory was used before, and its store is not there

Broken invariants of our own code are assertions, not these.
"""

from __future__ import annotations

import errno

# No file could be opened: nothing was written or synced in part, so nothing is in doubt.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class StorageError(Exception):
    """An operating fault of the storage layer."""


class StorageFullError(StorageError):
    """There is no space to write to, or no file could be opened for it.

    recoverable_in_place: the batch was not written and nothing else is in doubt: write it again
    later. Otherwise unsynced writes may be lost, and only a restart helps.
    """

    def __init__(self, message: str, *, recoverable_in_place: bool = False) -> None:
        super().__init__(message)
        self.recoverable_in_place = recoverable_in_place

    def again(self, message: str) -> StorageFullError:
        """Returns the same fault for a later write."""
        return StorageFullError(message, recoverable_in_place=self.recoverable_in_place)


class CorruptionError(StorageError):
    """Stored data is damaged or missing. It is never served in part.

    group, index: the Raft group and the entry or checkpoint concerned, None if the damage has no
    single place.
    """

    def __init__(self, message: str, *, group: int | None = None, index: int | None = None) -> None:
        where = "".join(
            f"{name} {value}, "
            for name, value in (("group", group), ("index", index))
            if value is not None
        )
        super().__init__(where + message)
        self.group = group
        self.index = index


class NotCachedError(StorageError):
    """The value is not in memory, and the caller does not wait for the disk."""


class LockedError(StorageError):
    """A running process holds the directory. `pid`: of that process, 0 if unknown."""

    def __init__(self, message: str, *, pid: int = 0) -> None:
        super().__init__(message)
        self.pid = pid


class IdentityError(StorageError):
    """The directory, or a part of it, was made for another cluster, node or directory."""


class MissingStoreError(StorageError):
    """The directory was used before, and its store, or a part of it, is not there.

    A new store in its place would have forgotten votes and acknowledgements.
    """


def from_engine(error: Exception, action: str) -> StorageError:
    """Translates an error that RocksDB reported as a text.

    RocksDB's binding has one exception type for everything; its text begins
    with the status ("Corruption: ...", "IO error: ...") and ends with the
    system's own words.
    """
    text = str(error)
    message = f"{action}: {text}"
    # A file missing from RocksDB's own bookkeeping is lost data, too.
    if any(words in text for words in _DAMAGED):
        return CorruptionError(message)
    if any(words in text for words in _FULL):
        return StorageFullError(message)
    if any(words in text for words in _LOCKED):
        return LockedError(message)
    return StorageError(message)


def fault_of(error: Exception, action: str) -> StorageError:
    """Translates the error of a write, a sync or a flush.

    A StorageFullError of it is marked recoverable_in_place.
    """
    failure = from_engine(error, action)
    if isinstance(failure, StorageFullError):
        if isinstance(error, OSError) and error.errno not in NO_DESCRIPTORS:
            # The commit log's sync failed: nobody knows which of its data is left.
            return StorageError(str(failure))
        failure.recoverable_in_place = True
    return failure


_DAMAGED = (
    "Corruption:",
    "No such file or directory",
    # Reported for a missing database that had synced before.
    "create_if_missing is false",
    "Column family not found",
)
_FULL = (
    "No space left on device",
    "Disk quota exceeded",
    "NoSpace",
    "Space limit reached",
    "Too many open files",
)
_LOCKED = ("lock hold by current process", "While lock file", "Resource temporarily unavailable")
